"""Vectors kept under the hash of what they were made from, in memory and on disk."""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from mtlens.arrays import Array
from mtlens.errors import DataWarning, FileError

KEY_BYTES = 32
SUFFIX = ".safetensors"
CACHE_VARIABLE = "MTLENS_CACHE"


class VectorCache:
    """32-byte keys to float32 vectors of one width.

    On disk every batch of new vectors is one safetensors file with the arrays ``keys`` (n, 32) uint8 and ``vectors``
    (n, d), named by the hash of its bytes, written under a temporary name and renamed: processes may share a folder, a
    killed one leaves nothing half written, and a file whose bytes changed since is reported once and its vectors are
    made again.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._place: dict[bytes, int] = {}
        self._blocks: list[Array] = []
        self._joined: Array | None = None
        if folder is not None:
            self._read(folder)

    def __contains__(self, key: bytes) -> bool:
        return key in self._place

    def __len__(self) -> int:
        return len(self._place)

    def add(self, keys: Sequence[bytes], vectors: Array) -> None:
        """Keep ``(len(keys), d)`` vectors, on disk too when there is a folder."""
        if self.folder is not None:
            self._write(self.folder, keys, vectors)
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

    def _write(self, folder: Path, keys: Sequence[bytes], vectors: Array) -> None:
        from safetensors.numpy import save

        table = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY_BYTES)
        content = save({"keys": table.copy(), "vectors": np.ascontiguousarray(vectors, dtype=np.float32)})
        unfinished = folder / f".{uuid.uuid4().hex}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(content)
            unfinished.replace(folder / f"{_hash(content)}{SUFFIX}")
        except OSError as error:
            raise FileError(
                f"cannot write the encoder's cache into {folder}: {error}. Choose another folder, or none."
            ) from error

    def _read(self, folder: Path) -> None:
        from safetensors.numpy import load

        for file in sorted(folder.glob(f"*{SUFFIX}")):
            try:
                content = file.read_bytes()
                if _hash(content) != file.name.removesuffix(SUFFIX):
                    raise OSError("its bytes are not those that were written")
                arrays = load(content)
            except OSError as error:
                warnings.warn(f"the cache file {file} is damaged ({error}); its texts are encoded again.", DataWarning)
                continue
            self._keep([row.tobytes() for row in arrays["keys"]], arrays["vectors"])


def _hash(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def cache_folder() -> Path | None:
    """Where commands keep encoders' vectors: ``$MTLENS_CACHE`` (empty: nowhere), else the user's own cache folder.

    A folder that nobody named and that cannot be written is done without.
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named is not None:
        return Path(named) / "encoder" if named else None
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mtlens" / "encoder"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
