"""Which pairs to measure first: transfer between linear models, by cross-validation on closed forms, for every pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.models.ridge import core_of
from mtlens.study.linear import can_fit
from mtlens.study.plan import all_pairs
from mtlens.tasks import TaskSet


@dataclass(frozen=True)
class Screening:
    """Predicted transfer of every ordered pair ``(targets, sources)``, and the pairs in order of promise.

    It chooses what is measured, from the same rows that are measured afterwards: verdicts therefore count every
    screened cell in their adjustment (see :meth:`mtlens.study.cells.Judge.table`).
    """

    order: tuple[tuple[str, str], ...]
    predicted: FloatArray | None
    low: FloatArray | None
    high: FloatArray | None

    def as_dict(self) -> dict[str, Any]:
        return {"pairs": len(self.order), "by": "linear core" if self.predicted is not None else "order of the tasks"}


def screen(tasks: TaskSet, *, seed: int = 0) -> Screening:
    """Order all unordered pairs: the larger of the two directions' predicted gain, less its standard error.

    Where the linear core does not apply (images, very wide inputs) pairs keep the order of the tasks.
    """
    pairs = all_pairs(tasks.names)
    if not can_fit(tasks) or len(tasks) < 2:
        return Screening(tuple(pairs), None, None, None)
    whole = TaskSet([task.replace(split=None) for task in tasks])
    table = core_of(whole, seed=seed).pairs()
    careful = table.difference - np.maximum(table.high - table.difference, 0.0) / 2
    careful = np.where(np.isfinite(careful), careful, -np.inf)
    place = {name: i for i, name in enumerate(tasks.names)}
    promise = [max(careful[place[a], place[b]], careful[place[b], place[a]]) for a, b in pairs]
    order = np.argsort(-np.asarray(promise), kind="stable")
    return Screening(tuple(pairs[i] for i in order), table.difference, table.low, table.high)
