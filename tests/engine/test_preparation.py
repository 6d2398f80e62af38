"""What trainings of one call share is made once, and found again without comparing data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mtlens import Task, TaskSet, Training
from mtlens.engine import prepare
from mtlens.engine.prepare import Member, Preparation


@pytest.fixture
def tasks() -> TaskSet:
    draws = np.random.default_rng(0)
    X = draws.normal(size=(60, 4))
    split = np.repeat(["train", "valid"], 30)
    return TaskSet.from_arrays(X, X[:, :3] + draws.normal(size=(60, 3)), names=["a", "b", "c"], split=split)


def members_of(trainings: list[Training]) -> list[Member]:
    preparation = Preparation()
    return [preparation.member(training) for training in trainings]


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Arguments of every call of one of the module's functions."""
    real, calls = getattr(prepare, name), []

    def call(*given: Any) -> Any:
        calls.append(given)
        return real(*given)

    monkeypatch.setattr(prepare, name, call)
    return calls


def test_members_that_share_a_task_are_prepared_once(tasks: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [counted(monkeypatch, name) for name in ("is_plain", "split_key", "_scaled_labels", "fit_inputs")]
    members = members_of([Training(tasks["a"], capacity=3, seed=s, lr=lr) for s in range(5) for lr in (0.1, 0.2)])
    assert [len(calls) for calls in looks] == [1, 1, 1, 1]
    assert len({id(member.slots) for member in members}) == len({id(member.union) for member in members}) == 1


def test_weights_by_svd_are_computed_once_for_tasks_and_rank(tasks: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch, "_svd")
    members = members_of([Training(tasks, "relu", r, weighting="svd", seed=seed) for r in (1, 2) for seed in range(3)])
    assert len(calls) == 2
    for member in members:
        (fresh,) = members_of([member.training])
        assert np.array_equal(member.weights, fresh.weights)  # type: ignore[arg-type]


def test_equal_rows_of_different_tasks_are_one_object(tasks: TaskSet) -> None:
    one, two = members_of([Training(tasks["a"], capacity=3), Training(tasks.subset(["b", "c"]), capacity=3)])
    assert one.slots is not two.slots
    assert one.union is two.union and len(one.union) == 30


def test_members_with_one_start_key_start_alike(tasks: TaskSet) -> None:
    recipes: list[dict[str, Any]] = [{}, {"align": "joint"}, {"align": "joint", "align_rank": 2}]
    given = [
        Training(own, "mlp", capacity, seed=seed, lr=lr, **recipe)
        for own in (tasks, tasks["a"], tasks["b"])
        for capacity in (3, (3, 3))
        for seed in (0, 1)
        for lr in (0.1, 0.2)
        for recipe in (*recipes, {"weighting": "uncertainty"})
    ]
    groups: dict[Any, list[Member]] = {}
    for member in members_of(given):
        groups.setdefault(member.start_key, []).append(member)
    assert len(groups) == len(given) // 2, "only the learning rate may differ between members of one key"
    for one, two in groups.values():
        assert_equal_starts(one, two)


def assert_equal_starts(one: Member, two: Member) -> None:
    a, b = one.start, two.start
    pairs = [(a.trunk, b.trunk), *zip(a.align, b.align, strict=True)]
    assert all(torch.equal(x[name], y[name]) for x, y in pairs for name in (*x, *y))
    assert all(
        torch.equal(x, y) for own, other in zip(a.heads, b.heads, strict=True) for x, y in zip(own, other, strict=True)
    )
    assert (a.log_vars is None) == (b.log_vars is None)


def test_a_task_without_split_and_one_with_it_do_not_share_their_scale() -> None:
    X = np.random.default_rng(1).normal(size=(20, 2))
    whole = Task("whole", X, X[:, 0])
    half = Task("half", X, X[:, 0], split=np.repeat(["train", "valid"], 10))
    one, two = members_of([Training(task, capacity=2, select="last") for task in (whole, half)])
    assert one.inputs is not two.inputs and one.slots[0].block is not two.slots[0].block
