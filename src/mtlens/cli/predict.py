"""``mtlens predict``: predictions for the rows of a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, cast

import typer


def predict(
    model: Annotated[Path, typer.Argument(help="The folder that 'mtlens fit' wrote.")],
    file: Annotated[Path, typer.Argument(help="Rows: .csv, .tsv, .parquet, .npz or .jsonl, each also .gz.")],
    out: Annotated[Path | None, typer.Option(help="The file to write; standard output by default.")] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="csv, jsonl or parquet; by default as --out is called, else csv.")
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only this task; may be given several times.")] = None,
    ids: Annotated[
        str | None,
        typer.Option("--id", help="The column that names rows; by default id or the only ..._id, else a count."),
    ] = None,
    level: Annotated[float, typer.Option(help="Share of new labels that intervals should hold.")] = 0.9,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes.")] = False,
) -> None:
    """Predict every row of a file: values with intervals, classes with probabilities, with the rows' ids.

    Columns are matched by name, in any order; labels are not needed and further columns are ignored. The file is read
    in blocks, so it may be larger than memory.

    Example: mtlens predict model rows.csv --out predictions.csv
    """
    from mtlens.models.prediction import Format, predict_file
    from mtlens.models.store import load_model

    done = predict_file(
        load_model(model), file, out, tasks=task, format=cast("Format | None", form), ids=ids, level=level
    )
    if quiet:
        return
    for line in done.notes:
        sys.stderr.write(f"note: {line}\n")
    sys.stderr.write(f"{done.rows} rows predicted{f', written to {out}' if out else ''}\n")
