"""``mtlens plan``: what a study would run and cost."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mtlens.cli import study_options as o
from mtlens.cli.study import show_plan


def plan(
    spec: o.Spec = "example",
    targets: o.Targets = None,
    missing: o.Missing = None,
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
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON (docs/json.md).")] = False,
) -> None:
    """Say what a study would train, the grid of both sides, how long it takes here, and the disk it needs.

    Example: mtlens plan example --budget 300
    """
    from mtlens.study import Study
    from mtlens.tasks.readers import read_tasks

    chosen = o.choices_of(
        budget=budget, splits=splits, seed=seed, trunk=trunk, capacities=capacities, learning_rates=lr, epochs=epochs,
        families=families, methods=methods, pairs=pairs, margin=margin, small=small, max_models=max_models,
    )  # fmt: skip
    tasks = read_tasks(spec, targets=targets, missing=missing)
    asked = Study(tasks, device=device or tasks.settings.get("device") or "cpu", workers=workers, **chosen)
    for line in asked.said:
        sys.stderr.write(line + "\n")
    show_plan(asked.plan(), as_json=as_json)
