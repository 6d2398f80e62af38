"""Homoscedastic uncertainty weighting (Kendall, Gal and Cipolla 2018), which the paper compares with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.errors import InputError, unknown
from mtlens.theory.inputs import Numbers, float64, is_tensor, numbers_of, scalar, shared_labels, to_numpy, whole_rank
from mtlens.theory.spectral import numerical_rank

_LOSS_FACTOR = {"regression": 0.5, "binary": 1.0, "multiclass": 1.0, "classification": 1.0}
_MAX_ROUNDS = 100_000


def uncertainty_loss(losses: Any, log_vars: Any, kinds: Sequence[str]) -> Any:
    r"""Total loss with learned task noise :math:`s_i = \log \sigma_i^2`.

    .. math:: \sum_i \tfrac12 e^{-s_i} L_i + \tfrac12 s_i \ \text{(regression)}, \qquad
              \sum_i e^{-s_i} L_i + \tfrac12 s_i \ \text{(classification)},

    where ``L_i`` is the task's *mean* loss (squared error, or cross-entropy). Minimised at ``exp(-s_i) = 1 / L_i`` for
    regression and ``1 / (2 L_i)`` for classification. Equal weights ``w`` on every loss correspond to
    ``s = -log(2 w)`` for regression and ``-log(w)`` for classification.

    Args:
        losses: ``(k,)`` or ``(..., k)`` mean losses, or a list of k scalars.
        log_vars: ``(k,)`` or ``(..., k)`` values of s.
        kinds: k of "regression", "binary", "multiclass" or "classification".

    Returns:
        The sum over tasks: a float, a 0-d tensor with gradient, or an array over the leading axes.

    Example:
        >>> uncertainty_loss([2.0, 1.0], [0.0, 0.0], ["regression", "binary"])
        2.0
    """
    where = "uncertainty_loss"
    if isinstance(kinds, str) or not isinstance(kinds, Sequence):
        raise InputError(f"{where} needs kinds as a list with one kind a task, found {kinds!r}.")
    for kind in kinds:
        if kind not in _LOSS_FACTOR:
            raise unknown("kind", kind, _LOSS_FACTOR, where)
    xp = numbers_of(losses, log_vars)
    values, s = _stacked(losses, xp, log_vars, where), _stacked(log_vars, xp, losses, where)
    for name, found in (("losses", values), ("log_vars", s)):
        if found.ndim == 0 or found.shape[-1] != len(kinds):
            raise InputError(
                f"{where} needs one of {name} for each of the {len(kinds)} kinds, found {tuple(found.shape)}."
            )

    factor = float64([_LOSS_FACTOR[kind] for kind in kinds], xp, values)
    total = (factor * xp.exp(-s) * values + s / 2).sum(-1)
    return scalar(total) if total.ndim == 0 else total


def uncertainty_weights_shared(X: Any, Y: Any, *, rank: int) -> Any:
    r"""Where uncertainty weighting of regression tasks over shared inputs ends up: its closed-form fixed point.

    From equal weights, alternate the exact weighted optimum (:func:`shared_input_optimum`) and
    :math:`\alpha_i = 1 / (2 L_i)`, with ``L_i`` the task's *mean* squared error under it, until the weights stop
    moving. Every round lowers the uncertainty loss, so they do; another start may end elsewhere. Nothing is centred.

    There is no fixed point when a task can be fitted exactly (its weight grows without bound): that is refused.

    Args:
        X: ``(m, d)`` shared inputs.
        Y: ``(m, k)`` real labels, no NaN.
        rank: capacity of the shared module.

    Returns:
        ``(k,)`` weights; without gradient for tensors.

    Example:
        >>> Y = np.array([[0.0, 1.0], [2.0, 5.0]])  # around their means: squared error 1 and 4
        >>> uncertainty_weights_shared(np.ones((2, 1)), Y, rank=1).round(12).tolist()
        [0.5, 0.125]
    """
    where = "uncertainty_weights_shared"
    rank = whole_rank(rank, where)
    X, Y, xp = shared_labels(X, Y, where, "svd_weights_separate")
    alpha = _fixed_point(to_numpy(X), to_numpy(Y), rank, where)
    return alpha if xp is np else float64(alpha, xp, X)


def _fixed_point(X: FloatArray, Y: FloatArray, rank: int, where: str) -> FloatArray:
    U, D, _ = np.linalg.svd(X, full_matrices=False)
    U = U[:, : numerical_rank(D, X.shape)]
    Z = U.T @ Y  # (q, k)
    residual = ((Y - U @ Z) ** 2).sum(axis=0)  # what no module explains
    size = (Y**2).sum(axis=0)

    alpha, moved = np.ones(Y.shape[1]), np.inf
    for _ in range(_MAX_ROUNDS):
        Q = np.linalg.svd(Z * np.sqrt(alpha), full_matrices=False)[0][:, :rank]
        loss = residual + ((Z - Q @ (Q.T @ Z)) ** 2).sum(axis=0)
        if (exact := loss <= 1e-24 * size).any():
            raise InputError(
                f"{where}: the task in column {int(exact.argmax())} of Y is fitted exactly at rank={rank}, so its "
                "weight 1 / (2 L) has no finite value. Use a smaller rank, more rows, or leave that task out."
            )
        new = len(Y) / (2 * loss)
        last, moved = moved, float((np.abs(new - alpha) / new).max())
        alpha = new
        if moved <= 1e-14 or (moved < 1e-9 and moved >= last):  # the second: only rounding moves them now
            break
    return alpha


def _stacked(values: Any, xp: Any, like: Any, where: str) -> Numbers:
    if isinstance(values, (list, tuple)) and any(is_tensor(v) for v in values):
        return xp.stack([float64(v, xp) for v in values])
    return float64(values, xp, like, where)
