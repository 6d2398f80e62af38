"""Pretrained word vectors, GloVe style: read from files, and looked up with a defined answer for unknown words."""

from __future__ import annotations

import gzip
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mtlens.arrays import BoolArray
from mtlens.errors import FileError, InputError

Vectors: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class EmbeddingTable:
    """Words and their vectors ``(n, dim)``, float32."""

    words: tuple[str, ...]
    vectors: Vectors

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or len(self.words) != len(self.vectors) or self.vectors.shape[1] == 0:
            raise InputError(f"word vectors: {len(self.words)} words need as many rows, found {self.vectors.shape}.")
        if not len(self.words):
            raise InputError("word vectors: the table is empty. Give at least one word.")
        bad = np.flatnonzero(~np.isfinite(self.vectors).all(axis=1))
        if len(bad):
            raise InputError(f"word vectors: the vector of {self.words[bad[0]]!r} is not finite. Remove that word.")

    @classmethod
    def load(cls, path: str | Path) -> EmbeddingTable:
        """Read ``.npz`` (arrays ``words`` and ``vectors``, no pickles) or text, ``word v1 v2 ...`` a line (or ``.gz``).

        A word2vec header line (``count dim``) says the dimension, which otherwise the first line does; words may hold
        spaces, and of repeated words the first counts. Anything else that is not a table of finite numbers is refused
        with its line.
        """
        path = Path(path)
        if not path.is_file():
            raise FileError(
                f"word vectors: no file {path}. Give a GloVe-style .txt(.gz) or an .npz of words and vectors."
            )
        try:
            with np.errstate(over="ignore"):  # too large for float32: refused below as not finite, with its word
                words, vectors = _read_npz(path) if path.suffix.lower() == ".npz" else _read_text(path)
        except UnicodeDecodeError as error:
            raise FileError(
                f"word vectors: {path.name} cannot be read as UTF-8 text ({error}). Save it as UTF-8."
            ) from error
        except (EOFError, OSError, zlib.error) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(
                f"word vectors: {path.name} cannot be read ({error}). It is damaged or of another sort: get it again."
            ) from error
        first = dict(zip(reversed(words), range(len(words) - 1, -1, -1), strict=True))
        if len(first) < len(words):
            keep = sorted(first.values())
            words, vectors = [words[i] for i in keep], vectors[keep]
        return cls(tuple(words), vectors)

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    @cached_property
    def places(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words)}

    @cached_property
    def identity(self) -> str:
        """Hash of the words and their vectors: tables with the same one are the same, wherever they came from."""
        mark = blake2b("\n".join(self.words).encode("utf-8", "surrogatepass"), digest_size=16)
        mark.update(f"|{self.vectors.shape}|".encode())
        mark.update(np.ascontiguousarray(self.vectors).tobytes())
        return mark.hexdigest()

    def __contains__(self, word: object) -> bool:
        return word in self.places

    def __len__(self) -> int:
        return len(self.words)

    def lookup(self, words: Sequence[str]) -> tuple[Vectors, BoolArray]:
        """Vectors ``(len(words), dim)`` and which words the table knows.

        A word it does not hold is looked up without accents (``clichés``, ``cliches``), then as the mean of its
        hyphenated parts, all of which must be held; failing both its row is zero and it is not known.
        """
        out = np.zeros((len(words), self.dim), dtype=np.float32)
        known = np.zeros(len(words), dtype=bool)
        for row, word in enumerate(words):
            places = self._places_of(word)
            if places:
                known[row] = True
                out[row] = self.vectors[places[0]] if len(places) == 1 else self.vectors[places].mean(axis=0)
        return out, known

    def knows(self, words: Sequence[str]) -> BoolArray:
        """Which words :meth:`lookup` finds."""
        return np.array([bool(self._places_of(word)) for word in words], dtype=bool)

    def _places_of(self, word: str) -> list[int]:
        place = self.places.get(word)
        if place is None and not word.isascii():
            place = self.places.get(without_accents(word))
        if place is not None:
            return [place]
        parts = [part for part in word.split("-") if part] if "-" in word else []
        places = [self.places.get(part) for part in parts]
        return [p for p in places if p is not None] if places and None not in places else []

    def filled(self, words: Sequence[str]) -> Vectors:
        """Vectors for training: words the table does not know get a random one that depends on the word alone.

        Its entries are normal with the table's own spread in every dimension, drawn from a stream seeded by the
        word's bytes: the same word has the same vector in every vocabulary, order and process.
        """
        out, known = self.lookup(words)
        spread = self.vectors.std(axis=0)
        for row in np.flatnonzero(~known).tolist():
            seed = int.from_bytes(
                blake2b(words[row].encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
            )
            out[row] = np.random.default_rng(seed).normal(size=self.dim) * spread
        return out


def without_accents(word: str) -> str:
    """The word with its combining marks taken off: naïve becomes naive."""
    return "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))


def vectors_from(source: EmbeddingTable | str | Path | None) -> EmbeddingTable | None:
    """A table as it is, or read from a path; a file that did not change is read once."""
    if source is None or isinstance(source, EmbeddingTable):
        return source
    path = Path(source)
    return _loaded(path, path.stat().st_mtime_ns) if path.is_file() else EmbeddingTable.load(path)


@lru_cache(maxsize=2)
def _loaded(path: Path, changed: int) -> EmbeddingTable:
    del changed  # only part of the key
    return EmbeddingTable.load(path)


def _read_npz(path: Path) -> tuple[list[str], Vectors]:
    import zipfile

    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise FileError(f"word vectors: {path.name} holds one array and no names. Save words and vectors as .npz.")
        with found as file:
            missing = {"words", "vectors"} - set(file.files)
            if missing:
                names = ", ".join(file.files) or "nothing"
                raise FileError(f"word vectors: {path.name} needs arrays 'words' and 'vectors', found {names}.")
            words, vectors = file["words"], file["vectors"]
    except (ValueError, zipfile.BadZipFile, MemoryError) as error:
        raise FileError(
            f"word vectors: {path.name} is not an .npz of plain arrays ({error}). Pickles are not read."
        ) from error
    if words.dtype.kind != "U" or words.ndim != 1 or vectors.dtype.kind not in "fiu":
        raise FileError(f"word vectors: {path.name} needs texts and numbers, found {words.dtype} and {vectors.dtype}.")
    if vectors.ndim != 2 or len(vectors) != len(words):
        raise FileError(
            f"word vectors: {path.name} needs a row of vectors for each word, found {len(words)} words and vectors of "
            f"shape {vectors.shape}."
        )
    return [str(word) for word in words], vectors.astype(np.float32)


def _read_text(path: Path) -> tuple[list[str], Vectors]:
    words: list[str] = []
    rows: list[Any] = []
    dim = 0
    for number, line in enumerate(_lines(path), start=1):
        cells = line.rstrip().replace("\t", " ").split(" ")
        if number == 1 and len(cells) == 2 and all(cell.isdecimal() for cell in cells):
            dim = int(cells[1])  # word2vec's header: count and dimension
            continue
        if not line.strip():
            continue
        dim = dim or len(cells) - 1
        try:
            if len(cells) <= dim or dim < 1:
                raise ValueError(f"{len(cells) - 1} numbers")
            rows.append(np.array(cells[-dim:], dtype=np.float32))
        except ValueError as error:
            raise FileError(
                f"word vectors: line {number} of {path.name} needs a word and {dim or 'its'} numbers ({error})."
            ) from None
        words.append(" ".join(cells[:-dim]))
    if not rows:
        raise FileError(f"word vectors: {path.name} holds no vectors. A line is a word and its numbers.")
    return words, np.stack(rows)


def _lines(path: Path) -> Iterator[str]:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig", newline="\n") as file:
        lines: Iterable[str] = file
        yield from lines
