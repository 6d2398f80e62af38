"""The same declared grid for every contestant, chosen on validation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import numpy as np

from mtlens.engine.result import Trained
from mtlens.engine.run import train
from mtlens.engine.training import Training
from mtlens.errors import InputError, TrainingError, unknown

PENALTIES = (0.0, 0.01, 0.1, 1.0, 10.0)  # the pull to the identity, from none to a matrix that hardly moves


class Grid:
    """Every combination of some settings' values.

    Comparing a joint net with many candidates to single nets with few fakes a gain, so one grid serves all.

    >>> grid = Grid(lr=(1e-3, 1e-2), capacity=(10, 50))
    >>> grid.size, str(grid)
    (4, '4 candidates: lr in (0.001, 0.01) x capacity in (10, 50)')
    """

    def __init__(self, **values: Iterable[Any]) -> None:
        for name, own in values.items():
            if isinstance(own, str) or not isinstance(own, Iterable):
                raise InputError(f"Grid: {name}={own!r} is one value. Give the values to try: {name}=[{own!r}, ...].")
        self.values: dict[str, tuple[Any, ...]] = {name: tuple(own) for name, own in values.items()}
        known = {field.name for field in fields(Training)} - {"tasks", "seed"}
        for name, own in self.values.items():
            if name not in known:
                raise unknown("setting", name, sorted(known), "Grid")
            if not own:
                raise InputError(f"Grid: {name} has no values. Give at least one.")

    @property
    def size(self) -> int:
        """Number of combinations."""
        return int(np.prod([len(own) for own in self.values.values()], dtype=int))

    def candidates(self, training: Training) -> list[Training]:
        """The training with every combination."""
        return [training.but(**dict(zip(self.values, point, strict=True))) for point in product(*self.values.values())]

    def __str__(self) -> str:
        return f"{self.size} candidates: " + " x ".join(f"{name} in {own}" for name, own in self.values.items())


@dataclass(frozen=True)
class Tuned:
    """The winner of a grid, and every candidate (without models)."""

    best: Trained
    tried: tuple[Trained, ...]
    grid: Grid


def tune(
    trainings: Training | Sequence[Training],
    grid: Grid | Mapping[str, Iterable[Any]],
    *,
    keep: str = "model",
    say: Callable[[str], None] | None = None,
    **options: Any,
) -> list[Tuned]:
    """Each training with every candidate of one grid; the best validation score wins.

    All candidates of all trainings run as one call of ``train``, so they share stacks. The grid and its size are said
    first (on stderr; ``say`` takes the line elsewhere).

    Args:
        trainings: contestants, single-task and joint alike; every task needs validation rows.
        grid: a Grid, or setting -> values.
        keep: what to keep of the winners ("model", "predictions", "scores"); losers keep scores only.
        options: further arguments of ``train``.
    """
    grid = grid if isinstance(grid, Grid) else Grid(**grid)
    given = [trainings] if isinstance(trainings, Training) else list(trainings)
    _need_validation(given)
    (say or _to_stderr)(f"grid of {grid}; the same for all {len(given)} trainings ({grid.size * len(given)} in all)")
    candidates = [candidate for training in given for candidate in grid.candidates(training)]
    finished = train(candidates, keep="scores" if keep == "scores" else keep, **options)  # type: ignore[arg-type]
    return [_winner(finished[i * grid.size : (i + 1) * grid.size], grid) for i in range(len(given))]


def validation_score(trained: Trained) -> float:
    """Mean over tasks of the validation score at the chosen epoch (regression in standardised units); -inf if none."""
    valid, epoch = trained.history.get("valid", {}), trained.history.get("epoch", 0)
    known = [float(scores[epoch - 1]) for scores in valid.values() if epoch and np.isfinite(scores[epoch - 1])]
    return float(np.mean(known)) if known and trained.ok else -np.inf


def regularised(training: Training, penalties: Sequence[float] = PENALTIES, **options: Any) -> Tuned:
    """Algorithm 1 with the strength of ``|R - I|_F^2`` chosen on validation: the version worth shipping."""
    if training.align is None:
        raise InputError("regularised chooses the pull on alignments, but align is None. Set align='joint' or 'fixed'.")
    return tune(training, Grid(penalty=penalties), **options)[0]


def _winner(tried: Sequence[Trained], grid: Grid) -> Tuned:
    cut = sum(trained.reason == "interrupted" for trained in tried)
    if cut:  # choosing among those that happened to finish would not be the declared grid
        raise TrainingError(
            f"interrupted with {cut} of the {len(tried)} candidates of {tried[0].training!r} unfinished, so none is "
            "chosen. Call again with checkpoints=folder to keep what is finished."
        )
    scores = [validation_score(trained) for trained in tried]
    place = int(np.argmax(scores))
    if not np.isfinite(scores[place]):
        reasons = sorted({trained.reason for trained in tried})
        raise TrainingError(
            f"none of the {len(tried)} candidates of {tried[0].training!r} has a validation score (they ended with: "
            f"{', '.join(reasons)}). Widen the grid, for example to smaller learning rates."
        )
    best = tried[place]
    for other in tried:
        if other is not best:
            other.model = other.predictions = None
    return Tuned(best, tuple(tried), grid)


def _need_validation(trainings: Sequence[Training]) -> None:
    for training in trainings:
        for task in training.tasks:
            if not len(task.rows_of("valid")):
                raise InputError(
                    f"tune chooses on validation rows, but task {task.name!r} has none. Give it a split with 'valid'."
                )


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
