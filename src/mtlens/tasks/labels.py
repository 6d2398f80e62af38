"""Raw labels to numbers: codes, classes and the kind of task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.errors import InputError, unknown
from mtlens.tasks.frames import as_array, is_missing, seconds_of

if TYPE_CHECKING:
    from mtlens.tasks.task import Kind

KINDS = ("regression", "binary", "multiclass")
MOST_CLASSES = 20  # more distinct integers than this are read as a quantity


@dataclass(frozen=True)
class Labels:
    """Encoded labels: ``codes`` float64 with NaN for missing, ``classes`` in code order (empty for regression)."""

    codes: FloatArray
    kind: Kind
    classes: tuple[Any, ...]
    found: str


def encode_labels(y: Any, *, kind: Kind | None, classes: Sequence[Any] | None, where: str) -> Labels:
    """Turn raw labels into numbers, and find out what kind of task they make when that is not said."""
    if kind is not None and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    raw = as_array(y, f"{where}: y")
    if raw.ndim == 2 and raw.shape[1] == 1:
        raw = raw[:, 0]
    if raw.ndim != 1:
        raise InputError(f"{where}: labels need one entry a row, found shape {raw.shape}. Use one task a column.")
    if raw.dtype.kind == "c":
        raise InputError(f"{where}: labels are complex numbers. Give their real and imaginary parts as two tasks.")
    values, missing = _values(raw)
    present = values[~missing]
    if not len(present):
        raise InputError(f"{where}: no row has a label. A task needs labelled rows; check the label column.")
    is_number = present.dtype.kind == "f"
    if is_number and not np.isfinite(present).all():
        row = int(np.flatnonzero(~missing)[~np.isfinite(present)][0])
        raise InputError(
            f"{where}: the label of row {row} is infinite. Replace it, or leave it empty if it is unknown."
        )
    distinct = np.unique(present) if classes is None else np.asarray(list(classes))
    found_kind, found = (kind, f"{kind} (stated)") if kind else _find_kind(distinct, is_number)
    if found_kind == "regression":
        if not is_number:
            raise InputError(
                f"{where}: regression needs numbers, found the label {present[0]!r}. Use kind='multiclass'?"
            )
        codes = np.full(len(raw), np.nan)
        codes[~missing] = present
        return Labels(codes, "regression", (), found)
    _check_classes(distinct, found_kind, where)
    return Labels(_codes(values, missing, distinct, where), found_kind, tuple(_plain(distinct, is_number)), found)


def _values(raw: Array) -> tuple[Array, Array]:
    """Values as float64 or object-of-str, and the mask of missing ones."""
    if raw.dtype.kind in "fiub":
        numbers = raw.astype(np.float64)
        return numbers, np.isnan(numbers)
    if raw.dtype.kind in "mM":  # as the readers take dates
        numbers = seconds_of(raw)
        return numbers, np.isnan(numbers)
    entries: Array = raw.astype(object)
    missing = np.array([is_missing(e) for e in entries], dtype=bool)
    present = entries[~missing]
    if all(isinstance(e, (Real, Decimal, np.bool_)) for e in present):
        numbers = np.full(len(entries), np.nan)
        numbers[~missing] = [_float(e) for e in present]
        return numbers, missing
    texts = np.array([None if gone else str(e) for e, gone in zip(entries, missing, strict=True)], dtype=object)
    return texts, missing


def _float(number: Any) -> float:
    """The number; a whole one beyond float64 is infinite, which is refused with its row."""
    try:
        return float(number)
    except OverflowError:
        return np.inf


def _find_kind(distinct: Array, is_number: bool) -> tuple[Kind, str]:
    count = len(distinct)
    if is_number and (np.any(distinct != np.round(distinct))):
        return "regression", "regression (labels are not whole numbers)"
    if is_number and count > MOST_CLASSES:
        return "regression", f"regression ({count} distinct numbers)"
    if count == 2:
        return (
            "binary",
            f"binary (labels {distinct[0]:g} and {distinct[1]:g})"
            if is_number
            else f"binary (labels {distinct[0]} and {distinct[1]})",
        )
    return "multiclass", f"multiclass ({count} classes)"


def _check_classes(distinct: Array, kind: str, where: str) -> None:
    if len(distinct) == 1:
        only = distinct[0].item() if hasattr(distinct[0], "item") else distinct[0]
        only = int(only) if isinstance(only, float) and only.is_integer() else only
        raise InputError(
            f"{where}: every label is {only!r}. A task needs at least two classes among its rows; add rows of another, "
            "or leave this task out."
        )
    if kind == "binary" and len(distinct) != 2:
        shown = ", ".join(str(v) for v in distinct[:6])
        raise InputError(f"{where}: binary needs two classes, found {len(distinct)} ({shown}). Use kind='multiclass'.")
    if len(set(distinct.tolist())) != len(distinct):
        raise InputError(f"{where}: classes hold a label twice: {distinct.tolist()}.")


def _codes(values: Array, missing: Array, distinct: Array, where: str) -> FloatArray:
    place = {label: code for code, label in enumerate(distinct.tolist())}
    codes = np.full(len(values), np.nan)
    present, at = np.unique(values[~missing], return_inverse=True)
    unknown_labels = [str(v) for v in present.tolist() if v not in place]
    if unknown_labels:
        raise InputError(f"{where}: labels {unknown_labels[:5]} are not among the classes {distinct.tolist()[:10]}.")
    codes[~missing] = np.array([place[v] for v in present.tolist()], dtype=np.float64)[at]
    return codes


def _plain(distinct: Array, is_number: bool) -> list[Any]:
    """Classes as plain Python values: whole numbers as int, texts as str."""
    if not is_number:
        return [str(v) for v in distinct]
    return [int(v) if float(v).is_integer() else float(v) for v in distinct]
