"""How many local minima the two-task, rank-one objective has: its exact one-dimensional profile, on a grid."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from mtlens.arrays import FloatArray


def profile(
    X1: FloatArray, y1: FloatArray, X2: FloatArray, y2: FloatArray, *, points: int = 4000
) -> tuple[FloatArray, FloatArray]:
    r"""Explained energy of the best ``B`` for every ratio of the two heads, over angles in ``[-pi/2, pi/2)``.

    With heads ``(cos t, sin t)`` the best ``B`` solves a linear system; diagonalising both Gram matrices at once
    (:math:`W^\top (G_1 + G_2) W = I`, :math:`W^\top G_1 W = \Lambda`) makes each angle cost ``O(d)``. The objective is
    strictly convex in ``B``, so its local minima in ``(B, A)`` are exactly the local maxima of this curve.
    Needs ``X1`` and ``X2`` of full column rank together.
    """
    first, second = X1.T @ X1, X2.T @ X2
    shares, W = eigh(first, first + second)
    shares = np.clip(shares, 0.0, 1.0)
    a, b = W.T @ (X1.T @ y1), W.T @ (X2.T @ y2)
    angles = np.linspace(-np.pi / 2, np.pi / 2, points, endpoint=False)[:, None]
    weight = np.cos(angles) ** 2 * shares + np.sin(angles) ** 2 * (1 - shares)
    aimed = np.cos(angles) * a + np.sin(angles) * b
    energy: FloatArray = np.sum(aimed**2 / np.maximum(weight, 1e-300), axis=1)
    return angles[:, 0], energy


def count_minima(energy: FloatArray, *, tolerance: float = 1e-9) -> int:
    """Local maxima of a periodic curve of explained energy (the ends meet: flipping both heads flips ``B`` only).

    Neighbouring grid values closer than ``tolerance`` of the curve's range count as equal, so rounding adds none.

    >>> count_minima(np.array([0.0, 1.0, 0.0, 2.0, 0.0]))
    2
    """
    steps = np.diff(np.append(energy, energy[0]))
    steps = steps[np.abs(steps) > tolerance * max(float(np.ptp(energy)), 1e-300)]
    rising = steps > 0
    return int(np.sum(rising & ~np.roll(rising, -1))) if steps.size else 1
