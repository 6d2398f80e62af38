"""What a reader is told about a table or a bundle of arrays, and what file formats call the three parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtlens.arrays import Array, BoolArray
from mtlens.errors import InputError, unknown
from mtlens.tasks.frames import is_missing
from mtlens.tasks.task import Kind

PART_NAMES = {
    "train": ("train", "training", "train_subset", "train_val", "train_valid", "trainval"),
    "valid": ("valid", "validation", "val", "dev", "development"),
    "test": ("test", "testing"),
}
UNLABELLED = ("test_unlabelled", "test_unlabeled", "unlabelled", "unlabeled")
_PART_OF = {alias: part for part, aliases in PART_NAMES.items() for alias in aliases} | dict.fromkeys(
    UNLABELLED, "test"
)


@dataclass(frozen=True)
class Choices:
    """Column names (or names of arrays) and what else is stated; None or empty is found out.

    ``missing`` are label values that mean "no label". ``names`` gives tasks other names than their label columns.
    """

    targets: tuple[str, ...] = ()
    names: Mapping[str, str] | None = None
    text: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    kind: Kind | Mapping[str, Kind] | None = None
    metric: str | None = None
    split: str | None = None
    group: str | None = None
    time: str | None = None
    weight: str | None = None
    ids: str | None = None
    missing: tuple[Any, ...] = ()
    class_weight: str | Mapping[Any, float] | None = None

    def kind_of(self, target: str) -> Kind | None:
        if self.kind is None or isinstance(self.kind, str):
            return self.kind
        return self.kind.get(target)

    def check_kinds(self, targets: Sequence[str], where: str) -> None:
        """Refuse kinds that are stated for what is no target."""
        for target in () if self.kind is None or isinstance(self.kind, str) else self.kind:
            require(target, targets, f"{where}, in kind", "target")

    @property
    def special(self) -> tuple[str, ...]:
        """Columns that are said to be something else than a feature or a label."""
        named = (self.split, self.group, self.time, self.weight, self.ids)
        return tuple(name for name in named if name is not None)


def as_names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """One name or several, as a tuple; repeats are refused."""
    if given is None:
        return ()
    names = (given,) if isinstance(given, str) else tuple(str(name) for name in given)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"these names are given more than once: {', '.join(twice)}. Name each column once.")
    return names


def parts_from(values: Array, where: str) -> tuple[Array | None, BoolArray]:
    """A split column as train / valid / test, and the mask of rows in a part called unlabelled.

    Readers take "dev" for valid, "train_subset" for train and "test_unlabelled" for test; a column that says "all"
    everywhere is no split at all.

    >>> parts_from(np.array(["train", "dev", "test_unlabelled"]), "t")[0].tolist()
    ['train', 'valid', 'test']
    """
    found, place = np.unique(["" if is_missing(v) else str(v).strip().lower() for v in values], return_inverse=True)
    unlabelled = np.isin(found, UNLABELLED)[place]
    if set(found.tolist()) <= {"all", ""}:
        return None, unlabelled
    strange = [part for part in found.tolist() if part not in _PART_OF]
    if strange:
        raise InputError(
            f"{where}: the split column holds {', '.join(map(repr, strange[:5]))}. It takes train, valid (or dev) and "
            "test (or test_unlabelled) in every row, or 'all' in all of them."
        )
    return np.array([_PART_OF[part] for part in found.tolist()])[place], unlabelled


def looks_like_parts(values: Array) -> bool:
    """Whether a column says nothing but parts; a split with gaps looks like one, too: it is refused when read."""
    if values.dtype.kind not in "OU":
        return False
    names = {*_PART_OF, "all", ""}
    if not all(is_missing(v) or str(v).strip().lower() in names for v in values):
        return False
    return not all(is_missing(v) or not str(v).strip() for v in values)


def without(y: Array, missing: Sequence[Any], unlabelled: BoolArray) -> Array:
    """Labels with None / NaN where they are ``missing`` values, or -1 in a part called unlabelled."""
    gone = np.zeros(len(y), bool)
    for value in missing:
        gone |= _equals(y, value)
    if unlabelled.any():
        gone |= unlabelled & (_equals(y, -1) | _equals(y, "-1"))
    if not gone.any():
        return y
    y = y.astype(np.float64) if y.dtype.kind in "fiub" else y.astype(object)
    y[gone] = np.nan if y.dtype.kind == "f" else None
    return y


def _equals(y: Array, value: Any) -> BoolArray:
    if y.dtype.kind in "fiub":
        try:
            return np.asarray(y == float(value), dtype=bool)
        except (TypeError, ValueError):
            return np.zeros(len(y), bool)
    return np.array([entry == value or str(entry) == str(value) for entry in y.tolist()], dtype=bool)


def require(name: str, known: Sequence[str], where: str, what: str = "column") -> str:
    """The name, when it is known."""
    if name not in known:
        raise unknown(what, name, known, where)
    return name
