"""Finished and half-finished trainings of a call, kept in a folder so that a second call goes on where one stopped."""

from __future__ import annotations

import os
from pathlib import Path

from mtlens.arrays import FloatArray
from mtlens.engine.checkpoints import has_tree, remove_tree
from mtlens.engine.result import Trained
from mtlens.engine.saving import NAME, load_trained, save_trained
from mtlens.engine.solo import CHECKPOINT
from mtlens.engine.training import Training
from mtlens.tasks.task import SPLIT_NAMES

DIGITS = 24  # of an identity that name a folder


class Shelf:
    """One folder a training, named by its identity, so only the same data and settings find it again.

    A finished training is read back instead of trained. One that ran alone goes on exactly from its last epoch
    written; one from a stack starts over, with the same result.
    """

    def __init__(self, folder: str | os.PathLike[str], keep: str) -> None:
        self.folder, self.keep = Path(folder), keep

    def place(self, training: Training) -> Path:
        """The folder of one training."""
        return self.folder / training.identity[:DIGITS]

    def find(self, training: Training) -> Trained | None:
        """A finished training with what ``keep`` asks for; None when it has to be trained."""
        place = self.place(training)
        if not has_tree(place, name=NAME):
            return None
        trained = load_trained(place, trunk=None if isinstance(training.trunk, str) else training.trunk)
        if trained.identity != training.identity or (self.keep != "scores" and trained.model is None):
            return None
        trained.training = training
        if self.keep == "predictions":
            trained.predictions = _predictions(trained)
        if self.keep == "scores":
            trained.model = None
        return trained

    def put(self, trained: Trained) -> None:
        """Write a finished training; failed and interrupted ones are trained again next time."""
        if trained.ok:
            place = self.place(trained.training)
            save_trained(trained, place)
            remove_tree(place, name=CHECKPOINT)


def _predictions(trained: Trained) -> dict[str, dict[str, FloatArray]]:
    model = trained.model
    assert model is not None
    found: dict[str, dict[str, FloatArray]] = {}
    for split in SPLIT_NAMES:
        for task in trained.training.tasks:
            rows = task.rows_of(split)
            if len(rows):
                found.setdefault(split, {})[task.name] = model.predict(task.name, task.take(rows))
    return found
