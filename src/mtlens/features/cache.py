"""Vectors kept under the hash of what they were made from, in memory and on disk."""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mtlens.arrays import Array
from mtlens.errors import DataWarning, FileError

KEY_BYTES = 32


class VectorCache:
    """32-byte keys to float32 vectors of one width.

    On disk every batch of new vectors is one safetensors file with the arrays ``keys`` (n, 32) uint8 and ``vectors``
    (n, d), written under a temporary name and renamed: processes may share a folder, a killed one leaves nothing half
    written, and a damaged file is reported once and its vectors are made again.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._place: dict[bytes, int] = {}
        self._blocks: list[Array] = []
        self._joined: Array | None = None
        self._read: set[str] = set()
        if folder is not None:
            self._refresh()

    def __contains__(self, key: bytes) -> bool:
        return key in self._place

    def __len__(self) -> int:
        return len(self._place)

    def add(self, keys: Sequence[bytes], vectors: Array) -> None:
        """Keep ``(len(keys), d)`` vectors, on disk too when there is a folder."""
        if self.folder is not None:
            self._write(keys, vectors)
        self._keep(keys, vectors)

    def get(self, keys: Sequence[bytes], width: int) -> Array:
        """The vectors of these keys, ``(len(keys), width)``; all of them must be kept."""
        if self._joined is None:
            self._joined = np.concatenate([np.empty((0, width), dtype=np.float32), *self._blocks])
            self._blocks = [self._joined]
        found: Array = self._joined[[self._place[key] for key in keys]]
        return found

    def _keep(self, keys: Sequence[bytes], vectors: Array) -> None:
        start = sum(len(block) for block in self._blocks)
        self._blocks.append(vectors.astype(np.float32, copy=False))
        self._joined = None
        for i, key in enumerate(keys):
            self._place.setdefault(key, start + i)

    def _write(self, keys: Sequence[bytes], vectors: Array) -> None:
        from safetensors.numpy import save_file

        assert self.folder is not None
        name = f"{uuid.uuid4().hex}.safetensors"
        table = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY_BYTES)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            unfinished = self.folder / f".{name}.{os.getpid()}"
            save_file({"keys": table.copy(), "vectors": np.ascontiguousarray(vectors, dtype=np.float32)}, unfinished)
            unfinished.replace(self.folder / name)
        except OSError as error:
            raise FileError(
                f"cannot write the encoder's cache into {self.folder}: {error}. Choose another folder."
            ) from error
        self._read.add(name)

    def _refresh(self) -> None:
        """Read the files of the folder that were not read yet."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        assert self.folder is not None
        for file in sorted(self.folder.glob("*.safetensors")):
            if file.name in self._read:
                continue
            try:
                arrays = load_file(file)
                keys, vectors = arrays["keys"], arrays["vectors"]
                self._keep([row.tobytes() for row in keys], vectors)
            except (OSError, KeyError, SafetensorError) as error:
                warnings.warn(f"the cache file {file} is damaged ({error}); its texts are encoded again.", DataWarning)
            self._read.add(file.name)
