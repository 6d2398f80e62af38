"""Tasks to linear problems: numbers as they are, anything else through one featurizer a set of comparable tasks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtlens.arrays import Array
from mtlens.errors import InputError
from mtlens.features import fit_featurizer, transform_tasks
from mtlens.tasks import Table, Task, TaskSet
from mtlens.theory.linear_problem import LinearProblem

WIDTHS = (1024, 768, 512, 384, 256, 128, 64)  # tried from the left until the models of all pairs are affordable
MOST_WORK = 1.2e12  # multiplications for all pairs: under a minute on two cores
MODELS = 40  # solutions a pair, about: folds times ridges
SAMPLE = 4000  # rows that a projection is fitted to


@dataclass(frozen=True)
class Space:
    """Tasks whose inputs mean the same things: one linear problem each, and what was done to get there."""

    problems: tuple[LinearProblem, ...]
    found: tuple[str, ...]


def linear_spaces(tasks: TaskSet) -> list[Space]:
    """Group tasks by input space; test rows are left out, shared inputs stay shared (one object)."""
    parts = _development(tasks)
    groups: dict[Hashable, list[Task]] = {}
    for task in parts:
        groups.setdefault(_signature(task), []).append(task)
    given = {name: value for name in ("vectors", "encoder") if (value := tasks.settings.get(name)) is not None}
    return [_space(group, given) for group in groups.values()]


def _development(tasks: TaskSet) -> list[Task]:
    """The tasks without their test rows."""
    taken: dict[tuple[int, bytes], Array | Table] = {}
    parts = []
    for task in tasks:
        if task.split is None or not (task.split == "test").any():
            parts.append(task)
            continue
        keep = task.split != "test"
        if not (keep & task.labelled).any():
            raise InputError(f"task {task.name!r}: every labelled row is test; a diagnosis needs train or valid rows.")
        part = task.take(keep)
        parts.append(part.replace(X=taken.setdefault((id(task.X), np.packbits(keep).tobytes()), part.X)))
    return parts


def _signature(task: Task) -> Hashable:
    if isinstance(task.X, Table):
        return "texts" if set(task.X.kinds.values()) == {"text"} else frozenset(task.X.names)
    return frozenset(task.feature_names) if task.X.ndim == 2 else task.X.shape[1:]


def _space(group: Sequence[Task], given: Mapping[str, Any]) -> Space:
    """``given``: what the SPEC names to read texts with."""
    found: list[str] = []
    if _are_numbers(group):
        inputs: list[Array] = [np.asarray(task.X) for task in group]
    else:
        featurizer = fit_featurizer(group, rows={task.name: np.arange(task.num_rows) for task in group}, **given)
        inputs = [np.asarray(X) for X in transform_tasks(featurizer, group)]
        found += featurizer.found
    if inputs[0].ndim > 2:
        inputs = _once_each(inputs, lambda X: X.reshape(len(X), -1))
    most = _affordable_width(inputs)
    if inputs[0].shape[1] > most:
        found.append(
            f"{inputs[0].shape[1]} columns projected to their {most} leading directions, to be done in a minute"
        )
        inputs = _projected(inputs, most)
    problems = [
        LinearProblem(t.name, X, t.y, t.kind, t.weight, t.group, t.num_classes)
        for t, X in zip(group, inputs, strict=True)
    ]
    return Space(tuple(problems), tuple(found))


def _are_numbers(group: Sequence[Task]) -> bool:
    """Whether the inputs can be used as they are: finite number columns in one order."""
    if not all(isinstance(task.X, np.ndarray) and task.X.ndim == 2 for task in group):
        return False
    if len({task.feature_names for task in group}) > 1:
        return False
    distinct = {id(task.X): np.asarray(task.X) for task in group}
    return all(bool(np.isfinite(X.sum(dtype=np.float64))) for X in distinct.values())


def _affordable_width(inputs: Sequence[Array]) -> int:
    """The widest inputs whose pairs can be solved in ``MOST_WORK``; pairs that share inputs cost next to nothing."""
    distinct = len({id(X) for X in inputs})
    solutions = MODELS * distinct * (distinct - 1) / 2 + 100 * distinct
    return next((width for width in WIDTHS if solutions * width**3 / 3 <= MOST_WORK), WIDTHS[-1])


def _once_each(inputs: Sequence[Array], change: Callable[[Array], Array]) -> list[Array]:
    """Apply a function to every distinct array; what was one object stays one."""
    changed: dict[int, Array] = {}
    for X in inputs:
        if id(X) not in changed:
            changed[id(X)] = change(X)
    return [changed[id(X)] for X in inputs]


def _projected(inputs: Sequence[Array], width: int) -> list[Array]:
    """Leading right singular vectors of a sample of all tasks' rows, as new columns."""
    from sklearn.utils.extmath import randomized_svd

    distinct = list({id(X): X for X in inputs}.values())
    random = np.random.default_rng(0)
    share = max(1, SAMPLE // len(distinct))
    sample = np.concatenate([X[random.permutation(len(X))[:share]] for X in distinct]).astype(np.float64)
    centre = sample.mean(axis=0)
    count = min(width, len(sample) - 1)
    _, _, directions = randomized_svd(sample - centre, n_components=count, n_iter=2, random_state=0)
    return _once_each(inputs, lambda X: (X - centre) @ directions.T)
