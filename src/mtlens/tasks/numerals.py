"""Texts that stand for numbers: numbers, true or false, dates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.tasks.files import NULLS


def read_numerals(values: Sequence[str | None]) -> tuple[FloatArray, int | None]:
    """Texts as the readers of files take them: all numbers, all true or false, or all ISO dates (seconds since 1970).

    Also the first row that is none of these where all rows before it are; None when every row is read.
    """
    known = [(row, value.strip()) for row, value in enumerate(values) if value is not None and value not in NULLS]
    numbers, furthest = np.full(len(values), np.nan), -1
    for read in (_number, _TRUTH.get, _date):
        found = [read(text) for _, text in known]
        bad = next((row for (row, _), number in zip(known, found, strict=True) if number is None), None)
        if bad is None:
            numbers[[row for row, _ in known]] = found
            return numbers, None
        furthest = max(furthest, bad)
    return numbers, furthest


_TRUTH = {
    word: value for value, words in ((1.0, "true True TRUE"), (0.0, "false False FALSE")) for word in words.split()
}


def _number(text: str) -> float | None:
    """A finite number; infinity is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) and "_" not in text else None


def _date(text: str) -> float | None:
    """An ISO date or time; without a zone as it is written."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (when - datetime(1970, 1, 1, tzinfo=UTC if when.tzinfo else None)).total_seconds()
