r"""What repeated splits of one data set can and cannot prove.

Splits of the same rows overlap, so their differences are correlated and the ordinary t interval is far too short.
With ``n`` splits, sample variance ``s^2`` and ``r = test rows / other rows``, the mean difference has the squared
standard error ``factor * s^2`` and is compared with a t distribution of ``n - 1`` degrees of freedom. For splits drawn
independently the factor is Nadeau and Bengio's ("Inference for the generalization error", 2003),

.. math:: 1/n + r.

For *complete repeats of K folds* (what a study draws by default) every row is tested equally often, so drawing splits
adds almost no error of its own, and Nadeau and Bengio's factor over-covers (above 99 % for R2 at n = 20). Then

.. math:: f + (r - f)\, K / n, \qquad f = r / (1 + r) = 1/K,

where ``f`` is what the rows themselves leave uncertain (no number of splits removes it) and the rest averages out over
repeats. Both are heuristics: they assume how strongly splits are correlated. The committed simulation
(``docs/results/statistics.md``) says how well each covers. The *estimand* is the mean, over data sets of this size and
over splits, of the difference between the two procedures when trained on this many rows, the sources given. It is not
the difference between two fixed models, and not what would happen with more rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.special import stdtr, stdtrit

from mtlens.arrays import Array, BoolArray, FloatArray
from mtlens.errors import InputError

VerdictName: TypeAlias = Literal["helps", "hurts", "no difference", "undecided"]
VERDICTS: tuple[VerdictName, ...] = ("helps", "hurts", "no difference", "undecided")
MORE_ROWS = "more rows"
ERROR = 0.05  # two-sided, over all cells of a study and all looks
LOOKS = (5, 10, 20)
# The first look has 4 degrees of freedom and little power whatever it is given; the later two share most of it.
SHARES: dict[tuple[int, ...], tuple[float, ...]] = {LOOKS: (0.2, 0.4, 0.4)}
MOST_SPLITS = 1000  # beyond this, "more splits" is no advice


@dataclass(frozen=True)
class Comparison:
    """Joint minus alone, with its uncertainty; every field is an array of one shape (one entry a cell).

    ``low, high`` is the 95 % interval, ``low90, high90`` the 90 % one, ``p`` two-sided for "no difference at all".
    """

    difference: FloatArray
    low: FloatArray
    high: FloatArray
    low90: FloatArray
    high90: FloatArray
    p: FloatArray
    spread: FloatArray  # standard deviation over splits
    n: int


def variance_factor(n: Any, ratio: Any, *, balanced: bool) -> FloatArray:
    """Squared standard error of a mean over ``n`` splits, in units of their sample variance (see the module).

    ``balanced`` says the splits are repeats of complete K-fold partitions; fewer than one complete repeat of them is
    judged as independent splits.

    >>> float(variance_factor(10, 0.25, balanced=False)), float(variance_factor(10, 0.25, balanced=True))
    (0.35, 0.225)
    """
    n, r = np.asarray(n, np.float64), np.asarray(ratio, np.float64)
    independent = 1.0 / n + r
    if not balanced:
        return np.asarray(independent)
    f = r / (1.0 + r)
    return np.asarray(np.where(n * f >= 1.0 - 1e-6, f + (r - f) / np.maximum(n * f, 1e-300), independent))


def compare_splits(differences: Any, ratio: Any, *, balanced: bool = False) -> Comparison:
    """The corrected resampled t comparison of each cell.

    When all splits agree exactly the t statistic is 0/0 or infinite. Agreement on a difference of 0 is no evidence of
    a difference (p = 1); agreement on any other value is judged by the sign test, ``p = 2 * 2^-n``.

    Args:
        differences: ``(..., n)`` joint minus alone, one a split (average over seeds first).
        ratio: test rows over all other rows of the target, a number or one a cell.
        balanced: whether the splits are repeats of complete K-fold partitions.

    >>> result = compare_splits([0.02, 0.03, 0.01, 0.02, 0.02], ratio=0.25)
    >>> float(result.difference.round(3)), float(result.p.round(3))
    (0.02, 0.014)
    """
    values = np.asarray(differences, np.float64)
    n = values.shape[-1]
    if n == 0 or not np.isfinite(values).all():
        raise InputError(f"compare_splits needs finite differences of at least one split, found shape {values.shape}.")
    mean = values.mean(-1)
    if n == 1:
        unknown = np.full(mean.shape, np.inf)
        return Comparison(
            mean, -unknown, unknown, -unknown, unknown, np.ones(mean.shape), np.full(mean.shape, np.nan), 1
        )

    spread = values.std(-1, ddof=1)
    spread = np.where(spread <= 1e-12 * np.maximum(np.abs(mean), 1e-300), 0.0, spread)  # rounding of equal numbers
    error = np.sqrt(variance_factor(n, ratio, balanced=balanced)) * spread
    p = _two_sided(mean, error, n)
    half, half90 = (stdtrit(n - 1, 0.5 + level / 2) * error for level in (0.95, 0.90))
    return Comparison(mean, mean - half, mean + half, mean - half90, mean + half90, p, spread, n)


def _two_sided(mean: FloatArray, error: FloatArray, n: int) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * stdtr(n - 1, -np.abs(mean / error))
    agreed = np.where(mean == 0, 1.0, min(1.0, 2.0 * 0.5**n))
    return np.asarray(np.where(error > 0, p, agreed))


def benjamini_hochberg(p: Any) -> FloatArray:
    """Adjusted p values: rejecting those at most ``q`` keeps the expected share of false rejections at most ``q``.

    ``adjusted_(i) = min_{j >= i} p_(j) * m / j`` over the sorted values. When every null holds, the chance of any
    rejection is at most ``q`` too. NaN entries stay NaN and are not counted.

    >>> benjamini_hochberg([0.01, 0.04, 0.03, 0.5]).round(3).tolist()
    [0.04, 0.053, 0.053, 0.5]
    """
    values = np.asarray(p, np.float64)
    flat = values.ravel()
    known = np.flatnonzero(~np.isnan(flat))
    order = known[np.argsort(flat[known], kind="stable")]
    m = len(order)
    stepped = flat[order] * m / np.arange(1, m + 1)
    adjusted = np.full(flat.shape, np.nan)
    adjusted[order] = np.minimum(np.minimum.accumulate(stepped[::-1])[::-1], 1.0)
    return adjusted.reshape(values.shape)


def look_shares(looks: Sequence[int]) -> tuple[float, ...]:
    """How the error is spent over fixed looks: shares that sum to 1 (one look spends all of it)."""
    given = tuple(looks)
    if not given or list(given) != sorted(set(given)) or given[0] < 2:
        raise InputError(
            f"looks must be increasing numbers of splits, at least 2, found {list(given)}. Try (5, 10, 20)."
        )
    return SHARES.get(given, (1.0 / len(given),) * len(given))


def sequential_p(p_by_look: Any, looks: Sequence[int]) -> FloatArray:
    """One p value for a cell that was looked at several times: ``min_k p_k / share_k`` (a Bonferroni over looks).

    Valid whatever the correlation of the looks and whatever rule stopped the cell. NaN marks looks not taken.

    Args:
        p_by_look: ``(..., looks)``.
    """
    values = np.asarray(p_by_look, np.float64)
    shares = np.asarray(look_shares(looks))
    scaled = np.where(np.isnan(values), np.inf, values) / shares
    smallest = np.minimum(scaled.min(-1), 1.0)
    return np.asarray(np.where(np.isnan(values).all(-1), np.nan, smallest))


def judge(comparison: Comparison, p_adjusted: Any, margin: Any) -> Array:
    """The verdict of every cell.

    helps / hurts: ``p_adjusted <= 0.05`` and ``|difference| >= margin``; no difference: the 90 % interval lies inside
    ``[-margin, margin]`` (two one-sided tests at 5 %); anything else is undecided. A difference that is significant
    but smaller than the margin is therefore never "helps".
    """
    d, adjusted = comparison.difference, np.asarray(p_adjusted, np.float64)
    clear = (adjusted <= ERROR) & (np.abs(d) >= margin)
    equal = (comparison.low90 >= -np.asarray(margin)) & (comparison.high90 <= margin)
    named = np.select([clear & (d > 0), clear & (d < 0), equal], VERDICTS[:3], default="undecided")
    return np.asarray(named, dtype=object)


def splits_needed(
    difference: float, spread: float, n: int, ratio: float, factor: float, margin: float, *, balanced: bool = False
) -> int | str:
    """How many *further* splits would decide a cell, if its mean and spread stay as they are, or "more rows".

    The standard error never falls below what the rows leave uncertain: past that point splits add nothing and only
    rows can. ``factor`` is what multiplicity and looks cost: ``p_adjusted / p`` of the cell.
    """
    counts = np.arange(max(n + 1, 2), MOST_SPLITS + 1)
    if not np.isfinite(spread):
        return 2
    error = np.sqrt(variance_factor(counts, ratio, balanced=balanced)) * spread
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(error > 0, 2 * stdtr(counts - 1, -abs(difference) / error), 2.0 * 0.5**counts)
    clear = (p * max(factor, 1.0) <= ERROR) & (abs(difference) >= margin)
    equal = abs(difference) + stdtrit(counts - 1, 0.95) * error <= margin
    decided: BoolArray = clear | equal
    return int(counts[decided][0] - n) if decided.any() else MORE_ROWS


def paired_bootstrap(
    difference: Callable[[Array], FloatArray],
    rows: int,
    *,
    groups: Array | None = None,
    draws: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Joint minus alone on one official test set, by resampling its rows (or its groups) with both models paired.

    The estimand is narrower than that of :func:`compare_splits`: these two trained models on new rows, not the two
    procedures on new training data. ``n`` is 1 (one split). ``p`` is twice the smaller tail, at least ``2/(draws+1)``.

    Args:
        difference: maps ``(draws, m)`` or ``(m',)`` row indices to joint minus alone for each resample; NaN where a
            resample cannot be scored (a single class), and such resamples are left out.
        rows: number of labelled test rows m.
        groups: ``(m,)`` labels of rows that stay together.
    """
    rng = np.random.default_rng(seed)
    everything = np.asarray(difference(np.arange(rows)[None]), np.float64)[0]
    if groups is None:
        parts = np.array_split(rng.integers(0, rows, (draws, rows)), max(1, draws * rows // 2_000_000))
        values = np.concatenate([np.asarray(difference(part), np.float64) for part in parts])
    else:
        _, codes = np.unique(groups, return_inverse=True)
        members = [np.flatnonzero(codes == g) for g in range(codes.max() + 1)]
        picks = (rng.integers(0, len(members), len(members)) for _ in range(draws))
        values = np.asarray([difference(np.concatenate([members[g] for g in pick])[None])[0] for pick in picks])

    values = values[np.isfinite(values)]
    if len(values) < draws / 2:
        nothing = np.asarray(np.inf)
        return Comparison(everything, -nothing, nothing, -nothing, nothing, np.ones(()), np.asarray(np.nan), 1)
    low, low90, high90, high = (np.asarray(q) for q in np.quantile(values, [0.025, 0.05, 0.95, 0.975]))
    tail = (1 + min((values <= 0).sum(), (values >= 0).sum())) / (len(values) + 1)
    p = np.asarray(min(1.0, 2 * tail))
    return Comparison(everything, low, high, low90, high90, p, np.asarray(values.std(ddof=1)), 1)
