"""State on disk: safetensors for numbers, JSON for the rest, never pickle.

A saved folder holds ``NAME.json`` and one ``NAME-<hash>.safetensors`` that it points to. Writing makes the tensor file
first and replaces the JSON last, so a reader finds the old state or the new one, never half of either. Reading checks,
before a number is used: the JSON's own checksum, the tensor file's name, size and hash, and the name, dtype and shape
of every tensor. The checksums find damage and careless editing; they are no signature.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor

from mtlens.errors import FileError, InputError

Tree: TypeAlias = Any  # None, bool, int, float, str, Tensor, ndarray, and lists, tuples and dicts of them

FORMAT = "mtlens-state-1"
LARGEST_JSON = 64 * 2**20
_FILE_NAME = re.compile(r"[A-Za-z0-9_.]+-[0-9a-f]{16}\.safetensors")


def save_tree(folder: str | os.PathLike[str], tree: Tree, *, name: str = "state") -> Path:
    """Write a tree of plain values and tensors; an existing state of that name is replaced in one step.

    Args:
        folder: made when missing.
        tree: tensors and arrays are kept bit for bit, with dtype; tuples, integer keys, NaN and infinity survive.
        name: of the files; one folder may hold several states.

    Returns:
        The path of the JSON file.
    """
    folder = Path(folder)
    tensors: dict[str, Tensor] = {}
    content = _encode(tree, tensors, "")
    body = write_tensors({key: value.contiguous() for key, value in tensors.items()})
    digest = hashlib.sha256(body).hexdigest()
    record = {
        "format": FORMAT,
        "tensors": {
            "file": f"{name}-{digest[:16]}.safetensors",
            "size": len(body),
            "sha256": digest,
            "entries": {key: [_dtype_name(value), list(value.shape)] for key, value in tensors.items()},
        },
        "content": content,
    }
    target = folder / f"{name}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / record["tensors"]["file"], body)
        _replace(target, json.dumps({**record, "checksum": _checksum(record)}, indent=1).encode())
        for old in folder.glob(f"{name}-*.safetensors"):
            if old.name != record["tensors"]["file"] and _FILE_NAME.fullmatch(old.name):
                old.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"the state {name!r} cannot be written to {folder}: {error}.") from error
    return target


def load_tree(folder: str | os.PathLike[str], *, name: str = "state") -> Tree:
    """Read back what `save_tree` wrote, on the CPU; anything damaged or changed is refused with the reason.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = save_tree(folder, {"epoch": 3, 7: (torch.ones(2), math.inf)})
    ...     load_tree(folder)
    {'epoch': 3, 7: (tensor([1., 1.]), inf)}
    """
    if not isinstance(folder, (str, os.PathLike)):
        raise InputError(f"a saved state is read from a folder, found {folder!r}. Give the folder that was written.")
    path = Path(folder) / f"{name}.json"
    record = _read_record(path)
    try:
        tensors = _read_tensors(path, record["tensors"])
        return _decode(record["content"], tensors)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise _damaged(path, f"its content does not fit its tensors ({error!r})") from error


def has_tree(folder: str | os.PathLike[str], *, name: str = "state") -> bool:
    """Whether a state of that name was saved there."""
    return (Path(folder) / f"{name}.json").is_file()


def remove_tree(folder: str | os.PathLike[str], *, name: str = "state") -> None:
    """Delete a saved state, if there is one; other files of the folder stay."""
    (Path(folder) / f"{name}.json").unlink(missing_ok=True)
    for file in Path(folder).glob(f"{name}-*.safetensors"):
        if _FILE_NAME.fullmatch(file.name):
            file.unlink(missing_ok=True)


def tree_to_bytes(tree: Tree) -> bytes:
    """A tree as one piece of bytes: JSON, then safetensors. For pipes between our own processes.

    >>> tree_from_bytes(tree_to_bytes({"a": (1, torch.ones(2))}))
    {'a': (1, tensor([1., 1.]))}
    """
    tensors: dict[str, Tensor] = {}
    content = json.dumps(_encode(tree, tensors, "")).encode()
    return len(content).to_bytes(8, "little") + content + write_tensors(tensors)


def tree_from_bytes(body: bytes) -> Tree:
    """The inverse of `tree_to_bytes`."""
    split = 8 + int.from_bytes(body[:8], "little")
    return _decode(json.loads(body[8:split]), read_tensors(body[split:]))


def check_state_dict(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: str) -> None:
    """Refuse tensors that do not fit a module: names, shapes and kinds of number."""
    missing, strange = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    if missing or strange:
        raise InputError(
            f"{where}: the saved values do not fit the model (missing: {missing[:5] or 'none'}; "
            f"not in the model: {strange[:5] or 'none'}). Build the model with the settings it was saved with."
        )
    for key, value in expected.items():
        if found[key].shape != value.shape or found[key].is_floating_point() != value.is_floating_point():
            raise InputError(
                f"{where}: {key!r} was saved as {found[key].dtype} {tuple(found[key].shape)}, the model has "
                f"{value.dtype} {tuple(value.shape)}. Build the model with the settings it was saved with."
            )


def _read_record(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        body = path.read_bytes() if size <= LARGEST_JSON else b""
    except OSError as error:
        raise FileError(f"no saved state at {path}: {error.strerror}. Give the folder that was written.") from error
    if size > LARGEST_JSON:
        raise _damaged(path, f"it is larger than {LARGEST_JSON} bytes")
    try:
        record = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({error})") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        found = record.get("format") if isinstance(record, dict) else type(record).__name__
        raise _damaged(path, f"its format is {found!r}, this version reads {FORMAT!r}")
    if record.pop("checksum", None) != _checksum(record):
        raise _damaged(path, "its checksum is wrong, so it was changed after it was written")
    return record


def _read_tensors(path: Path, entry: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors a record points to, checked against it. The file must lie beside the record under its own name."""
    file_name = str(entry["file"])
    if not _FILE_NAME.fullmatch(file_name):
        raise _damaged(path, f"it points to {file_name!r}, which is not a plain file name")
    file = path.parent / file_name
    try:
        is_ours = not file.is_symlink() and file.stat().st_size == entry["size"]
        body = file.read_bytes() if is_ours else b""
    except OSError as error:
        raise FileError(f"{path} points to {file_name}, which cannot be read: {error.strerror}.") from error
    if not is_ours:
        raise _damaged(file, f"it is not the file of {entry['size']} bytes that was written")
    if hashlib.sha256(body).hexdigest() != entry["sha256"]:
        raise _damaged(file, "its content has changed since it was written")
    try:
        tensors = read_tensors(body)
    except SafetensorError as error:
        raise _damaged(file, f"it is no safetensors file ({error})") from error
    found = {key: [_dtype_name(value), list(value.shape)] for key, value in tensors.items()}
    if found != entry["entries"]:
        raise _damaged(file, "names, dtypes or shapes differ from the record")
    return tensors


def _damaged(path: Path, reason: str) -> FileError:
    return FileError(f"{path} is refused: {reason}. Use an intact copy, or start again without it.")


def _checksum(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _replace(path: Path, body: bytes) -> None:
    """Write beside the target, flush to disk, then rename over it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _dtype_name(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _encode(tree: Tree, tensors: dict[str, Tensor], path: str) -> Any:
    """Plain JSON with every tensor replaced by its key; ``path`` names the place for error messages and keys."""
    if tree is None or isinstance(tree, (bool, str)):
        return tree
    if isinstance(tree, np.generic):
        tree = tree.item()
    if isinstance(tree, int):
        return tree
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else {"float": str(tree)}
    if isinstance(tree, (Tensor, np.ndarray)):
        key = path or "value"
        as_tensor = tree if isinstance(tree, Tensor) else torch.from_numpy(np.ascontiguousarray(tree))
        tensors[key] = as_tensor.detach().cpu().clone()
        return {"tensor" if isinstance(tree, Tensor) else "array": key}
    if isinstance(tree, (list, tuple)):
        items = [_encode(item, tensors, f"{path}/{i}") for i, item in enumerate(tree)]
        return items if isinstance(tree, list) else {"tuple": items}
    if isinstance(tree, Mapping):
        pairs = [[key, _encode(value, tensors, f"{path}/{key}")] for key, value in tree.items()]
        if any(not isinstance(key, (str, int)) for key, _ in pairs):
            raise InputError(
                f"a state at {path or '/'} has keys that are neither text nor whole numbers: {list(tree)[:3]}."
            )
        return {"dict": pairs}
    raise InputError(f"a state at {path or '/'} holds a {type(tree).__name__}, which cannot be saved without pickle.")


def _decode(content: Any, tensors: Mapping[str, Tensor]) -> Tree:
    if isinstance(content, list):
        return [_decode(item, tensors) for item in content]
    if not isinstance(content, dict):
        return content
    ((kind, value),) = content.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "array":
        return tensors[value].numpy()
    if kind == "float":
        return float(value)
    if kind == "tuple":
        return tuple(_decode(item, tensors) for item in value)
    if kind == "dict":
        return {key: _decode(item, tensors) for key, item in value}
    raise ValueError(f"unknown mark {kind!r}")
