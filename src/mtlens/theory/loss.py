"""What a shared module achieves when every head is at its best (paper, Appendix A.1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mtlens.errors import InputError
from mtlens.theory.inputs import (
    Numbers,
    float64,
    is_tensor,
    numbers_of,
    plain,
    refuse_not_finite,
    scalar,
    task_list,
    task_weights,
)


def mtl_loss(B: Any, Xs: Any, ys: Any, weights: Any = None) -> Any:
    r"""Loss of a shared module with optimal heads: :math:`\sum_i \alpha_i \min_a |X_i B a - y_i|^2`.

    Depends on the span of ``B`` only (where each ``X_i B`` has constant rank). Sums over rows, not means.

    Args:
        B: ``(d, r)`` shared module, or ``(d,)`` for r = 1.
        Xs: k matrices ``(m_i, d)``.
        ys: k label vectors ``(m_i,)``; NaN rows are dropped.
        weights: the k alphas, used as given; all 1 when None.

    Example:
        >>> mtl_loss(np.array([1.0, 0.0]), [np.eye(2), np.eye(2)], [[1.0, 0.0], [0.0, 2.0]])
        4.0
    """
    B, Xs, ys, alpha, xp = shared_inputs(B, Xs, ys, weights, "mtl_loss")
    fits = (y - project(X, B, y, xp) for X, y in zip(Xs, ys, strict=True))
    return scalar(sum(a * (e * e).sum() for a, e in zip(alpha, fits, strict=True)))


def explained_energy(B: Any, Xs: Any, ys: Any, weights: Any = None) -> Any:
    r"""Label energy inside the shared module's range: :math:`\sum_i \alpha_i |P_{X_i B} y_i|^2` (eq. of Prop. A.1).

    What the paper maximises over ``B``; together with :func:`mtl_loss` it adds up to :math:`\sum_i \alpha_i |y_i|^2`.
    Arguments as for :func:`mtl_loss`.

    Example:
        >>> explained_energy(np.array([1.0, 0.0]), [np.eye(2), np.eye(2)], [[1.0, 0.0], [0.0, 2.0]])
        1.0
    """
    B, Xs, ys, alpha, xp = shared_inputs(B, Xs, ys, weights, "explained_energy")
    parts = (project(X, B, y, xp) for X, y in zip(Xs, ys, strict=True))
    return scalar(sum(a * (p * p).sum() for a, p in zip(alpha, parts, strict=True)))


def project(X: Numbers, B: Numbers, y: Numbers, xp: Any) -> Numbers:
    """The part of ``y`` ``(m,)`` in the column span of ``X B`` ``(m, r)``."""
    scale, floor = column_scales(X, B)
    return project_onto(X @ B / scale, y, xp, floor)


def project_onto(Z: Numbers, y: Numbers, xp: Any, floor: float = 0.0) -> Numbers:
    """The part of ``y`` ``(m,)`` in the column span of ``Z`` ``(m, r)``; directions at rounding level do not count.

    Rounding is what is below ``max(m, r)`` epsilons of the largest singular value, or below ``floor``.
    """
    if xp is not np:
        cut = np.finfo(np.float64).eps * max(Z.shape)
        return Z @ (xp.linalg.pinv(Z, atol=floor, rtol=cut) @ y)
    U, s, _ = np.linalg.svd(Z, full_matrices=False)
    U = U[:, s > max(s.max(initial=0.0) * max(Z.shape) * np.finfo(np.float64).eps, floor)]
    return U @ (U.T @ y)


def column_scales(X: Numbers, B: Numbers) -> tuple[Numbers, float]:
    """``(r,)`` lengths of the columns of ``X B``, infinite for one that is zero up to rounding; and what is rounding.

    Dividing by them keeps the small columns of a module with columns of very different size. What is rounding is judged
    entry by entry (``eps * |X| |B|``), so that features on very different scales do not count as zero. The second
    number is how far rounding may move the columns once they have length one: smaller singular values mean nothing.
    Neither carries gradient.
    """
    if is_tensor(X):
        X, B = X.detach(), B.detach()
    noise = np.finfo(np.float64).eps * max(X.shape) * _lengths(abs(X) @ abs(B))
    lengths = _lengths(X @ B)
    lengths[lengths <= noise] = float("inf")
    return lengths, plain(_lengths(noise / lengths))


def _lengths(Z: Numbers) -> Numbers:
    return (Z * Z).sum(0) ** 0.5


def shared_inputs(B: Any, Xs: Any, ys: Any, weights: Any, where: str) -> tuple[Any, list[Any], list[Any], Any, Any]:
    tensors = numbers_of(B, weights)
    Xs, ys, xp = task_list(Xs, ys, where)
    if tensors is not np and xp is np:
        xp = tensors
        Xs, ys = ([float64(v, xp, B) for v in vs] for vs in (Xs, ys))
    B = float64(B, xp, Xs[0])
    B = B[:, None] if B.ndim == 1 else B
    if B.ndim != 2 or B.shape[0] != Xs[0].shape[1] or B.shape[1] == 0:
        raise InputError(
            f"{where} needs a shared module B with one row for each of the {Xs[0].shape[1]} features, "
            f"found shape {tuple(B.shape)}."
        )
    refuse_not_finite(B, where, "B")
    return B, Xs, ys, task_weights(weights, len(Xs), where, xp, Xs[0]), xp
