"""Cutting spectra: how many eigenvalues carry a share of the energy, and cuts that gradients pass through."""

from __future__ import annotations

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.errors import InputError
from mtlens.theory.inputs import Numbers, is_tensor, to_numpy

ENERGY_SLACK = 1e-12  # a sum that should reach the share exactly may fall short by rounding


def checked_energy(energy: float, where: str) -> float:
    if not isinstance(energy, (int, float, np.number)) or not 0.0 < float(energy) <= 1.0:
        raise InputError(
            f"{where} needs 0 < energy <= 1, found energy={energy!r}. It is a share of the eigenvalue sum."
        )
    return float(energy)


def num_kept(eigenvalues: FloatArray, energy: float) -> int:
    """The fewest leading eigenvalues (descending) whose sum reaches ``energy`` of the total, with a 1e-12 slack.

    >>> num_kept(np.array([98.0, 1.0, 1.0]), 0.99)
    2
    """
    shares = np.cumsum(eigenvalues) / eigenvalues.sum()
    return min(int(np.searchsorted(shares, energy - ENERGY_SLACK)) + 1, len(eigenvalues))


def numerical_rank(singular_values: FloatArray, shape: tuple[int, ...]) -> int:
    """How many singular values (descending) of a matrix of this shape are more than rounding."""
    cut = singular_values[0] * max(shape) * np.finfo(np.float64).eps
    return int((singular_values > cut).sum())


def descending_eigh(C: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues of a positive semi-definite matrix, largest first, roundoff below zero removed; and eigenvectors."""
    values, vectors = np.linalg.eigh(C)
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]


def kept_eigenpairs(C: FloatArray, energy: float) -> tuple[FloatArray, FloatArray]:
    """``(r,)`` eigenvalues and ``(d, r)`` eigenvectors that carry ``energy`` of the trace."""
    values, vectors = descending_eigh(C)
    r = num_kept(values, energy)
    return values[:r], vectors[:, :r]


def truncated_tensor(C: Numbers, energy: float) -> Numbers:
    """Torch: the leading part of a covariance ``(d, d)`` with the right gradient.

    The eigenvectors are held fixed and the cut is written as its own first-order expansion (Daleckii-Krein): kept with
    kept passes unchanged, cut with cut vanishes, kept with cut is scaled by ``l_i / (l_i - l_j)``. Differentiating
    ``eigh`` instead gives NaN whenever two eigenvalues agree, also where the cut itself is smooth.
    """
    values, vectors = descending_eigh(to_numpy(C))
    r = num_kept(values, energy)
    top, tail = values[:r, None], values[None, r:]
    gap = np.where(top > tail, top - tail, np.inf)  # a tie at the cut has no derivative: zero rather than NaN
    slope = np.zeros((len(values), len(values)))
    slope[:r, :r] = 1.0
    slope[:r, r:] = top / gap
    slope[r:, :r] = slope[:r, r:].T
    U, slope_t, cut = (
        C.new_tensor(a.copy()) for a in (vectors, slope, np.diag(np.where(np.arange(len(values)) < r, values, 0.0)))
    )
    inner = U.T @ C @ U
    return U @ (cut + slope_t * (inner - inner.detach())) @ U.T


def leading_directions(theta: Numbers, rank: int) -> Numbers:
    """``(d, r)`` leading left singular vectors of ``theta`` ``(d, k)``; for tensors with the gradient of their span.

    The first-order change of a singular subspace is written out, so that equal singular values on the same side of the
    cut (zero ones, too) do no harm.
    """
    U, s, Vt = np.linalg.svd(to_numpy(theta), full_matrices=False)
    r = min(rank, len(s))
    if not is_tensor(theta):
        return U[:, :r]
    top, tail = s[:r], s[r:]
    gap = top[None, :] ** 2 - tail[:, None] ** 2  # (t, r)
    gap = np.where(gap > 0, gap, np.inf)
    kept, cut, V = (theta.new_tensor(a.copy()) for a in (U[:, :r], U[:, r:], Vt.T))
    moved = theta - theta.detach()
    by_kept = cut.T @ moved @ V[:, :r] * theta.new_tensor(top / gap)
    by_cut = (kept.T @ moved @ V[:, r:]).T * theta.new_tensor(tail[:, None] / gap)
    outside = moved @ V[:, :r] * theta.new_tensor(np.divide(1.0, top, out=np.zeros_like(top), where=top > 0))
    outside = outside - kept @ (kept.T @ outside) - cut @ (cut.T @ outside)
    return kept + cut @ (by_kept + by_cut) + outside
