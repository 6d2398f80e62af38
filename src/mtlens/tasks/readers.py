"""From a name, a file, a data frame or arrays to tasks, with a line about everything that was found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mtlens.errors import FileError, InputError, unknown
from mtlens.tasks.bundles import tasks_from_bundle
from mtlens.tasks.choices import Choices, as_names
from mtlens.tasks.duplicates import drop_duplicates
from mtlens.tasks.examples import EXAMPLES
from mtlens.tasks.files import SUFFIXES, Layout, checked_path, read_columns, suffix_of
from mtlens.tasks.frames import is_frame, table_from
from mtlens.tasks.npz import read_npz
from mtlens.tasks.table import ColumnKind, Table
from mtlens.tasks.tables import (
    LABEL_NAMES,
    TEXT_NAMES,
    column_kind,
    feature_columns,
    settled,
    tasks_from_table,
    words_for,
)
from mtlens.tasks.task import Kind, Task, TaskSet

if TYPE_CHECKING:
    from mtlens.tasks.spec import Entry, Spec


def read_tasks(
    spec_or_path: Any,
    targets: str | Sequence[str] | None = None,
    *,
    kind: Kind | Mapping[str, Kind] | None = None,
    metric: str | None = None,
    text: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
    split: str | None = None,
    group: str | None = None,
    time: str | None = None,
    weight: str | None = None,
    ids: str | None = None,
    missing: Any = None,
    class_weight: Any = None,
    delimiter: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    quote: bool | None = None,
    duplicates: str | None = None,
) -> TaskSet:
    """Tasks from a SPEC (.toml), a data file, a data frame, a dict of arrays, or a built-in example's name.

    What is not stated is found out, and said in ``TaskSet.found``, a line a file. Columns that are nothing else are
    features. A text column is one that is called text or sentence, or holds several words in most rows.

    Args:
        spec_or_path: path of a ``.toml``, ``.npz``, ``.csv``, ``.tsv`` or ``.parquet`` file (data also ``.gz``); a data
            frame; a mapping of names to arrays (see ``mtlens.tasks.bundles``); or one of ``EXAMPLES``.
        targets: label columns ("a,b" or a list), a task each; of a SPEC or an example, the tasks to keep.
        missing: label values that mean "no label", such as -1.
        duplicates: "drop" removes exact copies and leaks (see ``drop_duplicates``); "keep" (default) only reports them.

    The other arguments are the fields of a ``[[task]]`` in a SPEC and apply to data, not to a SPEC or an example.

    Example:
        >>> read_tasks("example").names
        ('target', 'same', 'different')
        >>> read_tasks({"X": np.eye(4), "Y": [[0, 1.5], [1, 2.5], [0, 3.0], [1, 0.0]], "names": ["a", "b"]})
        TaskSet(Task('a', binary, 4 of 4 rows labelled, shape (4,)),
                Task('b', regression, 4 of 4 rows labelled, shape (4,)))
    """
    given = {name: value for name, value in locals().items() if name != "spec_or_path" and value is not None}
    if isinstance(targets, str):
        targets = [name.strip() for name in targets.split(",") if name.strip()]
    if targets is not None and not list(targets):
        raise InputError(
            "read_tasks: targets names no column. Give one or more, such as targets='a,b', or leave it out."
        )
    choices = Choices(
        targets=as_names(targets),
        text=as_names(text),
        features=as_names(features),
        categories=as_names(categories),
        kind=kind,
        metric=metric,
        split=split,
        group=group,
        time=time,
        weight=weight,
        ids=ids,
        missing=_as_values(missing),
        class_weight=class_weight,
    )
    if duplicates not in (None, "keep", "drop"):
        raise unknown("choice", duplicates, ("keep", "drop"), "duplicates")
    layout = Layout(delimiter, header, encoding, quote)
    if _is_example(spec_or_path) or _is_spec(spec_or_path):
        stated = choices != Choices(targets=choices.targets) or layout != Layout()
        if stated:
            raise InputError(
                f"{spec_or_path} says itself what its columns are: only targets and duplicates go with it."
            )
        tasks = (
            EXAMPLES[str(spec_or_path)]() if _is_example(spec_or_path) else _from_spec(Path(spec_or_path), duplicates)
        )
        tasks = tasks.subset(choices.targets) if choices.targets else tasks
    else:
        tasks = _from_data(spec_or_path, choices, layout)
    _refuse_single_rows(tasks)
    tasks = drop_duplicates(tasks) if duplicates == "drop" else tasks
    if isinstance(spec_or_path, (str, Path)):
        spec = str(spec_or_path) if _is_example(spec_or_path) else str(Path(spec_or_path).absolute())
        tasks = TaskSet(tasks, found=tasks.found, settings=tasks.settings, source={"spec_or_path": spec, **given})
    return tasks


def _refuse_single_rows(tasks: TaskSet) -> None:
    for task in tasks:
        if int(task.labelled.sum()) < 2:
            raise InputError(
                f"task {task.name!r} has one labelled row of {task.num_rows}. One row can be learned from or "
                "tested on, not both: it needs two at the very least."
            )


def _as_values(missing: Any) -> tuple[Any, ...]:
    if missing is None:
        return ()
    return tuple(missing) if isinstance(missing, (list, tuple, set)) else (missing,)


def _is_example(given: Any) -> bool:
    return isinstance(given, str) and given in EXAMPLES


def _is_spec(given: Any) -> bool:
    return isinstance(given, (str, Path)) and Path(given).suffix.lower() == ".toml"


def _from_data(given: Any, choices: Choices, layout: Layout) -> TaskSet:
    if isinstance(given, TaskSet):
        raise InputError("read_tasks was given a TaskSet already. Use it as it is, or TaskSet.subset(names).")
    if isinstance(given, Mapping):
        tasks, line = tasks_from_bundle(given, choices, "the dict of arrays")
        return TaskSet(tasks, found=[line])
    if not isinstance(given, (str, Path)):
        return _from_frame(given, choices)
    path = Path(given)
    if suffix_of(path) not in SUFFIXES and not _exists(path):
        close = get_close_matches(str(given)[:200], EXAMPLES, n=1)
        raise FileError(
            f"there is no file {given!s:.200} and no example of that name (examples: {', '.join(EXAMPLES)})."
            + (f" Did you mean {close[0]!r}?" if close else "")
        )
    part = _read_part(path, choices, layout)
    if part.bundle is not None:
        tasks, line = tasks_from_bundle(part.bundle, choices, path.name)
        _refuse_different_widths(tasks)
        return TaskSet(tasks, found=[line])
    tasks, found = _finished(part, None)
    return TaskSet(tasks, found=found)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long a name
        return False


def _from_frame(frame: Any, choices: Choices) -> TaskSet:
    if not is_frame(frame):
        raise InputError(
            f"read_tasks was given a {type(frame).__name__}. Give a path, the name of an example, a data frame or a "
            "dict of arrays such as {'X': X, 'Y': Y}; TaskSet.from_arrays(X, Y) takes arrays."
        )
    table = table_from(frame, "the data frame", whole=True)
    settled_choices, said = settled(table, choices, "the data frame")
    part = _Part("the data frame", settled_choices, table, f"data frame: {len(table)} rows", (), said)
    tasks, found = _finished(part, None)
    return TaskSet(tasks, found=found)


@dataclass(frozen=True)
class _Part:
    """One file read, before its features are matched with those of the others."""

    where: str
    choices: Choices
    table: Table
    found: str
    notes: tuple[str, ...]
    said: list[str]
    bundle: dict[str, Any] | None = None

    @property
    def names_features(self) -> bool:
        return bool(self.choices.features or self.choices.text)


def _read_part(path: Path, choices: Choices, layout: Layout) -> _Part:
    path = checked_path(path)
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise FileError(
            f"{path} is no format mtlens reads: use {', '.join(SUFFIXES)} (each also .gz), or a .toml SPEC."
        )
    if suffix == ".npz":
        return _Part(path.name, choices, Table({}), "", (), [], read_npz(path))
    texts = choices.text or TEXT_NAMES
    labels = choices.targets or LABEL_NAMES
    apart = tuple(n for n in (choices.split, choices.group, choices.ids) if n)
    named = (*choices.targets, *choices.text, *choices.features, *choices.special)
    full = replace(layout, names=named, texts=texts, categories=choices.categories, apart=apart, last=labels)
    columns = read_columns(path, full)
    given = choices
    choices, said = settled(columns.table, choices, path.name)
    if not given.targets and not choices.names:
        choices = replace(choices, names={choices.targets[0]: _stem(path)})  # a file with one label column
    return _Part(path.name, choices, columns.table, columns.found, columns.notes, said)


def _stem(path: Path) -> str:
    """The file's name without what says its format."""
    inner = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return inner.stem


def _finished(part: _Part, features: Sequence[str] | None) -> tuple[list[Task], list[str]]:
    names = feature_columns(part.table, part.choices) if features is None else features
    tasks, _ = tasks_from_table(part.table, part.choices, names, part.where)
    return tasks, [f"{part.found}; {words_for(tasks, part.said)}", *part.notes]


def _from_spec(path: Path, duplicates: str | None) -> TaskSet:
    from mtlens.tasks.spec import read_spec

    spec = read_spec(path)
    parts = _agreed([(entry, _read_entry(entry, path.parent, ())) for entry in spec.task], path.parent)
    reference = _reference([part for _, part in parts])
    tasks: list[tuple[Entry, Task]] = []
    found: list[str] = []
    shared = _SharedInputs()
    for entry, part in parts:
        made, lines = _tasks_of(part, reference)
        if entry.name and entry.label is None and len(made) == 1:
            made = [made[0].replace(name=entry.name)]
        tasks += [(entry, shared.same(task, path.parent / entry.path)) for task in made]
        found += lines
    if spec.metric is not None:
        tasks = [(e, t if e.metric else _with_metric(t, spec.metric)) for e, t in tasks]
    named = _distinct(tasks)
    _refuse_different_widths(named)
    made_set = TaskSet(named, found=found, settings=_settings(spec, path.parent))
    wanted = spec.duplicates if duplicates is None else "keep"  # a caller's choice is carried out by read_tasks
    return drop_duplicates(made_set) if wanted == "drop" else made_set


def _read_entry(entry: Entry, folder: Path, categories: Sequence[str]) -> _Part:
    choices = entry.choices()
    choices = replace(choices, categories=(*choices.categories, *categories))
    return _read_part(folder / entry.path, choices, entry.layout())


def _agreed(parts: list[tuple[Entry, _Part]], folder: Path) -> list[tuple[Entry, _Part]]:
    """The same parts, where a column of categories in one file is no column of numbers in another.

    Such a file is read again: "007" in a column of numbers has become 7.
    """
    kinds = [_feature_kinds(part) for _, part in parts]
    mixed = {name for found in kinds for name, kind in found.items() if kind == "category"}
    agreed = []
    for (entry, part), found in zip(parts, kinds, strict=True):
        named = [name for name, kind in found.items() if kind == "number" and name in mixed]
        if named:
            part = _read_entry(entry, folder, named)
            part = replace(part, said=[*part.said, f"categories, as in another file: {_quoted(named)}"])
        agreed.append((entry, part))
    return agreed


def _feature_kinds(part: _Part) -> dict[str, ColumnKind]:
    if part.bundle is not None:
        return {}
    names = feature_columns(part.table, part.choices)
    return {name: column_kind(name, part.table[name], part.choices) for name in names}


def _settings(spec: Spec, folder: Path) -> dict[str, Any]:
    """What the SPEC says of a study, with its files found from its own folder; an encoder may also be a package."""
    settings = {**spec.settings, "seed": spec.seed}
    if spec.vectors is not None:
        settings["vectors"] = str(folder / spec.vectors)
    if spec.encoder is not None and (folder / spec.encoder).is_dir():
        settings["encoder"] = str(folder / spec.encoder)
    return settings


def _tasks_of(part: _Part, reference: tuple[str, tuple[str, ...]] | None) -> tuple[list[Task], list[str]]:
    if part.bundle is not None:
        tasks, line = tasks_from_bundle(part.bundle, part.choices, part.where)
        return tasks, [line]
    if reference is None or part.names_features:
        return _finished(part, None)
    first, names = reference
    own = feature_columns(part.table, part.choices)
    missing = [name for name in names if name not in part.table.names]
    if missing:
        raise InputError(
            f"{part.where} lacks {len(missing)} of the {len(names)} columns of {first}: {_quoted(missing)}. "
            "Columns are matched by name, in any order. Add them, or state the same features = [...] for both tasks."
        )
    extra = [name for name in own if name not in names]
    tasks, lines = _finished(part, names)
    if extra:
        lines.append(f"{part.where}: columns that {first} does not have are left out: {_quoted(extra)}")
    return tasks, lines


def _reference(parts: Sequence[_Part]) -> tuple[str, tuple[str, ...]] | None:
    """The features every table must have: those of the first table that does not state its own.

    A column that is another file's label is no feature, so that one file may carry the labels of the next.
    """
    labels = {target for part in parts for target in part.choices.targets}
    for part in parts:
        if part.bundle is None and not part.names_features:
            names = feature_columns(part.table, part.choices)
            return part.where, tuple(name for name in names if name not in labels)
    return None


class _SharedInputs:
    """Tasks of one file with equal inputs get the same object, so that they count as labels of shared rows."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Path, tuple[str, ...], bool], Any] = {}

    def same(self, task: Task, path: Path) -> Task:
        key = (path, task.feature_names, isinstance(task.X, Table))
        first = self._seen.setdefault(key, task.X)
        if first is task.X or len(first) != task.num_rows or not isinstance(first, np.ndarray):
            return task
        equal = isinstance(task.X, np.ndarray) and np.array_equal(first, task.X, equal_nan=first.dtype.kind == "f")
        return task.replace(X=first) if equal else task


def _with_metric(task: Task, metric: str) -> Task:
    from mtlens.tasks.metrics import metric_named

    return task.replace(metric=metric_named(metric, task.kind).name)


def _distinct(tasks: Sequence[tuple[Entry, Task]]) -> list[Task]:
    """Tasks named after their label columns get their entry's name in front where two files have the same label."""
    names = [task.name for _, task in tasks]
    made = []
    for entry, task in tasks:
        clash = names.count(task.name) > 1 and entry.label is None and entry.name
        made.append(task.replace(name=f"{entry.name}/{task.name}") if clash else task)
    return made


def _refuse_different_widths(tasks: Sequence[Task]) -> None:
    """Tasks share a model, so their inputs must be of one form."""
    first = tasks[0]
    for task in tasks[1:]:
        if _form(task) != _form(first):
            raise InputError(
                f"task {first.name!r} has {_form(first)}, task {task.name!r} has {_form(task)}. Tasks that share "
                "a model need the same columns: state the same features = [...] or text = ... for both."
            )


def _form(task: Task) -> str:
    if isinstance(task.X, Table):
        return f"the columns {_quoted(sorted(task.X.names))}"
    return f"{task.X.shape[1]} numbers a row" if task.X.ndim == 2 else f"arrays of shape {task.X.shape[1:]}"


def _quoted(names: Sequence[str], count: int = 20) -> str:
    more = f", ... {len(names) - count} more" if len(names) > count else ""
    return ", ".join(map(repr, names[:count])) + more
