"""Reduced-rank ridge regression over shared inputs, for every rank and ridge, and its cross-validation from sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.theory.gram import Gram
from mtlens.theory.spectral import descending_eigh, leading_directions


@dataclass(frozen=True)
class SharedTasks:
    """Tasks over the same rows in the eigenbasis of their inputs: all that a linear joint model needs to know.

    Attributes:
        roots: ``(q,)`` singular values of X.
        basis: ``(d, q)`` its right singular vectors V.
        parts: ``(q, k)`` label parts ``U^T Y``.
    """

    roots: FloatArray
    basis: FloatArray
    parts: FloatArray

    @classmethod
    def from_rows(cls, X: FloatArray, Y: FloatArray) -> SharedTasks:
        U, s, Vt = np.linalg.svd(X, full_matrices=False)
        kept = s > (s[0] if s.size else 0.0) * max(X.shape) * np.finfo(np.float64).eps
        return cls(s[kept], Vt[kept].T, U[:, kept].T @ Y)

    @classmethod
    def from_sums(cls, xx: FloatArray, xy: FloatArray) -> SharedTasks:
        """From ``X^T X`` ``(d, d)`` and ``X^T Y`` ``(d, k)``; directions below half of the digits are left out."""
        values, vectors = descending_eigh(xx)
        kept = values > values[0] * len(values) * np.finfo(np.float64).eps
        roots = np.sqrt(values[kept])
        return cls(roots, vectors[:, kept], (vectors[:, kept].T @ xy) / roots[:, None])

    def module(self, alpha: FloatArray, ridge: float, rank: int) -> tuple[FloatArray, FloatArray]:
        r"""Shared module ``(d, r)`` and heads ``(r, k)`` that minimise the weighted, penalised joint loss exactly.

        The proposition for shared inputs with ``ridge`` added to ``X^T X``: :math:`B = V (D^2 + \rho)^{-1/2} Q_r` with
        :math:`Q_r` the leading left singular vectors of :math:`(D^2 + \rho)^{-1/2} D\, U^\top Y
        \mathrm{diag}(\alpha)^{1/2}`.
        """
        inner, Q = self._directions(alpha, ridge)
        B = self.basis @ (Q[:, :rank] / np.sqrt(self.roots**2 + ridge)[:, None])
        return B, Q[:, :rank].T @ inner

    def coefficients(self, alpha: FloatArray, ridge: float, ranks: list[int]) -> FloatArray:
        """``(len(ranks), d, k)`` coefficients of every rank, from one decomposition."""
        inner, Q = self._directions(alpha, ridge)
        left = self.basis @ (Q / np.sqrt(self.roots**2 + ridge)[:, None])  # (d, q')
        right = Q.T @ inner  # (q', k)
        return np.stack([left[:, :r] @ right[:r] for r in ranks])

    def _directions(self, alpha: FloatArray, ridge: float) -> tuple[FloatArray, FloatArray]:
        inner = (self.roots / np.sqrt(self.roots**2 + ridge))[:, None] * self.parts
        if inner.shape[0] == 0:
            return inner, np.zeros((0, 0))
        return inner, np.linalg.svd(inner * np.sqrt(alpha), full_matrices=False)[0]


def svd_alpha(xy: FloatArray, label_energy: FloatArray, rank: int) -> FloatArray:
    """Algorithm 2's weights for labels of unit length, turned into weights on labels in their own units.

    Args:
        xy: ``(d, k)`` centred ``X^T Y``; label_energy: ``(k,)`` centred ``|y_i|^2`` (a constant label gets weight 0).
    """
    lengths = np.sqrt(label_energy)
    theta = np.divide(xy, lengths, out=np.zeros_like(xy), where=lengths > 0)
    alpha = np.linalg.norm(leading_directions(theta, rank).T @ theta, axis=0)
    if not alpha.any():
        return np.ones(len(alpha))
    own_units: FloatArray = np.divide(alpha, label_energy, out=np.zeros_like(alpha), where=label_energy > 0)
    return np.asarray(own_units / alpha.mean())


def default_ridges(xx: FloatArray) -> FloatArray:
    """A grid around the mean eigenvalue of ``X^T X``: from 1e-5 to 1e3 of it, 17 values."""
    mean = float(np.trace(xx)) / len(xx)
    return (mean if mean > 0 else 1.0) * np.logspace(-5, 3, 17)


def cross_validated_losses(
    gram: Gram, ridges: FloatArray, ranks: list[int], weights: FloatArray | str | None
) -> FloatArray:
    """``(len(ranks), len(ridges), k)`` held-out sums of squares, every fold held out once, intercepts fitted inside.

    ``gram`` holds X and Y per fold (brought near their means beforehand, so that the sums keep their digits).
    """
    total = np.zeros((len(ranks), len(ridges), gram.xy.shape[1]))
    for fold in range(gram.num_folds):
        held, train = gram.fold(fold), gram.without(fold)
        if held.rows == 0 or train.rows == 0:
            continue
        x, y = train.x_sum / train.rows, train.y_sum / train.rows
        xy = train.xy - np.outer(x, y) * train.rows
        energy = np.maximum(np.diag(train.yy) - train.rows * y**2, 0.0)
        tasks = SharedTasks.from_sums(train.covariance(center=True), xy)
        about = _about(held, x, y)
        for j, ridge in enumerate(ridges):
            for i, coef in enumerate(_coefficients(tasks, weights, xy, energy, ridge, ranks)):
                total[i, j] += _squared_errors(coef, *about)
    return total


def _coefficients(
    tasks: SharedTasks,
    weights: FloatArray | str | None,
    xy: FloatArray,
    energy: FloatArray,
    ridge: float,
    ranks: list[int],
) -> FloatArray:
    count = xy.shape[1]
    if not isinstance(weights, str):
        return tasks.coefficients(np.ones(count) if weights is None else weights, ridge, ranks)
    return np.concatenate([tasks.coefficients(svd_alpha(xy, energy, r), ridge, [r]) for r in ranks])


def _about(held: Gram, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """``X^T X``, ``X^T Y`` and the diagonal of ``Y^T Y`` of the held-out rows around the training means."""
    n = held.rows
    xx = held.matrix - np.outer(held.x_sum, x) - np.outer(x, held.x_sum) + n * np.outer(x, x)
    xy = held.xy - np.outer(held.x_sum, y) - np.outer(x, held.y_sum) + n * np.outer(x, y)
    return xx, xy, np.diag(held.yy) - 2 * y * held.y_sum + n * y**2


def _squared_errors(coef: FloatArray, xx: FloatArray, xy: FloatArray, yy: FloatArray) -> FloatArray:
    errors: FloatArray = yy - 2 * (coef * xy).sum(axis=0) + (coef * (xx @ coef)).sum(axis=0)
    return errors
