"""Tasks that share a feature space, and the map from their raw rows to numbers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtlens.arrays import Array
from mtlens.features import fit_featurizer, transform_tasks
from mtlens.models.system import System
from mtlens.tasks.table import Table
from mtlens.tasks.task import Task, TaskSet


@dataclass(frozen=True, eq=False)
class Space:
    """A featurizer fitted on the train rows of some tasks."""

    names: tuple[str, ...]
    featurizer: Any

    def encode(self, X: Any) -> Array:
        """``(m, width)`` float64, in one memory layout whatever came in; images pass through."""
        return np.ascontiguousarray(self.featurizer.transform(X))


def fit_space(tasks: Sequence[Task], options: dict[str, Any]) -> tuple[Space, list[Task]]:
    """The space of some tasks, fitted on their train rows, and the tasks with numbers for inputs."""
    featurizer = fit_featurizer(tasks, form="dense", **options)
    inputs = transform_tasks(featurizer, tasks)
    made = [_with_inputs(task, X) for task, X in zip(tasks, inputs, strict=True)]
    return Space(tuple(task.name for task in tasks), featurizer), made


def _with_inputs(task: Task, X: Any) -> Task:
    names = tuple(f"f{i}" for i in range(X.shape[1])) if X.ndim == 2 else ()
    return task.replace(X=np.ascontiguousarray(X) if X.flags.c_contiguous is False else X, feature_names=names)


def spaces_of(tasks: TaskSet, system: System) -> list[list[str]]:
    """Names of the tasks of each space: tasks with the same columns, and tasks that are trained together."""
    leader = {name: name for name in tasks.names}

    def root(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    first: dict[Hashable, str] = {}
    for task in tasks:
        leader[root(task.name)] = root(first.setdefault(_signature(task), task.name))
        for source in system.sources_of(task.name):
            leader[root(source)] = root(task.name)
    members: dict[str, list[str]] = {}
    for name in tasks.names:
        members.setdefault(root(name), []).append(name)
    return list(members.values())


def _signature(task: Task) -> Hashable:
    if isinstance(task.X, Table):
        return "texts" if set(task.X.kinds.values()) == {"text"} else frozenset(task.X.names)
    return frozenset(task.feature_names) if task.X.ndim == 2 else task.X.shape[1:]
