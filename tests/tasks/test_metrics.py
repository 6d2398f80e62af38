"""Metrics against scikit-learn and scipy, and the laws every metric obeys."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from mtlens.errors import InputError, UnknownNameError
from mtlens.tasks import Task
from mtlens.tasks.metrics import METRICS, metric_named, metric_of, score

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]

CLASS_METRICS = [m.name for m in METRICS.values() if m.needs != "number"]
NUMBER_METRICS = [m.name for m in METRICS.values() if m.needs == "number"]


# The independent answer: scikit-learn's or scipy's, on the rows that count, NaN where they refuse or warn -------------


def _decide(p: np.ndarray) -> np.ndarray:
    return p.argmax(axis=1) if p.ndim == 2 else (p > 0.5).astype(float)


def _macro_f1(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> float:
    average = "macro" if p.ndim == 2 else "binary"
    return float(sk.f1_score(y, _decide(p), sample_weight=w, average=average))


def _macro(metric: Callable[..., float]) -> Callable[[np.ndarray, np.ndarray, np.ndarray], float]:
    def of(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> float:
        if p.ndim == 1:
            return float(metric(y, p, sample_weight=w))
        return float(np.mean([metric(y == k, p[:, k], sample_weight=w) for k in range(p.shape[1])]))

    return of


def _log_loss(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> float:
    labels = range(p.shape[1]) if p.ndim == 2 else (0, 1)
    return float(sk.log_loss(y, y_proba=p, sample_weight=w, labels=list(labels)))


def _repeated(statistic: Callable[..., Any]) -> Callable[[np.ndarray, np.ndarray, np.ndarray], float]:
    """scipy has no weights: whole-number weights are rows said several times."""

    def of(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> float:
        times = w.astype(int)
        assert (times == w).all()
        return float(statistic(np.repeat(y, times), np.repeat(p, times)).statistic)

    return of


ORACLES: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], float]] = {
    "accuracy": lambda y, p, w: sk.accuracy_score(y, _decide(p), sample_weight=w),
    "balanced_accuracy": lambda y, p, w: sk.balanced_accuracy_score(y, _decide(p), sample_weight=w),
    "f1": _macro_f1,
    "matthews": lambda y, p, w: sk.matthews_corrcoef(y, _decide(p), sample_weight=w),
    "roc_auc": _macro(sk.roc_auc_score),
    "average_precision": _macro(sk.average_precision_score),
    "log_loss": _log_loss,
    "r2": lambda y, p, w: sk.r2_score(y, p, sample_weight=w),
    "rmse": lambda y, p, w: sk.root_mean_squared_error(y, p, sample_weight=w),
    "pearson": _repeated(stats.pearsonr),
    "spearman": _repeated(stats.spearmanr),
}
# Warnings after which the library's number is still a defined value and ours equals it.
HARMLESS = ".*(y_pred contains classes not in y_true|A single label was found|do not sum to one|nearly constant)"


def expected(name: str, y: np.ndarray, p: np.ndarray, w: np.ndarray) -> float:
    counts = ~np.isnan(y) & (w > 0)
    y, p, w = y[counts], p[counts], w[counts]
    if len(y) < (2 if name in ("pearson", "spearman") else 1):
        return np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=HARMLESS)
        try:
            if name == "matthews" and min(len(set(y)), len(set(_decide(p)))) == 1:
                return 0.0  # exactly; with fractional weights scikit-learn divides one rounding error by another
            return float(ORACLES[name](y, p, w))
        except (Warning, ValueError):
            return np.nan


# Random cases --------------------------------------------------------------------------------------------------------


def random_case(rng: np.random.Generator, kind: str, repeats: bool) -> Arrays:
    """Labels, predictions and weights with ties, constants, missing labels, one-class folds and idle rows."""
    rows = int(rng.choice([1, 2, 3, 5, 10, 40, 150]))
    classes = {"regression": 0, "binary": 2, "multiclass": int(rng.integers(3, 6))}[kind]
    if kind == "regression":
        y = rng.normal(size=rows) * 10.0 ** rng.integers(-3, 4) + rng.integers(-2, 3)
        p = y + rng.normal(size=rows) * rng.choice([0.1, 1.0, 10.0])
        if rng.random() < 0.3:
            y, p = np.round(y), np.round(p)  # ties
    else:
        y = rng.integers(classes, size=rows).astype(float)
        p = rng.dirichlet(np.ones(classes), size=rows) if classes > 2 else rng.random(rows)
        if rng.random() < 0.4:
            p = np.round(p, 1)
    if rng.random() < 0.1:
        y = np.full(rows, y[0] if kind != "regression" else float(rng.integers(3)))
    if rng.random() < 0.1:
        p = np.broadcast_to(p[0], p.shape).copy()
    if rng.random() < 0.3:
        y = np.where(rng.random(rows) < 0.3, np.nan, y)
    w = np.ones(rows)
    if rng.random() < 0.5:
        w = rng.integers(0, 4, size=rows).astype(float) if repeats else rng.exponential(size=rows)
    return y, p, w


def check_random_cases(cases: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    defined = dict.fromkeys(METRICS, 0)
    for case, kind in zip(range(cases), itertools.cycle(["regression", "binary", "multiclass"]), strict=False):
        y, p, w = random_case(rng, kind, repeats=kind == "regression")
        for name in NUMBER_METRICS if kind == "regression" else CLASS_METRICS:
            ours = float(METRICS[name].value(y, p, w, classes=p.shape[1] if p.ndim == 2 else 0))
            theirs = expected(name, y, p, w)
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9, err_msg=f"{name}, case {case}: {y} {p} {w}")
            defined[name] += not np.isnan(ours)
    assert min(defined.values()) > cases / 6, defined  # the agreement is not one of NaN with NaN


def test_metrics_equal_the_libraries() -> None:
    check_random_cases(60, seed=1)


@pytest.mark.medium
def test_metrics_equal_the_libraries_on_many_cases() -> None:
    check_random_cases(400, seed=2)


@pytest.mark.slow
def test_metrics_equal_the_libraries_on_ten_thousand_cases() -> None:
    check_random_cases(10_000, seed=3)


def test_fractional_weights_in_correlations_equal_numpys_weighted_covariance() -> None:
    rng = np.random.default_rng(4)
    y, p, w = rng.normal(size=(3, 30))
    w = np.exp(w)
    for name, a, b in (("pearson", y, p), ("spearman", weighted_ranks(y, w), weighted_ranks(p, w))):
        covariance = np.cov(a, b, aweights=w)
        wanted = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
        assert METRICS[name].value(y, p, w) == pytest.approx(wanted, abs=1e-12)


def weighted_ranks(values: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.array([w[values < v].sum() + w[values == v].sum() / 2 for v in values])


# Laws ----------------------------------------------------------------------------------------------------------------


def case_for(name: str, rng: np.random.Generator) -> Arrays:
    kind = "regression" if METRICS[name].needs == "number" else str(rng.choice(["binary", "multiclass"]))
    return random_case(rng, kind, repeats=True)


@pytest.mark.parametrize("name", METRICS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_batch_is_its_members(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, p, w = case_for(name, rng)
    classes = p.shape[1] if p.ndim == 2 else 0
    batch = np.stack([p, p[rng.permutation(len(p))], p**2])
    labels = np.stack([y, np.roll(y, 1), y])
    together = METRICS[name].value(labels, batch, w, classes=classes)
    alone = [float(METRICS[name].value(a, b, w, classes=classes)) for a, b in zip(labels, batch, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", METRICS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_order_missing_rows_and_whole_weights(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, p, w = case_for(name, rng)
    classes = p.shape[1] if p.ndim == 2 else 0
    value = float(METRICS[name].value(y, p, w, classes=classes))
    order = rng.permutation(len(y))
    shuffled = METRICS[name].value(y[order], p[order], w[order], classes=classes)
    times = np.where(np.isnan(y), 0, w).astype(int)
    if name == "r2" and np.count_nonzero(times) == 1:
        return  # R2 counts rows, as scikit-learn does: one row has none, the same row said twice has one
    repeated = METRICS[name].value(np.repeat(y, times), np.repeat(p, times, axis=0), classes=classes)
    np.testing.assert_allclose([shuffled, repeated], value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", METRICS)
def test_direction_prefers_the_better_prediction(name: str) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200).astype(float)
    good, bad = np.clip(y + rng.normal(0, 0.4, 200), 0, 1), rng.random(200)
    assert METRICS[name].oriented(y, good) > METRICS[name].oriented(y, bad)
    assert score(name, y, good) == float(METRICS[name].oriented(y, good))


@pytest.mark.parametrize("name", METRICS)
def test_no_labels_or_a_broken_prediction_is_nan(name: str) -> None:
    metric = METRICS[name]
    y, p = np.array([0.0, 1.0, 1.0, 0.0]), np.array([0.1, 0.8, 0.7, 0.3])
    assert np.isnan(metric.value(np.full(4, np.nan), p))
    assert np.isnan(metric.value(np.empty(0), np.empty(0)))
    assert np.isnan(metric.value(y, np.where([True, False, False, False], np.nan, p)))
    hidden = np.where([True, False, False, False], np.nan, y)
    assert np.isfinite(metric.value(hidden, np.where(np.isnan(hidden), np.nan, p)))


def test_two_columns_equal_the_probability_of_class_one() -> None:
    rng = np.random.default_rng(1)
    y, p = rng.integers(2, size=50).astype(float), np.round(rng.random(50), 1)
    for name in CLASS_METRICS:
        assert score(name, y, np.stack([1 - p, p], axis=1), classes=2) == pytest.approx(score(name, y, p), abs=1e-12)


def test_constant_inputs_are_seen_although_their_mean_rounds() -> None:
    y = np.full(7, 0.1)
    assert METRICS["r2"].value(y, y) == 1.0
    assert METRICS["r2"].value(y, y + 1) == 0.0
    assert np.isnan(METRICS["pearson"].value(np.arange(7.0), y))
    assert np.isnan(METRICS["spearman"].value(y, np.arange(7.0)))


def test_infinite_predictions_score_as_badly_as_they_are() -> None:
    y, p = np.arange(4.0), np.array([0.0, np.inf, 2.0, 3.0])
    assert METRICS["rmse"].value(y, p) == np.inf
    assert METRICS["r2"].value(y, p) == -np.inf
    assert np.isnan(METRICS["pearson"].value(y, p))
    assert METRICS["spearman"].value(y, p) == pytest.approx(0.4)


def test_one_prediction_broadcasts_over_many_labels_and_back() -> None:
    y = np.array([0.0, 1.0, 1.0])
    many = METRICS["accuracy"].value(y, np.array([[0.1, 0.9, 0.9], [0.9, 0.9, 0.9], [0.1, 0.1, 0.9], [0, 0, 0]]))
    np.testing.assert_allclose(many, [1, 2 / 3, 2 / 3, 1 / 3])
    labels = np.array([[0.0, 1.0, 1.0], [1.0, 1.0, np.nan]])
    np.testing.assert_allclose(METRICS["accuracy"].value(labels, np.array([0.1, 0.9, 0.9])), [1, 0.5])


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "y", "p", "w", "message"),
    [
        ("accuracy", [0, 1, 2], [0.1, 0.2, 0.3], None, "labels as codes 0 to 1, found 2"),
        ("accuracy", [0, 0.5], [0.1, 0.2], None, "codes 0 to 1, found 0.5"),
        ("r2", [0.0, 1.0], [0.1, 0.2, 0.3], None, r"labels have shape \(2,\), predictions \(3,\)"),
        ("r2", [0.0, 1.0], [0.1, 0.2], [-1.0, 1.0], "weights must be finite and not negative, found -1"),
        ("r2", [0.0, 1.0], [0.1, 0.2], [np.nan, 1.0], "weights must be finite"),
        ("log_loss", [0.0, 1.0], [-1.0, 2.0], None, r"probabilities in \[0, 1\], found -1 to 2"),
        ("rmse", 1.0, [1.0], None, "one label and one prediction a row"),
        ("accuracy", ["no", "yes"], [0.1, 0.2], None, "labels must be numbers.*scored by their codes 0, 1"),
        ("r2", [0.0, 1.0], ["a", "b"], None, "predictions must be numbers"),
        ("r2", [0.0, 1.0], [[1.0], [1.0, 2.0]], None, "predictions must be numbers in rows of one length"),
        ("r2", [0.0, 1.0], [1j, 2.0], None, "predictions are complex"),
        ("r2", [0.0, 1.0], [0.0, 1.0], "balanced", "weights must be numbers"),
    ],
)
def test_bad_input_is_refused(name: str, y: Any, p: Any, w: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        METRICS[name].value(y, p, w)


def test_names_and_kinds_are_checked() -> None:
    with pytest.raises(UnknownNameError, match=r"no metric named 'roc-auc'.*Did you mean 'roc_auc'"):
        score("roc-auc", [0, 1], [0, 1])
    with pytest.raises(
        InputError, match=r"metric 'r2' scores regression and binary tasks, not multiclass. Use one of: acc"
    ):
        metric_named("r2", "multiclass")
    task = Task("t", np.eye(3), [0.5, 1.5, 2.5], metric="rmse")
    assert metric_of(task) is METRICS["rmse"]
    with pytest.raises(InputError, match="3 classes need predictions"):
        score("accuracy", [0, 1, 2], [0.1, 0.2, 0.3], classes=("a", "b", "c"))
