"""The ReLU model with one shared unit (paper, Appendix A.2.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mtlens.errors import InputError
from mtlens.theory.inputs import float64, numbers_of, scalar, to_numpy
from mtlens.theory.loss import project_onto, shared_inputs

_ROUNDING = 1e-6  # pi in float32 is above pi


def relu_moment(phi: Any) -> Any:
    r"""Expected product of two ReLU units whose unit weight vectors enclose the angle ``phi``.

    .. math:: \mathbb{E}_{x \sim N(0, I)}[\max(x^\top u, 0) \max(x^\top v, 0)]
              = \frac{\sin\varphi + (\pi - \varphi) \cos\varphi}{2 \pi}.

    The paper prints it with ``tan(phi)`` (and calls it ``g(phi) / 2``), which is infinite times zero at a right angle;
    this form is the same number without that. From 1/2 at angle 0 it falls to 0 at pi.

    Args:
        phi: angle in ``[0, pi]``, a number or an array of any shape.

    Example:
        >>> relu_moment(0.0), round(relu_moment(np.pi / 2), 12) == round(1 / (2 * np.pi), 12)
        (0.5, True)
    """
    xp = numbers_of(phi)
    angle = float64(phi, xp, where="relu_moment")
    plain = to_numpy(angle)
    wrong = ~((plain >= -_ROUNDING) & (plain <= np.pi + _ROUNDING))
    if wrong.any():
        raise InputError(f"relu_moment needs angles between 0 and pi, found {plain[wrong].ravel()[:5].tolist()}.")
    angle = angle.clip(0.0, np.pi)
    value = (xp.sin(angle) + (np.pi - angle) * xp.cos(angle)) / (2 * np.pi)
    return scalar(value) if value.ndim == 0 else value


def relu_objective(B: Any, Xs: Any, ys: Any) -> Any:
    r"""What the ReLU model with heads at their best *maximises* over the shared module (paper, eq. for g(B)).

    .. math:: g(B) = \sum_i \left\langle \frac{\mathrm{ReLU}(X_i B)}{|\mathrm{ReLU}(X_i B)|}, y_i \right\rangle^2,

    for r = 1; for more units the label energy inside the span of the activations, :math:`\sum_i |P_{\mathrm{ReLU}(X_i
    B)} y_i|^2`, which is the same at r = 1. The loss is ``sum_i |y_i|^2 - g(B)``. A task with no active unit counts 0.
    Unchanged when ``B`` is rescaled by a positive number, **not** when its sign flips: the linear case is symmetric,
    this is not.

    Args:
        B: ``(d,)`` or ``(d, r)``.
        Xs: k matrices ``(m_i, d)``.
        ys: k label vectors; NaN rows are dropped.

    Example:
        >>> X, y = np.array([[1.0], [-1.0]]), [3.0, 1.0]
        >>> relu_objective([1.0], [X], [y]), relu_objective([-1.0], [X], [y])
        (9.0, 1.0)
    """
    B, Xs, ys, _, xp = shared_inputs(B, Xs, ys, None, "relu_objective")
    total = 0.0
    for X, y in zip(Xs, ys, strict=True):
        inside = project_onto((X @ B).clip(min=0), y, xp)
        total = total + (inside * inside).sum()
    return scalar(total)
