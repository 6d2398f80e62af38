"""A table of columns to tasks: which columns are labels, features, texts, ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mtlens.arrays import Array
from mtlens.errors import InputError
from mtlens.tasks.choices import Choices, looks_like_parts, parts_from, require, without
from mtlens.tasks.files import NAMELESS, NULLS
from mtlens.tasks.frames import is_missing
from mtlens.tasks.table import ColumnKind, Table, written
from mtlens.tasks.task import Inputs, Task

LABEL_NAMES = ("label", "labels", "target", "y", "class")
TEXT_NAMES = ("text", "text_a", "text_b", "sentence", "sentence1", "sentence2")
_SPLIT_NAMES = ("split", "splits", "fold", "official_split")
_GROUP_NAMES = ("patient_id",)
_ID_NAMES = ("id", "ids", "row_id")
_NO_LABEL = frozenset(NULLS) - {"None"}  # "None" is a class in many a table


def settled(table: Table, choices: Choices, where: str) -> tuple[Choices, list[str]]:
    """The choices with everything found out that was not stated, and what to say about it."""
    _check_names(table, choices, where)
    said: list[str] = []
    if not choices.targets:
        taken = {*choices.special, *choices.text, *choices.features, *choices.categories}
        likely = [name for name in table.names if name.lower() in LABEL_NAMES and name not in taken]
        if len(likely) != 1:
            raise InputError(
                f"{where}: which columns are labels? Its columns are {_shown(table.names)}. "
                "Name them with --targets a,b (targets=['a', 'b']), or in a SPEC."
            )
        choices = replace(choices, targets=(likely[0],))
        said.append(f"label {likely[0]!r}")
    stated = (*choices.targets, *choices.special, *choices.text, *choices.features, *choices.categories)
    free = [n for n in table.names if n not in stated]
    if choices.split is None:
        for name in (n for n in free if n.lower() in _SPLIT_NAMES and looks_like_parts(table[n])):
            choices = replace(choices, split=name)
            said.append(f"split {name!r}")
            break
    if choices.group is None:
        for name in (n for n in free if n.lower() in _GROUP_NAMES):
            choices = replace(choices, group=name)
            said.append(f"groups {name!r}")
            break
    if choices.ids is None:
        for name in (n for n in free if n not in choices.special and _names_rows(n, table[n])):
            choices = replace(choices, ids=name)
            said.append(f"ids {name!r}")
            break
    said += [
        f"left out {n!r}, which names parts" for n in free if n not in choices.special and looks_like_parts(table[n])
    ]
    return choices, said


def _check_names(table: Table, choices: Choices, where: str) -> None:
    for given in (choices.targets, choices.text, choices.features, choices.categories, choices.special):
        missing = [name for name in given if name not in table.names]
        if len(missing) == 1:
            require(missing[0], table.names, where)
        if missing:
            raise InputError(
                f"{where} lacks the columns {_shown(missing)}. It has {_shown(table.names)}. "
                "Correct the names, or add the columns."
            )
    both = sorted(set(choices.targets) & {*choices.text, *choices.features, *choices.special})
    if both:
        raise InputError(f"{where}: {_shown(both)} cannot be a label and something else as well. Name it once.")


def _names_rows(name: str, column: Array) -> bool:
    """Whether a column is the rows' names: never the same twice, and called id, nameless, or a code of one word.

    A code is taken for a name from 20 rows on: with fewer rows all different, it may as well be a category.
    """
    called = name.lower() in _ID_NAMES or name.startswith(NAMELESS)
    code = column.dtype.kind == "O" and len(column) >= 20 and name.lower() not in TEXT_NAMES
    if not called and not code:
        return False
    entries = column.tolist()
    one_word = called or all(entry and " " not in entry for entry in entries[:1000])
    return one_word and len(set(entries)) == len(entries) and not any(is_missing(entry) for entry in entries)


def feature_columns(table: Table, choices: Choices) -> tuple[str, ...]:
    """The columns that are inputs: those stated, or all that are nothing else, such as another split."""
    if choices.text or choices.features:
        return (*choices.text, *choices.features)
    free = [name for name in table.names if name not in (*choices.targets, *choices.special)]
    return tuple(name for name in free if name in choices.categories or not looks_like_parts(table[name]))


def inputs_of(table: Table, names: Sequence[str], choices: Choices, where: str) -> tuple[Inputs, tuple[str, ...]]:
    """Inputs of all tasks of one table, and the names of their columns; texts are called text, or text_a, text_b."""
    if not names:
        raise InputError(f"{where} has no column left for features: its columns are {_shown(table.names)}.")
    kinds = {name: column_kind(name, table[name], choices) for name in names}
    if set(kinds.values()) == {"number"}:
        numbers = Table({name: _as_kind(table[name], "number") for name in names}).numbers()
        _refuse_infinity(numbers, names, where)
        return numbers, tuple(names)
    texts = [name for name in names if kinds[name] == "text"]
    called = dict(zip(texts, _text_names(len(texts)), strict=True)) if choices.text or len(texts) == len(names) else {}
    columns = {called.get(n, n): _as_kind(table[n], kinds[n]) for n in names}
    made = Table(columns, {called.get(n, n): kinds[n] for n in names})
    return made, made.names


def _text_names(count: int) -> list[str]:
    return ["text"] if count == 1 else [f"text_{chr(97 + i)}" if i < 26 else f"text_{i}" for i in range(count)]


def column_kind(name: str, column: Array, choices: Choices) -> ColumnKind:
    """Texts are stated, called so, or hold several words in most rows and are mostly different; else a category."""
    if name in choices.text:
        return "text"
    if name in choices.categories:
        return "category"
    if column.dtype.kind in "fiub":
        return "number"
    if name.lower() in TEXT_NAMES:
        return "text"
    sample = [value for value in column[:1000].tolist() if value]
    words = sum(value.count(" ") >= 2 for value in sample)
    return "text" if sample and 2 * words > len(sample) and 2 * len(set(sample)) > len(sample) else "category"


def _as_kind(column: Array, kind: ColumnKind) -> Array:
    """Numbers as float64; texts keep empty ones, categories read those as missing."""
    if kind == "number":
        return column.astype(np.float64, copy=False)
    if column.dtype.kind != "O":
        return np.array([written(v) for v in column.tolist()], dtype=object)
    entries = column.tolist()
    if kind == "text":
        return np.array(["" if v is None else v for v in entries], dtype=object)
    return np.array([None if v is None or not v.strip() else v for v in entries], dtype=object)


def _refuse_infinity(numbers: Array, names: Sequence[str], where: str) -> None:
    with np.errstate(all="ignore"):
        if np.isfinite(np.nansum(numbers.sum(axis=0))) and not np.isinf(numbers.sum(axis=0)).any():
            return
    for name, column in zip(names, numbers.T, strict=True):
        rows = np.flatnonzero(np.isinf(column))
        if len(rows):
            raise InputError(
                f"{where}: column {name!r} is infinite in {len(rows)} rows (first in row {rows[0]}, counted from 0). "
                "Drop or replace those values."
            )


def tasks_from_table(
    table: Table, choices: Choices, names: Sequence[str], where: str
) -> tuple[list[Task], tuple[str, ...]]:
    """One task a label column, all on the same inputs; ``choices`` are settled."""
    choices.check_kinds(choices.targets, where)
    inputs, feature_names = inputs_of(table, names, choices, where)
    split, unlabelled = None, np.zeros(len(table), bool)
    if choices.split:
        split, unlabelled = parts_from(table[choices.split], where)
    fields: dict[str, Any] = {what: table[name] if name else None for what, name in _field_columns(choices).items()}
    tasks = []
    for target in choices.targets:
        label = without(_labels_of(table[target]), choices.missing, unlabelled)
        _refuse_text_labels(label, choices.kind_of(target), target, where)
        tasks.append(
            Task(
                (choices.names or {}).get(target, target),
                inputs,
                label,
                kind=choices.kind_of(target),
                metric=choices.metric,
                split=split,
                feature_names=feature_names,
                class_weight=choices.class_weight,
                **fields,
            )
        )
    return tasks, feature_names


def _field_columns(choices: Choices) -> dict[str, str | None]:
    return {"group": choices.group, "time": choices.time, "weight": choices.weight, "ids": choices.ids}


def _labels_of(column: Array) -> Array:
    """A label column with None for what tables write where there is no label."""
    if column.dtype.kind != "O":
        return column
    labels = column.copy()
    labels[[is_missing(v) or str(v).strip() in _NO_LABEL for v in column.tolist()]] = None
    return labels


def _refuse_text_labels(label: Array, kind: str | None, target: str, where: str) -> None:
    if kind != "regression" or label.dtype.kind != "O":
        return
    for row, value in enumerate(label.tolist()):
        if value is not None and not _is_number(value):
            raise InputError(
                f"{where}: label {target!r} is said to be regression, but row {row} (counted from 0) holds {value!r}. "
                "Correct it, leave it empty, or use kind = 'multiclass'."
            )


def _is_number(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return False
    return True


def words_for(tasks: Sequence[Task], said: Sequence[str]) -> str:
    """What a reader says about some tasks in half a line: inputs, kinds, and what it took for what."""
    kinds: dict[str, int] = {}
    for task in tasks:
        kinds[task.kind] = kinds.get(task.kind, 0) + 1
    labels = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return "; ".join([f"inputs: {_inputs_in_words(tasks[0].X)}", f"tasks: {labels}", *said])


def _inputs_in_words(X: Inputs) -> str:
    if isinstance(X, Table):
        shown = ", ".join(f"{kind} {name!r}" for name, kind in list(X.kinds.items())[:4])
        return shown + (f", ... {len(X.names) - 4} more" if len(X.names) > 4 else "")
    return f"{X.shape[1]} numbers" if X.ndim == 2 else f"arrays of shape {X.shape[1:]}"


def _shown(names: Sequence[str], count: int = 12) -> str:
    more = f", ... {len(names) - count} more" if len(names) > count else ""
    return ", ".join(map(repr, list(names)[:count])) + more
