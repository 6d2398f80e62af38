"""Which epoch to keep, and when to stop."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mtlens.engine.prepare import Member
from mtlens.engine.training import Training


@dataclass(eq=False)
class Tracker:
    """Follows one training epoch by epoch.

    The validation score is the mean over tasks of the oriented metric, on labels in standardised units, so that a
    task measured in euros does not outvote one measured in ROC-AUC. Tasks whose metric does not exist (one class
    only) are left out of the mean; as long as none exists, the latest epoch is the one to keep.
    """

    training: Training
    losses: list[float] = field(default_factory=list)
    valid: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0  # counted from 1; 0 before the first epoch
    reason: str = ""
    _best: float = -np.inf
    _reference: float = -np.inf  # best value so far that counted as progress
    _idle: int = 0

    def end_epoch(self, loss: float, valid: dict[str, float]) -> bool:
        """Take in an epoch; True when its parameters are the ones to keep so far. Sets ``reason`` at the end."""
        self.losses.append(loss)
        self.valid.append(valid)
        if not math.isfinite(loss):
            self.fail(f"loss not finite in epoch {len(self.losses)}")
            return False
        score = _mean(valid)
        keep = self._keeps(score, valid)
        if len(self.losses) >= self.training.epochs:
            self.reason = "epochs"
        if self.training.stop == "converged" and self._has_converged(score if valid else -loss):
            self.reason = "converged"
        return keep

    def fail(self, reason: str) -> None:
        """End with a reason that is not success."""
        self.reason = reason

    @property
    def is_done(self) -> bool:
        return bool(self.reason)

    @property
    def failed(self) -> bool:
        return self.is_done and self.reason not in ("epochs", "converged")

    def history(self, member: Member) -> dict[str, Any]:
        """The record that ``Trained.history`` documents."""
        record: dict[str, Any] = {"loss": np.array(self.losses), "epoch": self.best_epoch}
        names = list(self.valid[0]) if self.valid else []
        record["valid"] = {name: np.array([scores[name] for scores in self.valid]) for name in names}
        if member.weights is not None:
            record["weights"] = dict(zip(member.names, member.weights.tolist(), strict=True))
        return record

    def _keeps(self, score: float, valid: dict[str, float]) -> bool:
        nothing_to_choose_by = not math.isfinite(max(score, self._best))
        if self.training.select == "last" or nothing_to_choose_by or score > self._best:
            self._best = score if math.isfinite(score) else self._best
            self.best_epoch = len(self.losses)
            return True
        return False

    def _has_converged(self, value: float) -> bool:
        slack = self.training.tolerance * (1.0 if self.valid[-1] else max(abs(self._reference), 1e-12))
        if not math.isfinite(self._reference) or value > self._reference + slack:
            self._reference, self._idle = value, 0
        else:
            self._idle += 1
        return self._idle >= self.training.patience


def _mean(valid: dict[str, float]) -> float:
    known = [score for score in valid.values() if math.isfinite(score)]
    return sum(known) / len(known) if known else -math.inf
