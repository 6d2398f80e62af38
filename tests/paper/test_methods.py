"""The studies' own small solvers, each against an independent answer."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize
from sklearn.linear_model import Ridge

from mtlens.paper.alignment import align, chosen, cross_validated, descend, same_moments, whitened_joint
from mtlens.paper.baselines import RIDGES, ridge_path, tuned_ridge
from mtlens.paper.landscape import count_minima, profile
from mtlens.paper.outcome import Draws
from mtlens.paper.propositions import _logistic, draw_problem
from mtlens.paper.theorems import relu_loss, relu_optimum
from mtlens.theory import two_task_optimum


def problem(m: int = 30, d: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    X = random.normal(size=(m, d))
    return X, X @ random.normal(size=d) + random.normal(size=m)


def test_ridge_path_is_ridge_towards_a_point() -> None:
    X, y = problem()
    toward = np.arange(6.0)
    path = ridge_path(X, y, toward=toward)
    top = np.linalg.eigvalsh(X.T @ X)[-1]
    for j in (0, 10, 36):
        twin = Ridge(alpha=RIDGES[j] * top, fit_intercept=False).fit(X, y - X @ toward).coef_ + toward
        np.testing.assert_allclose(path[:, j], twin, rtol=1e-8)


@pytest.mark.parametrize("shape", [(30, 6), (8, 20)])
def test_tuned_ridge_leaves_one_out_exactly(shape: tuple[int, int]) -> None:
    X, y = problem(*shape)
    top = np.linalg.eigvalsh(X.T @ X)[-1]
    errors = []
    for strength in RIDGES:
        error = 0.0
        for i in range(len(y)):
            kept = np.arange(len(y)) != i
            G = X[kept].T @ X[kept] + strength * top * np.eye(shape[1])
            error += (y[i] - X[i] @ np.linalg.solve(G, X[kept].T @ y[kept])) ** 2
        errors.append(error)
    best = ridge_path(X, y, toward=np.zeros(shape[1]))[:, int(np.argmin(errors))]
    np.testing.assert_allclose(tuned_ridge(X, y), best, rtol=1e-9)


def test_descent_ends_at_least_squares_and_rescaling_changes_nothing() -> None:
    X, y = problem()
    path = descend(X, y, np.zeros(6), steps=2000, rate=1.0)
    np.testing.assert_allclose(path[-1], np.linalg.lstsq(X, y, rcond=None)[0], rtol=1e-6)
    np.testing.assert_allclose(descend(100 * X, y, np.zeros(6), steps=20, rate=1.0)[-1], path[20] / 100, rtol=1e-10)


def test_algorithm_one_is_fine_tuning_at_capacity_one() -> None:
    X, y = problem()
    B = np.random.default_rng(5).normal(size=6)
    aligned = align(X, y, B, 1.0, steps=60, rate=0.5, train_head=False)
    np.testing.assert_allclose(aligned, descend(X, y, B, steps=60, rate=0.5), atol=1e-10)


def test_algorithm_one_descends_from_any_head() -> None:
    """From a head far too small, as from a ``B`` nobody trained, the loss still falls at every step."""
    X, y = problem()
    B = np.random.default_rng(7).normal(size=6)
    path = align(X, y, B, 1e-3, steps=3000, rate=1.0)
    losses = np.sum((X @ path.T - y[:, None]) ** 2, axis=0)
    assert (np.diff(losses) <= 1e-9 * losses[0]).all()
    np.testing.assert_allclose(path[-1], np.linalg.lstsq(X, y, rcond=None)[0], rtol=1e-5)


def test_algorithm_one_starts_at_the_joint_model() -> None:
    X, y = problem()
    B = np.arange(1.0, 7.0)
    np.testing.assert_allclose(align(X, y, B, 0.3, steps=3, rate=0.5)[0], 0.3 * B)


def test_chosen_is_the_best_of_the_path_on_validation() -> None:
    X, y = problem()
    path = np.stack([np.zeros(6), np.linalg.lstsq(X, y, rcond=None)[0], np.ones(6)])
    assert (chosen(path, X, y) == path[1]).all()


def test_points_of_a_path_that_diverged_are_never_chosen() -> None:
    X, y = problem()
    path = np.stack([np.full(6, np.nan), np.zeros(6), np.full(6, 1e300)])
    assert (chosen(path, X, y) == 0).all()


def test_more_folds_than_rows_leave_one_out() -> None:
    X, y = problem(12)
    zero = np.zeros(6)
    many, each = (cross_validated(X, y, lambda X, y: zero, folds=f, shares=(0.0,)) for f in (500, 12))
    np.testing.assert_array_equal(many, each)


def test_logistic_losses_are_those_of_another_minimiser() -> None:
    X, y = problem(60)
    signs = np.where(y > 0, 1.0, -1.0)
    coef, loss = _logistic(X, signs)
    twin = minimize(lambda b: np.sum(np.log1p(np.exp(-signs * (X @ b)))), np.zeros(6), method="BFGS")
    assert loss == pytest.approx(twin.fun, rel=1e-9)
    np.testing.assert_allclose(coef, twin.x, rtol=1e-4)


def test_ridge_towards_a_model_is_chosen_by_held_out_rows_alone() -> None:
    X, y = problem(20)
    seen: list[int] = []

    def toward(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        seen.append(len(y))
        return np.linalg.lstsq(X, y, rcond=None)[0]

    plain = cross_validated(X, y, toward, folds=5, shares=(0.0,))
    assert seen == [16] * 5 + [20]
    distances = np.linalg.norm(ridge_path(X, y, toward=np.zeros(6)) - plain[:, None], axis=0)
    assert distances.min() < 1e-12
    errors = [  # the twin: scikit-learn's ridge on four fifths, judged on the rest
        sum(
            np.sum((Ridge(alpha=r * top, fit_intercept=False).fit(X[k], y[k]).predict(X[~k]) - y[~k]) ** 2)
            for f in range(5)
            for k in [np.arange(20) % 5 != f]
            for top in [np.linalg.eigvalsh(X[k].T @ X[k])[-1]]
        )
        for r in RIDGES
    ]
    assert int(distances.argmin()) == int(np.argmin(errors))


def test_few_rows_that_say_the_same_to_a_linear_model() -> None:
    X, y = problem(50)
    small, labels = same_moments(X, y)
    assert small.shape == (7, 6)
    np.testing.assert_allclose(small.T @ small, X.T @ X, atol=1e-9)
    np.testing.assert_allclose(small.T @ labels, X.T @ y, atol=1e-9)
    assert labels @ labels == pytest.approx(y @ y)


def test_whitening_shrunk_all_the_way_is_no_whitening() -> None:
    X1, y1 = problem(30)
    X2, y2 = problem(60, seed=3)
    plain = np.asarray(two_task_optimum(X1, y1, X2, y2).coef)[:, 0]
    np.testing.assert_allclose(whitened_joint(X1, y1, X2, y2, 1.0), plain, rtol=1e-6)


def test_whitening_undoes_the_units_of_one_task_s_columns() -> None:
    """Where both tasks have the same rows, columns of other units change the target's model by those units alone."""
    X, y = np.linalg.qr(problem(30)[0])[0], problem(30)[1]
    _, y2 = problem(30, seed=3)
    units = np.array([1e-2, 1.0, 10.0, 100.0, 1e3, 0.3])
    ours = whitened_joint(X, y, X, y2, 1e-12)
    np.testing.assert_allclose(whitened_joint(X * units, y, X, y2, 1e-12) * units, ours, rtol=1e-4)


def test_the_profile_s_top_is_the_exact_optimum() -> None:
    for seed in range(10):
        p = draw_problem(seed, tasks=2)
        _, energy = profile(p.Xs[0], p.ys[0], p.Xs[1], p.ys[1], points=20_000)
        best = two_task_optimum(p.Xs[0], p.ys[0], p.Xs[1], p.ys[1])
        assert p.energy - float(best.loss) == pytest.approx(energy.max(), rel=1e-5)


def test_counting_minima_of_known_curves() -> None:
    t = np.linspace(0, 2 * np.pi, 500, endpoint=False)
    assert [count_minima(np.cos(k * t)) for k in (1, 2, 5)] == [1, 2, 5]
    assert count_minima(np.ones(10)) == 1
    assert count_minima(np.cos(t) + 1e-13 * np.random.default_rng(0).normal(size=500)) == 1


def test_equal_covariances_are_equal() -> None:
    p = draw_problem(0, equal=True)
    for X in p.Xs[1:]:
        np.testing.assert_allclose(X.T @ X, p.Xs[0].T @ p.Xs[0], atol=1e-10)


def test_relu_gradient_and_optimum() -> None:
    from mtlens.theory import relu_objective

    random = np.random.default_rng(0)
    theta = random.normal(size=4)
    X = random.normal(size=(200, 4))
    y = np.maximum(X @ theta, 0)
    at = random.normal(size=4)
    assert check_grad(lambda b: relu_loss(b, [X], [y])[0], lambda b: relu_loss(b, [X], [y])[1], at) < 1e-3
    assert -relu_loss(at, [X], [y])[0] == pytest.approx(float(relu_objective(at, [X], [y])))
    found = relu_optimum([X], [y], starts=2, seed=0)
    assert found @ theta / np.linalg.norm(theta) == pytest.approx(1.0, abs=1e-6)


def test_slopes_are_rank_correlations() -> None:
    from scipy.stats import spearmanr

    random, draws = np.random.default_rng(0), Draws()
    table = random.normal(size=(5, 7))
    for seed in range(7):
        for i, x in enumerate((1.0, 5.0, 2.0, 9.0, 3.0)):
            draws.add("p", "s", x, table[i, seed])
    expected = [spearmanr((1, 5, 2, 9, 3), table[:, seed]).statistic for seed in range(7)]
    np.testing.assert_allclose(draws.slope("p", "s"), expected)
