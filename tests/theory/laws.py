"""Mathematical laws, each written once and applied to every function that claims it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from mtlens.arrays import FloatArray

SCALES = [1e-8, 1e-3, 1.0, 1e3, 1e8]
QUICK = settings(max_examples=25, deadline=None, derandomize=True)
Score = Callable[..., Any]


def seeds() -> st.SearchStrategy[int]:
    return st.integers(0, 2**31 - 1)


@st.composite
def shapes(draw: st.DrawFn, *, tasks: int, max_rows: int = 12, max_width: int = 6) -> tuple[list[int], int]:
    """Rows of each task (from one upwards, also fewer than features) and the common width."""
    rows = draw(st.lists(st.integers(1, max_rows), min_size=tasks, max_size=tasks))
    return rows, draw(st.integers(1, max_width))


def random_tasks(
    seed: int, rows: list[int], width: int, spread: float = 0.0
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Gaussian tasks; ``spread`` is the log standard deviation of the features' scales, drawn for each task."""
    rng = np.random.default_rng(seed)
    Xs = [rng.standard_normal((m, width)) * np.exp(spread * rng.standard_normal(width)) for m in rows]
    return Xs, [rng.standard_normal(m) for m in rows]


def rotation(seed: int, width: int) -> FloatArray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))[0]


def assert_symmetric(score: Score, X1: Any, X2: Any) -> None:
    np.testing.assert_allclose(score(X1, X2), score(X2, X1), rtol=1e-12)


def assert_scale_invariant(score: Score, X1: Any, X2: Any, factors: list[float]) -> None:
    reference = score(X1, X2)
    for factor in factors:
        np.testing.assert_allclose(score(factor * X1, X2), reference, rtol=1e-9)
        np.testing.assert_allclose(score(X1, factor * X2), reference, rtol=1e-9)


def assert_row_rotation_invariant(score: Score, X1: Any, X2: Any, seed: int) -> None:
    reference = score(X1, X2)
    np.testing.assert_allclose(score(rotation(seed, len(X1)) @ X1, X2), reference, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(score(X1[::-1], X2), reference, rtol=1e-9, atol=1e-12)


def assert_common_rotation_invariant(score: Score, X1: Any, X2: Any, seed: int) -> None:
    R = rotation(seed, X1.shape[1])
    np.testing.assert_allclose(score(X1 @ R, X2 @ R), score(X1, X2), rtol=1e-9, atol=1e-12)


def assert_permutation_equivariant(weigh: Callable[[Any], Any], Y: Any, seed: int) -> None:
    """``weigh(Y)`` gives one number a column; permuted columns give permuted numbers."""
    order = np.random.default_rng(seed).permutation(Y.shape[1])
    np.testing.assert_allclose(weigh(Y[:, order]), np.asarray(weigh(Y))[order], rtol=1e-8, atol=1e-10)


def assert_task_order_is_free(solve: Callable[..., Any], Xs: list[Any], ys: list[Any], weights: Any) -> None:
    """A joint optimum does not depend on the order in which tasks are given."""
    forward = solve(Xs, ys, weights=list(weights))
    backward = solve(Xs[::-1], ys[::-1], weights=list(weights)[::-1])
    np.testing.assert_allclose(backward.loss, forward.loss, rtol=1e-7, atol=1e-10)


def assert_span_invariant(loss: Callable[[Any], float], B: Any, seed: int) -> None:
    """The value depends on the span of a module only: any invertible change of its columns is free."""
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((B.shape[1], B.shape[1])) + 3 * np.eye(B.shape[1])
    np.testing.assert_allclose(loss(B @ mix), loss(B), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(loss(B * np.logspace(-4, 4, B.shape[1])), loss(B), rtol=1e-8, atol=1e-10)


def assert_same_span(B: Any, C: Any, atol: float = 1e-7) -> None:
    """Principal angles between two column spans are zero."""
    P, Q = np.linalg.qr(B)[0], np.linalg.qr(C)[0]
    np.testing.assert_allclose(np.linalg.svd(P.T @ Q, compute_uv=False), 1.0, atol=atol)


def assert_optimum_is_consistent(optimum: Any, Xs: list[Any], ys: list[Any], weights: Any, ridge: Any = 0.0) -> None:
    """The record's parts fit each other: coef = B A, loss of coef, excess over each task's own optimum."""
    rho = np.broadcast_to(ridge, len(Xs))
    B, A, coef = np.asarray(optimum.B), np.asarray(optimum.A), np.asarray(optimum.coef)
    size = sum(a * (y @ y) for a, y in zip(weights, ys, strict=True))
    np.testing.assert_allclose(coef, B @ A, rtol=1e-9, atol=1e-12 * max(1.0, np.abs(coef).max()))
    loss = sum(a * ((X @ t - y) ** 2).sum() for a, X, y, t in zip(weights, Xs, ys, coef.T, strict=True))
    np.testing.assert_allclose(optimum.loss, loss, rtol=1e-9, atol=1e-10 * size)
    own = 0.0
    for a, X, y, r in zip(weights, Xs, ys, rho, strict=True):
        X_r = np.vstack([X, np.sqrt(r) * np.eye(X.shape[1])])
        theta = np.linalg.lstsq(X_r, np.concatenate([y, np.zeros(X.shape[1])]), rcond=None)[0]
        own += a * ((X @ theta - y) ** 2).sum()
    np.testing.assert_allclose(optimum.excess, loss - own, rtol=1e-8, atol=1e-9 * size)
    if not np.any(ridge):
        assert optimum.excess >= 0
