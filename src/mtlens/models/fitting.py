"""``fit``: the advised system, trained on all rows, with errors measured on held-out ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray, IntArray
from mtlens.errors import InputError
from mtlens.models.given import Given, given_from
from mtlens.models.inputs import Schema
from mtlens.models.linear_members import LinearFits
from mtlens.models.members import Encoded, Member, NetMember, Network, joined
from mtlens.models.model import Model, TaskModel
from mtlens.models.networks import Job, Networks, job_of, reads_tokens
from mtlens.models.ridge import TOO_WIDE
from mtlens.models.space import Space, fit_space, spaces_of
from mtlens.models.system import FamilyName, System, TaskPlan
from mtlens.tasks.metrics import score
from mtlens.tasks.splits import Splits
from mtlens.tasks.task import Task, TaskSet

MOST_ERRORS = 20_000  # of a task that are kept for intervals; of more, evenly spaced ones
MOST_WORK = 3e12  # multiplications of tuning networks that nobody asked for: a few minutes on two cores
LEAST = 2  # rows of a class in each part of a fold

Say = Callable[[str], None]


def fit(
    source: Any,
    *,
    advice: System | str | Any | None = None,
    tasks: TaskSet | None = None,
    targets: str | Sequence[str] | None = None,
    missing: Any = None,
    family: FamilyName | None = None,
    seed: int | None = None,
    device: str = "cpu",
    workers: int | None = None,
    progress: Say | None = None,
) -> Model:
    """Train the advised system on all rows.

    Ridge, capacity, learning rate and epochs are chosen on held-out rows, then everything is fitted again on all rows
    (also those of an official test set). The same folds give each task its held-out score and, for regression, the
    errors that intervals come from.

    Args:
        source: a study's folder (or its ``StudyResult``), a SPEC or data file, a built-in example, a TaskSet, tasks,
            or anything ``read_tasks`` takes.
        advice: a System, or the path of an ``advice.toml`` or of a study's folder. By default the advice in the
            study's folder; without any, every task by itself, by the better of ridge and network.
        tasks: the study's data, when they cannot be read again from where the study read them.
        targets, missing: as for ``read_tasks``, when ``source`` is a file.
        family: without advice, "linear", "trunk", or "best" of both (chosen a task, on held-out rows).
        seed: of folds and networks; by default the advice's.
        progress: told what is being done, a line at a time.

    Example:
        >>> from mtlens import fit
        >>> model = fit("example", family="linear")
        >>> model
        Model(3 tasks: 'target', 'same', 'different'; 0 joined with others)
        >>> model.predict(np.zeros((1, 100)), "target").shape
        (1,)
    """
    say = progress or _silent
    given = given_from(source, advice, tasks=tasks, targets=targets, missing=missing, family=family, seed=seed)
    whole = _without_splits(given.tasks)
    options = {"device": device, "workers": workers, "progress": False}
    made: list[TaskModel] = []
    spaces: list[Space] = []
    notes = list(given.notes)
    for names in spaces_of(whole, given.system):
        say(f"fitting {_shown(names)}")
        part = _SpaceFit(whole.subset(names), given, len(spaces), options, say)
        made += part.run()
        spaces.append(part.space)
        notes += part.notes
    order = {task.name: task for task in made}
    models = [order[name] for name in whole.names]
    system = given.system.model_copy(update={"tasks": [_built(given.system, task) for task in models]})
    return Model(models, spaces, system, notes=notes, made=given.made)


def _silent(line: str) -> None:
    """No progress is shown."""


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more tasks" if len(names) > 5 else "")


def _without_splits(tasks: TaskSet) -> TaskSet:
    return TaskSet([task.replace(split=None) for task in tasks], found=tasks.found, settings=tasks.settings)


def _built(system: System, task: TaskModel) -> TaskPlan:
    """The plan with the family that was chosen."""
    return system.plan_of(task.name).model_copy(update={"family": task.facts["family"]})


@dataclass
class _HeldOut:
    """Predictions for rows that took no part in making them, (m,) or (m, K); NaN where there are none."""

    linear: dict[str, FloatArray]
    trunk: dict[str, FloatArray]
    joint: dict[str, FloatArray]


class _SpaceFit:
    """Fits the tasks of one feature space."""

    def __init__(self, tasks: TaskSet, given: Given, number: int, options: Mapping[str, Any], say: Say) -> None:
        self.tasks, self.number, self.options, self.say = tasks, number, options, say
        self.system = given.system
        self.notes: list[str] = []
        self.tokens = reads_tokens(self.system.grid)
        self.plans = {name: self.system.plan_of(name) for name in tasks.names}
        self.space, dense = self._encoded(list(tasks))
        self.dense = {task.name: task for task in dense}
        self.families = {name: self._families(plan) for name, plan in self.plans.items()}

    def _encoded(self, tasks: list[Task]) -> tuple[Space, list[Task]]:
        """Numbers for every task; tasks that only token trunks read stay as they are."""
        linear = any(plan.family != "trunk" for plan in self.plans.values())
        linear |= any(plan.is_joint and plan.family_of_joint == "linear" for plan in self.plans.values())
        if self.tokens and not linear:
            return Space(tuple(task.name for task in tasks), None), tasks
        grid = self.system.grid
        texts = {"vectors": grid.vectors, "encoder": grid.encoder}
        return fit_space(tasks, {name: value for name, value in texts.items() if value is not None})

    # ------------------------------------------------------------------ what to try

    def _families(self, plan: TaskPlan) -> tuple[FamilyName, ...]:
        """The families tried for a task by itself."""
        if plan.family != "best":
            if plan.family == "linear":
                self._need_columns(plan.name)
            return (plan.family,)
        tried: list[FamilyName] = ["linear"] if self._has_columns else []
        return (*tried, "trunk") if self._trunk_is_cheap else tuple(tried)

    @property
    def _shape(self) -> tuple[int, ...]:
        """Of one row, as numbers; () where no numbers were made."""
        first = next(iter(self.dense.values())).X
        return first.shape[1:] if isinstance(first, np.ndarray) else ()

    @property
    def _has_columns(self) -> bool:
        return self.space.featurizer is not None and len(self._shape) == 1 and self._shape[0] <= TOO_WIDE

    def _need_columns(self, name: str) -> None:
        if not self._has_columns:
            shape = self._shape or "texts"
            raise InputError(
                f"task {name!r}: the linear family needs at most {TOO_WIDE} columns of numbers, found {shape}. "
                'Use family = "trunk".'
            )

    @property
    def _trunk_is_cheap(self) -> bool:
        """Whether tuning networks for "best" is affordable; where only networks apply they are always tried."""
        grid = self.system.grid
        rows = sum(int(task.labelled.sum()) for task in self.tasks)
        width = 100 if self.tokens else int(np.prod(self._shape))
        points = len(grid.learning_rates) * self.system.folds * grid.epochs * grid.seeds
        work = 6.0 * rows * points * sum(capacity * width for capacity in grid.capacities)
        if work <= MOST_WORK or not self._has_columns:
            return True
        line = (
            f"networks were not tried on {_shown(self.tasks.names)}: tuning them would take long; ask for family trunk"
        )
        if line not in self.notes:
            self.notes.append(line)
        return False

    def _jobs(self) -> list[Job]:
        alone = [job_of(self.system, n, joint=False) for n, families in self.families.items() if "trunk" in families]
        joint = [job_of(self.system, n, joint=True) for n, p in self.plans.items() if self._joins_nets(p)]
        return [*alone, *joint]

    @staticmethod
    def _joins_nets(plan: TaskPlan) -> bool:
        return plan.is_joint and plan.family_of_joint == "trunk"

    # ------------------------------------------------------------------ folds

    def _folds(self) -> list[list[Task]]:
        """The tasks with a split column, a list a fold; tasks too small for that are left out of all."""
        small = self._splits().too_small(self.tasks)
        for name, reason in small.items():
            self.notes.append(
                f"task {name!r} is too small to hold rows out ({reason}): no held-out score, no intervals"
            )
        names = [name for name in self.tasks.names if name not in small]
        if not names:
            return []
        kept = self.tasks.subset(names)
        return [list(self._splits().assign(kept, fold)) for fold in range(self.system.folds)]

    def _splits(self) -> Splits:
        return Splits(self.system.seed, "kfold", outer=self.system.folds, valid=0.2, least=LEAST)

    def _numbers(self, fold: list[Task]) -> list[Task]:
        """The tasks of a fold with numbers fitted on its train rows."""
        if self.space.featurizer is None:
            return fold
        grid = self.system.grid
        texts = {"vectors": grid.vectors, "encoder": grid.encoder}
        return fit_space(fold, {name: value for name, value in texts.items() if value is not None})[1]

    def run(self) -> list[TaskModel]:
        """Hold out, choose, fit on all rows."""
        raw = self._folds()
        dense = [self._numbers(fold) for fold in raw]
        jobs = self._jobs()
        if jobs:
            self.say(f"tuning {len(jobs)} networks on {len(raw)} folds")
        networks = Networks(self.system, jobs, raw if self.tokens else dense, self.options)
        held = self._held_out(dense, networks)
        families = {name: self._chosen(name, held) for name in self.tasks.names}
        return self._final(families, held, networks)

    def _held_out(self, folds: list[list[Task]], networks: Networks) -> _HeldOut:
        held = _HeldOut({}, {}, {})
        for number, fold in enumerate(folds):
            fits = LinearFits(fold, self.system)
            for task in fold:
                plan, rows = self.plans[task.name], task.rows_of("test")
                if "linear" in self.families[task.name]:
                    _fill(held.linear, task, rows, _predicted(fits.alone(task.name), task, rows))
                if "trunk" in self.families[task.name]:
                    job = job_of(self.system, task.name, joint=False)
                    _fill(held.trunk, task, rows, networks.held_out(job, task.name, number))
                if self._joins_nets(plan):
                    job = job_of(self.system, task.name, joint=True)
                    _fill(held.joint, task, rows, networks.held_out(job, task.name, number))
                elif plan.is_joint:
                    _fill(held.joint, task, rows, _predicted(fits.joint(task.name), task, rows))
        return held

    def _chosen(self, name: str, held: _HeldOut) -> FamilyName:
        """The family of a task by itself: the better on held-out rows; the first tried where nothing tells."""
        tried = self.families[name]
        scores = {f: self._score(name, getattr(held, f).get(name)) for f in tried}
        known = {f: value for f, value in scores.items() if np.isfinite(value)}
        return max(known, key=known.__getitem__) if known else tried[0]

    def _score(self, name: str, prediction: FloatArray | None) -> float:
        """The task's metric on rows with a held-out prediction; NaN without any."""
        task = self.tasks[name]
        if prediction is None:
            return float("nan")
        rows = _known(task, prediction)
        weight = None if task.weight is None else task.weight[rows]
        if not len(rows):
            return float("nan")
        return float(score(task.metric, task.y[rows], prediction[rows], weight, classes=task.num_classes))

    # ------------------------------------------------------------------ all rows

    def _final(self, families: Mapping[str, FamilyName], held: _HeldOut, networks: Networks) -> list[TaskModel]:
        self.say(f"training on all rows of {_shown(self.tasks.names)}")
        fits = LinearFits(self._with_valid(), self.system)
        alone = [job_of(self.system, name, joint=False) for name, family in families.items() if family == "trunk"]
        joint = [job_of(self.system, name, joint=True) for name, plan in self.plans.items() if self._joins_nets(plan)]
        sources = {task.name: task for task in self.tasks} if self.tokens else self.dense
        nets = networks.final([*alone, *joint], sources)
        return [self._task_model(task, families[task.name], held, fits, nets) for task in self.tasks]

    def _with_valid(self) -> list[Task]:
        """All rows, none of them test; for wide inputs the valid rows of the first fold choose the ridge."""
        tasks = TaskSet(self.dense[name] for name in self.tasks.names)
        if self._splits().too_small(tasks) or self.space.featurizer is None:
            return list(tasks)
        split = self._splits().assign(tasks, 0)
        return [task.replace(split=np.where(task.split == "valid", "valid", "train")) for task in split]

    def _task_model(
        self,
        task: Task,
        family: FamilyName,
        held: _HeldOut,
        fits: LinearFits,
        nets: Mapping[Job, tuple[Network, ...]],
    ) -> TaskModel:
        plan, name = self.plans[task.name], task.name

        def network(joint: bool) -> Member:
            return NetMember(nets[job_of(self.system, name, joint=joint)], name, self.tokens)

        alone: Member = network(False) if family == "trunk" else fits.alone(name)
        joint: Member | None = None
        if plan.is_joint:
            joint = network(True) if self._joins_nets(plan) else fits.joint(name)
        low, high = _range(task)
        own = getattr(held, family).get(name)
        errors, facts = self._evidence(task, own, held.joint.get(name), plan)
        return TaskModel(
            name, task.kind, task.classes, task.metric, self.number, Schema.of(task), alone, joint, plan.weight,
            low, high, errors, {"family": family, **facts},
        )  # fmt: skip

    def _evidence(
        self, task: Task, own: FloatArray | None, joint: FloatArray | None, plan: TaskPlan
    ) -> tuple[FloatArray | None, dict[str, Any]]:
        """Held-out errors of what is deployed, and the facts for the card."""
        low, high = _range(task)
        facts: dict[str, Any] = {
            "rows": int(task.labelled.sum()),
            "metric": task.metric,
            "alone": _plain(self._score(task.name, own)),
            "deployed": _plain(self._score(task.name, own)),
        }
        deployed = own
        if plan.is_joint and own is not None:
            deployed = None if joint is None else joined(own, joint, plan.weight, task.kind, low, high)
            facts["deployed"] = _plain(self._score(task.name, deployed))
        elif own is not None:
            deployed = joined(own, None, 0.0, task.kind, low, high)
        if task.kind != "regression" or deployed is None:
            return None, facts
        rows = _known(task, deployed)
        return _thinned(np.sort(np.abs(task.y[rows] - deployed[rows]))) if len(rows) else None, facts


def _predicted(member: Member, task: Task, rows: IntArray) -> FloatArray:
    part = np.asarray(task.X)[rows]
    return member.predict(Encoded(part, part))


def _fill(held: dict[str, FloatArray], task: Task, rows: IntArray, values: FloatArray | None) -> None:
    """Write a fold's predictions into those of the whole task."""
    shape = (task.num_rows, task.num_classes) if task.kind == "multiclass" else (task.num_rows,)
    whole = held.setdefault(task.name, np.full(shape, np.nan))
    if values is not None:
        whole[rows] = values


def _known(task: Task, prediction: FloatArray) -> IntArray:
    finite = np.isfinite(prediction if prediction.ndim == 1 else prediction.sum(axis=1))
    rows: IntArray = np.flatnonzero(finite & task.labelled)
    return rows


def _range(task: Task) -> tuple[float, float]:
    """Range of the labels. Probabilities stay off 0 and 1 by the rule of succession, ``1 / (n + classes)``: n rows
    without a class do not prove that it cannot be, and clipped linear models would say so of many rows."""
    known = task.y[task.labelled]
    if task.kind != "regression":
        least = 1.0 / (len(known) + task.num_classes)
        return least, 1.0 - least
    return float(known.min()), float(known.max())


def _thinned(errors: FloatArray) -> FloatArray:
    """At most MOST_ERRORS of the sorted errors, evenly spaced, the largest among them."""
    if len(errors) <= MOST_ERRORS:
        return errors
    places = np.ceil(np.linspace(0, len(errors) - 1, MOST_ERRORS)).astype(np.int64)
    return errors[places]


def _plain(value: float) -> float | None:
    return value if np.isfinite(value) else None
