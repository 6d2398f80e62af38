"""The compiled steps against the stack's own: the same numbers, whatever the companions and the instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mtlens import Task, TaskSet, Trained, Training, train
from mtlens.engine import native

pytestmark = pytest.mark.skipif(not native.is_built(), reason="the compiled steps were not built (no C compiler)")


def shared(seed: int = 0, rows: int = 61) -> TaskSet:
    """One input, a task of every kind, missing labels, sample weights."""
    draws = np.random.default_rng(seed)
    X = draws.normal(size=(rows, 7))
    score = X @ draws.normal(size=(7, 3))
    number = score[:, 0].copy()
    number[::5] = np.nan
    weight, split = draws.uniform(0.5, 2, rows), np.where(np.arange(rows) % 4, "train", "valid")
    kinds = {"number": number, "yes": score[:, 1] > 0, "which": np.digitize(score[:, 2], [-1, 1])}
    tasks = [Task(name, X, np.asarray(y, float), weight=weight, split=split) for name, y in kinds.items()]
    return TaskSet([task.replace(X=tasks[0].X) for task in tasks])


def separate(seed: int = 0) -> TaskSet:
    """Inputs of their own and unequal sizes."""
    draws, tasks = np.random.default_rng(seed), []
    for name, rows in (("a", 40), ("b", 57), ("c", 23)):
        X = draws.normal(size=(rows, 5)) * 3 + 1
        y = X @ draws.normal(size=5) + draws.normal(size=rows)
        split = np.where(np.arange(rows) % 4, "train", "valid")
        tasks.append(Task(name, X, (y > y.mean()).astype(float) if name == "b" else y, split=split))
    return TaskSet(tasks)


def both(monkeypatch: pytest.MonkeyPatch, trainings: list[Training]) -> tuple[list[Trained], list[Trained]]:
    """The same trainings by the compiled steps and by the stack."""
    compiled = train(trainings, engine="bank")
    monkeypatch.setenv("MTLENS_NATIVE", "0")
    return compiled, train(trainings, engine="bank")


def assert_same(one: Trained, other: Trained, tolerance: float) -> None:
    assert one.model is not None and other.model is not None
    theirs = other.model.net.state_dict()
    for name, value in one.model.net.state_dict().items():
        torch.testing.assert_close(value, theirs[name], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(one.history["loss"], other.history["loss"], rtol=tolerance, atol=tolerance)


METHODS: list[dict[str, Any]] = [
    {},
    {"weighting": "uncertainty"},
    {"weighting": [0.5, 2.0, 0.0]},
    {"weighting": "random"},
    {"weight_decay": 0.1},
    {"weight_decay": 0.1, "optimizer": "adamw"},
    {"trunk": "relu"},
    {"trunk": "linear"},
    {"capacity": (19, 6, 5)},
    {"align": "joint"},
    {"align": "joint", "penalty": 0.3, "weight_decay": 0.1, "weighting": "uncertainty"},
]


@pytest.mark.parametrize("steps", ["auto", "joint", "mixed"])
@pytest.mark.parametrize("tasks", [shared(), separate()], ids=["shared", "separate"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_the_same_numbers_as_the_stack(
    monkeypatch: pytest.MonkeyPatch, tasks: TaskSet, steps: Any, method: dict[str, Any]
) -> None:
    settings: dict[str, Any] = {"trunk": "mlp", "capacity": 9, "epochs": 3, "batch": 8, "lr": 1e-2, "select": "last"}
    trainings = [Training(tasks, steps=steps, seed=s, dtype="float64", **(settings | method)) for s in (0, 1)]
    for one, other in zip(*both(monkeypatch, trainings), strict=True):
        assert_same(one, other, 1e-10)


def test_float32_agrees_to_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    trainings = [Training(shared(), capacity=20, epochs=2, batch=16, select="last", seed=s) for s in range(3)]
    for one, other in zip(*both(monkeypatch, trainings), strict=True):
        assert_same(one, other, 2e-4)


def test_companions_do_not_change_a_bit() -> None:
    own = Training(shared(), capacity=21, epochs=3, batch=8, seed=4)
    others = [Training(shared(s), capacity=c, epochs=2 + s, batch=8, seed=s) for s, c in ((1, 20), (2, 22), (3, 21))]
    alone, company = train([own], engine="bank")[0], train([*others, own], engine="bank")[-1]
    assert alone.model is not None and company.model is not None
    for one, other in zip(alone.model.net.parameters(), company.model.net.parameters(), strict=True):
        assert torch.equal(one, other)
    for split, own_scores in alone.scores.items():  # scoring is batched over the stack: equal to rounding
        assert company.scores[split] == pytest.approx(own_scores, rel=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("instructions", range(native.BEST_INSTRUCTIONS))
def test_every_instruction_set(monkeypatch: pytest.MonkeyPatch, dtype: Any, instructions: int) -> None:
    training = Training(shared(), capacity=(21, 9), epochs=2, batch=16, select="last", dtype=dtype)
    best = train([training], engine="bank")[0]
    run_steps = native.run_steps
    monkeypatch.setattr(native, "run_steps", lambda *args: run_steps(*args, instructions=instructions))
    assert_same(train([training], engine="bank")[0], best, 1e-10 if dtype == "float64" else 2e-4)


def test_a_training_that_diverges_ends_alone() -> None:
    tasks = separate()
    wild = Training(tasks, capacity=4, epochs=4, lr=1e30, seed=1, select="last")
    calm = Training(tasks, capacity=4, epochs=4, seed=2, select="last")
    broken, sound = train([wild, calm], engine="bank")
    assert not broken.ok and "finite" in broken.reason
    assert sound.ok
