"""TorchJD by name: every method runs, matches TorchJD called by hand, and its whole state can be saved."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from torch import nn

from mtlens.errors import InputError, MissingExtraError, UnknownNameError
from mtlens.weighting.torchjd import TorchJDWeighting, parse_method, torchjd_names

torchjd = pytest.importorskip("torchjd")
NUM_TASKS = 4


class Problem:
    """A shared layer and a head a task, with fixed data."""

    def __init__(self, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(12, 5, generator=generator, dtype=torch.float64)
        self.y = torch.randn(12, NUM_TASKS, generator=generator, dtype=torch.float64)
        self.shared = nn.Parameter(torch.randn(5, 3, generator=generator, dtype=torch.float64))
        self.heads = nn.Parameter(torch.randn(3, NUM_TASKS, generator=generator, dtype=torch.float64))

    def losses(self) -> torch.Tensor:
        return ((torch.tanh(self.x @ self.shared) @ self.heads - self.y) ** 2).mean(0)

    def jacobian(self) -> torch.Tensor:
        losses = self.losses()
        return torch.stack([torch.autograd.grad(loss, self.shared, retain_graph=True)[0].flatten() for loss in losses])

    def step(self, weighting: TorchJDWeighting, optimizer: torch.optim.Optimizer) -> None:
        weighting.backward(self.losses(), [self.shared], [self.heads])
        optimizer.step()
        weighting.after_step(self.losses)


def available(name: str) -> bool:
    try:
        TorchJDWeighting(name, NUM_TASKS)
    except MissingExtraError:
        return False
    return True


def build(name: str, problem: Problem, lr: float = 0.01) -> tuple[TorchJDWeighting, torch.optim.Optimizer]:
    weighting = TorchJDWeighting(name, NUM_TASKS, seed=7, dtype=torch.float64)
    return weighting, torch.optim.Adam([problem.shared, problem.heads, *weighting.parameters()], lr=lr)


@pytest.mark.parametrize("name", torchjd_names())
def test_every_method_trains_and_resumes_exactly(name: str) -> None:
    if not available(name):
        pytest.skip(f"{name} needs a solver that is not installed")
    whole, part = Problem(), Problem()
    weighting, optimizer = build(name, whole)
    for step in range(6):
        whole.step(weighting, optimizer)
        if step % 2:
            weighting.end_epoch()

    first, first_optimizer = build(name, part)
    for step in range(3):
        part.step(first, first_optimizer)
        if step % 2:
            first.end_epoch()
    saved, saved_optimizer = copy.deepcopy(first.state()), copy.deepcopy(first_optimizer.state_dict())
    second, second_optimizer = build(name, part)
    second.load_state(saved)
    second_optimizer.load_state_dict(saved_optimizer)
    torch.manual_seed(99)  # the global generator must not matter
    for step in range(3, 6):
        part.step(second, second_optimizer)
        if step % 2:
            second.end_epoch()

    assert torch.isfinite(whole.shared).all()
    assert not torch.equal(whole.shared, Problem().shared)
    assert torch.equal(whole.shared, part.shared)
    assert torch.equal(whole.heads, part.heads)


def test_an_aggregator_is_torchjds_own_on_the_jacobian() -> None:
    problem = Problem()
    TorchJDWeighting("upgrad", NUM_TASKS, dtype=torch.float64).backward(
        problem.losses(), [problem.shared], [problem.heads]
    )
    expected = torchjd.aggregation.UPGrad()(problem.jacobian())
    assert torch.allclose(problem.shared.grad.flatten(), expected, atol=1e-12)
    own = torch.autograd.grad(problem.losses().sum(), problem.heads)[0]
    assert torch.allclose(problem.heads.grad, own, atol=1e-12)


def test_a_weighting_and_its_aggregator_agree() -> None:
    one, other = Problem(), Problem()
    TorchJDWeighting("MGDA", NUM_TASKS, dtype=torch.float64).backward(one.losses(), [one.shared], [one.heads])
    TorchJDWeighting("MGDAWeighting", NUM_TASKS, dtype=torch.float64).backward(
        other.losses(), [other.shared], [other.heads]
    )
    assert torch.allclose(one.shared.grad, other.shared.grad, atol=1e-12)


def test_a_scalarizer_scales_heads_too() -> None:
    problem = Problem()
    TorchJDWeighting("scalarization.Mean", NUM_TASKS, dtype=torch.float64).backward(
        problem.losses(), [problem.shared], [problem.heads]
    )
    for parameter in (problem.shared, problem.heads):
        expected = torch.autograd.grad(problem.losses().mean(), parameter)[0]
        assert torch.allclose(parameter.grad, expected, atol=1e-14)


def test_names_and_settings() -> None:
    assert parse_method("torchjd:UW").where == "scalarization"
    assert parse_method("mean").where == "aggregation"
    assert parse_method("scalarization.uw").name == "UW"
    assert parse_method("CAGrad(c=0.25, norm_eps=1e-3)").settings == {"c": 0.25, "norm_eps": 1e-3}
    weighted = TorchJDWeighting("Constant(weights=[1.0, 2.0, 3.0, 4.0])", NUM_TASKS, dtype=torch.float64)
    problem = Problem()
    weighted.backward(problem.losses(), [problem.shared], [problem.heads])
    expected = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64) @ problem.jacobian()
    assert torch.allclose(problem.shared.grad.flatten(), expected)


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("UPGard", UnknownNameError, "Did you mean 'UPGrad'"),
        ("CAGrad(c=", InputError, "Write it as in"),
        ("CAGrad(__import__('os'))", InputError, "key=value"),
        ("CAGrad(d=1)", InputError, "does not take the settings"),
        ("CAGrad(c=-1.0)", InputError, "c"),
    ],
)
def test_bad_methods_are_refused(text: str, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        TorchJDWeighting(text, NUM_TASKS)


def test_a_step_without_every_task_is_refused() -> None:
    problem = Problem()
    with pytest.raises(InputError, match="steps='joint'"):
        TorchJDWeighting("UPGrad", 3).backward(problem.losses(), [problem.shared], [])


def test_too_few_tasks_for_a_method_is_said() -> None:
    problem = Problem()
    with pytest.raises(InputError, match="Krum with 2 tasks"):
        TorchJDWeighting("Krum", 2).backward(problem.losses()[:2], [problem.shared], [problem.heads])


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchjd", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'mtlens\[gradient\]'"):
        TorchJDWeighting("UPGrad", 2)


def test_a_state_of_another_method_is_refused() -> None:
    state = TorchJDWeighting("UW", 2).state()
    with pytest.raises(InputError, match="saved weighting is 'UW'"):
        TorchJDWeighting("IMTLL", 2).load_state(state)
