"""Content hashes of data, computed once an array."""

from __future__ import annotations

import hashlib
import weakref
from typing import Any

import numpy as np

from mtlens.arrays import Array
from mtlens.tasks.table import Table
from mtlens.tasks.task import Task

_SEEN: dict[int, tuple[weakref.ref[Any], str]] = {}


def data_digest(task: Task) -> str:
    """Hash of everything about a task that a training reads (not its name, groups or row ids)."""
    whole = hashlib.sha256()
    for part in (task.X, task.y, task.split, task.weight):
        whole.update(_digest(part).encode())
    whole.update(repr((task.kind, task.metric, task.num_classes)).encode())
    return whole.hexdigest()


def _digest(part: Array | Table | None) -> str:
    """Hash of one array or table; remembered as long as that object lives (arrays of tasks are not written to)."""
    if part is None:
        return "none"
    known = _SEEN.get(id(part))
    if known is not None and known[0]() is part:
        return known[1]
    digest = _table_digest(part) if isinstance(part, Table) else _array_digest(part)
    key = id(part)
    _SEEN[key] = (weakref.ref(part, lambda _: _SEEN.pop(key, None)), digest)
    return digest


def _table_digest(table: Table) -> str:
    whole = hashlib.sha256()
    for name in table.names:
        whole.update(f"{name}\0{table.kinds[name]}\0{_array_digest(table[name])}".encode())
    return whole.hexdigest()


def _array_digest(array: Array) -> str:
    whole = hashlib.sha256(f"{array.dtype.kind}{array.dtype.itemsize}{array.shape}".encode())
    if array.dtype.kind in "OU":
        for value in array.ravel().tolist():
            text = "\0none" if value is None else str(value)
            whole.update(f"{len(text)}:{text}".encode())
    else:
        whole.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return whole.hexdigest()
