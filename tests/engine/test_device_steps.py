"""The device's steps kernel as far as a machine without a card can check it; ``benchmarks/gpu_engine.py`` does on one.

The kernel's own arithmetic is tested where Triton is installed, by its interpreter (Triton 3.6 needs numpy before 2.4
for it): ``TRITON_INTERPRET=1 python -m pytest tests/engine/test_device_steps.py``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from mtlens import Task, TaskSet, Training
from mtlens.engine import device_steps
from mtlens.engine.layout import layout_of
from mtlens.engine.prepare import Preparation
from mtlens.engine.stack import Run, Stack
from mtlens.engine.store import Store
from mtlens.engine.updates import PlainUpdate
from mtlens.errors import DataWarning

CUDA = torch.device("cuda")
interpreted = pytest.mark.skipif(
    device_steps.steps_kernel is None or os.environ.get("TRITON_INTERPRET") != "1",
    reason="needs Triton and TRITON_INTERPRET=1",
)


class Recorder:
    """Stands where the kernel is: keeps what it is called with, or fails as a compiler does."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls: list[tuple[tuple[int, ...], tuple[Any, ...], dict[str, Any]]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*given: Any, **constants: Any) -> None:
            self.calls.append((grid, given, constants))
            if self.error is not None:
                raise self.error

        return launch


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    kernel = Recorder()
    monkeypatch.setattr(device_steps, "steps_kernel", kernel)
    monkeypatch.setattr(device_steps, "_failures", [])
    monkeypatch.delenv("MTLENS_NATIVE", raising=False)
    return kernel


def tasks(kinds: list[str], *, shared: bool) -> TaskSet:
    draws, made = np.random.default_rng(0), []
    table = draws.normal(size=(70, 37))
    for place, kind in enumerate(kinds):
        X = table if shared else draws.normal(size=(70 - 7 * place, 37))
        y = X[:, :5].sum(1) + draws.normal(size=len(X))
        y = (y > 0).astype(float) if kind == "binary" else y
        if shared and place:
            y[draws.random(len(y)) < 0.3] = np.nan
        split = np.where(np.arange(len(X)) % 5 == 0, "valid", "train")
        made.append(Task(f"t{place}", X, y, kind=kind, split=split))  # type: ignore[arg-type]
    return TaskSet(made)


def stack_of(trainings: list[Training], *, like_a_device: bool = True) -> Stack:
    """A stack on this machine; ``like_a_device``: its updates are tensors."""
    prepared = Preparation()
    members = [prepared.member(training) for training in trainings]
    store = Store(members, torch.float32, torch.device("cpu"))
    stack = Stack(layout_of(members[0]), [Run(i, m) for i, m in enumerate(members)], members, store)
    if like_a_device:
        rates = [(training.lr, training.weight_decay) for training in trainings]
        stack.update = PlainUpdate(stack.layout.optimizer, list(stack.parts.values()), rates, stack.live)
    return stack


def some_trainings(given: TaskSet, widths: tuple[int, ...], trunk: str = "mlp", **settings: Any) -> list[Training]:
    return [
        Training(given, trunk, width, epochs=3, batch=16, seed=seed, lr=0.01 * (1 + seed), **settings)
        for seed, width in enumerate(widths)
    ]


def test_the_kernel_is_asked_for_what_it_does_and_for_nothing_else(recorder: Recorder) -> None:
    del recorder
    with torch.inference_mode():
        stack = stack_of(some_trainings(tasks(["binary", "regression"], shared=True), (9, 8)))
    layout, trunk = stack.layout, stack.trunk
    assert device_steps.can_run(layout, trunk, CUDA)
    assert device_steps.can_run(replace(layout, optimizer="adamw", mode="mixed"), trunk, CUDA)
    others: list[dict[str, Any]] = [
        {"dtype": "float64"}, {"columns": 3}, {"batch": 129}, {"num_tasks": 17}, {"align": "joint"},
        {"freeze": ("trunk",)}, {"uncertain": True}, {"random_weights": True}, {"optimizer": "sgd"},
    ]  # fmt: skip
    assert not any(device_steps.can_run(replace(layout, **change), trunk, CUDA) for change in others)
    assert device_steps.can_run(replace(layout, num_tasks=17, mode="each"), trunk, CUDA)  # a tile for each
    assert not device_steps.can_run(layout, trunk, torch.device("cpu"))
    with torch.inference_mode():
        deep = stack_of([Training(tasks(["binary"], shared=True), "mlp", (9, 4), batch=16)])
    assert not device_steps.can_run(deep.layout, deep.trunk, CUDA)


def test_it_can_be_switched_off(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    del recorder
    with torch.inference_mode():
        stack = stack_of(some_trainings(tasks(["binary"], shared=True), (9,)))
    monkeypatch.setenv("MTLENS_NATIVE", "0")
    assert not device_steps.can_run(stack.layout, stack.trunk, CUDA)


def test_stacks_that_it_does_not_pay_for_are_left_out_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MTLENS_NATIVE", raising=False)
    least = (device_steps.LEAST_SAMPLES, device_steps.LEAST_MEMBERS, device_steps.MOST_PARAMETERS)
    assert device_steps.pays(*least)
    for short in ((least[0] - 1, *least[1:]), (least[0], least[1] - 1, least[2]), (*least[:2], least[2] + 1)):
        assert not device_steps.pays(*short)
    monkeypatch.setenv("MTLENS_NATIVE", "1")
    assert device_steps.pays(1, 1, 1 << 20)
    given = some_trainings(tasks(["binary", "regression"], shared=True), (9, 9, 9))
    with torch.inference_mode():
        assert stack_of(given)._samples == 3 * 3 * 4 * 16  # members, epochs, steps, rows


@pytest.mark.parametrize(("width", "block", "products"), [(9, 16, "tf32x3"), (50, 64, "tf32x3"), (200, 64, "ieee")])
def test_a_launch_has_a_block_for_every_member_and_tiles_that_hold_its_sizes(
    recorder: Recorder, width: int, block: int, products: str
) -> None:
    with torch.inference_mode():
        stack = stack_of(some_trainings(tasks(["binary", "regression"], shared=True), (width, width)))
        assert device_steps.run_steps(stack, 3)
    ((grid, _, constants),) = recorder.calls
    assert grid == (2,)
    assert constants["BLOCK"] == block and constants["PRODUCTS"] == products
    assert constants["ROWS"] == 16 and constants["OUTPUTS"] == 2 and constants["KINDS"] == "both"
    assert stack.position.tolist() == stack.turn.tolist() == [3, 3]


def test_a_kernel_that_cannot_be_compiled_is_said_once_and_left_out(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.error = RuntimeError("ptxas: no such card")
    with torch.inference_mode():
        stack = stack_of(some_trainings(tasks(["binary"], shared=True), (9,)))
        assert device_steps.can_run(stack.layout, stack.trunk, CUDA)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
        with pytest.warns(DataWarning, match="no such card"):
            assert stack._step_on_device(2, None)  # by the operations of Stack.tick
    assert stack.position.tolist() == [2]
    assert not device_steps.can_run(stack.layout, stack.trunk, CUDA)


@interpreted
@pytest.mark.filterwarnings("ignore:Conversion of an array")  # of the interpreter itself
@pytest.mark.parametrize(
    ("kinds", "shared", "widths", "settings"),
    [
        (["binary"], True, (50, 50, 48), {}),
        (["regression"], True, (10,), {"trunk": "relu"}),
        (["regression", "binary"], True, (10, 9), {"trunk": "linear", "weight_decay": 0.1}),
        (["binary"] * 3, True, (70, 69), {"optimizer": "adamw", "weight_decay": 0.1}),
        (["binary", "regression", "binary"], False, (20, 20), {"steps": "joint"}),
        (["binary", "regression", "binary"], False, (70, 69), {"steps": "joint"}),
        (["binary", "regression", "binary"], False, (20, 20), {"steps": "mixed"}),
        (["binary", "regression", "binary"], False, (70, 69), {"steps": "mixed", "weighting": [0.2, 1.0, 3.0]}),
    ],
)
def test_the_kernel_takes_the_steps_of_the_stack(
    kinds: list[str], shared: bool, widths: tuple[int, ...], settings: dict[str, Any]
) -> None:
    trainings = some_trainings(tasks(kinds, shared=shared), widths, **settings)
    with torch.inference_mode():
        one, other = stack_of(trainings, like_a_device=False), stack_of(trainings)
        count = min(one.remaining)
        for _ in range(count):
            one.tick()
        assert device_steps.run_steps(other, count // 2)
        assert device_steps.run_steps(other, count - count // 2)
        for name in ("trunk", "heads"):
            for what in ("value", "first", "second", "steps"):
                theirs, ours = (getattr(stack.parts[name], what) for stack in (one, other))
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(other.loss, one.loss, rtol=1e-5, atol=1e-6)
        assert torch.equal(one.position, other.position)
