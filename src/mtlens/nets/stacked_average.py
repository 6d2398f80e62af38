"""Many averaging text trunks as one, over frozen word vectors or each with a table of its own that is trained.

The second is for a CPU, where autograd and sparse gradients cost more than the arithmetic of such a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from mtlens.errors import TrainingError
from mtlens.nets.dense import StackedDense
from mtlens.nets.embedding import PADDING
from mtlens.nets.family import Align, Capacity, StackedTrunk

TABLE = "embedding.weight"


class StackedMean(StackedDense):
    """A stack of `MeanTrunk`: dense layers of one width each, under that trunk's names."""

    def __init__(self, inputs: int, units: int, depth: int) -> None:
        super().__init__([inputs, *[units] * depth], relu=True, bias=True)
        self.depth = depth

    def pack(self, values: Mapping[str, Tensor], capacity: Capacity) -> Tensor:
        return super().pack({name.removeprefix("encoder."): value for name, value in values.items()}, capacity)

    def unpack(self, row: Tensor, capacity: Capacity) -> dict[str, Tensor]:
        units = capacity[0] if isinstance(capacity, tuple) else capacity
        return {f"encoder.{name}": value for name, value in super().unpack(row, (units,) * self.depth).items()}


class StackedAverage(StackedTrunk):
    """A stack of averaging text trunks, each with a table of word vectors ``E (V, d)`` of its own that is trained.

    A text of the words ``w_1 ... w_n`` has the mean ``M = (E_{w_1} + ... + E_{w_n}) / n``, zero for an empty text; the
    layers above are :class:`StackedMean`'s. Backward, every place of a word in a text adds ``dM / n`` to ``dE_w``. A
    row of parameters holds the layers, then the table.

    The gradient of a table is zero but for the words of the batch: a step clears those of the step before, so it never
    touches the whole. Alignments are not for it: the table's gradient would have to pass through them.
    """

    def __init__(self, vocabulary: int, inputs: int, units: Sequence[int], depth: int) -> None:
        self.layers = StackedMean(inputs, max(units), depth)
        self.shape = (vocabulary, inputs)
        self.out_features = self.layers.out_features
        self.num_parameters = self.layers.num_parameters + vocabulary * inputs
        self._words: list[Tensor] = []  # of the last batch, a tensor a member
        self._counts = torch.empty(0)
        self._written: tuple[Tensor | None, list[Tensor]] = (None, [])  # gradient last written, and where

    def pack(self, values: Mapping[str, Tensor], capacity: Capacity) -> Tensor:
        return torch.cat([self.layers.pack(values, capacity), values[TABLE].flatten()])

    def unpack(self, row: Tensor, capacity: Capacity) -> dict[str, Tensor]:
        return self.layers.unpack(row, capacity) | {TABLE: self._tables(row[None])[0].clone()}

    def _tables(self, parameters: Tensor) -> Tensor:
        """``(S, V, d)``, a view."""
        return parameters[:, self.layers.num_parameters :].view(len(parameters), *self.shape)

    def forward(self, parameters: Tensor, X: Tensor, align: Align | None = None) -> Tensor:
        """``X (S, R, L)`` token ids to ``(S, R, units)``."""
        if align is not None:
            raise TrainingError("StackedAverage has no alignments. Train aligned averages with tables one by one.")
        ids = X.long()
        known = ids != PADDING
        self._counts = known.sum(2)  # (S, R)
        ends = self._counts.cumsum(1)
        self._words = [own[here] for own, here in zip(ids, known, strict=True)]  # text after text, without padding
        tables = self._tables(parameters)
        sums = [
            functional.embedding_bag(words, table, starts, mode="sum")
            for words, table, starts in zip(self._words, tables, ends - self._counts, strict=True)
        ]
        return self.layers.forward(parameters, torch.stack(sums).div_(self._divisors()))

    def _divisors(self) -> Tensor:
        """``(S, R, 1)`` words of every text; 1 for an empty one, whose sum is zero."""
        return self._counts.clamp(min=1).unsqueeze(2)

    def backward(
        self, parameters: Tensor, grad_features: Tensor, grad: Tensor | None, *, grad_input: bool
    ) -> Tensor | None:
        if grad is None:  # the trunk stays, and token ids have no gradient
            return None
        below = self.layers.backward(parameters, grad_features, grad, grad_input=True)
        assert below is not None
        tables = self._tables(grad)
        self._clear(grad, tables)
        below = below.div_(self._divisors())
        for words, table, slope, counts in zip(self._words, tables, below, self._counts, strict=True):
            table.index_add_(0, words, torch.repeat_interleave(slope, counts, 0))
        self._written = (grad, self._words)
        return None

    def _clear(self, grad: Tensor, tables: Tensor) -> None:
        """Zero what the last step left in the tables' gradient; all of it when that was another tensor."""
        last, words = self._written
        if last is not grad:
            tables.zero_()
            return
        for table, own in zip(tables, words, strict=True):
            table.index_fill_(0, own, 0.0)
