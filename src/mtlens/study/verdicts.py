"""The content of ``verdicts.json``, from a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from mtlens.study.causes import find_causes
from mtlens.study.cells import Cell
from mtlens.study.curves import capacity_curves, capacity_summary, method_table
from mtlens.study.official import official_test
from mtlens.study.plan import count_trainings
from mtlens.study.result import FORMAT, plain_json
from mtlens.study.run import Run
from mtlens.study.statistics import compare_splits, judge
from mtlens.study.texts import changed_texts


def verdicts_of(run: Run, said: list[str], *, official: bool) -> dict[str, Any]:
    """Everything a study found, as JSON. Only ``cost`` depends on the machine.

    The causes of harm, the official test set and example texts are made here, after the verdicts and not after an
    interruption.
    """
    causes, tested, texts = _afterwards(run, official=official)
    run.said += run.failures_told()
    names = run.names
    ratio, balanced = run.judge.ratio, run.judge.balanced
    members = run.cells.together or names
    curves = capacity_curves(run.evidence, members, run.settings, ratio, balanced=balanced)
    verdicts: dict[str, Any] = {
        "format": FORMAT,
        "complete": not run.interrupted,
        "tasks": [task_facts(run, name) for name in names],
        "transfer": transfer(run),
        "together": [cell.as_dict() for cell in run.tables.together],
        "pooled": pooled(run),
        "leave_one_out": [cell.as_dict() for cell in run.tables.left_out],
        "capacity": {"curves": curves, "summary": capacity_summary(curves)},
        "methods": method_table(run.evidence, members, run.settings, ratio, balanced=balanced),
        "groups": None,
        "advice": None,
        "causes": causes,
        "official_test": tested,
        "texts": texts,
        "screening": run.screening.as_dict(),
        "settings": run.settings.describe(),
        "said": [*said, *run.said],
        "cost": cost(run),
    }
    return {name: plain_json(found) for name, found in verdicts.items()}


def _afterwards(
    run: Run, *, official: bool
) -> tuple[list[dict[str, Any]], dict[str, Any] | None, list[dict[str, Any]]]:
    causes: list[dict[str, Any]] = []
    texts: list[dict[str, Any]] = []
    tested = None
    try:
        if not run.is_over:
            causes = find_causes(run)
        if official and not run.is_over:
            tested = official_test(run)
        if not run.is_over:
            texts = changed_texts(run)
    except KeyboardInterrupt:
        run.interrupted = True
    return causes, tested, texts


def task_facts(run: Run, name: str) -> dict[str, Any]:
    task = run.tasks[name]
    return {
        "name": name, "kind": task.kind, "metric": task.metric, "rows": int(task.labelled.sum()),
        "split": run.splitter.sizes[name], "classes": [str(c) for c in task.classes], "margin": run.judge.margins[name],
    }  # fmt: skip


def transfer(run: Run) -> list[dict[str, Any]]:
    """Every ordered pair, and on the diagonal the alone score, target by target.

    ``predicted`` is the transfer between linear models that screening predicted (R2 or Brier skill).
    """
    by_pair = {(cell.target, cell.source): cell for cell in run.tables.pairs}
    found = []
    for target in run.names:
        for source in run.names:
            if source == target:
                found.append(alone_cell(run, target) | {"predicted": None} | _alone_by_family(run, target))
            else:
                predicted = run.screening.predicted.get((target, source))
                cell = by_pair[target, source]
                found.append(cell.as_dict() | {"score": None, "predicted": predicted} | _by_family(run, cell))
    return found


def _by_family(run: Run, cell: Cell) -> dict[str, Any]:
    """A measured cell by either family, whichever validation preferred; no verdict, only the numbers."""
    found: dict[str, Any] = {}
    splits = range(run.settings.looks[-1])
    for family in run.families if cell.n else ():
        pair = (cell.target, cell.source)
        values, _ = run.evidence.differences(cell.target, pair, splits, families=(family,))
        found |= {family: _numbers(run, cell.target, values, "difference")} if len(values) else {}
    return {"by_family": found}


def _alone_by_family(run: Run, target: str) -> dict[str, Any]:
    """The tuned single-task score of each family."""
    scores = {family: _alone_scores(run, target, (family,))[0] for family in run.families}
    return {"by_family": {f: _numbers(run, target, values, "score") for f, values in scores.items() if values}}


def _numbers(run: Run, target: str, values: Any, name: str) -> dict[str, Any]:
    c = compare_splits(values, run.judge.ratio(target), balanced=run.judge.balanced)
    numbers = {name: float(c.difference), "low": float(c.low), "high": float(c.high)}
    return {what: v if np.isfinite(v) else None for what, v in numbers.items()} | {"n": c.n}


def pooled(run: Run) -> dict[str, Any]:
    """Differences averaged over targets, split by split: what single cells with few rows cannot show together they can.

    ``together``: all tasks together minus alone, over all targets; ``pairs``: over all measured ordered pairs.
    """
    found: dict[str, Any] = {}
    for name, cells in (("together", run.tables.together), ("pairs", run.tables.pairs)):
        measured = [cell for cell in cells if cell.n]
        one_unit = len({run.tasks[cell.target].metric for cell in measured}) == 1
        n = min((cell.n for cell in measured), default=0) if one_unit else 0  # a mean needs one metric
        entry: dict[str, Any] = {"cells": len(measured), "n": n}
        numbers: dict[str, Any] = dict.fromkeys(("difference", "low", "high", "p"))
        verdict = "undecided"
        if n >= 2:
            ratio = float(np.mean([run.judge.ratio(cell.target) for cell in measured]))
            mean = np.mean([cell.differences[:n] for cell in measured], axis=0)
            c = compare_splits(mean, ratio, balanced=run.judge.balanced)
            numbers = {what: float(getattr(c, what)) for what in numbers}
            verdict = judge(c, c.p, float(np.mean([cell.margin for cell in measured]))).item()
        found[name] = entry | numbers | {"verdict": verdict}
    return found


def alone_cell(run: Run, target: str) -> dict[str, Any]:
    """The diagonal: the tuned single-task score (of the family validation prefers), no difference."""
    scores, families = _alone_scores(run, target, run.families)
    cell = Cell(target, target, np.empty(0), families).as_dict()
    cell |= {"n": len(scores), "p": None, "p_adjusted": None, "verdict": None, "runs_needed": None, "score": None}
    return cell | (_numbers(run, target, scores, "score") if scores else {})


def _alone_scores(run: Run, target: str, families: tuple[str, ...]) -> tuple[list[float], list[str]]:
    """Test scores of the splits finished from the first one on, each of the family validation prefers."""
    scores, used = [], []
    for split in range(run.settings.looks[-1]):
        family = run.evidence.family(target, split, families)
        choice = run.evidence.alone(family, target, split) if family else None
        if family is None or choice is None:
            break
        scores.append(choice.test)
        used.append(family)
    return scores, used


def cost(run: Run) -> dict[str, Any]:
    """What it took. ``reused`` trainings were in the ledger already."""
    networks = count_trainings(run.units)
    return {
        "trainings": networks, "linear_fits": len(run.units) - networks, "reused": run.reused,
        "failed": run.failed, "seconds": round(run.seconds, 3),
        "training_seconds": round(run.training_seconds, 3),
    }  # fmt: skip
