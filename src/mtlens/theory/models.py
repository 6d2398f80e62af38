"""Single-task models and the angle between two of them (paper, Sections 2.1 and 2.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.errors import InputError
from mtlens.theory.inputs import (
    Numbers,
    float64,
    is_tensor,
    labelled_rows,
    matrix,
    numbers_of,
    one_ridge,
    plain,
    refuse_not_finite,
    scalar,
    vector,
)


def single_task_optimum(X: Any, y: Any, *, ridge: float = 0.0) -> Any:
    r"""A task's own least squares: :math:`\theta = (X^\top X + \rho I)^\dagger X^\top y` (paper, Section 2.2).

    Minimum norm where several solutions fit equally well; no intercept, nothing centred. With ``ridge`` the penalty is
    ``ridge * |theta|^2`` beside a *sum* of squared errors.

    Args:
        X: ``(m, d)`` features.
        y: ``(m,)`` labels, or ``(m, k)`` for k tasks over the same rows. NaN rows of a vector are dropped; in a matrix
            NaN is refused.
        ridge: ``rho >= 0``.

    Returns:
        ``(d,)`` or ``(d, k)``.

    Example:
        >>> single_task_optimum(np.array([[1.0, 1.0]]), [2.0]).round(12)
        array([1., 1.])
    """
    where = "single_task_optimum"
    rho = one_ridge(ridge, where)
    xp = numbers_of(X, y)
    labels = float64(y, xp, X, where)
    if labels.ndim == 2:
        X = matrix(X, where, xp=xp, like=labels)
        if labels.shape[0] != X.shape[0]:
            raise InputError(
                f"{where}: X has {X.shape[0]} rows, y has {labels.shape[0]}. Give one row of labels a row."
            )
        refuse_not_finite(labels, where, "y")
    else:
        X, labels = labelled_rows(X, labels, where, xp)

    return solve_least_squares(X, labels, rho, xp)


def solve_least_squares(X: Numbers, y: Numbers, ridge: float, xp: Any, floor: float = 0.0) -> Numbers:
    """The same without checks, numpy or torch; y ``(m,)`` or ``(m, k)``.

    Never from ``X^T X``, which would square the condition number. With full column rank the solution does not depend
    on the units of the columns, so they are brought to one size first: features of 1e-8 beside others of 1e8 then cost
    no digits. ``floor``: singular values up to this count as zero, too, where numpy solves without ridge.
    """
    if ridge > 0:
        if xp is np and X.shape[0] < X.shape[1]:
            return _few_rows(X, y, ridge)
        found = solve_least_squares(*_with_penalty_rows(X, y, ridge, xp), 0.0, xp)
        return found + _rounding_of_ridge(found, X, y, ridge, xp)
    if X.shape[0] >= X.shape[1] and floor == 0.0:
        size = _column_peaks(X)
        found = _full_rank_solution(X / size, y, xp)
        if found is not None:
            return (found.T / size).T if y.ndim == 2 else found / size
    if xp is not np:
        return xp.linalg.pinv(X) @ y
    cut = np.finfo(np.float64).eps * max(X.shape)
    if floor > 0.0:  # lstsq takes a share of the largest singular value only
        cut = max(cut, floor / max(float(np.linalg.norm(X, 2)), np.finfo(np.float64).tiny))
    return np.linalg.lstsq(X, y, rcond=cut)[0]


def _few_rows(X: FloatArray, y: FloatArray, ridge: float) -> FloatArray:
    """Ridge by the SVD of ``X``: the cost grows with the rows squared, not with the columns cubed."""
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    found: FloatArray = Vt.T @ ((s / (s**2 + ridge)) * (U.T @ y).T).T
    return found


def _with_penalty_rows(X: Numbers, y: Numbers, ridge: float, xp: Any) -> tuple[Numbers, Numbers]:
    """``sqrt(ridge) I`` below X and zeros below y: their least squares is the ridge solution."""
    shape = (X.shape[1], *y.shape[1:])
    if xp is np:
        return np.vstack([X, ridge**0.5 * np.eye(X.shape[1])]), np.concatenate([y, np.zeros(shape)])
    eye = xp.eye(X.shape[1], dtype=X.dtype, device=X.device)
    return xp.cat([X, ridge**0.5 * eye]), xp.cat([y, y.new_zeros(shape)])


def _rounding_of_ridge(found: Numbers, X: Numbers, y: Numbers, ridge: float, xp: Any) -> Numbers:
    """What rounding took from a ridge solution, found by one Newton step on ``X^T (y - X t) = ridge t``; no gradient.

    Least squares on penalty rows is exact to a share of ``|y| / |t|``, which costs eight digits where inputs of 1e-8
    meet a ridge of 1. Directions with eigenvalues below 1e-10 of the largest are left alone: a Newton step from
    ``X^T X`` knows less of them than the solution does.
    """
    if is_tensor(X):
        found, X, y = found.detach(), X.detach(), y.detach()
    t, labels = found.reshape(X.shape[1], -1), y.reshape(X.shape[0], -1)
    C = X.T @ X
    size = (C.diagonal() + ridge)[:, None] ** 0.5
    values, vectors = xp.linalg.eigh((C + xp.diag(xp.full_like(C.diagonal(), ridge))) / size / size.T)
    kept = values > 1e-10 * values[-1]
    V = vectors[:, kept]
    slope = (X.T @ (labels - X @ t) - ridge * t) / size
    return (V @ (V.T @ slope / values[kept][:, None]) / size).reshape(found.shape)


def _column_peaks(X: Numbers) -> Numbers:
    """``(d,)`` largest size in each column, 1 for a column of zeros; without gradient."""
    if is_tensor(X):
        peaks = X.detach().abs().amax(0)
        return peaks.where(peaks > 0, peaks.new_ones(()))
    peaks = np.abs(X).max(axis=0)
    return np.where(peaks > 0, peaks, 1.0)


def _full_rank_solution(X: Numbers, y: Numbers, xp: Any) -> Numbers | None:
    """Least squares of a matrix of full column rank, None for another."""
    if xp is not np:
        return xp.linalg.pinv(X) @ y if int(xp.linalg.matrix_rank(X.detach())) == X.shape[1] else None
    found, _, rank, _ = np.linalg.lstsq(X, y, rcond=np.finfo(np.float64).eps * max(X.shape))
    return found if rank == X.shape[1] else None


def sin_angle(a: Any, b: Any) -> Any:
    r"""Sine of the angle between two vectors, :math:`\sqrt{1 - \cos^2} \in [0, 1]` (paper, Appendix A, notations).

    The same for ``b`` and ``-b``. Computed as the length of the part of ``a`` outside ``b``, which keeps its digits
    where ``sqrt(1 - cos^2)`` loses half of them. At parallel vectors the gradient is 0 rather than NaN.

    Example:
        >>> sin_angle([1.0, 0.0], [0.0, -2.0])
        1.0
    """
    where = "sin_angle"
    xp = numbers_of(a, b)
    first, second = vector(a, where, name="a", xp=xp, like=b), vector(b, where, name="b", xp=xp, like=a)
    if first.shape != second.shape:
        raise InputError(f"{where} needs vectors of one length, found {first.shape[0]} and {second.shape[0]}.")
    first, second = _unit(first, "a", where), _unit(second, "b", where)

    outside = first - (first @ second) * second
    squared = (outside * outside).sum()
    if plain(squared) == 0.0:
        return scalar(squared)
    return scalar(xp.sqrt(squared))


def _unit(v: Numbers, name: str, where: str) -> Numbers:
    peak = plain(abs(v).max())
    if peak == 0.0:
        raise InputError(f"{where}: {name} is the zero vector, which has no direction. Give a model that is not zero.")
    v = v / peak  # squares of 1e-200 would vanish
    return v / (v * v).sum() ** 0.5
