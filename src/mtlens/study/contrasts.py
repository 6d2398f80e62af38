"""Variants of joint training that each change one suspected cause of harm, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.tasks import Task, TaskSet

CAPACITY = "capacity x4"
REWEIGHTED = "source weight 1/4"
EQUALISED = "sizes equalised"
CLEANED = "source labels cleaned"
ALIGNED = "align"
CONTRASTS = (CAPACITY, ALIGNED, REWEIGHTED, CLEANED, EQUALISED)
LINEAR_CONTRASTS = (REWEIGHTED, CLEANED, EQUALISED)  # a joint ridge has no capacity to choose and nothing to align
LARGER = 1.2  # a source with this many times the target's train rows is worth making equal
SOURCE_WEIGHT = 0.25
CAPACITY_FACTOR = 4


def changed(method: str, tasks: TaskSet, config: Mapping[str, Any]) -> tuple[TaskSet, dict[str, Any]]:
    """The tasks and training settings of a network's variant; ``config["target"]`` names the task that was hurt."""
    settings = {name: value for name, value in config.items() if name != "target"}
    if method == CAPACITY:
        return tasks, settings | {"capacity": settings["capacity"] * CAPACITY_FACTOR}
    if method not in (REWEIGHTED, EQUALISED, CLEANED):
        return tasks, settings
    target = config["target"]
    if method == REWEIGHTED:
        return tasks, settings | {"weighting": {t.name: 1.0 if t.name == target else SOURCE_WEIGHT for t in tasks}}
    sources = [task.name for task in tasks if task.name != target]
    return with_changed_sources(method, tasks, target, sources, ("train",)), settings


def with_changed_sources(
    method: str, tasks: TaskSet, target: str, sources: Sequence[str], parts: tuple[str, ...]
) -> TaskSet:
    """The tasks, with the labels of the sources cleaned or made as few as the target's in the parts trained on."""
    count = len(rows_in(tasks[target], parts))
    new = {
        name: cleaned(tasks[name], parts) if method == CLEANED else equalised(tasks[name], parts, count)
        for name in sources
    }
    return TaskSet([new.get(task.name, task) for task in tasks])


def rows_in(task: Task, parts: tuple[str, ...]) -> Array:
    """Labelled rows of these parts, in order."""
    return np.sort(np.concatenate([task.rows_of(part) for part in parts]))


def equalised(task: Task, parts: tuple[str, ...], count: int) -> Task:
    """The task with ``count`` labels left in these parts, drawn by the number of its own rows."""
    rows = rows_in(task, parts)
    if len(rows) <= count:
        return task
    dropped = np.random.default_rng(len(rows)).permutation(rows)[count:]
    y = task.y.copy()
    y[dropped] = np.nan  # inputs stay as they are, so shared inputs stay shared
    return task.replace(y=y)


def cleaned(task: Task, parts: tuple[str, ...]) -> Task:
    """The task with its labels in these parts replaced by what a tuned linear model makes of them: no noise is left.

    Nor is what a linear model cannot say; the contrast therefore speaks about noise only when it helps.
    """
    from mtlens.models.ridge import core_of

    rows = rows_in(task, parts)
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
