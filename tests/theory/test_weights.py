from __future__ import annotations

from typing import Any

import laws
import numpy as np
import pytest
import torch
import twins
from hypothesis import given
from laws import QUICK, SCALES, random_tasks, seeds
from sklearn.linear_model import Ridge

from mtlens import (
    MtlensError,
    shared_input_optimum,
    svd_weights,
    svd_weights_separate,
    uncertainty_loss,
    uncertainty_weights_shared,
)
from mtlens.theory.weights import leave_one_out_ridge


def shared(seed: int, rows: int = 20, width: int = 5, count: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, width)) + 0.5, rng.standard_normal((rows, count)) + 2.0


def printed(X: Any, Y: Any, rank: int) -> Any:
    return svd_weights(X, Y, rank=rank, scale_labels=False, normalise=None)


@QUICK
@given(seed=seeds())
def test_laws_of_the_weights(seed: int) -> None:
    X, Y = shared(seed)
    singular = np.linalg.svd(X.T @ Y, compute_uv=False)
    for rank in (1, 2, 4):
        np.testing.assert_allclose(printed(X, Y, rank), twins.printed_svd_weights(X, Y, rank), rtol=1e-8)
        np.testing.assert_allclose((printed(X, Y, rank) ** 2).sum(), (singular[:rank] ** 2).sum(), rtol=1e-10)
        laws.assert_permutation_equivariant(lambda Z, r=rank: svd_weights(X, Z, rank=r), Y, seed)
        laws.assert_permutation_equivariant(lambda Z, r=rank: printed(X, Z, r), Y, seed)
        np.testing.assert_allclose(svd_weights(X, Y, rank=rank).mean(), 1.0, rtol=1e-12)
        for scale in SCALES:
            np.testing.assert_allclose(printed(X, scale * Y, rank), scale * printed(X, Y, rank), rtol=1e-9)
            np.testing.assert_allclose(svd_weights(scale * X, Y, rank=rank), svd_weights(X, Y, rank=rank), rtol=1e-8)
    np.testing.assert_allclose(printed(X, Y, 4), np.linalg.norm(X.T @ Y, axis=0), rtol=1e-10)


def test_labels_are_scaled_and_centred_but_features_only_centred() -> None:
    X, Y = shared(0)
    centred, labels = X - X.mean(axis=0), Y - Y.mean(axis=0)
    expected = twins.printed_svd_weights(centred, labels / np.linalg.norm(labels, axis=0), 2)
    np.testing.assert_allclose(svd_weights(X, Y, rank=2, normalise=None), expected, rtol=1e-10)
    np.testing.assert_allclose(svd_weights(X, Y, rank=2), expected / expected.mean(), rtol=1e-10)
    np.testing.assert_allclose(
        svd_weights(X + 5, Y * [1, 1e-6, 1e6, -1] + [0, 9, -9, 1], rank=2), svd_weights(X, Y, rank=2), rtol=1e-7
    )
    assert not np.allclose(svd_weights(X * [1, 9, 1, 1, 1], Y, rank=2), svd_weights(X, Y, rank=2))


def test_as_printed_a_noisy_task_gains_weight() -> None:
    rng = np.random.default_rng(0)
    X, theta = rng.standard_normal((40, 30)), rng.standard_normal(30)
    clean = X @ theta
    Y = np.column_stack([clean, clean, clean + 6 * clean.std() * rng.standard_normal(40)])
    assert printed(X, Y, 1)[2] > printed(X, Y, 1)[0]
    scaled = svd_weights(X, Y, rank=1)
    assert scaled[2] < scaled[0]


@pytest.mark.parametrize("options", [{}, {"scale_labels": False, "normalise": None}])
@pytest.mark.parametrize("width", [2, 5])
def test_weights_carry_gradient(options: dict[str, Any], width: int) -> None:
    X, Y = shared(1, rows=7, width=width, count=3)
    tensors = torch.tensor(X, requires_grad=True), torch.tensor(Y, requires_grad=True)
    for rank in (1, 2, 3):
        value = svd_weights(*tensors, rank=rank, **options)
        np.testing.assert_allclose(value.detach(), svd_weights(X, Y, rank=rank, **options), rtol=1e-10)
        assert torch.autograd.gradcheck(lambda a, b, r=rank: svd_weights(a, b, rank=r, **options), tensors)


def test_more_tasks_than_features_and_rank_deficiency() -> None:
    X, Y = shared(2, width=2, count=4)
    np.testing.assert_allclose(printed(X, Y, 4), printed(X, Y, 2), rtol=1e-12)
    same = np.column_stack([Y[:, 0]] * 3)
    np.testing.assert_allclose(svd_weights(X, same, rank=1), 1.0, rtol=1e-10)
    tensor = torch.tensor(same, requires_grad=True)
    svd_weights(torch.tensor(X), tensor, rank=2).sum().backward()
    assert torch.isfinite(tensor.grad).all()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda X, Y: svd_weights(X, Y, rank=5), "rank=5 is more than the 4 tasks given.*Use 1 <= rank <= 4"),
        (lambda X, Y: svd_weights(X, Y, rank=0), "found rank=0"),
        (lambda X, Y: svd_weights(X, Y[:-1], rank=1), "X has 20 rows, Y has 19.*svd_weights_separate"),
        (lambda X, Y: svd_weights(X, Y * [1, 0, 1, 1], rank=1), "column 1 are constant"),
        (lambda X, Y: svd_weights(X, Y, rank=1, normalise="max"), "normalise='mean' or None, found 'max'"),
        (lambda X, Y: svd_weights(0 * X, Y, rank=1), "nothing to weigh"),
        (lambda X, Y: svd_weights_separate([X], [Y[:, 0]], rank=1, ridge=-1.0), "found ridge=-1.0"),
        (
            lambda X, Y: svd_weights_separate([X], [0 * Y[:, 0]], rank=1),
            "the labels of task 0 are constant.*Leave that task out.$",
        ),
        (lambda X, Y: svd_weights_separate([X], [Y[:, 0]], rank=1, ridge="cv"), "svd_weights_separate works on real"),
        (lambda X, Y: svd_weights_separate(None, [Y[:, 0]], rank=1), "needs Xs as a list"),
        (lambda X, Y: uncertainty_loss([1.0], [0.0], "regression"), "kinds as a list with one kind a task"),
    ],
)
def test_refusals(call: Any, text: str) -> None:
    with pytest.raises(MtlensError, match=text):
        call(*shared(3))


def whitened_twin(X: np.ndarray, y: np.ndarray, ridge: float) -> np.ndarray:
    X, y = X - X.mean(axis=0), y - y.mean()
    values, vectors = np.linalg.eigh(X.T @ X + ridge * np.eye(X.shape[1]))
    root = vectors @ np.diag(np.sqrt(values)) @ vectors.T
    theta = np.linalg.solve(X.T @ X + ridge * np.eye(X.shape[1]), X.T @ (y / np.linalg.norm(y)))
    return root @ theta


def test_separate_weights_equal_the_twin_and_ignore_units() -> None:
    Xs, ys = random_tasks(4, [20, 30, 15], 4)
    W = np.column_stack([whitened_twin(X, y, 0.5) for X, y in zip(Xs, ys, strict=True)])
    U = np.linalg.svd(W)[0][:, :2]
    expected = np.linalg.norm(U.T @ W, axis=0)
    np.testing.assert_allclose(svd_weights_separate(Xs, ys, rank=2, ridge=0.5, normalise=None), expected, rtol=1e-8)
    reference = svd_weights_separate(Xs, ys, rank=2, ridge=0.0)
    scaled = [s * X for s, X in zip((1.0, 1e5, 1e-5), Xs, strict=True)]
    np.testing.assert_allclose(
        svd_weights_separate(scaled, [9 * y + 1 for y in ys], rank=2, ridge=0.0), reference, rtol=1e-7
    )
    chosen = svd_weights_separate(scaled, ys, rank=2)
    np.testing.assert_allclose(chosen, svd_weights_separate(Xs, ys, rank=2), rtol=1e-6)
    np.testing.assert_allclose(chosen.mean(), 1.0)
    tensors = [torch.tensor(v, requires_grad=True) for v in (*Xs, *ys)]
    assert torch.autograd.gradcheck(lambda *t: svd_weights_separate(t[:3], t[3:], rank=2, ridge=0.5), tuple(tensors))


def test_separate_weights_allow_few_rows_and_missing_labels() -> None:
    Xs, ys = random_tasks(5, [3, 6], 8)
    ys[1][0] = np.nan
    for ridge in (None, 0.0, 1.0):
        assert np.isfinite(svd_weights_separate(Xs, ys, rank=1, ridge=ridge)).all()


def test_leave_one_out_ridge_equals_leaving_rows_out() -> None:
    rng = np.random.default_rng(6)
    X = rng.standard_normal((12, 4))
    y = X @ [1.0, 0, 0, 0] + rng.standard_normal(12)
    X, y = X - X.mean(axis=0), y - y.mean()
    best = leave_one_out_ridge(X, y, count=13)
    grid = np.linalg.norm(X, 2) ** 2 * np.logspace(-8, 4, 13)
    errors = []
    for ridge in grid:
        out = [np.delete(np.arange(12), i) for i in range(12)]
        models = [Ridge(alpha=ridge).fit(X[rows], y[rows]) for rows in out]
        errors.append(np.mean([(m.predict(X[[i]])[0] - y[i]) ** 2 for i, m in enumerate(models)]))
    np.testing.assert_allclose(best, grid[int(np.argmin(errors))], rtol=1e-12)


def test_uncertainty_loss_and_its_minimum() -> None:
    kinds = ["regression", "binary", "multiclass"]
    losses, s = np.array([2.0, 0.7, 1.1]), np.array([0.3, -0.2, 0.1])
    expected = np.exp(-0.3) / 2 * 2 + 0.15 + np.exp(0.2) * 0.7 - 0.1 + np.exp(-0.1) * 1.1 + 0.05
    np.testing.assert_allclose(uncertainty_loss(losses, s, kinds), expected, rtol=1e-12)
    np.testing.assert_allclose(uncertainty_loss(np.stack([losses, losses]), s, kinds), [expected] * 2, rtol=1e-12)
    tensors = torch.tensor(losses, requires_grad=True), torch.tensor(s, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: uncertainty_loss(a, b, kinds), tensors)
    best = torch.tensor(-np.log([1 / 2.0, 1 / 1.4, 1 / 2.2]), requires_grad=True)
    uncertainty_loss(list(torch.tensor(losses)), best, kinds).backward()
    np.testing.assert_allclose(best.grad, 0.0, atol=1e-12)
    with pytest.raises(MtlensError, match="no kind named 'ordinal'"):
        uncertainty_loss([1.0], [0.0], ["ordinal"])
    with pytest.raises(MtlensError, match=r"one of log_vars for each of the 1 kinds, found \(2,\)"):
        uncertainty_loss([1.0], [0.0, 0.0], ["binary"])


@QUICK
@given(seed=seeds())
def test_uncertainty_weights_are_a_fixed_point(seed: int) -> None:
    X, Y = shared(seed, rows=25)
    Y = Y * [1.0, 10.0, 0.1, 1.0]
    weights = uncertainty_weights_shared(X, Y, rank=2)
    best = shared_input_optimum(X, Y, rank=2, weights=weights)
    mean_losses = ((X @ best.coef - Y) ** 2).mean(axis=0)
    np.testing.assert_allclose(weights, 1 / (2 * mean_losses), rtol=1e-7)
    laws.assert_permutation_equivariant(lambda Z: uncertainty_weights_shared(X, Z, rank=2), Y, seed)


def test_uncertainty_weights_refuse_a_perfect_fit() -> None:
    X, Y = shared(0)
    Y[:, 2] = X[:, 0]
    with pytest.raises(MtlensError, match="column 2 of Y is fitted exactly at rank=4"):
        uncertainty_weights_shared(X, Y, rank=4)
    assert isinstance(uncertainty_weights_shared(torch.tensor(X), torch.tensor(Y[:, :2]), rank=1), torch.Tensor)


def test_separate_weights_take_a_rank_above_the_number_of_tasks() -> None:
    Xs, ys = random_tasks(2, [9, 7], 4)
    np.testing.assert_allclose(
        svd_weights_separate(Xs, ys, rank=5, ridge=1.0), svd_weights_separate(Xs, ys, rank=2, ridge=1.0)
    )
