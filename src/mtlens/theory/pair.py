"""The exact global optimum of two tasks that share one direction (paper, eq. for h(B) in Section 2.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.theory.inputs import task_list, task_ridges, task_weights
from mtlens.theory.optimum import Optimum
from mtlens.theory.solving import Problem, common_coordinates, finished, problem_of

# The profile is a sum of sigmoids of unit width in log(a_2 / a_1), so steps of 0.05 see every maximum; 18 beyond the
# outermost one, what is left of it is e^-36 of the label energy.
_STEP, _MARGIN = 0.05, 18.0


def two_task_optimum(X1: Any, y1: Any, X2: Any, y2: Any, *, weights: Any = (1, 1), ridge: Any = (0, 0)) -> Optimum:
    r"""The exact, global optimum of two tasks with a shared module of rank 1, different inputs allowed.

    .. math:: \min_{b, a_1, a_2} \sum_i \alpha_i \left(|X_i b\, a_i - y_i|^2 + \rho_i |b\, a_i|^2\right),

    the paper's maximisation of :math:`h(B)`. About half of random problems have a spurious local minimum once the
    covariances differ (with proportional ones there is none), so one descent is not "the optimal MTL solution". Here
    the two covariances are diagonalised together (a CS decomposition of the stacked rows, never of ``X^T X``); for a
    given ratio of heads the best ``b`` is then explicit, and what remains is a sum of d sigmoids in one variable,
    :math:`\sum_j |\eta_j|^2 \cos^2(\psi_j(t) - \omega_j)`, searched on a grid finer than any of them and refined.

    Just above ``m_1 + m_2 = d`` (rows against features) the optimum interpolates and its coefficients explode; with
    fewer rows than features in one task the minimum may only be approached, in which case a point within rounding of it
    is returned. Ridge helps in both.

    Args:
        X1, y1: ``(m1, d)`` and ``(m1,)``; NaN labels are dropped.
        X2, y2: the second task over the same d features.
        weights: alpha_1 and alpha_2, used as given.
        ridge: rho_1 and rho_2, each added to the diagonal of its task's ``X^T X``.

    Returns:
        An :class:`Optimum` with ``B`` ``(d, 1)`` of unit length, ``A`` ``(1, 2)``, ``method`` "profile". ``loss``
        leaves the penalties out. For tensors it carries gradients.

    Example:
        >>> X = np.diag([1.0, 2.0])
        >>> best = two_task_optimum(X, [1.0, 0.0], X, [0.0, 3.0])
        >>> round(best.loss, 12), np.abs(best.B).round(6).tolist()
        (1.0, [[0.0], [1.0]])
    """
    where = "two_task_optimum"
    Xs, ys, xp = task_list([X1, X2], [y1, y2], where)
    alpha = task_weights(weights, 2, where, xp, Xs[0])
    problem = problem_of(Xs, ys, alpha, task_ridges(ridge, 2, where))

    direction = pair_direction(problem)

    return finished(direction[:, None], problem, Xs, ys, alpha, xp, method="profile")


def pair_direction(problem: Problem) -> FloatArray:
    """``(d,)`` a globally optimal shared direction for two penalised tasks."""
    cosines, sines, eta, back = _joint_axes(problem)
    first, second = _best_ratio(cosines, sines, eta)

    # With heads (first, second) fixed, each joint coordinate is a least squares of two equations in one unknown.
    lengths = (first * cosines) ** 2 + (second * sines) ** 2
    along = first * cosines * eta[0] + second * sines * eta[1]
    direction: FloatArray = back @ np.divide(along, lengths, out=np.zeros_like(along), where=lengths > 0)
    return direction


def _joint_axes(problem: Problem) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Coordinates ``z`` (q of them) in which both tasks are diagonal at once.

    ``X_1 b = U_1 (c * z)``, ``X_2 b = U_2 (s * z)`` with ``c^2 + s^2 = 1`` and orthonormal columns in ``U_i``.

    Returns:
        c, s: ``(q,)``; eta: ``(2, q)`` labels ``U_i^T y_i``; back: ``(d, q)`` with ``b = back z``, minimum norm.
    """
    (top, bottom), (y1, y2), back = common_coordinates(problem)
    U1, c, U2, s, W = _cs_decomposition(top, bottom, *(_rank(X) for X in problem.penalised()[0]))
    return c, s, np.stack([U1.T @ y1, U2.T @ y2]), back @ W


def _cs_decomposition(
    top: FloatArray, bottom: FloatArray, top_rank: int, bottom_rank: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """``top = U1 c W^T``, ``bottom = U2 s W^T`` for a matrix with orthonormal columns cut in two.

    Axes with ``c`` near 1 have a tiny ``s`` that only the bottom knows to its last digit, and the other way round: the
    axes are taken from the top and those with large ``c`` once more from the bottom. The ranks say how many ``c`` and
    ``s`` are not zero: rounding in the rest must not pass for an axis that both tasks share.
    """
    W, c = _axes(top)
    steep = c > np.sqrt(0.5)
    if steep.any():
        again, _ = _axes(bottom @ W[:, steep])
        W = np.column_stack([W[:, ~steep], W[:, steep] @ again])
    c, s = (_largest(np.linalg.norm(M @ W, axis=0), n) for M, n in ((top, top_rank), (bottom, bottom_rank)))
    U1 = np.divide(top @ W, c, out=np.zeros_like(top), where=c > 0)
    U2 = np.divide(bottom @ W, s, out=np.zeros_like(bottom), where=s > 0)
    return U1, c, U2, s, W


def _rank(X: FloatArray) -> int:
    """Numerical rank, judged with columns of equal length."""
    size = np.linalg.norm(X, axis=0)
    return int(np.linalg.matrix_rank(X / np.where(size > 0, size, 1.0)))


def _largest(values: FloatArray, count: int) -> FloatArray:
    """All but the ``count`` largest set to zero, and those below rounding too."""
    kept = np.zeros_like(values)
    order = np.argsort(-values)[:count]
    kept[order] = np.where(values[order] > 4 * np.finfo(np.float64).eps, values[order], 0.0)
    return kept


def _axes(M: FloatArray) -> tuple[FloatArray, FloatArray]:
    """All right singular vectors ``(q, q)`` and as many singular values, zeros included."""
    _, values, Vt = np.linalg.svd(M, full_matrices=True)
    return Vt.T, np.concatenate([values, np.zeros(len(Vt) - len(values))])


def _best_ratio(c: FloatArray, s: FloatArray, eta: FloatArray) -> tuple[float, float]:
    """Heads ``(a_1, a_2)``, up to scale, that maximise the explained energy."""
    both = (c > 0) & (s > 0)
    if not both.any():
        return 1.0, 1.0  # no axis is shared: any two heads that are not zero reach both optima
    c, s, eta = c[both], s[both], eta[:, both]
    turns = np.log(c) - np.log(s)  # where |a_2 / a_1| tips an axis from task 1 to task 2, in logs
    grid = np.arange(turns.min() - _MARGIN, turns.max() + _MARGIN + _STEP, _STEP)
    candidates = [_refined(sign, grid, turns, eta) for sign in (1.0, -1.0)]
    _, sign, log_ratio = max(candidates, key=lambda found: found[0])
    ratio = np.exp(log_ratio / 2)
    return 1.0 / ratio, sign * ratio


def _refined(sign: float, grid: FloatArray, turns: FloatArray, eta: FloatArray) -> tuple[float, float, float]:
    """Best energy over one sign of the ratio, that sign, and the log ratio where it is reached."""
    values = _energy(sign, grid, turns, eta)
    inner = np.flatnonzero((values[1:-1] >= values[:-2]) & (values[1:-1] >= values[2:])) + 1
    peaks = np.unique(np.concatenate([inner, [int(values.argmax())]]))
    peaks = peaks[values[peaks] >= values.max() - _rise(eta)]
    x = _climbed(sign, grid[peaks], turns, eta)
    values = _energy(sign, x, turns, eta)
    best = int(values.argmax())
    return float(values[best]), sign, float(x[best])


def _rise(eta: FloatArray) -> float:
    """More than any maximum can rise above the grid: its curvature times half a step squared."""
    return float((eta**2).sum()) * (_STEP / 2) ** 2


def _energy(sign: float, x: FloatArray, turns: FloatArray, eta: FloatArray) -> FloatArray:
    """``(n,)`` explained energy at log ratios ``x``: ``sum_j (cos psi eta_1j + sign sin psi eta_2j)^2``."""
    total = np.empty_like(x)
    for start in range(0, len(x), 512):  # (512, q) at a time
        psi = np.arctan(np.exp(np.clip(x[start : start + 512, None] - turns, -350, 350)))
        total[start : start + 512] = ((np.cos(psi) * eta[0] + sign * np.sin(psi) * eta[1]) ** 2).sum(axis=1)
    return total


def _climbed(sign: float, x: FloatArray, turns: FloatArray, eta: FloatArray) -> FloatArray:
    """Newton steps uphill from grid maxima, kept within two steps of the grid; falls back to bisection-like damping."""
    low, high = x - _STEP, x + _STEP
    for _ in range(60):
        slope, bend = _derivatives(sign, x, turns, eta)
        low, high = np.where(slope > 0, x, low), np.where(slope > 0, high, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(bend < 0, x - slope / bend, np.nan)
        middle = (low + high) / 2
        new = np.where((step > low) & (step < high), step, middle)
        if np.all(np.abs(new - x) <= 1e-15 * np.maximum(1.0, np.abs(x))):
            break
        x = new
    return x


def _derivatives(sign: float, x: FloatArray, turns: FloatArray, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """First and second derivative of the energy in the log ratio.

    With ``psi = atan(e^(x - turn))``: ``psi' = sin(2 psi) / 2``, and a term is ``(A + B cos 2psi + C sin 2psi)``.
    """
    psi = np.arctan(np.exp(np.clip(x[:, None] - turns, -350, 350)))
    B, C = (eta[0] ** 2 - eta[1] ** 2) / 2, sign * eta[0] * eta[1]
    sin, cos = np.sin(2 * psi), np.cos(2 * psi)
    pull = -B * sin + C * cos  # half the derivative in psi
    slope = pull * sin
    bend = (-B * cos - C * sin) * sin**2 + pull * sin * cos
    return slope.sum(axis=1), bend.sum(axis=1)
