"""Predictions for the rows of a file, a block at a time, to CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO, TypeAlias, get_args

import numpy as np

from mtlens.arrays import Array
from mtlens.errors import FileError, InputError, unknown
from mtlens.models.inputs import ID_NAMES, Rows, listed
from mtlens.models.model import BLOCK, LEVEL, Model, free_name, unseen_line
from mtlens.tasks.blocks import Block, read_blocks
from mtlens.tasks.table import ColumnKind

Format: TypeAlias = Literal["csv", "jsonl", "parquet"]
FORMATS: tuple[str, ...] = get_args(Format)
MODEL_FILE = "model.json"  # a folder with it is a model
_SUFFIXES = {"": "csv", "txt": "csv", "ndjson": "jsonl", **{form: form for form in FORMATS}}
ROW = "row"  # the name of the column that counts rows from 0, where a file has no ids


@dataclass(frozen=True)
class Predicted:
    """What was predicted: how many rows, under which column names, and lines to say."""

    rows: int
    columns: tuple[str, ...]
    notes: tuple[str, ...]


def predict_file(
    model: Model,
    path: str | Path,
    out: str | Path | None = None,
    *,
    tasks: Sequence[str] | None = None,
    format: Format | None = None,
    ids: str | None = None,
    level: float = LEVEL,
) -> Predicted:
    """Predict every row of a file. The values are those of ``model.predict``, to the bit.

    Args:
        path: .csv, .tsv, .parquet, .npz or .jsonl, each also .gz.
        out: the file to write (whole or not at all); None writes to standard output.
        tasks: some tasks; by default all.
        format: "csv", "jsonl" or "parquet"; by default by ``out``'s suffix, else CSV.
        ids: the column that names rows; by default one called id, ids or row_id, else the only one whose name ends in
            id (patient_id, CustomerId); else rows are counted from 0.
        level: of the intervals of regression tasks.
    """
    names = model.names if tasks is None else tuple(model.task(name).name for name in tasks)
    form = _format(format, out)
    if out is not None:
        _check_place(Path(out), Path(path))
    source = _Source(model, Path(path), names, ids, level)
    with _target(out, form) as writer:
        for columns in source:
            writer.write(columns)
    return Predicted(source.rows, source.columns, tuple(source.notes()))


class _Source:
    """Blocks of a file as blocks of output columns; remembers what to say."""

    def __init__(self, model: Model, path: Path, names: Sequence[str], ids: str | None, level: float) -> None:
        self.model, self.path, self.names, self.ids, self.level = model, path, names, ids, level
        self.schemas = tuple(dict.fromkeys(model.task(name).schema for name in names))
        self.rows = 0
        self.columns: tuple[str, ...] = ()
        self._extra: tuple[str, ...] = ()
        self._strange: dict[str, set[str]] = {}

    def __iter__(self) -> Iterator[dict[str, Array]]:
        for block in read_blocks(self.path, self._kinds(), rows=BLOCK):
            rows = Rows.of(block.X, self._where(block), labels=self.model.names)
            if not block.start:
                self._begin(rows)
            for column, labels in self.model.strange_categories(rows, self.names).items():
                self._strange.setdefault(column, set()).update(labels)
            columns = self._with_ids(rows, block)
            self.rows += len(rows)
            self.columns = tuple(columns)
            yield columns

    def _where(self, block: Block) -> str:
        return (
            f"{self.path.name}, rows {block.start} to {block.start + len(block) - 1}" if block.start else self.path.name
        )

    def _kinds(self) -> dict[str, ColumnKind]:
        """What the columns hold; ids stay as they are written."""
        kinds: dict[str, ColumnKind] = dict.fromkeys((*ID_NAMES, *([self.ids] if self.ids else [])), "text")
        for schema in self.schemas:
            kinds.update(schema.by_name)
        return kinds

    def _begin(self, rows: Rows) -> None:
        read = {name for schema in self.schemas for name in schema.names}
        if self.ids is not None and self.ids not in (rows.names or ()):
            raise unknown("column", self.ids, rows.names or (), self.path.name)
        if self.ids is None:
            self.ids = _id_column([name for name in rows.names or () if name not in read | set(self.model.names)])
        self._extra = tuple(name for name in rows.extra(self.schemas) if name != self.ids)

    def _with_ids(self, rows: Rows, block: Block) -> dict[str, Array]:
        found = self.model.table(rows, self.names, level=self.level)
        if self.ids is None:
            return {free_name(ROW, found): np.arange(block.start, block.start + len(rows)), **found}
        return {free_name(self.ids, found): _texts(rows.column(self.ids)), **found}

    def notes(self) -> Iterator[str]:
        """What was left out or not known."""
        if self._extra:
            yield f"columns that the model does not use were ignored: {listed(self._extra)}"
        for column, labels in self._strange.items():
            yield unseen_line(column, sorted(labels))


_ENDS_IN_ID = re.compile(r"(?i:[\W_]id)|[a-z]I[dD]")


def _id_column(free: Sequence[str]) -> str | None:
    """The column that names rows, among those that are neither inputs nor labels, judged by its name alone."""
    plain = next((name for name in free if name.lower() in ID_NAMES), None)
    ending = [name for name in free if _ENDS_IN_ID.search(name[-3:])]
    return plain or (ending[0] if len(ending) == 1 else None)


def _texts(column: Array) -> Array:
    """Ids as text, whole numbers without a point."""
    if column.dtype.kind == "O":
        return column
    plain = ["" if v != v else f"{int(v)}" if v == int(v) else repr(v) for v in column.astype(np.float64).tolist()]
    return np.array(plain, dtype=object)


# ---------------------------------------------------------------------- writing


class _Writer(Protocol):
    def write(self, columns: Mapping[str, Array]) -> None: ...

    def close(self) -> None: ...


def _format(given: str | None, out: str | Path | None) -> str:
    if given is not None and given not in FORMATS:
        raise unknown("format", given, FORMATS)
    suffix = "" if out is None else Path(out).suffix.lower().removeprefix(".")
    form = given or _SUFFIXES.get(suffix)
    if form is None:
        raise InputError(
            f"--out {str(out)!r:.200}: predictions are written as {', '.join(FORMATS)}, not as .{suffix}. Use one of "
            "these endings, or say --format."
        )
    if form == "parquet" and out is None:
        raise InputError("Parquet goes to a file, not to the terminal. Add --out FILE.parquet.")
    return form


def _check_place(out: Path, path: Path) -> None:
    """Refuse to write over what is no file of predictions: the rows themselves, a model, a device."""
    try:
        is_strange = out.exists() and not out.is_file()
        is_input = out.exists() and path.exists() and out.samefile(path)
        in_model = (out.parent / MODEL_FILE).is_file()
    except (OSError, ValueError) as error:
        raise FileError(f"the predictions cannot be written to {str(out)!r:.200}: {error}.") from error
    if is_input:
        raise FileError(f"--out {out} is the file that is read; predictions would replace it. Choose another name.")
    if is_strange:
        raise FileError(f"the predictions cannot be written to {out}: it is there and is no file. Choose another name.")
    if in_model:
        raise FileError(f"{out.parent} is a model's folder, which holds nothing else. Write the predictions elsewhere.")


@contextmanager
def _target(out: str | Path | None, form: str) -> Iterator[_Writer]:
    """A writer whose file appears whole when all went well, and not at all otherwise."""
    if out is None:
        yield _WRITERS[form](sys.stdout)
        return
    path = Path(out)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if form == "parquet":
            writer: _Writer = _Parquet(temporary)
            yield writer
            writer.close()
        else:
            with temporary.open("w", encoding="utf-8", newline="") as file:
                yield _WRITERS[form](file)
        temporary.replace(path)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"the predictions cannot be written to {path}: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)


class _Csv:
    """Comma-separated, a header line, numbers with all their digits; unknown bounds are empty."""

    def __init__(self, file: TextIO) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._headed = False

    def write(self, columns: Mapping[str, Array]) -> None:
        if not self._headed:
            self._writer.writerow(columns)
            self._headed = True
        self._writer.writerows(zip(*(_cells(column, "") for column in columns.values()), strict=True))

    def close(self) -> None:
        """Nothing is held back."""


class _JsonLines:
    """One object a row; unknown bounds are null."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, columns: Mapping[str, Array]) -> None:
        cells = [_cells(column, None) for column in columns.values()]
        for row in zip(*cells, strict=True):
            entry = dict(zip(columns, row, strict=True))
            self._file.write(json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n")

    def close(self) -> None:
        """Nothing is held back."""


class _Parquet:
    """Doubles, texts, and the types of class labels; a row group a block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def write(self, columns: Mapping[str, Array]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrays = {name: self._array(column) for name, column in columns.items()}
        table = pa.table(arrays) if self._writer is None else pa.table(arrays, schema=self._writer.schema)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)

    @staticmethod
    def _array(column: Array) -> Any:
        import pyarrow as pa

        if column.dtype.kind != "O":
            return pa.array(_cells(column, None))
        return pa.array([None if value is None else str(value) for value in column.tolist()], pa.string())

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


_WRITERS: dict[str, Any] = {"csv": _Csv, "jsonl": _JsonLines}


def _cells(column: Array, unknown_value: Any) -> list[Any]:
    """Plain values; what is not finite is unknown."""
    values: list[Any] = column.tolist()
    if column.dtype.kind == "f":
        return [value if np.isfinite(value) else unknown_value for value in values]
    return [unknown_value if value is None else value for value in values]
