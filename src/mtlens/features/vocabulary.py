"""Words to integer codes, found on train rows and saved with the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mtlens.arrays import Array, IntArray
from mtlens.errors import InputError
from mtlens.features.tokens import Corpus

PAD, UNKNOWN, SEPARATOR, EMPTY = range(4)
SPECIALS = ("<pad>", "<unk>", "<sep>", "<empty>")  # no tokenizer output: '<' is always a token of its own


class Vocabulary:
    """A fixed list of words. Codes 0 to 3 are padding, unknown word, separator of a pair, and empty text.

    >>> words = Vocabulary(["good", "bad"])
    >>> words.code("good"), words.code("ugly"), len(words)
    (4, 1, 6)
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words: tuple[str, ...] = tuple(words)
        self._code = {word: code for code, word in enumerate((*SPECIALS, *self.words))}
        if len(self._code) != len(self.words) + len(SPECIALS):
            raise InputError(
                "a vocabulary needs distinct words, none of them a special token. Remove the repeated ones."
            )

    @classmethod
    def fit(
        cls,
        corpora: Sequence[tuple[Corpus, Array | None]],
        *,
        min_count: int = 1,
        max_words: int | None = None,
        also: Iterable[str] = (),
    ) -> Vocabulary:
        """Words of the given rows of some corpora, most frequent first (ties by spelling), then those of ``also``."""
        totals: dict[str, int] = {}
        for corpus, rows in corpora:
            counts = corpus.counts(rows)
            for place in np.flatnonzero(counts):
                word = corpus.words[place]
                totals[word] = totals.get(word, 0) + int(counts[place])
        ranked = sorted((w for w, n in totals.items() if n >= min_count), key=lambda w: (-totals[w], w))
        kept = dict.fromkeys(ranked[:max_words])
        kept.update(dict.fromkeys(also))
        return cls(word for word in kept if word not in SPECIALS)

    def __len__(self) -> int:
        return len(self._code)

    def __contains__(self, word: object) -> bool:
        return word in self._code

    def code(self, word: str) -> int:
        return self._code.get(word, UNKNOWN)

    def codes(self, words: Iterable[str]) -> IntArray:
        """Code of each word; ``UNKNOWN`` for a word that is not in the list."""
        known = self._code
        return np.array([known.get(word, UNKNOWN) for word in words], dtype=np.int64)
