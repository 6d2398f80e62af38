from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from mtlens import LinearMTL, MtlensError, linear_optimum, shared_input_optimum, svd_weights


@parametrize_with_checks([LinearMTL(), LinearMTL(rank=1, ridge=1.0), LinearMTL(weights="svd", ridge=0.1)])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def low_rank(
    seed: int, rows: int = 60, width: int = 6, tasks: int = 5, rank: int = 2, noise: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, width)) + 3.0
    signal = X @ rng.standard_normal((width, rank)) @ rng.standard_normal((rank, tasks))
    return X, signal + noise * signal.std() * rng.standard_normal(signal.shape) + 10.0


def with_holes(Y: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random(Y.shape) < share, np.nan, Y)


@pytest.mark.parametrize("ridge", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("rank", [5, 9])
def test_full_rank_is_scikit_learns_ridge(ridge: float, rank: int) -> None:
    X, Y = low_rank(0)
    model, reference = LinearMTL(rank=rank, ridge=ridge).fit(X, Y), Ridge(alpha=ridge).fit(X, Y)
    assert_allclose(model.coef_, reference.coef_, rtol=1e-9, atol=1e-12)
    assert_allclose(model.intercept_, reference.intercept_, rtol=1e-9)
    assert_allclose(model.predict(X), reference.predict(X), rtol=1e-9)
    assert_allclose(model.score(X, Y), r2_score(Y, reference.predict(X)), rtol=1e-12)
    single = LinearMTL(rank=1, ridge=ridge).fit(X, Y[:, 0])
    assert single.coef_.shape == (6,) and isinstance(single.intercept_, float)
    assert_allclose(single.coef_, reference.coef_[0], rtol=1e-9, atol=1e-12)
    assert_allclose(LinearMTL(rank=5, ridge=0.0).fit(X, Y).coef_, LinearRegression().fit(X, Y).coef_, rtol=1e-9)


def test_full_rank_with_missing_labels_is_ridge_on_each_tasks_rows() -> None:
    X, Y = low_rank(1)
    holes = with_holes(Y, 0.4)
    model = LinearMTL(rank=5, ridge=0.7).fit(X, holes)
    for i in range(5):
        known = ~np.isnan(holes[:, i])
        reference = Ridge(alpha=0.7).fit(X[known], Y[known, i])
        assert_allclose(model.coef_[i], reference.coef_, rtol=1e-8, atol=1e-11)
        assert_allclose(model.intercept_[i], reference.intercept_, rtol=1e-8)
    expected = np.mean([r2_score(Y[k, i], model.predict(X)[k, i]) for i, k in enumerate(~np.isnan(holes.T))])
    assert_allclose(model.score(X, holes), expected, rtol=1e-12)


def test_low_rank_is_the_exact_joint_optimum() -> None:
    X, Y = low_rank(2)
    Xc, Yc = X - X.mean(axis=0), Y - Y.mean(axis=0)
    weights = [1.0, 0.1, 2.0, 1.0, 3.0]
    for rank in (1, 2, 3):
        model = LinearMTL(rank=rank, ridge=0.0, weights=weights).fit(X, Y)
        best = shared_input_optimum(Xc, Yc, rank=rank, weights=weights)
        assert_allclose(model.coef_.T, best.coef, rtol=1e-7, atol=1e-9)
        assert_allclose(model.coef_.T, model.shared_ @ model.heads_, rtol=1e-12)
        assert model.shared_.shape == (6, rank) and model.heads_.shape == (rank, 5) and model.rank_ == rank
    penalised = linear_optimum([Xc] * 5, list(Yc.T), rank=2, ridge=4.0, weights=weights)
    assert_allclose(
        LinearMTL(rank=2, ridge=4.0, weights=weights).fit(X, Y).coef_.T, penalised.coef, rtol=1e-7, atol=1e-9
    )


def test_missing_labels_approach_the_complete_solution() -> None:
    X, Y = low_rank(3)
    holes = Y.copy()
    holes[0, 0] = np.nan
    whole, almost = (LinearMTL(rank=2, ridge=1.0).fit(X, Z) for Z in (Y, holes))
    assert_allclose(almost.coef_, whole.coef_, atol=0.1 * np.abs(whole.coef_).max())


@pytest.mark.parametrize("share", [0.0, pytest.param(0.3, marks=pytest.mark.medium)])
def test_cross_validation_finds_the_rank_and_beats_no_sharing(share: float) -> None:
    X, Y = low_rank(4, rows=50, width=20, tasks=8, noise=1.0)
    X_new, Y_new = X[30:], Y[30:]
    labels = with_holes(Y[:30], share)
    model = LinearMTL().fit(X[:30], labels)
    assert 1 <= model.rank_ <= 4
    curve = model.capacity_curve_
    assert set(curve) == set(range(1, 9)) and max(curve, key=curve.get) == model.rank_
    assert model.score(X_new, Y_new) > LinearMTL(rank=8).fit(X[:30], labels).score(X_new, Y_new)
    assert clone(model).fit(X[:30], labels).ridge_ == model.ridge_  # deterministic


def test_cross_validated_losses_equal_fitting_and_predicting_each_fold() -> None:
    X, Y = low_rank(5, rows=23)
    model = LinearMTL(rank=2, ridge=3.0, cv=4)
    folds = np.random.default_rng(0).permutation(np.arange(23) % 4)
    errors = np.zeros(5)
    for fold in range(4):
        fitted = clone(model).fit(X[folds != fold], Y[folds != fold])
        errors += ((fitted.predict(X[folds == fold]) - Y[folds == fold]) ** 2).sum(axis=0)
    expected = np.mean(1 - errors / ((Y - Y.mean(axis=0)) ** 2).sum(axis=0))
    searched = LinearMTL(rank="cv", ridge=3.0, cv=4).fit(X, Y)
    assert_allclose(searched.capacity_curve_[2], expected, rtol=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_svd_weights_ignore_units(share: float) -> None:
    X, Y = low_rank(6)
    Y = with_holes(Y, share)
    units = np.array([1.0, 1e4, 1e-4, 1.0, -3.0])
    plain, scaled = (LinearMTL(rank=2, ridge=1.0, weights="svd").fit(X, Z) for Z in (Y, Y * units))
    assert_allclose(scaled.predict(X), plain.predict(X) * units, rtol=1e-4)
    if share == 0.0:
        alpha = svd_weights(X, Y, rank=2)
        expected = alpha / ((Y - Y.mean(axis=0)) ** 2).sum(axis=0)
        assert_allclose(plain.weights_, expected, rtol=1e-9)
        equal = LinearMTL(rank=2, ridge=1.0, weights=expected).fit(X, Y)
        assert_allclose(equal.coef_, plain.coef_, rtol=1e-9)
    assert_allclose(LinearMTL(rank="cv", ridge="cv", weights="svd").fit(X, Y).weights_.shape, (5,))


def test_more_features_than_rows_and_degenerate_labels() -> None:
    rng = np.random.default_rng(7)
    X, Y = rng.standard_normal((12, 300)), rng.standard_normal((12, 3))
    assert_allclose(
        LinearMTL(rank=3, ridge=0.5).fit(X, Y).coef_, Ridge(alpha=0.5).fit(X, Y).coef_, rtol=1e-8, atol=1e-12
    )
    for share in (0.0, 0.2):
        assert LinearMTL().fit(X, with_holes(Y, share)).shared_.shape[0] == 300
    constant = np.column_stack([np.ones(12), Y[:, 0]])
    for weights in (None, "svd"):
        model = LinearMTL(weights=weights).fit(X, constant)
        assert_allclose(model.predict(X)[:, 0], 1.0, atol=1e-9)
        assert np.isfinite(LinearMTL(weights=weights).fit(X, with_holes(constant, 0.2)).coef_).all()
    one = LinearMTL().fit([[1.0, 2.0]], [[3.0, 4.0]])
    assert_allclose(one.predict([[5.0, 6.0]]), [[3.0, 4.0]])
    assert one.capacity_curve_ is None
    deficient = LinearMTL(rank=2, ridge=0.0).fit(np.ones((4, 3)), Y[:4])
    assert_allclose(deficient.predict(np.ones((1, 3)))[0], Y[:4].mean(axis=0))


def test_sample_weighted_score_and_grid_search() -> None:
    X, Y = low_rank(8)
    weight = np.linspace(0, 1, 60)
    model = LinearMTL(rank=2, ridge=1.0).fit(X, Y)
    assert_allclose(model.score(X, Y, weight), r2_score(Y, model.predict(X), sample_weight=weight), rtol=1e-12)
    search = GridSearchCV(LinearMTL(ridge=1.0), {"rank": [1, 2, 5]}, cv=3).fit(X, Y)
    assert search.best_params_["rank"] in (1, 2, 5)


@pytest.mark.parametrize(
    ("options", "labels", "text"),
    [
        ({"rank": 0}, None, "whole rank of at least 1, or 'cv', found rank=0"),
        ({"rank": 1.5}, None, "found rank=1.5"),
        ({"rank": "auto"}, None, "found rank='auto'"),
        ({"ridge": -1}, None, "ridge >= 0, or 'cv', found ridge=-1"),
        ({"ridge": "auto"}, None, "found ridge='auto'"),
        ({"rank": None}, None, "found rank=None"),
        ({"rank": np.nan}, None, "found rank=nan"),
        ({"ridge": [1.0, 2.0]}, None, "one ridge >= 0, or 'cv', found"),
        ({"weights": {"a": 1}}, None, "weights works on real numbers"),
        ({"random_state": None}, None, "whole random_state >= 0, found random_state=None"),
        ({"weights": "best"}, None, "'svd', found 'best'"),
        ({"weights": [1.0]}, None, "each of the 5 tasks"),
        ({"cv": 1}, None, "at least 2 folds, found cv=1"),
        ({}, np.full((60, 2), np.nan), "task 0 .* has no label at all"),
        ({}, np.ones((59, 2)), "X has 60 rows, y has 59"),
    ],
)
def test_refusals(options: dict[str, Any], labels: Any, text: str) -> None:
    X, Y = low_rank(9)
    with pytest.raises(MtlensError, match=text):
        LinearMTL(**options).fit(X, Y if labels is None else labels)


def test_a_task_without_labels_among_the_scored_rows_is_left_out() -> None:
    X, Y = low_rank(9)
    Y[30:, 0] = np.nan
    model = LinearMTL(rank=2, ridge=1.0).fit(X, Y)
    rest = [r2_score(Y[30:, i], model.predict(X[30:])[:, i]) for i in range(1, Y.shape[1])]
    np.testing.assert_allclose(model.score(X[30:], Y[30:]), np.mean(rest), rtol=1e-12)
    with pytest.raises(MtlensError, match="at least two labelled rows, found none"):
        model.score(X, np.full(Y.shape, np.nan))
    with pytest.raises(MtlensError, match=r"labels of shape \(60, 5\), found \(60, 2\)"):
        model.score(X, Y[:, :2])
