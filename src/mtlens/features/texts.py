"""Text columns to numbers: any of the room's text encoders, for one text or a pair, brought to one scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from mtlens.arrays import Array, BoolArray, FloatArray
from mtlens.errors import InputError
from mtlens.features.state import State, nested
from mtlens.features.tfidf import TfIdf
from mtlens.features.views import View

Pairs: TypeAlias = Literal["auto", "joined", "combined"]
PARTS = 4  # of combined pairs


class TextEncoder(Protocol):
    """What turns text columns into numbers: ``TfIdf``, ``WordAverage`` and ``FrozenEncoder`` do."""

    unit_columns: bool  # whether every output column gets a scale of its own, or all of them one

    @property
    def width(self) -> int: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    def fit(self, parts: Sequence[tuple[Sequence[Array], Array | None]]) -> Any:
        """Learn from text columns and train rows of each task."""

    def encode(self, columns: Sequence[Array]) -> FloatArray:
        """``(texts, width)``; several columns are read as one text."""

    def describe(self) -> str: ...

    def state(self) -> State: ...


class TextColumns:
    """The text columns of every task as one block of numbers, centred and scaled on train rows.

    ``joined`` reads all text columns of a row as one text, so that tasks with one and with two columns share a space.
    ``combined`` encodes the two texts of a pair apart, u and v, and gives ``[u, v, |u - v|, u * v]``; TF-IDF then keeps
    a quarter of its words, so that a pair has no more columns than one text (closed forms cost their cube: sixty times
    as long for what was hardly better on RTE).
    ``auto`` combines when every task has two text columns, and joins otherwise.
    """

    def __init__(self, columns: Sequence[str], encoder: TextEncoder, *, pairs: Pairs, scale: bool) -> None:
        if pairs not in ("auto", "joined", "combined"):
            raise InputError(f"pairs={pairs!r} is not known. Use 'auto', 'joined' or 'combined'.")
        self.columns = tuple(columns)
        self.given = self.encoder = encoder
        self.pairs: Pairs = pairs
        self.scale = scale
        self.mean: FloatArray = np.empty(0)
        self.std: FloatArray = np.empty(0)
        self.found: tuple[str, ...] = ()

    def fit(self, views: Sequence[View]) -> TextColumns:
        columns = [view.texts(self.columns) for view in views]
        counts = {len(c) for c in columns}
        if self.pairs == "auto":
            self.pairs = "combined" if counts == {2} else "joined"
        elif self.pairs == "combined" and counts != {2}:
            raise InputError(
                f"pairs='combined' needs two text columns in every task, found {sorted(counts)}. Use 'joined'."
            )
        self.encoder = self.given
        if self.pairs == "combined" and isinstance(self.given, TfIdf):
            self.encoder = self.given.with_features(max(self.given.max_features // PARTS, 1))
        self.encoder.fit([(c, view.rows) for c, view in zip(columns, views, strict=True)])
        self.found = (f"text: {self.encoder.describe()}" + (", pairs combined" if self.pairs == "combined" else ""),)
        self._fit_scale(views)
        return self

    def _fit_scale(self, views: Sequence[View]) -> None:
        if not self.scale:
            self.mean, self.std = np.zeros(self.width), np.ones(self.width)
            return
        total, squares, rows = np.zeros(self.width), np.zeros(self.width), 0
        blocks = [self._encoded(view) for view in views]
        blocks = [b if v.rows is None else b[v.rows] for b, v in zip(blocks, views, strict=True)]
        for block in blocks:
            total += block.sum(axis=0)
            rows += len(block)
        self.mean = total / max(rows, 1)
        for block in blocks:
            squares += ((block - self.mean) ** 2).sum(axis=0)
        variance = squares / max(rows, 1)
        if not self.encoder.unit_columns:
            variance = np.full(self.width, variance.mean())
        dead: BoolArray = variance <= 1e-24
        self.std = np.where(dead, 1.0, np.sqrt(variance))

    @property
    def width(self) -> int:
        return self.encoder.width * (PARTS if self.pairs == "combined" else 1)

    @property
    def names(self) -> tuple[str, ...]:
        if self.pairs != "combined":
            return tuple(f"text: {name}" for name in self.encoder.names)
        return tuple(f"{part}: {name}" for part in ("u", "v", "|u-v|", "u*v") for name in self.encoder.names)

    def _encoded(self, view: View) -> FloatArray:
        columns = view.texts(self.columns)
        if self.pairs != "combined":
            return self.encoder.encode(columns)
        if len(columns) != 2:
            raise InputError(f"{view.where} has {len(columns)} text columns; these features were fitted on pairs.")
        u, v = self.encoder.encode(columns[:1]), self.encoder.encode(columns[1:])
        return np.concatenate([u, v, np.abs(u - v), u * v], axis=1)

    def write(self, view: View, out: FloatArray) -> None:
        out[:] = (self._encoded(view) - self.mean) / self.std

    def state(self) -> State:
        own = State({"mean": self.mean, "std": self.std}, {})
        return nested(
            {"encoder": self.encoder.state(), "own": own},
            columns=list(self.columns),
            pairs=self.pairs,
            scale=self.scale,
            found=list(self.found),
        )

    @classmethod
    def from_state(cls, state: State, encoder: TextEncoder | None = None) -> TextColumns:
        encoder = encoder or encoder_from(state.part("encoder"))
        new = cls(state.meta["columns"], encoder, pairs=state.meta["pairs"], scale=state.meta["scale"])
        own = state.part("own")
        new.mean, new.std, new.found = own.arrays["mean"], own.arrays["std"], tuple(state.meta["found"])
        return new


def encoder_from(state: State) -> TextEncoder:
    """The text encoder that a state belongs to."""
    from mtlens.features.average import WordAverage
    from mtlens.features.encoder import FrozenEncoder

    classes: dict[str, Any] = {"TfIdf": TfIdf, "WordAverage": WordAverage, "FrozenEncoder": FrozenEncoder}
    name = state.meta["class"]
    if name not in classes:
        raise InputError(f"saved features name the text encoder {name!r}; this version knows {', '.join(classes)}.")
    encoder: TextEncoder = classes[name].from_state(state)
    return encoder
