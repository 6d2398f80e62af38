"""Joint linear optima of any tasks: exact where a closed form exists, else the best of many descents (paper, eq. 2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.theory.inputs import task_list, task_ridges, task_weights, whole_rank, whole_seed, whole_starts
from mtlens.theory.models import solve_least_squares
from mtlens.theory.optimum import Optimum
from mtlens.theory.pair import pair_direction
from mtlens.theory.shared import COVARIANCE_TOLERANCE, covariance_distance, equal_covariance_module
from mtlens.theory.solving import (
    Problem,
    best_heads,
    common_coordinates,
    finished,
    objective,
    problem_of,
    unit_columns,
    unshared,
)


def linear_optimum(
    Xs: Any, ys: Any, *, rank: int, weights: Any = None, ridge: Any = 0.0, starts: int = 20, seed: int = 0
) -> Optimum:
    r"""Joint linear optimum of any number of tasks over one feature space, any rank, missing labels allowed.

    .. math:: \min_{B, A} \sum_i \alpha_i \left(|X_i B A_i - y_i|^2 + \rho_i |B A_i|^2\right)

    Three cases are exact and global (``method`` says so): ``rank >= k`` or at least the rank of all rows together (no
    task is held back), covariances equal up to a factor, shared inputs among them (:func:`equal_covariance_optimum`),
    and two tasks at rank 1 (:func:`two_task_optimum`). Everything else has spurious local minima: it is least squares
    alternating between heads and module from ``starts`` starting points, accelerated (the heads are solved inside, the
    module moves by quasi-Newton steps), and the best is returned. ``start_losses`` and ``spread`` say how far the
    starts agree; agreement is evidence, not proof, of a global optimum. ``loss`` is then exact to about 1e-12, ``coef``
    to about 1e-6 of its size.

    Args:
        Xs: k matrices ``(m_i, d)``; a member may be repeated for shared inputs.
        ys: k label vectors; rows whose label is NaN are dropped.
        rank: r >= 1. Columns of ``B`` that nothing needs are zero.
        weights: the k alphas, used as given; all 1 when None.
        ridge: rho, or one for each task, added to the diagonal of ``X_i^T X_i``.
        starts: how many descents; the first two start from pooled and from single-task directions.
        seed: of the random starts.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> Xs = [rng.normal(size=(8, 3)) for _ in range(3)]
        >>> best = linear_optimum(Xs, [X @ [1.0, 2.0, 0.0] for X in Xs], rank=1)
        >>> best.coef.shape, best.loss < 1e-12
        ((3, 3), True)
    """
    where = "linear_optimum"
    rank = whole_rank(rank, where)
    starts, seed = whole_starts(starts, where), whole_seed(seed, where)
    Xs, ys, xp = task_list(Xs, ys, where)
    alpha = task_weights(weights, len(Xs), where, xp, Xs[0])
    problem = problem_of(Xs, ys, alpha, task_ridges(ridge, len(Xs), where))
    if rank >= len(Xs):
        return unshared(problem, Xs, ys, alpha, xp, rank)

    B, method, ends = solve(problem, rank, starts=starts, seed=seed)

    return finished(B, problem, Xs, ys, alpha, xp, method=method, start_losses=ends)


def solve(problem: Problem, rank: int, *, starts: int = 20, seed: int = 0) -> tuple[FloatArray, str, FloatArray]:
    """Module ``(d, rank)``, how it was found, and the objective every start ended in (none for exact methods)."""
    exact = _exact_module(problem, rank)
    if exact is not None:
        B, method = exact
        return _padded(B, rank), method, np.empty(0)
    blocks, labels, back = common_coordinates(problem)
    if rank >= back.shape[1]:
        return _padded(back, rank), "closed form", np.empty(0)
    modules = [back @ Z for Z in _descents(blocks, labels, rank, starts, seed)]
    modules = [unit_columns(B) for B in modules]
    ends = np.array([objective(B @ best_heads(B, problem), problem) for B in modules])
    return modules[int(ends.argmin())], "alternating", ends


def _exact_module(problem: Problem, rank: int) -> tuple[FloatArray, str] | None:
    """A closed-form module where the paper (corrected) has one."""
    Xs, ys = problem.penalised()
    if rank >= len(Xs):
        return np.column_stack([solve_least_squares(X, y, 0.0, np) for X, y in zip(Xs, ys, strict=True)]), "closed form"
    if all(X.any() for X in Xs) and covariance_distance(Xs)[0] <= COVARIANCE_TOLERANCE:
        return equal_covariance_module(Xs, ys, problem.alpha, rank)[0], "closed form"
    if len(Xs) == 2:
        return pair_direction(problem)[:, None], "profile"
    return None


def _padded(B: FloatArray, rank: int) -> FloatArray:
    return np.pad(B[:, :rank], ((0, 0), (0, max(0, rank - B.shape[1]))))


def _descents(
    blocks: list[FloatArray], labels: list[FloatArray], rank: int, starts: int, seed: int
) -> list[FloatArray]:
    """``(q, rank)`` modules that the descents from all starts end in."""
    from scipy.optimize import minimize  # loads in 0.2 s: only when a search is needed

    S = np.stack([Q.T @ Q for Q in blocks])  # (k, q, q)
    C = np.column_stack([Q.T @ y for Q, y in zip(blocks, labels, strict=True)])  # (q, k)
    C = C / (np.linalg.norm(np.concatenate(labels)) or 1.0)
    ends = []
    for Z in _starting_points(blocks, labels, C, rank, starts, seed):
        found = minimize(
            _negative_energy,
            np.linalg.qr(Z)[0].ravel(),
            args=(S, C, rank),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 3000, "maxfun": 4000, "maxcor": 20, "ftol": 1e-16, "gtol": 1e-12},
        )
        ends.append(np.linalg.qr(found.x.reshape(-1, rank))[0])
    return ends


def _starting_points(
    blocks: list[FloatArray], labels: list[FloatArray], C: FloatArray, rank: int, starts: int, seed: int
) -> list[FloatArray]:
    """``(q, rank)`` each: leading pooled directions, leading single-task directions, then Gaussian."""
    rng = np.random.default_rng(seed)
    own = np.column_stack([solve_least_squares(Q, y, 0.0, np) for Q, y in zip(blocks, labels, strict=True)])
    informed = [np.linalg.svd(M, full_matrices=True)[0][:, :rank] for M in (C, own)]
    random = [rng.standard_normal((len(C), rank)) for _ in range(max(0, starts - len(informed)))]
    return (informed + random)[:starts]


def _negative_energy(flat: FloatArray, S: FloatArray, C: FloatArray, rank: int) -> tuple[float, FloatArray]:
    """Minus the label energy that a module explains with its best heads, and the gradient in the module.

    With ``M_i = Z^T S_i Z``, ``g_i = Z^T c_i``, ``A_i = M_i^+ g_i``: the energy is ``sum g_i A_i`` and its gradient
    ``2 sum_i (c_i - S_i Z A_i) A_i^T`` (the heads are optimal, so their own change does not count).
    """
    Z = flat.reshape(-1, rank)
    SZ = S @ Z  # (k, q, r)
    g = (Z.T @ C).T  # (k, r)
    values, vectors = np.linalg.eigh(Z.T @ SZ)  # (k, r), (k, r, r)
    floor = values[:, -1:] * 1e-14
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=values > floor)
    heads = (vectors @ (inverse * (vectors.transpose(0, 2, 1) @ g[:, :, None])[:, :, 0])[:, :, None])[:, :, 0]  # (k, r)
    slope = C @ heads - np.einsum("kqr,kr,ks->qs", SZ, heads, heads, optimize=True)
    return -float((g * heads).sum()), -2.0 * slope.ravel()
