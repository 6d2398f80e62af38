"""Places of a stack: what an earlier member left there must not be read with another member's labels."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from mtlens import TaskSet, Training, train
from mtlens.engine import evaluate
from mtlens.engine.layout import layout_of
from mtlens.engine.order import epoch_order
from mtlens.engine.prepare import Member, Preparation
from mtlens.engine.stack import Run, Stack
from mtlens.engine.store import Store


def pair(seed: int, rows: int) -> TaskSet:
    draws = np.random.default_rng(seed)
    X = draws.normal(size=(rows, 3))
    return TaskSet.from_arrays(X, X[:, :2] + draws.normal(size=(rows, 2)), names=[f"a{seed}", f"b{seed}"])


def stack_of(*sizes: int) -> Stack:
    sets = [pair(seed, rows) for seed, rows in enumerate(sizes)]
    return stacked([Training(tasks, capacity=4, batch=8, steps="mixed", select="last") for tasks in sets])


def stacked(trainings: list[Training]) -> Stack:
    preparation = Preparation()
    members = [preparation.member(training) for training in trainings]
    runs = [Run(number, member) for number, member in enumerate(members)]
    store = Store(members, torch.float32, torch.device("cpu"))
    return Stack(layout_of(members[0]), runs, members, store)


def member_at(stack: Stack, place: int) -> Member:
    run = stack.runs[place]
    assert run is not None
    return run.member


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


RECIPES: dict[str, dict[str, Any]] = {
    "shared": {},
    "mixed": {"steps": "mixed", "weighting": "uncertainty"},
    "each": {"align": "joint", "align_rank": 2, "weighting": "random"},
}


def companions(recipe: dict[str, Any]) -> Stack:
    """Members that differ in tasks, lengths, widths, seeds and rates; some start from the same values."""
    sets = [pair(0, 40), pair(1, 23)]
    return stacked(
        [
            Training(tasks, capacity=width, batch=8, select="last", seed=seed, lr=lr, **recipe)
            for tasks in sets
            for width in (4, 5)
            for seed in (0, 1)
            for lr in (0.1, 0.2)
        ]
    )


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_packing_all_members_at_once_equals_packing_each(recipe: dict[str, Any]) -> None:
    stack = companions(recipe)
    for place in stack.live:
        for name, row in stack._pack(member_at(stack, place)).items():
            assert torch.equal(stack.parts[name].value[place], row.to(torch.float32))
            assert torch.equal(stack.best[name][place], row.to(torch.float32))


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_values_read_together_are_those_packed(recipe: dict[str, Any]) -> None:
    stack = companions(recipe)
    places = stack.live[::-1]
    for place, values in zip(places, stack.values(places), strict=True):
        start = member_at(stack, place).start
        pairs = [(values.trunk, start.trunk), *zip(values.align, start.align, strict=True)]
        assert all(torch.equal(own[name], given[name].float()) for own, given in pairs for name in given)
        for own, given in zip(values.heads, start.heads, strict=True):
            assert all(torch.equal(x, y.float()) for x, y in zip(own, given, strict=True))


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("ended", [range(16), [1, 2, 9]], ids=["all", "some"])
def test_every_place_gets_its_own_epoch(recipe: dict[str, Any], ended: Sequence[int]) -> None:
    stack = companions(recipe)
    stack.next_epoch(ended)
    for place, run in enumerate(stack.runs):
        assert run is not None and run.epoch == (place in ended)
        order, starts = epoch_order(run.member, run.epoch), np.array([stack.store.start(s) for s in run.member.slots])
        steps = len(order)
        own = {"shared": starts[:1], "each": np.repeat(starts, 8)}.get(run.member.mode)
        assert stack.length[place] == stack.remaining[place] == steps
        if order.active is not None:
            assert np.array_equal(stack.active[place, :steps].numpy(), order.active)
            own = starts[order.active][:, None]
        assert np.array_equal(stack.index[place, :steps].numpy(), order.rows + 1 + own)
        if order.weights is not None:
            assert np.array_equal(stack.drawn[place, :steps].numpy(), order.weights.astype(np.float32))


def test_places_scored_together_have_the_scores_of_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of other tasks on the same rows go through together, in passes that part them anywhere."""
    draws = np.random.default_rng(0)
    X, split = draws.normal(size=(40, 3)), np.repeat(["train", "valid"], 20)
    tasks = TaskSet.from_arrays(X, X + draws.normal(size=(40, 3)), names=["a", "b", "c"], split=split)
    pairs = [("a", "b"), ("c", "a"), ("b", "c")]
    stack = stacked([Training(tasks.subset(pair), capacity=4, seed=s) for s in range(3) for pair in pairs])
    monkeypatch.setattr(evaluate, "SCORING_ROWS", 10)  # four members of 20 rows a pass
    for split_name in ("train", "valid", "test"):
        together = evaluate.scores(stack, stack.live, split_name, best=True)
        for place in stack.live:
            alone = evaluate.scores(stack, [place], split_name, best=True)
            assert together.get(place, {}) == pytest.approx(alone.get(place, {}), rel=1e-6)
            names = list(member_at(stack, place).training.tasks.names)
            assert list(together.get(place, {})) == (names if split_name != "test" else [])


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_places_are_quietened_with_their_own_members_rows(recipe: dict[str, Any]) -> None:
    stack = companions(recipe)
    places = [1, 9]
    members = [member_at(stack, place) for place in places]
    stack._quieten(places, members)
    for place, member in zip(places, members, strict=True):
        starts = {stack.store.start(slot) for slot in member.slots}
        assert set(stack.index[place].unique().tolist()) <= starts
        assert not stack.active[place].any()
    assert stack.index[0].unique().numel() > 2, "other places keep their epoch"


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
