"""Texts to words: one tokenizer, and a column of texts held as integer codes.

The tokenizer lower-cases, folds compatibility forms (full-width letters, ligatures, curly apostrophes), and splits
punctuation and clitics as the Penn treebank does: ``don't`` is ``do n't``, ``it's`` is ``it 's``. Hyphenated words,
abbreviations such as ``u.s.`` and numbers such as ``1,000`` stay whole. It finds as much of GloVe's vocabulary in the
project's data sets as any tokenizer is known to (tested).
"""

from __future__ import annotations

import re
import unicodedata
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from scipy import sparse

from mtlens.arrays import Array, FloatArray, IntArray
from mtlens.errors import InputError

_TOKEN = re.compile(
    r"""
      n't\b | '(?:s|m|d|re|ve|ll)\b        # clitics
    | (?:[^\W\d_]\.){2,}                   # u.s.
    | (?:mr|mrs|ms|dr|jr|sr|st|vs)\.
    | \d+(?:[.,]\d+)+                      # 1,000 and 3.5
    | [^\W_]+(?:-[^\W_]+)*                 # words, hyphenated ones whole
    | \.{3} | -- | `` | ''
    | [^\w\s] | _                          # any other character is a token of its own
    """,
    re.VERBOSE,
)
_NEGATION = re.compile(r"(?<=[^\W\d_])n't\b")
_SURROGATE = re.compile("[\ud800-\udfff]")


def tokenize(text: str) -> list[str]:
    """The words of a text, lower-cased; an empty or blank text has none.

    >>> tokenize("It’s GOOD, but they don't re-use U.S. data (1,000 rows)...")
    ['it', "'s", 'good', ',', 'but', 'they', 'do', "n't", 're-use', 'u.s.', 'data', '(', '1,000', 'rows', ')', '...']
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _SURROGATE.sub("\ufffd", text)).replace("\u2019", "'")
    return _TOKEN.findall(_NEGATION.sub(" n't", text.lower()))


def as_texts(column: Iterable[Any], where: str = "text") -> list[str]:
    """A column as a list of str: a missing text is an empty one; bytes are refused, for their encoding is unknown."""
    texts = ["" if text is None else text for text in column]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            hint = "Decode it first, e.g. with .decode('utf-8')." if isinstance(text, bytes) else "Give text or None."
            raise InputError(f"{where}: row {row} holds {text!r:.60}, a {type(text).__name__}, not a text. {hint}")
    return texts


@dataclass(frozen=True)
class Corpus:
    """A column of texts as codes into its own list of distinct words, in order of first use.

    ``ids[offsets[i]:offsets[i + 1]]`` are the codes of text i. Counting, recoding and averaging are array operations,
    so fitting on another choice of rows costs nothing like tokenizing again.
    """

    words: tuple[str, ...]
    ids: IntArray
    offsets: IntArray

    @classmethod
    def of(cls, column: Array | Sequence[str | None]) -> Corpus:
        """Tokenize a column; an array that was seen before is not tokenized again."""
        return _CORPORA.of((column,), _tokenized) if isinstance(column, np.ndarray) else _tokenized(column)

    @classmethod
    def joined(cls, columns: Sequence[Array], separator: str | None = None) -> Corpus:
        """Row by row the texts of several columns one after another, with a separator token between if given."""
        corpora = [cls.of(column) for column in columns]
        if len(corpora) == 1:
            return corpora[0]
        words, codes = _merged_words(corpora, separator)
        pieces: list[tuple[IntArray, IntArray]] = []
        for i, corpus in enumerate(corpora):
            if i and separator is not None:
                ones = np.ones(corpus.num_texts, dtype=np.int64)
                pieces.append((np.full(corpus.num_texts, words[separator]), ones))
            pieces.append((codes[i][corpus.ids], corpus.lengths))
        return cls(tuple(words), *_interleaved(pieces))

    @property
    def num_texts(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> IntArray:
        """Number of words of each text."""
        return np.diff(self.offsets)

    @cached_property
    def rows(self) -> IntArray:
        """The text that each entry of ``ids`` belongs to."""
        return np.repeat(np.arange(self.num_texts), self.lengths)

    def counts(self, rows: Array | None = None) -> IntArray:
        """How often each word occurs in the given texts."""
        if rows is None:
            return np.bincount(self.ids, minlength=len(self.words)).astype(np.int64)
        times = np.bincount(np.asarray(rows, dtype=np.int64), minlength=self.num_texts)
        found = np.bincount(self.ids, weights=times[self.rows].astype(np.float64), minlength=len(self.words))
        return found.astype(np.int64)

    def matrix(self, columns: IntArray, width: int) -> sparse.csr_array:
        """Word counts ``(texts, width)``; word w counts in column ``columns[w]``, and nowhere when that is -1."""
        place = columns[self.ids]
        kept = place >= 0
        ones: FloatArray = np.ones(int(kept.sum()))
        return sparse.csr_array((ones, (self.rows[kept], place[kept])), shape=(self.num_texts, width))


def _tokenized(column: Iterable[Any]) -> Corpus:
    codes: defaultdict[str, int] = defaultdict()
    codes.default_factory = codes.__len__
    ids: list[int] = []
    offsets = [0]
    for text in as_texts(column):
        ids.extend([codes[word] for word in tokenize(text)])
        offsets.append(len(ids))
    return Corpus(tuple(codes), np.array(ids, dtype=np.int64), np.array(offsets, dtype=np.int64))


def _merged_words(corpora: Sequence[Corpus], separator: str | None) -> tuple[dict[str, int], list[IntArray]]:
    """One word list for several corpora, and each corpus's codes in it."""
    words: dict[str, int] = {} if separator is None else {separator: 0}
    codes = [np.array([words.setdefault(w, len(words)) for w in c.words], dtype=np.int64) for c in corpora]
    return words, codes


def _interleaved(pieces: Sequence[tuple[IntArray, IntArray]]) -> tuple[IntArray, IntArray]:
    """Ragged columns (flat values, lengths) laid row by row behind one another: flat values and offsets."""
    lengths = np.stack([length for _, length in pieces], axis=1)  # (texts, pieces)
    starts = np.concatenate([[0], np.cumsum(lengths.ravel())])  # of every (text, piece)
    flat = np.empty(starts[-1], dtype=np.int64)
    for i, (values, length) in enumerate(pieces):
        first = np.concatenate([[0], np.cumsum(length)[:-1]]) if len(length) else np.empty(0, dtype=np.int64)
        own = starts[:-1].reshape(lengths.shape)[:, i]
        flat[np.repeat(own - first, length) + np.arange(len(values))] = values
    return flat, np.concatenate([[0], np.cumsum(lengths.sum(axis=1))])


T = TypeVar("T")


class _Memo(Generic[T]):
    """Results kept for as long as the arrays they were made from live; arrays are not changed in place here."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, ...], T] = {}

    def of(self, arrays: tuple[Array, ...], make: Callable[..., T]) -> T:
        key = tuple(id(array) for array in arrays)
        if key not in self._kept:
            self._kept[key] = make(*arrays)
            for array in arrays:
                weakref.finalize(array, self._kept.pop, key, None)
        return self._kept[key]


_CORPORA: _Memo[Corpus] = _Memo()
