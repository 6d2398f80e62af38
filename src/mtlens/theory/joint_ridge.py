r"""Closed forms of ridge regression alone, jointly with a source, and shrunk towards a source. Arrays only.

Symbols: ``G`` (d, d) centred second moment of standardised inputs, ``c`` (d, q) its product with the outputs,
``lam`` a ridge, ``beta`` the weight of a source's rows relative to the target's, ``A`` (q_source, q_target) with
orthonormal rows or columns, which says how the source's outputs map to the target's (a sign when q = 1).

The joint model is one coefficient matrix for both tasks,

.. math:: W = (G_t/\sqrt\beta + \sqrt\beta\, G_s + \lambda I)^{-1} (c_t/\sqrt\beta + \sqrt\beta\, c_s A),

the minimiser of ``|y_t - X_t W|^2 + beta |y_s A - X_s W|^2 + lam sqrt(beta) |W|^2``; ``A`` maximises the fit. It is the
rank-1 multi-task solution with heads fixed to plus and minus one on labels of unit variance. Swapping target and
source and inverting ``beta`` gives the same solution, so a pair is solved once for both directions.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from mtlens.arrays import FloatArray

SMALL = 64  # up to this width numpy's batched LU beats a Python loop over Cholesky factors


def match(product: FloatArray) -> FloatArray:
    """``A`` (..., q_s, q_t), the partial isometry maximising ``tr(product^T A)``; the sign when both are 1.

    ``product`` is ``c_s^T M^{-1} c_t``, the gain in fit from identifying outputs. An all-zero product maps to zero.
    """
    if product.shape[-2:] == (1, 1):
        return np.sign(product)
    left, size, right = np.linalg.svd(product, full_matrices=False)
    kept = size > 1e-12 * np.maximum(size[..., :1], np.finfo(float).tiny)
    found: FloatArray = (left * kept[..., None, :]) @ right
    return found


def solve_ridges(G: FloatArray, rhs: FloatArray, ridges: FloatArray) -> FloatArray:
    """``(G + lam I)^{-1} rhs`` for every ridge: (P, d, d), (P, d, n) and (L,) give (L, P, d, n)."""
    found = np.empty((len(ridges), *rhs.shape))
    width = G.shape[-1]
    diagonal = np.arange(width)
    shifted = G.copy()
    for j, ridge in enumerate(ridges):
        shifted[:, diagonal, diagonal] = G[:, diagonal, diagonal] + ridge
        if width <= SMALL:
            found[j] = np.linalg.solve(shifted, rhs)
        else:
            for p in range(len(G)):
                found[j, p] = _positive_solve(shifted[p], rhs[p])
    return found


def _positive_solve(M: FloatArray, rhs: FloatArray) -> FloatArray:
    """Cholesky; where rounding made ``M`` indefinite (a ridge below the noise of G), LU of the same matrix."""
    _, solution, info = lapack.dposv(M.T, rhs, lower=0, overwrite_a=0)  # symmetric: the transpose is free
    found: FloatArray = np.asarray(solution if info == 0 else np.linalg.solve(M, rhs), dtype=np.float64)
    return found


def ridge_path(values: FloatArray, rotated: FloatArray, ridges: FloatArray) -> FloatArray:
    """Ridge solutions in an eigenbasis: (d,) eigenvalues, (d, n) rotated moments, (L,) ridges give (L, d, n)."""
    return rotated / (values[:, None] + ridges[:, None, None])


def shrunk_path(
    values: FloatArray, rotated: FloatArray, basis: FloatArray, ridges: FloatArray, freedom: float
) -> FloatArray:
    r"""Ridge whose penalty is lighter along some directions, in an eigenbasis of ``G``.

    .. math:: W = (G + \mu (I - \kappa B B^\top))^{-1} c

    the posterior mean under a prior whose variance along ``B`` is ``1 / (1 - kappa)`` times that of the rest; ``kappa``
    = 0 is plain ridge, 1 leaves ``B`` unpenalised. Woodbury: one r x r system a ridge.

    Args:
        values: ``(d,)`` eigenvalues of G, not negative.
        rotated: ``(d, q)`` eigenvectors' transpose times c.
        basis: ``(d, r)`` orthonormal columns, rotated the same way.
        ridges: ``(L,)`` positive.
        freedom: kappa in [0, 1].

    Returns:
        ``(L, d, q)``, still rotated.
    """
    plain = ridge_path(values, rotated, ridges)
    if freedom == 0.0 or basis.shape[1] == 0:
        return plain
    lifted = ridge_path(values, basis, ridges)  # (L, d, r)
    inner = basis.T @ lifted  # (L, r, r)
    # kappa mu (I - kappa mu inner)^{-1}: near singular only when B leaves the row space of X; a hair keeps it safe.
    system = np.eye(basis.shape[1]) * (1.0 + 1e-10) - (freedom * ridges)[:, None, None] * inner
    correction = np.linalg.solve(system, (freedom * ridges)[:, None, None] * (basis.T @ plain))
    found: FloatArray = plain + lifted @ correction
    return found


def shared_directions(G: FloatArray, moments: FloatArray, ridge: float, rank: int) -> FloatArray:
    r"""Orthonormal basis (d, r) of the best rank-r shared solution when all covariances are proportional to ``G``.

    Top eigenvectors of :math:`G_\lambda^{-1/2} \sum_i c_i c_i^\top G_\lambda^{-1/2}`, mapped back by
    :math:`G_\lambda^{-1/2}` (the paper's equal-covariance proposition with D the singular values of X). Exact for
    shared inputs (reduced-rank ridge), an approximation otherwise.

    Args:
        G: ``(d, d)`` summed second moments of the tasks.
        moments: ``(d, n)`` the tasks' ``c_i``, side by side, each divided by the square root of its rows.
        ridge: added to ``G``.
        rank: number of directions.
    """
    values, vectors = np.linalg.eigh(G)
    root = 1.0 / np.sqrt(np.maximum(values, 0.0) + ridge)
    left, size, _ = np.linalg.svd(root[:, None] * (vectors.T @ moments), full_matrices=False)
    kept = min(rank, int((size > 1e-12 * max(size[0], np.finfo(float).tiny)).sum()))
    directions = vectors @ (root[:, None] * left[:, :kept])
    basis, _ = np.linalg.qr(directions)
    return basis


def squared_error(W: FloatArray, hold_xx: FloatArray, hold_xy: FloatArray, hold_yy: float) -> FloatArray:
    """``sum |y - x W|^2`` from the moments of held-out rows about the train means: (L, d, q) gives (L,)."""
    through = hold_xx @ W  # (L, d, q)
    explained = np.einsum("ldq,ldq->l", W, through - 2.0 * hold_xy)
    found: FloatArray = explained + hold_yy
    return found
