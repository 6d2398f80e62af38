"""What a reproduction returns: points of figures, findings, and how a figure is drawn from points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.paper.claims import Claim, Finding, judge, mean_interval
from mtlens.report.charts import LineChart, Series


@dataclass(frozen=True)
class Panel:
    """One chart of a figure: which points it shows and how its axes read. ``controls`` are drawn muted."""

    name: str
    title: str
    x_label: str
    y_label: str
    x_log: bool = False
    reference: float | None = None
    controls: Sequence[str] = ()
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Point:
    """A mean over seeds: where it stands in the figure, with standard error, 95 % interval and n."""

    panel: str
    series: str
    x: float
    mean: float
    se: float
    low: float
    high: float
    n: int

    def as_dict(self) -> dict[str, Any]:
        def short(value: float) -> float | None:
            return float(f"{value:.10g}") if np.isfinite(value) else None

        return {
            "panel": self.panel,
            "series": self.series,
            "x": self.x,
            "mean": short(self.mean),
            "se": short(self.se),
            "low": short(self.low),
            "high": short(self.high),
            "n": self.n,
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Point:
        numbers = {key: np.nan if found[key] is None else found[key] for key in ("x", "mean", "se", "low", "high")}
        return cls(panel=found["panel"], series=found["series"], n=found["n"], **numbers)


@dataclass(frozen=True)
class Outcome:
    """Points and findings of one reproduction at one setting."""

    panels: Sequence[Panel]
    points: Sequence[Point]
    findings: Sequence[Finding]
    notes: Sequence[str] = field(default=())

    def charts(self) -> list[LineChart]:
        return [chart for panel in self.panels if (chart := _chart(panel, self.points)) is not None]


class Draws:
    """Values by (panel, series, x), one a seed, in the order they were added: the raw material of points and claims."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, float], list[float]] = {}

    def add(self, panel: str, series: str, x: float, value: float) -> None:
        self._values.setdefault((panel, series, float(x)), []).append(float(value))

    def add_all(self, panel: str, x: float, values: Mapping[str, float]) -> None:
        for series, value in values.items():
            self.add(panel, series, x, value)

    def get(self, panel: str, series: str, x: float) -> FloatArray:
        """``(seeds,)`` draws of one point."""
        return np.array(self._values[panel, series, float(x)])

    def mean_over(self, panel: str, series: str, xs: Iterable[float]) -> FloatArray:
        """``(seeds,)`` averages of a series over some x: one draw a seed still."""
        averages: FloatArray = np.mean([self.get(panel, series, x) for x in xs], axis=0)
        return averages

    def xs(self, panel: str, series: str) -> list[float]:
        return [x for p, s, x in self._values if (p, s) == (panel, series)]

    def slope(self, panel: str, series: str) -> FloatArray:
        """``(seeds,)`` rank correlations of a series with x: the direction of a trend, seed by seed."""
        from scipy.stats import rankdata

        xs = self.xs(panel, series)
        values = np.array([self.get(panel, series, x) for x in xs])  # (grid, seeds)
        ranks = rankdata(values, axis=0) - (len(xs) + 1) / 2
        order = rankdata(xs) - (len(xs) + 1) / 2
        spread = np.sqrt((ranks**2).sum(0) * (order**2).sum())
        directions: FloatArray = np.divide(order @ ranks, spread, out=np.zeros(values.shape[1]), where=spread > 0)
        return directions

    def points(self) -> list[Point]:
        return [_point(*key, np.array(values)) for key, values in self._values.items()]


def _point(panel: str, series: str, x: float, values: FloatArray) -> Point:
    mean, low, high = mean_interval(values)
    se = float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else np.nan
    return Point(panel, series, x, mean, se, low, high, values.size)


def _chart(panel: Panel, points: Sequence[Point]) -> LineChart | None:
    mine = [p for p in points if p.panel == panel.name]
    names = sorted(dict.fromkeys(p.series for p in mine), key=lambda name: name in panel.controls)
    if not names:
        return None
    series = []
    for name in names:
        line = sorted((p for p in mine if p.series == name), key=lambda p: p.x)
        bounded = all(np.isfinite([p.low, p.high]).all() for p in line)
        low, high = ([p.low for p in line], [p.high for p in line]) if bounded else (None, None)
        xs, ys = [p.x for p in line], [p.mean for p in line]
        series.append(Series(name, xs, ys, low, high, muted=name in panel.controls))
    grid = sorted({p.x for p in mine})
    return LineChart(
        panel.title,
        series,
        panel.x_label,
        panel.y_label,
        x_log=panel.x_log,
        x_ticks=grid if len(grid) <= 9 else None,
        reference=panel.reference,
        y_range=panel.y_range,
    )


class Ledger:
    """Collects the findings of a study: the claim's words and its draws side by side."""

    def __init__(self, condition: str = "") -> None:
        self.condition = condition
        self.findings: list[Finding] = []

    def claim(self, id: str, statement: str, where: str, test: Any, draws: Any, **more: Any) -> Finding:
        """State a claim and judge it. ``condition`` defaults to the study's own."""
        finding = judge(Claim(id, statement, where, test, **{"condition": self.condition} | more), draws)
        self.findings.append(finding)
        return finding
