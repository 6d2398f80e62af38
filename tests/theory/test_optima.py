from __future__ import annotations

from typing import Any

import laws
import numpy as np
import pytest
import torch
import twins
from hypothesis import given
from laws import QUICK, SCALES, random_tasks, seeds, shapes

from mtlens import (
    MtlensError,
    equal_covariance_optimum,
    greedy_bound,
    linear_optimum,
    mtl_loss,
    shared_input_optimum,
    single_task_optimum,
    two_task_optimum,
)


def pair(Xs: Any, ys: Any, weights: Any = (1, 1), ridge: Any = (0, 0)) -> Any:
    return two_task_optimum(Xs[0], ys[0], Xs[1], ys[1], weights=weights, ridge=ridge)


def equal_covariances(seed: int, rows: list[int], width: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Tasks with one covariance on different rows; every task needs at least ``width`` rows."""
    rng = np.random.default_rng(seed)
    D, V = np.diag(rng.uniform(0.1, 3, width)), laws.rotation(seed, width)
    Xs = [np.linalg.qr(rng.standard_normal((m, width)))[0] @ D @ V.T for m in rows]
    return Xs, [rng.standard_normal(m) for m in rows]


@QUICK
@given(seed=seeds())
def test_shared_inputs_equal_reduced_rank_regression(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((15, 4)), rng.standard_normal((15, 3))
    for rank in (1, 2, 3, 5):
        best = shared_input_optimum(X, Y, rank=rank)
        np.testing.assert_allclose(best.coef, twins.reduced_rank_regression(X, Y, rank), rtol=1e-7, atol=1e-9)
        assert best.B.shape == (4, rank) and best.A.shape == (rank, 3)
    weights = rng.uniform(0.1, 3, 3)
    best = shared_input_optimum(X, Y, rank=2, weights=weights)
    laws.assert_optimum_is_consistent(best, [X] * 3, list(Y.T), weights)
    U = np.linalg.svd(X, full_matrices=False)[0]
    values = np.linalg.eigvalsh(sum(a * np.outer(U.T @ y, U.T @ y) for a, y in zip(weights, Y.T, strict=True)))
    np.testing.assert_allclose(best.excess, values[:-2].sum(), rtol=1e-9)  # exactly the tail, no squares


def test_shared_inputs_of_any_rank_and_shape() -> None:
    rng = np.random.default_rng(0)
    deficient = np.outer(rng.standard_normal(6), [1.0, 2.0, 3.0])
    for X in (deficient, rng.standard_normal((2, 5)), np.ones((1, 1)), np.zeros((3, 2))):
        Y = rng.standard_normal((len(X), 2))
        for rank in (1, 4):
            best = shared_input_optimum(X, Y, rank=rank)
            laws.assert_optimum_is_consistent(best, [X] * 2, list(Y.T), [1.0, 1.0])
    X, y = rng.standard_normal((8, 3)), rng.standard_normal(8)
    np.testing.assert_allclose(shared_input_optimum(X, y, rank=1).coef[:, 0], single_task_optimum(X, y), rtol=1e-9)


@QUICK
@given(seed=seeds())
def test_equal_covariances(seed: int) -> None:
    Xs, ys = equal_covariances(seed, [6, 9, 7], 4)
    weights = np.random.default_rng(seed).uniform(0.1, 3, 3)
    best = equal_covariance_optimum(Xs, ys, rank=1, weights=weights)
    laws.assert_optimum_is_consistent(best, Xs, ys, weights)
    laws.assert_task_order_is_free(
        lambda a, b, weights: equal_covariance_optimum(a, b, rank=2, weights=weights), Xs, ys, weights
    )
    _, D, Vt = np.linalg.svd(Xs[0], full_matrices=False)
    parts = np.column_stack([np.sqrt(a) * (Vt @ X.T @ y) / D for a, X, y in zip(weights, Xs, ys, strict=True)])
    values = np.linalg.svd(parts, compute_uv=False) ** 2
    np.testing.assert_allclose(best.excess, values[1:].sum(), rtol=1e-8)
    leading = np.linalg.svd(parts)[0][:, :1]
    laws.assert_same_span(best.B, Vt.T @ (leading / D[:, None]))  # V D^-1 C, D the singular values of X
    printed = Vt.T @ (leading / np.sqrt(D)[:, None])
    assert mtl_loss(printed, Xs, ys, weights) > best.loss + 1e-9  # the printed exponent costs real loss


def test_proportional_covariances_and_the_refusal() -> None:
    Xs, ys = equal_covariances(1, [6, 6, 8], 3)
    scaled = [X * s for X, s in zip(Xs, (1.0, 1e4, 1e-6), strict=True)]
    np.testing.assert_allclose(
        equal_covariance_optimum(scaled, ys, rank=1).loss, equal_covariance_optimum(Xs, ys, rank=1).loss, rtol=1e-9
    )
    with pytest.raises(MtlensError, match="task 1's differs from task 0's by"):
        equal_covariance_optimum(*random_tasks(0, [6, 6], 3), rank=1)


@QUICK
@given(shape=shapes(tasks=2, max_rows=10), seed=seeds())
def test_two_tasks_never_lose_to_descents(shape: tuple[list[int], int], seed: int) -> None:
    Xs, ys = random_tasks(seed, *shape, spread=2.0)
    weights = np.exp(np.random.default_rng(seed).standard_normal(2))
    best = pair(Xs, ys, weights)
    size = sum(a * (y @ y) for a, y in zip(weights, ys, strict=True))
    assert best.loss <= twins.best_descent(Xs, ys, weights, 5, seed) * (1 + 1e-9) + 1e-13 * size
    np.testing.assert_allclose(mtl_loss(best.B, Xs, ys, weights), best.loss, rtol=1e-7, atol=1e-10 * size)
    laws.assert_task_order_is_free(pair, Xs, ys, weights)


@pytest.mark.slow
def test_two_tasks_on_two_hundred_problems_with_fifty_descents() -> None:
    for seed in range(200):
        rng = np.random.default_rng(seed)
        width = int(rng.integers(2, 13))
        Xs, ys = random_tasks(seed, rng.integers(1, 25, 2).tolist(), width, spread=2.0)
        weights = np.exp(rng.standard_normal(2))
        size = sum(a * (y @ y) for a, y in zip(weights, ys, strict=True))
        reference = twins.best_descent(Xs, ys, weights, 50, seed)
        assert pair(Xs, ys, weights).loss <= reference * (1 + 1e-9) + 1e-14 * size, seed


@QUICK
@given(seed=seeds())
def test_two_tasks_with_ridge_minimise_the_penalised_objective(seed: int) -> None:
    rng = np.random.default_rng(seed)
    Xs, ys = random_tasks(seed, [7, 4], 5)
    weights, ridge = rng.uniform(0.1, 3, 2), rng.uniform(0.01, 2, 2)
    best = pair(Xs, ys, weights, ridge)
    laws.assert_optimum_is_consistent(best, Xs, ys, weights, ridge)
    ours = best.loss + (weights * ridge * (best.coef**2).sum(axis=0)).sum()
    padded = [np.vstack([X, np.sqrt(r) * np.eye(5)]) for X, r in zip(Xs, ridge, strict=True)]
    zeros = [np.concatenate([y, np.zeros(5)]) for y in ys]
    assert ours <= twins.best_descent(padded, zeros, weights, 5, seed) * (1 + 1e-9)


def test_two_tasks_at_every_scale_and_shape() -> None:
    Xs, ys = random_tasks(2, [9, 6], 4)
    reference = pair(Xs, ys)
    for scale in SCALES:
        np.testing.assert_allclose(pair([scale * Xs[0], Xs[1]], ys).loss, reference.loss, rtol=1e-9)
        np.testing.assert_allclose(pair(Xs, [scale * y for y in ys]).loss, scale**2 * reference.loss, rtol=1e-9)
    laws.assert_optimum_is_consistent(pair(*random_tasks(3, [1, 1], 1)), *random_tasks(3, [1, 1], 1), [1, 1])
    deficient = [np.outer(X[:, 0], [1.0, 2.0, 0.0]) for X in Xs]
    laws.assert_optimum_is_consistent(pair(deficient, ys), deficient, ys, [1, 1])
    disjoint = [Xs[0] * [1, 1, 0, 0], Xs[1] * [0, 0, 1, 1]]
    assert pair(disjoint, ys).excess < 1e-12  # nothing is shared, so nothing is lost
    assert pair(Xs, ys, weights=(1, 0)).excess < 1e-12  # a task without weight costs nothing
    zero = pair([Xs[0], np.zeros_like(Xs[1])], ys)
    assert zero.excess < 1e-12


@pytest.mark.parametrize(("width", "inner"), [(6, 6), (6, 4), (4, 3)])
def test_units_of_features_cost_no_digits_of_the_loss(width: int, inner: int) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        span = np.eye(width) if inner == width else rng.standard_normal((inner, width))
        Xs = [rng.standard_normal((m, inner)) @ span for m in rng.integers(2, 10, 2)]
        ys = [rng.standard_normal(len(X)) for X in Xs]
        units = 10.0 ** rng.uniform(-8, 8, width)
        size = sum(y @ y for y in ys)
        np.testing.assert_allclose(
            pair([X * units for X in Xs], ys).loss, pair(Xs, ys).loss, rtol=1e-9, atol=1e-11 * size
        )


def test_equal_tasks_share_for_free_and_interpolation_explodes() -> None:
    (X, _), (y, _) = random_tasks(4, [9, 9], 4)
    same = two_task_optimum(X, y, X, -3 * y)
    assert same.excess < 1e-12
    np.testing.assert_allclose(same.coef[:, 1], -3 * same.coef[:, 0], rtol=1e-9)
    Xs, ys = random_tasks(5, [3, 3], 8)
    assert pair(Xs, ys).loss < 1e-20


@QUICK
@given(seed=seeds())
def test_linear_optimum_uses_the_exact_solutions(seed: int) -> None:
    Xs, ys = random_tasks(seed, [6, 9, 5], 4)
    free = linear_optimum(Xs, ys, rank=3)
    assert free.method == "closed form" and free.excess < 1e-10
    own = np.column_stack([single_task_optimum(X, y) for X, y in zip(Xs, ys, strict=True)])
    np.testing.assert_allclose(free.coef, own, rtol=1e-7, atol=1e-9)
    assert linear_optimum(Xs, ys, rank=6).B.shape == (4, 6)
    two = linear_optimum(Xs[:2], ys[:2], rank=1)
    assert two.method == "profile" and two.spread == 0.0
    np.testing.assert_allclose(two.loss, pair(Xs[:2], ys[:2]).loss, rtol=1e-12)
    Y = np.column_stack([ys[0], ys[0] ** 2, np.cos(ys[0])])
    shared = linear_optimum([Xs[0]] * 3, list(Y.T), rank=2)
    assert shared.method == "closed form"
    np.testing.assert_allclose(shared.loss, shared_input_optimum(Xs[0], Y, rank=2).loss, rtol=1e-9)


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("gap", [0.0, 1e-14, 1e-12, 1e-9])
def test_enough_rank_is_every_tasks_own_optimum_also_when_those_are_parallel(gap: float, tensors: bool) -> None:
    """Heads that add up multiples of nearly parallel columns would lose the digits of the coefficients."""
    rng = np.random.default_rng(0)
    Xs = [rng.standard_normal((m, 3)) for m in (7, 9, 8)]
    theta = rng.standard_normal(3)
    models = [theta, -2 * theta + gap * rng.standard_normal(3), np.zeros(3)]
    given = [torch.tensor(X) for X in Xs] if tensors else Xs
    for ridge in (0.0, 2.0):
        best = linear_optimum(given, [X @ t for X, t in zip(Xs, models, strict=True)], rank=4, ridge=ridge)
        own = np.column_stack([single_task_optimum(X, X @ t, ridge=ridge) for X, t in zip(Xs, models, strict=True)])
        np.testing.assert_allclose(best.coef, own, rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(np.asarray(best.B) @ np.asarray(best.A), own, rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(np.linalg.norm(best.B, axis=0), [1.0, 1.0, 0.0, 0.0], atol=1e-14)
        assert best.B.shape == (3, 4) and best.A.shape == (4, 3) and best.excess == 0.0


@pytest.mark.parametrize("seed", range(4))
def test_linear_optimum_is_no_worse_than_plain_alternation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    Xs, ys = random_tasks(seed, [9, 7, 12, 4], 5)
    weights, ridge = rng.uniform(0.1, 3, 4), rng.uniform(0.0, 1.0, 4)
    best = linear_optimum(Xs, ys, rank=2, weights=weights, ridge=ridge, starts=8)
    laws.assert_optimum_is_consistent(best, Xs, ys, weights, ridge)
    assert best.method == "alternating" and len(best.start_losses) == 8 and best.spread >= 0
    reference = twins.alternating(Xs, ys, weights, ridge, 2, 3, seed)
    np.testing.assert_allclose(
        best.loss + (weights * ridge * (best.coef**2).sum(axis=0)).sum(), best.start_losses.min(), rtol=1e-9
    )
    assert best.start_losses.min() <= reference * (1 + 1e-9)
    np.testing.assert_array_equal(
        best.coef, linear_optimum(Xs, ys, rank=2, weights=weights, ridge=ridge, starts=8).coef
    )


def test_linear_optimum_scales_and_missing_labels() -> None:
    Xs, ys = random_tasks(1, [9, 7, 12], 4)
    reference = linear_optimum(Xs, ys, rank=1)
    for scale in SCALES:
        scaled = linear_optimum([scale * Xs[0], *Xs[1:]], ys, rank=1)
        np.testing.assert_allclose(scaled.loss, reference.loss, rtol=1e-8)
    holes = [np.concatenate([y, [np.nan]]) for y in ys]
    padded = [np.vstack([X, np.ones(4)]) for X in Xs]
    np.testing.assert_allclose(linear_optimum(padded, holes, rank=1).loss, reference.loss, rtol=1e-12)
    one = linear_optimum(Xs[:1], ys[:1], rank=1)
    np.testing.assert_allclose(one.coef[:, 0], single_task_optimum(Xs[0], ys[0]), rtol=1e-9)


SOLVERS = {
    "shared": lambda Xs, ys, a: shared_input_optimum(Xs[0], torch.stack([ys[0], ys[0] ** 2], 1), rank=1, weights=a),
    "pair": lambda Xs, ys, a: two_task_optimum(Xs[0], ys[0], Xs[1], ys[1], weights=a),
    "pair with ridge": lambda Xs, ys, a: two_task_optimum(Xs[0], ys[0], Xs[1], ys[1], weights=a, ridge=(0.5, 0.1)),
    "many": lambda Xs, ys, a: linear_optimum([*Xs, Xs[0]], [*ys, ys[0] ** 2], rank=1, ridge=0.1, starts=2),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_optima_carry_exact_gradients(name: str) -> None:
    Xs, ys = random_tasks(6, [5, 4], 2)
    tensors = tuple(torch.tensor(v, requires_grad=True) for v in (*Xs, *ys, np.array([1.0, 2.0])))

    def outputs(*t: torch.Tensor) -> tuple[torch.Tensor, ...]:
        best = SOLVERS[name](t[:2], t[2:4], t[4])
        return best.coef, best.loss, best.excess

    plain = [v.detach() for v in tensors]
    assert all(v.dtype == torch.float64 for v in outputs(*plain))
    # Wide steps: the search itself is exact to about 1e-10 only.
    assert torch.autograd.gradcheck(outputs, tensors, eps=1e-4, atol=1e-4)


def test_tensors_give_the_same_values() -> None:
    Xs, ys = random_tasks(7, [9, 5], 4)
    numpy_best = pair(Xs, ys)
    tensor_best = pair([torch.tensor(X) for X in Xs], [torch.tensor(y, requires_grad=True) for y in ys])
    for name in ("B", "A", "coef", "loss", "excess"):
        np.testing.assert_allclose(
            getattr(tensor_best, name).detach(), getattr(numpy_best, name), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: shared_input_optimum(np.eye(2), [[1.0, np.nan], [1.0, 2.0]], rank=1),
            "Column 1 of Y misses 1 of 2.*linear_optimum",
        ),
        (lambda: shared_input_optimum(np.eye(2), np.ones((3, 1)), rank=1), "X has 2 rows, Y has 3"),
        (lambda: shared_input_optimum(np.eye(2), np.eye(2), rank=0), "whole rank of at least 1, found rank=0"),
        (lambda: linear_optimum([np.eye(2)], [[1.0, 2.0]], rank=1.5), "found rank=1.5"),
        (lambda: linear_optimum([np.eye(2)], [[1.0, 2.0]], rank=1, starts=0), "at least one start"),
        (lambda: linear_optimum([np.eye(2)], [[1.0, 2.0]], rank=1, seed=None), "whole number as seed, found seed=None"),
        (lambda: greedy_bound([np.eye(2)], [[1.0, 2.0]], starts=0), "greedy_bound needs .* at least one start"),
        (lambda: linear_optimum(3, [[1.0, 2.0]], rank=1), "Xs as a list with one member a task, found 3"),
        (lambda: linear_optimum([np.eye(2)], [[1.0, 2.0]], rank=1, ridge=-1), "ridge >= 0"),
        (lambda: linear_optimum([np.eye(2)], [[1.0, 2.0]], rank=1, ridge=[1, 2]), "one for each of the 1 tasks"),
        (lambda: two_task_optimum(np.eye(2), [1, 2], np.eye(3), [1, 2, 3]), "one feature space"),
        (lambda: two_task_optimum(np.eye(2), [1, 2], np.eye(2), [1, 2], weights=(0, 0)), "not all zero"),
    ],
)
def test_refusals(call: Any, text: str) -> None:
    with pytest.raises(MtlensError, match=text):
        call()


def test_equal_covariances_that_are_zero() -> None:
    zero = np.zeros((4, 3))
    assert equal_covariance_optimum([zero, zero], [np.ones(4), np.ones(4)], rank=1).loss == 8.0
