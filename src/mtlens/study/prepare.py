"""The tasks of one outer split, as numbers: what both families train on, fitted on that split's train rows only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from mtlens.arrays import Array
from mtlens.errors import InputError
from mtlens.study.identity import Fingerprint, digest_json, task_fingerprints
from mtlens.study.plan import OFFICIAL
from mtlens.study.settings import Settings
from mtlens.tasks import Table, Task, TaskSet
from mtlens.tasks.splits import Splits

KEPT = 6  # splits kept as numbers: those of one look
KEPT_SPLITS = 24  # splits kept as columns of parts, which are small
T = TypeVar("T")


@dataclass(frozen=True)
class Prepared:
    """One split. ``dense`` has numeric inputs; ``raw`` has the inputs as they came, for trunks that read tokens."""

    dense: TaskSet
    raw: TaskSet

    def for_family(self, family: str, *, tokens: bool) -> TaskSet:
        return self.raw if family == "trunk" and tokens else self.dense


class Memory(Protocol):
    """What a ledger offers for by-products."""

    def fact(self, key: str) -> Any: ...

    def remember(self, key: str, value: Any) -> None: ...


class Splitter:
    """Makes and remembers the splits of a study.

    Args:
        tasks: development rows (an official test set is held out before).
        official: all rows with their official split, or None.
        options: how texts become numbers (``vectors``, ``encoder``).
    """

    def __init__(
        self, tasks: TaskSet, settings: Settings, *, official: TaskSet | None = None, options: Any = None
    ) -> None:
        self.tasks = tasks
        self.official = official
        self.options = dict(options or {})
        scheme = settings.scheme
        if scheme == "auto":
            scheme = "time" if all(task.time is not None for task in tasks) else "kfold"
        outer = max(2, round(1 / settings.test)) if scheme == "kfold" else settings.looks[-1]
        shares = {"valid": settings.valid, "test": settings.test, "least": settings.least}
        self.splits = Splits(settings.seed, scheme, outer=outer, **shares)  # type: ignore[arg-type]
        self.final = Splits(settings.seed, "official", **shares)  # type: ignore[arg-type]
        self._kept: OrderedDict[int, Prepared] = OrderedDict()
        self._splits: OrderedDict[int, TaskSet] = OrderedDict()
        self._prints: dict[int, dict[str, Fingerprint]] = {}
        self.memory: Memory | None = None
        self._plain = all(is_plain(task.X) for task in (*tasks, *(official or ())))

    @property
    def balanced(self) -> bool:
        """Whether splits are complete repeats of K folds."""
        return self.splits.scheme == "kfold"

    def split(self, index: int) -> TaskSet:
        """The tasks with their ``split`` column; inputs as they came."""
        return _remembered(self._splits, index, lambda: self._assign(index), KEPT_SPLITS)

    def _assign(self, index: int) -> TaskSet:
        if index == OFFICIAL:
            if self.official is None:
                raise InputError("these tasks have no official test rows.")
            return self.final.assign(self.official)
        return self.splits.assign(self.tasks, index)

    def prepared(self, index: int) -> Prepared:
        """The split as numbers."""
        return _remembered(self._kept, index, lambda: self._prepare(index), KEPT)

    def _prepare(self, index: int) -> Prepared:
        raw = self.split(index)
        return Prepared(raw if self._plain else as_numbers(raw, self.options), raw)

    def fingerprints(self, index: int) -> dict[str, Fingerprint]:
        """One hash a task of its rows and its split; how features are made from them follows from these.

        Features of tables and texts are fitted on all tasks together, so there every task's hash holds all of them.
        """
        if index not in self._prints:
            self._prints[index] = self._recalled(f"fingerprints {index}", lambda: self._fingerprints(index))
        return self._prints[index]

    def _fingerprints(self, index: int) -> dict[str, Fingerprint]:
        own = task_fingerprints(self.split(index))
        if self._plain:
            return own
        everything = [sorted(own.values()), self.texts]
        return {name: digest_json([value, everything]) for name, value in own.items()}

    @cached_property
    def texts(self) -> dict[str, str]:
        """What texts become numbers with, by content."""
        if not self.options:
            return {}
        from mtlens.features import text_identity

        return text_identity(**self.options)

    def _recalled(self, what: str, make: Callable[[], Any]) -> Any:
        """A by-product of the data and the settings of the splits, kept in the ledger if there is one."""
        if self.memory is None:
            return make()
        key = f"{what} {self._identity}"
        known = self.memory.fact(key)
        if known is None:
            known = make()
            self.memory.remember(key, known)
        return known

    @cached_property
    def _identity(self) -> Fingerprint:
        from mtlens import __version__

        data = [task_fingerprints(tasks) for tasks in (self.tasks, self.official) if tasks is not None]
        return digest_json([__version__, data, repr(self.splits), repr(self.final), self.texts])

    def ratio(self, name: str) -> float:
        """Test rows over all other labelled rows of a task, as the first split has them."""
        rows = self.sizes[name]
        return rows["test"] / max(rows["train"] + rows["valid"], 1)

    @cached_property
    def sizes(self) -> dict[str, dict[str, int]]:
        """Labelled rows of every task in every part of the first split."""
        parts = ("train", "valid", "test")
        found: dict[str, dict[str, int]] = self._recalled(
            "sizes", lambda: {task.name: {part: len(task.rows_of(part)) for part in parts} for task in self.split(0)}
        )
        return found


def _remembered(kept: OrderedDict[int, T], index: int, make: Callable[[], T], most: int) -> T:
    """The value of an index, made when it is not among the last few."""
    if index not in kept:
        kept[index] = make()
        if len(kept) > most:
            kept.popitem(last=False)
    kept.move_to_end(index)
    return kept[index]


def is_plain(inputs: Array | Table) -> bool:
    """Whether inputs are one array of known numbers, which needs no fitting."""
    return isinstance(inputs, np.ndarray) and bool(np.isfinite(inputs.sum(dtype=np.float64)))


def as_numbers(tasks: TaskSet, options: dict[str, Any]) -> TaskSet:
    """Numeric inputs in one feature space for all tasks, fitted on their train rows."""
    from mtlens.features import fit_featurizer, transform_tasks

    featurizer = fit_featurizer(tasks, form="dense", **options)
    inputs = transform_tasks(featurizer, tasks)
    return TaskSet([_with_inputs(task, X) for task, X in zip(tasks, inputs, strict=True)])


def _with_inputs(task: Task, X: Any) -> Task:
    names = tuple(f"f{i}" for i in range(X.shape[1])) if X.ndim == 2 else ()
    return task.replace(X=X, feature_names=names)
