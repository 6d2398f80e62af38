from __future__ import annotations

from typing import Any

import laws
import numpy as np
import pytest
import torch
import twins
from hypothesis import given
from laws import QUICK, SCALES, random_tasks, seeds, shapes
from sklearn.linear_model import LinearRegression, Ridge

from mtlens import (
    MtlensError,
    condition_number,
    covariance_similarity,
    explained_energy,
    mtl_loss,
    sin_angle,
    single_task_optimum,
)


@QUICK
@given(shape=shapes(tasks=1), seed=seeds())
def test_single_task_optimum_is_minimum_norm_least_squares(shape: tuple[list[int], int], seed: int) -> None:
    (X,), (y,) = random_tasks(seed, *shape)
    theta = single_task_optimum(X, y)
    np.testing.assert_allclose(theta, np.linalg.pinv(X) @ y, rtol=1e-7, atol=1e-9)
    for scale in SCALES:
        np.testing.assert_allclose(single_task_optimum(scale * X, y) * scale, theta, rtol=1e-6, atol=1e-9)


def test_single_task_optimum_against_scikit_learn() -> None:
    (X,), (y,) = random_tasks(0, [30], 5)
    Y = np.column_stack([y, y**2])
    for ridge in (1e-6, 1.0, 100.0):
        reference = Ridge(alpha=ridge, fit_intercept=False, solver="svd").fit(X, Y).coef_.T
        np.testing.assert_allclose(single_task_optimum(X, Y, ridge=ridge), reference, rtol=1e-9)
    reference = LinearRegression(fit_intercept=False).fit(X, y).coef_
    np.testing.assert_allclose(single_task_optimum(X, y), reference, rtol=1e-9)
    missing = np.where(np.arange(30) < 4, np.nan, y)
    np.testing.assert_allclose(single_task_optimum(X, missing), single_task_optimum(X[4:], y[4:]), rtol=1e-12)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_single_task_optimum_gradient(ridge: float) -> None:
    for rows in (7, 3):
        (X,), (y,) = random_tasks(1, [rows], 4)
        inputs = torch.tensor(X, requires_grad=True), torch.tensor(y, requires_grad=True)
        value = single_task_optimum(*inputs, ridge=ridge)
        np.testing.assert_allclose(value.detach(), single_task_optimum(X, y, ridge=ridge), rtol=1e-9)
        assert torch.autograd.gradcheck(lambda a, b: single_task_optimum(a, b, ridge=ridge), inputs)


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("scale", [1e-8, 1e-4, 1.0, 1e4, 1e8])
def test_ridge_far_above_the_inputs_keeps_all_digits(scale: float, tensors: bool) -> None:
    """Where the ridge rules, the normal equations are perfectly conditioned and every digit of them is right."""
    rng = np.random.default_rng(0)
    X, Y = scale * rng.standard_normal((9, 3)), rng.standard_normal((9, 2))
    ridge = 10 * scale**2 if scale > 1 else 10.0
    exact = np.linalg.solve(X.T @ X + ridge * np.eye(3), X.T @ Y)
    for labels, expected in ((Y, exact), (Y[:, 0], exact[:, 0])):
        given = (torch.tensor(X), torch.tensor(labels)) if tensors else (X, labels)
        found = single_task_optimum(*given, ridge=ridge)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_single_task_refusals() -> None:
    for arguments, text in (
        ((np.eye(2), [1.0]), "2 rows, but there are 1 labels"),
        ((np.eye(2), [np.nan, np.nan]), "no labelled row among 2"),
        ((np.eye(2), np.array([[1.0], [2.0], [3.0]]).repeat(2, 1)), "X has 2 rows, y has 3"),
    ):
        with pytest.raises(MtlensError, match=text):
            single_task_optimum(*arguments)
    with pytest.raises(MtlensError, match="ridge >= 0, found ridge=-1"):
        single_task_optimum(np.eye(2), [1.0, 2.0], ridge=-1)


@QUICK
@given(seed=seeds())
def test_sine_of_an_angle(seed: int) -> None:
    a, b = np.random.default_rng(seed).standard_normal((2, 5))
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    np.testing.assert_allclose(sin_angle(a, b), np.sqrt(1 - cosine**2), rtol=1e-9)
    np.testing.assert_allclose(sin_angle(1e8 * a, -1e-8 * b), sin_angle(b, a), rtol=1e-12)
    assert sin_angle(a, -3 * a) < 1e-15


def test_sine_keeps_its_digits_and_its_gradient() -> None:
    np.testing.assert_allclose(sin_angle([1.0, 0.0], [1.0, 1e-10]), 1e-10, rtol=1e-12)
    a, b = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in ([1.0, 2.0, 0.5], [0.3, -1.0, 2.0]))
    assert torch.autograd.gradcheck(sin_angle, (a, b))
    sin_angle(b, b).backward()
    assert torch.isfinite(b.grad).all()
    with pytest.raises(MtlensError, match="b is the zero vector"):
        sin_angle([1.0], [0.0])
    with pytest.raises(MtlensError, match="found 2 and 3"):
        sin_angle([1.0, 2.0], [1.0, 2.0, 3.0])


@QUICK
@given(shape=shapes(tasks=3), rank=seeds(), seed=seeds())
def test_loss_and_energy_add_up_and_equal_the_twin(shape: tuple[list[int], int], rank: int, seed: int) -> None:
    Xs, ys = random_tasks(seed, *shape)
    rng = np.random.default_rng(seed)
    B, weights = rng.standard_normal((shape[1], 1 + rank % shape[1])), rng.uniform(0.1, 3, 3)
    total = sum(a * (y @ y) for a, y in zip(weights, ys, strict=True))
    loss = mtl_loss(B, Xs, ys, weights)
    np.testing.assert_allclose(loss, twins.loss(B, Xs, ys, weights), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(loss + explained_energy(B, Xs, ys, weights), total, rtol=1e-12)
    for scale in SCALES:
        np.testing.assert_allclose(mtl_loss(scale * B, Xs, ys, weights), loss, rtol=1e-7, atol=1e-12)
    laws.assert_span_invariant(lambda module: mtl_loss(module, Xs, ys, weights), B, seed)


def test_a_module_outside_a_task_explains_nothing_there() -> None:
    R = laws.rotation(2, 3)
    X = np.diag([1.0, 2.0, 0.0]) @ R
    assert explained_energy(R[2], [X], [[1.0, 1.0, 1.0]]) == 0.0  # X b is 1e-17, not a direction
    assert mtl_loss(np.zeros(3), [X], [[1.0, 1.0, 1.0]]) == 3.0


def test_loss_gradients_and_tensors() -> None:
    Xs, ys = random_tasks(3, [6, 5], 4)
    B, weights = np.random.default_rng(0).standard_normal((4, 2)), np.array([1.0, 2.5])
    tensors = [torch.tensor(v, requires_grad=True) for v in (B, *Xs, *ys, weights)]
    for function in (mtl_loss, explained_energy):
        value = function(tensors[0], tensors[1:3], tensors[3:5], tensors[5])
        np.testing.assert_allclose(value.item(), function(B, Xs, ys, weights), rtol=1e-12)
        assert torch.autograd.gradcheck(lambda b, *t, f=function: f(b, t[:2], t[2:4], t[4]), tuple(tensors))
        assert function(tensors[0], Xs, ys).requires_grad  # a tensor module with numpy tasks


def test_missing_labels_and_refusals() -> None:
    Xs, ys = random_tasks(4, [6, 5], 3)
    holes = [np.concatenate([y, [np.nan]]) for y in ys]
    padded = [np.vstack([X, 9 * np.ones(3)]) for X in Xs]
    np.testing.assert_allclose(mtl_loss(np.eye(3)[0], padded, holes), mtl_loss(np.eye(3)[0], Xs, ys), rtol=1e-12)
    for arguments, text in (
        ((np.ones(2), Xs, ys), r"one row for each of the 3 features, found shape \(2, 1\)"),
        ((np.ones(3), Xs, ys[:1]), "found 2 inputs and 1 label"),
        ((np.ones(3), Xs[0], ys), "found a single matrix"),
        ((np.ones(3), Xs, ys, [1.0]), "one weight for each of the 2 tasks"),
        ((np.ones(3), Xs, ys, [1.0, -1.0]), "finite weights >= 0"),
        ((np.ones(3), [Xs[0], Xs[1][:, :2]], ys), "'?task 0'? has 3 columns, task 1 has 2"),
        ((np.ones(3), [], []), "found 0 inputs"),
    ):
        with pytest.raises(MtlensError, match=text):
            mtl_loss(*arguments)


def test_rank_deficient_inputs_of_many_scales_explain_no_more_than_their_rank() -> None:
    rng = np.random.default_rng(3)
    for _ in range(60):
        width, inner = int(rng.integers(3, 8)), int(rng.integers(1, 3))
        X = (
            rng.standard_normal((9, inner))
            @ rng.standard_normal((inner, width))
            * np.exp(2 * rng.standard_normal(width))
        )
        y = rng.standard_normal(9)
        U = np.linalg.svd(X / np.linalg.norm(X, axis=0))[0][:, :inner]
        rest = ((y - U @ (U.T @ y)) ** 2).sum()
        B = np.linalg.qr(rng.standard_normal((width, width)))[0]
        np.testing.assert_allclose(mtl_loss(B, [X], [y]), rest, rtol=1e-9)
        tensors = (torch.tensor(v) for v in (X, y))
        np.testing.assert_allclose(mtl_loss(torch.tensor(B), *([v] for v in tensors)), rest, rtol=1e-9)


@pytest.mark.parametrize("bad", [[["a", "b"]], [[1.0, 2.0], [3.0]], np.array([[1j, 2.0]])])
def test_what_is_no_matrix_of_real_numbers_is_refused(bad: Any) -> None:
    for call in (
        condition_number,
        lambda X: covariance_similarity(X, np.eye(2)),
        lambda X: mtl_loss(np.eye(2), [X], [[1.0]]),
    ):
        with pytest.raises(MtlensError, match="real numbers"):
            call(bad)
