"""Users' trunks stacked through torch.func, or refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mtlens.errors import InputError
from mtlens.nets.family import ModuleFamily, RowSpec, family_of
from mtlens.nets.stacked_module import StackedModule, why_not_stacked

ROWS = RowSpec((6,))


class Attention(nn.Module):
    """A tiny transformer over six steps of one number."""

    out_features = 4

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lift = nn.Linear(1, width)
        self.mix = nn.Linear(width, 3 * width)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = self.lift(x.unsqueeze(-1))
        query, key, value = self.mix(steps).chunk(3, -1)
        seen = torch.softmax(query @ key.transpose(-1, -2), -1) @ value
        return self.out(self.norm(steps + seen).mean(1))


class Encoder(nn.Module):
    """PyTorch's own layer: its fused attention has no batched form in torch.func, which would loop."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x.unsqueeze(1)).squeeze(1)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.layer(x)
        return out if out.sum().item() > 0 else -out


def deep(capacity: int) -> nn.Module:
    return nn.Sequential(nn.Linear(6, capacity), nn.Tanh(), nn.LayerNorm(capacity), nn.Linear(capacity, 3))


@pytest.mark.parametrize("factory", [deep, Attention])
def test_values_and_gradients_are_those_one_by_one(factory: object) -> None:
    family = ModuleFamily(factory)  # type: ignore[arg-type]
    stack = family.stacked(ROWS, [8, 8, 8])
    assert isinstance(stack, StackedModule)
    modules = [family.trunk(ROWS, 8).double() for _ in range(3)]
    parameters = torch.stack([stack.pack(m.state_dict(), 8) for m in modules])
    X = torch.randn(3, 5, 6, dtype=torch.float64)
    features = stack.forward(parameters, X)
    upper = torch.randn_like(features)
    gradient = torch.empty_like(parameters)
    below = stack.backward(parameters, upper, gradient, grad_input=True)
    again = torch.empty_like(parameters)
    stack.forward(parameters, X)
    assert stack.backward(parameters, upper, again, grad_input=False) is None
    assert torch.allclose(gradient, again, atol=1e-13)
    for s, module in enumerate(modules):
        x = X[s].clone().requires_grad_()
        out = module(x)
        assert torch.allclose(out, features[s], atol=1e-13)
        (out * upper[s]).sum().backward()
        assert below is not None
        assert torch.allclose(x.grad, below[s], atol=1e-12)
        for name, value in stack.unpack(gradient[s], 8).items():
            assert torch.allclose(module.get_parameter(name).grad, value, atol=1e-12), name


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), "buffers"),
        (lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)), "torch.func cannot run it well"),
        (lambda: nn.Sequential(nn.Linear(6, 3).requires_grad_(False), nn.Linear(3, 3)), "switched off"),
        (Branching, "torch.func cannot run it well"),
        (nn.Flatten, "no parameters"),
        (Encoder, "performance drop"),
    ],
)
def test_what_cannot_be_stacked_says_why(build: object, reason: str) -> None:
    def made() -> nn.Module:
        module = build()  # type: ignore[operator]
        module.out_features = 6
        return module

    found = why_not_stacked(made, ROWS)
    assert found is not None
    assert reason in found


def test_mixed_capacities_do_not_stack() -> None:
    assert ModuleFamily(deep).stacked(ROWS, [8, 4]) is None
    assert ModuleFamily(deep).why_solo(ROWS, 8) is None


def edited(change: str) -> dict[str, Any]:
    """A module class as a script would define it, before or after an edit of its forward pass."""
    space: dict[str, Any] = {"nn": nn, "__name__": "script"}
    code = f"""
class Trunk(nn.Module):
    out_features = 3

    def __init__(self, capacity):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    @property
    def twice(self):
        return 2

    def forward(self, x):
        return self.layer(x){change}

def build(capacity):
    return Trunk(capacity)
"""
    exec(code, space)
    return space


@pytest.mark.parametrize("name", ["Trunk", "build"])
def test_an_edited_trunk_is_another_trunk(name: str) -> None:
    """Else a folder of finished trainings would hand out results of the old one."""
    labels = [ModuleFamily(edited(change)[name]).settings()["factory"] for change in ("", "", " + 1")]
    assert labels[0] == labels[1] != labels[2]
    assert " at 0x" not in labels[0]


class Wider(nn.Linear):
    """A layer whose ``out_features`` is no longer what ``forward`` returns."""

    def __init__(self, capacity: int) -> None:
        super().__init__(4, capacity)
        self.top = nn.Linear(capacity, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.top(super().forward(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (Wider, r"Wider has out_features=5, but it returned 7 features a row"),
        (lambda capacity: nn.Linear(9, capacity), r"cannot read the tasks' rows, of shape \(4,\) \(RuntimeError"),
        (lambda capacity: nn.LSTM(4, capacity), "returned tuple for 2 rows"),
        (lambda capacity: nn.Linear(4, capacity, device="meta"), "cannot read the tasks' rows"),
    ],
)
def test_a_trunk_that_does_not_fit_the_rows_is_refused(factory: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        family_of(factory).trunk(RowSpec((4,)), 5)


def test_lazy_layers_start_from_the_seed() -> None:
    lazy, plain = (family_of(f) for f in (lambda c: nn.LazyLinear(c), lambda c: nn.Linear(4, c)))
    drawn = lazy.draw(RowSpec((4,)), 5, seed=3)
    assert drawn["weight"].shape == (5, 4)
    assert torch.equal(drawn["weight"], plain.draw(RowSpec((4,)), 5, seed=3)["weight"])


def test_whether_a_trunk_stacks_is_tried_once() -> None:
    assert family_of(deep) is family_of(deep)
