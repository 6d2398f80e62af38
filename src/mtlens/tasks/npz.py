"""Arrays of an .npz file, without trusting it: no pickles, no sizes taken on its word."""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
import zlib
from pathlib import Path
from struct import error as StructError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from mtlens.arrays import Array
from mtlens.errors import FileError
from mtlens.tasks.files import Source, checked_path

_FEWEST_UNPACKED = 1 << 30  # an .npz may always unpack to 1 GiB; a larger one to 100 times its own size
_MOST_RATIO = 100
_PLAIN = "biufUSM"
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,  # also UnicodeDecodeError
    KeyError,
    EOFError,
    OSError,
    NotImplementedError,  # an unknown compression
    RuntimeError,  # an encrypted member
    StructError,
    SyntaxError,
    TypeError,
    OverflowError,
    tokenize.TokenError,
)


def read_npz(path: Path) -> dict[str, Array]:
    """Every array of an .npz (or .npz.gz) by name.

    Refused, before anything large is allocated: pickled objects, a header that declares another size than the file
    holds, and members that unpack to more than 1 GiB and 100 times the file.
    """
    path = checked_path(path)
    source = Source(path)
    try:
        with zipfile.ZipFile(io.BytesIO(source.all()) if source.packed else path) as archive:
            members = archive.infolist()
            bound = max(_FEWEST_UNPACKED, _MOST_RATIO * path.stat().st_size)
            total = sum(member.file_size for member in members)
            if total > bound:
                raise FileError(f"{path} declares {total >> 20} MiB unpacked, more than the {bound >> 20} MiB allowed.")
            return {_name(member): _member(archive, member, path) for member in members}
    except FileError:
        raise
    except MemoryError as error:
        raise FileError(f"{path} does not fit into memory.") from error
    except _BROKEN as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise FileError(f"{path} is not a readable .npz file: {reason}. Write it with numpy.savez.") from error


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> Array:
    with archive.open(member) as file:
        shape, fortran, dtype = _header(file)
        if dtype.hasobject or dtype.kind not in _PLAIN:
            what = "pickled objects" if dtype.hasobject else f"the type {dtype}"
            raise FileError(
                f"{path}: array {_name(member)!r} holds {what}, which mtlens never loads. "
                "Save it as numbers or texts (for example names.astype(str))."
            )
        declared = math.prod(shape) * dtype.itemsize
        held = member.file_size - file.tell()
        if declared != held or min(shape, default=0) < 0:
            raise FileError(
                f"{path}: array {_name(member)!r} declares shape {shape} ({declared} bytes), but the file holds {held}."
            )
        data = file.read(held)
    if len(data) != held:
        raise FileError(f"{path}: array {_name(member)!r} is cut off after {len(data)} of {held} bytes.")
    if not dtype.itemsize:  # texts that are all empty have no bytes
        return np.zeros(shape, dtype)
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C").astype(dtype.newbyteorder("="))


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(file)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"array format version {version} is unknown")
    shape, fortran, dtype = read(file)
    return shape, fortran, dtype
