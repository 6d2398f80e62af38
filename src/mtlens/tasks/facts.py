"""What can be said about tasks before anything is computed with them: sizes, labels, parts, and what is odd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mtlens.arrays import Array
from mtlens.tasks.duplicates import Duplicates, find_duplicates
from mtlens.tasks.splits import Splits
from mtlens.tasks.table import Table
from mtlens.tasks.task import SPLIT_NAMES, Task, TaskSet

_RARE = 0.05  # a class with a smaller share is worth a word
_BLOCK = 1 << 22


def task_facts(tasks: TaskSet) -> dict[str, Any]:
    """Facts of some tasks as plain values: what ``mtlens tasks --json`` prints (docs/json.md lists the fields)."""
    duplicates = find_duplicates(tasks)
    inputs: dict[int, dict[str, Any]] = {}
    facts = []
    for task in tasks:
        if id(task.X) not in inputs:
            inputs[id(task.X)] = _inputs(task)
        facts.append(_task(task, inputs[id(task.X)], duplicates))
    return {
        "tasks": facts,
        "shared_inputs": tasks.has_shared_inputs,
        "across": [vars(overlap) | {"parts": dict(overlap.parts)} for overlap in duplicates.across],
        "found": list(tasks.found),
        "odd": _oddities(tasks, facts, duplicates),
    }


def _task(task: Task, inputs: dict[str, Any], duplicates: Duplicates) -> dict[str, Any]:
    return {
        "name": task.name,
        "kind": task.kind,
        "kind_found": task.found,
        "metric": task.metric,
        "rows": task.num_rows,
        "labelled": int(task.labelled.sum()),
        "inputs": inputs,
        "labels": _labels(task),
        "split": None if task.split is None else {part: len(task.rows_of(part)) for part in SPLIT_NAMES},
        "groups": None if task.group is None else len({str(label) for label in task.group.tolist()}),
        "weighted": task.weight is not None,
        "timed": task.time is not None,
        "duplicates": vars(duplicates.within[task.name]),
    }


def _inputs(task: Task) -> dict[str, Any]:
    X = task.X
    if isinstance(X, Table):
        kinds = list(X.kinds.values())
        columns = [X[name] for name in X.names]
        missing = sum(int(np.isnan(c).sum()) if c.dtype.kind == "f" else sum(v is None for v in c) for c in columns)
        constant = [name for name, column in zip(X.names, columns, strict=True) if _is_constant(column)]
        form = "text" if set(kinds) == {"text"} else "table"
        return {"form": form, "shape": [len(kinds)], "missing": missing, "constant": constant}
    if X.ndim > 2:
        return {"form": "array", "shape": list(X.shape[1:]), "missing": 0, "constant": []}
    missing, constant_columns = _scan(X)
    constant = [task.feature_names[i] for i in constant_columns]
    return {"form": "numbers", "shape": [X.shape[1]], "missing": missing, "constant": constant}


def _is_constant(column: Array) -> bool:
    if column.dtype.kind == "f":
        known = column[~np.isnan(column)]
        return len(known) == 0 or bool((known == known[0]).all())
    return len({value for value in column.tolist() if value is not None}) <= 1


def _scan(X: Array) -> tuple[int, list[int]]:
    """Missing values and constant columns of an array, a block of rows at a time."""
    step = max(1, _BLOCK // X.shape[1])
    low, high = np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf)
    missing = 0
    for start in range(0, len(X), step):
        block = X[start : start + step]
        missing += int(np.isnan(block).sum())
        low, high = np.fmin(low, np.fmin.reduce(block)), np.fmax(high, np.fmax.reduce(block))
    return missing, np.flatnonzero(low >= high).tolist()


def _labels(task: Task) -> dict[str, Any]:
    y = task.y[task.labelled]
    if task.kind == "regression":
        unit = max(np.abs(y).max(), 1.0)  # squares of numbers near the largest float would overflow
        values = {"mean": (y / unit).mean() * unit, "sd": (y / unit).std() * unit, "low": y.min(), "high": y.max()}
        return {what: float(value) for what, value in values.items()}
    counts = np.bincount(y.astype(np.int64), minlength=task.num_classes)
    return {str(label): int(count) for label, count in zip(task.classes, counts, strict=True)}


def _oddities(tasks: TaskSet, facts: list[dict[str, Any]], duplicates: Duplicates) -> list[str]:
    """One sentence for each thing that a careful person would want to know, with the tasks it is true of."""
    small = Splits().too_small(tasks)
    checks: list[tuple[str, Callable[[dict[str, Any]], str | None]]] = [
        ("cannot be split into train, valid and test", lambda fact: small.get(fact["name"])),
        ("not more rows than columns, so least squares fits anything", _wide),
        ("a rare class", _rare),
        ("constant columns, which say nothing", _constant),
        ("missing feature values", lambda fact: _count(fact["inputs"]["missing"], "values")),
        ("rows without a label", lambda fact: _count(fact["rows"] - fact["labelled"], "rows")),
        ("equal rows within the task", lambda fact: _count(fact["duplicates"]["extra"], "repeats")),
        ("equal rows with different labels", lambda fact: _count(fact["duplicates"]["conflicting"], "rows")),
        ("rows of valid or test that are also in an earlier part", _leaking),
    ]
    said = []
    for what, check in checks:
        found = {fact["name"]: reason for fact in facts if (reason := check(fact))}
        if found:
            said.append(f"{what}: {_listed(found)}")
    return said + _across_in_words(duplicates)


def _wide(fact: dict[str, Any]) -> str | None:
    shape = fact["inputs"]["shape"]
    wide = fact["inputs"]["form"] == "numbers" and fact["labelled"] <= shape[0]
    return f"{fact['labelled']} rows, {shape[0]} columns" if wide else None


def _rare(fact: dict[str, Any]) -> str | None:
    if fact["kind"] == "regression":
        return None
    label, count = min(fact["labels"].items(), key=lambda item: item[1])
    return f"{label!r} in {count} of {fact['labelled']}" if count < _RARE * fact["labelled"] else None


def _constant(fact: dict[str, Any]) -> str | None:
    names = fact["inputs"]["constant"]
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "") or None


def _leaking(fact: dict[str, Any]) -> str | None:
    return _count(fact["duplicates"]["across_splits"], "rows")


def _count(count: int, what: str) -> str | None:
    return f"{count} {what}" if count else None


def _across_in_words(duplicates: Duplicates) -> list[str]:
    said = []
    for overlap in sorted(duplicates.across, key=lambda o: (-o.leaks, -o.rows))[:10]:
        leaks = f", {overlap.leaks} of them in an earlier part there" if overlap.leaks else ""
        said.append(f"{overlap.rows} rows of {overlap.task!r} are also in {overlap.other!r}{leaks}")
    if len(duplicates.across) > 10:
        said.append(f"{len(duplicates.across) - 10} more pairs of tasks share rows")
    return said


def _listed(found: dict[str, str], most: int = 4) -> str:
    reasons = set(found.values())
    if len(found) > 1 and len(reasons) == 1:  # the same of all of them, as with a shared input
        names = ", ".join(map(repr, list(found)[:most])) + (
            f", ... {len(found) - most} more" if len(found) > most else ""
        )
        return f"{names} (each {reasons.pop()})"
    shown = [f"{name!r} ({reason})" for name, reason in list(found.items())[:most]]
    return "; ".join(shown) + (f"; and {len(found) - most} more tasks" if len(found) > most else "")
