"""Gradients of a minimiser without differentiating the search that found it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.theory.inputs import Numbers
from mtlens.theory.loss import column_scales
from mtlens.theory.models import solve_least_squares
from mtlens.theory.optimum import Optimum

_FLAT = 1e-12  # curvature below this share of the largest is a direction that leaves the span of B alone


def with_gradient(
    optimum: Optimum, Xs: Sequence[Numbers], ys: Sequence[Numbers], alpha: Numbers, rho: FloatArray, xp: Any
) -> Optimum:
    r"""The same optimum as float64 tensors that carry the gradient of the minimiser with respect to the tasks.

    At an optimum the slope ``g(B; data)`` is zero, so ``dB = -H^+ dg`` with the Hessian ``H`` held fixed (implicit
    function theorem); heads, coefficients and losses then follow by ordinary differentiation. The values do not move.
    Exact for ``A``-independent quantities (``coef``, ``loss``, ``excess``) at a strict minimum; ``B`` and ``A`` alone
    have gradients in the gauge where B's columns are not rescaled or mixed. Cost: one ``(d r)^2`` Hessian, only when
    some input asks for a gradient.
    """
    B = _tensor(optimum.B, Xs[0])
    if any(v.requires_grad for v in (*Xs, *ys, alpha)):
        B = B + _implicit_step(B, Xs, ys, alpha, rho, xp)
    A = xp.stack([_head(B, X, y, r, xp) for X, y, r in zip(Xs, ys, rho, strict=True)], dim=1)
    coef = B @ A
    loss = _weighted(alpha, Xs, ys, coef)
    own = [solve_least_squares(X, y, float(r), xp) for X, y, r in zip(Xs, ys, rho, strict=True)]
    excess = loss - _weighted(alpha, Xs, ys, xp.stack(own, dim=1))
    exact = loss.new_tensor(optimum.excess)
    return replace(optimum, B=B, A=A, coef=coef, loss=loss, excess=exact + (excess - excess.detach()))


def _implicit_step(
    B: Numbers, Xs: Sequence[Numbers], ys: Sequence[Numbers], alpha: Numbers, rho: FloatArray, xp: Any
) -> Numbers:
    """A zero ``(d, r)`` tensor whose gradient is that of the minimiser."""
    scale = (
        1.0 / sum((X.detach() ** 2).sum(0) + r for X, r in zip(Xs, rho, strict=True)).clamp(min=1e-300).sqrt()[:, None]
    )
    fixed_Xs, fixed_ys = [X.detach() for X in Xs], [y.detach() for y in ys]

    def slope_at(flat: Numbers) -> Numbers:
        return _slope(B + scale * flat.reshape(B.shape), fixed_Xs, fixed_ys, alpha.detach(), rho, xp).reshape(-1)

    zero = xp.zeros(B.numel(), dtype=B.dtype, device=B.device)
    hessian = xp.autograd.functional.jacobian(slope_at, zero) * scale.expand_as(B).reshape(-1, 1)
    slope = (_slope(B, Xs, ys, alpha, rho, xp) * scale).reshape(-1)
    inverse = xp.linalg.pinv((hessian + hessian.T) / 2, rtol=_FLAT, hermitian=True)
    return -(scale * (inverse @ (slope - slope.detach())).reshape(B.shape))


def _slope(B: Numbers, Xs: Any, ys: Any, alpha: Numbers, rho: FloatArray, xp: Any) -> Numbers:
    """``sum_i alpha_i (S_i B A_i - X_i^T y_i) A_i^T``: half the gradient in ``B`` with heads at their best."""
    total = xp.zeros_like(B)
    for X, y, a, r in zip(Xs, ys, alpha, rho, strict=True):
        head = _head(B, X, y, r, xp)
        theta = B @ head
        total = total + a * xp.outer(X.T @ (X @ theta - y) + float(r) * theta, head)
    return total


def _head(B: Numbers, X: Numbers, y: Numbers, ridge: float, xp: Any) -> Numbers:
    """``(r,)`` best head of one task, minimum norm."""
    if ridge > 0:
        eye = xp.eye(X.shape[1], dtype=X.dtype, device=X.device) * float(np.sqrt(ridge))
        X, y = xp.cat([X, eye]), xp.cat([y, y.new_zeros(X.shape[1])])
    scale, floor = column_scales(X, B)
    cut = np.finfo(np.float64).eps * max(X.shape[0], B.shape[1])
    return xp.linalg.pinv(X @ B / scale, atol=floor, rtol=cut) @ y / scale


def _weighted(alpha: Numbers, Xs: Sequence[Numbers], ys: Sequence[Numbers], coef: Numbers) -> Numbers:
    return sum(a * ((X @ t - y) ** 2).sum() for a, X, y, t in zip(alpha, Xs, ys, coef.T, strict=True))


def _tensor(value: Any, like: Numbers) -> Numbers:
    return like.new_tensor(np.ascontiguousarray(value))
