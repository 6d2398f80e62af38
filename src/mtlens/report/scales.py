"""From data to pixels: round ticks, linear and logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


def round_step(span: float, count: int) -> float:
    """The step 1, 2, 2.5 or 5 times a power of ten that gives about ``count`` ticks over a span.

    >>> round_step(1.0, 5), round_step(37.0, 5)
    (0.2, 10.0)
    """
    raw = span / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    return float(next(step for step in (power, 2 * power, 2.5 * power, 5 * power, 10 * power) if step >= raw * 0.999))


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round values from at or above ``low`` to at or below ``high``.

    >>> ticks(-0.3, 0.45)
    [-0.2, 0.0, 0.2, 0.4]
    """
    if not high > low:
        return [low]
    step = round_step(high - low, count)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(first, last + 1)]


def shown(value: float) -> str:
    """A tick's text: thousands as ``9k``, at most three digits below a thousand.

    >>> shown(9000.0), shown(0.25), shown(1e-5), shown(0.0), shown(0.7071)
    ('9k', '0.25', '1e-05', '0', '0.707')
    """
    if abs(value) >= 10000 or abs(value) in {k * 1000 for k in range(1, 10)}:
        return f"{value / 1000:g}k" if abs(value) < 1e6 else f"{value:g}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:g}"


@dataclass(frozen=True)
class Scale:
    """A data interval laid on a pixel interval (which may run backwards, as y does)."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self._bend(self.low), self._bend(self.high)
        share = (self._bend(value) - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def _bend(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def ticks(self, wanted: Sequence[float] | None = None) -> list[float]:
        """The wanted values if given (a grid of settings), else round ones; decades on a log axis."""
        if wanted is not None:
            return list(wanted)
        if not self.log:
            return ticks(self.low, self.high, 6)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        values = [10.0**p * k for p in range(first, last + 1) for k in (1, 3)]
        return [v for v in values if self.low * 0.999 <= v <= self.high * 1.001] or [self.low, self.high]


def padded(values: Sequence[float], *, include: Sequence[float] = (), share: float = 0.06) -> tuple[float, float]:
    """The range of the finite values with some air; a constant gets a range of its own size.

    >>> padded([1.0, 1.0])
    (0.5, 1.5)
    """
    finite = [float(v) for v in (*values, *include) if math.isfinite(v)]
    if not finite:
        return (0.0, 1.0)
    low, high = min(finite), max(finite)
    air = (high - low) * share or max(abs(high) * 0.5, 0.5)
    return (low - air, high + air)
