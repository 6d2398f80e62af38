"""One shared direction at a time, and what that bounds (paper, Appendix A.2, orthogonalising procedure)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.theory.inputs import float64, task_list, task_weights, whole_seed, whole_starts
from mtlens.theory.linear import solve
from mtlens.theory.solving import Problem, problem_of, single_losses
from mtlens.theory.spectral import numerical_rank


@dataclass(frozen=True)
class Greedy:
    """Directions in the order they were taken, and the label energy each one explains.

    Attributes:
        directions: ``(d, d)`` orthonormal; the first r columns are a module of rank r.
        gains: ``(d,)`` the paper's lambda_j, of all tasks together.
        residual: the single-task optimum (the paper's OPT): what no linear model explains.
    """

    directions: Any
    gains: Any
    residual: Any

    def loss(self, rank: int) -> Any:
        """``residual + sum of the gains after the first rank``: the loss of the first ``rank`` directions."""
        return self.residual + self.gains[rank:].sum()


def greedy_bound(Xs: Any, ys: Any, *, starts: int = 10, seed: int = 0) -> Greedy:
    r"""An upper bound on the joint loss of every rank, by taking the best single direction again and again.

    Each step takes the :math:`w` that maximises :math:`\sum_i \langle X_i w / |X_i w|, y_i \rangle^2`, calls that
    maximum :math:`\lambda_j`, and projects :math:`X_i w` off the columns of every :math:`X_i`. After d steps everything
    a linear model can explain is explained, so

    .. math:: \min_{\mathrm{rank}\ r} \mathrm{loss} \le \mathrm{OPT} + \sum_{j > r} \lambda_j, \qquad
              \sum_{j=1}^{d} \lambda_j = \sum_i |P_{X_i} y_i|^2 .

    The paper prints the sign the other way round (:math:`\mathrm{OPT} - \sum_{j>r} \lambda_j`) and says the lambdas sum
    to OPT; they sum to the explained energy, and OPT is the residual. Greedy is optimal at r = 1 only.

    Args:
        Xs: k matrices ``(m_i, d)``.
        ys: k label vectors; NaN rows are dropped.
        starts: descents a step where the best direction has no closed form (three tasks or more with different
            covariances); one or two tasks are exact.
        seed: of those descents.

    Example:
        >>> greedy = greedy_bound([np.eye(2), np.eye(2)], [[2.0, 0.0], [0.0, 1.0]])
        >>> greedy.gains.round(9).tolist(), greedy.residual
        ([4.0, 1.0], 0.0)
    """
    where = "greedy_bound"
    starts, seed = whole_starts(starts, where), whole_seed(seed, where)
    Xs, ys, xp = task_list(Xs, ys, where)
    problem = problem_of(Xs, ys, task_weights(None, len(Xs), where, np), np.zeros(len(Xs)))
    residual = float(single_losses(problem).sum())

    problem = _orthonormal_rows(problem)
    width = problem.width
    left = np.eye(width)  # orthonormal basis of the directions not taken yet
    directions, gains = np.zeros((width, width)), np.zeros(width)
    for j in range(width):
        w = _best_direction(problem, left, starts, seed + j)
        directions[:, j] = w
        gains[j], problem = _explained_and_removed(problem, w)
        left = _without(left, w)
    if xp is np:
        return Greedy(directions, gains, residual)
    return Greedy(*(float64(v, xp, Xs[0]) for v in (directions, gains, residual)))


def _best_direction(problem: Problem, left: FloatArray, starts: int, seed: int) -> FloatArray:
    """A unit vector in the span of ``left`` that explains most of what the deflated tasks still hold."""
    inside = replace(problem, Xs=[X @ left for X in problem.Xs])
    if not any(X.any() for X in inside.Xs) or left.shape[1] == 1:
        return left[:, 0]
    B, _, _ = solve(inside, 1, starts=starts, seed=seed)
    w = left @ B[:, 0]
    length = np.linalg.norm(w)
    return w / length if length > 0 else left[:, 0]


def _orthonormal_rows(problem: Problem) -> Problem:
    """Every task in an orthonormal basis of its columns: as many rows as its rank, the labels' part inside."""
    Xs, ys = [], []
    for X, y in zip(problem.Xs, problem.ys, strict=True):
        size = np.linalg.norm(X, axis=0)
        U, s, _ = np.linalg.svd(X / np.where(size > 0, size, 1.0), full_matrices=False)
        U = U[:, : numerical_rank(s, X.shape)]
        Xs.append(U.T @ X)
        ys.append(U.T @ y)
    return _emptied(replace(problem, Xs=Xs, ys=ys))


def _emptied(problem: Problem) -> Problem:
    """Tasks without a row left get one of zeros, which explains nothing."""
    Xs = [X if len(X) else np.zeros((1, problem.width)) for X in problem.Xs]
    ys = [y if len(y) else np.zeros(1) for y in problem.ys]
    return replace(problem, Xs=Xs, ys=ys)


def _explained_and_removed(problem: Problem, w: FloatArray) -> tuple[float, Problem]:
    """The energy that direction ``w`` explains, and the tasks with ``X_i w`` projected off.

    Projecting takes the row along ``X_i w`` away instead of leaving rounding in its place, which would pass for inputs:
    a task with as many directions taken as it has rows is exhausted, exactly.
    """
    gain, Xs, ys = 0.0, [], []
    for X, y in zip(problem.Xs, problem.ys, strict=True):
        z = X @ w
        noise = np.finfo(np.float64).eps * max(X.shape) * np.linalg.norm(np.abs(X) @ np.abs(w))
        if np.linalg.norm(z) > noise:
            turn = np.linalg.qr(z[:, None], mode="complete")[0].T  # its first row is along z
            X, y = turn @ X, turn @ y
            gain += float(y[0]) ** 2
            X, y = X[1:], y[1:]
        Xs.append(X)
        ys.append(y)
    return gain, _emptied(replace(problem, Xs=Xs, ys=ys))


def _without(left: FloatArray, w: FloatArray) -> FloatArray:
    """An orthonormal basis of what is left after ``w`` (a unit vector in the span) is taken out."""
    inside = left.T @ w
    basis = np.linalg.qr(np.column_stack([inside, np.eye(len(inside))]))[0]
    rest: FloatArray = left @ basis[:, 1 : left.shape[1]]
    return rest
