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


def tuned_ridge(
    X: FloatArray, y: FloatArray, *, toward: FloatArray | None = None, ridges: tuple[float, ...] = RIDGES
) -> FloatArray:
    """Ridge with its strength chosen by exact leave-one-out error, ``(d,)``.

    Minimises ``|X theta - y|^2 + lambda |theta - toward|^2``; ``toward`` is zero by default. With the joint solution
    there, this is Algorithm 1 for linear r = 1 with a penalty on ``R - I``: shrinking towards the shared solution.
    Strengths are relative to the largest eigenvalue of ``X^T X``, so rescaling X changes nothing. The infinite strength
    (``toward`` itself) is among the choices when it is given.
    """
    start = np.zeros(X.shape[1]) if toward is None else toward
    rest = y - X @ start
    u, s, vt = np.linalg.svd(X, full_matrices=False)
    projected = u.T @ rest
    errors, thetas = [], []
    for strength in ridges:
        shrink = s**2 / (s**2 + strength * s[0] ** 2)
        leverage = np.clip((u**2) @ shrink, 0.0, 1 - 1e-9)
        left_out = (rest - u @ (shrink * projected)) / (1 - leverage)
        errors.append(float(left_out @ left_out))
        thetas.append((strength, shrink))
    if toward is not None and float(rest @ rest) <= min(errors):
        return start
    shrink = thetas[int(np.argmin(errors))][1]
    moved = np.divide(shrink * projected, s, out=np.zeros_like(s), where=s > 0)
    theta: FloatArray = start + vt.T @ moved
    return theta
