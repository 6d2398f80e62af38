"""Texts as padded rows of word codes, for trunks that read words one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from mtlens.arrays import Array, IntArray
from mtlens.errors import InputError
from mtlens.features.state import State
from mtlens.features.tokens import Corpus
from mtlens.features.vectors import EmbeddingTable, Vectors
from mtlens.features.views import View
from mtlens.features.vocabulary import EMPTY, PAD, SEPARATOR, SPECIALS, UNKNOWN, Vocabulary

Keep: TypeAlias = Literal["table", "seen"]
Codes: TypeAlias = npt.NDArray[np.int32]
SEPARATOR_WORD = SPECIALS[SEPARATOR]


@dataclass(frozen=True)
class Tokens:
    """``ids`` (m, L) int32, padded with 0 behind each text; ``lengths`` (m,) int32, at least 1, at most L."""

    ids: Codes
    lengths: Codes

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Any) -> Tokens:
        """The given rows, cut to the longest of them."""
        lengths = self.lengths[rows]
        return Tokens(self.ids[rows][:, : lengths.max(initial=1)], lengths)


class TokenFeaturizer:
    """Text columns to word codes, with a vocabulary fitted on train rows and saved with the model.

    The texts of a row's text columns follow one another with a separator between, so tasks with one text and with
    pairs share a trunk. A text of no words is the one token ``<empty>``, so every row has a last real token. Words
    beyond ``max_length`` are cut off; how many train texts that touches is said.

    Args:
        vectors: pretrained vectors; None leaves the embedding to be learned from scratch, ``dim`` wide.
        dim: width of an embedding learned from scratch.
        min_count: train occurrences a word needs to get a code of its own; the rest are ``<unk>``. Words of the
            vector table need none.
        max_words: most train words, the most frequent.
        keep: ``table`` gives every word of the vector table a code, so that words no train text held keep their
            vectors; ``seen`` only the train words.
        max_length: longest row, in tokens.

    Attributes:
        vocabulary: the codes. width: how many there are. found: lines to say.
        vectors: ``(width, dim)`` float32, the embedding's first value (padding and ``<empty>`` are zero, ``<unk>`` is
            the table's mean, train words it lacks get :meth:`EmbeddingTable.filled`'s); None from scratch.
    """

    def __init__(
        self,
        *,
        vectors: EmbeddingTable | None = None,
        dim: int = 100,
        min_count: int = 1,
        max_words: int | None = None,
        keep: Keep = "table",
        max_length: int = 256,
    ) -> None:
        if dim < 1 or min_count < 1 or max_length < 1:
            raise InputError(
                f"TokenFeaturizer: dim={dim}, min_count={min_count} and max_length={max_length} must be at least 1."
            )
        if keep not in ("table", "seen"):
            raise InputError(f"TokenFeaturizer: keep={keep!r} is not known. Use 'table' or 'seen'.")
        self.table = vectors
        self.dim = dim if vectors is None else vectors.dim
        self.min_count, self.max_words, self.max_length = min_count, max_words, max_length
        self.keep: Keep = keep
        self.columns: tuple[str, ...] = ()
        self.vocabulary = Vocabulary([])
        self.vectors: Vectors | None = None
        self.found: tuple[str, ...] = ()

    def fit(self, X: Any, rows: Any = None) -> TokenFeaturizer:
        """Learn the vocabulary from the given rows of one input; None = all."""
        return self.fit_views([View.of(X, rows)])

    def fit_views(self, views: Sequence[View], *, match: Any = "same") -> TokenFeaturizer:
        """Learn from several inputs; ``match`` is taken for symmetry, for texts need no common columns."""
        self.columns = _text_names(views)
        corpora = [(self._corpus(view), view.rows) for view in views]
        also = self.table.words if self.table is not None and self.keep == "table" else ()
        self.vocabulary = Vocabulary.fit(corpora, min_count=self.min_count, max_words=self.max_words, also=also)
        self.vectors = self._first_vectors()
        self.found = self._say(views, corpora)
        return self

    def _corpus(self, view: View) -> Corpus:
        return Corpus.joined(view.texts(self.columns), SEPARATOR_WORD)

    def _first_vectors(self) -> Vectors | None:
        if self.table is None:
            return None
        out = np.zeros((len(self.vocabulary), self.dim), dtype=np.float32)
        out[UNKNOWN] = self.table.vectors.mean(axis=0)
        out[len(SPECIALS) :] = self.table.filled(self.vocabulary.words)
        out[SEPARATOR] = self.table.filled([SEPARATOR_WORD])[0]
        return out

    def _say(self, views: Sequence[View], corpora: Sequence[tuple[Corpus, Array | None]]) -> tuple[str, ...]:
        if self.table is None:
            source = f"embeddings of {self.dim} columns learned from scratch, as no word vectors are given"
        else:
            share = 100 * _share_known(self.table, corpora)
            source = f"pretrained {self.dim}-dimensional word vectors that know {share:.1f} % of the train texts' words"
        lines = [f"text: {len(self.vocabulary)} words, {source}"]
        lengths = np.concatenate([c.lengths if rows is None else c.lengths[rows] for c, rows in corpora])
        cut = int((lengths > self.max_length).sum())
        if cut:
            lines.append(
                f"{cut} of {len(lengths)} train texts have more than {self.max_length} words; the rest is cut off"
            )
        unread = dict.fromkeys(name for view in views for name, kind in view.kinds.items() if kind != "text")
        if unread:
            lines.append(f"this trunk reads texts only; left out: {', '.join(list(unread)[:10])}")
        return tuple(lines)

    @property
    def width(self) -> int:
        return len(self.vocabulary)

    def transform(self, X: Any) -> Tokens:
        """Codes of every row of a task or of any inputs with text columns."""
        if not self.found:
            raise InputError("this TokenFeaturizer is not fitted. Call fit on train rows first.")
        corpus = self._corpus(View.of(X))
        codes = self.vocabulary.codes(corpus.words)
        return _padded(codes[corpus.ids], corpus.offsets, self.max_length)

    def state(self) -> State:
        settings = {name: getattr(self, name) for name in ("dim", "min_count", "max_words", "keep", "max_length")}
        arrays: dict[str, Array] = {} if self.vectors is None else {"vectors": self.vectors}
        meta = {
            "class": "TokenFeaturizer",
            "settings": settings,
            "columns": list(self.columns),
            "found": list(self.found),
        }
        return State(arrays, {**meta, "words": list(self.vocabulary.words)})

    @classmethod
    def from_state(cls, state: State) -> TokenFeaturizer:
        new = cls(**state.meta["settings"])
        new.columns, new.found = tuple(state.meta["columns"]), tuple(state.meta["found"])
        new.vocabulary = Vocabulary(state.meta["words"])
        new.vectors = state.arrays.get("vectors")
        return new


def _text_names(views: Sequence[View]) -> tuple[str, ...]:
    """Names of the text columns when every view has the same ones; () when they go by different names."""
    names = [tuple(name for name, kind in view.kinds.items() if kind == "text") for view in views]
    for view, own in zip(views, names, strict=True):
        if not own:
            kinds = ", ".join(sorted(set(view.kinds.values()))) or "an array"
            raise InputError(
                f"{view.where} has no text column (it holds {kinds}), and this trunk reads words. "
                'Name one with text = "...", or use trunk="mlp".'
            )
    return names[0] if len({frozenset(own) for own in names}) == 1 else ()


def _share_known(table: EmbeddingTable, corpora: Sequence[tuple[Corpus, Array | None]]) -> float:
    """Share of the running words of the given rows that have a pretrained vector; 1 where there are no words."""
    counted = [(corpus.counts(rows), table.knows(corpus.words)) for corpus, rows in corpora]
    total = sum(int(counts.sum()) for counts, _ in counted)
    return sum(int(counts[known].sum()) for counts, known in counted) / total if total else 1.0


def _padded(flat: IntArray, offsets: IntArray, longest: int) -> Tokens:
    """Ragged rows as one padded matrix; empty rows become the one token EMPTY."""
    full = np.diff(offsets)
    lengths = np.minimum(full, longest)
    width = int(max(lengths.max(initial=1), 1))
    ids = np.full((len(lengths), width), PAD, dtype=np.int32)
    row = np.repeat(np.arange(len(lengths)), full)
    place = np.arange(len(flat)) - np.repeat(offsets[:-1], full)
    kept = place < longest
    ids[row[kept], place[kept]] = flat[kept]
    ids[lengths == 0, 0] = EMPTY
    return Tokens(ids, np.maximum(lengths, 1).astype(np.int32))


def by_length(lengths: Array, batch: int) -> list[IntArray]:
    """All rows in batches of like length, shortest first: for scoring, where order does not matter."""
    order = np.argsort(lengths, kind="stable").astype(np.int64)
    return [order[start : start + batch] for start in range(0, len(order), batch)]


def bucketed_batches(lengths: Array, batch: int, rng: np.random.Generator, *, pool: int = 50) -> list[IntArray]:
    """All rows once, in random batches of like length: for training.

    Rows are shuffled, every ``pool`` batches of them sorted by length and cut into batches, and the batches shuffled.
    Each epoch of random batches stays random, but rows of one batch are alike in length: not the distribution of plain
    shuffling, which ``pool=1`` gives.

    >>> batches = bucketed_batches(np.array([1, 9, 2, 8]), 2, np.random.default_rng(0))
    >>> sorted(sorted(b.tolist()) for b in batches)
    [[0, 2], [1, 3]]
    """
    order = rng.permutation(len(lengths))
    batches: list[IntArray] = []
    for start in range(0, len(order), batch * pool):
        some = order[start : start + batch * pool]
        if pool > 1:
            some = some[np.argsort(np.asarray(lengths)[some], kind="stable")]
        batches += [some[i : i + batch] for i in range(0, len(some), batch)]
    return [batches[i] for i in rng.permutation(len(batches))]
