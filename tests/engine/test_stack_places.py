"""Places of a stack: what an earlier member left there must not be read with another member's labels."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from mtlens import TaskSet, Training, train
from mtlens.engine.layout import layout_of
from mtlens.engine.prepare import Member, Preparation
from mtlens.engine.stack import Run, Stack
from mtlens.engine.store import Store


def pair(seed: int, rows: int) -> TaskSet:
    draws = np.random.default_rng(seed)
    X = draws.normal(size=(rows, 3))
    return TaskSet.from_arrays(X, X[:, :2] + draws.normal(size=(rows, 2)), names=[f"a{seed}", f"b{seed}"])


def stack_of(*sizes: int) -> Stack:
    preparation = Preparation()
    sets = [pair(seed, rows) for seed, rows in enumerate(sizes)]
    trainings = [Training(tasks, capacity=4, batch=8, steps="mixed", select="last") for tasks in sets]
    members = [preparation.member(training) for training in trainings]
    runs = [Run(number, member) for number, member in enumerate(members)]
    store = Store(members, torch.float32, torch.device("cpu"))
    return Stack(layout_of(members[0]), runs, members, store)


def test_steps_beyond_an_epoch_point_at_the_members_own_empty_rows() -> None:
    stack = stack_of(40, 9)
    short = stack.length[1]
    assert short < stack.index.shape[1]
    run = stack.runs[1]
    assert run is not None
    own = stack.store.start(run.member.slots[0])
    assert (stack.index[1, short:] == own).all()
    assert float(stack.store.weight[own + stack.store.shift(run.member.slots[0])]) == 0.0


def test_an_empty_place_reads_what_another_member_may_read() -> None:
    stack = stack_of(40, 40, 40, 40, 9)
    stack.replace({0: None})  # a fifth of the stack: kept as an empty place
    someone = stack.runs[1]
    assert stack.runs[0] is None and someone is not None
    assert (stack.index[0] == stack.store.start(someone.member.slots[0])).all()
    before = {name: part.value[0].clone() for name, part in stack.parts.items()}
    stack.tick()
    assert all(torch.isfinite(part.value).all() for part in stack.parts.values())
    assert before.keys() == stack.parts.keys()


def test_members_are_freed_when_they_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand trainings take the room of one stack and of their results: nobody holds what is finished."""
    from mtlens.engine import bank

    given = [Training(pair(0, 30), capacity=3, epochs=1, seed=s, select="last") for s in range(12)]
    alive: list[int] = []
    real = bank.Bank._finish

    def finish(self: bank.Bank, stack: Stack, done: list[int]) -> None:
        alive.append(sum(type(one) is Member for one in gc.get_objects()))
        real(self, stack, done)

    gc.collect()
    before = sum(type(one) is Member for one in gc.get_objects())
    monkeypatch.setattr(bank.Bank, "_finish", finish)
    monkeypatch.setattr(bank, "CHUNK", {"shared": 1, "each": 1, "mixed": 1})
    assert all(trained.ok for trained in train(given, keep="scores", workers=1))
    assert alive[0] - before >= 12 and alive[-1] - before <= 3
