"""A fitted system: predictions, probabilities and intervals for rows in any form."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.errors import DataWarning, InputError, unknown
from mtlens.features.categories import CategoryColumn
from mtlens.features.views import View
from mtlens.models.inputs import Rows, Schema
from mtlens.models.members import Encoded, Member, joined
from mtlens.models.space import Space
from mtlens.models.system import System
from mtlens.tasks.table import Table
from mtlens.tasks.task import Kind

BLOCK = 4096  # rows predicted at a time, however they arrive: the same rows give the same bits in a file and in memory
LEVEL = 0.9  # of intervals when nothing else is said


@dataclass(frozen=True, eq=False)
class TaskModel:
    """Everything about one task.

    Attributes:
        space: number of the feature space its members read.
        alone, joint, weight: see :class:`mtlens.models.system.TaskPlan`; ``joint`` is None for a task by itself.
        low, high: range of the labels it was trained on, or of probabilities; predictions stay inside.
        errors: ``(n,)`` sorted absolute errors of regression predictions for rows that took no part in making them;
            None for classes, and where the task was too small for that.
        facts: rows, held-out scores, settings: for the card.
    """

    name: str
    kind: Kind
    classes: tuple[Any, ...]
    metric: str
    space: int
    schema: Schema
    alone: Member
    joint: Member | None
    weight: float
    low: float
    high: float
    errors: FloatArray | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def predict(self, rows: Encoded) -> FloatArray:
        """(m,) original units or P(class 1); (m, K) probabilities."""
        other = None if self.joint is None else self.joint.predict(rows)
        return joined(self.alone.predict(rows), other, self.weight, self.kind, self.low, self.high)

    def half_width(self, level: float) -> float:
        """Half the width of an interval: the ``ceil((n + 1) level)``-th smallest held-out error, infinite beyond n."""
        count = 0 if self.errors is None else len(self.errors)
        place = math.ceil((count + 1) * level)
        return float(self.errors[place - 1]) if self.errors is not None and place <= count else math.inf

    def decided(self, prediction: FloatArray) -> Array:
        """``(m,)`` the most probable class of each row, as it was labelled."""
        code = (prediction > 0.5).astype(np.int64) if self.kind == "binary" else prediction.argmax(axis=1)
        labels: Array = np.array(self.classes, dtype=object)[code]
        return labels


class Model:
    """A fitted system. Made by ``fit`` or ``load_model``; :meth:`predict` takes arrays, data frames, tables and texts.

    Attributes:
        tasks: name -> :class:`TaskModel`.
        system: what was built, with the families that were chosen.
        notes: lines about how it was made.
        made: facts for the card (version, rows, data).

    Example:
        >>> from mtlens import Task, fit
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 3))
        >>> frame = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}
        >>> task = Task("y", frame, X[:, 0] + 0.1 * rng.normal(size=60))
        >>> model = fit([task], family="linear")
        >>> model.predict({"c": [0.0], "b": [0.0], "a": [1.0], "other": [7.0]}, "y").round(1)
        array([1.])
    """

    def __init__(
        self,
        tasks: Sequence[TaskModel],
        spaces: Sequence[Space],
        system: System,
        *,
        notes: Sequence[str] = (),
        made: Mapping[str, Any] | None = None,
    ) -> None:
        self.tasks = {task.name: task for task in tasks}
        self.spaces = tuple(spaces)
        self.system = system
        self.notes = tuple(notes)
        self.made = dict(made or {})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.tasks)

    @overload
    def predict(self, frame: Any, task: str) -> FloatArray: ...
    @overload
    def predict(self, frame: Any, task: None = None) -> dict[str, FloatArray]: ...
    def predict(self, frame: Any, task: str | None = None) -> FloatArray | dict[str, FloatArray]:
        """Predictions for the rows of anything a Task takes; labels are not needed, further columns are ignored.

        Columns are matched by name, in any order; a bare array by place. A missing column is refused; a missing value
        is filled as in training; a category never seen counts as none of the known ones, with a ``DataWarning``.

        Args:
            frame: data frame, dict of columns, Table, array, list of texts, or a Task.
            task: one task; by default all of them.

        Returns:
            For a task its predictions: ``(m,)`` in original units, ``(m,)`` P(class 1), or ``(m, K)`` probabilities in
            the order of ``model.tasks[name].classes``. Without a task, name -> predictions.
        """
        names = self.names if task is None else (self.task(task).name,)
        rows = Rows.of(frame, labels=self.names)
        for line in self.unseen(rows, names):
            warnings.warn(line, DataWarning, stacklevel=2)
        found = self._predict(rows, names)
        return found if task is None else found[task]

    def intervals(self, frame: Any, task: str, *, level: float = LEVEL) -> FloatArray:
        """``(m, 2)`` bounds that hold a new label with about probability ``level``; infinite with too few rows.

        Prediction plus and minus a quantile of the absolute errors on held-out rows: one width for all rows. It holds
        on average over rows like those of training, not row by row, and not when the world drifts.
        """
        known = self.task(task)
        if known.kind != "regression":
            raise InputError(f"task {task!r} is {known.kind}: it has probabilities (predict), not intervals.")
        half = known.half_width(checked_level(level))
        value = self.predict(frame, task)
        return np.stack([value - half, value + half], axis=1)

    def task(self, name: str) -> TaskModel:
        """The record of a task."""
        if name not in self.tasks:
            raise unknown("task", name, self.names, "this model")
        return self.tasks[name]

    def table(self, frame: Any, names: Sequence[str] | None = None, *, level: float = LEVEL) -> dict[str, Array]:
        """What ``mtlens predict`` writes, as columns.

        For regression ``task``, ``task_low``, ``task_high``; for classes ``task`` (the most probable one) and a
        probability ``task_p_CLASS`` for each, of two classes only for the second.
        """
        names = self.names if names is None else tuple(self.task(name).name for name in names)
        checked_level(level)
        found = self._predict(Rows.of(frame, labels=self.names), names)
        columns: dict[str, Array] = {}
        for name in names:
            for head, column in self._columns(self.tasks[name], found[name], level):
                columns[free_name(head, columns)] = column
        return columns

    def _columns(self, task: TaskModel, value: FloatArray, level: float) -> Iterator[tuple[str, Array]]:
        if task.kind == "regression":
            half = task.half_width(level)
            yield from ((task.name, value), (f"{task.name}_low", value - half), (f"{task.name}_high", value + half))
            return
        yield task.name, task.decided(value)
        if task.kind == "binary":
            yield f"{task.name}_p_{task.classes[1]}", value
            return
        for k, label in enumerate(task.classes):
            yield f"{task.name}_p_{label}", value[:, k]

    def _predict(self, rows: Rows, names: Sequence[str]) -> dict[str, FloatArray]:
        parts: dict[str, list[FloatArray]] = {name: [] for name in names}
        for start in range(0, max(len(rows), 1), BLOCK):
            part = rows.part(slice(start, start + BLOCK))
            encoded: dict[tuple[int, Schema], Encoded] = {}
            for name in names:
                task = self.tasks[name]
                key = (task.space, task.schema)
                if key not in encoded:
                    raw = task.schema.select(part)
                    space = self.spaces[task.space]
                    encoded[key] = Encoded(None if space.featurizer is None else space.encode(_named(raw, task)), raw)
                parts[name].append(task.predict(encoded[key]))
        return {name: np.concatenate(blocks) for name, blocks in parts.items()}

    @cached_property
    def schemas(self) -> tuple[Schema, ...]:
        """The distinct inputs of its tasks."""
        return tuple(dict.fromkeys(task.schema for task in self.tasks.values()))

    def unseen(self, rows: Rows, names: Sequence[str] | None = None) -> list[str]:
        """A line for every category column with values that training never saw."""
        return [unseen_line(column, labels) for column, labels in self.strange_categories(rows, names).items()]

    def strange_categories(self, rows: Rows, names: Sequence[str] | None = None) -> dict[str, list[str]]:
        """Category column -> its values that training never saw, where these have no column of their own."""
        found: dict[str, list[str]] = {}
        seen: set[tuple[int, Schema]] = set()
        for name in names or self.names:
            task = self.tasks[name]
            blocks = getattr(self.spaces[task.space].featurizer, "blocks", ())
            columns = [block for block in blocks if isinstance(block, CategoryColumn) and block.categories]
            if (task.space, task.schema) in seen or not columns:
                continue
            seen.add((task.space, task.schema))
            view = View.of(task.schema.select(rows))
            for block in columns:
                strange = set(view.labels(block.column)) - set(block.categories)
                if strange and not block.has_other:
                    found[block.column] = sorted(strange)
        return found

    def save(self, path: str | Path) -> Path:
        """Write the model to a folder (see :mod:`mtlens.models.store`); returns it."""
        from mtlens.models.store import save_model

        return save_model(self, path)

    def __repr__(self) -> str:
        joint = sum(task.joint is not None for task in self.tasks.values())
        shown = ", ".join(repr(name) for name in self.names[:6]) + (", ..." if len(self.names) > 6 else "")
        return f"Model({len(self.names)} tasks: {shown}; {joint} joined with others)"


def checked_level(level: float) -> float:
    """A level of intervals, refused outside (0, 1)."""
    if not 0 < level < 1:
        raise InputError(f"level={level}: an interval holds between 0 and 1 of the labels. Use for example 0.9.")
    return level


def _named(raw: Any, task: TaskModel) -> Any:
    """Numbers under the names they were trained with."""
    if isinstance(raw, Table) or raw.ndim != 2:
        return raw
    return Table(dict(zip(task.schema.names, raw.T, strict=True)))


def free_name(head: str, taken: Mapping[str, Any]) -> str:
    """A column name that is not taken yet."""
    name, number = head, 2
    while name in taken:
        name, number = f"{head}_{number}", number + 1
    return name


def unseen_line(column: str, labels: Sequence[str]) -> str:
    """What to say of categories that training never saw."""
    shown = ", ".join(f"{label!r:.40}" for label in labels[:5])
    more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
    verb = "is" if len(labels) == 1 else "are"
    return f"column {column!r}: {shown}{more} {verb} not in the training rows; such rows belong to no known category."
