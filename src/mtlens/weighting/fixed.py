"""Task weights that are known before training starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from mtlens.arrays import Array, FloatArray


@dataclass(frozen=True)
class WeightInputs:
    """What weights may be computed from: one task's train rows.

    ``X (m, d)`` as the trunk sees it; ``y (m,)`` codes or numbers with NaN for missing; ``classes`` is the number of
    classes of a multiclass task, else 0.
    """

    X: Array
    y: FloatArray
    classes: int = 0


@lru_cache(maxsize=256)  # one array for all trainings that weigh so many tasks alike
@cache
def equal_weights(count: int) -> FloatArray:
    """One each: the paper's unweighted sum. Read-only, one array for all who ask."""
    ones = np.ones(count)
    ones.flags.writeable = False
    return ones


def svd_task_weights(tasks: Sequence[WeightInputs], *, rank: int, shared: bool) -> FloatArray:
    """Algorithm 2's weights with mean 1, on centred inputs and labels of unit norm (see ``theory.svd_weights``).

    A multiclass task enters as its class indicators and gets the root mean square of their weights. The rank is cut
    to the number of label columns. Missing labels of shared inputs enter as the column's mean, which adds nothing to
    ``X^T y``.
    """
    columns = [_label_columns(task) for task in tasks]
    owner = np.repeat(np.arange(len(tasks)), [c.shape[1] for c in columns])
    alphas = _shared(tasks, columns, rank) if shared else _separate(tasks, columns, rank)
    each = np.sqrt(np.bincount(owner, alphas**2) / np.bincount(owner))
    total = each.sum()
    return each * len(each) / total if total > 0 else np.ones(len(each))


def random_weights(draws: np.random.Generator, steps: int, count: int) -> FloatArray:
    """Random loss weighting (Lin et al. 2022): ``count * softmax(normal)`` afresh at every step, ``(steps, count)``."""
    normal = draws.standard_normal((steps, count))
    shares = np.exp(normal - normal.max(axis=1, keepdims=True))
    weights: FloatArray = count * shares / shares.sum(axis=1, keepdims=True)
    return weights


def uncertainty_start(kinds: Sequence[str]) -> FloatArray:
    """Log-variances ``s`` at which every task weighs 1: ``exp(-s) / 2 = 1`` (regression) or ``exp(-s) = 1``."""
    return np.array([-np.log(2.0) if kind == "regression" else 0.0 for kind in kinds])


def _shared(tasks: Sequence[WeightInputs], columns: Sequence[Array], rank: int) -> FloatArray:
    from mtlens.theory import svd_weights

    Y = np.concatenate(columns, axis=1)
    return np.asarray(svd_weights(tasks[0].X, Y, rank=min(rank, Y.shape[1]), normalise=None), dtype=np.float64)


def _separate(tasks: Sequence[WeightInputs], columns: Sequence[Array], rank: int) -> FloatArray:
    from mtlens.theory import svd_weights_separate

    pairs = [(t.X[~np.isnan(t.y)], c[~np.isnan(t.y)]) for t, c in zip(tasks, columns, strict=True)]
    Xs = [X for X, labels in pairs for _ in range(labels.shape[1])]
    ys = [labels[:, i] for _, labels in pairs for i in range(labels.shape[1])]
    return np.asarray(svd_weights_separate(Xs, ys, rank=min(rank, len(ys))), dtype=np.float64)


def _label_columns(task: WeightInputs) -> FloatArray:
    """``(m, 1)`` labels, or ``(m, classes)`` indicators; missing ones replaced by the column's mean."""
    known = ~np.isnan(task.y)
    if task.classes:
        columns = np.where(known[:, None], task.y[:, None] == np.arange(task.classes), np.nan).astype(np.float64)
    else:
        columns = task.y[:, None].copy()
    means = columns[known].mean(axis=0)
    filled: FloatArray = np.where(np.isnan(columns), means, columns)
    return filled
