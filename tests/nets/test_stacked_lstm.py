"""The stacked LSTM against PyTorch's own, member by member, values and gradients."""

from __future__ import annotations

import torch

from mtlens.nets.stacked_lstm import StackedLstm
from mtlens.nets.text import TextTrunk, text_lengths, text_trunk

UNITS = (3, 5, 1)


def table() -> torch.Tensor:
    vectors = torch.randn(11, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    vectors[0] = 0
    return vectors


def members() -> list[TextTrunk]:
    return [text_trunk("lstm", table(), u, generator=torch.Generator().manual_seed(u)) for u in UNITS]


def tokens() -> torch.Tensor:
    drawn = torch.randint(1, 11, (len(UNITS), 6, 7), generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([7, 3, 0, 1, 5, 2])
    return drawn * (torch.arange(7) < lengths[:, None])


def packed(stack: StackedLstm, trunks: list[TextTrunk]) -> torch.Tensor:
    return torch.stack([stack.pack(t.state_dict(), u) for t, u in zip(trunks, UNITS, strict=True)])


def test_values_and_gradients_are_those_of_each_lstm() -> None:
    trunks, stack = members(), StackedLstm(table(), UNITS)
    parameters = packed(stack, trunks)
    features = stack.forward(parameters, tokens())
    grad_features = torch.randn(features.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for s, units in enumerate(UNITS):  # a head never reads the units a member does not have
        grad_features[s, :, units:] = 0
    gradient = torch.full_like(parameters, torch.nan)
    assert stack.backward(parameters, grad_features, gradient, grad_input=False) is None
    for s, (trunk, units) in enumerate(zip(trunks, UNITS, strict=True)):
        own = trunk(tokens()[s])
        assert torch.allclose(features[s, :, :units], own, atol=1e-13, rtol=0)
        assert not features[s, :, units:].any()
        (own * grad_features[s, :, :units]).sum().backward()
        ours = stack.unpack(gradient[s], units)
        for name, parameter in trunk.named_parameters():
            assert torch.allclose(ours[name], parameter.grad, atol=1e-13, rtol=0), name
        padded = stack.pack(ours, units)
        assert torch.equal(padded, gradient[s])  # no gradient outside the member's own units


def test_pack_and_unpack_are_inverse() -> None:
    trunks, stack = members(), StackedLstm(table(), UNITS)
    for trunk, units in zip(trunks, UNITS, strict=True):
        values = {k: v for k, v in trunk.state_dict().items() if not k.startswith("embedding")}
        again = stack.unpack(stack.pack(values, units), units)
        assert set(again) == set(values)
        assert all(torch.equal(again[k], values[k]) for k in values)


def test_aligned_word_vectors_get_the_gradient_that_autograd_gives() -> None:
    trunks, stack = members(), StackedLstm(table(), UNITS)
    parameters = packed(stack, trunks)
    maps = torch.randn(len(UNITS), 4, 4, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    features = stack.forward(parameters, tokens(), lambda vectors: torch.bmm(vectors, maps))
    upper = torch.randn(features.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for s, units in enumerate(UNITS):
        upper[s, :, units:] = 0
    below = stack.backward(parameters, upper, None, grad_input=True)
    assert below is not None
    assert below.shape == (len(UNITS), 6 * 7, 4)
    for s, (trunk, units) in enumerate(zip(trunks, UNITS, strict=True)):
        ids = tokens()[s]
        vectors = (table()[ids] @ maps[s]).requires_grad_()
        own = trunk.encoder(vectors, text_lengths(ids))
        assert torch.allclose(features[s, :, :units], own, atol=1e-13, rtol=0)
        (expected,) = torch.autograd.grad((own * upper[s, :, :units]).sum(), vectors)
        assert torch.allclose(below[s].view(6, 7, 4), expected, atol=1e-13, rtol=0)


def test_word_vectors_without_alignment_and_a_trunk_that_stays_need_no_way_back() -> None:
    stack = StackedLstm(table(), UNITS)
    parameters = packed(stack, members())
    features = stack.forward(parameters, tokens())
    assert stack.backward(parameters, features, None, grad_input=False) is None
