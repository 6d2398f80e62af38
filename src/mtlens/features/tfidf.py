"""TF-IDF: the text features that need neither word vectors nor an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from mtlens.arrays import Array, FloatArray, IntArray
from mtlens.errors import InputError
from mtlens.features.state import State
from mtlens.features.tokens import Corpus


class TfIdf:
    r"""Word counts times rarity, rows of unit length.

    .. math:: x_{tw} = n_{tw} \, (\ln\frac{1 + N}{1 + N_w} + 1), \qquad x_t \leftarrow x_t / \|x_t\|

    with ``n`` the count of word w in text t, ``N`` the number of train texts and ``N_w`` those that hold w
    (scikit-learn's ``TfidfVectorizer``, to rounding, with this room's tokenizer). The ``max_features`` words most
    frequent over the train texts are kept, ties by spelling, after words in fewer than ``min_texts`` of them are left
    out. A text without any kept word is the zero vector. Several columns are read as one text.

    >>> tfidf = TfIdf(min_texts=1).fit([([np.array(["good film", "bad film"], dtype=object)], None)])
    >>> tfidf.words, tfidf.encode([np.array(["good good"], dtype=object)]).round(2).tolist()
    (('bad', 'film', 'good'), [[0.0, 0.0, 1.0]])
    """

    unit_columns = False  # its columns share one scale: rare words would be blown up by a scale of their own

    def __init__(self, *, max_features: int = 1000, min_texts: int = 2, sublinear: bool = False) -> None:
        if max_features < 1 or min_texts < 1:
            raise InputError(
                f"TfIdf needs max_features and min_texts of at least 1, found {max_features}, {min_texts}."
            )
        self.max_features = max_features
        self.min_texts = min_texts
        self.sublinear = sublinear
        self.words: tuple[str, ...] = ()
        self.idf: FloatArray = np.empty(0)

    def fit(self, parts: Sequence[tuple[Sequence[Array], Array | None]]) -> TfIdf:
        """``parts``: text columns of each task and its train rows (None = all)."""
        totals: dict[str, IntArray] = {}
        texts = 0
        for columns, rows in parts:
            corpus = Corpus.joined(columns)
            texts += corpus.num_texts if rows is None else len(rows)
            for word, counts in zip(corpus.words, _counts(corpus, rows), strict=True):
                totals[word] = totals[word] + counts if word in totals else counts
        frequent = [w for w, (_, holders) in totals.items() if holders >= self.min_texts]
        frequent.sort(key=lambda w: (-totals[w][0], w))
        self.words = tuple(sorted(frequent[: self.max_features]))
        if not self.words:
            raise InputError(
                f"TF-IDF: no word occurs in {self.min_texts} of the {texts} train texts. "
                "Check that the text column holds text, or lower min_texts."
            )
        holders = np.array([totals[w][1] for w in self.words], dtype=np.float64)
        self.idf = np.log((1 + texts) / (1 + holders)) + 1
        return self

    def with_features(self, most: int) -> TfIdf:
        """Not fitted, with the same settings but ``max_features``."""
        return TfIdf(max_features=most, min_texts=self.min_texts, sublinear=self.sublinear)

    @property
    def width(self) -> int:
        return len(self.words)

    @property
    def names(self) -> tuple[str, ...]:
        return self.words

    def encode(self, columns: Sequence[Array]) -> FloatArray:
        """``(texts, width)`` features."""
        corpus = Corpus.joined(columns)
        place = {word: i for i, word in enumerate(self.words)}
        codes = np.array([place.get(word, -1) for word in corpus.words], dtype=np.int64)
        counts = corpus.matrix(codes, self.width)
        counts.sum_duplicates()
        if self.sublinear:
            counts.data = np.log(counts.data) + 1
        dense: FloatArray = counts.toarray() * self.idf
        norms = np.linalg.norm(dense, axis=1, keepdims=True)
        return dense / np.where(norms > 0, norms, 1.0)

    def describe(self) -> str:
        return f"TF-IDF of the {self.width} most frequent words"

    def state(self) -> State:
        settings = {"max_features": self.max_features, "min_texts": self.min_texts, "sublinear": self.sublinear}
        return State({"idf": self.idf}, {"class": "TfIdf", "settings": settings, "words": list(self.words)})

    @classmethod
    def from_state(cls, state: State) -> TfIdf:
        settings: dict[str, Any] = state.meta["settings"]
        new = cls(**settings)
        new.words = tuple(state.meta["words"])
        new.idf = np.asarray(state.arrays["idf"], dtype=np.float64)
        return new


def _counts(corpus: Corpus, rows: Array | None) -> IntArray:
    """Occurrences of each word and number of texts that hold it, ``(words, 2)``, over some rows."""
    everything: sparse.csr_array = corpus.matrix(np.arange(len(corpus.words)), len(corpus.words))
    everything.sum_duplicates()
    chosen = everything if rows is None else everything[np.asarray(rows, dtype=np.int64)]
    holders = np.bincount(chosen.indices, minlength=len(corpus.words))
    occurrences = np.bincount(chosen.indices, weights=chosen.data, minlength=len(corpus.words))
    return np.stack([occurrences.astype(np.int64), holders.astype(np.int64)], axis=1)
