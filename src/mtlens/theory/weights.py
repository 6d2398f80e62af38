"""Task weights from an SVD of the labels' directions (paper, Algorithm 2), and for separate inputs."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.errors import InputError
from mtlens.theory.inputs import Numbers, is_tensor, one_ridge, plain, shared_labels, task_list, to_numpy, whole_rank
from mtlens.theory.spectral import leading_directions


def svd_weights(
    X: Any, Y: Any, *, rank: int, scale_labels: bool = True, normalise: Literal["mean"] | None = "mean"
) -> Any:
    r"""Task weights for tasks over the same inputs: how much of a task lies in the shared directions (paper, Algorithm
    2).

    With :math:`\theta_i = X^\top y_i` and :math:`U_r` the leading r left singular vectors of
    :math:`(\theta_1, \dots, \theta_k)`: :math:`\alpha_i = |\theta_i^\top U_r|`.

    As printed (``scale_labels=False, normalise=None``) the weights grow with a task's label scale, its frequency and
    its noise, which is the opposite of what is wanted and worse than no weighting ("the entropy of a noisy label is
    small" is reversed in the paper). So by default ``X`` and ``Y`` are centred and every label column is scaled to unit
    length (the columns of ``X`` never are), and the weights are divided by their mean. Most of the gain over unweighted
    training (84 to 98 % in independent checks) is that scaling of labels; re-weighting itself pays only when the
    capacity is at most the intrinsic rank. Choose the capacity first.

    The raw weights satisfy ``sum(alpha ** 2) = sum of the leading r squared singular values``, permute with the tasks,
    and (without ``scale_labels``) grow with any common factor on the labels.

    Args:
        X: ``(m, d)`` shared inputs.
        Y: ``(m, k)`` labels, one column a task; NaN is refused (see :func:`svd_weights_separate`).
        rank: the r of the shared module, ``1 <= rank <= k``.
        scale_labels: centre, and scale labels to unit length; False takes both as given.
        normalise: ``"mean"`` for weights of mean 1, or None.

    Returns:
        ``(k,)`` weights, for the loss ``sum_i alpha_i |X B A_i - y_i|^2``. Tensors carry gradient.

    Example:
        >>> svd_weights(np.eye(3), np.diag([3.0, 2.0, 1.0]), rank=2, scale_labels=False, normalise=None).tolist()
        [3.0, 2.0, 0.0]
    """
    where = "svd_weights"
    rank = whole_rank(rank, where)
    X, Y, _ = shared_labels(X, Y, where, "svd_weights_separate")
    if rank > Y.shape[1]:
        raise InputError(
            f"{where}: rank={rank} is more than the {Y.shape[1]} tasks given, so only {Y.shape[1]} directions exist. "
            f"Use 1 <= rank <= {Y.shape[1]}."
        )
    _refuse_normalise(normalise, where)
    if scale_labels:
        X, Y = X - X.mean(0), _unit_labels(Y - Y.mean(0), Y, where)

    return _projected_lengths(X.T @ Y, rank, normalise, where)


def svd_weights_separate(
    Xs: Any, ys: Any, *, rank: int, ridge: float | None = None, normalise: Literal["mean"] | None = "mean"
) -> Any:
    r"""Task weights when every task has inputs of its own, which the paper leaves open.

    ``X_i^T y_i`` of different inputs cannot be compared: directions with large variance drown the others. So each task
    is whitened first. With centred ``X_i``, centred labels of unit length and :math:`C_i = X_i^\top X_i`,

    .. math:: w_i = (C_i + \rho_i I)^{-1/2} X_i^\top y_i = (C_i + \rho_i I)^{1/2} \theta_i(\rho_i)

    is the task's ridge solution in its whitened space (and, for shared inputs, what the proposition behind Algorithm 2
    really decomposes: :math:`U^\top y_i`). :math:`\alpha_i` is the length of :math:`w_i` inside the leading r left
    singular vectors of :math:`(w_1, \dots, w_k)`. An independent check of whitening in this way, not repeated here:
    error .091 against .314 for the printed form and .368 without weights.

    Args:
        Xs: k matrices ``(m_i, d)`` over one feature space.
        ys: k label vectors; NaN rows are dropped.
        rank: the r of the shared module; from the number of tasks on, every task counts with its whole length.
        ridge: rho for every task, added to ``C_i``. None: each task's own, by leave-one-out error.
        normalise: ``"mean"`` for weights of mean 1, or None.

    Returns:
        ``(k,)`` weights; tensors carry gradient when ``ridge`` is given.

    Example:
        >>> rows = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
        >>> labels = [[1.0, -1.0, 0.0, 0.0], [2.0, -2.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]]
        >>> svd_weights_separate([rows] * 3, labels, rank=1, ridge=0.0).round(6).tolist()
        [1.5, 1.5, 0.0]
    """
    where = "svd_weights_separate"
    rank = whole_rank(rank, where)
    Xs, ys, xp = task_list(Xs, ys, where)
    _refuse_normalise(normalise, where)
    given = None if ridge is None else one_ridge(ridge, where)

    columns = []
    for i, (X, y) in enumerate(zip(Xs, ys, strict=True)):
        X = X - X.mean(0)
        y = _unit_labels((y - y.mean(0))[:, None], y[:, None], where, task=i)[:, 0]
        rho = leave_one_out_ridge(to_numpy(X), to_numpy(y)) if given is None else given
        columns.append(_whitened(X, y, rho))
    return _projected_lengths(xp.stack(columns, 1), rank, normalise, where)


def leave_one_out_ridge(X: FloatArray, y: FloatArray, *, count: int = 49) -> float:
    """The ridge with the least leave-one-out squared error, on a grid around the eigenvalues of ``X^T X``.

    Uses ``e_i / (1 - H_ii)`` on one SVD; the grid runs from 1e-8 of the largest eigenvalue to 1e4 of it.
    """
    U, s, _ = np.linalg.svd(X, full_matrices=False)
    if s[0] == 0:
        return 1.0
    grid = s[0] ** 2 * np.logspace(-8, 4, count)
    shrink = s**2 / (s**2 + grid[:, None])  # (count, q)
    fitted = (shrink * (U.T @ y)) @ U.T  # (count, m)
    leverage = shrink @ (U**2).T + 1.0 / len(y)  # the mean, taken off both, uses a row's share too
    errors = ((y - fitted) / np.maximum(1.0 - leverage, 1e-12)) ** 2
    return float(grid[int(errors.mean(axis=1).argmin())])


def _whitened(X: Numbers, y: Numbers, ridge: float) -> Numbers:
    """``(d,)`` ``(C + ridge I)^(-1/2) X^T y``; the null space of C is left out when ridge is 0.

    From the SVD of X, because C would square its condition number. Tensors carry the derivative of the inverse root
    (Daleckii-Krein, eigenvectors held fixed) instead of that of a decomposition, which is NaN where two singular values
    agree.
    """
    U, s, Vt = np.linalg.svd(to_numpy(X), full_matrices=False)
    kept = s > s[0] * max(X.shape) * np.finfo(np.float64).eps
    roots = np.where(kept | (ridge > 0), np.sqrt(s**2 + ridge), np.inf)
    value = Vt.T @ ((s / roots) * (U.T @ to_numpy(y)))
    if not is_tensor(X):
        return value
    V, inverse, slope = (X.new_tensor(a) for a in _inverse_root(Vt, roots, ridge))
    moved = V.T @ (X.T @ X) @ V
    moved = slope * (moved - moved.detach()) + inverse.diag()
    zero = V @ (moved @ (V.T @ (X.T @ y)))
    return X.new_tensor(value) + (zero - zero.detach())


def _inverse_root(Vt: FloatArray, roots: FloatArray, ridge: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Eigenvectors ``(d, d)`` of ``C + ridge I``, the inverse roots ``(d,)`` of its eigenvalues and their slopes.

    An inverse root is 0 where its direction is left out. Slopes ``(d, d)`` are the divided differences of the inverse
    root: ``-1 / (a b (a + b))`` for roots a and b, ``1 / a^3`` towards what is left out.
    """
    width = Vt.shape[1]
    V = np.linalg.svd(Vt, full_matrices=True)[2][len(Vt) :]
    V = np.concatenate([Vt, V]).T
    a = np.concatenate([roots, np.full(width - len(roots), np.sqrt(ridge) if ridge > 0 else np.inf)])
    inverse = 1.0 / a
    with np.errstate(invalid="ignore"):
        slope = -np.outer(inverse, inverse) / np.add.outer(a, a)
    left_out = np.isinf(a)
    slope[left_out] = inverse**3
    slope[:, left_out] = slope[left_out].T
    slope[np.ix_(left_out, left_out)] = 0.0
    return V, inverse, slope


def _projected_lengths(theta: Numbers, rank: int, normalise: str | None, where: str) -> Numbers:
    """``(k,)`` lengths of the columns of ``theta`` ``(d, k)`` inside its leading directions."""
    if normalise is not None and plain(abs(theta).max()) == 0.0:
        raise InputError(
            f"{where}: X^T y is zero for every task, so there is nothing to weigh (0/0). "
            "Check that features and labels vary together, or use normalise=None."
        )
    inside = leading_directions(theta, rank).T @ theta
    squared = (inside * inside).sum(0)
    if is_tensor(squared):
        lengths = squared.new_zeros(()).where(squared == 0, squared.clamp(min=1e-300).sqrt())
    else:
        lengths = np.sqrt(squared)
    return lengths / lengths.mean() if normalise == "mean" else lengths


def _unit_labels(centred: Numbers, raw: Numbers, where: str, *, task: int | None = None) -> Numbers:
    """Columns of unit length; a constant column has none and is refused (``task``: whose only column it is)."""
    lengths = (centred * centred).sum(0) ** 0.5
    found, size = to_numpy(lengths), np.abs(to_numpy(raw)).max(axis=0)
    flat = found <= 1e-14 * np.sqrt(len(raw)) * size
    if flat.any():
        whose = f"in column {int(flat.argmax())}" if task is None else f"of task {task}"
        instead = ", or use scale_labels=False" if task is None else ""
        raise InputError(
            f"{where}: the labels {whose} are constant, so they have no direction to share. "
            f"Leave that task out{instead}."
        )
    return centred / lengths


def _refuse_normalise(normalise: object, where: str) -> None:
    if normalise not in ("mean", None):
        raise InputError(f"{where} needs normalise='mean' or None, found {normalise!r}.")
