"""``mtlens report``: a run's page, tables and figures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    out: Annotated[Path | None, typer.Option(help="Where to write; the run's own folder by default.")] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also every table (CSV, Markdown, LaTeX) and figure (SVG, PNG).")
    ] = False,
) -> None:
    """Write a study's page, report.html, again; with --figures also its tables and figures as files.

    Prints the path of every file. PNG needs matplotlib (the 'figures' extra).

    Example: mtlens report example-study
    """
    from mtlens.report.export import write_report
    from mtlens.study.result import StudyResult

    written = write_report(StudyResult.open(run), out or run, figures=figures)
    for path in written.paths:
        sys.stdout.write(f"{path}\n")
    for line in written.said:
        sys.stderr.write(f"{line}\n")
