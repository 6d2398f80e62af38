"""Small tasks that every test of the study uses."""

from __future__ import annotations

import numpy as np
import pytest

from mtlens.tasks import Task, TaskSet

QUICK = {"capacities": (4,), "learning_rates": (0.02,), "epochs": 6, "methods": ("plain",), "splits": 5}


def related_tasks(seed: int = 0, *, rows: tuple[int, ...] = (60, 120, 120), width: int = 6) -> TaskSet:
    """Regression tasks with their own inputs and nearly the same solution."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(width)
    tasks = []
    for number, count in enumerate(rows):
        X = rng.standard_normal((count, width))
        y = X @ (theta + 0.2 * rng.standard_normal(width)) + rng.standard_normal(count)
        tasks.append(Task(f"t{number}", X, y))
    return TaskSet(tasks)


@pytest.fixture
def tasks() -> TaskSet:
    return related_tasks()
