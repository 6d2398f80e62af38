"""Slow twins: the paper's formulas (corrected) in a few obvious lines of numpy, written without looking at the code."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize

from mtlens.arrays import FloatArray


def score(
    X1: FloatArray, X2: FloatArray, energy: float = 0.99, center: bool = False, normalised: bool = False
) -> float:
    kept = []
    for X in (X1, X2):
        X = X - X.mean(axis=0) if center else X
        _, s, Vt = np.linalg.svd(X, full_matrices=False)
        r = 1
        while (s[:r] ** 2).sum() < (energy - 1e-12) * (s**2).sum():
            r += 1
        kept.append(Vt[:r].T @ np.diag(s[:r] ** 2) @ Vt[:r])
    C1, C2 = kept
    inner = np.trace(C1 @ C2)
    if normalised:
        return float(inner / np.linalg.norm(C1) / np.linalg.norm(C2))
    return float(np.sqrt(inner / np.trace(C1) / np.trace(C2)))


def printed_svd_weights(X: FloatArray, Y: FloatArray, rank: int) -> FloatArray:
    U = np.linalg.svd(X.T @ Y)[0][:, :rank]
    return np.array([np.linalg.norm((X.T @ y) @ U) for y in Y.T])


def loss(B: FloatArray, Xs: Any, ys: Any, weights: Any = None) -> float:
    total = 0.0
    for a, X, y in zip(weights if weights is not None else np.ones(len(Xs)), Xs, ys, strict=True):
        head = np.linalg.lstsq(X @ B, y, rcond=None)[0]
        total += a * ((X @ B @ head - y) ** 2).sum()
    return float(total)


def profile(b: FloatArray, Xs: Any, ys: Any, weights: Any) -> tuple[float, FloatArray]:
    """Rank-1 joint loss as a function of the direction, and its gradient; residuals are formed, nothing cancels."""
    value, slope = 0.0, np.zeros_like(b)
    for a, X, y in zip(weights, Xs, ys, strict=True):
        z = X @ b
        head = (z @ y) / (z @ z)
        rest = head * z - y
        value += a * (rest @ rest)
        slope += 2 * a * head * (X.T @ rest)
    return value, slope


def best_descent(Xs: Any, ys: Any, weights: Any, starts: int, seed: int) -> float:
    """Best rank-1 joint loss of many random descents; features brought to one scale first, which helps the descents."""
    rng = np.random.default_rng(seed)
    size = np.linalg.norm(np.vstack(Xs), axis=0)
    scaled = [X / size for X in Xs]
    ends = [
        minimize(profile, rng.standard_normal(len(size)), (scaled, ys, weights), jac=True, method="BFGS").fun
        for _ in range(starts)
    ]
    return float(min(ends))


def alternating(
    Xs: Any, ys: Any, weights: Any, rho: Any, rank: int, starts: int, seed: int, sweeps: int = 300
) -> float:
    """Best penalised joint objective of plain alternating least squares."""
    rng, d, best = np.random.default_rng(seed), Xs[0].shape[1], np.inf
    for _ in range(starts):
        B = rng.standard_normal((d, rank))
        for _ in range(sweeps):
            As = [
                np.linalg.lstsq(np.vstack([X @ B, np.sqrt(r) * B]), np.concatenate([y, np.zeros(d)]), rcond=None)[0]
                for X, y, r in zip(Xs, ys, rho, strict=True)
            ]
            left = sum(
                a * np.kron(X.T @ X + r * np.eye(d), np.outer(A, A))
                for a, X, r, A in zip(weights, Xs, rho, As, strict=True)
            )
            right = sum(a * np.outer(X.T @ y, A) for a, X, y, A in zip(weights, Xs, ys, As, strict=True))
            B = np.linalg.lstsq(left, right.ravel(), rcond=None)[0].reshape(d, rank)
        value = sum(
            a * (((X @ B @ A - y) ** 2).sum() + r * ((B @ A) ** 2).sum())
            for a, X, y, r, A in zip(weights, Xs, ys, rho, As, strict=True)
        )
        best = min(best, float(value))
    return best


def reduced_rank_regression(X: FloatArray, Y: FloatArray, rank: int) -> FloatArray:
    """Least squares, then its fitted values projected on their leading right singular vectors (Izenman 1975)."""
    full = np.linalg.lstsq(X, Y, rcond=None)[0]
    V = np.linalg.svd(X @ full)[2][:rank].T
    return full @ V @ V.T
