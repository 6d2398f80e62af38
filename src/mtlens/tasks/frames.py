"""Anything with rows and columns to an array or a Table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.errors import InputError
from mtlens.tasks.table import Table


def inputs_from(X: Any, where: str) -> Array | Table:
    """Arrays stay arrays (numbers as float), texts become one text column, data frames and dicts of columns a Table;
    a table that holds only numbers becomes an array.

    NaN is a missing feature and allowed; infinity is refused with its first place.
    """
    return named_inputs(X, where)[0]


def named_inputs(X: Any, where: str) -> tuple[Array | Table, tuple[str, ...] | None]:
    """The inputs, and the names of their columns when they had any."""
    if isinstance(X, np.ndarray) or (hasattr(X, "__array__") and not is_frame(X)) or isinstance(X, (list, tuple)):
        made = _from_array(as_array(X, f"{where}: X"), where)
        return made, made.names if isinstance(made, Table) else None
    if isinstance(X, Mapping):
        X = Table({str(name): _column(values, f"{where}, column {str(name)!r}") for name, values in X.items()})
    elif not isinstance(X, Table):
        X = table_from(X, where)
    table = _checked_table(X, where)
    return (table.numbers() if table.is_numeric else table), table.names


def is_frame(X: Any) -> bool:
    """Whether something may be a data frame: it names its columns."""
    return hasattr(X, "columns") or hasattr(X, "schema")


def as_array(values: Any, where: str) -> Array:
    """What is given as an array, where masked entries are missing and entries of lists keep their own types.

    >>> as_array(["a", float("nan"), 1], "y").tolist()  # numpy makes three texts of it
    ['a', nan, 1]
    """
    try:
        if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):  # the check alone takes pandas' for one
            masked: Any = values
            numeric = masked.dtype.kind in "fiub"
            return np.asarray(masked.astype(float).filled(np.nan) if numeric else masked.astype(object).filled(None))
        array = np.asarray(values)
        if array.dtype.kind == "S":
            return np.char.decode(array, "utf-8")
        if array.dtype.kind == "U" and isinstance(values, (list, tuple)):
            own = np.asarray(values, dtype=object)
            return array if all(isinstance(entry, str) for entry in own.flat) else own
        return array
    except OverflowError as error:
        raise InputError(f"{where} holds a number too large for a float ({error}).") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{where} holds bytes that are not UTF-8 ({error}). Decode them to texts first.") from error
    except ValueError as error:
        raise InputError(f"{where} is ragged ({error}). Give every row the same number of values.") from error
    except (TypeError, RuntimeError) as error:  # a tensor on a device, or one that carries gradient
        raise InputError(f"{where} cannot be made an array: {error}") from error


def label_columns(Y: Any, where: str) -> tuple[list[Array], list[str] | None]:
    """The columns of ``(m, k)`` labels, and their names when they have any."""
    if isinstance(Y, Mapping):
        return [as_array(column, f"{where}, {name!r}") for name, column in Y.items()], [str(name) for name in Y]
    if is_frame(Y):
        columns = _columns_of(Y, where)
        return list(columns.values()), [str(name) for name in columns]
    labels = as_array(Y, f"{where}: Y")
    labels = labels[:, None] if labels.ndim == 1 else labels
    if labels.ndim != 2:
        raise InputError(f"{where} needs Y with one column a task, found shape {labels.shape}.")
    return list(labels.T), None


def _from_array(X: Array, where: str) -> Array | Table:
    if X.dtype.kind in "US" or (X.dtype.kind == "O" and X.ndim == 1):
        return _texts(X, where)
    if X.dtype.kind == "O":
        try:
            X = X.astype(np.float64)
        except OverflowError as error:
            raise InputError(f"{where}: X holds a whole number too large for a float. Divide it first.") from error
        except (TypeError, ValueError):
            if X.ndim != 2:
                raise InputError(f"{where}: X holds things that are not numbers, in shape {X.shape}.") from None
            return _checked_table(Table({f"x{i}": _column(column, where) for i, column in enumerate(X.T)}), where)
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
    if X.dtype.kind == "f" and X.dtype.itemsize > 8:  # a long double may hold what is infinite as a float64
        with np.errstate(over="ignore"):
            X = X.astype(np.float64)
    _refuse_infinity(X, where)
    return X


def _texts(X: Array, where: str) -> Table:
    """A 1-D array of texts is one text column; a 2-D one has a text column each."""
    columns = X[:, None] if X.ndim == 1 else X
    names = ["text"] if columns.shape[1] == 1 else [f"text_{i}" for i in range(columns.shape[1])]
    columns = columns.astype(object)
    for column in columns.T:
        wrong = [value for value in column if not (is_missing(value) or isinstance(value, str))]
        if wrong:
            raise InputError(f"{where}: X mixes texts with {wrong[0]!r}. Give one text a row, or rows of numbers.")
        column[[is_missing(value) for value in column]] = None
    return Table({n: columns[:, i] for i, n in enumerate(names)}, dict.fromkeys(names, "text"))


def table_from(X: Any, where: str, *, whole: bool = False) -> Table:
    """Any data frame narwhals knows, as a Table; with ``whole``, whole numbers stay so, however large."""
    columns = _columns_of(X, where)
    return Table({str(n): _column(values, f"{where}, column {n!r}", whole=whole) for n, values in columns.items()})


def _columns_of(X: Any, where: str) -> dict[Any, Array]:
    import narwhals as nw

    try:
        frame = nw.from_native(X, eager_only=True)
        return {name: frame.get_column(name).to_numpy() for name in frame.columns}  # a name may be a number
    except TypeError as error:
        raise InputError(
            f"{where}: X is a {type(X).__name__}. Give an array, a list of texts, a dict of columns or a data frame."
        ) from error
    except (ValueError, nw.exceptions.NarwhalsError) as error:  # such as a column name that occurs twice
        raise InputError(f"{where}: this data frame cannot be read: {' '.join(str(error).split())}") from error


def is_missing(value: Any) -> bool:
    """None, NaN, and the missing values of pandas and polars."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ in _MISSING_TYPES


_MISSING_TYPES = ("NAType", "NaTType")


def seconds_of(moments: Array) -> FloatArray:
    """Seconds since 1970 of a datetime64 (or seconds of a timedelta64) array, NaN for NaT."""
    seconds = moments.astype(f"{moments.dtype.kind}8[us]").astype(np.int64) / 1e6
    return np.where(np.isnat(moments), np.nan, seconds)


def _column(values: Any, where: str, *, whole: bool = False) -> Array:
    """float64 for numbers, booleans and dates (seconds since 1970), object-of-str with None for anything else."""
    column = as_array(values, where)
    if column.ndim != 1:
        raise InputError(f"{where}: a column needs one value a row, found shape {column.shape}.")
    if column.dtype.kind in "iu" and whole:
        return column
    if column.dtype.kind in "fiub":
        return column.astype(np.float64, copy=False)
    if column.dtype.kind in "mM":
        return seconds_of(column)
    if column.dtype.kind == "c":
        raise InputError(f"{where} holds complex numbers. Give their real and imaginary parts as two columns.")
    return _from_objects(column.astype(object), where)


def _from_objects(entries: Array, where: str) -> Array:
    gone = np.array([is_missing(value) for value in entries], dtype=bool)
    known = entries[~gone].tolist()
    nested = next((value for value in known if hasattr(value, "__len__") and not isinstance(value, str)), None)
    if nested is not None:
        raise InputError(f"{where} holds {nested!r:.60}. It needs one number or text a row.")
    is_date = bool(known) and all(isinstance(value, date) for value in known)
    if is_date or all(isinstance(value, (int, float, np.number, np.bool_)) for value in known):
        numbers = np.full(len(entries), np.nan)
        try:
            numbers[~gone] = [_seconds(value) if is_date else float(value) for value in known]
        except OverflowError as error:
            raise InputError(f"{where} holds a whole number too large for a float. Divide it first.") from error
        return numbers
    texts = np.full(len(entries), None, dtype=object)
    texts[~gone] = [str(value) for value in known]
    return texts


def _seconds(when: date) -> float:
    """Seconds since 1970; a time without a zone is taken as it is written."""
    if not isinstance(when, datetime):
        return (when - date(1970, 1, 1)).total_seconds()
    return (when - datetime(1970, 1, 1, tzinfo=UTC if when.tzinfo else None)).total_seconds()


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
