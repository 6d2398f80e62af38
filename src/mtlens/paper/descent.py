"""Studies trained by stochastic descent: trainings are collected first, then run together by the engine.

A *choice* is one model of a figure: the same tasks at every learning rate and number of epochs of the grid (Appendix
B), of which the one with the best validation score of the reported tasks is kept. Every model of a figure has the same
grid.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.paper.generators import Link

if TYPE_CHECKING:
    from mtlens.engine import Training
    from mtlens.tasks.task import Task


@dataclass(frozen=True)
class Recipe:
    """Appendix B's recipe: trunk, shared capacity, batch, and the grid of learning rates and epochs."""

    trunk: str
    capacity: int
    lrs: tuple[float, ...]
    epochs: tuple[int, ...]
    batch: int

    @property
    def grid(self) -> list[tuple[float, int]]:
        return [(lr, epochs) for lr in self.lrs for epochs in self.epochs]


Rows = tuple[FloatArray, FloatArray]


def make_task(name: str, link: Link, train: Rows, valid: Rows | None = None, test: Rows | None = None) -> Task:
    """Rows of the three splits as one task; test labels may be noise-free. Logistic tasks score by accuracy, others by
    Spearman correlation, as in the paper."""
    from mtlens.tasks.task import Task

    parts = [(part, rows) for part, rows in (("train", train), ("valid", valid), ("test", test)) if rows is not None]
    split = np.concatenate([np.full(len(rows[1]), part) for part, rows in parts])
    X, y = (np.concatenate([rows[i] for _, rows in parts]) for i in (0, 1))
    binary = link == "logistic"
    return Task(
        name, X, y, kind="binary" if binary else "regression", metric="accuracy" if binary else "spearman", split=split
    )


class Batch:
    """Collects choices, trains all of them at once, and answers with the reported tasks' test scores."""

    def __init__(self) -> None:
        self._choices: dict[Hashable, tuple[list[Training], tuple[str, ...]]] = {}
        self._scores: dict[Hashable, float] = {}

    def add(
        self, key: Hashable, tasks: Sequence[Task], recipe: Recipe, seed: int, *, report: Sequence[str], **changes: Any
    ) -> list[Training]:
        """One choice: these tasks over the recipe's grid. Returns its trainings, to start others from (``start_from``
        takes one for each point of the grid)."""
        from mtlens.engine import Training

        starts = changes.pop("start_from", [None] * len(recipe.grid))
        trainings = [
            Training(
                list(tasks),
                trunk=recipe.trunk,
                capacity=recipe.capacity,
                lr=lr,
                epochs=epochs,
                batch=recipe.batch,
                select="last",
                seed=seed,
                start_from=start,
                **changes,
            )
            for (lr, epochs), start in zip(recipe.grid, starts, strict=True)
        ]
        self._choices[key] = (trainings, tuple(report))
        return trainings

    def run(self) -> None:
        """Train everything; afterwards :meth:`score` answers."""
        from mtlens.engine import train

        flat = [training for trainings, _ in self._choices.values() for training in trainings]
        done = iter(train(flat, keep="scores"))
        for key, (trainings, report) in self._choices.items():
            tried = [next(done) for _ in trainings]
            best = max(tried, key=lambda trained: _mean(trained.scores.get("valid", {}), report))
            self._scores[key] = _mean(best.scores.get("test", {}), report, missing=0.0)

    def score(self, key: Hashable) -> float:
        """Mean test score of the reported tasks of a choice."""
        return self._scores[key]


def _mean(scores: Any, names: Sequence[str], missing: float = -np.inf) -> float:
    """Mean score; a failed training or a constant prediction (NaN) counts as ``missing``."""
    values = [float(scores.get(name, np.nan)) for name in names]
    return float(np.mean([missing if np.isnan(v) else v for v in values]))
