"""What the linear core answers: a task alone, one transfer, a table of them, and a fitted model."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.errors import unknown

WORTH = 1e-3  # of R2: a smaller difference is called unsure, however regular it is over folds


@dataclass(frozen=True)
class Alone:
    """The tuned ridge of one task. ``score`` and ``folds`` are R2 (Brier skill for classes), out of fold."""

    target: str
    score: float
    folds: FloatArray
    ridge: float


@dataclass(frozen=True)
class Transfer:
    """Joint minus alone on one target, out of fold, as a share of the target's variance (R2 or Brier skill).

    Positive: joining helps. ``folds`` holds a difference a fold; ``low`` and ``high`` are a corrected resampled t
    interval from them (training sets overlap), ``p_helps`` the confidence that the difference is above zero
    (``p_hurts`` below). With one fold there is no interval (``low`` = -inf).
    """

    target: str
    sources: tuple[str, ...]
    difference: float
    low: float
    high: float
    p_helps: float
    p_hurts: float
    folds: FloatArray
    alone: float
    joint: float
    ridge: float
    weight: float

    @property
    def verdict(self) -> str:
        """Helps or hurts when the interval leaves out zero and the difference is worth naming; otherwise unsure."""
        if abs(self.difference) < WORTH:
            return "unsure"
        return "helps" if self.low > 0 else "hurts" if self.high < 0 else "unsure"


@dataclass(frozen=True, eq=False)
class PairTable:
    """Transfer for many ordered pairs; arrays are (targets, sources) and NaN where target and source are one task."""

    targets: tuple[str, ...]
    sources: tuple[str, ...]
    difference: FloatArray
    low: FloatArray
    high: FloatArray
    p_helps: FloatArray
    p_hurts: FloatArray
    folds: FloatArray  # (targets, sources, K)
    alone: FloatArray  # (targets,)
    ridge: FloatArray
    weight: FloatArray

    def get(self, target: str, source: str) -> Transfer:
        """One cell as a record."""
        for name, known in ((target, self.targets), (source, self.sources)):
            if name not in known:
                raise unknown("task", name, known)
        t, s = self.targets.index(target), self.sources.index(source)
        numbers = {k: float(getattr(self, k)[t, s]) for k in ("difference", "low", "high", "p_helps", "p_hurts")}
        alone = float(self.alone[t])
        return Transfer(
            target, (source,), **numbers, folds=self.folds[t, s], alone=alone, joint=alone + numbers["difference"],
            ridge=float(self.ridge[t, s]), weight=float(self.weight[t, s]),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A fitted linear model in original units. ``coef`` (d, q), ``intercept`` (q,).

    Predictions are clipped to ``low``..``high``, the range of the labels it was trained on, so that one row far
    outside the training inputs cannot ruin a mean; class columns are clipped to [0, 1] and brought to sum one.
    """

    target: str
    sources: tuple[str, ...]
    method: str
    coef: FloatArray
    intercept: FloatArray
    low: float
    high: float
    kind: str
    settings: dict[str, float] = field(default_factory=dict)

    @property
    def ridge(self) -> float:
        return self.settings["ridge"]

    @property
    def weight(self) -> float:
        return self.settings.get("weight", 0.0)

    def predict(self, X: Array) -> FloatArray:
        """(m,) values or probabilities of class 1; (m, K) probabilities for multiclass."""
        raw = np.asarray(X, dtype=np.float64) @ self.coef + self.intercept
        bounded: FloatArray = np.clip(raw, self.low, self.high)
        if self.kind != "multiclass":
            return bounded[:, 0]
        total = bounded.sum(axis=1, keepdims=True)
        return np.where(total > 0, bounded / np.where(total > 0, total, 1.0), 1.0 / bounded.shape[1])
