"""The two controls every alignment result stands beside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mtlens.engine.result import Trained
from mtlens.engine.training import Training

WITHOUT, ALONE = "same epochs, no alignment", "alone, twice the epochs"
PLAIN: dict[str, Any] = {"align": None, "penalty": 0.0, "align_rank": None, "align_at": None}


def control_trainings(training: Training) -> dict[str, list[Training]]:
    """Name -> trainings that differ from an aligned one only in what they control for.

    Algorithm 1 follows the path of fine-tuning and trains for longer than its baseline, so an aligned result says
    little until it is compared with the same start and the same extra epochs without ``R_i`` (the trunk then trains
    too), and with each task alone for twice the epochs.
    """
    from mtlens.engine.run import base_of

    without = training.but(**PLAIN, start_from=base_of(training))
    weights = training.weighting
    alone = [
        training.but(
            **PLAIN, tasks=task, epochs=2 * training.epochs, start_from=None, freeze=(),
            weighting=weights if isinstance(weights, str) and weights in ("svd", "uncertainty") else "equal",
        )
        for task in training.tasks
    ]  # fmt: skip
    return {WITHOUT: [without], ALONE: alone}


def add_controls(results: Sequence[Trained], run: Callable[[Sequence[Training]], list[Trained]]) -> None:
    """Train the controls of every aligned result and hang them on it: one Trained, and task -> Trained."""
    aligned = [trained for trained in results if trained.training.align is not None]
    wanted = [control_trainings(trained.training) for trained in aligned]
    finished = iter(run([training for names in wanted for own in names.values() for training in own]))
    for trained, names in zip(aligned, wanted, strict=True):
        (without,) = (next(finished) for _ in names[WITHOUT])
        alone = {training.tasks.names[0]: next(finished) for training in names[ALONE]}
        trained.controls = {WITHOUT: without, ALONE: alone}
