"""Which tasks to train together when only so many models are wanted.

A grouping puts every task in one group; a task gains the mean of its measured (or predicted) transfers from the other
members, nothing when it is alone. Means of pairs overstate little and rank well, but they are not measurements of the
group: measure the chosen one. "Keep X alone" is a normal answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from mtlens.arrays import FloatArray, IntArray
from mtlens.errors import InputError

EXACT = 20  # tasks up to which every grouping is considered; beyond, greedy merging and moves
LEAF = (4, 7)  # bits of a convolution that are gone through one by one, and at once
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
    transfer: FloatArray,
    *,
    errors: FloatArray | None = None,
    max_models: int | None = None,
    seed: int = 0,
    exact: int = EXACT,
) -> Grouping:
    """The grouping of largest mean gain with at most ``max_models`` groups.

    Args:
        transfer: ``(k, k)`` gain of each target (row) from each source; the diagonal is not read, NaN counts as 0.
        errors: ``(k, k)`` standard errors, for the bootstrap; None leaves the numbers as they are.
        max_models: most groups; None for no limit.
        seed: of the bootstrap.
        exact: tasks up to which every grouping is considered: 0.1 s at 16, 1 s at 18, 6 s at 20 (seconds times the
            logarithm of a limit).

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
    chosen = _exact(D, limit) if count <= exact else _greedy(D, limit)
    together = _together(D, errors, limit, seed) if count > 1 else np.ones((1, 1))
    return Grouping(
        groups=chosen,
        gain=_value(D, chosen) / count,
        exact=count <= exact,
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
    """The best grouping of all: values of every set of tasks in at most 1, 2, ... groups, by convolutions over subsets.

    Without a limit the best value of a set is that of its highest task's group plus the best value of the rest, a
    smaller set. A limit that this exceeds needs sets in at most ``n`` groups, which are made of sets in at most
    ``n - n // 2`` and ``n // 2`` groups: as many convolutions as a limit has binary digits, and some.
    """
    worth = _subset_values(D)
    free = _free_values(worth)
    groups = _split_freely(free, worth, len(worth) - 1)
    if len(groups) > limit:
        groups = _split(_Limited(worth), len(worth) - 1, limit)
    return tuple(sorted(tuple(i for i in range(len(D)) if group >> i & 1) for group in groups))


def _free_values(worth: FloatArray) -> FloatArray:
    """(2^k,) best value of every set of tasks in any number of groups."""
    best = np.zeros(len(worth))
    for top in range(len(worth).bit_length() - 1):
        bit = 1 << top
        best[bit : 2 * bit] = _max_convolution(worth[bit : 2 * bit], best[:bit])
    return best


def _split_freely(best: FloatArray, worth: FloatArray, tasks: int) -> list[int]:
    """The groups that make the best value of a set of tasks."""
    groups = []
    while tasks:
        bit = 1 << (tasks.bit_length() - 1)
        inside = bit | _subsets(tasks ^ bit)
        groups.append(int(inside[np.argmax(worth[inside] + best[tasks ^ inside])]))
        tasks ^= groups[-1]
    return groups


class _Limited:
    """Best values of every set of tasks in at most ``n`` groups, made when first asked for."""

    def __init__(self, worth: FloatArray) -> None:
        self.values = {1: worth}

    def at_most(self, count: int) -> FloatArray:
        if count not in self.values:
            first, second = self.at_most(count - count // 2), self.at_most(count // 2)
            best = np.zeros(len(first))
            for top in range(len(first).bit_length() - 1):  # a set's highest task is in the first part
                bit = 1 << top
                best[bit : 2 * bit] = _max_convolution(first[bit : 2 * bit], second[:bit])
            self.values[count] = best
        return self.values[count]


def _split(limited: _Limited, tasks: int, count: int) -> list[int]:
    """The at most ``count`` groups that make the best value of a set of tasks; only its last halving is searched."""
    if not tasks:
        return []
    if count == 1:
        return [tasks]
    bit = 1 << (tasks.bit_length() - 1)
    inside = bit | _subsets(tasks ^ bit)
    first, second = limited.at_most(count - count // 2), limited.at_most(count // 2)
    part = int(inside[np.argmax(first[inside] + second[tasks ^ inside])])
    return _split(limited, part, count - count // 2) + _split(limited, tasks ^ part, count // 2)


def _max_convolution(a: FloatArray, b: FloatArray) -> FloatArray:
    """``h[S] = max a[T] + b[S - T]`` over all parts ``T`` of ``S``; ``(2^n,)`` arrays by bit mask, 3^n sums.

    Down to ``LEAF`` bits by the highest one, which is in neither, in ``T`` or in the rest. There the low bits' pairs
    are gone through one by one, all pairs of the other bits at once.
    """
    bits = len(a).bit_length() - 1
    if bits > sum(LEAF):
        half = len(a) // 2
        found = np.concatenate([_max_convolution(a[:half], b[:half]), _max_convolution(a[half:], b[:half])])
        np.maximum(found[half:], _max_convolution(a[:half], b[half:]), out=found[half:])
        return found
    low = min(bits, LEAF[0])
    part, rest, starts = _parts(bits - low)
    inside, outside = (np.ascontiguousarray(v.reshape(-1, 1 << low)[at].T) for v, at in ((a, part), (b, rest)))
    best, some = np.full_like(inside, -np.inf), np.empty(inside.shape[1])
    for one, other in zip(*(places.tolist() for places in _parts(low)[:2]), strict=True):
        np.add(inside[one], outside[other], out=some)
        np.maximum(best[one | other], some, out=best[one | other])
    return np.ascontiguousarray(np.maximum.reduceat(best, starts, axis=1).T).ravel()


@cache
def _parts(bits: int) -> tuple[IntArray, IntArray, IntArray]:
    """Every set of ``bits`` bits in two parts, (3^bits,) each, sorted by the set; and where each set's parts start."""
    part = rest = np.zeros(1, dtype=np.int64)
    for bit in (1 << place for place in range(bits)):
        part, rest = np.concatenate([part, part | bit, part]), np.concatenate([rest, rest, rest | bit])
    order = np.argsort(part | rest, kind="stable")
    part, rest = part[order], rest[order]
    return part, rest, np.searchsorted(part | rest, np.arange(1 << bits))


def _subset_values(D: FloatArray) -> FloatArray:
    """(2^k,) value of every subset as a group, by adding one task at a time."""
    both = D + D.T
    total, sizes = np.zeros(1), np.zeros(1)
    for top in range(len(D)):
        links = np.zeros(1)
        for other in range(top):
            links = np.concatenate([links, links + both[top, other]])
        total, sizes = np.concatenate([total, total + links]), np.concatenate([sizes, sizes + 1])
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


# ---------------------------------------------------------------------- greedy


def _greedy(D: FloatArray, limit: int) -> tuple[tuple[int, ...], ...]:
    """Merge the pair of groups that gains most (or loses least, while too many), then move single tasks."""
    label = _moved(D, _merged(D, limit), limit)
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
    count = len(D)
    member = (label == np.arange(count)[:, None]).astype(np.float64)  # (groups, tasks); some groups are empty
    sizes, links = member.sum(axis=1), member @ both
    inner = 0.5 * (links * member).sum(axis=1)
    for _ in range(MOST_SWEEPS):
        changed = False
        for i in range(count):
            own = int(label[i])
            sizes[own], inner[own] = sizes[own] - 1, inner[own] - links[own, i]  # as if i were in no group
            gains = (inner + links[:, i]) / np.maximum(sizes, 1) - inner / np.maximum(sizes - 1, 1)
            gains[sizes == 0] = 0.0 if (sizes > 0).sum() < limit else -np.inf
            best = int(np.argmax(gains))
            if gains[best] > gains[own] + 1e-12:
                links[own], links[best] = links[own] - both[i], links[best] + both[i]
                label[i], own, changed = best, best, True
            sizes[own], inner[own] = sizes[own] + 1, inner[own] + links[own, i]
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
