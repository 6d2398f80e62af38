"""The inputs a model was trained on, by name, and bringing other rows to that form."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mtlens.arrays import Array
from mtlens.errors import InputError
from mtlens.tasks.frames import named_inputs, table_from
from mtlens.tasks.numerals import read_numerals
from mtlens.tasks.table import ColumnKind, Table
from mtlens.tasks.tables import LABEL_NAMES
from mtlens.tasks.task import Inputs, Task

ID_NAMES = ("id", "ids", "row_id")
NO_TEXTS = (*ID_NAMES, *LABEL_NAMES, "split", "fold")


@dataclass(frozen=True)
class Schema:
    """Columns of one kind of input, in the order they were trained in; ``shape`` instead for images and the like.

    Args:
        names: of the columns.
        kinds: number, category or text, one a column.
        numeric: category columns that were read as numbers ("7.0" and "7" are then one category).
        shape: of one row of an array of rank above two.
    """

    names: tuple[str, ...]
    kinds: tuple[ColumnKind, ...] = ()
    numeric: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()

    @classmethod
    def of(cls, task: Task) -> Schema:
        """What a task's inputs look like."""
        X = task.X
        if isinstance(X, Table):
            codes = [n for n in X.names if X.kinds[n] == "category" and X[n].dtype.kind == "f"]
            return cls(X.names, tuple(X.kinds[name] for name in X.names), tuple(codes))
        if X.ndim == 2:
            return cls(task.feature_names, ("number",) * X.shape[1])
        return cls((), shape=tuple(X.shape[1:]))

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {name: list(value) for name, value in asdict(self).items()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Schema:
        """The inverse of :meth:`plain`, checked."""
        kinds = tuple(str(kind) for kind in plain["kinds"])
        names = tuple(str(name) for name in plain["names"])
        if len(kinds) != len(names) or not set(kinds) <= {"number", "category", "text"} or len(set(names)) < len(names):
            raise ValueError("columns and their kinds do not fit")
        numeric = tuple(str(name) for name in plain["numeric"])
        return cls(names, kinds, numeric, tuple(int(n) for n in plain["shape"]))  # type: ignore[arg-type]

    @property
    def is_numeric(self) -> bool:
        return all(kind == "number" for kind in self.kinds)

    @property
    def by_name(self) -> dict[str, ColumnKind]:
        return dict(zip(self.names, self.kinds, strict=True))

    def select(self, rows: Rows) -> Inputs:
        """These columns of some rows, in trained order: an array when all are numbers, otherwise a Table.

        Missing columns are refused by name; further ones are left out.
        """
        if self.shape:
            return self._array(rows)
        if rows.names is None:
            return self._by_place(rows)
        called = self.called(rows)
        columns = {name: _as_kind(rows.column(called[name]), name, self, rows.where) for name in self.names}
        if self.is_numeric:
            return np.ascontiguousarray(np.stack(list(columns.values()), axis=1))
        return Table(columns, self.by_name)

    def _array(self, rows: Rows) -> Inputs:
        X = rows.X
        if not isinstance(X, np.ndarray) or X.shape[1:] != self.shape:
            found = f"rows of shape {X.shape[1:]}" if isinstance(X, np.ndarray) else "columns"
            raise InputError(f"{rows.where}: the model takes rows of shape {self.shape}, found {found}.")
        return np.ascontiguousarray(X)

    def _by_place(self, rows: Rows) -> Inputs:
        X = rows.X
        if not isinstance(X, np.ndarray) or X.ndim != 2 or X.shape[1] != len(self.names) or not self.is_numeric:
            shape = X.shape if isinstance(X, np.ndarray) else "texts"
            raise InputError(
                f"{rows.where}: the model takes {len(self.names)} columns ({listed(self.names)}), found an array "
                f"without names, {shape}. Give a data frame or a dict with these columns."
            )
        return np.ascontiguousarray(X, dtype=np.float64)

    def called(self, rows: Rows) -> dict[str, str]:
        """Trained name -> name in these rows. Texts, which have no names of their own, are taken in order."""
        names = rows.names or ()
        missing = [name for name in self.names if name not in names]
        if missing and set(self.kinds) == {"text"} and len(missing) == len(self.names):
            texts = rows.texts()
            if len(texts) == len(self.names):
                return dict(zip(self.names, texts, strict=True))
        if missing:
            raise InputError(
                f"{rows.where} lacks {len(missing)} of the {len(self.names)} columns the model was trained on: "
                f"{listed(missing)}. It has {listed(names)}. Add them (empty where unknown), or correct the names."
            )
        return {name: name for name in self.names}


@dataclass(frozen=True)
class Rows:
    """Rows to predict, in whatever form they came; ``labels`` are names of tasks, which are no inputs."""

    X: Inputs
    names: tuple[str, ...] | None
    where: str
    labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: Any, where: str = "the rows to predict", labels: Sequence[str] = ()) -> Rows:
        """A task, array, Table, dict of columns, data frame, list of texts, a record or a list of records."""
        if isinstance(source, Rows):
            return source
        if isinstance(source, (str, os.PathLike)):
            raise InputError(
                f"{where}: a model predicts rows, found the text {str(source)!r:.100}. Give a data frame, a dict of "
                "columns, or a list; for the rows of a file use mtlens predict MODEL FILE."
            )
        source = _as_columns(source)
        if isinstance(source, Task):
            return cls(source.X, source.feature_names or None, where, tuple(labels))
        if isinstance(source, Table):
            return cls(source, source.names, where, tuple(labels))
        if hasattr(source, "columns") and not isinstance(source, Mapping):
            table = table_from(source, where)
            return cls(table, table.names, where, tuple(labels))
        X, names = named_inputs(source, where)
        return cls(X, names, where, tuple(labels))

    def __len__(self) -> int:
        return len(self.X)

    def column(self, name: str) -> Array:
        if isinstance(self.X, Table):
            return self.X[name]
        return np.asarray(self.X[:, (self.names or ()).index(name)])

    def texts(self) -> list[str]:
        """Columns that could hold a text: not numbers, no ids, no labels."""
        other = {*self.labels, *NO_TEXTS}
        return [n for n in self.names or () if self.column(n).dtype.kind == "O" and n not in other]

    def part(self, rows: slice) -> Rows:
        """Some neighbouring rows."""
        if isinstance(self.X, Table):
            X: Inputs = Table({name: column[rows] for name, column in self.X.columns.items()}, self.X.kinds)
        else:
            X = self.X[rows]
        return Rows(X, self.names, self.where, self.labels)

    def extra(self, schemas: Sequence[Schema]) -> tuple[str, ...]:
        """Columns that no schema reads and that are no labels."""
        read = {name for schema in schemas for name in schema.called(self).values()} if self.names else set()
        return tuple(n for n in self.names or () if n not in read and n not in self.labels)


def _as_columns(source: Any) -> Any:
    """Records (dicts of single values, as JSON brings them) as columns; what a record lacks is missing."""
    if isinstance(source, Mapping) and source and all(np.ndim(value) == 0 for value in source.values()):
        source = [source]
    if not isinstance(source, (list, tuple)) or not source or not all(isinstance(row, Mapping) for row in source):
        return source
    names = dict.fromkeys(name for row in source for name in row)
    return {name: [row.get(name) for row in source] for name in names}


def _as_kind(column: Array, name: str, schema: Schema, where: str) -> Array:
    kind = schema.by_name[name]
    if kind == "number":
        return _as_number(column, name, where)
    if kind == "text":
        return _as_text(column)
    if name in schema.numeric and column.dtype.kind == "O":
        return _as_codes(column)
    return column


def _as_number(column: Array, name: str, where: str) -> Array:
    if column.dtype.kind == "f":
        infinite = np.flatnonzero(np.isinf(column))
        if len(infinite):
            raise InputError(f"{where}, column {name!r}: row {infinite[0]} holds infinity. Leave unknown values empty.")
        return column.astype(np.float64, copy=False)
    values = column.tolist()
    numbers, row = read_numerals(values)
    if row is not None:
        raise InputError(
            f"{where}, column {name!r}: row {row} holds {values[row]!r:.60}, but the model was trained on numbers "
            "there. Correct that value, or leave it empty if it is unknown."
        )
    return numbers


def _as_text(column: Array) -> Array:
    if column.dtype.kind == "O":
        return column
    words = [None if value != value else f"{value:g}" for value in column.tolist()]
    return np.array(words, dtype=object)


def _as_codes(column: Array) -> Array:
    """Categories that were numbers in training: numbers where they all are, otherwise as they come."""
    try:
        return np.array([np.nan if value in (None, "") else float(value) for value in column.tolist()])
    except ValueError:
        return column


def listed(names: Sequence[str], count: int = 10) -> str:
    """Names for a message, the first few of many."""
    more = f", ... {len(names) - count} more" if len(names) > count else ""
    return (", ".join(repr(name) for name in names[:count]) or "none") + more
