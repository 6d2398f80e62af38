"""How a study and its workers talk: length-prefixed frames of JSON and plain arrays. Nothing in a frame can run."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from mtlens.arrays import Array
from mtlens.study.identity import Fingerprint, digest_inputs
from mtlens.study.prepare import Prepared
from mtlens.tasks import Table, Task, TaskSet

Column = Any  # an array, a Table, or None


def send(pipe: BinaryIO, message: Any, arrays: Mapping[str, Column] | None = None) -> None:
    """One frame: a JSON message and named arrays or tables."""
    blobs = {key: _bytes(value) for key, value in (arrays or {}).items()}
    head = json.dumps({"message": message, "arrays": [[key, len(blob)] for key, blob in blobs.items()]}).encode()
    pipe.write(struct.pack("<Q", len(head)) + head)
    for blob in blobs.values():
        pipe.write(blob)
    pipe.flush()


def receive(pipe: BinaryIO) -> tuple[Any, dict[str, Column]]:
    """The next frame; EOFError when the other side is gone."""
    (length,) = struct.unpack("<Q", _exactly(pipe, 8))
    head = json.loads(_exactly(pipe, length))
    return head["message"], {key: _column(_exactly(pipe, size)) for key, size in head["arrays"]}


def _exactly(pipe: BinaryIO, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        part = pipe.read(count - len(found))
        if not part:
            raise EOFError("the other process has ended")
        found += part
    return bytes(found)


def _bytes(value: Column) -> bytes:
    """A type letter and the content: N none, J texts as JSON, A an array, T a table."""
    if value is None:
        return b"N"
    if isinstance(value, Table):
        columns = {name: _bytes(value[name]) for name in value.names}
        head = json.dumps([[name, value.kinds[name], len(blob)] for name, blob in columns.items()]).encode()
        return b"T" + struct.pack("<Q", len(head)) + head + b"".join(columns.values())
    array = np.asarray(value)
    if array.dtype.kind in "OU":
        return b"J" + json.dumps(array.tolist()).encode()
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return b"A" + buffer.getvalue()


def _column(blob: bytes) -> Column:
    kind, rest = blob[:1], blob[1:]
    if kind == b"N":
        return None
    if kind == b"J":
        return np.array(json.loads(rest), dtype=object)
    if kind == b"A":
        return np.load(io.BytesIO(rest), allow_pickle=False)
    (length,) = struct.unpack("<Q", rest[:8])
    columns, kinds, start = {}, {}, 8 + length
    for name, column_kind, size in json.loads(rest[8:start]):
        columns[name], kinds[name] = _column(rest[start : start + size]), column_kind
        start += size
    return Table(columns, kinds)


class Outgoing:
    """Describes prepared splits by the hashes of their arrays, so that an array crosses the pipe once."""

    def __init__(self) -> None:
        self._hashes: dict[int, tuple[Column, Fingerprint]] = {}

    def hash_of(self, value: Column) -> Fingerprint | None:
        if value is None:
            return None
        known = self._hashes.get(id(value))
        if known is None or known[0] is not value:
            known = (value, digest_inputs(value))
            self._hashes[id(value)] = known
        return known[1]

    def describe(self, prepared: Prepared, *, tokens: bool) -> tuple[list[dict[str, Any]], dict[str, Column]]:
        """Every task as JSON with hashes for arrays, and the arrays by hash."""
        described, arrays = [], {}
        for dense, raw in zip(prepared.dense, prepared.raw, strict=True):
            plain: dict[str, Any] = {"name": dense.name, "kind": dense.kind, "metric": dense.metric}
            plain["classes"] = dense.num_classes
            columns = {"dense": dense.X, "y": dense.y, "split": _codes(dense), "weight": dense.weight}
            if tokens:
                columns["raw"] = raw.X
            for what, value in columns.items():
                plain[what] = self.hash_of(value)
                if plain[what] is not None:
                    arrays[plain[what]] = value
            if dense.group is not None:
                codes = np.unique(np.asarray(dense.group).astype(str), return_inverse=True)[1]
                plain["group"] = self.hash_of(codes)
                arrays[plain["group"]] = codes
            described.append(plain)
        return described, arrays


PARTS = np.array(["train", "valid", "test"])


def _codes(task: Task) -> Array:
    """The split column as small integers."""
    if task.split is None:
        return np.zeros(task.num_rows, np.int8)
    return np.select([task.split == part for part in PARTS[1:]], [1, 2], 0).astype(np.int8)


def rebuild(described: list[dict[str, Any]], arrays: Mapping[Fingerprint, Column]) -> Prepared:
    """The prepared split on the other side; inputs that were one object are one object again."""
    dense = TaskSet([_task(plain, arrays, "dense") for plain in described])
    raw = TaskSet([_task(plain, arrays, "raw") for plain in described]) if "raw" in described[0] else dense
    return Prepared(dense, raw)


def _task(plain: Mapping[str, Any], arrays: Mapping[Fingerprint, Column], inputs: str) -> Task:
    X, y = arrays[plain[inputs]], arrays[plain["y"]]
    task = Task(
        plain["name"],
        X,
        y,
        kind=plain["kind"],
        metric=plain["metric"],
        weight=arrays[plain["weight"]] if plain["weight"] else None,
        group=arrays[plain["group"]] if plain.get("group") else None,
        classes=list(range(plain["classes"])) or None,
    )
    return task.replace(X=X, split=PARTS[arrays[plain["split"]]])
