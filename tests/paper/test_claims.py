"""Verdicts: the rule, its error rates, and the round trip through JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mtlens.errors import InputError
from mtlens.paper.claims import Claim, Finding, Test, judge, mean_interval, not_measured, shown_estimate


def claim(test: Test, threshold: float = 0.0) -> Claim:
    return Claim("id", "it is so", "Section 1", test, threshold)


SPREAD = np.array([-0.1, 0.0, 0.1, 0.05, -0.05])


@pytest.mark.parametrize(
    ("test", "threshold", "values", "verdict"),
    [
        ("above", 0.0, SPREAD + 1, "holds"),
        ("above", 0.0, SPREAD - 1, "does not hold"),
        ("above", 0.0, SPREAD, "undecided"),
        ("above", 0.5, SPREAD + 0.2, "does not hold"),
        ("below", 0.0, SPREAD - 1, "holds"),
        ("below", 0.0, SPREAD + 1, "does not hold"),
        ("below", -0.01, SPREAD, "undecided"),
        ("within", 0.5, SPREAD, "holds"),
        ("within", 0.5, SPREAD + 1, "does not hold"),
        ("within", 0.5, SPREAD + 0.5, "undecided"),
        ("share_above", 0.5, np.ones(20), "holds"),
        ("share_above", 0.5, np.zeros(20), "does not hold"),
        ("share_above", 0.5, np.arange(20) % 2, "undecided"),
        ("every", 1e-9, np.zeros(3), "holds"),
        ("every", 1e-9, np.array([0.0, 0.0, 1.0]), "does not hold"),
    ],
)
def test_the_rule(test: Test, threshold: float, values: np.ndarray, verdict: str) -> None:
    assert judge(claim(test, threshold), values).verdict == verdict


def test_the_interval_is_student_s() -> None:
    from scipy.stats import ttest_1samp

    values = np.random.default_rng(0).normal(size=17)
    found = ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert mean_interval(values) == pytest.approx((values.mean(), found.low, found.high))
    assert judge(claim("above"), values).p == pytest.approx(ttest_1samp(values, 0.0, alternative="greater").pvalue)


def test_error_rates_on_the_threshold_are_the_level() -> None:
    draws = np.random.default_rng(1).normal(size=(3000, 20))
    verdicts = [judge(claim("above"), row).verdict for row in draws]
    for wrong in ("holds", "does not hold"):
        assert 0.015 < verdicts.count(wrong) / len(verdicts) < 0.036  # .025 +- 4 standard errors


def test_one_draw_decides_nothing_about_a_mean() -> None:
    finding = judge(claim("above"), [5.0])
    assert finding.verdict == "undecided" and finding.as_dict()["low"] is None
    assert shown_estimate(finding) == "+5 [one draw]"


@pytest.mark.parametrize(
    ("test", "values", "message"),
    [
        ("above", [], "no draws"),
        ("above", [1.0, np.nan], "1 of 2 draws are not finite"),
        ("share_above", [0.5], "must be 0 or 1"),
    ],
)
def test_unusable_draws_are_refused(test: Test, values: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        judge(claim(test), values)


def test_levels_are_checked() -> None:
    with pytest.raises(InputError, match=r"level must be in \(0, 0.5\), found 0.7"):
        Claim("id", "s", "w", "above", level=0.7)


@pytest.mark.parametrize(
    "finding", [judge(claim("above"), SPREAD), judge(claim("every"), SPREAD), not_measured(claim("below"))]
)
def test_json_round_trip(finding: Finding) -> None:
    text = json.dumps(finding.as_dict())
    again = Finding.from_dict(json.loads(text))
    assert json.dumps(again.as_dict()) == text
    assert {
        "id",
        "statement",
        "where",
        "estimate",
        "low",
        "high",
        "n",
        "verdict",
        "condition",
    } <= finding.as_dict().keys()


def test_what_is_not_measured_is_undecided() -> None:
    finding = not_measured(claim("above"))
    assert (finding.verdict, finding.n, shown_estimate(finding)) == ("undecided", 0, "—")
