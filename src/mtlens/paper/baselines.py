"""Single-task baselines, the weak one of the paper and the tuned one that every transfer must be held against."""

from __future__ import annotations

import numpy as np

from mtlens.arrays import FloatArray

RIDGES = tuple(float(10.0**p) for p in np.linspace(-6, 3, 37))


def least_squares(X: FloatArray, y: FloatArray) -> FloatArray:
    """The paper's single-task optimum: minimum-norm least squares, ``(d,)``."""
    from mtlens.theory import single_task_optimum

    theta: FloatArray = single_task_optimum(X, y)
    return theta


def ridge_path(X: FloatArray, y: FloatArray, *, toward: FloatArray) -> FloatArray:
    """``(d, len(RIDGES))`` minimisers of ``|X theta - y|^2 + lambda |theta - toward|^2``, one a strength.

    Strengths are relative to the largest eigenvalue of ``X^T X``, so rescaling X changes nothing.
    """
    u, s, vt = np.linalg.svd(X, full_matrices=False)
    pulled = (u.T @ (y - X @ toward))[:, None] * s[:, None] / (s[:, None] ** 2 + np.array(RIDGES) * s[0] ** 2)
    path: FloatArray = toward[:, None] + vt.T @ pulled
    return path


def tuned_ridge(X: FloatArray, y: FloatArray) -> FloatArray:
    """Ridge with its strength chosen from :data:`RIDGES` by exact leave-one-out error, ``(d,)``."""
    u, s, _ = np.linalg.svd(X, full_matrices=False)
    shrink = s[:, None] ** 2 / (s[:, None] ** 2 + np.array(RIDGES) * s[0] ** 2)  # (rank, strengths)
    leverage = np.clip(u**2 @ shrink, 0.0, 1 - 1e-9)
    left_out = (y[:, None] - u @ (shrink * (u.T @ y)[:, None])) / (1 - leverage)
    theta: FloatArray = ridge_path(X, y, toward=np.zeros(X.shape[1]))[:, int(np.argmin(np.sum(left_out**2, axis=0)))]
    return theta
