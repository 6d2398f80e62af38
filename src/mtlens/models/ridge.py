"""The linear family on prepared tasks: numbers in one space, a split column or none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mtlens.arrays import Array
from mtlens.tasks.task import Task
from mtlens.theory.transfer import RIDGES, WEIGHTS, LinearProblem, LinearTransfer

INNER_FOLDS = 5
WIDE = 512  # columns from which on one inner fold, the valid rows, replaces five
TOO_WIDE = 4096  # a d x d moment matrix a fold and task is kept
ALONE_RIDGES = tuple(np.geomspace(min(RIDGES), max(RIDGES), len(RIDGES) * len(WEIGHTS)).tolist())


def core_of(
    tasks: Iterable[Task],
    *,
    seed: int = 0,
    ridges: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
) -> LinearTransfer:
    """The closed-form core over everything but test rows. Wide inputs use their valid rows as the only inner fold."""
    inputs: dict[tuple[int, bytes], Array] = {}
    problems, folds = [], []
    for task in tasks:
        rows = seen_rows(task)
        key = (id(task.X), rows.tobytes())
        if key not in inputs:
            inputs[key] = np.asarray(task.X, np.float64)[rows]  # one object for tasks that share inputs
        problems.append(problem_of(task, inputs[key], rows))
        folds.append(np.full(len(rows), -1) if task.split is None else np.where(task.split[rows] == "valid", 0, -1))
    wide = problems[0].X.shape[1] > WIDE and all((fold == 0).any() for fold in folds)
    fewest = min(int(problem.labelled.sum()) for problem in problems)
    few = min(INNER_FOLDS, fewest)
    return LinearTransfer(problems, folds=folds if wide else few, seed=seed, ridges=ridges, weights=weights)


def seen_rows(task: Task) -> Array:
    """Rows that are not test rows, labelled or not, in order."""
    if task.split is None:
        return np.arange(task.num_rows)
    return np.flatnonzero((task.split == "train") | (task.split == "valid"))


def problem_of(task: Task, X: Array, rows: Array) -> LinearProblem:
    """A task's chosen rows as a linear problem; ``X`` holds these rows already."""
    weight = None if task.weight is None else task.weight[rows]
    group = None if task.group is None else task.group[rows]
    classes = task.num_classes if task.kind == "multiclass" else 0
    return LinearProblem(task.name, X, task.y[rows], task.kind, weight, group, classes)
