"""The fitted pieces a task's predictions are made of; each maps rows to values or probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.engine.result import TrainedModel
from mtlens.tasks.task import Inputs
from mtlens.theory.transfer import LinearModel


@dataclass(frozen=True)
class Encoded:
    """Some rows as a space encodes them (``dense``; None where no member reads it) and as they came."""

    dense: Array | None
    raw: Inputs

    @property
    def numbers(self) -> Array:
        assert self.dense is not None  # a model with dense members always has a featurizer (checked when it is made)
        return self.dense


class Member(Protocol):
    """What a task is predicted by."""

    def predict(self, rows: Encoded) -> FloatArray:
        """(m,) values in original units or P(class 1), or (m, K) probabilities."""


@dataclass(frozen=True, eq=False)
class LinearMember:
    """A closed-form linear model, alone or joint."""

    model: LinearModel

    def predict(self, rows: Encoded) -> FloatArray:
        return self.model.predict(rows.numbers)


@dataclass(frozen=True, eq=False)
class SourcesMember:
    """A linear model on the inputs and on what linear models of other tasks predict from them."""

    sources: tuple[LinearModel, ...]
    model: LinearModel

    def predict(self, rows: Encoded) -> FloatArray:
        return self.model.predict(with_predictions(rows.numbers, [s.predict(rows.numbers) for s in self.sources]))


@dataclass(frozen=True, eq=False)
class Network:
    """A trained net and the settings it was trained with, which it takes to build it again."""

    model: TrainedModel
    settings: dict[str, Any]


@dataclass(frozen=True, eq=False)
class NetMember:
    """The mean prediction of some networks that differ in their seed only. ``tokens``: they read raw texts."""

    networks: tuple[Network, ...]
    task: str
    tokens: bool

    def predict(self, rows: Encoded) -> FloatArray:
        inputs = rows.raw if self.tokens else rows.numbers
        found: FloatArray = np.mean([network.model.predict(self.task, inputs) for network in self.networks], axis=0)
        return found


def with_predictions(X: Array, predictions: list[FloatArray]) -> FloatArray:
    """``(m, d + s)``: the inputs with predictions as further columns."""
    columns = [p if p.ndim == 2 else p[:, None] for p in predictions]
    return np.ascontiguousarray(np.concatenate([np.asarray(X, np.float64), *columns], axis=1))


def joined(
    alone: FloatArray, joint: FloatArray | None, weight: float, kind: str, low: float, high: float
) -> FloatArray:
    """``alone + weight * (joint - alone)`` within ``low .. high``; probabilities of several classes sum to one."""
    found = alone if joint is None else alone + weight * (joint - alone)
    bounded: FloatArray = np.clip(found, low, high)
    if kind != "multiclass":
        return bounded
    total = bounded.sum(axis=1, keepdims=True)
    return np.where(total > 0, bounded / np.where(total > 0, total, 1.0), 1.0 / bounded.shape[1])
