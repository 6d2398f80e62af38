"""What makes two trainings the same training: a hash of everything that determines the result, and of nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from mtlens.arrays import Array
from mtlens.tasks import Table, Task, TaskSet

Fingerprint = str
ALGORITHM = 1  # raise it when the same settings start to mean another training: old ledgers are then not reused


def digest(*parts: bytes) -> Fingerprint:
    """A 128-bit hash of byte strings, each preceded by its length (so that no two lists of parts collide)."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()


def digest_json(value: Any) -> Fingerprint:
    """The hash of a JSON value, whatever the order of its keys."""
    return digest(json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain).encode())


def digest_array(array: Array) -> Fingerprint:
    """The hash of an array's type, shape and values; objects (texts, None) by their JSON."""
    if array.dtype.kind in "OU":
        return digest_json([str(array.dtype.kind), array.tolist()])
    return digest(str(array.dtype).encode(), str(array.shape).encode(), np.ascontiguousarray(array).tobytes())


def digest_inputs(inputs: Array | Table) -> Fingerprint:
    if isinstance(inputs, Table):
        return digest_json([[name, inputs.kinds[name], digest_array(inputs[name])] for name in inputs.names])
    return digest_array(inputs)


def task_fingerprints(tasks: TaskSet) -> dict[str, Fingerprint]:
    """One hash a task of everything in it that can change a result; a shared input is hashed once."""
    inputs: dict[int, Fingerprint] = {}
    found = {}
    for task in tasks:
        key = id(task.X)
        if key not in inputs:
            inputs[key] = digest_inputs(task.X)
        found[task.name] = digest_json([inputs[key], describe(task)])
    return found


def describe(task: Task) -> dict[str, Any]:
    """The part of a task that is not its inputs, with columns as hashes."""
    columns = {what: getattr(task, what) for what in ("y", "split", "weight", "group", "time")}
    hashed = {what: None if column is None else digest_array(np.asarray(column)) for what, column in columns.items()}
    return {
        "kind": task.kind,
        "metric": task.metric,
        "classes": task.num_classes,
        "columns": list(task.feature_names),
    } | hashed


def training_identity(prepared: list[Fingerprint], settings: Mapping[str, Any]) -> Fingerprint:
    """The ledger's key: the prepared data of the tasks trained together, in order, and every setting."""
    return digest_json({"algorithm": ALGORITHM, "data": prepared, "settings": dict(settings)})


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return str(value)
