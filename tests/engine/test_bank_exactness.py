"""A result does not depend on its companions, and the hand-written steps are autograd's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mtlens import TaskSet, Trained, Training, train

METHODS: dict[str, dict[str, Any]] = {
    "plain": {},
    "svd": {"weighting": "svd"},
    "uncertainty": {"weighting": "uncertainty"},
    "fixed weights": {"weighting": (1.0, 0.5, 2.0)},
    "a zero weight": {"weighting": (1.0, 0.0, 1.0)},
    "random weights": {"weighting": "random"},
    "align joint": {"align": "joint"},
    "align fixed": {"align": "fixed"},
    "penalty": {"align": "joint", "penalty": 0.1},
    "low rank, uncertainty": {"align": "joint", "align_rank": 2, "penalty": 0.2, "weighting": "uncertainty"},
    "low rank, fixed": {"align": "fixed", "align_rank": 2},
    "sgd, decay": {"optimizer": "sgd", "weight_decay": 0.01},
    "adamw, decay, align": {"optimizer": "adamw", "weight_decay": 0.1, "align": "joint"},
    "adam, decay": {"weight_decay": 0.1},
    "frozen trunk": {"freeze": ("trunk",)},
}
SETTINGS: dict[str, Any] = {"epochs": 2, "lr": 0.02, "batch": 16, "dtype": "float64"}


def assert_same(one: Trained, other: Trained, *, tolerance: float = 1e-10) -> None:
    """Equal losses and parameters. Scores follow from them up to ties, which rank metrics break on the last bit."""
    assert one.ok and other.ok, (one.reason, other.reason)
    np.testing.assert_allclose(one.history["loss"], other.history["loss"], rtol=0, atol=tolerance)
    assert one.history["epoch"] == other.history["epoch"]
    assert one.model is not None and other.model is not None
    first, second = one.model.net.state_dict(), other.model.net.state_dict()
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_allclose(value.numpy(), second[name].numpy(), rtol=0, atol=tolerance, err_msg=name)


def capacity_of(family: str) -> Any:
    return (5, 4) if family == "mlp" else 5


@pytest.fixture(params=["native", "stacked"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The compiled steps where they apply, and the stack's own."""
    monkeypatch.setenv("MTLENS_NATIVE", "1" if request.param == "native" else "0")
    return str(request.param)


@pytest.mark.medium
@pytest.mark.parametrize("steps", ["joint", "mixed"])
@pytest.mark.parametrize("family", ["linear", "relu", "mlp"])
@pytest.mark.parametrize("data", ["shared", "separate"])
def test_companions_change_nothing(
    family: str, data: str, steps: str, way: str, shared: TaskSet, separate: TaskSet
) -> None:
    """Every method, in a crowd of other seeds, widths, rates, epochs and row counts, against itself alone."""
    tasks = shared if data == "shared" else separate
    base = {**SETTINGS, "steps": steps, "trunk": family}
    wide = (6, 5) if family == "mlp" else 6
    probes = [Training(tasks, capacity=capacity_of(family), **base, **method) for method in METHODS.values()]
    crowd = [
        training
        for probe in probes
        for training in (probe.but(seed=1, capacity=wide), probe.but(seed=2, lr=0.003, epochs=1), probe)
    ]
    among = train(crowd, engine="bank", workers=1)[2::3]
    for probe, one in zip(probes, among, strict=True):
        (alone,) = train([probe], engine="bank", workers=1)
        assert_same(alone, one)


@pytest.mark.medium
@pytest.mark.parametrize("steps", ["joint", "mixed"])
@pytest.mark.parametrize("family", ["linear", "relu", "mlp"])
@pytest.mark.parametrize("data", ["shared", "separate"])
def test_stacked_steps_are_those_of_one_by_one(
    family: str, data: str, steps: str, way: str, shared: TaskSet, separate: TaskSet
) -> None:
    """The bank's hand-written backward and updates against autograd and ``torch.optim``."""
    tasks = shared if data == "shared" else separate
    trainings = [
        Training(tasks, family, capacity_of(family), steps=steps, **SETTINGS, **method) for method in METHODS.values()
    ]
    for stacked, single in zip(train(trainings, engine="bank"), train(trainings, engine="solo"), strict=True):
        assert_same(stacked, single)


def test_stacked_steps_equal_solo_quickly(way: str, shared: TaskSet) -> None:
    trainings = [Training(shared, "mlp", 5, **SETTINGS), Training(shared, "relu", 4, align="joint", **SETTINGS)]
    for stacked, single in zip(train(trainings, engine="bank"), train(trainings, engine="solo"), strict=True):
        assert_same(stacked, single)
        for split, own in single.scores.items():
            assert stacked.scores[split] == pytest.approx(own, abs=1e-10)


def test_a_stack_mixes_subsets_and_refills_places(shared: TaskSet) -> None:
    """More members than places, of unequal length: those that leave are replaced, and nobody notices."""
    pairs = [("r", "b"), ("r", "c"), ("b", "c")]
    trainings = [
        Training(shared.subset(pair), "mlp", width, seed=seed, **{**SETTINGS, "epochs": 1 + (seed + width) % 3})
        for pair in pairs
        for width in (4, 5)
        for seed in range(12)
    ]
    together = train(trainings, engine="bank", workers=1)
    for place in (0, 17, 40, 71):
        (alone,) = train([trainings[place]], engine="bank")
        assert_same(together[place], alone)


def test_zero_padded_units_stay_zero(shared: TaskSet) -> None:
    import torch

    from mtlens.engine.layout import layout_of
    from mtlens.engine.prepare import Preparation
    from mtlens.engine.stack import Run, Stack
    from mtlens.engine.store import Store

    prepared = Preparation()
    members = [prepared.member(Training(shared, "mlp", width, weight_decay=0.1, **SETTINGS)) for width in (4, 5)]
    store = Store(members, torch.float64, torch.device("cpu"))
    stack = Stack(layout_of(members[1]), [Run(i, m) for i, m in enumerate(members)], members, store)
    stack.run_to_epoch_end()
    weight = stack.parts["trunk"].value[0][: 6 * 5].view(6, 5)
    heads = stack.parts["heads"].value[0].view(3, 3, 6)
    assert weight[:, :4].abs().min() > 0
    assert (weight[:, 4] == 0).all() and (heads[:, :, 4] == 0).all()
    assert (heads[0, 1:] == 0).all(), "a regression head has one output; its padding must stay zero"
