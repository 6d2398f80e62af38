"""The record that every exact solver returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray


@dataclass(frozen=True)
class Optimum:
    """A minimiser of the paper's re-weighted linear objective (eq. 2) over a rank-r shared module.

    Attributes:
        B: ``(d, r)`` shared module. Only its span is determined.
        A: ``(r, k)`` heads, one column a task.
        coef: ``(d, k)`` coefficients ``B A``, one column a task.
        loss: ``sum_i alpha_i |X_i B A_i - y_i|^2``: sums over rows, without the ridge penalty.
        excess: ``loss`` minus the weighted loss of every task's own (equally penalised) least squares. Zero or more
            without ridge; with ridge it can be negative, because the penalty is not part of either loss.
        method: how it was found: ``"closed form"``, ``"profile"`` (exact, global) or ``"alternating"`` (best of
        starts).
        start_losses: the objective, penalty included, that each start ended in; empty for exact methods.
    """

    B: Any
    A: Any
    coef: Any
    loss: Any
    excess: Any
    method: str = "closed form"
    start_losses: FloatArray = field(default_factory=lambda: np.empty(0))

    @property
    def spread(self) -> float:
        """Worst minus best start, relative to the best: 0 when all agree (or the method needs no starts)."""
        if self.start_losses.size == 0:
            return 0.0
        low, high = float(self.start_losses.min()), float(self.start_losses.max())
        return 0.0 if high <= low else (high - low) / max(abs(low), np.finfo(np.float64).tiny)
