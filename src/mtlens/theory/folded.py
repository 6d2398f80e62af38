"""Second moments of tasks, fold by fold: everything cross-validated ridge needs to know about the rows.

A model fitted without fold ``f`` needs the sums over the other folds, its error on fold ``f`` the sums over that
fold; both are additions of small matrices. So the rows are read once, however many models are compared afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtlens.arrays import Array, FloatArray, IntArray
from mtlens.errors import InputError

BLOCK_ROWS = 8192  # rows of X converted and weighted at a time


@dataclass(frozen=True)
class Moments:
    """Weighted sums over some rows of ``[x, y]``; ``d`` inputs, ``q`` outputs. Sums of disjoint rows add up.

    ``count`` is the number of rows and ``mass`` the sum of their weights (equal without weights).
    """

    count: int
    mass: float
    sum_x: FloatArray  # (d,)
    sum_y: FloatArray  # (q,)
    xx: FloatArray  # (d, d), uncentred
    xy: FloatArray  # (d, q), uncentred
    yy: float  # sum of squared outputs

    def __add__(self, other: Moments) -> Moments:
        return self._combined(other, 1)

    def __sub__(self, other: Moments) -> Moments:
        return self._combined(other, -1)

    def _combined(self, other: Moments, sign: int, xx: FloatArray | None = None) -> Moments:
        return Moments(
            self.count + sign * other.count,
            self.mass + sign * other.mass,
            self.sum_x + sign * other.sum_x,
            self.sum_y + sign * other.sum_y,
            self.xx + sign * other.xx if xx is None else xx,
            self.xy + sign * other.xy,
            self.yy + sign * other.yy,
        )

    @staticmethod
    def combined(
        first: Sequence[Moments], second: Sequence[Moments], sign: int, sharing: Sequence[int]
    ) -> list[Moments]:
        """``first + sign * second`` one by one; problems with one number in ``sharing`` keep sharing one ``xx``."""
        shared: dict[int, FloatArray] = {}
        found = []
        for a, b, group in zip(first, second, sharing, strict=True):
            found.append(a._combined(b, sign, shared.get(group)))
            shared[group] = found[-1].xx
        return found

    @property
    def mean_x(self) -> FloatArray:
        return self.sum_x / self.mass

    @property
    def mean_y(self) -> FloatArray:
        return self.sum_y / self.mass

    def about(
        self, mean_x: FloatArray, mean_y: FloatArray, *, inputs: bool = True
    ) -> tuple[FloatArray, FloatArray, float]:
        """``(xx, xy, yy)`` with inputs and outputs taken relative to the given means; no ``xx`` without ``inputs``."""
        xx = np.empty((0, 0))
        if inputs:
            outer = np.outer(self.sum_x, mean_x)
            xx = self.xx - outer - outer.T + self.mass * np.outer(mean_x, mean_x)
        xy = (
            self.xy - np.outer(self.sum_x, mean_y) - np.outer(mean_x, self.sum_y) + self.mass * np.outer(mean_x, mean_y)
        )
        yy = self.yy - 2 * float(self.sum_y @ mean_y) + self.mass * float(mean_y @ mean_y)
        return xx, xy, yy


def input_moments(
    X: Array, rows: IntArray, weight: FloatArray | None, origin: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """``(sum_x, xx)`` over the given rows of ``X``, relative to ``origin`` (a shift near the mean loses no digits)."""
    width = X.shape[1]
    total, product = np.zeros(width), np.zeros((width, width))
    for start in range(0, len(rows), BLOCK_ROWS):
        part = rows[start : start + BLOCK_ROWS]
        block = X[part].astype(np.float64) - origin
        if weight is not None:
            block *= np.sqrt(weight[part])[:, None]
            total += block.T @ np.sqrt(weight[part])
        else:
            total += block.sum(axis=0)
        product += block.T @ block  # x.T @ x takes the symmetric kernel
    return total, product


def output_moments(
    X: Array, outputs: FloatArray, rows: IntArray, weight: FloatArray | None, origin: FloatArray
) -> tuple[float, FloatArray, FloatArray, float]:
    """``(mass, sum_y, xy, yy)`` over the given rows; ``outputs`` is (m, q) and finite on them."""
    xy = np.zeros((X.shape[1], outputs.shape[1]))
    sums, squares, mass = np.zeros(outputs.shape[1]), 0.0, 0.0
    for start in range(0, len(rows), BLOCK_ROWS):
        part = rows[start : start + BLOCK_ROWS]
        alpha = np.ones(len(part)) if weight is None else weight[part]
        y = outputs[part]
        xy += (X[part].astype(np.float64) - origin).T @ (alpha[:, None] * y)
        sums += alpha @ y
        squares += float(alpha @ (y * y).sum(axis=1))
        mass += float(alpha.sum())
    return mass, sums, xy, squares


def assign_folds(
    keys: Sequence[Array], labelled: Sequence[Array], strata: Sequence[Array | None], *, folds: int, seed: int
) -> list[IntArray]:
    """A fold for every row of every task, such that rows with one key share a fold, also across tasks.

    The keys are dealt to the folds in random order, the ones with most labelled rows first, each to the fold that
    holds fewest labelled rows of that key's tasks (and, where ``strata`` gives classes, fewest of its classes).

    Args:
        keys: one (m_i,) array a task; equal keys (also in different tasks) stay together.
        labelled: one (m_i,) mask a task.
        strata: one (m_i,) array of classes a task, or None.
    """
    random = np.random.default_rng(seed)
    if _one_row_a_key(keys):
        return [_deal(np.asarray(mask), stratum, folds, random) for mask, stratum in zip(labelled, strata, strict=True)]
    return _deal_groups(keys, labelled, folds, random)


def _one_row_a_key(keys: Sequence[Array]) -> bool:
    together = np.concatenate([np.asarray(key) for key in keys])
    return len(np.unique(together)) == len(together)


def _deal(mask: Array, stratum: Array | None, folds: int, random: np.random.Generator) -> IntArray:
    """Deal rows round the folds, sorted by class and label status, so that every fold gets its share of each."""
    order = random.permutation(len(mask))
    if stratum is not None:
        order = order[np.argsort(np.nan_to_num(stratum[order], nan=-1.0), kind="stable")]
    order = order[np.argsort(~mask[order], kind="stable")]
    fold = np.empty(len(mask), dtype=np.int64)
    fold[order] = (np.arange(len(mask)) + random.integers(folds)) % folds
    return fold


def _deal_groups(
    keys: Sequence[Array], labelled: Sequence[Array], folds: int, random: np.random.Generator
) -> list[IntArray]:
    together = np.concatenate([np.asarray(key) for key in keys])
    _, place = np.unique(together, return_inverse=True)
    num_keys, num_tasks = int(place.max()) + 1, len(keys)
    ends = np.cumsum([len(key) for key in keys])
    places = np.split(place, ends[:-1])
    rows = np.stack(
        [
            np.bincount(p, weights=np.asarray(m, float), minlength=num_keys)
            for p, m in zip(places, labelled, strict=True)
        ]
    )
    share = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1.0)  # (tasks, keys), each task counts the same
    order = random.permutation(num_keys)
    order = order[np.argsort(-share[:, order].sum(axis=0), kind="stable")]
    load = np.zeros((folds, num_tasks))
    fold_of = np.empty(num_keys, dtype=np.int64)
    for key in order:
        part = share[:, key]
        fold = int(np.argmin(load @ part + 1e-9 * load.sum(axis=1)))
        fold_of[key] = fold
        load[fold] += part
    return [fold_of[p] for p in places]


def check_folds(given: Sequence[Array], sizes: Sequence[int], names: Sequence[str]) -> list[IntArray]:
    """Fold ids as given by the caller: one integer a row, -1 for rows that are always trained on."""
    if len(given) != len(sizes):
        raise InputError(f"folds: {len(given)} arrays were given for {len(sizes)} problems. Give one array a problem.")
    checked = []
    for fold, size, name in zip(given, sizes, names, strict=True):
        column = np.asarray(fold)
        if column.shape != (size,) or column.dtype.kind not in "iu":
            raise InputError(
                f"folds of {name!r} need {size} integers, found {column.dtype} of shape {column.shape}. "
                "Give the fold of each row, -1 for rows that are always trained on."
            )
        checked.append(column.astype(np.int64))
    return checked
