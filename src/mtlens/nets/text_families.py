"""The families "lstm", "cnn" and "average": text trunks with a capacity, for the engine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from mtlens.errors import InputError, unknown
from mtlens.nets.dense import MLP
from mtlens.nets.embedding import EMBEDDING_MODES, PADDING, EmbeddingMode
from mtlens.nets.family import Capacity, Family, RowSpec, StackedTrunk, register
from mtlens.nets.stacked_average import StackedAverage, StackedMean
from mtlens.nets.stacked_lstm import StackedLstm
from mtlens.nets.streams import stream, torch_stream
from mtlens.nets.text import ENCODERS, MeanTrunk, reset_parameters, text_trunk

Embeddings: TypeAlias = Literal["auto", "frozen", "dense", "rowwise"]
SCRATCH_WIDTH = 100  # of embeddings learned without pretrained vectors
SCRATCH_RANGE = 0.25  # Kim (2014): words without a vector start uniform in this range


class TextFamily(Family):
    """A text trunk, with what the paper or the authors' script may set.

    Args:
        name: "lstm", "cnn" or "average".
        embeddings: "frozen", "dense" (fine-tuned by plain Adam), "rowwise" (fine-tuned by an Adam in which the moments
            of unseen words do not decay: a different algorithm) or "auto": frozen where there are pretrained vectors,
            dense where there are none to freeze.
        vectors: pretrained word vectors in any form ``fit_featurizer`` takes (a path, a table); None = learn them.
        width: columns of embeddings learned from scratch.
        settings: ``depth`` and ``last`` for the LSTM (the authors' script: ``depth=2, last="padded"``), ``widths`` for
            the CNN, ``depth`` for the average.

    >>> TextFamily("lstm", depth=2, last="padded").settings()["last"]
    'padded'
    """

    inputs = "tokens"
    align_at = "encoder"  # an alignment stands between embedding and encoder: the paper's task embeddings

    def __init__(
        self,
        name: str,
        *,
        embeddings: Embeddings = "auto",
        vectors: Any = None,
        width: int = SCRATCH_WIDTH,
        **settings: Any,
    ) -> None:
        if name not in ENCODERS:
            raise unknown("text trunk", name, ENCODERS)
        if embeddings not in ("auto", *EMBEDDING_MODES):
            raise unknown("embedding mode", embeddings, ("auto", *EMBEDDING_MODES))
        self.name = name
        self.embeddings: Embeddings = embeddings
        self.vectors = vectors
        self.width = width
        self.options = settings
        text_trunk(name, torch.zeros(1, 1), 1, **settings)  # a wrong setting is refused here, not at the first step

    def mode(self, rows: RowSpec) -> EmbeddingMode:
        """How the table of these rows is trained."""
        if self.embeddings == "auto":
            return "dense" if rows.vectors is None else "frozen"
        if self.embeddings == "frozen" and rows.vectors is None:
            raise InputError(
                f"trunk {self.name!r}: embeddings='frozen', but there are no word vectors to freeze. "
                "Give vectors=..., or use embeddings='dense' to learn them from scratch."
            )
        return self.embeddings

    @property
    def learns_tables(self) -> bool:
        return self.vectors is None if self.embeddings == "auto" else self.embeddings != "frozen"

    def trunk(self, rows: RowSpec, capacity: Capacity) -> nn.Module:
        if not rows.vocabulary:  # see `averages`
            return MeanTrunk(rows.width, self._units(capacity), depth=self._depth)
        return text_trunk(self.name, self._table(rows), self._units(capacity), mode=self.mode(rows), **self.options)

    def draw(self, rows: RowSpec, capacity: Capacity, seed: int) -> dict[str, Tensor]:
        """Starting values of what is trained; a frozen table is no draw but ``rows.vectors`` itself."""
        encoder = self._draw_encoder(rows, capacity, seed)
        values = {f"encoder.{name}": value for name, value in encoder.items()}
        if rows.vocabulary and self.mode(rows) != "frozen":
            values["embedding.weight"] = self._start_table(rows, seed)
        return values

    def averages(self, rows: RowSpec) -> bool:
        """Averages of frozen vectors are computed once: 26 times the speed of fine-tuning, the same numbers."""
        return self.name == "average" and self.mode(rows) == "frozen"

    def stacked(self, rows: RowSpec, capacities: Sequence[Capacity]) -> StackedTrunk | None:
        units = [self._units(capacity) for capacity in capacities]
        if not rows.vocabulary:
            return StackedMean(rows.width, max(units), self._depth)
        if self.name == "average" and self.mode(rows) == "dense":
            return StackedAverage(rows.vocabulary, self._table(rows).shape[1], units, self._depth)
        is_plain = self.options.get("depth", 1) == 1 and self.options.get("last", "real") == "real"
        if self.name == "lstm" and is_plain and self.mode(rows) == "frozen":
            return StackedLstm(self._table(rows), units)
        return None

    def stacks_on(self, device_type: str) -> bool:
        """Averages anywhere, on a CPU also those with tables of their own; LSTMs on a GPU.

        A CPU core is busy with one LSTM: measured 0.6 to 0.7 of its speed stacked.
        """
        if self.name == "average":
            return device_type == "cpu" or not self.learns_tables
        return self.name == "lstm" and device_type != "cpu"

    @property
    def _depth(self) -> int:
        return int(self.options.get("depth", 2))

    def check(self, capacity: Capacity) -> None:
        super().check(capacity)
        self._units(capacity)

    def settings(self) -> dict[str, Any]:
        options = {key: list(v) if isinstance(v, tuple) else v for key, v in self.options.items()}
        settings = {"name": self.name, "embeddings": self.embeddings, "width": self.width, **options}
        return settings if self.vectors is None else {**settings, "vectors": self._vectors_id}

    @cached_property
    def _vectors_id(self) -> str:
        return _fingerprint(self.vectors)

    def restored(self, settings: Mapping[str, Any]) -> TextFamily:
        """The family with saved settings; its vectors come with the saved featurizer."""
        options = {key: value for key, value in settings.items() if key not in ("name", "vectors")}
        if "widths" in options:
            options["widths"] = tuple(options["widths"])
        return TextFamily(settings["name"], **options)

    def _units(self, capacity: Capacity) -> int:
        sizes = capacity if isinstance(capacity, tuple) else (capacity,)
        if len(sizes) > 1:
            raise InputError(f"trunk {self.name!r} has one width, but capacity={capacity} names {len(sizes)}.")
        return sizes[0]

    def _table(self, rows: RowSpec) -> Tensor:
        """``(V, d)`` pretrained vectors sharing the featurizer's memory, or zeros to be filled by `draw`."""
        if rows.vectors is None:
            return torch.zeros(rows.vocabulary, self.width)
        return torch.from_numpy(rows.vectors) if rows.vectors.flags.writeable else torch.tensor(rows.vectors)

    def _start_table(self, rows: RowSpec, seed: int) -> Tensor:
        if rows.vectors is not None:
            return torch.from_numpy(rows.vectors.astype(np.float64))
        draws = stream(seed, "embedding").uniform(-SCRATCH_RANGE, SCRATCH_RANGE, (rows.vocabulary, self.width))
        draws[PADDING] = 0
        return torch.from_numpy(draws)

    def _draw_encoder(self, rows: RowSpec, capacity: Capacity, seed: int) -> dict[str, Tensor]:
        if not rows.vocabulary:
            width = rows.width
        else:
            width = self.width if rows.vectors is None else rows.vectors.shape[1]
        units = self._units(capacity)
        if self.name == "average":  # start as the family "mlp" does on the averages, so that both ways train alike
            return MLP.draw(RowSpec((width,)), (units,) * self._depth, seed)
        encoder: nn.Module = ENCODERS[self.name](width, units, **self.options).double()
        reset_parameters(encoder, torch_stream(seed, "encoder"))
        return {name: value.detach() for name, value in encoder.state_dict().items()}


def _fingerprint(vectors: Any) -> str:
    """What tells two sets of vectors apart in a training's identity: a hash of their content."""
    whole = hashlib.sha256()
    if isinstance(vectors, (str, os.PathLike)):
        file = Path(vectors)
        whole.update(file.read_bytes() if file.is_file() else str(file).encode())
    else:
        whole.update("\0".join(getattr(vectors, "words", ())).encode())
        whole.update(np.ascontiguousarray(getattr(vectors, "vectors", vectors)).tobytes())
    return whole.hexdigest()[:24]


LSTM = register(TextFamily("lstm"))
CNN = register(TextFamily("cnn"))
AVERAGE = register(TextFamily("average"))
