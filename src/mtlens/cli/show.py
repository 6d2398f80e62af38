"""``mtlens show``: a run's results again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def show(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    why: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Explain one cell: the target and the source.", metavar="TARGET SOURCE"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print verdicts.json, or with --why that cell (docs/json.md).")
    ] = False,
) -> None:
    """Show a finished (or interrupted) study again, or explain one of its cells.

    Example: mtlens show example-study
    """
    from mtlens.report.answer import answer_text
    from mtlens.study.result import StudyResult

    result = StudyResult.open(run)
    if why is not None:
        sys.stdout.write(json.dumps(result.known(*why), indent=1) if as_json else result.why(*why))
        sys.stdout.write("\n")
        return
    sys.stdout.write(result.to_json() if as_json else answer_text(result))
