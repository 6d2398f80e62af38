"""The linear family: tuned ridge alone against joint ridge, from the closed-form core of ``theory``.

On every outer split the core sees train and valid rows only and chooses ridge and source weight by inner folds over
them; the chosen model is fitted on both and scored on the split's test rows. Both sides try equally many
configurations: joint fits every ridge with every source weight, alone as many ridges over the same range. (Wide inputs:
both fit those many ridges, at source weight 1, so that they share one set of moments.)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.models.ridge import ALONE_RIDGES, TOO_WIDE, WIDE, core_of, seen_rows
from mtlens.study.contrasts import LINEAR_CONTRASTS, REWEIGHTED, SOURCE_WEIGHT, with_changed_sources
from mtlens.study.plan import Unit
from mtlens.tasks import Task, TaskSet
from mtlens.tasks.metrics import score
from mtlens.theory.transfer import WEIGHTS, LinearTransfer


def can_fit(tasks: TaskSet) -> bool:
    """Whether the linear family applies: rows of numbers, one width, moments that fit in memory."""
    shapes = {task.X.shape[1:] if isinstance(task.X, np.ndarray) else () for task in tasks}
    return len(shapes) == 1 and len(next(iter(shapes))) == 1 and next(iter(shapes))[0] <= TOO_WIDE


def is_wide(tasks: TaskSet) -> bool:
    """Whether moments are so large that alone and joint must share them."""
    return int(np.asarray(tasks[0].X).shape[-1]) > WIDE


class LinearSplit:
    """The core of one outer split and everything scored with it."""

    def __init__(self, tasks: TaskSet, *, seed: int = 0) -> None:
        self.tasks, self.seed = tasks, seed
        if is_wide(tasks):  # one set of moments and eigenbases: every ridge of alone, at source weight 1
            self.joint = self.alone = core_of(tasks, seed=seed, ridges=ALONE_RIDGES, weights=(1.0,))
        else:
            self.joint, self.alone = core_of(tasks, seed=seed), core_of(tasks, seed=seed, ridges=ALONE_RIDGES)

    def run(self, units: Sequence[Unit]) -> list[dict[str, Any]]:
        return [self.one(unit) for unit in units]

    def one(self, unit: Unit) -> dict[str, Any]:
        """Scores of one fit: the target's test rows, and its valid rows when alone (that chooses the family)."""
        began = time.perf_counter()
        target, sources = unit.tasks[0], unit.tasks[1:]
        task = self.tasks[target]
        core = self._varied(unit) if unit.method in LINEAR_CONTRASTS else self.joint if sources else self.alone
        model = core.fit(target, sources)
        test = task.rows_of("test")
        predicted = model.predict(np.asarray(task.X)[test])
        scores = {"test": {target: score_of(task, test, predicted)}}
        if not sources:
            scores["valid"] = {target: self._valid(task)}
        found: dict[str, Any] = {"scores": scores, "settings": dict(model.settings)}
        if unit.split < 0:
            found["predictions"] = {target: predicted.tolist()}
        return found | {"seconds": time.perf_counter() - began, "reason": ""}

    def _varied(self, unit: Unit) -> LinearTransfer:
        """The joint core with one thing changed for the sources of a fit; every other task stays as it is."""
        if unit.method == REWEIGHTED:
            return core_of(self.tasks, seed=self.seed, weights=[SOURCE_WEIGHT * weight for weight in WEIGHTS])
        parts = ("train", "valid")  # the rows a fit is made on
        tasks = with_changed_sources(unit.method, self.tasks, unit.tasks[0], unit.tasks[1:], parts)
        return core_of(tasks, seed=self.seed)

    def _valid(self, task: Task) -> float:
        """The tuned ridge's out-of-fold score on the valid rows: comparable with a network's validation score."""
        guesses = self.alone.out_of_fold(task.name)
        seen = seen_rows(task)
        rows = task.rows_of("valid")
        place = np.searchsorted(seen, rows)
        return score_of(task, rows, guesses[place])


def score_of(task: Task, rows: Array, prediction: FloatArray) -> float:
    """The task's metric on some rows, higher is better; NaN when it is undefined there (one class only)."""
    weight = None if task.weight is None else task.weight[rows]
    return float(score(task.metric, task.y[rows], prediction, weight, classes=task.num_classes))
