"""Dense stacks against autograd, alignments, and the net that joins trunk, heads and alignments."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mtlens import Alignment, MultiTaskNet, Task
from mtlens.errors import InputError, UnknownNameError
from mtlens.nets import FAMILIES, RowSpec, family_of
from mtlens.nets.dense import StackedDense
from mtlens.nets.multitask import head_values

D = 5


class _ByHand(torch.autograd.Function):
    """The stack's forward and hand-written backward as one autograd operation, for gradcheck."""

    @staticmethod
    def forward(ctx: Any, stack: StackedDense, parameters: Tensor, X: Tensor) -> Tensor:
        ctx.stack, ctx.parameters = stack, parameters
        return stack.forward(parameters, X).clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:  # type: ignore[override]
        into = torch.empty_like(ctx.parameters)
        below = ctx.stack.backward(ctx.parameters, grad.clone(), into, grad_input=True)
        return None, into, below.clone()


@pytest.mark.parametrize(("name", "capacity"), [("linear", 3), ("relu", 4), ("mlp", 4), ("mlp", (4, 3, 2))])
def test_the_hand_written_backward_passes_gradcheck(name: str, capacity: Any) -> None:
    draws = torch.Generator().manual_seed(3)
    stack = family_of(name).stacked(RowSpec((D,)), [capacity] * 2)
    assert isinstance(stack, StackedDense)
    parameters = torch.randn(2, stack.num_parameters, dtype=torch.float64, generator=draws, requires_grad=True)
    X = torch.randn(2, 6, D, dtype=torch.float64, generator=draws, requires_grad=True)
    assert torch.autograd.gradcheck(lambda p, x: _ByHand.apply(stack, p, x), (parameters, X))


@pytest.mark.parametrize(("name", "capacities"), [("linear", [3, 2]), ("relu", [2, 4]), ("mlp", [(4, 3), (2, 3)])])
def test_a_stack_is_its_modules_padding_and_all(name: str, capacities: list[Any]) -> None:
    family, rows = FAMILIES[name], RowSpec((D,))
    stack = family.stacked(rows, capacities)
    assert stack is not None
    drawn = [family.draw(rows, c, seed) for seed, c in enumerate(capacities)]
    parameters = torch.stack([stack.pack(values, c) for values, c in zip(drawn, capacities, strict=True)])
    X = torch.randn(2, 7, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    features = stack.forward(parameters, X)
    for s, (values, capacity) in enumerate(zip(drawn, capacities, strict=True)):
        module = family.trunk(rows, capacity).double()
        module.load_state_dict(stack.unpack(parameters[s], capacity))
        own = module(X[s])
        torch.testing.assert_close(features[s, :, : own.shape[1]], own, atol=1e-12, rtol=0)
        assert (features[s, :, own.shape[1] :] == 0).all()
        assert all(torch.equal(values[k], v) for k, v in module.state_dict().items())


def test_starts_depend_on_the_seed_alone() -> None:
    family, rows = FAMILIES["mlp"], RowSpec((D,))
    torch.manual_seed(0)
    one = family.draw(rows, 4, 7)
    torch.manual_seed(1)
    two, other = family.draw(rows, 4, 7), family.draw(rows, 4, 8)
    assert all(torch.equal(one[k], two[k]) for k in one)
    assert not torch.equal(one["weights.0"], other["weights.0"])
    assert torch.equal(head_values(0, "a", 4, 1)[0], head_values(0, "a", 4, 1)[0])
    assert not torch.equal(head_values(0, "a", 4, 1)[0], head_values(0, "b", 4, 1)[0])


@pytest.mark.parametrize("rank", [None, 1, 3])
def test_an_alignment_starts_as_the_identity_and_can_move(rank: int | None) -> None:
    align = Alignment(D, rank=rank, penalty=2.0)
    x = torch.randn(4, D)
    assert torch.equal(align(x), x)
    assert torch.equal(align.matrix(), torch.eye(D))
    assert align.regulariser().item() == 0
    (align(x) * torch.randn(4, D)).sum().backward()
    with torch.no_grad():
        for parameter in align.parameters():
            assert parameter.grad is not None
            parameter -= 0.1 * parameter.grad
    assert not torch.equal(align(x), x)
    torch.testing.assert_close(align(x), x @ align.matrix(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(align.regulariser(), 2 * (align.matrix() - torch.eye(D)).square().sum())


@pytest.mark.parametrize(
    "settings",
    [
        {"rank": 0},
        {"rank": D + 1},
        {"rank": 2.0},
        {"rank": True},
        {"d": 3.5},
        {"d": "4"},
        {"penalty": -1.0},
        {"penalty": float("nan")},
        {"penalty": float("inf")},
        {"penalty": "x"},
    ],
)
def test_impossible_alignments_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="Alignment"):
        Alignment(**{"d": D, **settings})


def a_net(align_at: str | None = None) -> MultiTaskNet:
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(D, 4), nn.ReLU(), nn.Linear(4, 3))
    width = D if align_at is None else 4
    return MultiTaskNet(
        trunk, {"r": "regression", "b": "binary", "c": 3}, align=Alignment(width, rank=2), align_at=align_at
    )


def moved(net: MultiTaskNet) -> MultiTaskNet:
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return net


@pytest.mark.parametrize("align_at", [None, "2"])
def test_state_dicts_go_round(align_at: str | None) -> None:
    net, fresh, x = moved(a_net(align_at)), a_net(align_at), torch.randn(6, D)
    fresh.load_state_dict(net.state_dict())
    twin = copy.deepcopy(net)
    for name, out in net(x).items():
        assert torch.equal(fresh(x)[name], out)
        assert torch.equal(twin(x, name), out)
    with torch.no_grad():
        twin.align[0].V.add_(1.0)  # type: ignore[index, union-attr, operator]
    assert torch.equal(net(x)["r"], fresh(x)["r"]), "a copy's alignment must be its own"
    assert not torch.equal(twin(x)["r"], net(x)["r"])


def test_an_alignment_between_parts_stands_where_it_was_asked() -> None:
    net, x = moved(a_net("2")), torch.randn(6, D)
    first, relu, last = net.trunk  # type: ignore[misc]
    by_hand = net.heads[1](last(net.align[1](relu(first(x)))))[:, 0]  # type: ignore[index]
    torch.testing.assert_close(net(x, "b"), by_hand)


def test_outputs_and_ways_to_call() -> None:
    net, x = a_net(), torch.randn(6, D)
    assert {name: tuple(out.shape) for name, out in net(x).items()} == {"r": (6,), "b": (6,), "c": (6, 3)}
    assert set(net({"b": x[:2]})) == {"b"}
    assert torch.equal(net({"b": x}, "b"), net(x, "b"))
    from_tasks = MultiTaskNet(nn.Linear(D, 2), [Task("t", [[0.0], [1.0], [2.0]], ["x", "y", "z"])])
    assert from_tasks(x, "t").shape == (6, 3)


def test_a_held_trunk_gets_no_gradient() -> None:
    net = a_net()
    net.trunk.requires_grad_(False)
    net(torch.randn(6, D), "r").sum().backward()
    assert all(parameter.grad is None for parameter in net.trunk.parameters())
    assert net.align is not None
    assert net.align[0].V.grad is not None and net.align[1].V.grad is None  # type: ignore[union-attr]


@pytest.mark.parametrize("align_at", [None, "2"])
def test_compile_autocast_and_func(align_at: str | None) -> None:
    net, x = moved(a_net(align_at)), torch.randn(6, D)
    expected = net(x, "c")
    torch.testing.assert_close(torch.compile(net, backend="eager")(x, "c"), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = net(x, "c")
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), expected, atol=0.1, rtol=0.1)
    state = dict(net.named_parameters())
    called = torch.func.functional_call(net, state, (x, "c"))
    torch.testing.assert_close(called, expected)
    slopes = torch.func.grad(lambda s: torch.func.functional_call(net, s, (x, "c")).square().sum())(state)
    assert slopes["align.2.V"].abs().sum() > 0 and slopes["align.0.V"].abs().sum() == 0


class _LastLayerFirst(nn.Module):
    """A trunk whose width cannot be read from the order of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first = nn.Linear(6, 2), nn.Linear(D, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu())  # type: ignore[no-any-return]


def test_a_trunk_of_another_width_than_it_seems_is_told() -> None:
    with pytest.raises(InputError, match=r"made for 6 features, but _LastLayerFirst gave shape \(3, 2\)"):
        MultiTaskNet(_LastLayerFirst(), {"r": "regression"})(torch.zeros(3, D))
    with pytest.raises(InputError, match="LSTM gave a tuple"):
        MultiTaskNet(nn.LSTM(D, 2), {"r": "regression"})(torch.zeros(3, D), "r")
    told = _LastLayerFirst()
    told.out_features = 2  # type: ignore[assignment]
    assert MultiTaskNet(told, {"r": np.int64(3)})(torch.zeros(3, D), "r").shape == (3, 3)  # type: ignore[dict-item]


def test_mistakes_are_named() -> None:
    with pytest.raises(UnknownNameError, match="no task named 'x'"):
        a_net()(torch.zeros(1, D), "x")
    with pytest.raises(UnknownNameError, match="no part named 'nine'"):
        a_net("nine")
    with pytest.raises(UnknownNameError, match="no task named 'q'"):
        MultiTaskNet(nn.Linear(D, 2), {"r": "regression"}, align={"q": Alignment(D)})
    with pytest.raises(InputError, match="head of task 'r' is 1"):
        MultiTaskNet(nn.Linear(D, 2), {"r": 1})
    with pytest.raises(InputError, match="trunk='mlp' is no torch"):
        MultiTaskNet("mlp", {"r": "regression"})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="heads=3"):
        MultiTaskNet(nn.Linear(D, 2), 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="align=True"):
        MultiTaskNet(nn.Linear(D, 2), {"r": "regression"}, align=True)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one head"):
        MultiTaskNet(nn.Linear(D, 2), {})
    with pytest.raises(InputError, match="how wide the output of ReLU"):
        MultiTaskNet(nn.ReLU(), {"r": "regression"})
    with pytest.raises(UnknownNameError, match="no task named 'b' in the given inputs"):
        a_net()({"r": torch.zeros(1, D)}, "b")
    with pytest.raises(InputError, match="head 1 is no task"):
        MultiTaskNet(nn.Linear(D, 2), [1, 2])
    with pytest.raises(InputError, match=r"Alignment\(3\) maps features of width 3, but got shape \(2, 4\)"):
        Alignment(3)(torch.zeros(2, 4))
    with pytest.raises(InputError, match="found an nn"):
        family_of(nn.Linear(2, 2))
    with pytest.raises(UnknownNameError, match="Did you mean 'relu'"):
        family_of("rleu")


def test_a_pass_of_rows_is_bounded_by_every_layer() -> None:
    """A wide hidden layer below a narrow last one is what fills a device's memory."""
    assert StackedDense([20, 1000, 10], relu=True, bias=True).numbers_a_row(20) == 1030
