"""Text trunks: slow twins, gradients, and the law that padding and companions never matter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mtlens.errors import InputError, UnknownNameError
from mtlens.nets.text import MeanTrunk, TextTrunk, average_vectors, in_length_buckets, text_lengths, text_trunk

NAMES = ("lstm", "cnn", "average")


def vectors(num_words: int = 20, width: int = 6) -> torch.Tensor:
    values = torch.randn(num_words, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values[0] = 0
    return values


def make(name: str, capacity: int = 3, seed: int = 0, **settings: object) -> TextTrunk:
    return text_trunk(name, vectors(), capacity, generator=torch.Generator().manual_seed(seed), **settings)


def texts(rows: int, longest: int, seed: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 20, (rows, longest), generator=generator)
    lengths = torch.randint(0, longest + 1, (rows, 1), generator=generator)
    return tokens * (torch.arange(longest) < lengths)


@pytest.mark.parametrize("name", NAMES)
def test_padding_and_companions_never_matter(name: str) -> None:
    trunk, tokens = make(name), texts(70, 12)
    together = trunk(tokens)  # several buckets
    padded = trunk(torch.nn.functional.pad(tokens, (0, 9)))
    alone = torch.cat(
        [trunk(row[None, : max(int(length), 1)]) for row, length in zip(tokens, text_lengths(tokens), strict=True)]
    )
    assert torch.allclose(together, padded, atol=1e-12, rtol=0)
    assert torch.allclose(together, alone, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tokens", [[[]], [[0]], [[7]], [[0, 0, 0]], [[7] * 10_000]])
def test_empty_one_word_and_endless_texts(name: str, tokens: list[list[int]]) -> None:
    code = make(name)(torch.tensor(tokens, dtype=torch.int64))
    assert code.shape == (1, make(name).out_features)
    assert torch.isfinite(code).all()
    if name == "lstm" and not any(tokens[0]):
        assert not code.any()


def test_lstm_reads_the_last_real_step() -> None:
    trunk = make("lstm")
    lstm = trunk.encoder.lstm
    states = lstm(trunk.embedding(torch.tensor([[3, 4, 5]])).transpose(0, 1))[0]
    assert torch.allclose(trunk(torch.tensor([[3, 4, 5, 0, 0]])), states[2], atol=1e-14)
    padded = make("lstm", last="padded")(torch.tensor([[3, 4, 5, 0, 0]]))
    assert not torch.allclose(padded, states[2], atol=1e-3)
    assert make("lstm", depth=2).encoder.lstm.num_layers == 2


def test_cnn_against_a_slow_twin() -> None:
    trunk = make("cnn")
    for words in ([1, 2, 3, 4, 5, 6, 7], [8, 9], [4, 4, 4]):
        embedded = vectors()[words]
        expected = []
        for width, convolution in zip((3, 4, 5), trunk.encoder.convolutions, strict=True):
            filled = torch.cat([embedded, torch.zeros(max(width - len(words), 0), 6, dtype=torch.float64)])
            windows = [
                torch.einsum("ocw,wc->o", convolution.weight, filled[i : i + width]) + convolution.bias
                for i in range(len(filled) - width + 1)
            ]
            expected.append(torch.stack(windows).amax(0).clamp(min=0))
        assert torch.allclose(trunk(torch.tensor([[*words, 0, 0]]))[0], torch.cat(expected), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_gradcheck_of_the_encoder(name: str) -> None:
    trunk, tokens = make(name, capacity=2), texts(3, 6, seed=5)
    lengths = text_lengths(tokens)
    embedded = trunk.embedding(tokens).requires_grad_()
    assert torch.autograd.gradcheck(lambda e: trunk.encode(e, lengths), (embedded,))


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_is_the_whole_start_and_state_dicts_round_trip(name: str) -> None:
    one, same, other = make(name), make(name), make(name, seed=1)
    tokens = texts(4, 7)
    assert torch.equal(one(tokens), same(tokens))
    assert not torch.equal(one(tokens), other(tokens))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(tokens), other(tokens))


def test_buckets_partition_the_batch() -> None:
    seen: list[int] = []

    def encode(embedded: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        seen.append(embedded.shape[1])
        return embedded.sum(1)

    tokens = texts(64, 30)
    embedded = nn.functional.one_hot(tokens, 20).double() * (tokens != 0)[..., None]
    assert torch.equal(in_length_buckets(encode, embedded, text_lengths(tokens)), embedded.sum(1))
    assert len(seen) == 4 and seen == sorted(seen) and seen[0] < 30


def test_bad_settings_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'lstm'"):
        make("lsmt")
    with pytest.raises(InputError, match="capacity 0"):
        make("lstm", capacity=0)
    with pytest.raises(InputError, match="does not take the settings"):
        make("cnn", depth=2)
    with pytest.raises(UnknownNameError, match="padded"):
        make("lstm", last="pad")


def test_averages_can_be_computed_once() -> None:
    tokens = texts(9, 6)
    averaged = average_vectors(tokens.numpy(), vectors().numpy())
    assert np.allclose(averaged[~tokens.any(1).numpy()], 0)
    trunk, short = make("average"), MeanTrunk(6, 3).double()
    short.load_state_dict({k: v for k, v in trunk.state_dict().items() if k.startswith("encoder")})
    assert torch.allclose(trunk(tokens), short(torch.from_numpy(averaged)), atol=1e-14)
