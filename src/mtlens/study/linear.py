"""The linear family: tuned ridge alone against joint ridge, from the closed-form core of ``theory``.

On every outer split the core sees train and valid rows only and chooses ridge and source weight by inner folds over
them; the chosen model is fitted on both and scored on the split's test rows. Both sides try equally many
configurations: joint fits every ridge with every source weight, alone as many ridges over the same range.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.study.plan import Unit
from mtlens.tasks import Task, TaskSet
from mtlens.tasks.metrics import score
from mtlens.theory.transfer import RIDGES, WEIGHTS, LinearProblem, LinearTransfer

INNER_FOLDS = 5
WIDE = 512  # columns from which on one inner fold, the valid rows, replaces five
TOO_WIDE = 4096  # a d x d moment matrix a fold and task is kept
ALONE_RIDGES = tuple(np.geomspace(min(RIDGES), max(RIDGES), len(RIDGES) * len(WEIGHTS)).tolist())


def can_fit(tasks: TaskSet) -> bool:
    """Whether the linear family applies: rows of numbers, one width, moments that fit in memory."""
    shapes = {task.X.shape[1:] if isinstance(task.X, np.ndarray) else () for task in tasks}
    return len(shapes) == 1 and len(next(iter(shapes))) == 1 and next(iter(shapes))[0] <= TOO_WIDE


class LinearSplit:
    """The core of one outer split and everything scored with it."""

    def __init__(self, tasks: TaskSet, *, seed: int = 0) -> None:
        self.tasks = tasks
        self.joint = core_of(tasks, seed=seed)
        self.alone = core_of(tasks, seed=seed, ridges=ALONE_RIDGES)

    def run(self, units: Sequence[Unit]) -> list[dict[str, Any]]:
        return [self.one(unit) for unit in units]

    def one(self, unit: Unit) -> dict[str, Any]:
        """Scores of one fit: the target's test rows, and its valid rows when alone (that chooses the family)."""
        began = time.perf_counter()
        target, sources = unit.tasks[0], unit.tasks[1:]
        task = self.tasks[target]
        model = (self.joint if sources else self.alone).fit(target, sources)
        test = task.rows_of("test")
        predicted = model.predict(np.asarray(task.X)[test])
        scores = {"test": {target: score_of(task, test, predicted)}}
        if not sources:
            scores["valid"] = {target: self._valid(task)}
        found: dict[str, Any] = {"scores": scores, "settings": dict(model.settings)}
        if unit.split < 0:
            found["predictions"] = {target: predicted.tolist()}
        return found | {"seconds": time.perf_counter() - began, "reason": ""}

    def _valid(self, task: Task) -> float:
        """The tuned ridge's out-of-fold score on the valid rows: comparable with a network's validation score."""
        guesses = self.alone.out_of_fold(task.name)
        seen = seen_rows(task)
        rows = task.rows_of("valid")
        place = np.searchsorted(seen, rows)
        return score_of(task, rows, guesses[place])


def core_of(tasks: TaskSet, *, seed: int = 0, ridges: Sequence[float] | None = None) -> LinearTransfer:
    """The core over everything but test rows. Wide inputs use their valid rows as the only inner fold."""
    inputs: dict[tuple[int, bytes], Array] = {}
    problems, folds = [], []
    for task in tasks:
        rows = seen_rows(task)
        key = (id(task.X), rows.tobytes())
        if key not in inputs:
            inputs[key] = np.asarray(task.X, np.float64)[rows]  # one object for tasks that share inputs
        problems.append(_problem(task, inputs[key], rows))
        parts = np.full(len(rows), -1) if task.split is None else np.where(task.split[rows] == "valid", 0, -1)
        folds.append(parts)
    wide = problems[0].X.shape[1] > WIDE
    fewest = min(int(problem.labelled.sum()) for problem in problems)
    return LinearTransfer(problems, folds=folds if wide else min(INNER_FOLDS, fewest), seed=seed, ridges=ridges)


def seen_rows(task: Task) -> Array:
    """Rows that are not test rows, labelled or not, in order."""
    if task.split is None:
        return np.arange(task.num_rows)
    return np.flatnonzero((task.split == "train") | (task.split == "valid"))


def _problem(task: Task, X: Array, rows: Array) -> LinearProblem:
    weight = None if task.weight is None else task.weight[rows]
    group = None if task.group is None else task.group[rows]
    classes = task.num_classes if task.kind == "multiclass" else 0
    return LinearProblem(task.name, X, task.y[rows], task.kind, weight, group, classes)


def score_of(task: Task, rows: Array, prediction: FloatArray) -> float:
    """The task's metric on some rows, higher is better; NaN when it is undefined there (one class only)."""
    weight = None if task.weight is None else task.weight[rows]
    return float(score(task.metric, task.y[rows], prediction, weight, classes=task.num_classes))
