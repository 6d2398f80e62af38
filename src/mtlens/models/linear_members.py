"""Fitting the linear members of some tasks in one space, on one split or on all rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.models.members import LinearMember, Member, SourcesMember, with_predictions
from mtlens.models.ridge import ALONE_RIDGES, core_of, seen_rows
from mtlens.models.system import Grid, System
from mtlens.tasks.task import Task
from mtlens.theory.transfer import RIDGES, WEIGHTS, LinearModel, LinearTransfer


class LinearFits:
    """Every linear member that a system asks for, from two cores with equally large grids.

    Args:
        tasks: with numbers for inputs; test rows are not looked at.
        system: says each task's recipe and sources.
    """

    def __init__(self, tasks: Sequence[Task], system: System) -> None:
        self.tasks = {task.name: task for task in tasks}
        self.system = system

    @cached_property
    def _alone(self) -> LinearTransfer:
        ridges = alone_ridges(self.system.grid)
        return core_of(self.tasks.values(), seed=self.system.seed, ridges=ridges)

    @cached_property
    def _joint(self) -> LinearTransfer:
        grid = self.system.grid
        return core_of(self.tasks.values(), seed=self.system.seed, ridges=grid.ridges, weights=grid.weights)

    def alone(self, name: str) -> Member:
        """The task's tuned ridge (for classes: on 0/1 columns)."""
        return LinearMember(_settled(self._alone.fit(name)))

    def joint(self, name: str) -> Member:
        """What the task's recipe says. Sources without rows here are left out; without any it is the task alone."""
        sources = [source for source in self.system.sources_of(name) if source in self.tasks]
        recipe = self.system.plan_of(name).recipe
        if not sources:
            return self.alone(name)
        if recipe == "sources":
            return self._on_predictions(name, sources)
        method = "shrink" if recipe == "shrink" else "joint"
        return LinearMember(_settled(self._joint.fit(name, sources, method=method)))  # type: ignore[arg-type]

    def _on_predictions(self, name: str, sources: list[str]) -> Member:
        """Sources see none of the rows whose predictions the target learns from: out of fold where rows are shared."""
        task = self.tasks[name]
        rows = seen_rows(task)
        models = [_settled(self._alone.fit(source)) for source in sources]
        X = np.asarray(task.X, np.float64)
        columns = [model.predict(X) for model in models]
        for source, column in zip(sources, columns, strict=True):
            if self.tasks[source].X is task.X:
                held = self._alone.out_of_fold(source)
                known = np.isfinite(held if held.ndim == 1 else held[:, 0])
                column[rows[known]] = held[known]
        extended = task.replace(X=with_predictions(X, columns))
        core = core_of([extended], seed=self.system.seed, ridges=alone_ridges(self.system.grid))
        return SourcesMember(tuple(models), _settled(core.fit(name)))


def alone_ridges(grid: Grid) -> tuple[float, ...]:
    """As many ridges as the joint model has pairs of ridge and weight, over the same range."""
    if grid.ridges is None and grid.weights is None:
        return ALONE_RIDGES
    ridges, weights = grid.ridges or RIDGES, grid.weights or WEIGHTS
    if len(ridges) == 1:
        return (ridges[0],)
    return tuple(np.geomspace(min(ridges), max(ridges), len(ridges) * len(weights)).tolist())


def _settled(model: LinearModel) -> LinearModel:
    """The model with its arrays in the memory layout in which they are loaded: products then agree to the bit."""
    coef: FloatArray = np.ascontiguousarray(model.coef, dtype=np.float64)
    intercept: FloatArray = np.ascontiguousarray(model.intercept, dtype=np.float64)
    return LinearModel(
        model.target, tuple(model.sources), model.method, coef, intercept, float(model.low), float(model.high),
        model.kind, {name: float(value) for name, value in model.settings.items()},
    )  # fmt: skip
