"""Held-out predictions of everything that could be deployed: each task alone, joint in several ways, and controls.

One set of folds for all of them, so that differences are paired. Ridges, weights, capacities and rates are chosen
inside the folds, from grids of one size for alone and joint: unequal grids fake gains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from mtlens.arrays import FloatArray, IntArray
from mtlens.errors import InputError
from mtlens.models.linear_members import LinearFits, alone_ridges
from mtlens.models.members import Encoded
from mtlens.models.networks import Networks, job_of, reads_tokens
from mtlens.models.ridge import TOO_WIDE
from mtlens.models.space import fit_space
from mtlens.models.system import Grid, Group, Recipe, System, TaskPlan
from mtlens.study.stacking import Evidence
from mtlens.tasks import Task, TaskSet
from mtlens.tasks.splits import units
from mtlens.theory.folded import assign_folds
from mtlens.theory.transfer import LinearProblem, LinearTransfer

Family = Literal["linear", "trunk"]
FEW_SOURCES = 30  # tasks up to which the sources' predictions are tried as further inputs
LEAST = 2  # labelled rows a fold, and of the second class, below which a task has no evidence of its own
OTHER_SEED = 7919  # added to the seed for the control: the same model, drawn again

Say = Callable[[str], None]
Groups: TypeAlias = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Candidate:
    """A way of making joint predictions: what a :class:`~mtlens.models.system.TaskPlan` says, for every task.

    Groups are chosen from data. So that held-out rows judge the *choice* too, ``fold_groups`` has the groups chosen
    without each fold; ``groups`` are those of all folds, which would be deployed.
    """

    recipe: Recipe
    family: Family
    groups: Groups = ()
    fold_groups: tuple[Groups, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.recipe} ({self.family})"

    def system(self, names: Sequence[str], grid: Grid, seed: int, folds: int) -> System:
        """The system in which every task follows this candidate; tasks that are alone in their group stay alone."""
        plans = []
        for name in names:
            group = self.group_of(name)
            recipe: Recipe = "alone" if self.recipe == "group" and group is None else self.recipe
            plans.append(
                TaskPlan(name=name, recipe=recipe, family=self.family, group=group if recipe == "group" else None)
            )
        groups = [
            Group(name=f"group {i + 1}", tasks=[name for name in group if name in names])
            for i, group in enumerate(self.groups)
            if len(group) > 1 and any(name in names for name in group)
        ]
        return System(seed=seed, folds=folds, grid=grid, tasks=plans, groups=groups)

    def without(self, fold: int) -> Candidate:
        """The candidate as it is chosen when a fold is held out."""
        return Candidate(self.recipe, self.family, self.fold_groups[fold]) if self.fold_groups else self

    def group_of(self, name: str) -> str | None:
        for i, group in enumerate(self.groups):
            if name in group and len(group) > 1:
                return f"group {i + 1}"
        return None


class HeldOut:
    """The held-out predictions of one input space, computed when first asked for.

    Args:
        tasks: development rows of tasks with one input space; splits they carry are ignored.
        grid: of the networks and the linear family; ``ridges`` and ``weights`` None are the core's own.
        seed: of folds and networks.
        folds: of every task; a task too small for them has no evidence of its own and only lends rows.
        options: of ``mtlens.train`` (device, workers).
    """

    def __init__(
        self, tasks: TaskSet, *, grid: Grid, seed: int, folds: int, options: Mapping[str, Any], say: Say
    ) -> None:
        self.grid, self.seed, self.folds, self.options, self.say = grid, seed, folds, dict(options), say
        self.raw = TaskSet([task.replace(split=None) for task in tasks])
        texts = {"vectors": grid.vectors, "encoder": grid.encoder}
        self.space, dense = fit_space(
            list(self.raw), {name: value for name, value in texts.items() if value is not None}
        )
        self.dense = TaskSet(dense)
        self.small = {task.name: reason for task in self.raw if (reason := _shortage(task, folds))}
        self.names = tuple(name for name in self.raw.names if name not in self.small)
        self.units = dict(zip(self.raw.names, units(self.raw), strict=True))

    @property
    def has_columns(self) -> bool:
        """Whether the linear family applies: rows of numbers, not too many."""
        X = np.asarray(self.dense[0].X)
        return X.ndim == 2 and X.shape[1] <= TOO_WIDE

    @cached_property
    def fold_of(self) -> dict[str, IntArray]:
        """The fold in which each row is held out; -1 for rows of tasks that are never held out."""
        kept = [self.raw[name] for name in self.names]
        dealt = assign_folds(
            [self.units[task.name] for task in kept],
            [task.labelled for task in kept],
            [None if task.kind == "regression" else task.y for task in kept],
            folds=self.folds,
            seed=self.seed,
        )
        found = {task.name: np.full(task.num_rows, -1, dtype=np.int64) for task in self.raw}
        return found | dict(zip(self.names, dealt, strict=True))

    @cached_property
    def parts(self) -> list[TaskSet]:
        """The tasks that can be held out, a TaskSet a fold: that fold is test, the next one valid."""
        return [self._part(self.dense, fold) for fold in range(self.folds)]

    def _part(self, tasks: TaskSet, fold: int) -> TaskSet:
        made = []
        for name in self.names:
            own = self.fold_of[name]
            valid = np.where(own == (fold + 1) % self.folds, "valid", "train")
            made.append(tasks[name].replace(split=np.where(own == fold, "test", valid)))
        return TaskSet(made)

    # ------------------------------------------------------------------ linear

    @cached_property
    def _problems(self) -> list[LinearProblem]:
        inputs = {id(task.X): np.asarray(task.X, np.float64) for task in self.dense}  # shared inputs stay one object
        return [
            LinearProblem(t.name, inputs[id(t.X)], t.y, t.kind, t.weight, t.group, t.num_classes) for t in self.dense
        ]

    def _core(self, ridges: Sequence[float] | None, weights: Sequence[float] | None) -> LinearTransfer:
        folds = [self.fold_of[problem.name] for problem in self._problems]
        return LinearTransfer(self._problems, folds=folds, ridges=ridges, weights=weights)

    def pairs_without(self, fold: int) -> FloatArray:
        """(k, k) transfer of every ordered pair, predicted without the rows of a fold: not as training rows either.

        The held-out scores of the *other* folds come from models that have seen this fold, and two folds scored by
        models of each other share their noise: choosing groups by such scores flattered them in this fold.
        """
        rows = {problem.name: np.flatnonzero(self.fold_of[problem.name] != fold) for problem in self._problems}
        inputs: dict[tuple[int, bytes], FloatArray] = {}  # shared inputs stay one object
        problems, folds = [], []
        for problem in self._problems:
            kept, own = rows[problem.name], self.fold_of[problem.name]
            X = inputs.setdefault((id(problem.X), kept.tobytes()), np.asarray(problem.X)[kept])
            weight, group = (
                None if part is None else np.asarray(part)[kept] for part in (problem.weight, problem.group)
            )
            problems.append(replace(problem, X=X, y=problem.y[kept], weight=weight, group=group))
            folds.append(np.where(own > fold, own - 1, own)[kept])
        core = LinearTransfer(problems, folds=folds, ridges=self.grid.ridges, weights=self.grid.weights)
        return core.pairs().difference

    @cached_property
    def joint_core(self) -> LinearTransfer:
        """Joint models: every ridge with every source weight."""
        return self._core(self.grid.ridges, self.grid.weights)

    @cached_property
    def alone_core(self) -> LinearTransfer:
        """Single models: as many ridges as the joint ones have cells, over the same range."""
        return self._core(alone_ridges(self.grid), None)

    def _linear(self, candidate: Candidate) -> dict[str, FloatArray]:
        if candidate.recipe == "sources":
            return self._on_predictions(candidate)
        method: Any = "shrink" if candidate.recipe == "shrink" else "joint"
        found = {name: _empty(self.dense[name]) for name in self.names}
        for name in self.names:
            made: dict[tuple[str, ...], FloatArray] = {}
            for fold in range(self.folds):
                sources = self._sources(candidate.without(fold), name)
                if sources not in made:
                    core = self.joint_core if sources else self.alone_core
                    made[sources] = core.out_of_fold(name, sources, method=method)
                held = self.fold_of[name] == fold
                found[name][held] = made[sources][held]
        return found

    def _sources(self, candidate: Candidate, name: str) -> tuple[str, ...]:
        """The tasks that a candidate joins one with."""
        if candidate.recipe == "group":
            group = next((group for group in candidate.groups if name in group), ())
            return tuple(other for other in self.raw.names if other in group and other != name)
        return tuple(other for other in self.raw.names if other != name)

    def _on_predictions(self, candidate: Candidate) -> dict[str, FloatArray]:
        system = candidate.system(self.names, self.grid, self.seed, self.folds)
        found = {name: _empty(self.dense[name]) for name in self.names}
        for part in self.parts:
            fits = LinearFits(list(part), system)
            for task in part:
                rows = task.rows_of("test")
                inputs = np.asarray(task.X)[rows]
                found[task.name][rows] = fits.joint(task.name).predict(Encoded(inputs, inputs))
        return found

    def shared_penalty(self) -> dict[str, FloatArray]:
        """The control that shares a penalty and no model: every task's own ridge, one strength for all tasks."""
        return self.alone_core.shared_ridge_out_of_fold(self.names)

    # ------------------------------------------------------------------ networks

    def _networks(self, systems: Sequence[System], *, joint: bool) -> dict[str, FloatArray]:
        """Held-out predictions by networks; ``systems`` is one for all folds, or one a fold."""
        inputs = self.raw if reads_tokens(self.grid) else self.dense
        parts = [list(self._part(inputs, fold)) for fold in range(self.folds)]
        found = {name: _empty(self.dense[name]) for name in self.names}
        batches = (
            [(systems[0], parts)] if len(systems) == 1 else [(s, [p]) for s, p in zip(systems, parts, strict=True)]
        )
        for system, some in batches:
            jobs = {name: job_of(system, name, joint=joint) for name in self.names}
            self.say(f"training {len(set(jobs.values()))} networks on {len(some)} folds")
            networks = Networks(system, list(jobs.values()), some, self.options)
            networks.refit(some)
            for number, part in enumerate(some):
                for task in part:
                    values = networks.held_out(jobs[task.name], task.name, number)
                    if values is not None:
                        found[task.name][task.rows_of("test")] = values
        return found

    # ------------------------------------------------------------------ by name

    def alone(self, family: Family, *, again: bool = False) -> dict[str, FloatArray]:
        """Held-out predictions of every task by itself; ``again`` draws the same model anew (another seed)."""
        if family == "linear":
            if again:
                raise InputError("a linear model has no seed to draw again. Its control is shared_penalty().")
            return {name: self.alone_core.out_of_fold(name) for name in self.names}
        seed = self.seed + (OTHER_SEED if again else 0)
        return self._networks([System.alone(self.names, family="trunk", seed=seed, grid=self.grid)], joint=False)

    def joint(self, candidate: Candidate) -> dict[str, FloatArray]:
        """Held-out predictions by a candidate's joint models."""
        if candidate.family == "linear":
            return self._linear(candidate)
        variants = [candidate.without(fold) for fold in range(self.folds)] if candidate.fold_groups else [candidate]
        return self._networks([c.system(self.names, self.grid, self.seed, self.folds) for c in variants], joint=True)

    def evidence(self, alone: Mapping[str, FloatArray], joint: Mapping[str, FloatArray]) -> dict[str, Evidence]:
        """Labelled rows with both predictions, task by task; tasks without any are left out."""
        found = {}
        for name in self.names:
            task = self.raw[name]
            both = [_columns(values[name]) for values in (alone, joint)]
            known = task.labelled & np.isfinite(both[0]).all(axis=1) & np.isfinite(both[1]).all(axis=1)
            known &= self.fold_of[name] >= 0
            if known.any():
                y = _outputs(task)[known]
                fold, unit = self.fold_of[name][known], self.units[name][known]
                found[name] = Evidence(y, both[0][known], both[1][known], fold, unit)
        return found


def _shortage(task: Task, folds: int) -> str:
    """Why a task cannot be held out, or nothing."""
    known = task.y[task.labelled]
    if len(known) < LEAST * folds:
        return f"{len(known)} labelled rows, {LEAST * folds} are needed"
    if task.kind != "regression":
        counts = np.bincount(known.astype(np.int64), minlength=task.num_classes)
        place = int(np.argsort(counts)[-2])  # a rare class among several does not keep the others from being judged
        if counts[place] < LEAST:
            return f"{counts[place]} rows of class {task.classes[place]!r}, {LEAST} are needed"
    return ""


def _empty(task: Task) -> FloatArray:
    shape = (task.num_rows, task.num_classes) if task.kind == "multiclass" else (task.num_rows,)
    return np.full(shape, np.nan)


def _columns(values: FloatArray) -> FloatArray:
    return values if values.ndim == 2 else values[:, None]


def _outputs(task: Task) -> FloatArray:
    """Labels as a prediction would have them: the value, the code of two classes, or a 0/1 column a class."""
    if task.kind != "multiclass":
        return task.y[:, None]
    one_hot: FloatArray = (task.y[:, None] == np.arange(task.num_classes)).astype(np.float64)
    return one_hot
