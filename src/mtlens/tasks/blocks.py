"""Files of rows to predict, a block at a time: memory stays that of one block, whatever the file's length.

Columns arrive as the readers of tasks would have made them, with the kinds that a model expects. NPZ files hold whole
arrays, so those are read at once and cut.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mtlens.arrays import Array
from mtlens.errors import FileError, InputError
from mtlens.tasks.files import (
    NULLS,
    Layout,
    Source,
    _column_of,
    _decoded,
    _dialect,
    _encoding,
    _first_line,
    _refuse_repeats,
    _whole_lines,
    beginning,
    checked_path,
    suffix_of,
    with_points,
)
from mtlens.tasks.npz import read_npz
from mtlens.tasks.numerals import read_numerals
from mtlens.tasks.table import ColumnKind, Table, written

SUFFIXES = (".csv", ".tsv", ".parquet", ".npz", ".jsonl", ".ndjson")
_PARSED = 1 << 23  # bytes of a delimited file parsed at once
_LONGEST_ROW = 1 << 28
_LONGEST_LINE = 1 << 26  # bytes of one JSON line
_INPUTS = ("X", "x", "images", "data", "features")


@dataclass(frozen=True)
class Block:
    """Some rows of a file: a Table, or an array for files of unnamed numbers or images; ``start`` counts from 0."""

    X: Table | Array
    start: int

    def __len__(self) -> int:
        return len(self.X)


def read_blocks(path: str | Path, kinds: Mapping[str, ColumnKind], *, rows: int = 4096) -> Iterator[Block]:
    """The rows of a .csv, .tsv, .parquet, .npz or .jsonl file (each also .gz), ``rows`` at a time but for the last.

    Args:
        kinds: what the named columns hold; a column of "text" is kept as it is written, such as ids.
    """
    path = checked_path(path)
    readers = {".parquet": _parquet, ".npz": _npz, ".jsonl": _json_lines, ".ndjson": _json_lines}
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise FileError(f"{path} is no format mtlens predicts from: use {', '.join(SUFFIXES)} (each also .gz).")
    start = 0
    for piece in _recut(readers.get(suffix, _delimited)(path, kinds, rows), rows):
        yield Block(piece, start)
        start += len(piece)
    if not start:
        raise InputError(f"{path} holds no rows to predict.")


def _recut(pieces: Iterable[Table | Array], rows: int) -> Iterator[Table | Array]:
    """The same rows in pieces of one size, so that predictions do not depend on how a file was stored."""
    held: list[Table | Array] = []
    count = 0
    for piece in pieces:
        held.append(piece)
        count += len(piece)
        if count < rows:
            continue
        whole = _stacked(held)
        used = count // rows * rows
        for start in range(0, used, rows):
            yield _part(whole, start, start + rows)
        held, count = ([_part(whole, used, count)] if used < count else []), count - used
    if count:
        yield _stacked(held)


def _part(piece: Table | Array, start: int, end: int) -> Table | Array:
    if isinstance(piece, Table):
        return Table({name: column[start:end] for name, column in piece.columns.items()}, piece.kinds)
    return piece[start:end]


def _stacked(pieces: list[Table | Array]) -> Table | Array:
    first = pieces[0]
    if len(pieces) == 1:
        return first
    if isinstance(first, Table):
        tables = [piece for piece in pieces if isinstance(piece, Table)]
        return Table({name: _joined([t[name] for t in tables]) for name in first.names}, first.kinds)
    return np.concatenate([piece for piece in pieces if not isinstance(piece, Table)])


def _joined(columns: list[Array]) -> Array:
    """Columns under each other; numbers become texts where another block has texts."""
    if len({column.dtype.kind for column in columns}) > 1:
        columns = [c if c.dtype.kind == "O" else np.array([_text(v) for v in c.tolist()], object) for c in columns]
    return np.concatenate(columns)


def _text(value: Any) -> str | None:
    return written(value) if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------- delimited text


def _delimited(path: Path, kinds: Mapping[str, ColumnKind], rows: int) -> Iterator[Table]:
    import pyarrow as pa
    from pyarrow import csv as pacsv

    source = Source(path)
    head = source.head()
    encoding = _encoding(head)
    whole = None if encoding == "utf-8" else _decoded(source.all(), encoding, path, 0)
    if whole is None:
        whole_lines = _whole_lines(beginning(head))
        text = _decoded(whole_lines, encoding, path, 0)
    else:
        text = whole
    dialect = _dialect(text[: 1 << 18], path, Layout(names=tuple(kinds)))
    parse = dialect.parse_options(newlines=dialect.quote)
    plain = _plain_numbers(text, dialect, kinds, parse)
    types = {name: pa.float64() if name in plain else pa.string() for name in dialect.names}
    convert = pacsv.ConvertOptions(column_types=types, null_values=NULLS, strings_can_be_null=False)
    blocks = source.blocks(_PARSED) if whole is None else iter([whole.encode()])
    done, skip = 0, int(dialect.header)
    try:
        for block in _cut(blocks, dialect.quote):
            size = min(max(1 << 20, len(block) + 1), (1 << 31) - 1)
            read = pacsv.ReadOptions(
                column_names=list(dialect.names), skip_rows_after_names=skip, block_size=size, use_threads=False
            )
            table = pacsv.read_csv(pa.BufferReader(block), read, parse, convert)
            skip = 0
            columns = {name: table.column(name) for name in dialect.names}
            for name in dialect.names:
                if kinds.get(name) == "number" and (points := with_points(columns[name], dialect.delimiter)):
                    columns[name] = points
            yield _typed(columns, kinds, path, done)
            done += table.num_rows
    except (pa.ArrowException, UnicodeDecodeError, OverflowError) as error:
        raise _bad_rows(error, path, dialect.names, done) from error


def _cut(blocks: Iterable[bytes], quote: bool) -> Iterator[bytes]:
    """The same bytes in pieces that end where a row ends; line ends inside quotes end no row."""
    rest, first = b"", True
    for block in blocks:
        data = rest + (beginning(block) if first else block)
        first = False
        end = _last_row_end(data, quote)
        if end:
            yield data[:end]
        rest = data[end:]
        if len(rest) > _LONGEST_ROW:
            raise FileError(f"a row has more than {_LONGEST_ROW >> 20} MiB. Check the quotes: one may not be closed.")
    if rest.strip():
        yield rest


def _last_row_end(data: bytes, quote: bool) -> int:
    """Behind the last line end with an even number of quotes before it; 0 when there is none."""
    if not quote or b'"' not in data:
        return data.rfind(b"\n") + 1
    values = np.frombuffer(data, np.uint8)
    inside = np.cumsum(values == ord('"'), dtype=np.int64) % 2 == 1
    ends = np.flatnonzero((values == ord("\n")) & ~inside)
    return int(ends[-1]) + 1 if len(ends) else 0


def _plain_numbers(text: str, dialect: Any, kinds: Mapping[str, ColumnKind], parse: Any) -> set[str]:
    """The number columns whose first rows are plain numbers, which are parsed at full speed; others (dates, true and
    false) go through the readers' own inference."""
    import pyarrow as pa
    from pyarrow import csv as pacsv

    head = "\n".join(text.split("\n")[:200]) if not dialect.quote or '"' not in text else text
    options = pacsv.ReadOptions(column_names=list(dialect.names), skip_rows_after_names=int(dialect.header))
    convert = pacsv.ConvertOptions(
        column_types=dict.fromkeys(dialect.names, pa.string()), null_values=NULLS, strings_can_be_null=False
    )
    try:
        table = pacsv.read_csv(pa.BufferReader(head.encode()), options, parse, convert)
    except (pa.ArrowException, UnicodeDecodeError):
        return set()
    numbers = [name for name in dialect.names if kinds.get(name) == "number"]
    return {name for name in numbers if _as_floats(table.column(name)) is not None}


def _as_floats(column: Any) -> Array | None:
    """A text column as float64 when every entry is a plain number or missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(column)
    known = pc.if_else(pc.is_in(trimmed, value_set=pa.array(NULLS)), None, trimmed)
    try:
        return np.asarray(pc.cast(known, pa.float64()).to_numpy(), dtype=np.float64)
    except pa.ArrowInvalid:
        return None


def _bad_rows(error: Exception, path: Path, names: tuple[str, ...], done: int) -> Exception:
    """House voice for what pyarrow says of a row."""
    message = _first_line(error)
    place = re.search(r"In CSV column #(\d+):(?: Row #(\d+):)?.*invalid value '(.*)'", message)
    if place:
        name = names[int(place[1])]
        return InputError(
            f"{path}, column {name!r}: {place[3]!r:.60} (after row {done}) is no number, but the model was trained on "
            "numbers there. Correct that value, or leave it empty if it is unknown."
        )
    ragged = re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", message)
    if ragged:
        line = f"line {ragged[1]}" if ragged[1] else f"a line after row {done}"
        return InputError(f"{path}: {line} has {ragged[3]} values where the first line has {ragged[2]}. Correct it.")
    return FileError(f"{path} cannot be read as a table: {message}")


# ---------------------------------------------------------------------- Parquet, NPZ, JSON lines


def _parquet(path: Path, kinds: Mapping[str, ColumnKind], rows: int) -> Iterator[Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = Source(path)
    done = 0
    try:
        with pq.ParquetFile(pa.BufferReader(source.all()) if source.packed else path) as file:
            names = list(file.schema_arrow.names)
            _refuse_repeats(names, path)
            for batch in file.iter_batches(batch_size=rows):
                table = pa.Table.from_batches([batch])
                yield _typed({name: table.column(name) for name in names}, kinds, path, done)
                done += batch.num_rows
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as error:
        if isinstance(error, (FileError, InputError)):
            raise
        raise FileError(f"{path} is not a readable Parquet file: {_first_line(error)}") from error


def _npz(path: Path, kinds: Mapping[str, ColumnKind], rows: int) -> Iterator[Table | Array]:
    """``X`` with ``feature_names`` and ids beside it, or a one-dimensional array a column."""
    arrays = read_npz(path)
    key = next((name for name in _INPUTS if name in arrays and arrays[name].ndim > 1), None)
    if key is None:
        lengths = [len(array) for array in arrays.values() if array.ndim == 1]
        columns = {n: _plain(a, kinds.get(n)) for n, a in arrays.items() if a.ndim == 1 and len(a) == max(lengths)}
        if not columns:
            raise InputError(f"{path} has no inputs: it needs X (rows x columns), or an array for each column.")
        yield _kinded(columns, kinds)
        return
    X = arrays[key]
    names = [str(name) for name in arrays.get("feature_names", ())]
    names = names or [name for name in kinds if len(kinds) == X.shape[1]]
    if X.ndim != 2 or len(names) != X.shape[1]:
        yield X
        return
    inputs = {name: X[:, i].astype(np.float64) for i, name in enumerate(names)}
    beside = [n for n in kinds if n in arrays and arrays[n].shape == (len(X),) and n not in inputs]
    yield _kinded({**{name: _plain(arrays[name], kinds[name]) for name in beside}, **inputs}, kinds)


def _plain(array: Array, kind: ColumnKind | None) -> Array:
    is_number = array.dtype.kind in "fiub" and kind != "text"
    return array.astype(np.float64) if is_number else array.astype(str).astype(object)


def _json_lines(path: Path, kinds: Mapping[str, ColumnKind], rows: int) -> Iterator[Table]:
    """One object a line. A key that an object lacks is a missing value, once an object before it had it."""
    held: list[dict[str, Any]] = []
    names: dict[str, None] = {}
    done = 0
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{path}: line {number} is not JSON ({str(error)[:80]}). Write one object a line."
            ) from error
        if not isinstance(entry, dict):
            raise InputError(f"{path}: line {number} is {entry!r:.40}, not an object. Write one object a line.")
        held.append(entry)
        names.update(dict.fromkeys(entry))
        if len(held) == rows:
            yield _from_objects(held, names, kinds, path, done)
            done, held = done + rows, []
    if held:
        yield _from_objects(held, names, kinds, path, done)


def _lines(path: Path) -> Iterator[str]:
    rest = b""
    try:
        for block in Source(path).blocks(1 << 20):
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                raise FileError(f"{path} has a line of more than {_LONGEST_LINE >> 20} MiB. Write one object a line.")
            yield from (line.decode("utf-8-sig") for line in lines)
        if rest:
            yield rest.decode("utf-8-sig")
    except (UnicodeDecodeError, gzip.BadGzipFile) as error:
        raise FileError(f"{path} is not UTF-8 text: {error}. Save it as UTF-8.") from error


def _from_objects(
    entries: list[dict[str, Any]], names: Iterable[str], kinds: Mapping[str, ColumnKind], path: Path, start: int
) -> Table:
    columns = {}
    for name in names:
        values = [entry.get(name) for entry in entries]
        _refuse_nested(values, name, path, start)
        columns[name] = _json_column(values, kinds.get(name), name, path)
    return _kinded(columns, kinds)


def _refuse_nested(values: list[Any], name: str, path: Path, start: int) -> None:
    for row, value in enumerate(values):
        if isinstance(value, (list, dict)):
            raise InputError(f"{path}: {name!r} in row {start + row} is {value!r:.40}. It needs a number or a text.")


def _json_column(values: list[Any], kind: ColumnKind | None, name: str, path: Path) -> Array:
    if kind != "text" and all(value is None or isinstance(value, (int, float)) for value in values):
        try:
            return np.array([np.nan if value is None else float(value) for value in values])
        except OverflowError as error:
            raise InputError(f"{path}: {name!r} holds a number too large for a float.") from error
    return np.array([v if v is None or isinstance(v, str) else _text(v) for v in values], dtype=object)


# ---------------------------------------------------------------------- columns


def _typed(columns: Mapping[str, Any], kinds: Mapping[str, ColumnKind], path: Path, start: int) -> Table:
    """Arrow columns as the readers of tasks make them."""
    made = {name: _column(column, kinds.get(name), name, path, start) for name, column in columns.items()}
    return _kinded(made, kinds)


def _column(column: Any, kind: ColumnKind | None, name: str, path: Path, start: int) -> Array:
    import pyarrow as pa

    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if kind == "number" and is_text:
        found = _as_floats(column)
        return _inferred(column, name, path, start) if found is None else found
    if kind == "text" and not is_text and not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    return _column_of(column)


def _inferred(column: Any, name: str, path: Path, start: int) -> Array:
    """Dates, true and false as the numbers that reading a whole table makes of them."""
    import pyarrow as pa
    from pyarrow import csv as pacsv

    body = io.StringIO()
    for value in column.to_pylist():
        body.write('"' + ("" if value is None else value).replace('"', '""') + '"\n')
    options = pacsv.ReadOptions(column_names=["only"], use_threads=False)
    convert = pacsv.ConvertOptions(null_values=NULLS, strings_can_be_null=False, quoted_strings_can_be_null=True)
    parse = pacsv.ParseOptions(ignore_empty_lines=False)
    try:
        table = pacsv.read_csv(pa.BufferReader(body.getvalue().encode()), options, parse, convert)
    except pa.ArrowException as error:
        raise FileError(f"{path}, column {name!r} cannot be read: {_first_line(error)}") from error
    found = _column_of(table.column("only"))
    if found.dtype.kind == "f" and len(found) == len(column):
        return found
    values = column.to_pylist()
    numbers, row = read_numerals(values)
    if row is None:
        return numbers
    raise InputError(
        f"{path}, column {name!r}: row {start + row} (counted from 0) holds {values[row]!r:.60}, but the model was "
        "trained on numbers there. Correct that value, or leave it empty if it is unknown."
    )


def _kinded(columns: Mapping[str, Array], kinds: Mapping[str, ColumnKind]) -> Table:
    """Texts keep empty ones, categories read those as missing, as in training."""
    made = {}
    for name, column in columns.items():
        if column.dtype.kind != "O":
            made[name] = column if column.dtype.kind == "f" else column.astype(np.float64)
        elif kinds.get(name) == "category":
            made[name] = np.array([None if v is None or not v.strip() else v for v in column.tolist()], dtype=object)
        else:
            made[name] = column
    told = {n: kinds[n] for n in made if n in kinds and (kinds[n] != "number" or made[n].dtype.kind == "f")}
    return Table(made, told)
