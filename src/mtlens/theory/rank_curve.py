r"""How many shared directions the tasks need: cross-validated error of a shared linear module of every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.theory.joint_ridge import squared_error
from mtlens.theory.standardised import View
from mtlens.theory.transfer import LinearTransfer

FLAT = 2.0  # standard errors that a rank must be worse than the best to count
WORTH = 0.01  # of R2 that it must be worse besides: a point, less than capacity is worth choosing for


@dataclass(frozen=True, eq=False)
class RankCurve:
    """Mean out-of-fold R2 over tasks for every shared rank, and which rank that suggests.

    ``ranks`` (R,) ends with the number of outputs, where nothing is shared and every task has its own tuned ridge.
    ``scores`` (R,) are means over tasks; ``errors`` (R,) the standard error of each rank's difference to the best, from
    folds (0 at the best). ``suggested`` is the smallest rank within one such error of the best. ``flat`` says that no
    rank is worse than the best by more than two of them and a point of R2: then the capacity does not matter here,
    and the suggestion means little.
    """

    ranks: tuple[int, ...]
    scores: FloatArray
    errors: FloatArray
    best: int
    suggested: int
    flat: bool


def rank_curve(core: LinearTransfer, ranks: Sequence[int] | None = None) -> RankCurve:
    r"""Cross-validate a shared module of each rank over all tasks of a core.

    With tuned single-task ridge solutions :math:`\theta_i` and pooled second moment :math:`\bar G`, the module spans
    :math:`\bar G^{-1/2} U_r`, ``U_r`` the leading left singular vectors of
    :math:`\bar G^{1/2} (\theta_1, \dots, \theta_k)`
    (for shared inputs the best rank-r approximation of the fitted values); heads are refitted by each task's own ridge.
    At full rank this is the tuned single-task model, so the curve compares like with like. Not the exact optimum of the
    joint objective when covariances differ; see ``linear_optimum`` for that.

    Args:
        core: the folded tasks.
        ranks: which to try; by default 1, 2, 3, 4, 6, 8, 12, ... up to the number of outputs (at most the width).
    """
    outputs = sum(task.c.shape[1] for task in core.view(None).tasks)
    most = min(outputs, core.width)
    tried = tuple(sorted({r for r in (ranks or default_ranks(most)) if 1 <= r <= most} | {most}))
    ridges = np.array([core.alone(name).ridge for name in core.names])
    losses = np.stack([_fold_losses(core.view(f), ridges, tried) for f in range(core.num_folds)], axis=-1)  # (R, k, K)
    base = core.base_losses().mean(axis=1)
    varies = base > 0  # a constant label has no share to explain
    shares = losses[:, varies] / base[varies][:, None]
    explained = 1.0 - shares.mean(axis=1) if varies.any() else np.zeros((len(tried), core.num_folds))
    return _summary(core, tried, explained)


def default_ranks(most: int) -> tuple[int, ...]:
    """1, 2, 3, 4, 6, 8, 12, 16, ... up to ``most``.

    >>> default_ranks(14)
    (1, 2, 3, 4, 6, 8, 12, 14)
    """
    ladder = [1, *(step * 2**power for power in range(12) for step in (2, 3))]
    return tuple(sorted({r for r in ladder if r <= most} | {most}))


def _summary(core: LinearTransfer, ranks: tuple[int, ...], folds: FloatArray) -> RankCurve:
    scores = folds.mean(axis=1)
    best = int(np.argmax(scores))
    gaps = folds[best] - folds
    errors = core.standard_error(gaps)
    errors[best] = 0.0
    means = gaps.mean(axis=1)
    within = np.flatnonzero(means <= errors)
    return RankCurve(
        ranks,
        scores,
        errors,
        ranks[best],
        ranks[int(within[0])],
        bool((means <= np.maximum(FLAT * errors, WORTH)).all()),
    )


def _fold_losses(view: View, ridges: FloatArray, ranks: tuple[int, ...]) -> FloatArray:
    """Held-out squared error (R, k) in original units of every rank on every task."""
    solutions = np.concatenate(
        [np.linalg.solve(t.G + r * np.eye(len(t.G)), t.c) for t, r in zip(view.tasks, ridges, strict=True)], axis=1
    )
    pooled = sum((task.G for task in view.tasks), np.zeros_like(view.tasks[0].G))
    values, vectors = np.linalg.eigh(pooled)
    root = np.sqrt(np.maximum(values, 0.0) + 1e-9 * max(float(values[-1]), np.finfo(float).tiny))
    left, _, _ = np.linalg.svd(root[:, None] * (vectors.T @ solutions), full_matrices=False)
    module = vectors @ (left / root[:, None])
    losses = np.empty((len(ranks), len(view.tasks)))
    for i, (task, ridge) in enumerate(zip(view.tasks, ridges, strict=True)):
        W = np.stack([_through(module[:, :r], task.G, task.c, float(ridge)) for r in ranks])
        losses[:, i] = squared_error(W, task.hold_xx, task.hold_xy, task.hold_yy) * task.scale_y**2
    return losses


def _through(B: Array, G: FloatArray, c: FloatArray, ridge: float) -> FloatArray:
    """The task's ridge solution among coefficients ``B a``: ``B (B^T (G + ridge) B)^{-1} B^T c``."""
    Q, _ = np.linalg.qr(B)
    inner = Q.T @ G @ Q
    inner[np.diag_indices_from(inner)] += ridge
    found: FloatArray = Q @ np.linalg.solve(inner, Q.T @ c)
    return found
