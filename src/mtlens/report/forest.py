"""A forest chart: one line a comparison, its estimate as a dot and its interval as a whisker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mtlens.report.charts import draw
from mtlens.report.scales import Scale, padded, shown
from mtlens.report.svg import drawing, element, label, shorten, text_of, width_of

LINE = 24.0
CLOSE_LINE = 17.0  # with more than MANY rows
MANY = 24
TOP, UNDER = 40.0, 46.0  # room of the title, and of the axis
COLOURS = {"better": "f0", "worse": "f1"}


@dataclass(frozen=True)
class ForestRow:
    """One comparison. ``tone`` colours a proved one: "better" or "worse"; anything else is drawn in the muted ink.

    ``note`` stands at the right end (a verdict); ``tip`` is the sentence for hover and screen readers.
    """

    name: str
    value: float
    low: float
    high: float
    tone: str = ""
    note: str = ""
    tip: str = ""


@dataclass(frozen=True)
class Forest:
    """Comparisons under each other on one axis. NaN leaves a row without a dot; ``margin`` shades what is too small."""

    title: str
    rows: Sequence[ForestRow]
    x_label: str
    margin: float | None = None
    reference: float | None = 0.0
    description: str = ""
    width: float = 760.0

    @property
    def line(self) -> float:
        return LINE if len(self.rows) <= MANY else CLOSE_LINE

    @property
    def height(self) -> float:
        """From the title to the axis' name."""
        return TOP + self.line * len(self.rows) + 6 + UNDER


@draw.register
def _(chart: Forest) -> str:
    layout = _Layout(chart)
    return drawing(
        chart.width,
        chart.height,
        element(
            "g",
            element("title", text_of(chart.title)),
            label(10.0, 24.0, shorten(chart.title, chart.width - 20, 15), class_="title"),
        ),
        layout.ground(),
        *(layout.row(number, row) for number, row in enumerate(chart.rows)),
        title=chart.title,
        description=chart.description or f"{len(chart.rows)} comparisons of {chart.x_label} with intervals.",
    )


class _Layout:
    """Where names, dots, whiskers and verdicts go."""

    def __init__(self, chart: Forest) -> None:
        self.chart = chart
        self.left = min(max((width_of(row.name) for row in chart.rows), default=0.0) + 22, chart.width * 0.42)
        notes = max((width_of(row.note, 11.5) for row in chart.rows), default=0.0)
        self.right = chart.width - (notes + 20 if notes else 16)
        self.top, self.bottom = TOP, chart.height - UNDER
        ends = [end for row in chart.rows for end in (row.low, row.high, row.value)]
        include = [edge for edge in (chart.reference, chart.margin, -(chart.margin or 0.0)) if edge is not None]
        low, high = padded(ends, include=include if chart.reference is not None else ())
        self.x = Scale(low, high, self.left, self.right)

    def ground(self) -> str:
        """Grid, shaded margin, reference line, axis texts."""
        chart, parts = self.chart, []
        if chart.margin:
            start, end = self.x(-chart.margin), self.x(chart.margin)
            box = {"x": start, "y": self.top, "width": end - start, "height": self.bottom - self.top}
            parts.append(element("rect", class_="none", fill_opacity=0.45, **box))
        for value in self.x.ticks():
            at = self.x(value)
            parts.append(element("line", class_="grid", x1=at, x2=at, y1=self.top, y2=self.bottom))
            parts.append(label(at, self.bottom + 15, shown(value), anchor="middle", class_="small"))
        if chart.reference is not None:
            at = self.x(chart.reference)
            parts.append(element("line", class_="axis", x1=at, x2=at, y1=self.top, y2=self.bottom))
        middle = (self.left + self.right) / 2
        parts.append(label(middle, self.bottom + 35, chart.x_label, anchor="middle", class_="muted"))
        return element("g", *parts, aria_hidden="true")

    def row(self, number: int, row: ForestRow) -> str:
        y = self.top + self.chart.line * (number + 0.5) + 3
        size = min(13.0, self.chart.line * 0.75)
        style = f"font-size:{size:g}px"
        colour = COLOURS.get(row.tone, "f7")
        name = shorten(row.name, self.left - 18, size)
        parts = [
            element("title", text_of(row.tip or row.name)),
            label(self.left - 10, y + size * 0.35, name, anchor="end", style=style),
        ]
        if math.isfinite(row.low) and math.isfinite(row.high):
            ends = {"x1": self.x(row.low), "x2": self.x(row.high), "y1": y, "y2": y}
            parts.append(element("line", class_=f"whisker {colour.replace('f', 's')}", **ends))
        if math.isfinite(row.value):
            parts.append(element("circle", class_=colour, cx=self.x(row.value), cy=y, r=4.0))
        parts.append(label(self.right + 10, y + 4, row.note, class_="small muted"))
        return element("g", *parts)
