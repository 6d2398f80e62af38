"""Which pairs to measure first: transfer between linear models, by cross-validation on closed forms, for every pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtlens.models.ridge import core_of
from mtlens.study.linear import can_fit, is_wide
from mtlens.study.plan import all_pairs
from mtlens.tasks import TaskSet

SKETCH = 256  # columns wide inputs are sketched to
DIGITS = 6  # of a prediction, kept so that screenings read back equal


@dataclass(frozen=True)
class Screening:
    """Predicted transfer of every ordered pair, and the unordered pairs in order of promise.

    It chooses what is measured, from the same rows that are measured afterwards: verdicts therefore count every
    screened cell in their adjustment (see :meth:`mtlens.study.cells.Judge.table`).
    """

    names: tuple[str, ...]
    order: tuple[tuple[str, str], ...]
    predicted: Mapping[tuple[str, str], float]  # (target, source) -> joint minus alone, as R2 or Brier skill

    @classmethod
    def none(cls, names: Sequence[str]) -> Screening:
        """No prediction: pairs in the order of the tasks."""
        return cls(tuple(names), tuple(all_pairs(names)), {})

    def as_dict(self) -> dict[str, Any]:
        return {"pairs": len(self.order), "by": "linear core" if self.predicted else "order of the tasks"}

    def to_fact(self) -> dict[str, Any]:
        """As JSON, by places in ``names``."""
        place = {name: i for i, name in enumerate(self.names)}
        return {
            "order": [[place[a], place[b]] for a, b in self.order],
            "predicted": [[place[t], place[s], value] for (t, s), value in self.predicted.items()],
        }

    @classmethod
    def from_fact(cls, names: Sequence[str], fact: Mapping[str, Any]) -> Screening:
        order = tuple((names[a], names[b]) for a, b in fact["order"])
        return cls(tuple(names), order, {(names[t], names[s]): value for t, s, value in fact["predicted"]})


def sketched(tasks: TaskSet, seed: int) -> TaskSet:
    """Inputs multiplied by one random matrix to ``SKETCH`` columns: angles and ridge fits change little."""
    width = int(np.asarray(tasks[0].X).shape[-1])
    matrix = np.random.default_rng(seed).standard_normal((width, SKETCH)) / np.sqrt(SKETCH)
    inputs = {id(task.X): np.asarray(task.X) @ matrix for task in tasks}
    return TaskSet([task.replace(X=inputs[id(task.X)]) for task in tasks])


def screen(tasks: TaskSet, *, seed: int = 0) -> Screening:
    """Order all unordered pairs: the larger of the two directions' predicted gain, less its standard error.

    Wide inputs are sketched first: this is to choose what is measured, not to measure. Where the linear core does not
    apply (images, very wide inputs) pairs keep the order of the tasks.
    """
    if not can_fit(tasks):
        return Screening.none(tasks.names)
    whole = TaskSet([task.replace(split=None) for task in (sketched(tasks, seed) if is_wide(tasks) else tasks)])
    table = core_of(whole, seed=seed).pairs()
    careful = table.difference - np.maximum(table.high - table.difference, 0.0) / 2
    careful = np.where(np.isfinite(careful), careful, -np.inf)
    place = {name: i for i, name in enumerate(tasks.names)}
    pairs = all_pairs(tasks.names)
    promise = [max(careful[place[a], place[b]], careful[place[b], place[a]]) for a, b in pairs]
    order = np.argsort(-np.round(promise, DIGITS), kind="stable")  # rounding, which threads change, orders no pairs
    predicted = {
        (target, source): round(float(table.difference[t, s]), DIGITS)
        for t, target in enumerate(tasks.names)
        for s, source in enumerate(tasks.names)
        if t != s
    }
    return Screening(tasks.names, tuple(pairs[i] for i in order), predicted)
