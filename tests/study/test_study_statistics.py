"""Intervals, adjustments and verdicts against formulas written out, scipy, and simulation."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mtlens.errors import InputError
from mtlens.study.statistics import (
    LOOKS,
    MORE_ROWS,
    benjamini_hochberg,
    compare_splits,
    judge,
    look_shares,
    paired_bootstrap,
    sequential_p,
    splits_needed,
    variance_factor,
)


def test_nadeau_bengio_written_out() -> None:
    d = np.array([0.03, 0.01, 0.05, 0.02, 0.04, 0.00, 0.02])
    found = compare_splits(d, 0.3)
    error = np.sqrt((1 / 7 + 0.3) * d.var(ddof=1))
    low, high = stats.t.interval(0.95, 6, loc=d.mean(), scale=error)
    assert np.allclose([found.low, found.high], [low, high], atol=1e-12)
    assert np.isclose(found.p, 2 * stats.t.sf(abs(d.mean()) / error, 6))
    assert np.allclose([found.low90, found.high90], stats.t.interval(0.90, 6, loc=d.mean(), scale=error))


def test_the_factor_of_complete_folds() -> None:
    r = 0.25
    f = r / (1 + r)
    assert np.isclose(variance_factor(5, r, balanced=True), r)  # one repeat: f + (r - f)
    assert np.isclose(variance_factor(20, r, balanced=True), f + (r - f) / 4)
    assert np.isclose(variance_factor(4, r, balanced=True), 1 / 4 + r)  # not one complete repeat
    n = np.arange(5, 200)
    factors = variance_factor(n, r, balanced=True)
    assert (np.diff(factors) < 0).all() and (factors > f).all()
    assert (factors < variance_factor(n, r, balanced=False)).all()


def test_batches_equal_one_by_one() -> None:
    values = np.random.default_rng(0).standard_normal((4, 3, 10))
    ratio = np.linspace(0.1, 0.4, 12).reshape(4, 3)
    whole = compare_splits(values, ratio, balanced=True)
    for i in np.ndindex(4, 3):
        one = compare_splits(values[i], ratio[i], balanced=True)
        assert whole.p[i] == one.p and whole.low[i] == one.low


@pytest.mark.parametrize(("value", "p"), [(0.0, 1.0), (0.02, 2 * 0.5**6)])
def test_splits_that_agree_exactly(value: float, p: float) -> None:
    found = compare_splits(np.full(6, value), 0.25)
    assert found.p == p and found.low == found.high == value


def test_one_split_proves_nothing() -> None:
    found = compare_splits([0.3], 0.25)
    assert found.p == 1 and np.isinf(found.low)
    assert judge(found, 1.0, 0.01).item() == "undecided"


@pytest.mark.parametrize("bad", [[], [0.1, np.nan]])
def test_differences_that_are_none(bad: list[float]) -> None:
    with pytest.raises(InputError, match="finite differences"):
        compare_splits(bad, 0.25)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
@settings(max_examples=200, deadline=None)
def test_benjamini_hochberg_equals_scipy(p: list[float]) -> None:
    assert np.allclose(benjamini_hochberg(p), stats.false_discovery_control(p), atol=1e-12)


def test_adjustment_leaves_out_what_is_not_known() -> None:
    found = benjamini_hochberg([0.01, np.nan, 0.02])
    assert np.isnan(found[1]) and np.allclose(found[[0, 2]], stats.false_discovery_control([0.01, 0.02]))


def test_error_is_spent_once() -> None:
    for looks in ((5, 10, 20), (7,), (3, 9)):
        assert np.isclose(sum(look_shares(looks)), 1.0)
    assert sequential_p([0.01, np.nan, np.nan], LOOKS) == pytest.approx(0.05)
    assert sequential_p([0.9, 0.9, 0.004], LOOKS) == pytest.approx(0.01)
    assert np.isnan(sequential_p([np.nan] * 3, LOOKS))
    for bad in ((), (5, 5), (10, 5), (1, 5)):
        with pytest.raises(InputError, match="looks must be increasing"):
            look_shares(bad)


def test_verdicts_follow_the_rule() -> None:
    rng = np.random.default_rng(1)
    noise = 1e-3 * rng.standard_normal((4, 10))
    c = compare_splits(noise + np.array([[0.05], [-0.05], [0.0], [0.006]]), 0.25)
    assert judge(c, c.p, 0.01).tolist() == ["helps", "hurts", "no difference", "no difference"]
    assert judge(c, np.ones(4), 0.01).tolist() == ["undecided", "undecided", "no difference", "no difference"]
    # significant but smaller than the margin is never "helps"
    assert judge(c, c.p, 0.1).tolist() == ["no difference"] * 4


@given(st.floats(-0.1, 0.1), st.floats(1e-4, 0.2), st.sampled_from([5, 10, 20]), st.sampled_from([0.01, 0.03]))
@settings(max_examples=100, deadline=None)
def test_the_promised_number_of_splits_decides(d: float, spread: float, n: int, margin: float) -> None:
    """With the same mean and spread, n + needed splits decide, and one fewer does not."""
    needed = splits_needed(d, spread, n, 0.25, 2.0, margin, balanced=True)
    if needed == MORE_ROWS:
        return

    def decided(count: int) -> bool:
        values = np.array([1.0, -1.0] * (count // 2) + [0.0] * (count % 2))
        values = d + spread * values / values.std(ddof=1)
        c = compare_splits(values, 0.25, balanced=True)
        return judge(c, np.minimum(c.p * 2, 1), margin).item() != "undecided"

    assert isinstance(needed, int)
    assert decided(n + needed)
    assert needed == 1 or not decided(n + needed - 1)


def test_more_rows_when_splits_cannot_help() -> None:
    assert splits_needed(0.02, 0.2, 10, 0.25, 1.0, 0.01, balanced=True) == MORE_ROWS


def test_paired_bootstrap_of_a_mean() -> None:
    """For a mean the bootstrap's interval is the normal one."""
    rng = np.random.default_rng(0)
    d = rng.standard_normal(400) + 0.2
    found = paired_bootstrap(lambda drawn: d[drawn].mean(-1), 400, draws=4000)
    error = d.std() / 20
    assert found.difference == pytest.approx(d.mean())
    assert np.allclose([found.low, found.high], d.mean() + np.array([-1.96, 1.96]) * error, atol=0.15 * error)
    assert found.p < 0.01


def test_bootstrap_over_groups_is_wider_when_groups_agree() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 10)
    d = rng.standard_normal(40)[groups] + 0.1 * rng.standard_normal(400)
    rows = paired_bootstrap(lambda drawn: d[drawn].mean(-1), 400)
    grouped = paired_bootstrap(lambda drawn: d[drawn].mean(-1), 400, groups=groups)
    assert grouped.high - grouped.low > 2.5 * (rows.high - rows.low)


def test_bootstrap_that_cannot_be_scored() -> None:
    found = paired_bootstrap(lambda drawn: np.full(len(drawn), np.nan), 10)
    assert found.p == 1 and np.isinf(found.high)


def simulation() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "statistics_simulation.py"
    spec = importlib.util.spec_from_file_location("statistics_simulation", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.medium
def test_null_studies_stay_null() -> None:
    verdicts = simulation().null_studies(50, "roc_auc")
    assert np.isin(verdicts, ["helps", "hurts"]).any(1).sum() <= 6  # of 50, when 5 % are allowed: p < .01


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_simulated_coverage_nulls_and_power() -> None:
    """The committed simulation at reduced size; tolerances are three standard errors of that size."""
    sim = simulation()
    for row in sim.coverage(600):
        assert 0.92 - 0.033 <= row["covers"] <= 0.995, row
    for metric in sim.METRICS:
        verdicts = sim.null_studies(200, metric)
        assert np.isin(verdicts, ["helps", "hurts"]).any(1).mean() <= 0.05, metric
    assert np.mean(sim.planted(40) * 2 <= 0.05) >= 0.9
