"""Test texts that joint training fixed or broke."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mtlens.report.page import page
from mtlens.report.tables import texts_table
from mtlens.study import Study
from mtlens.study.texts import _changed, _row
from mtlens.tasks import Task, TaskSet

GOOD, BAD = ([f"{sort}{i}" for i in range(200)] for sort in ("good", "bad"))


def reviews(name: str, rows: int, seed: int) -> Task:
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    texts = [" ".join([*rng.choice(GOOD if label else BAD, 2), "<b>film</b>"]) for label in y]
    return Task(name, np.array(texts, dtype=object), y)


def places(task: Task, before: Any, after: Any) -> tuple[list[int], list[int]]:
    return _changed(task, np.arange(len(task.X)), np.array(before, float), np.array(after, float))


def test_fixed_and_broken_rows_come_in_order_of_change() -> None:
    task = Task("t", np.array(["a", "b", "c", "d"], dtype=object), [1, 1, 0, 0])
    assert places(task, [0.4, 0.1, 0.2, 0.6], [0.6, 0.9, 0.7, 0.7]) == ([1, 0], [2])
    number = Task("n", task.X, [1.0, 2.5, 3.0, 4.0])
    assert places(number, [1.0, 2.0, 5.0, 4.5], [2.0, 2.4, 3.0, 4.5]) == ([2, 1], [0])
    many = Task("m", task.X, [0, 1, 2, 0])
    sure = np.eye(3)[[0, 1, 2, 0]]
    assert places(many, np.roll(sure, 1, axis=1), sure)[0] == [0, 1, 2, 3]


def test_a_row_is_told_with_its_label_and_both_answers() -> None:
    task = Task("t", np.array(["x" * 1000, None], dtype=object), ["yes", "no"])
    rows, before, after = np.arange(2), np.array([0.9, 0.2]), np.array([0.25, 0.8])
    told = _row(task, rows, 0, before, after)
    assert (told["label"], told["alone"], told["joint"]) == ("yes", "yes (0.90)", "no (0.75)")
    assert len(told["text"]) == 303
    assert _row(task, rows, 1, before, after)["text"] == ""


@pytest.mark.medium
@pytest.mark.parametrize("family", ["linear", "trunk"])
def test_a_clear_verdict_comes_with_texts(family: str) -> None:
    tasks = TaskSet([reviews("small", 60, 0), reviews("large", 3000, 1)])
    options: dict[str, Any] = {"families": (family,), "methods": (), "capacities": (8,), "learning_rates": (0.01,)}
    result = Study(tasks, splits=10, epochs=8, workers=1, advice=False, **options).run()
    assert result.cell("small", "large")["verdict"] == "helps"
    (texts,) = (cell for cell in result.verdicts["texts"] if cell["target"] == "small")
    assert (texts["verdict"], texts["family"], texts["rows"]) == ("helps", family, 12)
    assert texts["fixed_rows"] >= texts["broken_rows"] and 0 < len(texts["fixed"]) <= 3
    assert all("film" in row["text"] and row["alone"][0] != row["label"] for row in texts["fixed"])
    assert len(texts_table(result.verdicts).rows) >= len(texts["fixed"])
    shown = page(result)
    assert "exts that joint training fixed or broke" in shown and "<b>film</b>" not in shown


def test_numbers_have_no_texts() -> None:
    cell = SimpleNamespace(verdict="helps", target="n", p_adjusted=0.0)
    run = SimpleNamespace(tables=SimpleNamespace(pairs=[cell]), tasks=TaskSet([Task("n", np.eye(3), [0.5, 1.5, 2.5])]))
    from mtlens.study.texts import changed_texts

    assert changed_texts(run) == []  # type: ignore[arg-type]
