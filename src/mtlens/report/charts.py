"""Charts as data, and the function that draws each as inline SVG text.

``draw(chart)`` is a pure function of the chart: same data, same bytes. Colours are CSS variables (light and dark, see
``svg.CHART_CSS``), series differ in marker and dash as well as colour, every mark has a text that hover, focus and
screen readers find, and every name is escaped. ``standalone(draw(chart))`` is a file of its own; a page carries
``CHART_CSS`` once, and ``CHART_SCRIPT`` if it wants arrow keys on heat maps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import TypeAlias

from mtlens.errors import InputError
from mtlens.report.scales import Scale, padded, shown
from mtlens.report.svg import DASHES, NUM_COLOURS, drawing, element, label, number, shorten, text_of, width_of

LINE_HEIGHT = 18.0
MANY_CELLS = 900  # a heat map with more is written shorter
MOST_CELLS = 2500  # one with more tells only its TOLD clearest cells; the rest is colour
TOLD = 1500
FAINT = 0.4  # of the tint of a cell that proves something
MARKERS = ("circle", "square", "triangle", "diamond")


@dataclass(frozen=True)
class Series:
    """One line (or cloud of points): a value per x with an optional interval. NaN leaves a gap.

    ``muted`` draws it thin and dashed: for controls and baselines that accompany the main lines.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    muted: bool = False
    tips: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for what in ("y", "low", "high", "tips"):
            given = getattr(self, what)
            if given is not None and len(given) != len(self.x):
                raise InputError(f"series {self.name!r} has {len(self.x)} x, but {len(given)} {what}. Give one each.")
        if (self.low is None) != (self.high is None):
            raise InputError(f"series {self.name!r} has one end of its intervals. Give both low and high, or neither.")


@dataclass(frozen=True)
class LineChart:
    """Lines over a shared x axis with bands (or whiskers, ``error_bars=True``).

    ``reference`` draws a horizontal line (0 for differences). ``x_ticks`` are shown as given: a grid of settings.
    """

    title: str
    series: Sequence[Series]
    x_label: str
    y_label: str
    x_log: bool = False
    x_ticks: Sequence[float] | None = None
    reference: float | None = None
    error_bars: bool = False
    y_range: tuple[float, float] | None = None
    description: str = ""
    width: float = 560.0
    height: float = 380.0


@dataclass(frozen=True)
class Scatter:
    """Clouds of points; ``diagonal`` draws y = x (predicted against measured)."""

    title: str
    series: Sequence[Series]
    x_label: str
    y_label: str
    diagonal: bool = False
    reference: float | None = None
    description: str = ""
    width: float = 460.0
    height: float = 420.0


@dataclass(frozen=True)
class Bars:
    """Groups of bars: ``values[g][s]`` is group g's bar of series s, with optional intervals of the same shape."""

    title: str
    groups: Sequence[str]
    names: Sequence[str]
    values: Sequence[Sequence[float]]
    y_label: str
    low: Sequence[Sequence[float]] | None = None
    high: Sequence[Sequence[float]] | None = None
    description: str = ""
    width: float = 560.0
    height: float = 380.0

    def __post_init__(self) -> None:
        for what in ("values", "low", "high"):
            given = getattr(self, what)
            if given is not None and [len(row) for row in given] != [len(self.names)] * len(self.groups):
                raise InputError(
                    f"bars {self.title!r}: {what} needs {len(self.groups)} rows of {len(self.names)} numbers."
                )


@dataclass(frozen=True)
class HeatMap:
    """A matrix of differences: rows are targets, columns are sources; better is blue, worse is orange.

    ``marks`` are short texts in the cells (a verdict's sign; a line break makes two lines), ``tips`` the sentence of a
    cell for hover, focus and screen readers. ``faint`` cells are tinted weakly: their value proves nothing. NaN is a
    cell without a value. ``limit`` is the value of full colour (default: the largest). ``units`` (one a row) are what
    values are divided by for their colour, where rows have different units; the key then counts units.
    """

    title: str
    values: Sequence[Sequence[float]]
    rows: Sequence[str]
    columns: Sequence[str]
    marks: Sequence[Sequence[str]] | None = None
    tips: Sequence[Sequence[str]] | None = None
    faint: Sequence[Sequence[bool]] | None = None
    limit: float | None = None
    units: Sequence[float] | None = None
    row_title: str = "target"
    column_title: str = "source"
    better: str = "joint training is better"
    worse: str = "joint training is worse"
    description: str = ""
    cell: float | None = field(default=None)

    def __post_init__(self) -> None:
        for what in ("values", "marks", "tips", "faint"):
            given = getattr(self, what)
            if given is not None and [len(row) for row in given] != [len(self.columns)] * len(self.rows):
                raise InputError(
                    f"heat map {self.title!r}: {what} needs {len(self.rows)} rows of {len(self.columns)} cells."
                )


Chart: TypeAlias = LineChart | Scatter | Bars | HeatMap


@singledispatch
def draw(chart: object) -> str:
    """A chart (one of ``Chart``, or a ``Forest``) as SVG text for inlining in a page.

    >>> draw(LineChart("t", [Series("<s>", [1, 2], [0.5, 1.0])], "x", "y"))[:60]
    '<svg xmlns="http://www.w3.org/2000/svg" class="mtl" viewBox='
    """
    raise TypeError(f"draw: no drawing for {type(chart).__name__}; it takes LineChart, Scatter, Bars or HeatMap.")


@draw.register
def _(chart: LineChart) -> str:
    frame = _Frame(chart.width, chart.height, [s.name for s in chart.series])
    reference = [] if chart.reference is None else [chart.reference]
    x = _span([v for s in chart.series for v in s.x], log=chart.x_log)
    values = [v for s in chart.series for part in (s.y, s.low or (), s.high or ()) for v in part]
    y = chart.y_range or padded(values, include=reference)
    scales = frame.scales(x, y, x_log=chart.x_log)
    return drawing(
        chart.width,
        frame.total_height,
        frame.heading(chart.title),
        frame.axes(*scales, chart.x_label, chart.y_label, chart.x_ticks),
        _reference(frame, scales[1], chart.reference),
        *(_band(s, i, scales) for i, s in enumerate(chart.series) if s.low is not None and not chart.error_bars),
        *(_whiskers(s, i, scales) for i, s in enumerate(chart.series) if s.low is not None and chart.error_bars),
        *(_line(s, i, scales) for i, s in enumerate(chart.series)),
        frame.legend([s.muted for s in chart.series]),
        title=chart.title,
        description=chart.description or _summary(chart.series, chart.x_label, chart.y_label),
    )


@draw.register
def _(chart: Scatter) -> str:
    frame = _Frame(chart.width, chart.height, [s.name for s in chart.series])
    xs = [v for s in chart.series for v in s.x]
    ys = [v for s in chart.series for part in (s.y, s.low or (), s.high or ()) for v in part]
    reference = [] if chart.reference is None else [chart.reference]
    x, y = padded(xs), padded(ys, include=reference)
    if chart.diagonal:
        x = y = (min(x[0], y[0]), max(x[1], y[1]))
    scales = frame.scales(x, y)
    diagonal = element(
        "line", class_="axis", x1=scales[0](x[0]), y1=scales[1](x[0]), x2=scales[0](x[1]), y2=scales[1](x[1])
    )
    return drawing(
        chart.width,
        frame.total_height,
        frame.heading(chart.title),
        frame.axes(*scales, chart.x_label, chart.y_label, None),
        diagonal if chart.diagonal else "",
        _reference(frame, scales[1], chart.reference),
        *(_whiskers(s, i, scales) for i, s in enumerate(chart.series) if s.low is not None),
        *(_points(s, i, scales) for i, s in enumerate(chart.series)),
        frame.legend([False] * len(chart.series)),
        title=chart.title,
        description=chart.description or _summary(chart.series, chart.x_label, chart.y_label),
    )


@draw.register
def _(chart: Bars) -> str:
    frame = _Frame(chart.width, chart.height, chart.names)
    ends = [v for rows in (chart.values, chart.low or (), chart.high or ()) for row in rows for v in row]
    _, y = frame.scales((0.0, 1.0), padded(ends, include=[0.0]))
    slot = frame.inner_width / max(len(chart.groups), 1)
    wide = slot * 0.8 / max(len(chart.names), 1)
    bars = [
        _bar(chart, g, s, frame.left + slot * (g + 0.1) + wide * s, wide, y)
        for g in range(len(chart.groups))
        for s in range(len(chart.names))
    ]
    names = [
        element(
            "g",
            element("title", text_of(group)),
            label(
                frame.left + slot * (g + 0.5),
                frame.bottom + 16,
                shorten(group, slot * 0.98, 12),
                anchor="middle",
                class_="small",
            ),
        )
        for g, group in enumerate(chart.groups)
    ]
    return drawing(
        chart.width,
        frame.total_height,
        frame.heading(chart.title),
        frame.y_axis(y, chart.y_label),
        _reference(frame, y, 0.0),
        *bars,
        *names,
        frame.legend([False] * len(chart.names), squares=True),
        title=chart.title,
        description=chart.description or f"{len(chart.groups)} groups of {len(chart.names)} bars of {chart.y_label}.",
    )


@draw.register
def _(chart: HeatMap) -> str:
    layout = _Matrix(chart)
    told = _told_cells(chart)
    cells = [_cell(chart, layout, r, c, first=i == 0) for i, (r, c) in enumerate(told)]
    size = f"font-size:{number(layout.mark_size)}px"
    key = layout.key()  # may widen the drawing
    return drawing(
        layout.width,
        layout.height,
        label(10.0, 24.0, chart.title, class_="title"),
        *layout.names(),
        _untold_cells(chart, layout, set(told)),
        element("g", *cells, text_anchor="middle", style=size),
        key,
        title=chart.title,
        description=chart.description
        or f"Heat map with {len(chart.rows)} rows ({chart.row_title}) and {len(chart.columns)} columns "
        f"({chart.column_title}). Arrow keys move between cells.",
        role="group",
    )


def panels(drawings: Sequence[str], sizes: Sequence[tuple[float, float]], *, title: str, columns: int = 2) -> str:
    """Several drawings as one figure: columns as wide as the widest, each row as tall as its tallest."""
    columns = min(columns, len(drawings))
    wide = max(w for w, _ in sizes)
    talls = [max(h for _, h in sizes[i : i + columns]) for i in range(0, len(sizes), columns)]
    placed = [
        element("g", svg, transform=f"translate({number((i % columns) * wide)} {number(sum(talls[: i // columns]))})")
        for i, svg in enumerate(drawings)
    ]
    return drawing(wide * columns, sum(talls), *placed, title=title, role="group")


def figure(charts: Sequence[Chart], *, title: str, columns: int = 2) -> str:
    """Charts drawn side by side as one SVG (see :func:`panels`)."""
    drawn = [draw(chart) for chart in charts]
    return panels(drawn, [_size(svg) for svg in drawn], title=title, columns=columns)


def _size(svg: str) -> tuple[float, float]:
    _, _, wide, tall = svg.split('viewBox="', 1)[1].split('"', 1)[0].split()
    return float(wide), float(tall)


# ---------------------------------------------------------------------------------------------- frame and axes


class _Frame:
    """The plot area, what surrounds it, and the legend under it (as many lines as the names need)."""

    def __init__(self, width: float, height: float, names: Sequence[str]) -> None:
        self.width, self.names = width, list(names)
        self.left, self.right, self.top, self.bottom = 76.0, width - 16.0, 44.0, height - 52.0
        self.legend_top = height
        self.places, lines = _flow([min(width_of(n) + 44, width - 20) for n in self.names], width - 20)
        self.total_height = height + (lines * LINE_HEIGHT + 8 if len(self.names) > 1 else 0)

    @property
    def inner_width(self) -> float:
        return self.right - self.left

    def scales(self, x: tuple[float, float], y: tuple[float, float], *, x_log: bool = False) -> tuple[Scale, Scale]:
        return Scale(*x, self.left, self.right, log=x_log), Scale(*y, self.bottom, self.top)

    def heading(self, title: str) -> str:
        return element(
            "g",
            element("title", text_of(title)),
            label(10.0, 24.0, shorten(title, self.width - 20, 15), class_="title"),
        )

    def axes(self, x: Scale, y: Scale, x_label: str, y_label: str, x_ticks: Sequence[float] | None) -> str:
        parts = [self.y_axis(y, y_label)]
        taken = -math.inf  # right end of the last label: a grid may be finer than its labels are wide
        for value in x.ticks(x_ticks):
            words = shown(value)
            half = width_of(words, 11.5) / 2 + 2
            if x(value) - half >= taken:
                parts.append(label(x(value), self.bottom + 17, words, anchor="middle", class_="small"))
                taken = x(value) + half
            parts.append(element("line", class_="axis", x1=x(value), x2=x(value), y1=self.bottom, y2=self.bottom + 4))
        parts.append(label((self.left + self.right) / 2, self.bottom + 38, x_label, anchor="middle", class_="muted"))
        return element("g", *parts, aria_hidden="true")

    def y_axis(self, y: Scale, y_label: str) -> str:
        parts = []
        for value in y.ticks():
            parts.append(element("line", class_="grid", x1=self.left, x2=self.right, y1=y(value), y2=y(value)))
            parts.append(label(self.left - 7, y(value) + 4, shown(value), anchor="end", class_="small"))
        middle = (self.top + self.bottom) / 2
        turn = f"rotate(-90 16 {number(middle)})"
        parts.append(label(16.0, middle, y_label, anchor="middle", class_="muted", transform=turn))
        return element("g", *parts, aria_hidden="true")

    def legend(self, muted: Sequence[bool], *, squares: bool = False) -> str:
        if len(self.names) < 2:
            return ""
        parts = []
        for i, (name, (x, line)) in enumerate(zip(self.names, self.places, strict=True)):
            x0, y0 = 10 + x, self.legend_top + line * LINE_HEIGHT + 4
            if squares:
                mark = element("rect", class_=f"f{i % NUM_COLOURS}", x=x0 + 8, y=y0 - 6, width=12.0, height=12.0)
            else:
                mark = _stroke([(x0, y0), (x0 + 26, y0)], i, muted[i]) + _marker(x0 + 13, y0, i, muted[i])
            parts += [mark, label(x0 + 33, y0 + 4.5, shorten(name, self.width - 60))]
        return element("g", *parts)


def _flow(widths: Sequence[float], room: float) -> tuple[list[tuple[float, int]], int]:
    """Left-to-right places (x, line) for items of given widths, breaking lines when the room is used up."""
    places, x, line = [], 0.0, 0
    for wide in widths:
        if x and x + wide > room:
            x, line = 0.0, line + 1
        places.append((x, line))
        x += wide
    return places, line + 1


def _span(values: Sequence[float], *, log: bool) -> tuple[float, float]:
    if not log:
        return padded(values, share=0.04)
    kept = [v for v in values if v > 0]
    if len(kept) != len(values):
        raise InputError("a logarithmic x axis needs values above zero. Use x_log=False for this grid.")
    return (min(kept) * 0.9, max(kept) * 1.1) if kept else (1.0, 10.0)


def _summary(series: Sequence[Series], x_label: str, y_label: str) -> str:
    """What a chart shows, in one sentence for those who hear it."""
    parts = []
    for s in series:
        known = [v for v in s.y if math.isfinite(v)]
        if known:
            parts.append(f"{s.name} from {shown(round(known[0], 4))} to {shown(round(known[-1], 4))}")
    return f"{y_label} over {x_label}: {'; '.join(parts) or 'no values'}."


# ---------------------------------------------------------------------------------------------- marks


def _reference(frame: _Frame, y: Scale, value: float | None) -> str:
    if value is None:
        return ""
    return element("line", class_="axis", x1=frame.left, x2=frame.right, y1=y(value), y2=y(value))


def _stroke(points: Sequence[tuple[float, float]], index: int, muted: bool) -> str:
    path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    dash = DASHES[index % len(DASHES)] if not muted else "3 4"
    thin = "stroke-width:1.3" if muted else None
    return element(
        "polyline",
        class_=f"line s{index % NUM_COLOURS}",
        points=path,
        style=thin,
        stroke_dasharray=None if dash == "none" else dash,
    )


def _marker(x: float, y: float, index: int, muted: bool, tip: str | None = None) -> str:
    size = 2.6 if muted else 4.0
    shape, class_ = MARKERS[index % len(MARKERS)], f"f{index % NUM_COLOURS}"
    title = (element("title", text_of(tip)),) if tip else ()
    if shape == "circle":
        return element("circle", *title, class_=class_, cx=x, cy=y, r=size)
    around = {
        "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        "triangle": ((0, -1.2), (1.2, 1), (-1.2, 1)),
        "diamond": ((0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)),
    }[shape]
    corners = " ".join(f"{number(x + dx * size)},{number(y + dy * size)}" for dx, dy in around)
    return element("polygon", *title, class_=class_, points=corners)


def _runs(s: Series) -> list[list[int]]:
    """Indices of unbroken stretches of finite values."""
    runs: list[list[int]] = [[]]
    for i, value in enumerate(s.y):
        if math.isfinite(value):
            runs[-1].append(i)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _tip(s: Series, i: int) -> str:
    if s.tips is not None:
        return s.tips[i]
    interval = "" if s.low is None or s.high is None else f" [{s.low[i]:.3g}, {s.high[i]:.3g}]"
    return f"{s.name}: {s.y[i]:.3g}{interval} at {s.x[i]:g}"


def _line(s: Series, index: int, scales: tuple[Scale, Scale]) -> str:
    x, y = scales
    strokes = [_stroke([(x(s.x[i]), y(s.y[i])) for i in run], index, s.muted) for run in _runs(s)]
    return element("g", *strokes, _points(s, index, scales))


def _points(s: Series, index: int, scales: tuple[Scale, Scale]) -> str:
    x, y = scales
    known = [i for run in _runs(s) for i in run]
    return element("g", *(_marker(x(s.x[i]), y(s.y[i]), index, s.muted, _tip(s, i)) for i in known))


def _band(s: Series, index: int, scales: tuple[Scale, Scale]) -> str:
    if s.low is None or s.high is None or s.muted:
        return ""  # the bands of controls would hide those of the main lines; their tips still say the interval
    x, y = scales
    shapes = []
    for run in _runs(s):
        edge = [(x(s.x[i]), y(s.high[i])) for i in run] + [(x(s.x[i]), y(s.low[i])) for i in reversed(run)]
        path = " ".join(f"{number(a)},{number(b)}" for a, b in edge)
        shapes.append(element("polygon", class_=f"band f{index % NUM_COLOURS}", points=path))
    return "".join(shapes)


def _whisker(x: float, low: float, high: float, class_: str) -> str:
    path = (
        "".join(f"M{number(x - dx)} {number(at)}H{number(x + dx)}" for at, dx in ((low, 4.0), (high, 4.0)))
        + f"M{number(x)} {number(low)}V{number(high)}"
    )
    return element("path", class_=class_, d=path)


def _whiskers(s: Series, index: int, scales: tuple[Scale, Scale]) -> str:
    if s.low is None or s.high is None:
        return ""
    x, y = scales
    class_ = f"whisker s{index % NUM_COLOURS}"
    return "".join(_whisker(x(s.x[i]), y(s.low[i]), y(s.high[i]), class_) for run in _runs(s) for i in run)


def _bar(chart: Bars, g: int, s: int, x: float, wide: float, y: Scale) -> str:
    value = chart.values[g][s]
    if not math.isfinite(value):
        return ""
    tip = f"{chart.groups[g]}, {chart.names[s]}: {value:.3g}"
    whisker = ""
    if chart.low is not None and chart.high is not None:
        tip += f" [{chart.low[g][s]:.3g}, {chart.high[g][s]:.3g}]"
        whisker = _whisker(x + wide / 2, y(chart.low[g][s]), y(chart.high[g][s]), "whisker ink")
    top, base = min(y(value), y(0.0)), max(y(value), y(0.0))
    box = element(
        "rect",
        element("title", text_of(tip)),
        class_=f"bar f{s % NUM_COLOURS}",
        x=x,
        y=top,
        width=max(wide - 2, 1.0),
        height=max(base - top, 0.5),
    )
    return box + whisker


# ---------------------------------------------------------------------------------------------- heat map


class _Matrix:
    """Where the cells and names of a heat map go: cells shrink from 56 to 16 pixels as the tasks become many."""

    def __init__(self, chart: HeatMap) -> None:
        self.chart = chart
        self.side = chart.cell or max(16.0, min(56.0, 720.0 / max(len(chart.columns), len(chart.rows), 1)))
        self.row_room = min(max((width_of(n) for n in chart.rows), default=0.0) + 34, 220.0)
        self.column_room = min(max((width_of(n) for n in chart.columns), default=0.0) + 14, 150.0)
        self.left, self.top = self.row_room + 10, 56 + 0.82 * self.column_room
        bottom = self.top + self.side * len(chart.rows)
        self.key_top = bottom + 16
        self.width = max(self.left + self.side * len(chart.columns) + self.column_room * 0.6 + 10, 300.0)
        self.height = self.key_top + 56
        finite = [abs(v) / _unit(chart, r) for r, row in enumerate(chart.values) for v in row if math.isfinite(v)]
        self.limit = chart.limit or max(finite, default=0.0) or 1.0
        self.mark_size = min(13.0, self.side * 0.62)

    def names(self) -> list[str]:
        chart, parts = self.chart, []
        size = min(13.0, self.side * 0.8)
        style = f"font-size:{number(size)}px"
        for r, name in enumerate(chart.rows):
            y = self.top + self.side * (r + 0.5) + size * 0.35
            words = shorten(name, self.row_room - 24, size)
            tip = element("title", text_of(name))
            parts.append(element("g", tip, label(self.left - 7, y, words, anchor="end", style=style)))
        for c, name in enumerate(chart.columns):
            x = self.left + self.side * (c + 0.5) + size * 0.2
            turn = f"rotate(-55 {number(x)} {number(self.top - 8)})"
            words = shorten(name, self.column_room, size)
            tip = element("title", text_of(name))
            parts.append(element("g", tip, label(x, self.top - 8, words, style=style, transform=turn)))
        middle = self.top + self.side * len(chart.rows) / 2
        parts.append(label(self.left, 44.0, f"{chart.column_title} →", class_="muted small"))
        turn = f"rotate(-90 14 {number(middle)})"
        parts.append(label(14.0, middle, f"← {chart.row_title}", anchor="middle", class_="muted small", transform=turn))
        return parts

    def key(self) -> str:
        parts, x = [], 10.0
        for share in (-1.0, -0.5, 0.0, 0.5, 1.0):
            parts.append(
                element(
                    "rect",
                    class_=_tint(share),
                    fill_opacity=_strength(share),
                    x=x,
                    y=self.key_top,
                    width=34.0,
                    height=13.0,
                )
            )
            if share in (-1.0, 0.0, 1.0):  # the ends and the middle: more would run into each other
                text = shown(float(f"{share * self.limit:.2g}"))
                parts.append(label(x + 17, self.key_top + 27, text, anchor="middle", class_="small muted"))
            x += 34
        words = f"{self.chart.better} (blue), {self.chart.worse} (orange)"
        parts.append(label(10.0, self.key_top + 46, words, class_="small muted"))
        self.width = max(self.width, 22 + width_of(words, 11.5))
        return element("g", *parts, aria_hidden="true")


def _tint(share: float) -> str:
    return "better" if share > 0 else "worse" if share < 0 else "none"


def _strength(share: float) -> float:
    """Opacity of a tint; stops at .7 so that a mark in the ink's colour stays readable on it."""
    return 0.35 if share == 0 else 0.06 + 0.64 * min(abs(share), 1.0)


def _told_cells(chart: HeatMap) -> list[tuple[int, int]]:
    """Cells that carry a sentence: all of them, or in a very large map the clearest (proved ones, then the largest)."""
    places = [(r, c) for r in range(len(chart.rows)) for c in range(len(chart.columns))]
    if len(places) <= MOST_CELLS:
        return places
    known = [(r, c) for r, c in places if math.isfinite(chart.values[r][c])]
    known.sort(key=lambda at: (_is_faint(chart, *at), -abs(chart.values[at[0]][at[1]]) / _unit(chart, at[0])))
    return sorted(known[:TOLD])


def _untold_cells(chart: HeatMap, layout: _Matrix, told: set[tuple[int, int]]) -> str:
    """The other cells as colour alone: one path a shade, on a grid of whole numbers."""
    shades: dict[tuple[str, float], list[str]] = {}
    for r, row in enumerate(chart.values):
        for c, value in enumerate(row):
            if (r, c) not in told and math.isfinite(value):
                shade = _tint(value), round(_shade(chart, layout, r, c), 1)
                shades.setdefault(shade, []).append(f"M{c} {r}h1v1h-1z")
    if not shades and len(told) == len(chart.rows) * len(chart.columns):
        return ""
    ground = element("rect", class_="none", fill_opacity=0.2, width=len(chart.columns), height=len(chart.rows))
    paths = [element("path", class_=tint, fill_opacity=deep, d="".join(d)) for (tint, deep), d in shades.items()]
    place = f"translate({number(layout.left)} {number(layout.top)}) scale({number(layout.side)})"
    return element("g", ground, *paths, transform=place)


def _unit(chart: HeatMap, row: int) -> float:
    return 1.0 if chart.units is None else chart.units[row]


def _is_faint(chart: HeatMap, r: int, c: int) -> bool:
    return chart.faint is not None and chart.faint[r][c]


def _shade(chart: HeatMap, layout: _Matrix, r: int, c: int) -> float:
    value = chart.values[r][c]
    share = value / _unit(chart, r) / layout.limit if math.isfinite(value) else 0.0
    return _strength(share) * (FAINT if _is_faint(chart, r, c) else 1.0)


def _cell(chart: HeatMap, layout: _Matrix, r: int, c: int, *, first: bool) -> str:
    value, mark = chart.values[r][c], chart.marks[r][c] if chart.marks is not None else ""
    known = math.isfinite(value)
    told = f"{value:+.3g}" if known else "no value"
    words = f"{chart.row_title} {chart.rows[r]}, {chart.column_title} {chart.columns[c]}: {told}"
    if chart.tips is not None and chart.tips[r][c]:
        words = chart.tips[r][c]
    x, y, side = layout.left + layout.side * c, layout.top + layout.side * r, layout.side
    box = {"x": x, "y": y, "width": side, "height": side}
    tint = _tint(value if known else 0.0)
    is_long = len(chart.rows) * len(chart.columns) <= MANY_CELLS
    return element(
        "g",
        element("title", text_of(words)),
        element("rect", class_=tint, fill_opacity=_shade(chart, layout, r, c), **box),
        element("rect", class_="edge", **box),
        _mark(mark, x + side / 2, y + side / 2, layout.mark_size),
        class_="cell",
        role="img",
        tabindex="0" if first else "-1" if is_long else None,
        aria_label=words if is_long else None,  # the title names the cell too: not twice in a large map
        data_row=r,
        data_column=c,
        data_value=repr(float(value)) if known else "",
    )


def _mark(mark: str, x: float, y: float, size: float) -> str:
    """A cell's text, in its middle, on as many lines as it has."""
    lines = mark.split("\n") if mark else []
    first = y + size * 0.36 - (len(lines) - 1) * size * 0.58
    return "".join(element("text", text_of(line), x=x, y=first + i * size * 1.16) for i, line in enumerate(lines))
