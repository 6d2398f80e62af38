"""``mtlens study``: measured transfer."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from mtlens.cli import study_options as o
from mtlens.cli.said import command_said


def study(
    context: typer.Context,
    spec: o.Spec = "example",
    targets: o.Targets = None,
    missing: o.Missing = None,
    out: o.Out = None,
    budget: o.Budget = None,
    splits: o.Splits = None,
    seed: o.Seed = None,
    device: o.Device = None,
    trunk: o.Trunk = None,
    capacities: o.Capacities = None,
    lr: o.Rates = None,
    epochs: o.Epochs = None,
    families: o.Families = None,
    methods: o.Methods = None,
    pairs: o.Pairs = None,
    margin: o.Margin = None,
    small: o.Small = None,
    max_models: o.MaxModels = None,
    workers: o.Workers = None,
    executor: o.Kind = "local",
    ledger: o.SharedLedger = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would run, as 'mtlens plan'.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print verdicts.json (docs/json.md).")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")] = False,
    fail_if_hurts: Annotated[
        bool, typer.Option("--fail-if-hurts", help="Exit 1 if anything is proved to hurt.")
    ] = False,
) -> None:
    """Measure which tasks help or hurt each other when they are trained together, with error bars.

    The same command goes on where it stopped; Ctrl-C ends with what is known by then. Results: a table here, and in the
    run's folder report.html, verdicts.json, transfer.csv, plan.json and ledger.sqlite.

    Example: mtlens study example --budget 300
    """
    from mtlens.report.answer import answer_text
    from mtlens.report.made import note_made
    from mtlens.report.page import write_page
    from mtlens.report.progress import progress_bar
    from mtlens.study import Study
    from mtlens.tasks.readers import read_tasks

    tasks = read_tasks(spec, targets=targets, missing=missing)
    chosen = o.choices_of(
        budget=budget, splits=splits, seed=seed, trunk=trunk, capacities=capacities, learning_rates=lr, epochs=epochs,
        families=families, methods=methods, pairs=pairs, margin=margin, small=small, max_models=max_models,
    )  # fmt: skip
    written = tasks.settings
    folder = o.folder_of(spec, out or written.get("out"))
    with progress_bar(quiet=quiet) as bar:
        asked = Study(
            tasks, folder, ledger=ledger, device=device or written.get("device") or "cpu", workers=workers,
            executor=executor, progress=bar, **chosen,
        )  # fmt: skip
        _say([] if quiet else asked.said)
        if dry_run:
            show_plan(asked.plan(), as_json=as_json)
            return
        result = asked.run()
    note_made(folder, command_said(context))
    page = write_page(result)
    sys.stdout.write(result.to_json() if as_json else answer_text(result))
    _say([] if quiet else [f"The page: {page}. Look again: mtlens show {folder}"])
    if not result.verdicts["complete"]:
        raise typer.Exit(130)
    if fail_if_hurts and result.hurts:
        raise typer.Exit(1)


def show_plan(plan: dict[str, Any], *, as_json: bool) -> None:
    """Print a plan, for a program or a person."""
    from mtlens.report.plan import plan_text

    sys.stdout.write(json.dumps(plan, indent=1, ensure_ascii=False) + "\n" if as_json else plan_text(plan))


def _say(lines: list[str]) -> None:
    for line in lines:
        sys.stderr.write(line + "\n")
