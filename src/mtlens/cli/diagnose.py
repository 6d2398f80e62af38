"""``mtlens diagnose``: what data alone say about training tasks together."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def diagnose(
    spec: Annotated[
        str, typer.Argument(help="A SPEC (.toml), a data file (.npz, .csv, .tsv, .parquet, or .gz), or an example.")
    ] = "example",
    targets: Annotated[
        str | None, typer.Option(help="Label columns of a data file, or the tasks to keep: a,b.", metavar="A,B")
    ] = None,
    missing: Annotated[
        str | None, typer.Option(help="A label value of a data file that means: no label, such as -1.")
    ] = None,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.", min=2)] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the folds.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the diagnosis as JSON (docs/json.md).")] = False,
) -> None:
    """Predict in seconds which tasks help or hurt each other, before any training.

    Predictions come from linear models on the tasks' inputs, cross-validated; they cannot see what only a network could
    use. Measure with 'mtlens study' before you rely on them.

    Example: mtlens diagnose example
    """
    from mtlens.diagnosis import diagnose as run
    from mtlens.report.diagnosis import diagnosis_text
    from mtlens.tasks.readers import read_tasks

    tasks = read_tasks(spec, targets=targets, missing=missing)
    diagnosis = run(tasks, folds=folds, seed=seed, progress=_say if sys.stderr.isatty() else None)
    sys.stdout.write(diagnosis.to_json() + "\n" if as_json else diagnosis_text(diagnosis, colour=sys.stdout.isatty()))


def _say(what: str) -> None:
    sys.stderr.write(f"{what} ...\n")
