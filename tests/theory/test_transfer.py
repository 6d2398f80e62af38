"""The folded core against the same thing done row by row with scikit-learn, and its laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from mtlens.errors import InputError, UnknownNameError
from mtlens.theory.transfer import LinearProblem, LinearTransfer

RIDGES = (0.01, 1.0, 100.0)


def problems(seed: int = 0, sizes: tuple[int, ...] = (40, 90), d: int = 6, noise: float = 1.0) -> list[LinearProblem]:
    random = np.random.default_rng(seed)
    theta = random.standard_normal(d)
    made = []
    for i, m in enumerate(sizes):
        X = random.standard_normal((m, d)) * random.uniform(0.5, 2, d) + random.standard_normal(d)
        made.append(LinearProblem(f"t{i}", X, X @ theta + noise * random.standard_normal(m) + i))
    return made


def slow_alone(problem: LinearProblem, fold: Any, ridges: Any) -> np.ndarray:
    """Held-out squared error (L, K), row by row, with scikit-learn on inputs and labels standardised by hand."""
    losses = []
    for alpha in ridges:
        row = []
        for f in range(fold.max() + 1):
            train, held = fold != f, fold == f
            scale = problem.X[train].std(axis=0)
            model = Ridge(alpha=alpha).fit(problem.X[train] / scale, problem.y[train])
            row.append(float(((problem.y[held] - model.predict(problem.X[held] / scale)) ** 2).sum()))
        losses.append(row)
    return np.array(losses)


def test_alone_equals_ridge_row_by_row() -> None:
    (problem,) = problems(sizes=(40,))
    core = LinearTransfer([problem], ridges=RIDGES)
    expected = slow_alone(problem, core.fold_of[0], core.ridges)
    np.testing.assert_allclose(core._alone[0][0], expected, rtol=1e-9)
    rest = expected.sum(axis=1, keepdims=True) - expected
    nested = expected[rest.argmin(axis=0), np.arange(5)].sum()
    base = sum(
        ((problem.y[core.fold_of[0] == f] - problem.y[core.fold_of[0] != f].mean()) ** 2).sum() for f in range(5)
    )
    assert core.alone("t0").score == pytest.approx(1 - nested / base, rel=1e-9)


def slow_joint(pair: list[LinearProblem], folds: list[Any], ridge: float, beta: float, fold: int) -> float:
    """Held-out loss on the first task of one coefficient vector for both, from stacked, weighted rows."""
    scale_x = np.exp(
        np.mean([0.5 * np.log(p.X[f != fold].var(axis=0)) for p, f in zip(pair, folds, strict=True)], axis=0)
    )
    rows, labels, alphas = [], [], []
    stats = []
    for p, f, alpha in zip(pair, folds, (1.0, beta), strict=True):
        X, y = p.X[f != fold], p.y[f != fold]
        stats.append((X.mean(axis=0), y.mean()))
        rows.append((X - X.mean(axis=0)) / scale_x)
        labels.append((y - y.mean()) / y.std())
        alphas.append(np.full(len(y), alpha))
    best = None
    for sign in (1.0, -1.0):
        Z, target = np.concatenate(rows), np.concatenate([labels[0], sign * labels[1]])
        alpha = np.concatenate(alphas)
        model = Ridge(alpha=ridge * np.sqrt(beta), fit_intercept=False).fit(Z, target, sample_weight=alpha)
        fit = float(alpha @ (target - Z @ model.coef_) ** 2 + ridge * np.sqrt(beta) * model.coef_ @ model.coef_)
        best = min(best or (np.inf, None), (fit, model.coef_.tolist()))
    assert best is not None
    held = folds[0] == fold
    train_y = pair[0].y[~held]
    prediction = train_y.mean() + train_y.std() * (((pair[0].X[held] - stats[0][0]) / scale_x) @ np.array(best[1]))
    return float(((pair[0].y[held] - prediction) ** 2).sum())


@pytest.mark.parametrize("flip", [1.0, -1.0])
def test_a_pair_equals_ridge_on_stacked_rows(flip: float, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = problems(seed=3)
    second = LinearProblem("t1", second.X, flip * second.y)
    # own label scales, so that the twin needs no empirical Bayes
    monkeypatch.setattr("mtlens.theory.standardised._label_scales", lambda variances, rows: np.sqrt(variances))
    core = LinearTransfer([first, second], ridges=RIDGES, weights=(0.1, 1.0, 10.0), folds=4)
    losses = np.empty((1, 2, 9, 4))
    for f in range(4):
        core._pair_losses(core.view(f), [(0, 1)], losses[..., f])
        for b, beta in enumerate(core.weights):
            for r, ridge in enumerate(core.ridges):
                expected = slow_joint([first, second], core.fold_of, ridge, beta, f)
                assert losses[0, 0, 3 * b + r, f] == pytest.approx(expected, rel=1e-7)
                mirrored = slow_joint([second, first], core.fold_of[::-1], ridge, beta, f)
                assert losses[0, 1, 3 * b + r, f] == pytest.approx(mirrored, rel=1e-7)


def test_pairs_and_pair_agree_also_on_shared_inputs_and_classes() -> None:
    random = np.random.default_rng(1)
    X = random.standard_normal((60, 5))
    scores = X @ random.standard_normal((5, 3)) + random.standard_normal((60, 3))
    other = random.standard_normal((50, 5))
    made = [
        LinearProblem("number", X, scores[:, 0]),
        LinearProblem("coin", X, (scores[:, 1] > 0) * 1.0, "binary"),
        LinearProblem("dice", X, scores.argmax(axis=1) * 1.0, "multiclass"),
        LinearProblem("far", other, (other @ random.standard_normal((5, 4))).argmax(axis=1) * 1.0, "multiclass"),
    ]
    core = LinearTransfer(made, folds=3)
    table = core.pairs()
    for t in core.names:
        for s in core.names:
            if t != s:
                one, cell = core.pair(t, s), table.get(t, s)
                assert cell.difference == pytest.approx(one.difference, abs=1e-9)
                assert (cell.low, cell.high) == pytest.approx((one.low, one.high), abs=1e-9)
                assert cell.ridge == one.ridge and cell.weight == one.weight
    assert np.isnan(table.difference.diagonal()).all()


def test_wide_systems_take_the_cholesky_path_to_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    made = problems(seed=5, sizes=(30, 45, 25), d=9)
    narrow = LinearTransfer(made, folds=3).pairs()
    monkeypatch.setattr("mtlens.theory.joint_ridge.SMALL", 3)
    np.testing.assert_allclose(LinearTransfer(made, folds=3).pairs().difference, narrow.difference, atol=1e-9)


def test_units_do_not_matter() -> None:
    made = problems(seed=7, sizes=(50, 80, 30))
    first = LinearTransfer(made).pairs()
    scales = (1e-8, 1e8, 1.0)
    columns = np.logspace(-8, 8, 6)
    rescaled = [LinearProblem(p.name, p.X * columns, p.y * s) for p, s in zip(made, scales, strict=True)]
    # own label scales are kept when units differ; equal up to what empirical Bayes drew together in the first
    np.testing.assert_allclose(LinearTransfer(rescaled).pairs().alone, first.alone, rtol=1e-6)
    np.testing.assert_allclose(LinearTransfer(rescaled).pairs().difference, first.difference, atol=0.02)


def test_a_column_that_is_constant_without_one_fold_takes_no_part_there() -> None:
    """Rare words: what is left of their variance is rounding, by which held-out rows must not be divided."""
    random = np.random.default_rng(3)
    X = np.concatenate([random.standard_normal((60, 4)), np.zeros((60, 60))], axis=1)
    X[np.arange(60), 4 + np.arange(60)] = random.uniform(0.1, 0.7, 60)
    y = X[:, :4].sum(axis=1) + 0.1 * random.standard_normal(60)
    fold = np.arange(60) % 5
    both = [LinearProblem("a", X, y), LinearProblem("b", X[:50], y[:50])]
    core = LinearTransfer(both, folds=[fold, fold[:50]], ridges=[0.01])
    expected = np.empty(60)
    for f in range(5):
        train = fold != f
        few = X[train][:, X[train].any(axis=0)]
        parts = [part.std(axis=0) for part in (few, few[: np.count_nonzero(train[:50])])]
        parts = [np.where(p > 0, p, np.nan) for p in parts]
        scale = np.exp(np.nanmean(np.log(parts), axis=0))
        model = Ridge(alpha=0.01 * 64).fit(few / scale, y[train])
        expected[~train] = model.predict(X[~train][:, X[train].any(axis=0)] / scale)
    np.testing.assert_allclose(core.out_of_fold("a"), np.clip(expected, y.min(), y.max()), atol=1e-9)
    assert core.alone("a").score > 0.5


def test_order_of_tasks_does_not_matter() -> None:
    made = problems(seed=2, sizes=(40, 60, 50))
    folds = [np.arange(len(p.X)) % 5 for p in made]
    table = LinearTransfer(made, folds=folds).pairs()
    turned = LinearTransfer(made[::-1], folds=folds[::-1]).pairs()
    np.testing.assert_allclose(turned.difference[::-1, ::-1], table.difference, atol=1e-9)


def test_related_helps_and_unrelated_does_not() -> None:
    random = np.random.default_rng(0)
    d, theta = 30, np.random.default_rng(9).standard_normal(30)
    X = [random.standard_normal((m, d)) for m in (40, 2000, 2000)]
    labels = [X[0] @ theta, X[1] @ theta, X[2] @ random.standard_normal(d)]
    made = [
        LinearProblem(n, x, y + 3 * random.standard_normal(len(y)))
        for n, x, y in zip(("small", "twin", "stranger"), X, labels, strict=True)
    ]
    core = LinearTransfer(made, repeats=3)
    twin, stranger = core.pair("small", "twin"), core.pair("small", "stranger")
    assert twin.verdict == "helps" and twin.difference > 0.1
    assert stranger.difference < twin.difference and stranger.verdict != "helps"
    assert abs(core.pair("twin", "small").difference) < 0.02


@pytest.mark.parametrize("method", ["joint", "shrink"])
def test_fit_predicts_new_rows_and_out_of_fold_matches_its_score(method: Any) -> None:
    made = problems(seed=11, sizes=(60, 200, 200), d=20, noise=4.0)
    core = LinearTransfer(made)
    transfer = core.joint("t0", method=method)
    predicted = core.out_of_fold("t0", None, method=method)
    assert predicted.shape == (60,) and np.isfinite(predicted).all()
    low, high = made[0].y.min(), made[0].y.max()
    error = ((made[0].y - predicted) ** 2).sum()
    base = core._alone[1][0].sum()
    assert 1 - error / base == pytest.approx(transfer.joint, abs=0.02)  # the score is before clipping
    model = core.fit("t0", None, method=method)
    assert model.sources == ("t1", "t2")
    far = model.predict(made[0].X * 1e6)
    assert far.min() >= low and far.max() <= high
    np.testing.assert_allclose(
        model.predict(made[0].X), np.clip(made[0].X @ model.coef + model.intercept, low, high)[:, 0]
    )


def test_fit_alone_is_the_tuned_ridge() -> None:
    made = problems(seed=4)
    model = LinearTransfer(made, ridges=RIDGES).fit("t0")
    spread = np.exp(np.mean([np.log(p.X.std(axis=0)) for p in made], axis=0))
    expected = Ridge(alpha=model.ridge).fit(made[0].X / spread, made[0].y)
    np.testing.assert_allclose(model.coef[:, 0] * spread, expected.coef_, rtol=1e-8)
    assert model.intercept[0] == pytest.approx(expected.intercept_, rel=1e-8)


def test_multiclass_predictions_are_probabilities() -> None:
    random = np.random.default_rng(8)
    X = random.standard_normal((80, 4))
    y = (X @ random.standard_normal((4, 3))).argmax(axis=1) * 1.0
    y[:5] = np.nan
    core = LinearTransfer(
        [LinearProblem("a", X, y, "multiclass"), LinearProblem("b", X, 2.0 - y, "multiclass")], folds=3
    )
    for sources in ((), ("b",)):
        p = core.fit("a", sources).predict(X)
        assert p.shape == (80, 3) and (p >= 0).all()
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
    # b is a with its classes renamed: with the right assignment of outputs it teaches the same thing
    assert abs(core.pair("a", "b").difference) < 0.02


def test_missing_labels_and_weights_equal_dropping_and_repeating_rows() -> None:
    random = np.random.default_rng(6)
    (p, q) = problems(seed=6)
    counts = random.integers(0, 3, len(p.y))
    folds = [np.arange(len(p.X)) % 3, np.arange(len(q.X)) % 3]
    weighted = LinearProblem("t0", p.X, p.y, weight=counts.astype(float))
    again = np.repeat(np.arange(len(p.y)), counts)
    repeated = LinearProblem("t0", p.X[again], p.y[again])
    one = LinearTransfer([weighted, q], folds=folds).pair("t0", "t1")
    two = LinearTransfer([repeated, q], folds=[folds[0][again], folds[1]]).pair("t0", "t1")
    assert one.difference == pytest.approx(two.difference, abs=1e-10) and one.alone == pytest.approx(
        two.alone, abs=1e-10
    )
    y = p.y.copy()
    y[::4] = np.nan
    gone = ~np.isnan(y)
    partly = LinearTransfer([LinearProblem("t0", p.X, y), q], folds=folds).pair("t0", "t1")
    dropped = LinearTransfer([LinearProblem("t0", p.X[gone], y[gone]), q], folds=[folds[0][gone], folds[1]]).pair(
        "t0", "t1"
    )
    assert partly.difference == pytest.approx(dropped.difference, abs=1e-10)


def test_shared_rows_and_groups_share_folds() -> None:
    random = np.random.default_rng(0)
    X, other = random.standard_normal((30, 3)), random.standard_normal((20, 3))
    y = random.standard_normal(30)
    y[::3] = np.nan
    groups = np.arange(30) // 3
    made = [
        LinearProblem("a", X, random.standard_normal(30), group=groups),
        LinearProblem("b", X, y),
        LinearProblem("c", other, random.standard_normal(20), group=np.arange(20) // 2),
    ]
    core = LinearTransfer(made, folds=3)
    np.testing.assert_array_equal(core.fold_of[0], core.fold_of[1])
    for g in range(10):
        assert len({*core.fold_of[0][groups == g], *core.fold_of[2][made[2].group == g]}) == 1
    assert len(set(core.fold_of[0])) == 3


def test_a_validation_split_is_one_fold() -> None:
    made = problems(seed=1)
    folds = [np.where(np.arange(len(p.X)) % 4 == 0, 0, -1) for p in made]
    core = LinearTransfer(made, folds=folds)
    cell = core.pair("t0", "t1")
    assert core.num_folds == 1 and cell.low == -np.inf and cell.verdict == "unsure"
    held = core.out_of_fold("t0", ("t1",))
    assert np.isnan(held[folds[0] == -1]).all() and np.isfinite(held[folds[0] == 0]).all()


def test_repeats_deal_the_rows_anew_and_average() -> None:
    made = problems(seed=3)
    core = LinearTransfer(made, repeats=3, seed=5)
    singles = [LinearTransfer(made, seed=5 + 1000 * r).pair("t0", "t1") for r in range(3)]
    together = core.pair("t0", "t1")
    assert together.folds.shape == (15,)
    # each repeat has its own baseline variance, so shares differ a little from those of the average fold
    assert together.difference == pytest.approx(np.mean([one.difference for one in singles]), rel=0.1)
    np.testing.assert_array_equal(core.fold_of[0], LinearTransfer(made, seed=5).fold_of[0])


def test_the_interval_is_the_corrected_resampled_t() -> None:
    from scipy.stats import t

    cell = LinearTransfer(problems(seed=3), repeats=2).pair("t0", "t1")
    error = cell.folds.std(ddof=1) * np.sqrt(1 / 10 + 1 / 4)
    assert cell.high - cell.low == pytest.approx(2 * t.ppf(0.975, 9) * error)
    assert cell.p_helps == pytest.approx(t.cdf(cell.difference / error, 9))


def test_mistakes_are_named() -> None:
    made = problems()
    with pytest.raises(InputError, match="'t0' has 6 columns, 'thin' has 2 columns"):
        LinearTransfer([made[0], LinearProblem("thin", np.ones((9, 2)), np.arange(9.0))])
    with pytest.raises(InputError, match="task 't0' has 40 labelled rows"):
        LinearTransfer(made, folds=41)
    one = LinearProblem("one", np.ones((1, made[0].X.shape[1])), np.ones(1))
    with pytest.raises(InputError, match=r"task 'one' has 1 labelled row\. Give it more, or leave that task out"):
        LinearTransfer([*made, one], folds=3)
    core = LinearTransfer(made)
    with pytest.raises(UnknownNameError, match="Did you mean 't1'"):
        core.pair("t0", "t1x")
    with pytest.raises(InputError, match="its own source"):
        core.pair("t0", "t0")
    with pytest.raises(InputError, match="row 3 is not"):
        X = made[0].X.copy()
        X[3, 0] = np.nan
        LinearTransfer([LinearProblem("hole", X, made[0].y)])


def test_hopeless_data_give_finite_answers() -> None:
    """One distinct label in a fold, constant columns, fewer rows than columns, labels of scale 1e-8."""
    random = np.random.default_rng(0)
    X = np.column_stack([random.standard_normal((12, 20)), np.ones(12)])
    rare = np.zeros(12)
    rare[0] = 1.0
    made = [
        LinearProblem("rare", X, rare, "binary"),
        LinearProblem("tiny", X.copy(), 1e-8 * random.standard_normal(12)),
        LinearProblem("flat", X.copy(), np.full(12, 3.0)),
    ]
    core = LinearTransfer(made, folds=4)
    table = core.pairs()
    off = ~np.eye(3, dtype=bool)
    assert np.isfinite(table.difference[off]).all()
    assert np.isfinite(core.fit("rare", None, method="shrink").predict(X)).all()
    assert core.fit("flat", ("tiny",)).predict(X) == pytest.approx(3.0)


def test_ties_go_to_the_largest_ridge() -> None:
    """With one positive in 60 rows the fold that holds it out sees one class, and every ridge is equally wrong there.

    With that fold as the only one, all ridges tie: the least regularised would extrapolate from nothing.
    """
    random = np.random.default_rng(0)
    X, y = random.standard_normal((60, 80)), np.zeros(60)
    y[0] = 1.0
    fold = np.full(60, -1)
    fold[:12] = 0
    core = LinearTransfer([LinearProblem("rare", X, y, "binary")], folds=[fold], ridges=RIDGES)
    assert core.fit("rare").ridge == core.ridges[-1] == core.alone("rare").ridge


def test_a_task_never_held_out_takes_the_ridge_that_is_best_for_the_others() -> None:
    random = np.random.default_rng(1)
    first, second = problems(sizes=(60, 60), noise=3.0)
    small = LinearProblem("small", random.standard_normal((7, 6)), random.standard_normal(7))
    folds = [np.arange(60) % 5, np.arange(60) % 5, np.full(7, -1)]
    core = LinearTransfer([first, second, small], folds=folds, ridges=(1e-4, 1.0, 1e4))
    assert core.fit("small").ridge == core.shared_ridge(["t0", "t1"])
