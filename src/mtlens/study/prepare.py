"""The tasks of one outer split, as numbers: what both families train on, fitted on that split's train rows only."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtlens.arrays import Array
from mtlens.errors import InputError
from mtlens.study.identity import Fingerprint, task_fingerprints
from mtlens.study.plan import OFFICIAL
from mtlens.study.settings import Settings
from mtlens.tasks import Table, Task, TaskSet
from mtlens.tasks.splits import Splits

KEPT = 4  # prepared splits kept in memory


@dataclass(frozen=True)
class Prepared:
    """One split. ``dense`` has numeric inputs; ``raw`` has the inputs as they came, for trunks that read tokens."""

    dense: TaskSet
    raw: TaskSet

    def for_family(self, family: str, *, tokens: bool) -> TaskSet:
        return self.raw if family == "trunk" and tokens else self.dense


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
        self._prints: dict[int, dict[str, Fingerprint]] = {}
        self._plain = all(is_plain(task.X) for task in (*tasks, *(official or ())))

    @property
    def balanced(self) -> bool:
        """Whether splits are complete repeats of K folds."""
        return self.splits.scheme == "kfold"

    def split(self, index: int) -> TaskSet:
        """The tasks with their ``split`` column; inputs as they came."""
        if index == OFFICIAL:
            if self.official is None:
                raise InputError("these tasks have no official test rows.")
            return self.final.assign(self.official)
        return self.splits.assign(self.tasks, index)

    def prepared(self, index: int) -> Prepared:
        if index not in self._kept:
            raw = self.split(index)
            self._kept[index] = Prepared(raw if self._plain else as_numbers(raw, self.options), raw)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(index)
        return self._kept[index]

    def fingerprints(self, index: int) -> dict[str, Fingerprint]:
        """One hash a task of its rows and its split; how features are made from them follows from these."""
        if index not in self._prints:
            self._prints[index] = task_fingerprints(self.split(index))
        return self._prints[index]

    def ratio(self, name: str) -> float:
        """Test rows over all other labelled rows of a task, as the first split has them."""
        task = self.split(0)[name]
        test = len(task.rows_of("test"))
        return test / max(len(task.rows_of("train")) + len(task.rows_of("valid")), 1)


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
