"""What a task is: raw inputs, labels, and what is known about the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np

from mtlens.arrays import Array, BoolArray, FloatArray
from mtlens.errors import InputError, unknown
from mtlens.tasks.frames import as_array, label_columns, named_inputs
from mtlens.tasks.labels import encode_labels
from mtlens.tasks.metrics import metric_named
from mtlens.tasks.table import Table, row_indices

Kind: TypeAlias = Literal["regression", "binary", "multiclass"]
Inputs: TypeAlias = "Array | Table"

SPLIT_NAMES = ("train", "valid", "test")
DEFAULT_METRIC = {"regression": "r2", "binary": "roc_auc", "multiclass": "balanced_accuracy"}


class Task:
    """One prediction problem: rows of inputs, one label a row, and how to score it.

    ``X`` becomes a 2-D float array (or an array of any rank, such as images) when everything in it is a number,
    otherwise a :class:`Table` (categories, texts, missing values). ``y`` becomes float64: numbers for regression,
    codes ``0 .. K-1`` into ``classes`` for binary and multiclass; NaN marks a missing label, so a shared input can
    carry many partly labelled tasks. ``kind`` is found out when not given: non-integer values or more than 20
    distinct ones are regression, two are binary, anything else is multiclass; ``found`` says which and why.

    Args:
        name: any non-empty text.
        X: ``(m, ...)`` array, Table, list of texts, dict of columns, or any data frame.
        y: ``(m,)`` labels: numbers, booleans or texts; NaN / None are missing.
        metric: name of a metric (see ``mtlens.tasks.metrics``); by default R2, ROC-AUC or balanced accuracy.
        split: ``(m,)`` of "train" / "valid" / "test", or None.
        weight: ``(m,)`` non-negative sample weights, or None.
        class_weight: "balanced" (every class weighs the same in total) or a weight a class; multiplied into ``weight``.
        group: ``(m,)`` labels of rows that must stay together, also across tasks, or None.
        time: ``(m,)`` sortable, for splits that train on the past, or None.
        ids: ``(m,)`` names of rows, carried through to predictions, or None.
        classes: the original labels in code order; found when not given.

    Example:
        >>> task = Task("spam", [[1.0], [2.0], [3.0]], ["no", "yes", None])
        >>> task.kind, task.classes, task.y.tolist()
        ('binary', ('no', 'yes'), [0.0, 1.0, nan])
    """

    def __init__(
        self,
        name: str,
        X: Any,
        y: Any,
        *,
        kind: Kind | None = None,
        metric: str | None = None,
        split: Any = None,
        weight: Any = None,
        group: Any = None,
        time: Any = None,
        ids: Any = None,
        classes: Sequence[Any] | None = None,
        feature_names: Sequence[str] | None = None,
        class_weight: Literal["balanced"] | Mapping[Any, float] | str | None = None,
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"a task needs a name, found {name!r}. Give it any non-empty text.")
        self.name = name
        inputs, found_names = named_inputs(X, f"task {name!r}")
        self.X: Inputs = inputs
        labels = encode_labels(y, kind=kind, classes=classes, where=f"task {name!r}")
        self.y: FloatArray = labels.codes
        self.kind: Kind = labels.kind
        self.classes: tuple[Any, ...] = labels.classes
        self.found: str = labels.found
        self.metric: str = metric_named(metric, self.kind).name if metric else DEFAULT_METRIC[self.kind]
        self.feature_names: tuple[str, ...] = _feature_names(self.X, feature_names or found_names, name)
        self.split = _split_column(split, name)
        self.weight: FloatArray | None = _weights(weight, name)
        self.group: Array | None = None if group is None else as_array(group, f"task {name!r}: group")
        self.time: Array | None = None if time is None else as_array(time, f"task {name!r}: time")
        self.ids: Array | None = None if ids is None else as_array(ids, f"task {name!r}: ids")
        self._check_lengths()
        if class_weight is not None:
            own = _class_weights(class_weight, self.y, self.classes, f"task {name!r}")
            self.weight = own if self.weight is None else self.weight * own
        if self.weight is not None and not self.weight[self.labelled].any():
            raise InputError(f"task {name!r}: the weights of its labelled rows are all zero. Give one a weight.")

    def _check_lengths(self) -> None:
        rows = len(self.X)
        if rows == 0:
            raise InputError(f"task {self.name!r} has no rows. Give it at least one.")
        for what in ("y", "split", "weight", "group", "time", "ids"):
            column = getattr(self, what)
            if column is not None and column.shape != (rows,):
                raise InputError(
                    f"task {self.name!r}: X has {rows} rows, but {what} has shape {column.shape}. Give one entry a row."
                )

    @property
    def num_rows(self) -> int:
        return len(self.X)

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 for regression."""
        return len(self.classes)

    @property
    def labelled(self) -> BoolArray:
        """``(m,)`` mask of rows whose label is known."""
        return ~np.isnan(self.y)

    def rows_of(self, split: str) -> Array:
        """Indices of the *labelled* rows of a split; all labelled rows are "train" when there is no split."""
        if split not in SPLIT_NAMES:
            raise unknown("split", split, SPLIT_NAMES)
        if self.split is None:
            return np.flatnonzero(self.labelled) if split == "train" else np.empty(0, np.int64)
        return np.flatnonzero((self.split == split) & self.labelled)

    def take(self, rows: Any) -> Task:
        """The same task on the given rows (indices or a mask)."""
        rows = row_indices(rows, self.num_rows, f"task {self.name!r}")
        part = {what: _take(getattr(self, what), rows) for what in ("split", "weight", "group", "time", "ids")}
        return self.replace(X=_take(self.X, rows), y=self.y[rows], **part)

    def replace(self, **changes: Any) -> Task:
        """A copy with some fields changed. ``y`` is in codes: the copy keeps kind and classes unless they change."""
        copy = object.__new__(Task)
        copy.__dict__.update(self.__dict__)
        for what, value in changes.items():
            if what not in self.__dict__:
                raise unknown("field", what, self.__dict__, "Task")
            setattr(copy, what, _split_column(value, self.name) if what == "split" else value)
        if "X" in changes and "feature_names" not in changes:
            copy.feature_names = _feature_names(copy.X, None, copy.name)
            if len(copy.feature_names) == len(self.feature_names):
                copy.feature_names = self.feature_names
        copy._check_lengths()
        return copy

    def __repr__(self) -> str:
        width = f"shape {self.X.shape[1:]}" if isinstance(self.X, np.ndarray) else f"{len(self.X.names)} columns"
        return f"Task({self.name!r}, {self.kind}, {int(self.labelled.sum())} of {self.num_rows} rows labelled, {width})"


class TaskSet:
    """Some tasks in a fixed order, with distinct names.

    >>> tasks = TaskSet.from_arrays(np.eye(4), np.arange(8.0).reshape(4, 2) / 3, names=["a", "b"])
    >>> tasks.names, len(tasks), tasks.has_shared_inputs
    (('a', 'b'), 2, True)
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        *,
        found: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(tasks, Task) or not isinstance(tasks, Iterable):
            raise InputError(
                f"a TaskSet takes a list of Tasks, found {tasks!r:.80}. Put even a single one into a list."
            )
        self.tasks: tuple[Task, ...] = tuple(tasks)
        self.found: tuple[str, ...] = tuple(found)  # what a reader found out, a line each
        self.settings: dict[str, Any] = dict(settings or {})  # what the SPEC says about a study of these tasks
        self.source: Mapping[str, Any] | None = source  # arguments with which read_tasks reads them again
        if not self.tasks:
            raise InputError("a TaskSet needs at least one task, found none.")
        for task in self.tasks:
            if not isinstance(task, Task):
                raise InputError(f"a TaskSet holds Tasks, found {task!r:.60}. Make one with Task(name, X, y).")
        seen: set[str] = set()
        for task in self.tasks:
            if task.name in seen:
                raise InputError(f"two tasks are named {task.name!r}. Give every task a name of its own.")
            seen.add(task.name)

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> TaskSet:
        """A TaskSet as it is, or one made of some tasks."""
        return tasks if isinstance(tasks, TaskSet) else cls(tasks)

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        Y: Any,
        *,
        names: str | Sequence[str] | None = None,
        kind: Kind | Sequence[Kind] | None = None,
        **fields: Any,
    ) -> TaskSet:
        """One shared input and a column of labels a task; further fields (split, group, ...) go to every task.

        Args:
            X: ``(m, d)`` shared inputs.
            Y: ``(m, k)`` labels, a data frame or a dict of columns; NaN / None are missing.
            names: k names; by default the columns' names of a data frame, otherwise ``task_0 ...``.
            kind: one kind for all tasks, one each, or None to find out.
        """
        labels, own_names = label_columns(Y, "TaskSet.from_arrays")
        count = len(labels)
        names = [names] if isinstance(names, str) else names
        names = own_names if names is None else [str(n) for n in names]
        names = [f"task_{i}" for i in range(count)] if names is None else names
        kinds = [kind] * count if kind is None or isinstance(kind, str) else list(kind)
        for what, given in (("names", names), ("kinds", kinds)):
            if len(given) != count:
                raise InputError(f"TaskSet.from_arrays: Y has {count} columns, but {len(given)} {what} were given.")
        shared, found_names = named_inputs(X, "TaskSet.from_arrays")
        fields.setdefault("feature_names", found_names)
        columns = zip(names, labels, kinds, strict=True)
        return cls(Task(name, shared, column, kind=k, **fields) for name, column, k in columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(task.name for task in self.tasks)

    @property
    def has_shared_inputs(self) -> bool:
        """Whether every task labels the same rows of one input (the same object, so nothing is compared)."""
        return all(task.X is self.tasks[0].X for task in self.tasks)

    def subset(self, names: Iterable[str]) -> TaskSet:
        """The named tasks, in the order of the names; a single name may come without a list."""
        names = [names] if isinstance(names, str) else names
        return TaskSet([self[name] for name in names], found=self.found, settings=self.settings, source=self.source)

    def take(self, rows: Mapping[str, Any]) -> TaskSet:
        """Each named task on its own rows (indices or a mask), the others whole; shared inputs stay shared."""
        for name in rows:
            self[name]  # an unknown name is refused
        taken: dict[tuple[int, bytes], Inputs] = {}
        tasks = []
        for task in self.tasks:
            if task.name not in rows:
                tasks.append(task)
                continue
            own = np.asarray(rows[task.name])
            part = task.take(own)
            tasks.append(part.replace(X=taken.setdefault((id(task.X), own.tobytes()), part.X)))
        return TaskSet(tasks, found=self.found, settings=self.settings, source=self.source)

    @overload
    def __getitem__(self, key: str | int) -> Task: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Task, ...]: ...
    def __getitem__(self, key: str | int | slice) -> Task | tuple[Task, ...]:
        if isinstance(key, str):
            for task in self.tasks:
                if task.name == key:
                    return task
            raise unknown("task", key, self.names)
        return self.tasks[key]

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __repr__(self) -> str:
        return f"TaskSet({', '.join(repr(task) for task in self.tasks[:4])}{', ...' if len(self) > 4 else ''})"


def _feature_names(X: Inputs, given: Sequence[str] | None, name: str) -> tuple[str, ...]:
    if isinstance(X, Table):
        return X.names
    if X.ndim != 2:
        return ()
    if given is None:
        return tuple(f"x{i}" for i in range(X.shape[1]))
    if len(given) != X.shape[1]:
        raise InputError(f"task {name!r}: X has {X.shape[1]} columns, but {len(given)} feature names were given.")
    names = tuple(str(n) for n in given)
    if len(set(names)) < len(names):  # columns are found by name, so one of two would be read twice
        twice = sorted({n for n in names if names.count(n) > 1})
        raise InputError(f"task {name!r}: feature names occur more than once: {', '.join(twice[:10])}. Rename them.")
    return names


def _split_column(split: Any, name: str) -> Array | None:
    if split is None:
        return None
    column = as_array(split, f"task {name!r}: split").astype(str)
    other = sorted(set(column.ravel().tolist()) - set(SPLIT_NAMES))
    if other:
        raise InputError(f"task {name!r}: split holds {other[:5]}; it takes only 'train', 'valid' and 'test'.")
    return column


def _weights(weight: Any, name: str) -> FloatArray | None:
    if weight is None:
        return None
    try:
        column = np.asarray(weight, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"task {name!r}: sample weights must be numbers ({error}).") from error
    wrong = ~np.isfinite(column) | (column < 0)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"task {name!r}: the sample weight of row {row} is {column.flat[row]:g}; weights must be finite and not "
            "negative. Give that row 0 to leave it out."
        )
    return column


def _class_weights(given: Any, y: FloatArray, classes: tuple[Any, ...], where: str) -> FloatArray:
    """``(m,)`` weight of each row's class; 1 where the label is missing."""
    if not classes:
        raise InputError(f"{where}: class weights need classes, and this is a regression. Use weight instead.")
    known = np.flatnonzero(~np.isnan(y))
    codes = y[known].astype(np.int64)
    if given == "balanced":
        count = np.bincount(codes, minlength=len(classes))
        each = len(codes) / (len(classes) * np.maximum(count, 1))
    elif isinstance(given, Mapping):
        by_text = {str(label): weight for label, weight in given.items()}
        for label in by_text:
            if label not in map(str, classes):
                raise unknown("class", label, map(str, classes), where)
        each = np.array([_class_weight(by_text.get(str(label), 1.0), label, where) for label in classes])
    else:
        raise InputError(f"{where}: class_weight is {given!r}; it takes 'balanced' or a weight for each class.")
    row_weight = np.ones(len(y))
    row_weight[known] = each[codes]
    return row_weight


def _class_weight(given: Any, label: Any, where: str) -> float:
    try:
        weight = float(given)
    except (TypeError, ValueError, OverflowError):
        weight = np.nan
    if not 0 <= weight < np.inf:
        raise InputError(f"{where}: the weight of class {label!r} is {given!r}; it must be finite and not negative.")
    return weight


@overload
def _take(column: None, rows: Array) -> None: ...
@overload
def _take(column: Array, rows: Array) -> Array: ...
@overload
def _take(column: Inputs, rows: Array) -> Inputs: ...
def _take(column: Inputs | None, rows: Array) -> Inputs | None:
    if column is None:
        return None
    return column.take(rows) if isinstance(column, Table) else column[rows]
