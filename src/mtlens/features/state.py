"""What a fitted object is, as plain data: arrays for safetensors and a JSON dictionary. Never pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from mtlens.arrays import Array
from mtlens.errors import FileError


@dataclass(frozen=True)
class State:
    """Arrays by name, and everything else as JSON values."""

    arrays: dict[str, Array] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def under(self, name: str) -> dict[str, Array]:
        """The arrays with their names put under a heading, so that states can be kept inside others."""
        return {f"{name}.{key}": value for key, value in self.arrays.items()}

    def part(self, name: str) -> State:
        """The state that was kept under a heading; its meta is the entry of that name."""
        head = f"{name}."
        arrays = {key[len(head) :]: value for key, value in self.arrays.items() if key.startswith(head)}
        return State(arrays, self.meta[name])

    def digest(self) -> str:
        """A hash of everything in it: two objects with the same digest do the same."""
        mark = sha256(json.dumps(self.meta, sort_keys=True).encode())
        for name in sorted(self.arrays):
            value = np.ascontiguousarray(self.arrays[name])
            mark.update(f"{name}|{value.dtype}|{value.shape}".encode())
            mark.update(value.tobytes())
        return mark.hexdigest()


def nested(parts: Mapping[str, State], **meta: Any) -> State:
    """Several states and some JSON values as one state; ``part`` takes them out again."""
    arrays: dict[str, Array] = {}
    for name, state in parts.items():
        arrays.update(state.under(name))
    return State(arrays, {**meta, **{name: state.meta for name, state in parts.items()}})


def save_state(folder: str | Path, state: State, stem: str = "features") -> None:
    """Write ``stem.safetensors`` and ``stem.json`` into a folder, which is made when it is not there."""
    from safetensors.numpy import save_file

    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file({k: np.ascontiguousarray(v) for k, v in state.arrays.items()}, folder / f"{stem}.safetensors")
        text = json.dumps(state.meta, indent=1, ensure_ascii=True)
        (folder / f"{stem}.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write {stem} into {folder}: {error}. Choose a folder that can be written.") from error


def load_state(folder: str | Path, stem: str = "features") -> State:
    """Read what :func:`save_state` wrote."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(folder)
    try:
        meta = json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))
        return State(load_file(folder / f"{stem}.safetensors"), meta)
    except (OSError, ValueError, SafetensorError) as error:
        raise FileError(f"{folder} holds no readable {stem} ({error}). Save the model again.") from error
