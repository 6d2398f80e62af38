"""Text trunks: an embedding, then a recurrent, convolutional or averaging encoder.

Input is ``(n, L)`` token ids, 0 = padding at the end. The number of padding columns never changes a result, so a text
may be batched with any others. Encoders sort a batch into a few length buckets themselves: same numbers, less padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlens.errors import InputError, unknown
from mtlens.nets.dense import DenseTrunk
from mtlens.nets.embedding import PADDING, EmbeddingMode, WordEmbedding

ROWS_A_BUCKET = 16  # measured: 50 sentences in 3 buckets cost 0.63 (hidden 100) and 0.71 (200) of one padded batch
MOST_BUCKETS = 8
CNN_WIDTHS = (3, 4, 5)

LastStep: TypeAlias = Literal["real", "padded"]


class TextTrunk(nn.Module):
    """``encoder(embedding(tokens), lengths)``; the two parts are named so that an alignment can stand between them.

    An alignment there is linear without bias, so padding stays zero; for the averaging encoder aligning the mean is
    aligning every word.
    """

    def __init__(self, embedding: WordEmbedding, encoder: nn.Module) -> None:
        super().__init__()
        self.embedding = embedding
        self.encoder = encoder

    @property
    def out_features(self) -> int:
        width: Any = self.encoder.out_features
        return int(width)

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.shape[1] == 0:  # a batch of empty texts only: one column of padding says the same
            tokens = tokens.new_zeros(tokens.shape[0], 1)
        return self.encode(self.embedding(tokens), text_lengths(tokens))

    def encode(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """``(n, L, d)`` word vectors, or ``(n, d)`` averages, to ``(n, out_features)``."""
        encoded: Tensor = self.encoder(embedded, lengths)
        return encoded


class LstmEncoder(nn.Module):
    """One-directional LSTM; a text's code is the hidden state at its last word.

    Args:
        in_features: d.
        capacity: hidden width, the output's width.
        depth: stacked layers. The paper's text says 1, its authors' script 2 (with width 100 for 200).
        last: ``"real"`` reads the last *word*; ``"padded"`` reads the last column of the batch, as the authors' script
            does. The second is a mistake kept for comparison: its results depend on which texts share a batch.

    An empty text has the initial state, zero.
    """

    def __init__(self, in_features: int, capacity: int, *, depth: int = 1, last: LastStep = "real") -> None:
        super().__init__()
        if last not in ("real", "padded"):
            raise unknown("last step", last, ("real", "padded"))
        self.out_features = capacity
        self.last: LastStep = last
        self.lstm = nn.LSTM(in_features, capacity, num_layers=depth)  # time first: the CPU kernel's own layout

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        if self.last == "padded":
            return self._states(embedded)[-1]
        return in_length_buckets(self._last_real, embedded, lengths)

    def _states(self, embedded: Tensor) -> Tensor:
        states: Tensor = self.lstm(embedded.transpose(0, 1))[0]  # (L, n, capacity)
        return states

    def _last_real(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        states = self._states(embedded)
        rows = torch.arange(embedded.shape[0], device=states.device)
        last = states[(lengths - 1).clamp(min=0), rows]
        return torch.where((lengths > 0)[:, None], last, torch.zeros_like(last))


class CnnEncoder(nn.Module):
    """Kim's convolutional encoder: windows of 3, 4 and 5 words, ReLU, maximum over time; ``capacity`` filters a width.

    Windows lie inside the text; a text shorter than a window is filled up with zero vectors to one window. (The usual
    code lets windows reach into the padding, which makes a result depend on the longest text of its batch.)
    The output is ``len(widths) * capacity`` wide.
    """

    def __init__(self, in_features: int, capacity: int, *, widths: tuple[int, ...] = CNN_WIDTHS) -> None:
        super().__init__()
        self.out_features = len(widths) * capacity
        self.widths = widths
        self.convolutions = nn.ModuleList(nn.Conv1d(in_features, capacity, width) for width in widths)

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        return in_length_buckets(self._encode, embedded, lengths)

    def _encode(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        missing = max(max(self.widths) - embedded.shape[1], 0)
        columns = functional.pad(embedded.transpose(1, 2), (0, missing))  # (n, d, L)
        codes = []
        for width, convolution in zip(self.widths, self.convolutions, strict=True):
            windows = convolution(columns)  # (n, capacity, L - width + 1)
            places = torch.arange(windows.shape[2], device=windows.device)
            outside = places > (lengths - width).clamp(min=0)[:, None]  # (n, places)
            codes.append(windows.masked_fill(outside[:, None, :], -math.inf).amax(dim=2))
        return functional.relu(torch.cat(codes, dim=1))  # ReLU after the maximum: the same, on fewer numbers


class MeanEncoder(DenseTrunk):
    """A ReLU perceptron on the average word vector (paper, appendix B: two layers, then the classification layer).

    It is the trunk of the family "mlp" with ``depth`` layers of ``capacity``, under the same parameter names: with
    frozen embeddings the averages can be computed once and the rest trained as any perceptron.
    """

    def __init__(self, in_features: int, capacity: int, *, depth: int = 2) -> None:
        super().__init__([in_features, *[capacity] * depth], relu=True, bias=True)

    def forward(self, averages: Tensor, lengths: Tensor | None = None) -> Tensor:
        del lengths  # the average has taken them into account
        return super().forward(averages)


class MeanTrunk(nn.Module):
    """The averaging trunk for averages computed beforehand, ``(n, d)``: `TextTrunk` without its embedding."""

    def __init__(self, in_features: int, capacity: int, *, depth: int = 2) -> None:
        super().__init__()
        self.encoder = MeanEncoder(in_features, capacity, depth=depth)
        self.out_features = capacity

    def forward(self, averages: Tensor) -> Tensor:
        encoded: Tensor = self.encoder(averages)
        return encoded


def average_vectors(tokens: np.ndarray[Any, Any], vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``(n, d)`` float64 mean vectors of ``(n, L)`` token ids; padding does not count, an empty text averages to zero.

    >>> average_vectors(np.array([[1, 2, 0], [0, 0, 0]]), np.array([[0.0], [1.0], [3.0]])).tolist()
    [[2.0], [0.0]]
    """
    layer = WordEmbedding(torch.from_numpy(vectors.astype(np.float64)), mean=True)
    if tokens.shape[1] == 0:
        tokens = np.zeros((len(tokens), 1), dtype=np.int64)
    means: np.ndarray[Any, Any] = layer(torch.from_numpy(tokens.astype(np.int64))).numpy()
    return means


ENCODERS: dict[str, Callable[..., nn.Module]] = {"lstm": LstmEncoder, "cnn": CnnEncoder, "average": MeanEncoder}


def text_trunk(
    name: str,
    vectors: Tensor,
    capacity: int,
    *,
    mode: EmbeddingMode = "frozen",
    generator: torch.Generator | None = None,
    **settings: Any,
) -> TextTrunk:
    """A text trunk by name: ``"lstm"``, ``"cnn"`` or ``"average"``.

    Args:
        vectors: ``(V, d)`` word vectors, row 0 zero; they set the dtype.
        capacity: hidden width (filters a width for the CNN).
        mode: ``"frozen"``, ``"dense"`` or ``"rowwise"`` embeddings, see `WordEmbedding`.
        generator: where the encoder's initial values come from.
        settings: ``depth`` and ``last`` (LSTM), ``widths`` (CNN), ``depth`` (average).

    >>> vectors = torch.cat([torch.zeros(1, 4), torch.eye(4)])
    >>> trunk = text_trunk("cnn", vectors, 2, generator=torch.Generator().manual_seed(0))
    >>> trunk(torch.tensor([[1, 2, 0], [0, 0, 0]])).shape, trunk.out_features
    (torch.Size([2, 6]), 6)
    """
    if name not in ENCODERS:
        raise unknown("text trunk", name, ENCODERS)
    if capacity < 1:
        raise InputError(f"text trunk {name!r}: capacity {capacity} leaves nothing to share. Use capacity >= 1.")
    embedding = WordEmbedding(vectors, mode=mode, mean=name == "average")
    try:
        encoder = ENCODERS[name](embedding.width, capacity, **settings).to(vectors.dtype)
    except TypeError as error:
        raise InputError(f"text trunk {name!r} does not take the settings {settings}: {error}") from error
    reset_parameters(encoder, generator)
    return TextTrunk(embedding, encoder)


def reset_parameters(encoder: nn.Module, generator: torch.Generator | None) -> None:
    """PyTorch's default initial values, drawn from ``generator``: uniform within one over the root of the fan-in.

    (For an LSTM that "fan-in" is the hidden width, as in ``nn.LSTM``.)
    """
    for module in encoder.modules():
        if isinstance(module, DenseTrunk):
            for layer, weight in enumerate(module.weights):
                _uniform([weight, module.biases[layer]] if module.biases else [weight], weight.shape[0], generator)
        elif isinstance(module, nn.LSTM):
            _uniform(module.parameters(), module.hidden_size, generator)
        elif isinstance(module, nn.Conv1d):
            _uniform(module.parameters(), module.weight[0].numel(), generator)


def _uniform(parameters: Iterable[Tensor], fan_in: int, generator: torch.Generator | None) -> None:
    bound = 1 / math.sqrt(fan_in)
    with torch.no_grad():
        for parameter in parameters:
            parameter.uniform_(-bound, bound, generator=generator)


def text_lengths(tokens: Tensor) -> Tensor:
    """``(n,)`` number of columns up to the last word; 0 for an empty text.

    >>> text_lengths(torch.tensor([[4, 2, 0], [0, 0, 0], [1, 1, 1]])).tolist()
    [2, 0, 3]
    """
    places = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    if tokens.shape[1] == 0:
        return torch.zeros(tokens.shape[0], dtype=torch.int64, device=tokens.device)
    return ((tokens != PADDING) * places).amax(dim=1)


def in_length_buckets(encode: Callable[[Tensor, Tensor], Tensor], embedded: Tensor, lengths: Tensor) -> Tensor:
    """``encode(embedded, lengths)``, run on a few groups of texts of similar length, each cut to its longest.

    The groups partition the batch, so the result is that of one call for any encoder that ignores padding.
    On a GPU one padded call is faster, and on one bucket nothing is sorted.
    """
    num_buckets = min(MOST_BUCKETS, embedded.shape[0] // ROWS_A_BUCKET)
    if num_buckets < 2 or embedded.is_cuda:
        return encode(embedded, lengths)
    order = torch.argsort(lengths, stable=True)
    parts = []
    for rows in order.chunk(num_buckets):
        longest = max(int(lengths[rows[-1]]), 1)
        parts.append(encode(embedded[rows, :longest], lengths[rows]))
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    return torch.cat(parts)[back]
