"""Named arrays (an .npz, or a dict) to tasks.

Understood layouts, with the first name that is there:
  * one input, many labels: ``X`` or ``images``; ``Y``, ``labels`` or ``y``; task names in ``names``, ``label_names``,
    ``target_names`` or ``task_names``; ``feature_names``;
  * stacked tasks: ``X``, ``y`` and ``task`` (the task of every row), names in ``task_names``;
  * an input a task: ``X_a``, ``y_a``, ``X_b``, ``y_b``, ... with ``split_a``, ``group_a``, ... beside them;
  * rows: ``split``, ``group``, ``time``, ``weight``, ``ids``; ``official_split`` and ``patient_id`` are a split and a
    group, too, and ``names`` are ids when there is one a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mtlens.arrays import Array
from mtlens.errors import InputError, unknown
from mtlens.tasks.choices import Choices, parts_from, require, without
from mtlens.tasks.frames import as_array, is_frame, named_inputs
from mtlens.tasks.labels import encode_labels
from mtlens.tasks.tables import words_for
from mtlens.tasks.task import Kind, Task

_INPUTS = ("X", "x", "images", "data", "features")
_LABELS = ("Y", "labels", "targets", "y", "label", "target")
_TASK_NAMES = ("label_names", "target_names", "task_names", "names")
_ROWS = {
    "split": ("split", "splits", "official_split"),
    "group": ("group", "groups", "patient_id"),
    "time": ("time", "times"),
    "weight": ("weight", "weights", "sample_weight"),
    "ids": ("ids", "id", "names"),
}


def tasks_from_bundle(arrays: Mapping[str, Any], choices: Choices, where: str) -> tuple[list[Task], str]:
    """Tasks from named arrays, and a line about what was found."""
    bundle = {n: v if is_frame(v) else as_array(v, f"{where}, {n!r}") for n, v in arrays.items()}
    bundle = {name: value for name, value in bundle.items() if np.ndim(value)}  # a single value has no rows
    pairs = _pairs(bundle)
    if pairs and "X" not in bundle:
        tasks = [_paired_task(bundle, name, choices, where) for name in _wanted(pairs, choices, where)]
        return tasks, f"{where}: {words_for(tasks, ['an input a task'])}"
    return _shared(bundle, choices, where)


def _pairs(bundle: Mapping[str, Any]) -> list[str]:
    return [key[2:] for key in bundle if key.startswith("X_") and len(key) > 2 and f"y_{key[2:]}" in bundle]


def _paired_task(bundle: Mapping[str, Any], name: str, choices: Choices, where: str) -> Task:
    fields = {what: bundle.get(f"{what}_{name}") for what in ("group", "time", "weight", "ids")}
    y, split = bundle[f"y_{name}"], bundle.get(f"split_{name}")
    part, unlabelled = (None, np.zeros(len(y), bool)) if split is None else parts_from(split, where)
    label = without(y, choices.missing, unlabelled) if y.ndim == 1 else y
    names = bundle.get("feature_names")
    width = bundle[f"X_{name}"].shape[-1]
    return Task(
        name,
        bundle[f"X_{name}"],
        label,
        kind=choices.kind_of(name),
        metric=choices.metric,
        split=part,
        class_weight=choices.class_weight,
        feature_names=[str(n) for n in names] if names is not None and len(names) == width else None,
        **fields,
    )


def _shared(bundle: dict[str, Any], choices: Choices, where: str) -> tuple[list[Task], str]:
    x_key = _first(bundle, _INPUTS)
    y_key = _first(bundle, _LABELS)
    if x_key is None or y_key is None:
        lacks = "inputs (X or images)" if x_key is None else "labels (Y, labels or y)"
        raise InputError(
            f"{where} has no array of {lacks}. It holds {', '.join(bundle) or 'nothing'}. Save X (rows x columns), "
            "Y (rows x tasks) and names."
        )
    Y = bundle[y_key]
    if not Y.ndim or not bundle[x_key].ndim or len(Y) != len(bundle[x_key]):
        found = f"{x_key} of shape {bundle[x_key].shape} and {y_key} of shape {Y.shape}"
        raise InputError(f"{where} has {found}. They need one row each for the same rows.")
    Y = Y[:, None] if Y.ndim == 1 else Y
    if Y.ndim != 2 or not Y.shape[1]:
        raise InputError(f"{where}: {y_key} has shape {Y.shape}. It needs one row a row of {x_key}, one column a task.")
    rows = _row_fields(bundle, choices, len(Y), where)
    if "task" in bundle and Y.shape[1] == 1:
        return _stacked(bundle, bundle[x_key], Y[:, 0], rows, choices, where)
    names, given_kind = _task_names(bundle, Y, y_key, where)
    wanted = _wanted(names, choices, where)
    inputs, feature_names = _inputs(bundle, x_key, where)
    part, unlabelled = rows.pop("split")
    tasks = [
        Task(
            (choices.names or {}).get(name, name),
            inputs,
            without(Y[:, names.index(name)], choices.missing, unlabelled),
            kind=choices.kind_of(name) or given_kind,
            metric=choices.metric,
            split=part,
            class_weight=choices.class_weight,
            feature_names=feature_names,
            **rows,
        )
        for name in wanted
    ]
    said = [] if given_kind is None or choices.kind else [f"regression, as {given_kind and 'target_names'} says"]
    return tasks, f"{where}: {len(Y)} rows; {words_for(tasks, [*_rows_said(part, rows), *said])}"


def _inputs(bundle: Mapping[str, Any], key: str, where: str) -> tuple[Any, Sequence[str] | None]:
    inputs, found = named_inputs(bundle[key], where)
    names = bundle.get("feature_names")
    if names is None or not isinstance(inputs, np.ndarray) or inputs.ndim != 2:
        return inputs, found
    names = [str(name) for name in names]
    if len(names) != inputs.shape[1]:
        raise InputError(f"{where}: {key} has {inputs.shape[1]} columns, but feature_names holds {len(names)} names.")
    return inputs, names


def _task_names(bundle: Mapping[str, Any], Y: Array, y_key: str, where: str) -> tuple[list[str], Kind | None]:
    """Names of the label columns; a file that calls them targets says that they are quantities."""
    count = Y.shape[1]
    for key in _TASK_NAMES:
        if key in bundle and not (key == "names" and len(bundle[key]) == len(Y) != count):
            names = [str(name) for name in np.atleast_1d(bundle[key])]
            if len(names) != count:
                raise InputError(f"{where}: {y_key} has {count} columns, but {key} holds {len(names)} names.")
            return names, "regression" if key == "target_names" and _numeric(Y) else None
    return ([y_key] if count == 1 else [f"task_{i}" for i in range(count)]), None


def _numeric(Y: Array) -> bool:
    return Y.dtype.kind in "fiub"


def _stacked(
    bundle: Mapping[str, Any], X: Any, y: Array, rows: dict[str, Any], choices: Choices, where: str
) -> tuple[list[Task], str]:
    """Tasks under each other; the kind is found on all labels together, a single task may have few distinct ones."""
    which = bundle["task"]
    if which.shape != y.shape:
        raise InputError(f"{where}: task has shape {which.shape}; it needs one entry for each of the {len(y)} rows.")
    values, place = np.unique(which, return_inverse=True)
    given = [str(name) for name in bundle["task_names"]] if "task_names" in bundle else []
    numbered = len(given) == len(values) or (values.dtype.kind in "iu" and len(given) > int(values.max()))
    if given and not numbered:
        raise InputError(f"{where}: {len(values)} tasks, but task_names holds {len(given)} names.")
    if given and len(given) != len(values):
        given = [given[int(value)] for value in values]
    names = given or [f"task_{v}" if values.dtype.kind in "iuf" else str(v) for v in values.tolist()]
    part, unlabelled = rows.pop("split")
    inputs, feature_names = _inputs(bundle, _first(bundle, _INPUTS) or "X", where)
    label = without(y, choices.missing, unlabelled)
    joint = encode_labels(
        label, kind=None if choices.kind is None else choices.kind_of(names[0]), classes=None, where=where
    )
    tasks = []
    for name in _wanted(names, choices, where):
        own = np.flatnonzero(place == names.index(name))
        own_rows = {what: None if column is None else column[own] for what, column in rows.items()}
        tasks.append(
            Task(
                (choices.names or {}).get(name, name),
                inputs[own] if isinstance(inputs, np.ndarray) else inputs.take(own),
                label[own],
                kind=choices.kind_of(name) or joint.kind,
                metric=choices.metric,
                split=None if part is None else part[own],
                class_weight=choices.class_weight,
                feature_names=feature_names,
                **own_rows,
            )
        )
    return tasks, f"{where}: {len(y)} rows of {len(values)} tasks; {words_for(tasks, _rows_said(part, rows))}"


def _row_fields(bundle: Mapping[str, Any], choices: Choices, count: int, where: str) -> dict[str, Any]:
    """split (with its unlabelled rows), group, time, weight and ids: as stated, or by their usual names."""
    fields: dict[str, Any] = {}
    for what, usual in _ROWS.items():
        stated = getattr(choices, what)
        key = require(stated, list(bundle), where, "array") if stated else _first(bundle, usual)
        column = None if key is None else bundle[key]
        if column is not None and key == "names" and not stated and column.shape != (count,):
            column = None  # ``names`` of tasks
        if column is not None and column.shape != (count,):
            raise InputError(f"{where}: {key} has shape {column.shape}; it needs one entry for each of {count} rows.")
        fields[what] = column
    split = fields["split"]
    fields["split"] = (None, np.zeros(count, bool)) if split is None else parts_from(split, where)
    if fields["ids"] is not None and not choices.ids and len(fields["ids"]) == 1:
        fields["ids"] = None  # one row and one task: ``names`` is the task's
    return fields


def _rows_said(part: Array | None, rows: Mapping[str, Any]) -> list[str]:
    said = [what for what, column in rows.items() if column is not None]
    if part is not None:
        names, counts = np.unique(part, return_counts=True)
        said.insert(0, "split " + ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True)))
    return said


def _first(bundle: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((key for key in keys if key in bundle), None)


def _wanted(names: Sequence[str], choices: Choices, where: str) -> list[str]:
    for target in choices.targets:
        if target not in names:
            raise unknown("target", target, names, where)
    choices.check_kinds(names, where)
    return list(choices.targets) or list(names)
