"""Which tasks to train together when only so many models are wanted.

A grouping puts every task in one group; a task gains the mean of its measured (or predicted) transfers from the other
members, nothing when it is alone. Means of pairs overstate little and rank well, but they are not measurements of the
group: measure the chosen one. "Keep X alone" is a normal answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtlens.arrays import FloatArray, IntArray
from mtlens.errors import InputError

EXACT = 16  # tasks up to which every grouping is considered; beyond, greedy merging and swaps
DRAWS = 100  # of the bootstrap
MOST_SWEEPS = 50


@dataclass(frozen=True)
class Grouping:
    """Groups of task numbers, the mean predicted gain over tasks, and how stable they are.

    ``together`` (k, k) is the share of bootstrap draws that put two tasks in one group; ``stability`` a group's mean of
    it over its pairs (for a single task the share of draws in which it stays alone). ``exact`` says that no grouping is
    better on these numbers.
    """

    groups: tuple[tuple[int, ...], ...]
    gain: float
    exact: bool
    together: FloatArray
    stability: tuple[float, ...]


def best_groups(
    transfer: FloatArray, *, errors: FloatArray | None = None, max_models: int | None = None, seed: int = 0
) -> Grouping:
    """The grouping of largest mean gain with at most ``max_models`` groups.

    Args:
        transfer: ``(k, k)`` gain of each target (row) from each source; the diagonal is not read, NaN counts as 0.
        errors: ``(k, k)`` standard errors, for the bootstrap; None leaves the numbers as they are.
        max_models: most groups; None for no limit.
        seed: of the bootstrap.

    Example:
        >>> gains = np.array([[0, 2, -1], [2, 0, -1], [-1, -1, 0]])
        >>> best_groups(gains).groups
        ((0, 1), (2,))
    """
    D = _checked(transfer)
    count = len(D)
    limit = count if max_models is None else max_models
    if limit < 1:
        raise InputError(f"max_models={max_models} is no number of models. Use 1 or more.")
    exact = count <= EXACT
    chosen = _exact(D, limit) if exact else _greedy(D, limit)
    together = _together(D, errors, limit, seed) if count > 1 else np.ones((1, 1))
    return Grouping(
        groups=chosen,
        gain=_value(D, chosen) / count,
        exact=exact,
        together=together,
        stability=tuple(_stability(together, group) for group in chosen),
    )


def _checked(transfer: FloatArray) -> FloatArray:
    D = np.array(transfer, dtype=np.float64)
    if D.ndim != 2 or D.shape[0] != D.shape[1] or not len(D):
        raise InputError(f"best_groups needs a square matrix of transfers, found shape {D.shape}.")
    D[~np.isfinite(D)] = 0.0
    np.fill_diagonal(D, 0.0)
    return D


def _value(D: FloatArray, groups: Sequence[Sequence[int]]) -> float:
    return sum(_group_value(D, group) for group in groups)


def _group_value(D: FloatArray, group: Sequence[int]) -> float:
    """Sum over members of the mean transfer from the others."""
    if len(group) < 2:
        return 0.0
    return float(D[np.ix_(group, group)].sum()) / (len(group) - 1)


# ---------------------------------------------------------------------- exact


def _exact(D: FloatArray, limit: int) -> tuple[tuple[int, ...], ...]:
    """Dynamic programme over subsets: best value of every set of tasks in at most 1, 2, ... ``limit`` groups.

    The group of a set's highest task is tried in all ways; for each choice all remaining sets are done at once. Without
    a limit one layer is enough, in which a set builds on smaller sets of the same layer.
    """
    count = len(D)
    worth = _subset_values(D)
    limited = limit < count
    best = np.full((limit + 1 if limited else 1, 1 << count), -np.inf)
    best[:, 0] = 0.0
    choice = np.zeros(best.shape, dtype=np.int64)
    fewer, best_now, choice_now = (best[:-1], best[1:], choice[1:]) if limited else (best, best, choice)
    for top in range(count):
        bit = 1 << top
        for rest in range(bit):
            group = bit | rest
            others = _subsets(bit - 1 - rest)  # sets of lower tasks outside the group
            whole = group | others
            values = worth[group] + fewer[:, others]
            better = values > best_now[:, whole]
            best_now[:, whole] = np.where(better, values, best_now[:, whole])
            choice_now[:, whole] = np.where(better, group, choice_now[:, whole])
    return _traced(best, choice, count)


def _subset_values(D: FloatArray) -> FloatArray:
    """Value of every subset as a group, by adding one task at a time."""
    count = len(D)
    both = D + D.T
    total = np.zeros(1 << count)
    for top in range(count):
        lower = np.arange(1 << top)
        members = ((lower[:, None] >> np.arange(max(top, 1))) & 1) @ both[top, : max(top, 1)] if top else np.zeros(1)
        total[(1 << top) + lower] = total[lower] + members
    sizes = np.array([mask.bit_count() for mask in range(1 << count)])
    values: FloatArray = total / np.maximum(sizes - 1, 1)
    return values


def _subsets(mask: int) -> IntArray:
    """All subsets of a set of bits."""
    found = np.zeros(1, dtype=np.int64)
    while mask:
        bit = mask & -mask
        found = np.concatenate([found, found | bit])
        mask ^= bit
    return found


def _traced(best: FloatArray, choice: IntArray, count: int) -> tuple[tuple[int, ...], ...]:
    mask, layer = (1 << count) - 1, int(np.argmax(best[:, -1]))
    groups = []
    while mask:
        group = int(choice[layer, mask])
        groups.append(tuple(i for i in range(count) if group >> i & 1))
        mask, layer = mask ^ group, max(layer - 1, 0)
    return tuple(sorted(groups))


# ---------------------------------------------------------------------- greedy


def _greedy(D: FloatArray, limit: int) -> tuple[tuple[int, ...], ...]:
    """Merge the pair of groups that gains most (or loses least, while too many), then move single tasks."""
    label = _merged(D, limit)
    label = _moved(D, label, limit)
    return tuple(sorted(tuple(int(i) for i in np.flatnonzero(label == g)) for g in np.unique(label)))


def _merged(D: FloatArray, limit: int) -> IntArray:
    sums = D + D.T  # between two groups: all transfers either way
    sizes, inner = np.ones(len(D)), np.zeros(len(D))
    alive = np.ones(len(D), dtype=bool)
    label = np.arange(len(D))
    while alive.sum() > 1:
        values = np.where(sizes > 1, inner / np.maximum(sizes - 1, 1), 0.0)
        gain = (inner[:, None] + inner + sums) / np.maximum(sizes[:, None] + sizes - 1, 1) - values[:, None] - values
        gain[~alive, :] = gain[:, ~alive] = -np.inf
        np.fill_diagonal(gain, -np.inf)
        a, b = divmod(int(np.argmax(gain)), len(D))
        if gain[a, b] <= 0 and alive.sum() <= limit:
            break
        inner[a] += inner[b] + sums[a, b]
        sizes[a] += sizes[b]
        sums[a], sums[:, a] = sums[a] + sums[b], sums[:, a] + sums[:, b]
        alive[b] = False
        label[label == b] = a
    return label


def _moved(D: FloatArray, label: IntArray, limit: int) -> IntArray:
    """Move one task at a time to the group (or a group of its own) where the sum of values grows most."""
    both = D + D.T
    for _ in range(MOST_SWEEPS):
        changed = False
        for i in range(len(D)):
            groups = np.unique(label)
            member = (label == groups[:, None]).astype(np.float64)  # (g, k)
            member[:, i] = 0.0
            sizes, links = member.sum(axis=1), member @ both[i]
            inner = 0.5 * np.einsum("gi,ij,gj->g", member, both, member)
            without = inner / np.maximum(sizes - 1, 1)
            gains = (inner + links) / np.maximum(sizes, 1) - without
            own = int(np.flatnonzero(groups == label[i])[0])
            free = len(groups) < limit and sizes[own] > 0
            target = int(np.argmax(gains))
            if free and gains[target] < -1e-12:
                label[i], changed = label.max() + 1, True
            elif gains[target] > gains[own] + 1e-12:
                label[i], changed = groups[target], True
        if not changed:
            break
    return label


# ---------------------------------------------------------------------- stability


def _together(D: FloatArray, errors: FloatArray | None, limit: int, seed: int) -> FloatArray:
    """Share of draws, each with fresh noise of the given errors, in which two tasks share a group."""
    random = np.random.default_rng(seed)
    spread = np.zeros_like(D) if errors is None else np.nan_to_num(np.asarray(errors, dtype=np.float64))
    counts = np.zeros_like(D)
    draws = 1 if errors is None else DRAWS if len(D) <= 60 else max(10, 6000 // len(D))
    for _ in range(draws):
        noisy = D + spread * random.standard_normal(D.shape)
        np.fill_diagonal(noisy, 0.0)
        for group in _greedy(noisy, limit):
            counts[np.ix_(group, group)] += 1
    return counts / draws


def _stability(together: FloatArray, group: Sequence[int]) -> float:
    if len(group) == 1:
        others = np.delete(together[group[0]], group[0])
        return float(1.0 - others.max()) if len(others) else 1.0
    block = together[np.ix_(group, group)]
    size = len(group)
    return float((block.sum() - np.trace(block)) / (size * (size - 1)))
