"""Raw columns of equal length, before anything is fitted to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np

from mtlens.arrays import Array, FloatArray, IntArray
from mtlens.errors import InputError, unknown

ColumnKind: TypeAlias = Literal["number", "category", "text"]


class Table:
    """Named columns: numbers (float64 with NaN = missing, or whole ones), categories and texts.

    Categories and texts are object arrays of str, None = missing.

    Immutable by convention; ``take`` copies rows.

    >>> table = Table({"age": np.array([30.0, np.nan]), "city": np.array(["Rome", None], dtype=object)})
    >>> table.kinds
    {'age': 'number', 'city': 'category'}
    >>> table.take([1])["city"]
    array([None], dtype=object)
    """

    def __init__(self, columns: Mapping[str, Array], kinds: Mapping[str, ColumnKind] | None = None) -> None:
        self.columns: dict[str, Array] = dict(columns)
        given = dict(kinds or {})
        self.kinds: dict[str, ColumnKind] = {
            name: given.get(name, "number" if column.dtype.kind in "fiub" else "category")
            for name, column in self.columns.items()
        }
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"Table: every column needs the same number of rows, found {lengths}.")
        self.num_rows = next(iter(lengths.values()), 0)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.columns)

    def __getitem__(self, name: str) -> Array:
        if name not in self.columns:
            raise unknown("column", name, self.columns)
        return self.columns[name]

    def __len__(self) -> int:
        return self.num_rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def take(self, rows: Any) -> Table:
        """The given rows (indices or a mask), in that order."""
        rows = row_indices(rows, self.num_rows, "this table")
        return Table({name: column[rows] for name, column in self.columns.items()}, self.kinds)

    def select(self, names: Iterable[str]) -> Table:
        """Only these columns, in this order."""
        return Table({name: self[name] for name in names}, self.kinds)

    @property
    def is_numeric(self) -> bool:
        return all(kind == "number" for kind in self.kinds.values())

    def numbers(self) -> FloatArray:
        """All columns as one (rows, columns) float64 array; refused when one is not a number."""
        other = [name for name, kind in self.kinds.items() if kind != "number"]
        if other:
            raise InputError(f"these columns are not numbers: {', '.join(other[:10])}. Select others, or encode them.")
        if not self.columns:
            return np.empty((self.num_rows, 0))
        columns = list(self.columns.values())
        return _one_block(columns) if _lie_side_by_side(columns) else np.stack(columns, axis=1).astype(np.float64)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}: {kind}" for name, kind in list(self.kinds.items())[:8])
        more = f", ... {len(self.columns) - 8} more" if len(self.columns) > 8 else ""
        return f"Table({self.num_rows} rows; {shown}{more})"


def written(number: float) -> str | None:
    """A number as the name of a category, without losing a digit; None when it is missing.

    >>> written(1234567.0), written(0.1), written(float("nan"))
    ('1234567', '0.1', None)
    """
    if number != number:
        return None
    return str(int(number)) if float(number).is_integer() else repr(float(number))


def row_indices(given: Any, count: int, where: str) -> IntArray:
    """Some of ``count`` rows as indices; refused when they are neither whole numbers in range nor a mask of all.

    >>> row_indices([True, False, True], 3, "t").tolist(), row_indices([-1], 3, "t").tolist()
    ([0, 2], [-1])
    """
    rows = np.asarray(given)
    if rows.dtype == bool and rows.shape == (count,):
        return np.flatnonzero(rows)
    whole = rows.ndim == 1 and (not len(rows) or rows.dtype.kind in "iu")
    if not whole or (len(rows) and not -count <= rows.min() <= rows.max() < count):
        raise InputError(
            f"{where} has {count} rows, but the rows asked for are {given!r:.80}. Give whole numbers below {count}, "
            "or a mask with one entry a row."
        )
    return rows.astype(np.int64)


def _lie_side_by_side(columns: list[Array]) -> bool:
    """Whether the columns are views of one array, at equal distances: then nothing needs to be copied."""
    first = columns[0]
    if first.base is None or any(c.dtype != np.float64 or c.base is not first.base for c in columns):
        return False
    places = [c.__array_interface__["data"][0] for c in columns]
    steps = {b - a for a, b in pairwise(places)}
    return len(steps) <= 1 and all(c.strides == first.strides for c in columns) and min(steps, default=1) > 0


def _one_block(columns: list[Array]) -> FloatArray:
    """The columns as one (rows, columns) view of the array they lie in."""
    first = columns[0]
    step = 8 if len(columns) == 1 else columns[1].__array_interface__["data"][0] - first.__array_interface__["data"][0]
    shape = (len(first), len(columns))
    return np.lib.stride_tricks.as_strided(first, shape, (first.strides[0], step))
