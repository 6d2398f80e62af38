"""The metrics' formulas on checked arrays, one batch at a time.

A metric takes labels ``y`` (B, m), predictions ``p`` (B, m) or (B, m, K), weights ``w`` (B, m) and the number of
classes (2 where there are none), and returns (B,). Rows that do not count have weight 0 and finite filler in ``y``
and ``p``; nothing here looks at them. NaN is the answer where a quantity does not exist (no positives to rank,
constant input to a correlation, no rows).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from mtlens.arrays import Array, BoolArray, FloatArray, IntArray

Formula: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray, int], FloatArray]
EPS = float(np.finfo(np.float64).eps)


def divide(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """Quotient that is NaN, silently, where the divisor is 0."""
    safe = np.where(bottom == 0, 1.0, bottom)
    return np.where(bottom == 0, np.nan, top / safe)


# Decisions ---------------------------------------------------------------------------------------------------------


def decisions(p: FloatArray) -> IntArray:
    """Predicted classes: the largest probability, the first one on ties; so (m,) needs *more* than one half."""
    decided: IntArray = p.argmax(axis=2) if p.ndim == 3 else (p > 0.5).astype(np.int64)
    return decided


def confusion(y: FloatArray, p: FloatArray, w: FloatArray, num_classes: int) -> FloatArray:
    """Weight of every (true, decided) pair, (B, K, K), by one weighted count over the whole batch."""
    batch, k = len(y), num_classes
    place = (np.arange(batch)[:, None] * k + y.astype(np.int64)) * k + decisions(p)
    counts = np.bincount(place.ravel(), weights=w.ravel(), minlength=batch * k * k)
    return counts.reshape(batch, k, k).astype(np.float64, copy=False)


def accuracy(y: FloatArray, p: FloatArray, w: FloatArray, num_classes: int) -> FloatArray:
    hits = w * (decisions(p) == y)
    return divide(hits.sum(axis=1), w.sum(axis=1))


def balanced_accuracy(y: FloatArray, p: FloatArray, w: FloatArray, num_classes: int) -> FloatArray:
    """Mean recall over the classes that occur among the labels."""
    counts = confusion(y, p, w, num_classes)
    recalls = divide(np.diagonal(counts, axis1=1, axis2=2), counts.sum(axis=2))
    return _mean_defined(recalls)


def f1(y: FloatArray, p: FloatArray, w: FloatArray, num_classes: int) -> FloatArray:
    """Two classes: F1 of class 1. More: the mean over classes that occur among labels or decisions (macro)."""
    counts = confusion(y, p, w, num_classes)
    each = divide(2 * np.diagonal(counts, axis1=1, axis2=2), counts.sum(axis=1) + counts.sum(axis=2))
    return each[:, 1] if num_classes == 2 else _mean_defined(each)


def matthews(y: FloatArray, p: FloatArray, w: FloatArray, num_classes: int) -> FloatArray:
    """Multiclass Matthews correlation (Gorodkin 2004); 0 when labels or decisions are all one class."""
    counts = confusion(y, p, w, num_classes)
    true, decided = counts.sum(axis=2), counts.sum(axis=1)
    total = true.sum(axis=1)
    hits = np.trace(counts, axis1=1, axis2=2)
    covariance = hits * total - (true * decided).sum(axis=1)
    spread = (total**2 - (decided**2).sum(axis=1)) * (total**2 - (true**2).sum(axis=1))
    varied = ((true > 0).sum(axis=1) > 1) & ((decided > 0).sum(axis=1) > 1)
    value = np.where(varied, divide(covariance, np.sqrt(np.abs(spread))), 0.0)
    return np.where(total > 0, value, np.nan)


def _mean_defined(values: FloatArray) -> FloatArray:
    """Mean over the last axis without the NaN entries; NaN where there are only those."""
    defined = ~np.isnan(values)
    return divide(np.where(defined, values, 0.0).sum(axis=-1), defined.sum(axis=-1).astype(np.float64))


# Ranking -----------------------------------------------------------------------------------------------------------


def ties(ordered: Array) -> tuple[IntArray, IntArray]:
    """First and last index of the run of equal values that each entry of the sorted (B, m) array belongs to."""
    count = ordered.shape[1]
    index = np.arange(count)
    fresh: BoolArray = np.ones(ordered.shape, dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.maximum.accumulate(np.where(fresh, index, 0), axis=1)
    ends = np.ones_like(fresh)
    ends[:, :-1] = fresh[:, 1:]
    last = np.minimum.accumulate(np.where(ends, index, count - 1)[:, ::-1], axis=1)[:, ::-1]
    return first, last


def roc_auc(y: FloatArray, p: FloatArray, w: FloatArray, num_classes: int) -> FloatArray:
    """Probability that a positive outranks a negative, ties counting one half; NaN without both classes.

    More than two classes: the mean of one class against the rest, NaN when a class does not occur.
    """
    if p.ndim == 3:
        return _one_against_rest(roc_auc, y, p, w)
    order = np.argsort(p, axis=1, kind="stable")
    first, last = ties(np.take_along_axis(p, order, axis=1))
    positive = np.take_along_axis(w * y, order, axis=1)
    below = _from_zero(np.take_along_axis(w * (1 - y), order, axis=1))
    beaten = (np.take_along_axis(below, first, axis=1) + np.take_along_axis(below, last + 1, axis=1)) / 2
    return divide((positive * beaten).sum(axis=1), positive.sum(axis=1) * below[:, -1])


def average_precision(y: FloatArray, p: FloatArray, w: FloatArray, num_classes: int) -> FloatArray:
    """Mean over positives of the precision at their score, equal scores taken at once; NaN without positives."""
    if p.ndim == 3:
        return _one_against_rest(average_precision, y, p, w)
    order = np.argsort(-p, axis=1, kind="stable")
    _, last = ties(np.take_along_axis(p, order, axis=1))
    positive = np.take_along_axis(w * y, order, axis=1)
    found = np.take_along_axis(np.cumsum(positive, axis=1), last, axis=1)
    taken = np.take_along_axis(np.cumsum(np.take_along_axis(w, order, axis=1), axis=1), last, axis=1)
    precision = np.where(taken > 0, found / np.where(taken > 0, taken, 1.0), 0.0)
    return divide((positive * precision).sum(axis=1), positive.sum(axis=1))


def _one_against_rest(metric: Formula, y: FloatArray, p: FloatArray, w: FloatArray) -> FloatArray:
    if p.shape[2] == 2:
        return metric(y, p[:, :, 1], w, 2)
    each = [metric((y == k).astype(np.float64), p[:, :, k], w, 2) for k in range(p.shape[2])]
    mean: FloatArray = np.stack(each).mean(axis=0)
    return mean


def _from_zero(steps: FloatArray) -> FloatArray:
    """Running sums that start with 0: (B, m) to (B, m + 1)."""
    sums = np.zeros((steps.shape[0], steps.shape[1] + 1))
    np.cumsum(steps, axis=1, out=sums[:, 1:])
    return sums


# Probabilities -----------------------------------------------------------------------------------------------------


def log_loss(y: FloatArray, p: FloatArray, w: FloatArray, num_classes: int) -> FloatArray:
    """Mean of ``-log p(label)``, natural logarithm, probabilities kept one float64 epsilon away from 0 and 1."""
    if p.ndim == 3:
        own = np.take_along_axis(p, y.astype(np.int64)[:, :, None], axis=2)[:, :, 0]
    else:
        own = np.where(y > 0, p, 1 - p)
    loss: FloatArray = -np.log(np.clip(own, EPS, 1 - EPS))
    return divide((w * loss).sum(axis=1), w.sum(axis=1))


# Numbers -----------------------------------------------------------------------------------------------------------


def r2(y: FloatArray, p: FloatArray, w: FloatArray, num_classes: int) -> FloatArray:
    """1 - residual / total sum of squares. Constant labels: 1 if met exactly, else 0. Fewer than two rows: NaN."""
    centre = divide((w * y).sum(axis=1), w.sum(axis=1))[:, None]
    residual = (w * (y - p) ** 2).sum(axis=1)
    total = (w * (y - centre) ** 2).sum(axis=1)
    constant = is_constant(y, w) | (total == 0)
    value = np.where(constant, (residual == 0).astype(np.float64), 1 - divide(residual, total))
    return np.where((w > 0).sum(axis=1) > 1, value, np.nan)


def rmse(y: FloatArray, p: FloatArray, w: FloatArray, num_classes: int) -> FloatArray:
    error: FloatArray = np.sqrt(divide((w * (y - p) ** 2).sum(axis=1), w.sum(axis=1)))
    return error


def pearson(y: FloatArray, p: FloatArray, w: FloatArray, num_classes: int) -> FloatArray:
    """Correlation; NaN when labels or predictions are constant or there are fewer than two rows."""
    a, b = _centred(y, w), _centred(p, w)
    top = (w * a * b).sum(axis=1)
    value = divide(top, np.sqrt((w * a**2).sum(axis=1)) * np.sqrt((w * b**2).sum(axis=1)))
    return np.where(is_constant(y, w) | is_constant(p, w), np.nan, np.clip(value, -1.0, 1.0))


def spearman(y: FloatArray, p: FloatArray, w: FloatArray, num_classes: int) -> FloatArray:
    """Pearson's correlation of ranks, ties sharing their middle; a row of weight 3 counts as three equal rows."""
    return pearson(middle_ranks(y, w), middle_ranks(p, w), w, num_classes)


def middle_ranks(values: FloatArray, w: FloatArray) -> FloatArray:
    """Weight below each value plus half of the weight at it: ordinary mid-ranks less 1/2 when all weights are 1."""
    order = np.argsort(values, axis=1, kind="stable")
    first, last = ties(np.take_along_axis(values, order, axis=1))
    sums = _from_zero(np.take_along_axis(w, order, axis=1))
    ranks = np.empty_like(values)
    middle = (np.take_along_axis(sums, first, axis=1) + np.take_along_axis(sums, last + 1, axis=1)) / 2
    np.put_along_axis(ranks, order, middle, axis=1)
    return ranks


def is_constant(values: FloatArray, w: FloatArray) -> BoolArray:
    """Whether the rows that count hold one value; compared exactly, as a rounded mean would hide it."""
    counts = w > 0
    if values.shape[1] == 0:
        return np.ones(len(values), dtype=bool)
    low = np.where(counts, values, np.inf).min(axis=1)
    high = np.where(counts, values, -np.inf).max(axis=1)
    constant: BoolArray = low >= high
    return constant


def _centred(values: FloatArray, w: FloatArray) -> FloatArray:
    """Values less their mean, scaled to at most 1 so that squares neither overflow nor vanish."""
    centred = values - divide((w * values).sum(axis=1), w.sum(axis=1))[:, None]
    largest = np.abs(np.where(w > 0, centred, 0.0)).max(axis=1, initial=0.0)[:, None]
    return centred / np.where(largest > 0, largest, 1.0)
