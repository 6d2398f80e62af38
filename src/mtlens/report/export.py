"""A study's page, and its tables and figures as files of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtlens.errors import FileError
from mtlens.report import page_charts as charts
from mtlens.report.answer import Verdicts
from mtlens.report.charts import draw
from mtlens.report.page import write_page
from mtlens.report.png import png
from mtlens.report.svg import printable, standalone
from mtlens.report.tables import tables
from mtlens.study.result import StudyResult, write_whole

TABLES, FIGURES = "tables", "figures"


@dataclass
class Written:
    """The files, and what was left out and why."""

    paths: list[Path] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def write_report(result: StudyResult, folder: str | Path, *, figures: bool = False) -> Written:
    """``report.html``; with ``figures`` also ``tables/*.csv, .md, .tex`` and ``figures/*.svg, .png``."""
    target = Path(folder)
    _make(target)
    written = Written([write_page(result, target)])
    if figures:
        _write_tables(result.verdicts, target / TABLES, written)
        _write_figures(result.verdicts, target / FIGURES, written)
    return written


def named_charts(verdicts: Verdicts) -> Iterator[tuple[str, Any]]:
    """Every figure of the page that this study has, by its file's name."""
    makers: dict[str, Callable[[Verdicts], Any]] = {
        "transfer": charts.transfer_map, "together": charts.together_chart, "gives": charts.left_out_chart,
        "capacity": charts.capacity_chart, "methods": charts.method_chart, "predicted": charts.predicted_chart,
        "advice": charts.advice_chart, "tried": charts.tried_chart,
        "official_test": charts.official_chart,
    }  # fmt: skip
    for name, make in makers.items():
        chart = make(verdicts)
        if chart is not None:
            yield name, chart


def _write_tables(verdicts: Verdicts, folder: Path, written: Written) -> None:
    _make(folder)
    for table in tables(verdicts):
        texts = {"csv": table.to_csv(), "md": table.to_markdown(), "tex": table.to_latex()}
        for ending, text in texts.items():
            written.paths.append(folder / f"{table.name}.{ending}")
            write_whole(written.paths[-1], printable(text))


def _write_figures(verdicts: Verdicts, folder: Path, written: Written) -> None:
    _make(folder)
    drawn = list(named_charts(verdicts))
    for name, chart in drawn:
        written.paths.append(folder / f"{name}.svg")
        write_whole(written.paths[-1], standalone(draw(chart)))
    try:
        pictures = [(folder / f"{name}.png", png(chart)) for name, chart in drawn]
    except ImportError as error:
        written.said.append(f"no PNG files: {error}")
        return
    for path, picture in pictures:
        path.write_bytes(picture)
        written.paths.append(path)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make the folder {folder}: {error.strerror}. Use another --out.") from error
