"""What the joint solvers share: tasks without their rows, heads for a given module, and the finished record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.theory.implicit import with_gradient
from mtlens.theory.inputs import Numbers, float64, scalar, to_numpy
from mtlens.theory.loss import column_scales
from mtlens.theory.models import solve_least_squares
from mtlens.theory.optimum import Optimum
from mtlens.theory.spectral import numerical_rank

_AS_GOOD = 1e-10  # by which the shortest solution may miss what the features' own scales reach


@dataclass(frozen=True)
class Problem:
    """k penalised least-squares tasks in numpy, ready to be solved jointly.

    Attributes:
        Xs, ys: the tasks' rows, or fewer rows with the same losses (see :func:`compressed`), without the penalty.
        alpha: ``(k,)`` task weights.
        rho: ``(k,)`` ridges.
    """

    Xs: list[FloatArray]
    ys: list[FloatArray]
    alpha: FloatArray
    rho: FloatArray

    @property
    def width(self) -> int:
        return int(self.Xs[0].shape[1])

    def penalised(self) -> tuple[list[FloatArray], list[FloatArray]]:
        """The tasks with ``sqrt(rho) I`` appended to X and zeros to y: their plain losses include the penalty."""
        eye = np.eye(self.width)
        Xs = [X if r == 0 else np.vstack([X, np.sqrt(r) * eye]) for X, r in zip(self.Xs, self.rho, strict=True)]
        ys = [np.concatenate([y, np.zeros(len(X) - len(y))]) for X, y in zip(Xs, self.ys, strict=True)]
        return Xs, ys


def problem_of(Xs: Sequence[Numbers], ys: Sequence[Numbers], alpha: Numbers, rho: FloatArray) -> Problem:
    pairs = [compressed(to_numpy(X), to_numpy(y)) for X, y in zip(Xs, ys, strict=True)]
    return Problem([X for X, _ in pairs], [y for _, y in pairs], to_numpy(alpha), rho)


def compressed(X: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """At most d + 1 rows with ``|X t - y|`` unchanged for every t: the triangular factor of ``[X, y]``."""
    if X.shape[0] <= X.shape[1] + 1:
        return X, y
    R: FloatArray = np.asarray(np.linalg.qr(np.column_stack([X, y]), mode="r"))
    return R[:, :-1], R[:, -1]


def common_coordinates(problem: Problem) -> tuple[list[FloatArray], list[FloatArray], FloatArray]:
    """The tasks in coordinates ``z`` of their joint row space, where their covariances add up to the identity.

    Heads absorb the size of a task's inputs, so every (penalised) ``X_i`` is brought to unit Frobenius norm first, and
    so is every feature over all tasks: units must not decide what counts as zero.

    Returns:
        Q: k blocks ``(m_i, q)`` with ``X_i b`` proportional to ``Q_i z`` and ``sum_i Q_i^T Q_i = I``;
        y: labels times ``sqrt(alpha_i)``; back: ``(d, q)`` with ``b = back z``, of minimum norm unless features of very
        different size (1e7 and more) make that cost digits of the fit.
    """
    Xs, ys = problem.penalised()
    stacked = np.vstack([X / (np.linalg.norm(X) or 1.0) for X in Xs])
    size = np.linalg.norm(stacked, axis=0)
    size = np.where(size > 0, size, 1.0)
    Q, D, Vt = np.linalg.svd(stacked / size, full_matrices=False)
    q = max(1, numerical_rank(D, stacked.shape))
    Q, D, V = Q[:, :q], np.where(D[:q] > 0, D[:q], 1.0), Vt[:q].T

    back = V / D / size[:, None]
    if q < problem.width:
        rows = np.linalg.qr(V * size[:, None])[0]  # orthonormal basis of the rows of all tasks, in the original units
        shortest = rows @ (rows.T @ back)
        if np.abs(stacked @ shortest - Q).max() <= _AS_GOOD:
            back = shortest
    blocks = np.split(Q, np.cumsum([len(X) for X in Xs])[:-1])
    return blocks, [np.sqrt(a) * y for a, y in zip(problem.alpha, ys, strict=True)], back


def best_heads(B: FloatArray, problem: Problem) -> FloatArray:
    """``(r, k)`` heads that minimise every task's penalised loss for a given module ``(d, r)``, minimum norm."""
    heads = []
    for X, y in zip(*problem.penalised(), strict=True):
        scale, floor = column_scales(X, B)
        heads.append(solve_least_squares(X @ B / scale, y, 0.0, np, floor) / scale)
    return np.column_stack(heads)


def losses(coef: FloatArray, problem: Problem) -> FloatArray:
    """``(k,)`` sums of squared errors of coefficients ``(d, k)``, one column a task."""
    return np.array([((X @ t - y) ** 2).sum() for X, y, t in zip(problem.Xs, problem.ys, coef.T, strict=True)])


def objective(coef: FloatArray, problem: Problem) -> float:
    """Weighted losses plus penalties: what the solvers minimise."""
    penalties = problem.rho * (coef**2).sum(axis=0)
    return float(problem.alpha @ (losses(coef, problem) + penalties))


def single_losses(problem: Problem) -> FloatArray:
    """``(k,)`` losses of every task's own, equally penalised, least squares."""
    own = [solve_least_squares(X, y, r, np) for X, y, r in zip(problem.Xs, problem.ys, problem.rho, strict=True)]
    return losses(np.column_stack(own), problem)


def finished(
    B: FloatArray,
    problem: Problem,
    Xs: Sequence[Numbers],
    ys: Sequence[Numbers],
    alpha: Numbers,
    xp: Any,
    *,
    excess: float | None = None,
    method: str,
    start_losses: FloatArray | None = None,
) -> Optimum:
    """The record for a module that a solver found: unit columns, best heads, losses; tensors for tensors."""
    B = unit_columns(B)
    A = best_heads(B, problem)
    coef = B @ A
    loss = float(problem.alpha @ losses(coef, problem))
    if excess is None:
        excess = loss - float(problem.alpha @ single_losses(problem))
        if not problem.rho.any():
            excess = max(excess, 0.0)  # below zero only by rounding
    optimum = Optimum(B, A, coef, loss, excess, method, np.empty(0) if start_losses is None else start_losses)
    return optimum if xp is np else with_gradient(optimum, Xs, ys, alpha, problem.rho, xp)


def unshared(
    problem: Problem, Xs: Sequence[Numbers], ys: Sequence[Numbers], alpha: Numbers, xp: Any, rank: int
) -> Optimum:
    """The record for a module with a column for every task: nothing is shared, each has its own least squares.

    The heads are written down rather than solved for: the columns of tasks with one model are parallel, and heads that
    add up multiples of parallel columns would lose every digit.
    """
    own = [solve_least_squares(X, y, float(r), xp) for X, y, r in zip(Xs, ys, problem.rho, strict=True)]
    coef = xp.stack(own, -1)  # (d, k)
    largest = _largest_entries(to_numpy(coef))
    peaks, zero = (float64(v, xp, coef) for v in (np.where(largest == 0, 1.0, largest), largest == 0))
    turned = coef / peaks  # squares of 1e-200 would vanish
    lengths = (turned * turned).sum(0) ** 0.5 + zero

    B, A = turned / lengths, xp.diag(peaks * lengths)
    if rank > len(own):
        unused = rank - len(own)
        B = xp.hstack([B, float64(np.zeros((problem.width, unused)), xp, coef)])
        A = xp.vstack([A, float64(np.zeros((unused, len(own))), xp, coef)])
    loss = sum(a * ((X @ t - y) ** 2).sum() for a, X, y, t in zip(alpha, Xs, ys, own, strict=True))
    return Optimum(B, A, coef, scalar(loss), scalar(loss - loss))


def unit_columns(B: FloatArray) -> FloatArray:
    """Columns of length one, largest entry positive; zero columns stay."""
    peaks = np.abs(B).max(axis=0)
    B = B / np.where(peaks > 0, peaks, 1.0)
    lengths = np.linalg.norm(B, axis=0)
    signs = np.sign(_largest_entries(B))
    return B * np.where(signs == 0, 1.0, signs) / np.where(lengths > 0, lengths, 1.0)


def _largest_entries(B: FloatArray) -> FloatArray:
    """``(n,)`` the entry of each column that is largest in size, with its sign."""
    return np.asarray(B[np.abs(B).argmax(axis=0), np.arange(B.shape[1])])
