"""The official test set, touched once, at the end: paired bootstrap over its rows or groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.study.plan import OFFICIAL, Unit, alone_units, pair_units, together_units
from mtlens.study.statistics import Comparison, benjamini_hochberg, judge, paired_bootstrap
from mtlens.tasks import Task
from mtlens.tasks.metrics import metric_of
from mtlens.tasks.splits import units as units_of

if TYPE_CHECKING:
    from mtlens.study.run import Run

MOST_PAIRS = 20  # decided pairs that are compared on the official test rows


def official_test(run: Run) -> dict[str, Any] | None:
    """Joint minus alone on the official test rows, for all tasks together and for the pairs with a verdict.

    Train and valid rows are the official ones; every choice is made on valid rows. None when the budget is spent.
    """
    pairs = _decided_pairs(run) if len(run.cells.together) > 2 else []  # of two tasks, all together is the pair
    plain = run.settings.but(methods=(), methods_on="all")
    units: list[Unit] = alone_units(run.names, [OFFICIAL], plain)
    units += together_units(run.cells, "plain", [OFFICIAL], plain)
    units += [unit for pair in pairs for unit in pair_units(pair, [OFFICIAL], plain)]
    if not run.allowance.take(units):
        run.said.append("the budget left nothing for the official test set; it was not touched.")
        return None
    run.execute(units)
    cells = [_compared(run, name, run.cells.together) for name in run.names if run.cells.together]
    for a, b in pairs:
        cells += [_compared(run, a, (a, b)), _compared(run, b, (a, b))]
    known = [(plain, c) for plain, c in (cell for cell in cells if cell is not None)]
    adjusted = benjamini_hochberg([float(c.p) for _, c in known]) if known else np.empty(0)
    rows = []
    for (described, c), p in zip(known, adjusted.tolist(), strict=True):
        verdict = judge(c, p, run.judge.margins[described["target"]]).item()
        numbers = {what: _finite(getattr(c, what)) for what in ("difference", "low", "high", "p")}
        rows.append(described | numbers | {"p_adjusted": float(p), "verdict": verdict})
    return {"cells": rows, "estimand": "these trained models on new rows like the official test rows"}


def _decided_pairs(run: Run) -> list[tuple[str, str]]:
    order = {frozenset(pair): pair for pair in run.cells.pairs}
    decided = [c for c in run.tables.pairs if c.verdict in ("helps", "hurts")]
    decided.sort(key=lambda c: c.p_adjusted)
    return list(dict.fromkeys(order[frozenset((c.target, c.source))] for c in decided))[:MOST_PAIRS]


def _compared(run: Run, target: str, members: tuple[str, ...]) -> tuple[dict[str, Any], Comparison] | None:
    evidence = run.evidence
    family = evidence.family(target, OFFICIAL, run.families)
    if family is None:
        return None
    joint, alone = (evidence.predictions(family, names, target, OFFICIAL) for names in (members, (target,)))
    if joint is None or alone is None:
        return None
    tasks = run.splitter.split(OFFICIAL)
    task = tasks[target]
    rows = task.rows_of("test")
    groups = units_of(tasks)[list(tasks.names).index(target)][rows]
    together = groups if len(np.unique(groups)) < len(rows) else None
    compared = paired_bootstrap(
        _difference(task, rows, joint, alone), len(rows), groups=together, seed=run.settings.seed
    )  # fmt: skip
    sources = [name for name in members if name != target]
    return {"target": target, "sources": sources, "rows": len(rows), "family": family}, compared


def _difference(task: Task, rows: Array, joint: FloatArray, alone: FloatArray) -> Any:
    metric, y = metric_of(task), task.y[rows]
    weight = None if task.weight is None else task.weight[rows]
    classes = task.num_classes if task.kind == "multiclass" else 0

    def difference(drawn: Array) -> FloatArray:
        w = None if weight is None else weight[drawn]
        mine, theirs = (metric.oriented(y[drawn], p[drawn], w, classes=classes) for p in (joint, alone))
        return np.asarray(mine - theirs, np.float64)

    return difference


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
