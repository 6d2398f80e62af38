"""Choosing and training the networks of a system: one grid for alone and joint, the epoch chosen on validation rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.engine.result import Trained
from mtlens.engine.run import train
from mtlens.engine.training import Training
from mtlens.engine.tuning import validation_score
from mtlens.errors import TrainingError
from mtlens.features import form_of
from mtlens.features.vectors import vectors_from
from mtlens.models.members import Network
from mtlens.models.system import Choice, Grid, System
from mtlens.nets.text_families import TextFamily
from mtlens.tasks.task import Task, TaskSet


@dataclass(frozen=True)
class Job:
    """Tasks that share a network, and what is fixed about it."""

    tasks: tuple[str, ...]
    fixed: tuple[tuple[str, Choice], ...] = ()


def job_of(system: System, name: str, *, joint: bool) -> Job:
    """The job that makes a task's alone or joint network; tasks joined with each other share one job."""
    plan = system.plan_of(name)
    members = {name, *system.sources_of(name)} if joint else {name}
    fixed = dict(plan.settings)
    if not joint:
        for method in ("weighting", "align", "align_rank", "penalty", "steps"):
            fixed.pop(method, None)  # these say how tasks are joined
    return Job(tuple(other for other in system.names if other in members), tuple(sorted(fixed.items())))


def reads_tokens(grid: Grid) -> bool:
    """Whether the grid's networks read words one by one."""
    return form_of(grid.trunk) == "tokens"


class Networks:
    """The networks of one space, tuned on folds.

    Args:
        system: grid and seed.
        jobs: what is to be trained.
        folds: the tasks with a split column, one list a fold; a task that cannot be split is in none of them.
        options: of ``mtlens.train`` (device, workers, progress).
    """

    def __init__(
        self, system: System, jobs: Sequence[Job], folds: Sequence[Sequence[Task]], options: Mapping[str, Any]
    ) -> None:
        self.system, self.grid, self.jobs, self.options = system, system.grid, list(dict.fromkeys(jobs)), dict(options)
        self._trunk: Any = self.grid.trunk
        if reads_tokens(self.grid) and self.grid.vectors is not None:
            self._trunk = TextFamily(self.grid.trunk, vectors=vectors_from(self.grid.vectors))
        self._tried: dict[tuple[int, int, int], list[Trained]] = {}
        self._refitted: dict[tuple[int, int], list[Trained]] = {}
        self._tune([{task.name: task for task in fold} for fold in folds])

    def _tune(self, folds: Sequence[Mapping[str, Task]]) -> None:
        """All configurations of all jobs on all folds in one call, so that they share stacks."""
        keys: list[tuple[int, int, int]] = []
        trainings: list[Training] = []
        for f, fold in enumerate(folds):
            for j, job in enumerate(self.jobs):
                present = [fold[name] for name in job.tasks if name in fold]
                if not present:
                    continue
                for c, config in enumerate(self.configs(job)):
                    for seed in self._seeds:
                        keys.append((f, j, c))
                        trainings.append(self._training(present, job, config, seed, select="best"))
        done = train(trainings, keep="predictions", **self.options) if trainings else []
        for key, trained in zip(keys, done, strict=True):
            if trained.reason == "interrupted":
                raise KeyboardInterrupt
            trained.model = None
            self._tried.setdefault(key, []).append(trained)

    def configs(self, job: Job) -> list[dict[str, Any]]:
        """The grid of a job: the same for all jobs, unless its plan fixes a choice."""
        fixed = dict(job.fixed)
        capacities = [fixed["capacity"]] if "capacity" in fixed else self.grid.capacities
        rates = [fixed["lr"]] if "lr" in fixed else self.grid.learning_rates
        return [{"capacity": capacity, "lr": rate} for capacity, rate in product(capacities, rates)]

    @property
    def _seeds(self) -> range:
        return range(self.system.seed, self.system.seed + self.grid.seeds)

    def _training(
        self, tasks: Sequence[Task], job: Job, config: Mapping[str, Any], seed: int, **changes: Any
    ) -> Training:
        grid = {"epochs": self.grid.epochs, "batch": self.grid.batch, "weight_decay": self.grid.weight_decay}
        settings = {**grid, **dict(job.fixed), **config, **changes}
        if len(tasks) == 1:
            settings.pop("steps", None)
        return Training(TaskSet(tasks), trunk=self._trunk, seed=seed, **settings)

    def held_out(self, job: Job, name: str, fold: int) -> FloatArray | None:
        """Predictions for a fold's test rows by the configuration that its own validation rows prefer; None: failed."""
        j = self.jobs.index(job)
        best = self._refitted.get((fold, j)) or self._best(fold, j)
        if best is None:
            return None
        mean: FloatArray = np.mean([self._tested(trained, name) for trained in best], axis=0)
        return mean

    def _best(self, fold: int, j: int) -> list[Trained] | None:
        """The networks of a fold's preferred configuration."""
        scores = [self._score(fold, j, c) for c in range(len(self.configs(self.jobs[j])))]
        if np.isfinite(scores).any():
            return self._tried[fold, j, int(np.nanargmax(scores))]
        return self._tried[fold, j, 0] if self._ended(fold, j, 0) else None

    def refit(self, folds: Sequence[Sequence[Task]]) -> None:
        """Train each fold's choice again on its train and valid rows, as deployment does; ``held_out`` then uses these.

        Networks that gave up a fifth of few rows to validation look worse than they will be.
        """
        keys: list[tuple[int, int]] = []
        trainings: list[Training] = []
        for f, fold in enumerate(folds):
            whole = {t.name: t.replace(split=np.where(t.split == "test", "test", "train")) for t in fold}
            for j, job in enumerate(self.jobs):
                for trained in self._best(f, j) or ():
                    keys.append((f, j))
                    present = [whole[name] for name in job.tasks if name in whole]
                    config = {name: getattr(trained.training, name) for name in ("capacity", "lr")}
                    epochs = max(1, int(trained.history["epoch"]))
                    seed = trained.training.seed
                    trainings.append(self._training(present, job, config, seed, select="last", epochs=epochs))
        done = train(trainings, keep="predictions", **self.options) if trainings else []
        for key, trained in zip(keys, done, strict=True):
            if trained.reason == "interrupted":
                raise KeyboardInterrupt
            if trained.ok:
                trained.model = None
                self._refitted.setdefault(key, []).append(trained)

    @staticmethod
    def _tested(trained: Trained, name: str) -> FloatArray:
        assert trained.predictions is not None  # asked for above
        return trained.predictions["test"][name]

    def _ended(self, fold: int, j: int, c: int) -> bool:
        """Whether a configuration was trained to its end, whatever its score."""
        tried = self._tried.get((fold, j, c), [])
        return bool(tried) and all(trained.ok for trained in tried)

    def _score(self, fold: int, j: int, c: int) -> float:
        tried = self._tried.get((fold, j, c))
        return float(np.mean([validation_score(trained) for trained in tried])) if tried else -np.inf

    def chosen(self, job: Job) -> dict[str, Any]:
        """Configuration and epochs with the best mean validation score over folds; the grid's first without folds."""
        j, configs = self.jobs.index(job), self.configs(job)
        folds = sorted({fold for fold, other, _ in self._tried if other == j})
        if not folds:
            return configs[0]
        scores = [float(np.mean([self._score(fold, j, c) for fold in folds])) for c in range(len(configs))]
        if not np.isfinite(scores).any() and all(self._ended(fold, j, 0) for fold in folds):
            scores[0] = 0.0  # trained well, but no fold's valid rows have a score (one class only, say)
        if not np.isfinite(scores).any():
            reasons = sorted({t.reason for key, tried in self._tried.items() if key[1] == j for t in tried})
            raise TrainingError(
                f"no configuration of {self.grid.trunk!r} could be trained on {', '.join(job.tasks[:5])} "
                f'({"; ".join(reasons)}). Try smaller learning rates, or family = "linear".'
            )
        best = int(np.nanargmax(scores))
        epochs = [trained.history["epoch"] for fold in folds for trained in self._tried[fold, j, best]]
        return {**configs[best], "epochs": max(1, round(float(np.median(epochs))))}

    def final(self, jobs: Sequence[Job], tasks: Mapping[str, Task]) -> dict[Job, tuple[Network, ...]]:
        """The chosen networks, trained on all rows; ``tasks`` have no split."""
        wanted = list(dict.fromkeys(jobs))
        pairs = [(job, seed) for job in wanted for seed in self._seeds]
        trainings = [
            self._training([tasks[name] for name in job.tasks], job, self.chosen(job), seed, select="last")
            for job, seed in pairs
        ]
        done = train(trainings, keep="model", **self.options) if trainings else []
        found: dict[Job, list[Network]] = {job: [] for job in wanted}
        for (job, _), trained in zip(pairs, done, strict=True):
            found[job].append(_kept(trained))
        return {job: tuple(networks) for job, networks in found.items()}


def _kept(trained: Trained) -> Network:
    if trained.reason == "interrupted":
        raise KeyboardInterrupt
    if not trained.ok or trained.model is None:
        raise TrainingError(
            f"{trained.training!r} could not be trained on all rows: {trained.reason}. "
            'Try a smaller learning rate in the advice, or family = "linear".'
        )
    trained.model.net.to("cpu")
    return Network(trained.model, trained.training.settings())
