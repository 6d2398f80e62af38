from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from laws import QUICK, random_tasks, seeds, shapes
from scipy.integrate import dblquad

from mtlens import (
    MtlensError,
    condition_number,
    explained_energy,
    greedy_bound,
    linear_optimum,
    mtl_loss,
    relu_moment,
    relu_objective,
    relu_transfer_bound,
    sin_angle,
    transfer_bound,
    two_task_optimum,
)


@QUICK
@given(shape=shapes(tasks=2, max_width=5), seed=seeds())
def test_greedy_explains_everything_and_bounds_every_rank(shape: tuple[list[int], int], seed: int) -> None:
    Xs, ys = random_tasks(seed, *shape)
    width = shape[1]
    greedy = greedy_bound(Xs, ys)
    assert greedy.gains.shape == (width,) and greedy.directions.shape == (width, width)
    np.testing.assert_allclose(greedy.directions.T @ greedy.directions, np.eye(width), atol=1e-7)
    own = mtl_loss(np.eye(width), Xs, ys)
    np.testing.assert_allclose(greedy.residual, own, rtol=1e-7, atol=1e-9)  # OPT is the single-task optimum
    np.testing.assert_allclose(greedy.gains.sum(), explained_energy(np.eye(width), Xs, ys), rtol=1e-6, atol=1e-8)
    best = two_task_optimum(Xs[0], ys[0], Xs[1], ys[1])
    np.testing.assert_allclose(greedy.loss(1), best.loss, rtol=1e-6, atol=1e-7)  # greedy is optimal at rank 1


def test_greedy_on_three_tasks() -> None:
    Xs, ys = random_tasks(0, [9, 7, 12], 4)
    greedy = greedy_bound(Xs, ys)
    for rank in (1, 2, 3, 4):
        np.testing.assert_allclose(mtl_loss(greedy.directions[:, :rank], Xs, ys), greedy.loss(rank), rtol=1e-8)
        assert linear_optimum(Xs, ys, rank=rank, starts=5).loss <= greedy.loss(rank) * (1 + 1e-9)
    assert linear_optimum(Xs, ys, rank=2).loss < greedy.loss(2)  # and not optimal beyond
    assert (np.diff(greedy.gains) <= 1e-12).all()
    tensors = greedy_bound([torch.tensor(X) for X in Xs], [torch.tensor(y) for y in ys])
    np.testing.assert_allclose(tensors.gains, greedy.gains)


@pytest.mark.parametrize("rows", [[2, 1], [3, 3, 4], [1, 5, 2, 1], [3, 9]])
@pytest.mark.parametrize("inner", [2, 5])
def test_greedy_with_fewer_rows_than_features(rows: list[int], inner: int) -> None:
    """What is projected off must be gone: its rounding was once taken for inputs and explained labels twice."""
    rng = np.random.default_rng(inner)
    Xs = [rng.standard_normal((m, inner)) @ rng.standard_normal((inner, 5)) for m in rows]
    ys = [rng.standard_normal(m) for m in rows]
    greedy = greedy_bound(Xs, ys, starts=4)
    assert (np.diff(greedy.gains) <= 1e-9).all()
    np.testing.assert_allclose(greedy.gains.sum(), explained_energy(np.eye(5), Xs, ys), rtol=1e-9)
    for rank in range(1, 6):
        np.testing.assert_allclose(mtl_loss(greedy.directions[:, :rank], Xs, ys), greedy.loss(rank), atol=1e-9)


def bound(**changes: Any) -> Any:
    rng = np.random.default_rng(0)
    X2 = rng.standard_normal((60, 3))
    theta2 = np.array([1.0, 2.0, -1.0])
    inputs: dict[str, Any] = {
        "X2": X2, "y2": X2 @ theta2, "theta1": theta2 + np.array([0.05, 0.0, 0.0]), "theta2": theta2,
        "covariance1": np.diag([1.0, 2.0, 4.0]), "noise1": 0.5, "noise2": 0.1,
    }  # fmt: skip
    inputs.update(changes)
    positional = [inputs.pop(name) for name in ("X2", "y2", "theta1", "theta2")]
    return transfer_bound(*positional, **inputs), positional, inputs


def test_transfer_bound_by_hand() -> None:
    found, (X2, y2, theta1, theta2), inputs = bound()
    kappa = condition_number(X2)
    c = kappa * sin_angle(theta1, theta2)
    np.testing.assert_allclose(found.c, c, rtol=1e-12)
    eps2 = 0.1 * np.sqrt(60)
    np.testing.assert_allclose(found.value, 6 * c + eps2 / np.linalg.norm(X2 @ theta2) / (1 - 3 * c), rtol=1e-12)
    unit = theta1 @ inputs["covariance1"] @ theta1
    rows = max(
        7.0 * 4.0 * np.log(3 / 0.05) / 1.0,
        4.0 * kappa**2 * (y2 @ y2 / unit) / c**2,
        3 * 16.0 * kappa**4 * (0.25 / unit) * np.log(20) / c**4,
    )
    np.testing.assert_allclose(found.rows_needed, rows, rtol=1e-12)
    assert found.holds and len(found.conditions) == 5
    assert all(type(holds) is bool for holds in found.conditions.values())
    noise = np.random.default_rng(1).standard_normal(60)
    np.testing.assert_allclose(
        bound(noise2=noise)[0].value,
        6 * c + np.linalg.norm(noise) / np.linalg.norm(X2 @ theta2) / (1 - 3 * c),
        rtol=1e-12,
    )


def test_transfer_bound_says_which_condition_fails() -> None:
    far = bound(theta1=np.array([1.0, -2.0, 1.0]))[0]
    assert far.value == np.inf and not far.holds and not far.conditions["c < 1/3 (or no target noise)"]
    silent = bound(theta1=np.array([1.0, -2.0, 1.0]), noise2=0.0)[0]
    assert silent.holds and silent.value == 6 * silent.c  # without target noise c may be large
    few = bound(X2=np.ones((2, 3)), y2=np.ones(2))[0]
    assert not few.conditions["m_2 >= d"] and few.value == np.inf and few.rows_needed == np.inf
    assert not bound(covariance1=np.diag([1.0, 1.0, 0.0]))[0].conditions["Sigma_1 is positive definite"]
    assert bound(margin=0.33)[0].rows_needed < bound()[0].rows_needed
    assert not bound(margin=1e-6)[0].holds
    same = bound(theta1=np.array([1.0, 2.0, -1.0]))[0]
    assert same.c < 1e-15 and same.value < 0.1
    exact = bound(margin=1 / 3)[0]
    assert exact.value == np.inf and not exact.holds  # strictly less than 1/3


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"theta1": np.ones(2)}, r"theta1 needs shape \(3,\), found \(2,\)"),
        ({"covariance1": np.eye(2)}, r"covariance1 needs shape \(3, 3\)"),
        ({"noise1": -1.0}, "noise1 as one finite number >= 0, found noise1=-1.0"),
        ({"noise1": "a"}, "noise1 works on real numbers"),
        ({"margin": -0.1}, "margin as one finite number >= 0"),
        ({"row_norm": 0.0}, "row_norm as one finite number > 0"),
        ({"covariance1": np.triu(np.ones((3, 3)))}, "covariance1 to be symmetric"),
        ({"noise2": -1.0}, "noise2 as one standard deviation"),
        ({"delta": 1.0}, "0 < delta < 1, found delta=1.0"),
        ({"theta1": np.zeros(3)}, "a is the zero vector"),
    ],
)
def test_transfer_bound_refusals(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(MtlensError, match=text):
        bound(**changes)


def test_relu_transfer_bound() -> None:
    X2 = np.diag([1.0, 2.0])
    theta1, theta2 = np.array([1.0, 0.0]), np.array([1.0, 0.1])
    found = relu_transfer_bound(X2, [1.0, 1.0], theta1, theta2)
    sine = sin_angle(theta1, theta2)
    np.testing.assert_allclose([found.c, found.value], [2 * sine, 2 * sine], rtol=1e-12)
    assert found.holds and found.rows_needed > 2 / found.c**2
    printed = relu_transfer_bound(X2, [1.0, 1.0], theta1, theta2, margin=sine / 2)  # the print divides by kappa
    assert not printed.holds and not printed.conditions["c >= kappa(X_2) sin(theta_1, theta_2)"]
    assert not relu_transfer_bound(np.ones((1, 2)), [1.0], theta1, theta2).conditions["m_2 >= d"]
    with pytest.raises(MtlensError, match="signal1 as one finite number > 0"):
        relu_transfer_bound(X2, [1.0, 1.0], theta1, theta2, signal1=0.0)


def test_the_geometric_fact_is_sharp_at_one_over_kappa() -> None:
    kappa = 50.0
    X = np.diag([kappa, 1.0])
    a, b = np.array([1.0, 1e-6]), np.array([1.0, -1e-6])
    np.testing.assert_allclose(sin_angle(X @ a, X @ b) / sin_angle(a, b), 1 / kappa, rtol=1e-9)


@pytest.mark.parametrize("phi", [0.0, 0.3, np.pi / 2, 2.5, np.pi])
def test_relu_moment_is_the_gaussian_expectation(phi: float) -> None:
    def integrand(angle: float, radius: float) -> float:
        units = max(np.cos(angle), 0) * max(np.cos(angle - phi), 0)
        return radius**3 * np.exp(-(radius**2) / 2) * units / (2 * np.pi)

    expected = dblquad(integrand, 0, 12, -np.pi / 2, np.pi / 2, epsabs=1e-7)[0]
    np.testing.assert_allclose(relu_moment(phi), expected, atol=1e-6)


def test_relu_moment_shapes_and_refusal() -> None:
    assert relu_moment(np.zeros((2, 3))).shape == (2, 3)
    assert torch.autograd.gradcheck(
        relu_moment, (torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64, requires_grad=True),)
    )
    with pytest.raises(MtlensError, match="between 0 and pi"):
        relu_moment(-0.1)
    assert abs(relu_moment(torch.tensor(np.pi, dtype=torch.float32))) < 1e-15  # pi in float32 is above pi


@QUICK
@given(seed=seeds())
def test_relu_objective_is_energy_at_best_heads(seed: int) -> None:
    Xs, ys = random_tasks(seed, [8, 6], 3)
    b = np.random.default_rng(seed).standard_normal(3)
    expected = 0.0
    for X, y in zip(Xs, ys, strict=True):
        z = np.maximum(X @ b, 0)
        expected += (z @ y) ** 2 / (z @ z) if z.any() else 0.0
    np.testing.assert_allclose(relu_objective(b, Xs, ys), expected, rtol=1e-10)
    np.testing.assert_allclose(relu_objective(1e8 * b, Xs, ys), expected, rtol=1e-10)
    two = relu_objective(np.column_stack([b, -b]), Xs, ys)
    assert two >= expected - 1e-12


def test_relu_objective_is_not_symmetric_and_carries_gradient() -> None:
    Xs, ys = random_tasks(3, [8, 6], 3)
    b = np.array([1.0, 0.5, -0.3])
    assert abs(relu_objective(b, Xs, ys) - relu_objective(-b, Xs, ys)) > 0.01
    assert relu_objective([-1.0], [np.ones((2, 1))], [[1.0, 1.0]]) == 0.0
    assert torch.autograd.gradcheck(lambda v: relu_objective(v, Xs, ys), (torch.tensor(b, requires_grad=True),))
