r"""Safe joining: how far to move from a task's own predictions towards joint ones, so that nothing is lost.

The deployed prediction is ``alone + w (joint - alone)``. The weight that fits held-out rows best is

.. math:: w_t = \max(0, \langle \delta_t, e_t\rangle / \langle \delta_t, \delta_t\rangle), \qquad
          \delta_t = joint_t - alone_t, \quad e_t = y_t - alone_t,

which is noise for a small task by itself. So a task uses half its own evidence and half that of all tasks together
(the same ratio of sums, each task's rows in units of its own variance), and no weight at all is used unless the
pooled gain, each fold judged with weights fitted to the other folds, exceeds two standard errors. Picking the
validation winner instead loses on 6 to 11 % of tasks (``docs/results/do-no-harm.md``).

The largest of several gains flatters whoever chose it by its size. So what is promised is the gain of the procedure:
in each fold the candidate, whether it is used at all, and its weights are what the other folds say (``judged``).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from mtlens.arrays import Array, FloatArray, IntArray
from mtlens.errors import InputError

OWN = 0.5  # share of a task's own evidence
THRESHOLD = 2.0  # standard errors of the pooled gain below which nothing is joined
MOST = 1.0  # the largest weight: joint predictions themselves, never beyond

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Held-out predictions of one task by the two models that would be deployed.

    Rows are those with a label; several outputs (classes) are columns. ``unit`` numbers what is independent: rows of a
    shared input have one number in all tasks, so that their common luck is counted once.
    """

    y: FloatArray  # (m, q)
    alone: FloatArray  # (m, q)
    joint: FloatArray  # (m, q)
    fold: IntArray  # (m,)
    unit: IntArray  # (m,)

    def __post_init__(self) -> None:
        shapes = {array.shape for array in (self.y, self.alone, self.joint)}
        rows = {len(array) for array in (self.y, self.fold, self.unit)}
        if len(shapes) > 1 or len(rows) > 1 or self.y.ndim != 2:
            raise InputError(f"evidence needs (m, q) labels and predictions and m folds and units, found {shapes}.")
        if not all(np.isfinite(array).all() for array in (self.y, self.alone, self.joint)):
            raise InputError("evidence needs finite labels and predictions. Leave rows without a held-out one away.")

    def take(self, rows: Array) -> Evidence:
        """Some of its rows."""
        return Evidence(self.y[rows], self.alone[rows], self.joint[rows], self.fold[rows], self.unit[rows])

    @property
    def variance(self) -> float:
        """Mean squared deviation of the labels: the unit in which tasks are compared."""
        return float(((self.y - self.y.mean(axis=0)) ** 2).sum() / max(len(self.y), 1))

    def products(self) -> tuple[FloatArray, FloatArray]:
        """``<delta, e>`` and ``<delta, delta>`` a row, as shares of the task's variance over all its rows."""
        scale = len(self.y) * max(self.variance, np.finfo(float).tiny)
        delta, error = self.joint - self.alone, self.y - self.alone
        return (delta * error).sum(axis=1) / scale, (delta * delta).sum(axis=1) / scale


@dataclass(frozen=True, eq=False)
class Gain:
    """R2 (Brier skill) gained on held-out rows, mean over tasks, by independent unit.

    ``own_gains`` and ``own_errors`` (a task) are noisy and only for information.
    """

    units: IntArray  # (n,) sorted
    by_unit: FloatArray  # (n,) summing to the gain
    own_gains: dict[str, float]
    own_errors: dict[str, float]

    @classmethod
    def of(cls, gains: Mapping[str, FloatArray], units: Mapping[str, IntArray]) -> Gain:
        """From what each row of each task gains, as a share of the task's variance over all its rows."""
        labels, place = np.unique(np.concatenate([units[name] for name in gains]), return_inverse=True)
        sums = np.bincount(place, weights=np.concatenate(list(gains.values())), minlength=len(labels))
        return cls(
            units=labels,
            by_unit=sums / len(gains),
            own_gains={name: float(rows.sum()) for name, rows in gains.items()},
            own_errors={name: _error(rows) for name, rows in gains.items()},
        )

    @property
    def gain(self) -> float:
        """Mean over tasks."""
        return float(self.by_unit.sum())

    @property
    def error(self) -> float:
        """Its standard error over units."""
        return _error(self.by_unit)

    def less(self, other: Gain) -> tuple[float, float]:
        """Gain less another on the same rows, and the standard error of the difference."""
        units = np.union1d(self.units, other.units)
        rows = np.zeros(len(units))
        for sign, part in ((1.0, self), (-1.0, other)):
            rows[np.searchsorted(units, part.units)] += sign * part.by_unit
        return float(rows.sum()), _error(rows)


@dataclass(frozen=True, eq=False)
class SafeJoin:
    """A weight a task, and the pooled evidence for using any.

    ``found`` is the gain on held-out rows with weights fitted to other folds. ``applied`` says that it exceeds
    ``threshold`` errors; else all weights are zero. ``pooled`` is the weight of a task without evidence of its own.
    """

    weights: dict[str, float]
    pooled: float
    applied: bool
    found: Gain

    @property
    def gain(self) -> float:
        return self.found.gain

    @property
    def error(self) -> float:
        return self.found.error

    @property
    def strength(self) -> float:
        """Gain in standard errors."""
        return self.gain / self.error if self.error > 0 else 0.0


def safe_join(
    evidence: Mapping[str, Evidence], *, own: float = OWN, threshold: float = THRESHOLD, most: float = MOST
) -> SafeJoin:
    """Weights on joint minus alone for every task, or none when the pooled evidence does not carry them.

    Args:
        evidence: a task's held-out predictions, by name.
        own: share of its own evidence in a task's weight; the rest is pooled.
        threshold: standard errors that the pooled gain must exceed.
        most: largest weight.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> y = rng.standard_normal((200, 1))
        >>> better, worse = y + rng.standard_normal((2, 200, 1)) * np.array([0.5, 1.0])[:, None, None]
        >>> rows = np.arange(200)
        >>> found = safe_join({"a": Evidence(y, worse, better, rows % 5, rows)})
        >>> found.applied, round(found.weights["a"], 1)
        (True, 0.8)
    """
    if not evidence:
        raise InputError("safe_join needs the held-out predictions of at least one task, found none.")
    parts = [_Sums.of(part) for part in evidence.values()]
    weights = _weights(parts, None, own, most)
    gains = dict(zip(evidence, _row_gains(parts, own, most), strict=True))
    found = Gain.of(gains, {name: part.unit for name, part in evidence.items()})
    applied = found.error > 0 and found.gain > threshold * found.error
    return SafeJoin(
        weights={name: float(w) if applied else 0.0 for name, w in zip(evidence, weights, strict=True)},
        pooled=float(np.clip(_ratio(*_total(parts, None)), 0.0, most)) if applied else 0.0,
        applied=applied,
        found=found,
    )


def best_applied(joins: Mapping[Key, SafeJoin]) -> Key | None:
    """The candidate with the largest pooled gain among those whose evidence carries it; None when none does."""
    carried = [key for key, join in joins.items() if join.applied]
    return max(carried, key=lambda key: joins[key].gain, default=None)


def judged(
    candidates: Mapping[Key, Mapping[str, Evidence]],
    *,
    own: float = OWN,
    threshold: float = THRESHOLD,
    most: float = MOST,
) -> Gain:
    """What choosing among candidates gains: each fold scores the choice, gate and weights that the others make.

    Nothing is gained in folds for which nothing is joined. Not corrected: the models behind the other folds' held-out
    predictions were trained with this fold's rows; only an outer split (``benchmarks/do_no_harm.py``) leaves these out.
    """
    rest = {"own": own, "threshold": threshold, "most": most}
    tasks = {name: part for parts in candidates.values() for name, part in parts.items()}
    units = {name: np.zeros(0, dtype=np.int64) for name in tasks}
    gains = {name: np.zeros(0) for name in tasks}
    for fold in sorted({int(f) for part in tasks.values() for f in np.unique(part.fold)}):
        joins = {
            key: safe_join(others, **rest) for key, parts in candidates.items() if (others := _without(parts, fold))
        }
        best = best_applied(joins)
        scored = tasks if best is None else candidates[best]
        for name, part in scored.items():
            rows = part.fold == fold
            cross, square = (product[rows] for product in part.products())
            w = 0.0 if best is None else joins[best].weights.get(name, joins[best].pooled)
            gains[name] = np.concatenate([gains[name], w * (2.0 * cross - w * square)])
            units[name] = np.concatenate([units[name], part.unit[rows]])
    return Gain.of(gains, units)


def _without(parts: Mapping[str, Evidence], fold: int) -> dict[str, Evidence]:
    """The evidence of all folds but one; tasks that have none there are left out."""
    return {name: part.take(part.fold != fold) for name, part in parts.items() if (part.fold != fold).any()}


@dataclass(frozen=True, eq=False)
class _Sums:
    """Products a row and a fold of one task."""

    cross: FloatArray  # (m,)
    square: FloatArray  # (m,)
    fold: IntArray
    fold_cross: FloatArray  # (K,)
    fold_square: FloatArray  # (K,)

    @classmethod
    def of(cls, part: Evidence) -> _Sums:
        cross, square = part.products()
        count = int(part.fold.max()) + 1
        crosses, squares = (
            np.asarray(np.bincount(part.fold, weights=values, minlength=count), dtype=np.float64)
            for values in (cross, square)
        )
        return cls(cross, square, part.fold, crosses, squares)

    def without(self, fold: int | None) -> tuple[float, float]:
        """Sums over the folds other than ``fold``."""
        cross, square = float(self.fold_cross.sum()), float(self.fold_square.sum())
        if fold is not None and fold < len(self.fold_cross):
            cross, square = cross - float(self.fold_cross[fold]), square - float(self.fold_square[fold])
        return cross, square


def _weights(parts: Sequence[_Sums], fold: int | None, own: float, most: float) -> FloatArray:
    """A weight a task from all folds but one: its own ratio and the pooled ratio, mixed, within 0 and ``most``."""
    sums = np.array([part.without(fold) for part in parts])
    pooled = _ratio(*_total(parts, fold))
    single = np.array([_ratio(cross, square) for cross, square in sums])
    found: FloatArray = np.clip(own * np.maximum(single, 0.0) + (1.0 - own) * max(pooled, 0.0), 0.0, most)
    return found


def _total(parts: Sequence[_Sums], fold: int | None) -> tuple[float, float]:
    """Sums over all tasks and the folds other than ``fold``."""
    cross, square = np.array([part.without(fold) for part in parts]).sum(axis=0)
    return float(cross), float(square)


def _ratio(cross: float, square: float) -> float:
    """The best weight of one set of rows, bounded so that a task without differences says nothing wild."""
    return float(np.clip(cross / square, -1.0, 2.0)) if square > 1e-12 else 0.0


def _row_gains(parts: Sequence[_Sums], own: float, most: float) -> list[FloatArray]:
    """What each row of each task gains, ``|e|^2 - |e - w delta|^2`` as a share, with weights from the other folds."""
    count = max(len(part.fold_cross) for part in parts)
    by_fold = np.stack([_weights(parts, fold, own, most) for fold in range(count)])  # (K, k)
    found = []
    for i, part in enumerate(parts):
        w = by_fold[part.fold, i]
        found.append(2.0 * w * part.cross - w * w * part.square)
    return found


def _error(rows: FloatArray) -> float:
    """Standard error of a sum of independent terms."""
    return float(rows.std(ddof=1) * np.sqrt(len(rows))) if len(rows) > 1 else float("inf")
