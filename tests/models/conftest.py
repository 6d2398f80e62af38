"""Small tables with one of everything, and models of them, made once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mtlens import Task, TaskSet, fit
from mtlens.models.model import Model
from mtlens.models.system import Grid, Group, System, TaskPlan

HOSTILE = 'a/../"b"|<i>\n,=1+1'  # a task's name may be any text


def frame_of(rows: int, seed: int = 0) -> dict[str, Any]:
    """Numbers with gaps, a category with gaps."""
    rng = np.random.default_rng(seed)
    age = rng.normal(size=rows)
    return {
        "age": age,
        "size": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows)),
        "city": np.array(["Rome", "Oslo", "New York", None], dtype=object)[rng.integers(0, 4, rows)],
    }


def mixed_tasks(rows: int = 120) -> TaskSet:
    """Regression, binary, multiclass and a partly labelled regression on one table."""
    frame, rng = frame_of(rows), np.random.default_rng(1)
    age = frame["age"]
    price = Task(HOSTILE, frame, age + 0.3 * rng.normal(size=rows))
    grade = np.array(["low", "mid", "high"], dtype=object)[np.digitize(age, [-0.4, 0.5])]
    half = np.where(rng.random(rows) < 0.5, np.nan, 2 * age + rng.normal(size=rows))
    return TaskSet(
        [
            price,
            Task("buys", price.X, np.where(age + rng.normal(size=rows) > 0, "yes", "no")),
            Task("grade", price.X, grade),
            Task("half", price.X, half),
        ]
    )


def every_recipe() -> System:
    """One task a recipe, both families."""
    plans = [
        TaskPlan(name=HOSTILE, recipe="shrink", weight=0.5, evidence="<b>measured</b>", difference=0.1, n=5),
        TaskPlan(name="buys", recipe="sources", sources=[HOSTILE, "grade"]),
        TaskPlan(name="grade", recipe="joint", weight=1.5),
        TaskPlan(name="half", recipe="group", group="g", family="trunk", weight=0.7),
    ]
    grid = Grid(capacities=[3], learning_rates=[1e-2], epochs=3, seeds=2)
    return System(tasks=plans, groups=[Group(name="g", tasks=["half", HOSTILE])], grid=grid, folds=3)


@pytest.fixture(scope="session")
def tasks() -> TaskSet:
    return mixed_tasks()


@pytest.fixture(scope="session")
def model(tasks: TaskSet) -> Model:
    return fit(tasks, advice=every_recipe(), workers=1)
