"""Word vectors and their two Adams against slow twins."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from mtlens.errors import InputError, UnknownNameError
from mtlens.nets.embedding import DenseTableAdam, RowwiseAdam, WordEmbedding


def table(num_words: int = 12, width: int = 5, seed: int = 0) -> torch.Tensor:
    vectors = torch.randn(num_words, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    vectors[0] = 0
    return vectors


def batches(steps: int, num_words: int = 12) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(0, num_words // 2 + i % 6, (4, 6), generator=generator) for i in range(steps)]


def train(layer: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 12, first: int = 0) -> torch.Tensor:
    for tokens in batches(steps)[first:]:
        optimizer.zero_grad()
        (layer(tokens).sin().sum() + layer(tokens).pow(2).mean()).backward()
        optimizer.step()
    return layer.weight.detach().clone()


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_dense_table_adam_is_adam(mean: bool, weight_decay: float) -> None:
    ours = WordEmbedding(table(), mode="dense", mean=mean)
    twin = nn.EmbeddingBag.from_pretrained(table(), False, mode="mean", padding_idx=0) if mean else None
    twin = twin or nn.Embedding.from_pretrained(table(), False, padding_idx=0)
    one = train(ours, DenseTableAdam(ours.parameters(), lr=0.01, weight_decay=weight_decay))
    other = train(twin, torch.optim.Adam(twin.parameters(), lr=0.01, weight_decay=weight_decay))
    assert torch.allclose(one, other, atol=1e-12, rtol=0)


def test_rowwise_adam_is_sparse_adam_and_not_adam() -> None:
    ours, twin, dense = (WordEmbedding(table(), mode="rowwise") for _ in range(3))
    one = train(ours, RowwiseAdam(ours.parameters(), lr=0.01, eps=1e-15))
    other = train(twin, torch.optim.SparseAdam(list(twin.parameters()), lr=0.01, eps=1e-15))
    third = train(dense, DenseTableAdam(dense.parameters(), lr=0.01))
    assert torch.allclose(one, other, atol=1e-12, rtol=0)
    assert not torch.allclose(one, third, atol=1e-6)  # moments of unseen rows do not decay: another algorithm


@pytest.mark.parametrize("kind", [DenseTableAdam, RowwiseAdam])
def test_optimizer_state_resumes_exactly(kind: type[torch.optim.Optimizer]) -> None:
    whole = WordEmbedding(table(), mode="dense")
    expected = train(whole, kind(whole.parameters(), lr=0.01))
    part = WordEmbedding(table(), mode="dense")
    first = kind(part.parameters(), lr=0.01)
    train(part, first, steps=5)
    second = kind(part.parameters(), lr=0.01)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert torch.equal(train(part, second, first=5), expected)


def test_padding_stays_zero_and_frozen_tables_are_shared() -> None:
    layer = WordEmbedding(table(), mode="dense")
    assert not train(layer, DenseTableAdam(layer.parameters(), lr=0.1))[0].any()
    vectors = table()
    one, two = WordEmbedding(vectors), WordEmbedding(vectors)
    assert one.weight.data_ptr() == two.weight.data_ptr()
    assert not list(one.parameters())


@pytest.mark.parametrize("mean", [False, True])
def test_gradient_is_right(mean: bool) -> None:
    layer = WordEmbedding(table(), mode="dense", mean=mean)
    tokens = torch.tensor([[1, 2, 2, 0], [5, 0, 0, 0], [0, 0, 0, 0]])

    def through(weight: torch.Tensor) -> torch.Tensor:
        dense = torch.func.functional_call(layer, {"weight": weight}, (tokens,))
        return dense.tanh()

    twin = table().requires_grad_()
    through(layer.weight).sum().backward()
    picked = twin[tokens]
    count = (tokens != 0).sum(1).clamp(min=1)[:, None]
    expected = torch.autograd.grad(((picked.sum(1) / count) if mean else picked).tanh().sum(), twin)[0]
    expected[0] = 0
    assert torch.allclose(layer.weight.grad.to_dense(), expected, atol=1e-14)


def test_bad_tables_are_refused() -> None:
    with pytest.raises(InputError, match="row 0 is the padding"):
        WordEmbedding(torch.ones(3, 2))
    with pytest.raises(InputError, match="floating table"):
        WordEmbedding(torch.ones(3, 2, dtype=torch.int64))
    with pytest.raises(UnknownNameError, match="Did you mean 'rowwise'"):
        WordEmbedding(table(), mode="rowise")  # type: ignore[arg-type]
