"""Charts as PNG through matplotlib (the ``figures`` extra): the SVG's data, for documents that need pixels."""

from __future__ import annotations

import io
import warnings
from functools import singledispatch
from typing import Any

import numpy as np

from mtlens.errors import missing_extra
from mtlens.report.charts import Bars, Chart, HeatMap, LineChart, Scatter, Series
from mtlens.report.forest import Forest
from mtlens.report.svg import LIGHT_COLOURS

MARKERS = "os^D"


def png(chart: Chart | Forest, *, dpi: int = 150) -> bytes:
    """A chart as PNG bytes on white, at ``dpi`` pixels an inch (100 chart units are an inch)."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("PNG figures", "figures") from None
    figure = Figure(figsize=_inches(chart), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(_plain(chart.title), loc="left", fontsize=11)
    _paint(chart, axes)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a script the font lacks shows as boxes
        figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def _inches(chart: Chart | Forest) -> tuple[float, float]:
    if isinstance(chart, HeatMap):
        side = max(6.0, 0.22 * len(chart.rows))
        return side, side * 0.87
    return chart.width / 100, chart.height / 100


def _plain(words: str) -> str:
    """Text that matplotlib shows as it is: a dollar sign would start mathematics."""
    return words.replace("$", r"\$")


@singledispatch
def _paint(chart: Any, axes: Any) -> None:
    raise TypeError(f"png: no drawing for {type(chart).__name__}.")


@_paint.register
def _(chart: LineChart, axes: Any) -> None:
    for i, series in enumerate(chart.series):
        _line(series, i, axes, bars=chart.error_bars)
    if chart.x_log:
        axes.set_xscale("log")
    if chart.x_ticks is not None:
        axes.set_xticks(list(chart.x_ticks), [f"{tick:g}" for tick in chart.x_ticks])
        axes.minorticks_off()
    if chart.y_range is not None:
        axes.set_ylim(*chart.y_range)
    _dress(axes, chart.x_label, chart.y_label, chart.reference, len(chart.series))


@_paint.register
def _(chart: Scatter, axes: Any) -> None:
    for i, series in enumerate(chart.series):
        axes.plot(series.x, series.y, MARKERS[i % 4], ms=4, color=_colour(i), label=_plain(series.name))
    if chart.diagonal:
        axes.axline((0, 0), slope=1, color="0.6", lw=1)
    _dress(axes, chart.x_label, chart.y_label, chart.reference, len(chart.series))


@_paint.register
def _(chart: Bars, axes: Any) -> None:
    wide = 0.8 / max(len(chart.names), 1)
    values = np.array(chart.values, dtype=np.float64)
    for i, name in enumerate(chart.names):
        at = np.arange(len(chart.groups)) + wide * (i - (len(chart.names) - 1) / 2)
        reach = None
        if chart.low is not None and chart.high is not None:
            low, high = np.array(chart.low)[:, i], np.array(chart.high)[:, i]
            reach = np.stack([values[:, i] - low, high - values[:, i]])
        axes.bar(at, values[:, i], wide * 0.92, yerr=reach, color=_colour(i), label=_plain(name), capsize=3)
    axes.set_xticks(range(len(chart.groups)), [_plain(group) for group in chart.groups])
    _dress(axes, "", chart.y_label, 0.0, len(chart.names))


@_paint.register
def _(chart: HeatMap, axes: Any) -> None:
    values = np.array(chart.values, dtype=np.float64)
    if chart.units is not None:
        values /= np.array(chart.units)[:, None]
    finite = np.abs(values[np.isfinite(values)])
    limit = chart.limit or (float(finite.max()) if finite.size else 1.0) or 1.0
    image = axes.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit)
    axes.set_xticks(range(len(chart.columns)), [_plain(n) for n in chart.columns], rotation=55, ha="right")
    axes.set_yticks(range(len(chart.rows)), [_plain(n) for n in chart.rows])
    for r, row in enumerate(chart.marks or ()):
        for c, mark in enumerate(row):
            axes.text(c, r, _plain(mark), ha="center", va="center")
    axes.set_xlabel(chart.column_title)
    axes.set_ylabel(chart.row_title)
    axes.figure.colorbar(image, ax=axes, shrink=0.8)


@_paint.register
def _(chart: Forest, axes: Any) -> None:
    for place, row in enumerate(chart.rows):
        colour = _colour({"better": 0, "worse": 1}.get(row.tone, 7))
        axes.hlines(place, row.low, row.high, color=colour, lw=1.4)
        axes.plot([row.value], [place], "o", ms=4, color=colour)
        axes.annotate(_plain(row.note), (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=7)
    axes.set_yticks(range(len(chart.rows)), [_plain(row.name) for row in chart.rows], fontsize=8)
    axes.set_ylim(len(chart.rows) - 0.5, -0.5)
    if chart.margin:
        axes.axvspan(-chart.margin, chart.margin, color="0.92", zorder=0)
    if chart.reference is not None:
        axes.axvline(chart.reference, color="0.4", lw=1)
    axes.set_xlabel(_plain(chart.x_label))
    axes.spines[["top", "right"]].set_visible(False)


def _line(series: Series, index: int, axes: Any, *, bars: bool) -> None:
    style: dict[str, Any] = {"color": _colour(index), "label": _plain(series.name)}
    style |= {"lw": 1, "ls": ":", "marker": "."} if series.muted else {"lw": 2, "marker": MARKERS[index % 4], "ms": 5}
    axes.plot(series.x, series.y, **style)
    if series.low is None or series.high is None or series.muted:
        return
    if bars:
        axes.vlines(series.x, series.low, series.high, color=_colour(index), lw=1.2)
    else:
        axes.fill_between(series.x, series.low, series.high, color=_colour(index), alpha=0.16, lw=0)


def _dress(axes: Any, x_label: str, y_label: str, reference: float | None, count: int) -> None:
    axes.set_xlabel(_plain(x_label))
    axes.set_ylabel(_plain(y_label))
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if reference is not None:
        axes.axhline(reference, color="0.4", lw=1)
    if count > 1:
        axes.legend(fontsize=8, frameon=False)


def _colour(index: int) -> str:
    return LIGHT_COLOURS[index % len(LIGHT_COLOURS)]
