"""The answer in words says what the verdicts prove, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mtlens.report.answer import answer_text, findings, headline
from mtlens.report.predicted import predicted_told, rank_correlations
from mtlens.study import StudyResult

Maker = Callable[..., StudyResult]


def with_verdicts(result: StudyResult, *verdicts: str) -> dict[str, Any]:
    """The result's tables with these verdicts, over and over."""
    changed = dict(result.verdicts)
    changed["transfer"] = [
        row if row["target"] == row["source"] else {**row, "verdict": verdicts[i % len(verdicts)]}
        for i, row in enumerate(row for row in result.transfer)
    ]
    changed["together"] = [{**row, "verdict": verdicts[0]} for row in result.verdicts["together"]]
    return changed


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("helps", "hurts"), "Some of these tasks help each other, and some hurt"),
        (("helps", "undecided"), "helps some of these tasks, and nothing is proved to hurt"),
        (("hurts", "undecided"), "hurts some of these tasks, and nothing is proved to help"),
        (("no difference",), "Nothing to gain here"),
        (("no difference", "undecided"), "Nothing is proved to help or to hurt"),
        (("undecided",), "Nothing is proved to help or to hurt"),
    ],
)
def test_headline(given: tuple[str, ...], said: str, made_result: Maker) -> None:
    assert said in headline(with_verdicts(made_result([f"t{i}" for i in range(4)]), *given))


def test_findings_count_what_the_table_counts(made_result: Maker) -> None:
    result = made_result([f"t{i}" for i in range(8)])
    told = findings(result.verdicts)
    assert 2 <= len(told) <= 3
    for verdict, words in {"helps": "help,", "hurts": "hurt,", "undecided": "are undecided"}.items():
        assert f"{result.counts()[verdict]} {words}" in told[0]
    clear = max(
        (row for row in result.transfer if row["verdict"] in ("helps", "hurts")), key=lambda row: abs(row["difference"])
    )
    assert f"‘{clear['target']}’ with ‘{clear['source']}’" in told[0]


def test_nothing_is_called_a_gain_that_is_not_proved(made_result: Maker) -> None:
    verdicts = with_verdicts(made_result(["a", "b", "c"]), "undecided")
    told = " ".join(findings(verdicts))
    assert "none helps, none hurts" in told and "leaves ‘a’, ‘b’ and ‘c’ undecided" in told


def test_advice_comes_first_and_the_headline_agrees(made_result: Maker) -> None:
    alone, joint = ({"task": "a", "recipe": recipe, "weight": 1.0} for recipe in ("alone", "joint"))
    advice = {"summary": "Keep every task alone.", "difference": 0.0, "low": -0.1, "high": 0.1, "per_task": [alone]}
    helping = with_verdicts(made_result(["a", "b", "c"]), "helps")
    verdicts = {**helping, "advice": advice}
    assert findings(verdicts)[0] == "Advice: Keep every task alone." and len(findings(verdicts)) == 3
    assert headline(verdicts).startswith("Keep each task alone")
    joining = {**with_verdicts(made_result(["a", "b", "c"]), "undecided"), "advice": {**advice, "per_task": [joint]}}
    assert headline(joining) == "Share: a system that joins 1 of 3 tasks is advised."


def test_a_mean_that_is_proved_is_said_where_no_task_is(made_result: Maker) -> None:
    verdicts = with_verdicts(made_result(["a", "b", "c"]), "undecided")
    pooled = {"cells": 3, "n": 10, "difference": 0.05, "low": 0.01, "high": 0.09, "p": 0.01, "verdict": "helps"}
    verdicts["pooled"] = {"together": pooled, "pairs": {"cells": 0, "n": 0}}
    assert headline(verdicts) == "On average training together helps these tasks; for none alone is it proved."
    assert "Mean over tasks +0.050 (95 %: +0.010 to +0.090), helps." in " ".join(findings(verdicts))


def test_a_name_cannot_move_the_cursor(made_result: Maker) -> None:
    text = answer_text(made_result(["a\x1b[2J", "b\nc", "d" * 200]))
    answer = text[text.rindex("\n\n") :]
    assert "\x1b" not in answer and "d" * 60 not in answer


def test_predictions_are_compared_within_targets(made_result: Maker) -> None:
    verdicts = made_result([f"t{i}" for i in range(6)]).verdicts  # predictions there are half of what was measured
    assert rank_correlations(verdicts) == pytest.approx([1.0] * 6)
    assert "+1.00 on average over 6 targets" in predicted_told(verdicts)[-1]


def test_targets_with_few_or_equal_predictions_have_no_rank_correlation(made_result: Maker) -> None:
    verdicts = dict(made_result(["a", "b", "c", "d"]).verdicts)
    assert len(rank_correlations(made_result(["a", "b", "c"]).verdicts)) == 0
    verdicts["transfer"] = [
        row if row["predicted"] is None else {**row, "predicted": 0.1} for row in verdicts["transfer"]
    ]
    assert len(rank_correlations(verdicts)) == 0
