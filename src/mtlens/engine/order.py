"""Which rows meet at which step: a pure function of the training and the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mtlens.arrays import Array, FloatArray, IntArray
from mtlens.engine.prepare import Member, Slot
from mtlens.nets.streams import stream
from mtlens.weighting.fixed import random_weights

EMPTY = -1  # fills up a last, shorter batch


@dataclass(frozen=True)
class Order:
    """One epoch of steps.

    Attributes:
        rows: ``(steps, R)`` rows of the inputs; ``EMPTY`` where a batch is not full. "shared" and "mixed" steps have
            ``R = batch``; "each" steps ``R = k * batch``, slot by slot.
        active: ``(steps,)`` slot of the step's task for mixed steps, else None.
        weights: ``(steps, k)`` task weights where they are drawn afresh every step, else None.
    """

    rows: IntArray
    active: IntArray | None = None
    weights: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.rows)


def epoch_order(member: Member, epoch: int) -> Order:
    """Steps of one epoch (counted from 0); the same whoever else trains."""
    seed, batch = member.training.seed, member.batch
    if member.mode == "mixed":
        rows, active = _mixed(member.slots, seed, batch, epoch)
    elif member.training.shares_rows:
        rows, active = _batches(member.union, batch, seed, ("order", epoch)), None
        if member.mode == "each":
            rows = np.tile(rows, (1, len(member.slots)))
    else:
        rows, active = _each(member.slots, seed, batch, epoch), None
    weights = None
    if member.training.weighting == "random":
        weights = random_weights(stream(seed, "weights", epoch), len(rows), len(member.slots))
    return Order(rows, active, weights)


def order_key(member: Member, epoch: int) -> tuple[Any, ...]:
    """Members with equal keys meet the same rows at the same steps, so their order is laid out once."""
    if member.mode == "shared" and member.training.weighting != "random":
        training = member.training
        return (training.seed, member.batch, epoch, id(member.slots[0].block), id(member.union))
    return (id(member), epoch)


def steps_per_epoch(member: Member) -> int:
    """Length of an epoch in optimizer steps."""
    batch = member.batch
    counts = [-(-len(slot.train) // batch) for slot in member.slots]
    if member.mode == "mixed":
        return sum(counts)
    if member.training.shares_rows:
        return -(-len(member.union) // batch)
    return max(counts)


def _batches(rows: Array, batch: int, seed: int, name: tuple[Any, ...]) -> IntArray:
    """``rows`` shuffled and cut, ``(steps, batch)``."""
    steps = -(-len(rows) // batch)
    cut = np.full(steps * batch, EMPTY, dtype=np.int64)
    cut[: len(rows)] = rows[_permutation(seed, name, len(rows))]
    return cut.reshape(steps, batch)


@lru_cache(maxsize=64)
def _permutation(seed: int, name: tuple[Any, ...], count: int) -> IntArray:
    """Trainings of one seed share their orders, so a study draws each once."""
    return stream(seed, *name).permutation(count)


def _mixed(slots: list[Slot], seed: int, batch: int, epoch: int) -> tuple[IntArray, IntArray]:
    own = [_batches(slot.train, batch, seed, ("order", slot.task.name, epoch)) for slot in slots]
    active = np.repeat(np.arange(len(slots)), [len(part) for part in own])
    shuffled = _permutation(seed, ("mix", epoch), len(active))
    return np.concatenate(own)[shuffled], active[shuffled]


def _each(slots: list[Slot], seed: int, batch: int, epoch: int) -> IntArray:
    """A batch of every task; tasks that run out start over in a fresh order."""
    steps = max(-(-len(slot.train) // batch) for slot in slots)
    parts = []
    for slot in slots:
        rounds, rows = 0, np.empty((0, batch), dtype=np.int64)
        while len(rows) < steps:
            fresh = _batches(slot.train, batch, seed, ("order", slot.task.name, epoch, rounds))
            rows, rounds = np.concatenate([rows, fresh]), rounds + 1
        parts.append(rows[:steps])
    return np.concatenate(parts, axis=1)
