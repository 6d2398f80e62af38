"""Raw inputs to what a trunk reads, by statistics of train rows; kept with the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.errors import InputError
from mtlens.nets.family import Family, RowSpec
from mtlens.nets.text import average_vectors
from mtlens.tasks.frames import inputs_from
from mtlens.tasks.table import Table
from mtlens.tasks.task import Task

CONSTANT = 1e-12  # a column whose spread is this small against its size is rounding, not information


class InputMap(ABC):
    """A fitted map of raw rows; ``rows`` says what comes out."""

    rows: RowSpec

    @abstractmethod
    def encode(self, X: Any) -> Array:
        """``(m, *rows.shape)``: float64 numbers, or integer token ids. ``X`` is a Task or anything a Task takes."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and JSON from which :func:`input_map` makes it again."""


@dataclass(frozen=True, eq=False)
class Scaler(InputMap):
    """``(X - mean) / scale``, column by column; one number for all pixels of images. Constant columns become 0."""

    mean: FloatArray
    scale: FloatArray
    shape: tuple[int, ...]

    @property
    def rows(self) -> RowSpec:  # type: ignore[override]
        return RowSpec(self.shape)

    @classmethod
    def fit(cls, parts: Sequence[tuple[Array, Array]]) -> Scaler:
        """Statistics of the union of ``(X, rows)`` parts: mean and population standard deviation, in float64."""
        shape = parts[0][0].shape[1:]
        axes = 0 if len(shape) == 1 else tuple(range(len(shape) + 1))
        count = sum(len(rows) for _, rows in parts) * (1 if len(shape) == 1 else int(np.prod(shape)))
        chosen = [X if len(rows) == len(X) else X[rows] for X, rows in parts]
        total = sum(part.sum(axis=axes, dtype=np.float64) for part in chosen)
        mean = np.broadcast_to(np.asarray(total) / count, shape).copy()
        with np.errstate(over="ignore"):
            squares = sum(_squares(part, mean, axes) for part in chosen)
        if not np.isfinite(squares).all():  # a spread of infinity would make every feature 0
            largest = max(float(np.abs(part).max()) for part in chosen)
            raise InputError(
                f"features up to {largest:.3g} have squares beyond the largest number, so they cannot be standardised. "
                "Divide them by a constant first."
            )
        scale = np.broadcast_to(np.sqrt(np.asarray(squares) / count), shape).copy()
        return cls(mean, np.where(scale <= CONSTANT * np.abs(mean), 1.0, scale), shape)

    def encode(self, X: Any) -> Array:
        raw = X.X if isinstance(X, Task) else inputs_from(X, "predict")
        if isinstance(raw, Table):
            raw = raw.numbers()
        if raw.shape[1:] != self.shape:
            raise InputError(
                f"this model was trained on rows of shape {self.shape}, found {raw.shape[1:]}. "
                "Give the same columns in the same order."
            )
        encoded: Array = (raw.astype(np.float64) - self.mean) / self.scale
        encoded[np.isnan(encoded)] = 0.0  # a gap, where training had none: the train mean
        return encoded

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return {"mean": self.mean, "scale": self.scale}, {"kind": "scaler", "shape": list(self.shape)}


class Featurized(InputMap):
    """A featurizer of ``mtlens.features``, fitted: tables, missing values and texts."""

    def __init__(self, featurizer: Any) -> None:
        self.featurizer = featurizer
        self.is_tokens = hasattr(featurizer, "vocabulary")
        if self.is_tokens:
            shape = (int(getattr(featurizer, "max_length", 0) or 1),)
            self.rows = RowSpec(shape, len(featurizer.vocabulary), featurizer.vectors)
        else:
            self.rows = RowSpec((int(featurizer.width),))

    def encode(self, X: Any) -> Array:
        raw = X if isinstance(X, Task) else inputs_from(X, "predict")
        encoded = self.featurizer.transform(raw)
        return encoded.ids if self.is_tokens else encoded  # type: ignore[no-any-return]

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        state = self.featurizer.state()
        return dict(state.arrays), {"kind": "features", "meta": state.meta}


class Averaged(InputMap):
    """Texts as the means of their frozen word vectors, computed once; everything behind them trains on numbers."""

    def __init__(self, tokens: Featurized) -> None:
        vectors = tokens.rows.vectors
        assert vectors is not None
        self.tokens, self.vectors = tokens, vectors
        self.rows = RowSpec((int(vectors.shape[1]),))

    def encode(self, X: Any) -> Array:
        return average_vectors(self.tokens.encode(X), self.vectors)

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, meta = self.tokens.state()
        return arrays, {**meta, "averaged": True}


def input_map(arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> InputMap:
    """The inverse of :meth:`InputMap.state`."""
    if meta["kind"] == "scaler":
        shape = tuple(int(n) for n in meta["shape"])
        return Scaler(np.asarray(arrays["mean"]), np.asarray(arrays["scale"]), shape)
    from mtlens import features
    from mtlens.features import State

    fitted = Featurized(features.restore(State(dict(arrays), dict(meta["meta"]))))
    return Averaged(fitted) if meta.get("averaged") else fitted


def fit_inputs(tasks: Sequence[Task], family: Family) -> InputMap:
    """One feature space for all tasks of a training, fitted on the union of their train rows.

    A shared input is counted once, by the rows of its train split whether labelled or not, so that a task's inputs
    look alike alone and in company.
    """
    if family.inputs == "numbers" and all(is_plain(task) for task in tasks):
        _check_widths(tasks)
        seen = {(id(task.X), split_key(task)): (np.asarray(task.X), train_part(task)) for task in tasks}
        return Scaler.fit(list(seen.values()))
    from mtlens.features import fit_featurizer

    form: Literal["dense", "tokens"] = "tokens" if family.inputs == "tokens" else "dense"
    options = {"vectors": vectors} if (vectors := getattr(family, "vectors", None)) is not None else {}
    rows = {task.name: train_part(task) for task in tasks}
    fitted = Featurized(fit_featurizer(list(tasks), form=form, rows=rows, **options))
    return Averaged(fitted) if fitted.is_tokens and family.averages(fitted.rows) else fitted


def is_plain(task: Task) -> bool:
    """Whether the input is an array of known numbers, which needs no featurizer."""
    if not isinstance(task.X, np.ndarray):
        return False
    return not np.isnan(task.X.sum(dtype=np.float64))


def train_part(task: Task) -> Array:
    """Rows of the train split, labelled or not; all rows when there is no split."""
    if task.split is None:
        return np.arange(len(task.X))
    return np.flatnonzero(task.split == "train")


def split_key(task: Task) -> bytes:
    """Equal for tasks with the same split column."""
    return b"" if task.split is None else (task.split == "train").tobytes()


def _squares(part: Array, mean: FloatArray, axes: int | tuple[int, ...]) -> FloatArray:
    total: FloatArray = np.square(part - mean).sum(axis=axes)
    return total


def _check_widths(tasks: Sequence[Task]) -> None:
    first = np.asarray(tasks[0].X)
    for task in tasks:
        shape = np.asarray(task.X).shape[1:]
        if shape != first.shape[1:]:
            raise InputError(
                f"one trunk needs one feature space: task {tasks[0].name!r} has rows of shape {first.shape[1:]}, "
                f"task {task.name!r} of {shape}. Embed or project both to one width first."
            )
