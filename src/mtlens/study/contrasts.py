"""Variants of joint training that each change one suspected cause of harm, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.tasks import Task, TaskSet

CAPACITY = "capacity x4"
REWEIGHTED = "source weight 1/4"
EQUALISED = "sizes equalised"
CLEANED = "source labels cleaned"
ALIGNED = "align"
CONTRASTS = (CAPACITY, ALIGNED, REWEIGHTED, CLEANED, EQUALISED)
LARGER = 1.2  # a source with this many times the target's train rows is worth making equal
SOURCE_WEIGHT = 0.25
CAPACITY_FACTOR = 4


def changed(method: str, tasks: TaskSet, config: Mapping[str, Any]) -> tuple[TaskSet, dict[str, Any]]:
    """The tasks and training settings of a variant; ``config["target"]`` names the task that was hurt."""
    settings = {name: value for name, value in config.items() if name != "target"}
    if method == CAPACITY:
        return tasks, settings | {"capacity": settings["capacity"] * CAPACITY_FACTOR}
    if method not in (REWEIGHTED, EQUALISED, CLEANED):
        return tasks, settings
    target = tasks[config["target"]]
    sources = [task for task in tasks if task is not target]
    if method == REWEIGHTED:
        return tasks, settings | {"weighting": {t.name: 1.0 if t is target else SOURCE_WEIGHT for t in tasks}}
    change = cleaned if method == CLEANED else _equaliser(len(target.rows_of("train")))
    new = {task.name: change(task) for task in sources}
    return TaskSet([new.get(task.name, task) for task in tasks]), settings


def _equaliser(count: int) -> Any:
    """Leaves ``count`` train labels of a task, drawn by its name's place in nothing but its own rows."""

    def equalised(task: Task) -> Task:
        rows = task.rows_of("train")
        if len(rows) <= count:
            return task
        dropped = np.random.default_rng(len(rows)).permutation(rows)[count:]
        y = task.y.copy()
        y[dropped] = np.nan  # inputs stay as they are, so shared inputs stay shared
        return task.replace(y=y)

    return equalised


def cleaned(task: Task) -> Task:
    """The task with its train labels replaced by what a tuned linear model makes of them: their noise is gone.

    So is everything a linear model cannot say; the contrast therefore speaks about noise only when it helps.
    """
    from mtlens.models.ridge import core_of

    rows = task.rows_of("train")
    core = core_of(TaskSet([task.take(rows).replace(split=None)]))
    y = task.y.copy()
    y[rows] = _labels(task, core.fit(task.name).predict(np.asarray(task.X, np.float64)[rows]))
    return task.replace(y=y)


def _labels(task: Task, predicted: FloatArray) -> FloatArray:
    if task.kind == "regression":
        return predicted
    if task.kind == "binary":
        return (predicted > 0.5).astype(np.float64)
    return np.asarray(predicted.argmax(axis=1), np.float64)
