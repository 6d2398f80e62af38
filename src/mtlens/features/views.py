"""One task's raw inputs as named columns, restricted to some rows, and what several tasks have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.errors import InputError
from mtlens.tasks import Table, Task
from mtlens.tasks.frames import named_inputs
from mtlens.tasks.table import ColumnKind, row_indices, written
from mtlens.tasks.task import Inputs

Match: TypeAlias = Literal["same", "common"]
MISSING = "(missing)"


@dataclass(frozen=True)
class View:
    """``X`` under its column names; ``rows`` None stands for all of them. Messages say ``where`` it belongs to."""

    X: Inputs
    names: tuple[str, ...]
    rows: Array | None
    where: str

    @classmethod
    def of(cls, source: object, rows: Any = None) -> View:
        """A task with its feature names, or anything that can become inputs (array, table, texts, data frame).

        ``rows`` are indices, a mask, or None for all.
        """
        X, names, where = _named(source)
        return cls(X, names, None if rows is None else row_indices(rows, len(X), where), where)

    @cached_property
    def kinds(self) -> dict[str, ColumnKind]:
        return dict(self.X.kinds) if isinstance(self.X, Table) else dict.fromkeys(self.names, "number")

    @cached_property
    def places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    @property
    def is_nameless(self) -> bool:
        """Whether this is an array whose columns were numbered, as nobody named them."""
        return (
            isinstance(self.X, np.ndarray) and self.names[:1] == ("x0",) and self.names[-1] == f"x{len(self.names) - 1}"
        )

    @property
    def num_rows(self) -> int:
        return len(self.X) if self.rows is None else len(self.rows)

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        """Shape of one row of an array of rank above two; None for anything with columns."""
        return self.X.shape[1:] if isinstance(self.X, np.ndarray) and self.X.ndim > 2 else None

    def column(self, name: str) -> Array:
        """A whole column, whatever ``rows`` says."""
        return self.X[name] if isinstance(self.X, Table) else self.X[:, self.places[name]]

    def numbers(self, names: Sequence[str]) -> FloatArray:
        """Number columns on the view's rows, ``(rows, names)`` float64; infinity is refused, NaN is a missing value."""
        if isinstance(self.X, Table):
            columns = [self._as_numbers(name) for name in names]
            block = np.stack(columns, axis=1) if columns else np.empty((self.num_rows, 0))
        else:
            block = self.X[:, _span([self.places[name] for name in names])]
            block = block if self.rows is None else block[self.rows]
        block = block.astype(np.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(block.sum())
        if not finite:  # one pass finds that all is well; NaN is allowed
            self._refuse_infinity(block, names)
        return block

    def _refuse_infinity(self, block: FloatArray, names: Sequence[str]) -> None:
        infinite = np.argwhere(np.isinf(block))
        if len(infinite):
            row, place = infinite[0]
            row = row if self.rows is None else self.rows[row]
            raise InputError(
                f"{self.where}, column {names[place]!r}: row {row} holds infinity. Drop or replace those values; "
                "only NaN counts as missing."
            )

    def _as_numbers(self, name: str) -> Array:
        column = self.column(name)
        if column.dtype.kind not in "fiub":
            present = next((value for value in column if value is not None), None)
            if present is not None:
                raise InputError(
                    f"{self.where}, column {name!r} holds {present!r:.40}, but the features were fitted on numbers. "
                    "Correct that value, or leave it empty if it is unknown."
                )
            column = np.full(len(column), np.nan)
        return column if self.rows is None else column[self.rows]

    def labels(self, name: str) -> list[str]:
        """A category column on the view's rows as text; numbers written plainly, missing values with a label too."""
        column = self.column(name)
        values = (column if self.rows is None else column[self.rows]).tolist()
        if column.dtype.kind == "f":
            return [written(v) or MISSING for v in values]
        return [MISSING if v is None else str(v) for v in values]

    def texts(self, names: Sequence[str]) -> list[Array]:
        """The named columns when all are there, otherwise every text column in its own order; never none."""
        if not names or any(name not in self.places for name in names):
            names = [name for name, kind in self.kinds.items() if kind == "text"]
        if not names:
            raise InputError(f"{self.where} has no text column. Say which column holds text, or leave it out.")
        return [self.column(name) for name in names]


def _named(source: object) -> tuple[Inputs, tuple[str, ...], str]:
    if isinstance(source, Task):
        return source.X, source.feature_names, f"task {source.name!r}"
    if isinstance(source, Table):
        return source, source.names, "this input"
    X, names = named_inputs(source, "features")
    if names is None:
        names = tuple(f"x{i}" for i in range(X.shape[1])) if isinstance(X, np.ndarray) and X.ndim == 2 else ()
    return X, names, "this input"


def common_kinds(views: Sequence[View], match: Match = "same") -> tuple[dict[str, ColumnKind], tuple[str, ...]]:
    """The columns that all views share, with a kind that fits them all, and lines that say what was left out.

    Numbers here and categories there are categories; a text column anywhere makes it text. Views that hold nothing
    but texts agree whatever their columns are called.
    """
    if match not in ("same", "common"):
        raise InputError(f"match={match!r} is not known. Use 'same' or 'common'.")
    if all(set(view.kinds.values()) == {"text"} for view in views):
        return dict(views[0].kinds), ()
    every = dict.fromkeys(name for view in views for name in view.names)
    shared = [name for name in every if all(name in view.places for view in views)]
    left = [name for name in every if name not in set(shared)]
    if left and (match == "same" or not shared):
        raise InputError(_mismatch(views, shared, left))
    found = (f"columns not in every task are left out: {', '.join(left[:10])}",) if left else ()
    return {name: _kind(name, views) for name in shared}, found


def _kind(name: str, views: Sequence[View]) -> ColumnKind:
    kinds = [view.kinds[name] for view in views]
    if "text" in kinds:
        return "text"
    told = {
        k
        for k, view in zip(kinds, views, strict=True)
        if k == "number" or any(v is not None for v in view.column(name))
    }
    return "number" if told <= {"number"} else "category"


def _mismatch(views: Sequence[View], shared: Sequence[str], left: Sequence[str]) -> str:
    """A shared trunk needs one feature space: who has how many columns, and which are not shared."""
    widths = ", ".join(f"{view.where} has {len(view.names)} columns" for view in views[:6])
    lacks = []
    for name in left[:6]:
        without = next(view.where for view in views if name not in view.places)
        lacks.append(f"{name!r} is not in {without}")
    return (
        f"a shared trunk needs one feature space, but {widths}; {len(shared)} names are shared: {'; '.join(lacks)}. "
        "Rename the columns, choose features = [...] that every task has, or use match='common'."
    )


def _span(places: list[int]) -> slice | list[int]:
    """Neighbouring columns as a slice, which numpy need not copy."""
    first = places[0] if places else 0
    return slice(first, first + len(places)) if places == list(range(first, first + len(places))) else places
