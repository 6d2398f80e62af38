"""Anything with rows and columns to an array or a Table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mtlens.arrays import Array
from mtlens.errors import InputError
from mtlens.tasks.table import Table


def inputs_from(X: Any, where: str) -> Array | Table:
    """Arrays stay arrays (numbers as float), texts become one text column, data frames become a Table or an array.

    NaN is a missing feature and allowed; infinity is refused with its first place.
    """
    if isinstance(X, Table):
        return _checked_table(X, where)
    if isinstance(X, Mapping):
        return _checked_table(Table({str(name): _column(values) for name, values in X.items()}), where)
    if hasattr(X, "__array__") or isinstance(X, (list, tuple, np.ndarray)):
        if hasattr(X, "columns") or hasattr(X, "schema"):
            return _from_frame(X, where)
        return _from_array(np.asarray(X), where)
    return _from_frame(X, where)


def _from_array(X: Array, where: str) -> Array | Table:
    if X.dtype.kind in "US" or (X.dtype.kind == "O" and X.ndim == 1):
        return _texts(X, where)
    if X.dtype.kind == "O":
        try:
            X = X.astype(np.float64)
        except (TypeError, ValueError):
            return _checked_table(Table({f"x{i}": _column(column) for i, column in enumerate(X.T)}), where)
    if X.dtype.kind not in "fiub":
        raise InputError(f"{where}: X holds {X.dtype}; it needs numbers, texts or a data frame.")
    if X.ndim < 2:
        raise InputError(f"{where}: X needs rows and columns, found shape {X.shape}. Use X[:, None] for one column.")
    if 0 in X.shape[1:]:
        raise InputError(f"{where}: X has no columns (shape {X.shape}).")
    if X.dtype.kind != "f" and X.ndim == 2:
        X = X.astype(np.float64)
    if X.dtype == np.float16:
        X = X.astype(np.float32)
    _refuse_infinity(X, where)
    return X


def _texts(X: Array, where: str) -> Table:
    """A 1-D array of texts is one text column; a 2-D one has a text column each."""
    columns = X[:, None] if X.ndim == 1 else X
    names = ["text"] if columns.shape[1] == 1 else [f"text_{i}" for i in range(columns.shape[1])]
    for column in columns.T:
        wrong = [value for value in column if not (value is None or isinstance(value, str))]
        if wrong:
            raise InputError(f"{where}: X mixes texts with {wrong[0]!r}. Give one text a row, or rows of numbers.")
    return Table({n: columns[:, i].astype(object) for i, n in enumerate(names)}, dict.fromkeys(names, "text"))


def _from_frame(X: Any, where: str) -> Array | Table:
    import narwhals as nw

    try:
        frame = nw.from_native(X, eager_only=True)
    except TypeError as error:
        raise InputError(
            f"{where}: X is a {type(X).__name__}. Give an array, a list of texts, a dict of columns or a data frame."
        ) from error
    columns = {name: _column(frame[name].to_numpy()) for name in frame.columns}
    return _checked_table(Table(columns), where)


def _column(values: Any) -> Array:
    """float64 for numbers and booleans, object-of-str with None for anything else."""
    column = np.asarray(values)
    if column.dtype.kind in "fiub":
        return column.astype(np.float64)
    entries = column.astype(object)
    gone = [
        v is None or (isinstance(v, float) and v != v) or type(v).__name__ in ("NAType", "NaTType") for v in entries
    ]
    if all(g or isinstance(v, (int, float, np.number, np.bool_)) for v, g in zip(entries, gone, strict=True)):
        return np.array([np.nan if g else float(v) for v, g in zip(entries, gone, strict=True)])
    return np.array([None if g else str(v) for v, g in zip(entries, gone, strict=True)], dtype=object)


def _checked_table(table: Table, where: str) -> Table:
    if not table.columns:
        raise InputError(f"{where}: X has no columns.")
    for name, kind in table.kinds.items():
        if kind == "number":
            _refuse_infinity(table[name], f"{where}, column {name!r}")
    return table


def _refuse_infinity(X: Array, where: str) -> None:
    if X.dtype.kind != "f":
        return
    with np.errstate(all="ignore"):
        if np.isfinite(X.sum(dtype=np.float64)):
            return  # a finite sum has no infinite term: the common case costs one pass and no memory
    infinite = np.isinf(X)
    if infinite.any():
        rows = np.flatnonzero(infinite.reshape(len(X), -1).any(axis=1))
        raise InputError(
            f"{where}: {len(rows)} rows hold infinity (first at row {rows[0]}). Drop or replace those values."
        )
