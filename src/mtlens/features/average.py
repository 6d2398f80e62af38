"""A text as the mean of its words' pretrained vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from mtlens.arrays import Array, FloatArray
from mtlens.features.state import State
from mtlens.features.tokens import Corpus
from mtlens.features.vectors import EmbeddingTable


class WordAverage:
    """Mean vector of the words that the table knows; the others are left out, and a text with none is zero.

    Nothing is fitted: the table comes from elsewhere and is saved whole with the model, so that words no train text
    held keep their vectors.

    >>> table = EmbeddingTable(("good", "bad"), np.array([[1.0, 0.0], [-1.0, 2.0]], dtype=np.float32))
    >>> WordAverage(table).encode([np.array(["good bad film", ""], dtype=object)]).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """

    unit_columns = True

    def __init__(self, table: EmbeddingTable) -> None:
        self.table = table

    def fit(self, parts: Sequence[tuple[Sequence[Array], Array | None]]) -> WordAverage:
        return self

    @property
    def width(self) -> int:
        return self.table.dim

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"mean[{i}]" for i in range(self.width))

    def encode(self, columns: Sequence[Array]) -> FloatArray:
        """``(texts, dim)`` means; several columns are read as one text."""
        corpus = Corpus.joined(columns)
        vectors, known = self.table.lookup(corpus.words)
        counts: sparse.csr_array = corpus.matrix(np.where(known, np.arange(len(corpus.words)), -1), len(corpus.words))
        sums: FloatArray = counts @ vectors.astype(np.float64)
        number = np.asarray(counts.sum(axis=1), dtype=np.float64).reshape(-1, 1)
        return sums / np.maximum(number, 1.0)

    def describe(self) -> str:
        return f"mean of {self.width}-dimensional word vectors ({len(self.table)} words)"

    def state(self) -> State:
        return State({"vectors": self.table.vectors}, {"class": "WordAverage", "words": list(self.table.words)})

    @classmethod
    def from_state(cls, state: State) -> WordAverage:
        return cls(EmbeddingTable(tuple(state.meta["words"]), state.arrays["vectors"].astype(np.float32)))
