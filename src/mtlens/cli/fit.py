"""``mtlens fit``: the advised system, trained on all rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def fit(
    source: Annotated[
        str,
        typer.Argument(help="The folder of a study, a SPEC (.toml), a data file, or an example.", metavar="RUN|SPEC"),
    ] = "example",
    out: Annotated[
        Path | None, typer.Option(help="The model's folder; SOURCE's name with '-model' by default.")
    ] = None,
    targets: Annotated[
        str | None, typer.Option(help="Label columns of a data file, or the tasks to keep: a,b.", metavar="A,B")
    ] = None,
    missing: Annotated[
        str | None, typer.Option(help="A label value of a data file that means: no label, such as -1.")
    ] = None,
    advice: Annotated[Path | None, typer.Option(help="An advice.toml (or a study's folder) to build instead.")] = None,
    data: Annotated[str | None, typer.Option(help="The study's data, if they have moved: a SPEC or data file.")] = None,
    family: Annotated[
        str | None, typer.Option(help="Without advice: linear, trunk, or best of both (the default).")
    ] = None,
    advise: Annotated[
        bool, typer.Option("--advise", help="Without a study: find out now, on held-out rows, what to join.")
    ] = False,
    max_models: Annotated[
        int | None, typer.Option(help="With --advise: train tasks together in at most this many groups.", min=1)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of folds and networks.", min=0)] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    workers: Annotated[int | None, typer.Option(help="Worker processes; one a core by default.", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was built as JSON (docs/json.md).")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")] = False,
) -> None:
    """Train the advised system on all rows and save it.

    From a study's folder it builds that study's advice.toml; from a SPEC or data file, every task by itself, or with
    --advise what held-out rows recommend. Ridge, capacity, learning rate and epochs are chosen on held-out rows; scores
    shown are of held-out rows, too.

    Example: mtlens fit example --family linear --out model
    """
    from mtlens.cli.fit_options import advised, checked_family, model_folder, refuse_limit, refuse_run
    from mtlens.models import fit as run
    from mtlens.models.card import summary_of, summary_table
    from mtlens.models.store import check_place
    from mtlens.tasks.readers import read_tasks

    say = None if quiet else _say
    folder = model_folder(source, out)
    check_place(folder)
    tasks = None if data is None else read_tasks(data, targets=targets, missing=missing)
    chosen: Any = advice
    if advise:
        refuse_run(source)
        tasks = tasks or read_tasks(source, targets=targets, missing=missing)
        options: dict[str, Any] = {"seed": seed, "device": device, "workers": workers, "progress": say}
        chosen = advised(tasks, advice, family=family, max_models=max_models, **options)
    else:
        refuse_limit(max_models)
    model = run(
        source if tasks is None or Path(source).is_dir() else tasks, advice=chosen, tasks=tasks,
        targets=None if tasks else targets, missing=missing, family=None if advise else checked_family(family),
        seed=None if advise else seed, device=device, workers=workers, progress=say,
    )  # fmt: skip
    model.save(folder)
    summary = {"model": str(folder), **summary_of(model)}
    sys.stdout.write(json.dumps(summary, indent=1, ensure_ascii=False) + "\n" if as_json else summary_table(model))
    if not quiet:
        _say(f"Written to {folder} (its card is {folder / 'MODEL.md'}). Predict with: mtlens predict {folder} FILE")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
