"""Exact duplicates: within a task, across its splits, and across tasks.

Two rows are the same when every number has the same value and every text has the same letters and digits, case aside
("It's good." and "its GOOD"). A text without any letter or digit is the same as another only when both are spelled
the same. Rows are compared by 64-bit hashes: among a million rows the chance of one false match is 3 in 100 million.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from mtlens.arrays import Array, BoolArray, IntArray
from mtlens.tasks.table import Table
from mtlens.tasks.task import SPLIT_NAMES, Inputs, Task, TaskSet

Keys = npt.NDArray[np.uint64]

_NOT_LETTERS_OR_DIGITS = re.compile(r"[\W_]+")
_BLOCK = 1 << 22  # numbers hashed at once: 32 MB, so a large array never needs a copy of itself
_MASK = (1 << 64) - 1
_SPREAD_0 = 0x9E3779B97F4A7C15
_SPREAD = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_PRECEDENCE = {"test": 0, "valid": 1, "train": 2}


@dataclass(frozen=True)
class TaskDuplicates:
    """Of one task: ``rows`` that equal another row, ``extra`` that repeat an earlier one, ``across_splits`` rows of
    valid or test that are also in an earlier part, ``conflicting`` rows with a twin of another label. The same to the
    letter: ``identical`` rows that repeat an earlier one, label and part included, and ``identical_across_splits``.
    """

    rows: int
    extra: int
    across_splits: int
    conflicting: int
    identical: int
    identical_across_splits: int


@dataclass(frozen=True)
class Overlap:
    """Of an ordered pair: ``rows`` of ``task`` also in ``other`` (by ``parts`` of ``task``), and ``leaks``: rows of
    valid or test of ``task`` that ``other`` has in train, or rows of its test that ``other`` has in valid."""

    task: str
    other: str
    rows: int
    leaks: int
    parts: dict[str, int]


@dataclass(frozen=True)
class Duplicates:
    """What :func:`find_duplicates` found: by task, and for every ordered pair of tasks that share a row."""

    within: dict[str, TaskDuplicates]
    across: tuple[Overlap, ...]

    @property
    def any(self) -> bool:
        return bool(self.across) or any(found.rows for found in self.within.values())


def normalised(text: str) -> str:
    """Letters and digits only, lower-cased; a text without any stays as it is.

    >>> normalised("It's GOOD ."), normalised("?!")
    ('itsgood', '?!')
    """
    return _NOT_LETTERS_OR_DIGITS.sub("", text.lower()) or text


def row_keys(X: Inputs, *, verbatim: bool = False) -> Keys:
    """A 64-bit key a row, equal for equal rows, the same on every machine; columns of a Table count by sorted name.

    ``verbatim`` compares texts to the letter.

    >>> keys = row_keys(np.array([[0.0, np.nan], [-0.0, np.nan], [1.0, 2.0]]))
    >>> bool(keys[0] == keys[1]), bool(keys[0] == keys[2])
    (True, False)
    """
    if not isinstance(X, Table):
        return _number_keys(X.reshape(len(X), -1))
    keys = np.zeros(len(X), np.uint64)
    for place, name in enumerate(sorted(X.names)):
        column, kind = X[name], X.kinds[name]
        own = _number_keys(column[:, None]) if kind == "number" else _text_keys(column, kind == "text" and not verbatim)
        keys = _mixed(keys * _SPREAD[0] + own, place)
    return keys


def _number_keys(X: Array) -> Keys:
    """Keys of numbers, a block of rows at a time; -0.0 is 0.0 and every NaN is the same."""
    rows, width = X.shape
    keys = np.empty(rows, np.uint64)
    odd = _mixed(np.arange(width, dtype=np.uint64), 1) | np.uint64(1)  # an odd factor for each column
    step = max(1, _BLOCK // max(width, 1))
    for start in range(0, rows, step):
        block = X[start : start + step].astype(np.float64, order="C") + 0.0  # + 0.0 turns -0.0 into 0.0
        block[np.isnan(block)] = np.nan
        bits = block.view(np.uint64)
        bits ^= bits >> np.uint64(32)  # low bits of round numbers are zero: spread the high ones first
        bits *= odd
        bits ^= bits >> np.uint64(29)
        keys[start : start + step] = _mixed(bits.sum(axis=1, dtype=np.uint64), 0)
    return keys


def _text_keys(column: Array, loosely: bool) -> Keys:
    keys = [
        0 if entry is None else int.from_bytes(blake2b(_encoded(entry, loosely), digest_size=8).digest(), "little")
        for entry in column
    ]
    return np.array(keys, dtype=np.uint64)


def _encoded(entry: str, loosely: bool) -> bytes:
    return (normalised(entry) if loosely else entry).encode("utf-8", "surrogatepass")


def _mixed(keys: Keys, place: int) -> Keys:
    """SplitMix64's finisher: every input bit reaches every output bit."""
    keys = keys + np.uint64((place + 1) * _SPREAD_0 & _MASK)
    keys = (keys ^ (keys >> np.uint64(30))) * _SPREAD[0]
    keys = (keys ^ (keys >> np.uint64(27))) * _SPREAD[1]
    mixed: Keys = keys ^ (keys >> np.uint64(31))
    return mixed


def find_duplicates(tasks: Iterable[Task]) -> Duplicates:
    """Exact duplicates within and across tasks; a million rows take seconds.

    Tasks that label one shared input are compared by their parts only: that they hold the same rows is no news.

    Example:
        >>> a = Task("a", ["good film", "bad film", "Good film!"], [1, 0, 1], split=["train", "train", "test"])
        >>> b = Task("b", ["GOOD, film", "dull"], [1, 0], split=["train", "test"])
        >>> found = find_duplicates([a, b])
        >>> found.within["a"].across_splits, [(o.task, o.other, o.rows, o.leaks) for o in found.across]
        (1, [('a', 'b', 2, 1), ('b', 'a', 1, 0)])
    """
    tasks = TaskSet.of(tasks)
    keys = keys_of(tasks)
    within = {task.name: _within(task, keys[task.name]) for task in tasks}
    summaries = {task.name: _Parts.of(task, keys[task.name]) for task in tasks}
    seen: dict[tuple[int, bytes], int] = {}  # tasks on the same rows in the same parts get the same number
    place = {t.name: seen.setdefault((id(t.X), _part_of(t).astype("U5").tobytes()), len(seen)) for t in tasks}
    across = []
    for task in tasks:
        for other in tasks:
            if place[task.name] != place[other.name]:
                across += _overlap(task, keys[task.name], other, summaries[other.name])
    return Duplicates(within, tuple(across))


def keys_of(tasks: Iterable[Task]) -> dict[str, Keys]:
    """Row keys by task name; a shared input is hashed once."""
    seen: dict[int, Keys] = {}
    return {task.name: seen.setdefault(id(task.X), _new_keys(seen, task)) for task in tasks}


def _new_keys(seen: dict[int, Keys], task: Task) -> Keys:
    return seen[id(task.X)] if id(task.X) in seen else row_keys(task.X)


@dataclass(frozen=True)
class _Parts:
    """Sorted distinct keys of a task: all of them, and those of train and valid."""

    everywhere: Keys
    train: Keys
    valid: Keys

    @classmethod
    def of(cls, task: Task, keys: Keys) -> _Parts:
        part = _part_of(task)
        return cls(np.unique(keys), np.unique(keys[part == "train"]), np.unique(keys[part == "valid"]))


def _part_of(task: Task) -> Array:
    return np.full(task.num_rows, "train") if task.split is None else task.split


def _within(task: Task, keys: Keys) -> TaskDuplicates:
    _, first, place, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    twins = count[place] > 1
    part = _part_of(task)
    leaking = _leaking(keys, part)
    rows = np.flatnonzero(twins & task.labelled)
    exact = keys if isinstance(task.X, np.ndarray) else row_keys(task.X, verbatim=True)
    low, high = np.full(len(first), np.inf), np.full(len(first), -np.inf)
    np.minimum.at(low, place[rows], task.y[rows])
    np.maximum.at(high, place[rows], task.y[rows])
    conflicting = int((low[place[rows]] < high[place[rows]]).sum())
    return TaskDuplicates(
        rows=int(twins.sum()),
        extra=len(keys) - len(first),
        across_splits=int(leaking.sum()),
        conflicting=conflicting,
        identical=_repeats(exact, task.y, part),
        identical_across_splits=int(_leaking(exact, part).sum()),
    )


def _leaking(keys: Keys, part: Array) -> BoolArray:
    """Rows of valid that are also in train, and rows of test that are also in train or valid."""
    train, valid = np.unique(keys[part == "train"]), np.unique(keys[part == "valid"])
    leaking: BoolArray = (part != "train") & _isin(keys, train) | (part == "test") & _isin(keys, valid)
    return leaking


def _repeats(keys: Keys, y: Array, part: Array) -> int:
    """Rows that repeat an earlier one with the same label in the same part."""
    code = np.searchsorted(np.array(sorted(SPLIT_NAMES)), part).astype(np.uint64)
    whole = _mixed(keys + _number_keys(y[:, None]), 2) + code
    return len(whole) - len(np.unique(whole))


def _isin(keys: Keys, ordered: Keys) -> BoolArray:
    """Membership in sorted distinct keys."""
    if not len(ordered):
        return np.zeros(len(keys), bool)
    place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    return np.asarray(ordered[place] == keys)


def _overlap(task: Task, keys: Keys, other: Task, theirs: _Parts) -> list[Overlap]:
    part = _part_of(task)
    both = _isin(keys, theirs.everywhere)
    leaks = (part != "train") & _isin(keys, theirs.train) | (part == "test") & _isin(keys, theirs.valid)
    if not both.any() or (task.X is other.X and not leaks.any()):
        return []
    parts = {name: int((both & (part == name)).sum()) for name in SPLIT_NAMES}
    return [Overlap(task.name, other.name, int(both.sum()), int(leaks.sum()), parts)]


def drop_duplicates(tasks: Iterable[Task]) -> TaskSet:
    """The same tasks with every row once, and no row of a valid or test part in an earlier part of any task.

    Within a task one of several equal rows stays: one in test before one in valid before one in train, then the
    first. Across tasks, rows of train that are in the valid or test part of any task go, then rows of valid that are
    in the test part of any: test parts keep all their distinct rows, so official scores stay comparable. Nothing
    depends on the order of the tasks. Tasks without a split are all train, so two of them may share rows afterwards:
    ``Splits`` keeps such rows in the same part.
    """
    tasks = TaskSet.of(tasks)
    keys = keys_of(tasks)
    owners: dict[int, list[Task]] = {}
    for task in tasks:
        owners.setdefault(id(task.X), []).append(task)
    test = _keys_in(tasks, keys, "test")
    held = np.unique(np.concatenate([_keys_in(tasks, keys, "valid"), test]))
    rows: dict[str, IntArray] = {}
    for sharing in owners.values():
        kept = np.ones(sharing[0].num_rows, bool)
        for task in sharing:
            part = _part_of(task)
            kept &= ~((part == "train") & _isin(keys[task.name], held))
            kept &= ~((part == "valid") & _isin(keys[task.name], test))
        first = _first_of_each(keys[sharing[0].name], _part_of(sharing[0]), kept)
        rows |= dict.fromkeys((task.name for task in sharing), first)
    return tasks.take(rows)


def _keys_in(tasks: Iterable[Task], keys: dict[str, Keys], part: str) -> Keys:
    found = [keys[task.name][task.split == part] for task in tasks if task.split is not None]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.uint64)


def _first_of_each(keys: Keys, part: Array, kept: BoolArray) -> IntArray:
    """Rows among ``kept``, one for each key, in their old order."""
    candidates = np.flatnonzero(kept)
    rank = np.select([part[candidates] == name for name in _PRECEDENCE], list(_PRECEDENCE.values()), 2)
    order = candidates[np.lexsort((candidates, rank))]
    _, first = np.unique(keys[order], return_index=True)
    return np.sort(order[first])
