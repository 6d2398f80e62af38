"""MultiTaskNet under torch.func and autocast, its gradients, and what a task does not touch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mtlens.nets import Alignment, MultiTaskNet

HEADS = {"number": "regression", "yes": "binary", "kind": 4}


def trunk() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


def nets() -> dict[str, MultiTaskNet]:
    torch.manual_seed(0)
    return {
        "plain": MultiTaskNet(trunk(), HEADS),
        "before": MultiTaskNet(trunk(), HEADS, align=Alignment(5, penalty=0.1)),
        "between": MultiTaskNet(trunk(), HEADS, align=Alignment(6, rank=2), align_at="2"),
    }


def moved(net: MultiTaskNet) -> MultiTaskNet:
    """The net away from its start, so that alignments are no identities."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return net


X = torch.randn(7, 5, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", ["before", "between"])
def test_an_alignment_at_its_start_changes_nothing(name: str) -> None:
    plain, aligned = nets()["plain"], nets()[name]
    aligned.trunk.load_state_dict(plain.trunk.state_dict())
    aligned.heads.load_state_dict(plain.heads.state_dict())
    for task, out in plain(X).items():
        assert torch.allclose(aligned(X)[task], out, atol=1e-6)


@pytest.mark.parametrize("name", ["plain", "before", "between"])
def test_autocast_and_torch_func(name: str) -> None:
    net = moved(nets()[name])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = net(X, "kind")
    assert low.dtype == torch.bfloat16
    assert torch.allclose(low.float(), net(X, "kind"), atol=0.1)
    values = dict(net.named_parameters())
    called = torch.func.functional_call(net, values, (X, "kind"))
    assert torch.equal(called, net(X, "kind"))

    def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.func.functional_call(net, parameters, (X, "kind")).square().mean()

    gradients = torch.func.grad(loss)(values)
    net(X, "kind").square().mean().backward()
    for own, parameter in net.named_parameters():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert torch.allclose(gradients[own], expected, atol=1e-6), own


@pytest.mark.parametrize("name", ["plain", "before", "between"])
def test_gradients_against_finite_differences(name: str) -> None:
    net = moved(nets()[name]).double()
    values = {key: value.detach() for key, value in net.named_parameters()}
    names = list(values)

    def outputs(*parameters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = dict(zip(names, parameters, strict=True))
        return tuple(torch.func.functional_call(net, given, (X.double()[:2],)).values())

    inputs = tuple(values[key].clone().requires_grad_() for key in names)
    assert torch.autograd.gradcheck(outputs, inputs)


def test_a_task_moves_only_what_is_its_own() -> None:
    net = moved(nets()["between"])
    net(X, "yes").sum().backward()
    assert net.align is not None
    assert net.heads[1].weight.grad is not None
    assert net.align[1].V.grad is not None
    for place in (0, 2):
        assert all(p.grad is None for p in net.heads[place].parameters())
        assert all(p.grad is None for p in net.align[place].parameters())
