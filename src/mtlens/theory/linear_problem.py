"""One task for the linear core, and which rows of several tasks belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mtlens.arrays import Array, BoolArray, FloatArray
from mtlens.errors import InputError


@dataclass(frozen=True, eq=False)
class LinearProblem:
    """One task for the linear core: numbers in, numbers out.

    Args:
        name: of the task.
        X: ``(m, d)`` finite numbers; every problem of a core has the same ``d`` columns, meaning the same things.
        y: ``(m,)`` labels, NaN = missing; class codes 0 .. K-1 for classes.
        kind: "regression", "binary" or "multiclass". Classes are fitted by least squares on 0/1 columns (one for
            binary, K for multiclass).
        weight: ``(m,)`` sample weights or None.
        group: ``(m,)`` rows that must be held out together, also across problems, or None.
        num_classes: K, found from ``y`` when not given.
    """

    name: str
    X: Array
    y: FloatArray
    kind: str = "regression"
    weight: FloatArray | None = None
    group: Array | None = None
    num_classes: int = 0

    def __post_init__(self) -> None:
        if self.X.ndim != 2 or len(self.X) != len(self.y):
            raise InputError(
                f"linear problem {self.name!r}: X has shape {self.X.shape} and y {self.y.shape}. "
                "Give (m, d) numbers and m labels; flatten or featurise other inputs first."
            )
        if not self.labelled.any():
            raise InputError(f"linear problem {self.name!r} has no labelled row. Drop it, or give it labels.")

    @cached_property
    def labelled(self) -> BoolArray:
        """``(m,)`` rows with a label (and a weight above zero)."""
        known: BoolArray = ~np.isnan(self.y)
        if self.weight is not None:
            known &= np.asarray(self.weight) > 0
        return known

    @cached_property
    def outputs(self) -> FloatArray:
        """``(m, q)`` what the linear model fits: the label, or a 0/1 column a class; NaN where missing."""
        if self.kind != "multiclass":
            return self.y[:, None].astype(np.float64)
        count = self.num_classes or int(np.nanmax(self.y)) + 1
        one_hot: FloatArray = (self.y[:, None] == np.arange(count)).astype(np.float64)
        one_hot[np.isnan(self.y)] = np.nan
        return one_hot


def near_mean(X: Array) -> FloatArray:
    """A point near the mean: moments relative to it keep their digits when columns have large means."""
    origin: FloatArray = np.asarray(X[: min(len(X), 4096)], dtype=np.float64).mean(axis=0)
    if not np.isfinite(origin).all():
        row = int(np.flatnonzero(~np.isfinite(X).all(axis=1))[0])
        raise InputError(f"linear transfer needs finite inputs; row {row} is not. Fill or drop such values first.")
    return origin


def input_groups(problems: Sequence[LinearProblem]) -> list[int]:
    """A number a problem; equal where problems share X, the labelled rows and the weights, hence every input moment."""
    seen: dict[tuple[int, bytes, bytes], int] = {}
    groups = []
    for p in problems:
        weight = b"" if p.weight is None else np.asarray(p.weight, dtype=np.float64).tobytes()
        groups.append(seen.setdefault((id(p.X), np.packbits(p.labelled).tobytes(), weight), len(seen)))
    return groups


def row_keys(problems: Sequence[LinearProblem]) -> list[Array]:
    """What must stay together: rows of one shared X, and equal group labels anywhere."""
    bases: dict[int, int] = {}
    keys = []
    total = 0
    for p in problems:
        if id(p.X) not in bases:
            bases[id(p.X)] = total
            total += len(p.X)
        keys.append(bases[id(p.X)] + np.arange(len(p.X)))
    if all(p.group is None for p in problems):
        return keys
    return _joined_by_group(problems, keys, total)


def _joined_by_group(problems: Sequence[LinearProblem], keys: list[Array], total: int) -> list[Array]:
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    labels = [np.asarray(p.group).astype(str) for p in problems if p.group is not None]
    names, place = np.unique(np.concatenate(labels), return_inverse=True)
    rows = np.concatenate([key for p, key in zip(problems, keys, strict=True) if p.group is not None])
    size = total + len(names)
    links = coo_matrix((np.ones(len(rows)), (rows, total + place)), shape=(size, size))
    _, component = connected_components(links, directed=False)
    return [component[key] for key in keys]
