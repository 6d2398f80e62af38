"""Number columns: fill what is missing, mark that it was, drop what never varies, standardise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mtlens.arrays import BoolArray, FloatArray, IntArray
from mtlens.features.state import State
from mtlens.features.views import View

CHUNK = 64  # columns fitted at a time, so that fitting never holds a second copy of the data
_ROWS = 4096  # transposed at a time


class NumberColumns:
    """Number columns by name, fitted on train rows.

    A missing value becomes the train median, and a column with missing train values gets a second, 0/1 column that
    says where they were. A column that is constant over the train rows (exactly, or to rounding) is dropped; one that
    is never known there is dropped whole. What remains is centred and divided by its standard deviation (divisor n),
    0/1 columns are centred only.
    """

    def __init__(self, columns: Sequence[str], *, scale: bool, drop_constant: bool, indicators: bool) -> None:
        self.columns = tuple(columns)
        self.scale, self.drop_constant, self.indicators = scale, drop_constant, indicators
        count = len(self.columns)
        self.median: FloatArray = np.zeros(count)
        self.mean: FloatArray = np.zeros(count)
        self.std: FloatArray = np.ones(count)
        self.kept: BoolArray = np.ones(count, dtype=bool)
        self.marked: BoolArray = np.zeros(count, dtype=bool)  # columns with an indicator
        self.share: FloatArray = np.zeros(count)  # of missing train rows
        self.found: tuple[str, ...] = ()

    def fit(self, views: Sequence[View]) -> NumberColumns:
        missing = np.zeros(len(self.columns), dtype=np.int64)
        for start in range(0, len(self.columns), CHUNK):
            chunk = slice(start, start + CHUNK)
            parts = [view.numbers(self.columns[chunk]) for view in views]
            values = np.concatenate(parts) if len(parts) > 1 else parts[0]
            missing[chunk] = self._fit_chunk(chunk, values)
        rows = sum(view.num_rows for view in views)
        self.share = missing / max(rows, 1)
        self.marked = (missing > 0) & (missing < rows) & self.indicators
        self.found = self._say(missing, rows)
        return self

    def _fit_chunk(self, chunk: slice, values: FloatArray) -> IntArray:
        """Medians, means, spreads and constancy of some columns; returns how many values each lacks."""
        gaps = np.isnan(values)
        missing: IntArray = np.count_nonzero(gaps, axis=0)
        known = missing < len(values)
        median = np.array([_median(column) for column in _transposed(values)])  # of full ones too: later rows have gaps
        if missing.any():
            values = np.where(gaps, median, values)
        low, high = values.min(axis=0), values.max(axis=0)
        size = np.maximum(np.abs(low), np.abs(high))
        constant = high / 2 - low / 2 <= 2 * np.finfo(np.float64).eps * size  # halved: the range may overflow
        extreme = (size > 1e100) | (size < 1e-100)  # whose squares overflow or vanish
        unit = np.where(extreme & (size > 0), size, 1.0)
        values = values / unit if (unit != 1.0).any() else values
        self.median[chunk] = median
        self.kept[chunk] = ~constant & known if self.drop_constant else True
        if self.scale:
            self.mean[chunk] = values.mean(axis=0) * unit
            self.std[chunk] = np.where(constant, 1.0, values.std(axis=0) * unit)
        return missing

    def _say(self, missing: IntArray, rows: int) -> tuple[str, ...]:
        lines = []
        if self.marked.any():
            names = [f"{self.columns[i]} ({missing[i]} of {rows})" for i in np.flatnonzero(self.marked)]
            lines.append(f"missing values become the train median, with an indicator column each: {_listed(names)}")
        elif missing.any() and (missing < rows).any():
            names = [self.columns[i] for i in np.flatnonzero(missing)]
            lines.append(f"missing values become the train median: {_listed(names)}")
        if not self.kept.all():
            names = [self.columns[i] for i in np.flatnonzero(~self.kept)]
            lines.append(f"dropped, as they never vary on train rows: {_listed(names)}")
        return tuple(lines)

    @property
    def names(self) -> tuple[str, ...]:
        values = [name for name, kept in zip(self.columns, self.kept, strict=True) if kept]
        marks = [f"{name} is missing" for name, marked in zip(self.columns, self.marked, strict=True) if marked]
        return (*values, *marks)

    def write(self, view: View, out: FloatArray) -> None:
        """Fill ``out`` (rows, width) with the view's transformed columns."""
        kept = np.flatnonzero(self.kept)
        marked = np.flatnonzero(self.marked)
        for start in range(0, len(kept), CHUNK):
            chosen = kept[start : start + CHUNK]
            values = view.numbers([self.columns[i] for i in chosen])
            gaps = np.isnan(values)
            if gaps.any():
                values = np.where(gaps, self.median[chosen], values)
            out[:, start : start + len(chosen)] = (values - self.mean[chosen]) / self.std[chosen]
        if len(marked):
            gaps = np.isnan(view.numbers([self.columns[i] for i in marked]))
            out[:, len(kept) :] = gaps - (self.share[marked] if self.scale else 0.0)

    def state(self) -> State:
        arrays = {name: getattr(self, name) for name in ("median", "mean", "std", "kept", "marked", "share")}
        settings = {"scale": self.scale, "drop_constant": self.drop_constant, "indicators": self.indicators}
        return State(arrays, {"columns": list(self.columns), "settings": settings, "found": list(self.found)})

    @classmethod
    def from_state(cls, state: State) -> NumberColumns:
        new = cls(state.meta["columns"], **state.meta["settings"])
        for name in ("median", "mean", "std", "kept", "marked", "share"):
            setattr(new, name, state.arrays[name])
        new.found = tuple(state.meta["found"])
        return new


def _transposed(values: FloatArray) -> FloatArray:
    """A copy with every column in one piece, made some rows at a time, as strides beyond the cache are slow."""
    out = np.empty(values.shape[::-1])
    for start in range(0, len(values), _ROWS):
        out[:, start : start + _ROWS] = values[start : start + _ROWS].T
    return out


def _median(column: FloatArray) -> float:
    """Median of the known values, 0 when there are none."""
    known = column[~np.isnan(column)]
    middle = len(known) // 2
    if not len(known):
        return 0.0
    known.partition(middle)
    return float(known[middle] if len(known) % 2 else known[:middle].max() / 2 + known[middle] / 2)


def _listed(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f", ... {len(names) - most} more" if len(names) > most else "")
