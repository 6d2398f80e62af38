"""Exact joint optima where the tasks' covariances agree (paper, Propositions 3.3 and A.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.errors import InputError
from mtlens.theory.inputs import shared_labels, task_list, task_weights, to_numpy, whole_rank
from mtlens.theory.optimum import Optimum
from mtlens.theory.solving import Problem, finished
from mtlens.theory.spectral import numerical_rank

COVARIANCE_TOLERANCE = 1e-8  # relative Frobenius distance below which two covariances count as the same


def shared_input_optimum(X: Any, Y: Any, *, rank: int, weights: Any = None) -> Optimum:
    r"""The exact optimum when every task labels the same rows (paper, Proposition on re-weighting, Section 2.4).

    With :math:`X = U D V^\top` and :math:`Q_r` the leading r eigenvectors of
    :math:`\sum_i \alpha_i U^\top y_i y_i^\top U`, an optimal module is :math:`B = V D^{-1} Q_r`, and the excess over
    single-task learning is exactly the sum of the remaining eigenvalues. Every local minimum is global.

    The proposition needs full column rank; here the pseudo-inverse takes its place, which is optimal for any ``X``. Its
    closing remark in print needs ``X^T`` for ``X`` and ``sqrt(alpha_i)`` for ``alpha_i``. ``rank`` may exceed k or the
    rank of X: what is left over of ``B`` explains nothing (zero columns beyond the rank of X).

    Args:
        X: ``(m, d)``.
        Y: ``(m, k)``, one column a task. NaN is refused: :func:`linear_optimum` takes missing labels.
        rank: r >= 1.
        weights: the k alphas, used as given; all 1 when None.

    Example:
        >>> best = shared_input_optimum(np.eye(3), np.diag([3.0, 2.0, 1.0]), rank=2)
        >>> best.loss, best.excess
        (1.0, 1.0)
    """
    where = "shared_input_optimum"
    rank = whole_rank(rank, where)
    X, Y, xp = shared_labels(X, Y, where, "linear_optimum")
    alpha = task_weights(weights, Y.shape[1], where, xp, X)

    U, D, Vt = _thin_svd(to_numpy(X))
    labels = to_numpy(Y)
    B, excess = _leading_module(U.T @ labels, to_numpy(alpha), D, Vt, rank)

    count = Y.shape[1]
    problem = Problem([to_numpy(X)] * count, list(labels.T), to_numpy(alpha), np.zeros(count))
    return finished(B, problem, [X] * count, list(Y.T), alpha, xp, excess=excess, method="closed form")


def equal_covariance_optimum(Xs: Any, ys: Any, *, rank: int, weights: Any = None) -> Optimum:
    r"""The exact optimum when all tasks have one covariance, on different rows (paper, Proposition A.2).

    With :math:`X_i = U_i D V^\top`: :math:`B^\star = V D^{-1} C^\star`, where :math:`C^\star` spans the leading r
    eigenvectors of :math:`\sum_i \alpha_i U_i^\top y_i y_i^\top U_i`. The printed :math:`V D^{-1/2} C^\star` is right
    only if ``D`` holds eigenvalues of the covariance, while the proposition's proof uses singular values of ``X_i``;
    mixing the two costs real loss. The corollary's excess over single-task learning is **exactly** :math:`\sum_{i>r}
    \lambda_i`, the eigenvalues of that matrix, not a bound with squares (and the printed matrix lacks a factor ``V
    D^{-1}``).

    Covariances that are only *proportional*, :math:`X_i^\top X_i = \beta_i \Sigma`, are solved too: the heads absorb
    :math:`\sqrt{\beta_i}`. Anything else is refused: use :func:`linear_optimum`.

    Args:
        Xs: k matrices ``(m_i, d)`` with ``X_i^T X_i`` equal up to a factor (relative distance at most 1e-8).
        ys: k label vectors; NaN rows are dropped *before* covariances are compared.
        rank, weights: as for :func:`shared_input_optimum`.

    Example:
        >>> X = np.diag([1.0, 2.0])
        >>> best = equal_covariance_optimum([X, -X], [[1.0, 0.0], [0.0, 3.0]], rank=1)
        >>> best.excess
        1.0
    """
    where = "equal_covariance_optimum"
    rank = whole_rank(rank, where)
    Xs, ys, xp = task_list(Xs, ys, where)
    alpha = task_weights(weights, len(Xs), where, xp, Xs[0])
    rows, labels = [to_numpy(X) for X in Xs], [to_numpy(y) for y in ys]

    distance, task = covariance_distance(rows)
    if distance > COVARIANCE_TOLERANCE:
        raise InputError(
            f"{where} needs X_i^T X_i equal (up to a factor) for all tasks: task {task}'s differs from task 0's by "
            f"{distance:.2g} of its size. Use linear_optimum, which needs no such thing."
        )
    B, excess = equal_covariance_module(rows, labels, to_numpy(alpha), rank)

    problem = Problem(rows, labels, to_numpy(alpha), np.zeros(len(rows)))
    return finished(B, problem, Xs, ys, alpha, xp, excess=excess, method="closed form")


def equal_covariance_module(
    Xs: list[FloatArray], ys: list[FloatArray], alpha: FloatArray, rank: int
) -> tuple[FloatArray, float]:
    """Module ``(d, rank)`` and excess for tasks whose covariances are proportional; nothing is checked."""
    sizes = np.array([np.linalg.norm(X) or 1.0 for X in Xs])
    _, D, Vt = _thin_svd(Xs[0] / sizes[0])
    parts = [(Vt @ ((X / size).T @ y)) / D for X, y, size in zip(Xs, ys, sizes, strict=True)]  # U_i^T y_i
    return _leading_module(np.column_stack(parts), alpha, D, Vt, rank)


def covariance_distance(Xs: list[FloatArray]) -> tuple[float, int]:
    """Largest relative distance of a covariance, scaled to trace 1, from the first one, and whose it is."""
    first, distances = None, []
    for X in Xs:
        C = X.T @ X
        trace = np.trace(C)
        C = C / trace if trace > 0 else C
        first = C if first is None else first
        distances.append(np.linalg.norm(C - first) / max(np.linalg.norm(first), np.finfo(np.float64).tiny))
    return float(max(distances)), int(np.argmax(distances))


def _thin_svd(X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """``U (m, q)``, ``D (q,)``, ``V^T (q, d)`` over the q singular values that are not rounding."""
    U, D, Vt = np.linalg.svd(X, full_matrices=False)
    q = numerical_rank(D, X.shape)
    return U[:, :q], D[:q], Vt[:q]


def _leading_module(
    Z: FloatArray, alpha: FloatArray, D: FloatArray, Vt: FloatArray, rank: int
) -> tuple[FloatArray, float]:
    """``V D^{-1} Q_r``, zero columns beyond the rank of X, and the energy that ``Q_r`` leaves out.

    Args:
        Z: ``(q, k)`` label parts ``U_i^T y_i``.
    """
    B = np.zeros((Vt.shape[1], rank))
    if Z.shape[0] == 0:  # X is zero
        return B, 0.0
    Q, values, _ = np.linalg.svd(Z * np.sqrt(alpha), full_matrices=True)
    kept = min(rank, Z.shape[0])
    B[:, :kept] = Vt.T @ (Q[:, :kept] / D[:, None])
    return B, float((values[rank:] ** 2).sum())
