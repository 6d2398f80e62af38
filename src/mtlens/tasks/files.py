"""Delimited text and Parquet files to columns: what is found out about a file, and reading it fast.

A file whose columns are numbers is parsed in blocks straight into one array, so memory stays near the array's own
size; anything else takes pyarrow's whole-table path. Nothing here writes or unpacks anything to disk.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mtlens.arrays import Array
from mtlens.errors import FileError, InputError
from mtlens.tasks.table import Table

NAMELESS = "unnamed_"  # with its number, the name of a column without one
SUFFIXES = (".csv", ".tsv", ".parquet", ".npz")
NULLS = ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-NaN", "-nan", "null", "NULL", "None"]

_BLOCK = 1 << 24  # bytes parsed at once on the fast path
_HEAD = 1 << 18  # bytes looked at to find out delimiter, header and kinds
_FEWEST_UNPACKED = 1 << 30  # every .gz may unpack to 1 GiB; a larger one to 100 times its own size
_MOST_RATIO = 100
_BATCH_ROWS = 1 << 15  # of a Parquet file, read at once
_MAGIC = {
    b"\x1f\x8b": "compressed with gzip: let its name end in .gz",
    b"PK\x03\x04": "a zip archive, as .npz and Excel files are: give it its own ending, or export a sheet as .csv",
    b"PAR1": "a Parquet file: let its name end in .parquet",
}
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_NO_QUANTITY = r"^\s*[+-]?(0\d|\d{16})"  # leading zeros, or more digits than a float holds
_COMMA_NUMBER = r"^\s*[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?\s*$"
_APART = ("split", "splits", "fold", "official_split", "patient_id", "id", "ids", "row_id")  # unless asked for
_COMMAS = r"^\s*[+-]?\d+(,\d+)+(\.\d*)?\s*$"
_DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}


@dataclass(frozen=True)
class Layout:
    """How a delimited file is written, as far as it is stated; None is found out."""

    delimiter: str | None = None
    header: bool | None = None
    encoding: str | None = None
    quote: bool | None = None
    names: tuple[str, ...] = ()  # columns that are asked for: a first row that holds one is a header
    texts: tuple[str, ...] = ()  # columns read as text, whatever they hold
    categories: tuple[str, ...] = ()  # columns that may mix numbers and texts
    apart: tuple[str, ...] = ()  # split, group, ids: kept as written, never mixed into the array of numbers
    last: tuple[str, ...] = ()  # label columns, put behind the others so that these lie side by side


@dataclass(frozen=True)
class Columns:
    """The columns of a file; ``table`` numbers are float64, all else is text with None for missing."""

    table: Table
    found: str
    notes: tuple[str, ...] = field(default=())


def checked_path(path: str | Path) -> Path:
    """The path when a file can be read there; otherwise the error says what is there instead."""
    path = Path(path)
    try:
        if path.is_dir():
            raise FileError(
                f"{path} is a folder. Give one file: {', '.join(SUFFIXES)} (or .gz of it), or a .toml SPEC."
            )
        if not path.exists():
            near = sorted(p.name for p in path.parent.glob(f"{path.stem[:3]}*"))[:5] if path.parent.is_dir() else []
            raise FileError(f"there is no file {path}." + (f" Near it: {', '.join(near)}." if near else ""))
        if path.stat().st_size == 0:
            needs = "tasks" if path.suffix.lower() == ".toml" else "a header line and rows"
            raise FileError(f"{path} is empty (0 bytes). It needs {needs}.")
    except FileError:
        raise
    except (OSError, ValueError) as error:  # too long a name, a NUL character, no permission
        raise FileError(f"{str(path)[:200]!r} cannot be opened: {error}") from error
    return path


def suffix_of(path: Path) -> str:
    """The suffix that says the format, ``.gz`` aside: ".csv" for "a.csv.gz"."""
    inner = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return inner.suffix.lower()


class Source:
    """The bytes of a file, unpacked when it ends in .gz; unpacking stops at a bound."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.packed = path.suffix.lower() == ".gz"
        size = path.stat().st_size
        self.bound = max(_FEWEST_UNPACKED, _MOST_RATIO * size) if self.packed else size

    def blocks(self, size: int = _BLOCK) -> Iterator[bytes]:
        done = 0
        try:
            with gzip.open(self.path) if self.packed else self.path.open("rb") as file:
                while block := file.read(size):
                    done += len(block)
                    if self.packed and done > self.bound:
                        raise FileError(
                            f"{self.path} unpacks to more than {self.bound >> 20} MiB, {_MOST_RATIO} times its size. "
                            "If that is right, unpack it first and give the plain file."
                        )
                    yield block
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise FileError(f"{self.path} is not a whole .gz file: {error}") from error
        except OSError as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"{self.path} cannot be read: {error}") from error

    def head(self) -> bytes:
        for block in self.blocks(_HEAD):
            return block
        raise FileError(f"{self.path} is empty once unpacked. It needs a header line and rows.")

    def all(self) -> bytes:
        return b"".join(self.blocks())


def read_columns(path: Path, layout: Layout) -> Columns:
    """The columns of a .csv, .tsv or .parquet file, each also .gz."""
    path = checked_path(path)
    try:
        return _read_parquet(path) if suffix_of(path) == ".parquet" else _read_delimited(path, layout)
    except MemoryError as error:
        raise FileError(f"{path} does not fit into memory ({path.stat().st_size >> 20} MiB on disk).") from error


def _read_parquet(path: Path) -> Columns:
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = Source(path)
    try:
        with pq.ParquetFile(pa.BufferReader(source.all()) if source.packed else path) as file:
            table = pa.Table.from_batches(_bounded_batches(file, source), schema=file.schema_arrow)
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} is not a readable Parquet file: {_first_line(error)}") from error
    names = table.column_names
    _refuse_repeats(names, path)
    if not table.num_rows:
        raise InputError(f"{path} has {len(names)} columns and no rows. A task needs labelled rows.")
    columns = {name: _named_column(table.column(name), name, path) for name in names}
    return Columns(Table(columns), f"{path.name}: {table.num_rows} rows x {len(names)} columns (Parquet)")


def _bounded_batches(file: Any, source: Source) -> Iterator[Any]:
    """A Parquet file's rows, up to the bound of what is packed: equal values of a column take no room on disk."""
    bound = max(_FEWEST_UNPACKED, _MOST_RATIO * source.path.stat().st_size)
    held = 0
    for batch in file.iter_batches(batch_size=_BATCH_ROWS):
        held += max(batch.nbytes, 8 * batch.num_rows * batch.num_columns)
        if held > bound:
            raise FileError(
                f"{source.path} unpacks to more than {bound >> 20} MiB, {_MOST_RATIO} times its size. If that is "
                "right, write it with pyarrow's compression='none' and use_dictionary=False."
            )
        yield batch


@dataclass(frozen=True)
class _Dialect:
    delimiter: str
    quote: bool
    header: bool
    names: tuple[str, ...]

    def parse_options(self, newlines: bool) -> Any:
        from pyarrow import csv as pacsv

        return pacsv.ParseOptions(
            delimiter=self.delimiter, quote_char='"' if self.quote else False, newlines_in_values=newlines
        )


def _read_delimited(path: Path, layout: Layout) -> Columns:
    source = Source(path)
    head = source.head()
    _refuse_other_formats(head, path)
    encoding = layout.encoding or _encoding(head)
    if encoding == "utf-8":
        head = beginning(head)
        text = _decoded(_whole_lines(head), encoding, path, 0)
    else:
        text = _decoded(source.all(), encoding, path, 0)
    dialect = _dialect(text[:_HEAD], path, layout)
    layout = replace(layout, apart=_apart(dialect.names, layout))
    notes: list[str] = []
    table, commas = None, False
    if encoding == "utf-8" and ('"' not in text or not set(layout.apart) & set(dialect.names)):
        table = _read_numbers(source, dialect, layout, _whole_lines(head))
    if table is None:
        data = beginning(text.encode() if encoding != "utf-8" else source.all())
        if not dialect.quote and b"\n" in data and re.search(rb"\r(?!\n)", data):
            data = re.sub(rb"\r(?!\n)", b" ", data)
            notes.append(f"{path.name}: carriage returns inside lines were read as spaces")
        table, commas = _read_any(data, dialect, layout, path)
    if not table.num_rows:
        raise InputError(f"{path} has a header ({', '.join(dialect.names[:8])}) and no rows. A task needs rows.")
    if nameless := [name for name in table.names if name.startswith(NAMELESS) and _is_void(table[name])]:
        table = table.select(name for name in table.names if name not in nameless)
        notes.append(f"{path.name}: left out {len(nameless)} empty column(s) without a name")
    written = "no header: columns are named c0, c1, ..." if not dialect.header else "header found"
    how = f"{_DELIMITERS.get(dialect.delimiter, repr(dialect.delimiter))}-separated, {written}"
    if encoding != "utf-8":
        how += f", {encoding}"
    if commas:
        how += ", decimal commas"
    return Columns(table, f"{path.name}: {table.num_rows} rows x {len(dialect.names)} columns ({how})", tuple(notes))


def _refuse_other_formats(head: bytes, path: Path) -> None:
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            raise FileError(f"{path} is no text, but {what}.")


def _is_void(column: Array) -> bool:
    return column.dtype.kind == "f" and bool(np.isnan(column).all())


def beginning(data: bytes) -> bytes:
    """The start of a file without its byte order mark and empty lines; pyarrow would count these as the header."""
    return data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")


def _apart(names: Sequence[str], layout: Layout) -> tuple[str, ...]:
    """Columns kept as written: those stated, and what is called like a split, a group or ids."""
    usual = [n for n in names if n not in layout.names and (n.lower() in _APART or n.startswith(NAMELESS))]
    return tuple(name for name in names if name in layout.apart or name in usual)


def _encoding(head: bytes) -> str:
    if head[:4] in (b"\xff\xfe\0\0", b"\0\0\xfe\xff"):
        return "utf-32"
    return "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"


def _decoded(data: bytes, encoding: str, path: Path, start: int) -> str:
    try:
        return data.decode(encoding)
    except LookupError as error:
        raise InputError(f"{path}: there is no encoding {encoding!r}. Use for example 'utf-8' or 'latin-1'.") from error
    except UnicodeError as error:
        where = f" (byte {start + error.start})" if isinstance(error, UnicodeDecodeError) else ""
        raise FileError(
            f"{path} is not {encoding.upper()}{where}. Save it as UTF-8, or state its encoding in a SPEC, "
            "for example encoding = 'latin-1'."
        ) from error


def _whole_lines(head: bytes) -> bytes:
    """Up to the last line end, so that no character or row is cut; all of it when there is none."""
    if len(head) < _HEAD - 3:
        return head
    end = max(head.rfind(b"\n"), head.rfind(b"\r"))
    return head[: end + 1] if end > 0 else head.decode("utf-8", "ignore").encode()


def _dialect(text: str, path: Path, layout: Layout) -> _Dialect:
    if "\0" in text:
        raise FileError(
            f"{path} holds zero bytes, so it is not UTF-8 text. Save it as UTF-8, or state its encoding in a SPEC, for "
            "example encoding = 'utf-16-le'."
        )
    lines = [line for line in re.split(r"\r\n|\n|\r", text) if line.strip()]
    if not lines:
        raise FileError(f"{path} holds only empty lines. It needs a header line and rows.")
    tabs = suffix_of(path) == ".tsv"
    delimiter = layout.delimiter
    if delimiter is None:
        delimiter = "\t" if tabs and "\t" in lines[0] else _found_delimiter(lines[:50])
    if len(delimiter) != 1 or delimiter in '"\r\n\0' or not delimiter.isascii():
        raise InputError(f"{path}: the delimiter is {delimiter!r}; it must be one ASCII character, such as ',' or ';'.")
    quote = layout.quote
    if quote is None:  # tab-separated files are written without quotes, unless even their header is in quotes
        quote = not (tabs and delimiter == "\t") or all(re.match(r'".*"$', c) for c in lines[0].split(delimiter))
    rows = _first_rows(text, delimiter, quote)
    header = layout.header if layout.header is not None else _is_header(rows, layout.names)
    if not header:
        return _Dialect(delimiter, quote, False, tuple(f"c{i}" for i in range(len(rows[0]))))
    names = tuple(name.strip() or f"{NAMELESS}{i + 1}" for i, name in enumerate(rows[0]))
    _refuse_repeats(names, path)
    return _Dialect(delimiter, quote, True, names)


def _first_rows(text: str, delimiter: str, quote: bool) -> list[list[str]]:
    """The first rows that are not empty, cut into cells."""
    if not quote:
        return [line.rstrip("\r").split(delimiter) for line in text.split("\n")[:60] if line.strip()]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows: list[list[str]] = []
    try:
        for row in reader:
            if row:
                rows.append(row)
            if len(rows) == 50:
                break
    except csv.Error:  # a field longer than the csv module takes: what was read so far is enough
        pass
    return rows or [[""]]


def _found_delimiter(lines: list[str]) -> str:
    """The candidate that cuts the most lines into the same number of cells as the first; a comma when none cuts."""

    def merit(delimiter: str) -> tuple[float, int]:
        counts = [re.sub(r'"[^"]*"', "", line).count(delimiter) for line in lines]
        return (sum(c == counts[0] for c in counts) / len(counts), counts[0]) if counts[0] else (0.0, 0)

    best = max(_DELIMITERS, key=merit)
    return best if merit(best)[1] else ","


def _is_header(rows: list[list[str]], wanted: Sequence[str]) -> bool:
    """A first row is a header when it holds a name that is asked for, or any cell that is not a number."""
    cells = [cell.strip() for cell in rows[0]]
    if set(cells) & set(wanted):
        return True
    return any(cell and not re.match(_NUMBER, cell) and cell.lower() not in ("nan", "inf", "-inf") for cell in cells)


def _refuse_repeats(names: Sequence[str], path: Path) -> None:
    seen: set[str] = set()
    twice = sorted({name for name in names if name in seen or seen.add(name)})  # type: ignore[func-returns-value]
    if twice:
        raise InputError(f"{path}: these column names occur more than once: {', '.join(twice[:10])}. Rename them.")


def _read_numbers(source: Source, dialect: _Dialect, layout: Layout, head: bytes) -> Table | None:
    """All columns but those kept apart as views of one (rows, columns) array; None when a column is not a number.

    Blocks are cut at line ends, which may lie inside quotes: a number then fails to parse, and the general path reads
    the file. Texts would not fail, so with quotes in sight no column may be kept apart.
    """
    import pyarrow as pa
    from pyarrow import csv as pacsv

    apart = [name for name in dialect.names if name in layout.apart]
    numbers = [name for name in dialect.names if name not in layout.apart and name not in layout.last]
    numbers += [name for name in dialect.names if name in layout.last and name not in layout.apart]
    if not numbers or {*layout.texts, *layout.categories} & set(dialect.names):
        return None
    types = dict.fromkeys(numbers, pa.float64()) | dict.fromkeys(apart, pa.string())
    convert = pacsv.ConvertOptions(column_types=types, null_values=NULLS, strings_can_be_null=False)
    parse = dialect.parse_options(newlines=False)

    def parsed(block: bytes, skip: int) -> Any:
        read = pacsv.ReadOptions(column_names=list(dialect.names), skip_rows_after_names=skip)
        return pacsv.read_csv(pa.BufferReader(block), read_options=read, parse_options=parse, convert_options=convert)

    try:
        parsed(head, int(dialect.header))
        rows = sum(_line_ends(block) for block in source.blocks()) + 1
        values = np.empty((rows, len(numbers)))
        kept: dict[str, list[Any]] = {name: [] for name in apart}
        done = 0
        for number, block in enumerate(_line_blocks(source)):
            piece = parsed(block, int(dialect.header and number == 0))
            for batch in piece.to_batches():
                for j, name in enumerate(numbers):
                    values[done : done + batch.num_rows, j] = batch.column(name).to_numpy(zero_copy_only=False)
                for name in apart:
                    kept[name].append(batch.column(name))
                done += batch.num_rows
    except (pa.ArrowException, UnicodeDecodeError):
        return None  # some later row is not a number or not whole: the general path says which, or reads it
    columns = {name: values[:done, j] for j, name in enumerate(numbers)}
    columns |= {name: _parsed_texts(kept[name]) for name in apart}
    return Table(columns)


def _line_ends(block: bytes) -> int:
    return block.count(b"\n") or block.count(b"\r")


def _line_blocks(source: Source) -> Iterator[bytes]:
    """Blocks that end where a line ends."""
    rest = b""
    first = True
    for block in source.blocks():
        if first:
            block = beginning(block)
            first = False
        end = block.rfind(b"\n") + 1
        if not end:
            rest += block
            continue
        yield rest + block[:end]
        rest = block[end:]
    if rest.strip():
        yield rest


def _parsed_texts(chunks: list[Any]) -> Array:
    """A column kept apart: numbers where every entry is one and stays what was written (007 does not), else texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pa.chunked_array(chunks, type=pa.string())
    column = pc.if_else(pc.is_in(column, value_set=pa.array(NULLS)), None, column)
    if pc.any(pc.match_substring_regex(column, _NO_QUANTITY)).as_py():
        return _column_of(column)
    for kind in (pa.int64(), pa.float64()):
        try:
            return _column_of(column.cast(kind), whole=True)
        except pa.ArrowInvalid:
            continue
    return _column_of(column)


def _read_any(data: bytes, dialect: _Dialect, layout: Layout, path: Path) -> tuple[Table, bool]:
    """All columns, each with the type that fits it, and whether any was written with decimal commas."""
    import pyarrow as pa
    from pyarrow import csv as pacsv

    if b"\n" not in data and b"\r" not in data:
        data += b"\n"  # pyarrow takes a header without a line end for half a row
    read = pacsv.ReadOptions(
        column_names=list(dialect.names), skip_rows_after_names=int(dialect.header), block_size=_block_size(data)
    )
    as_written = (*layout.texts, *layout.categories, *layout.apart)
    types = {name: pa.string() for name in dialect.names if name in as_written}
    convert = pacsv.ConvertOptions(column_types=types, null_values=NULLS, strings_can_be_null=False)
    parse = dialect.parse_options(newlines=dialect.quote and b'"' in data)
    try:
        table = pacsv.read_csv(pa.BufferReader(data), read_options=read, parse_options=parse, convert_options=convert)
    except (pa.ArrowException, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise _parse_error(error, data, dialect, path) from error
    columns, commas = {}, False
    for name in dialect.names:
        column = table.column(name)
        if name not in types and (points := with_points(column, dialect.delimiter)):
            column, commas = points, True
        if pa.types.is_string(column.type) and name not in types:
            _refuse_numbers_with_text(column, name, path, dialect)
        if pa.types.is_binary(column.type):
            raise _not_utf8(data, path)
        columns[name] = _parsed_texts(column.chunks) if name in layout.apart else _column_of(column)
    return Table(columns), commas


def with_points(column: Any, delimiter: str) -> Any | None:
    """A text column of numbers, some written with a decimal comma, as numbers; None for any other column.

    Not in comma-separated files: there a comma inside quotes may as well separate thousands.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if delimiter == "," or not pa.types.is_string(column.type):
        return None
    known = pc.if_else(pc.is_in(column, value_set=pa.array(NULLS)), None, column)
    if not pc.all(pc.match_substring_regex(known, _COMMA_NUMBER), min_count=1).as_py():
        return None
    return pc.replace_substring(pc.utf8_trim_whitespace(known), ",", ".").cast(pa.float64())


def _with_comma(column: Any) -> str | None:
    """A number with a comma, from a column of nothing else than these and plain numbers; None for any other column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pc.if_else(pc.is_in(column, value_set=pa.array(NULLS)), None, column)
    marked = pc.match_substring_regex(known, _COMMAS)
    if not pc.all(pc.or_(marked, pc.match_substring_regex(known, _NUMBER)), min_count=1).as_py():
        return None
    row = pc.index(marked, True).as_py()
    return str(known[row].as_py()) if row >= 0 else None


def _block_size(data: bytes) -> int:
    """Blocks of 1 MiB, larger when a single line is longer (pyarrow refuses a row that straddles blocks)."""
    if len(data) < 1 << 20:
        return 1 << 20
    longest, start = 0, 0
    while (end := data.find(b"\n", start)) >= 0:
        longest, start = max(longest, end - start), end + 1
    return int(min(max(1 << 20, 4 * max(longest, len(data) - start)), (1 << 31) - 1))


def _parse_error(error: Exception, data: bytes, dialect: _Dialect, path: Path) -> Exception:
    message = _first_line(error)
    if "utf" in message.lower():
        return _not_utf8(data, path)
    ragged = re.search(r"Expected (\d+) columns, got (\d+)(?:: (.*))?", message)
    if not ragged:
        return FileError(f"{path} cannot be read as a table: {message}")
    wanted, got, row = ragged.groups()
    line = _line_of(row, data)
    return InputError(
        f"{path}: {line} has {got} values where the first line has {wanted} ({(row or '')[:60]!r}). "
        f"Every row needs the same number. Check the delimiter ({_DELIMITERS.get(dialect.delimiter)}) and the quotes."
    )


def _line_of(row: str | None, data: bytes) -> str:
    place = data.find(row.encode()[:200]) if row else -1
    return f"line {data.count(b'%c' % 10, 0, place) + 1}" if place >= 0 else "a line"


def _not_utf8(data: bytes, path: Path) -> Exception:
    try:
        _decoded(data, "utf-8", path, 0)
    except FileError as error:
        return error
    return FileError(f"{path} holds bytes that are not text. Save it as UTF-8.")


def _refuse_numbers_with_text(column: Any, name: str, path: Path, dialect: _Dialect) -> None:
    """A column that is mostly numbers with a text among them is a mistake, not a category."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if dialect.delimiter == "," and (one := _with_comma(column)):
        raise InputError(
            f"{path}: column {name!r} holds numbers with a comma, such as {one!r}, in a comma-separated file: it may "
            "separate thousands or decimals. Write 1500 or 1.5, or list the column under categories in a SPEC."
        )
    given = pc.invert(pc.is_in(column, value_set=pa.array(NULLS)))
    number = pc.match_substring_regex(column, _NUMBER)
    count = pc.sum(number).as_py() or 0
    present = pc.sum(given).as_py() or 0
    if 2 * count <= present or count == present:
        return
    row = pc.index(pc.and_(given, pc.invert(number)), True).as_py()
    raise InputError(
        f"{path}: column {name!r} is a number in {count} of {present} rows, but {column[row].as_py()!r} in line "
        f"{row + 1 + dialect.header}. Correct it or leave it empty; if the column is a category, list it under "
        f"categories in a SPEC."
    )


def _named_column(column: Any, name: str, path: Path) -> Array:
    try:
        return _column_of(column, whole=True)
    except (FileError, InputError) as error:
        raise type(error)(f"{path}: column {name!r} {str(error).removeprefix('a column ')}") from error


def _column_of(column: Any, *, whole: bool = False) -> Array:
    """An arrow column as float64 or object-of-str; with ``whole``, integers without gaps stay integers."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if whole and pa.types.is_integer(kind) and not column.null_count:
        return np.asarray(column.to_numpy())
    if pa.types.is_boolean(kind) or pa.types.is_null(kind) or pa.types.is_decimal(kind):
        column, kind = column.cast(pa.float64()), pa.float64()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.asarray(column.to_numpy(), dtype=np.float64)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        micros = column.cast(pa.timestamp("us", tz=getattr(kind, "tz", None)), safe=False).cast(pa.int64())
        return np.asarray(micros.to_numpy(), dtype=np.float64) / 1e6
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        try:
            column = column.cast(pa.string())
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise InputError(f"a column holds {kind}, which is neither a number nor a text. Leave it out.") from error
    try:
        return np.array(column.to_pylist(), dtype=object)
    except UnicodeDecodeError as error:
        raise FileError(f"a column holds text that is not UTF-8: {error}") from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
