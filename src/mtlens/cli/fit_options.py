"""What ``fit`` does with its options before the library takes over."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from mtlens.errors import unknown
from mtlens.models.system import FamilyName

FAMILIES = ("linear", "trunk", "best")


def checked_family(family: str | None) -> FamilyName | None:
    """The family, refused when it is none."""
    if family is not None and family not in FAMILIES:
        raise unknown("family", family, FAMILIES)
    return cast("FamilyName | None", family)


def model_folder(source: str, out: Path | None) -> Path:
    """The model's folder: as said, or beside what it was made from."""
    if out is not None:
        return out
    name = Path(source).name.split(".")[0].removesuffix("-study") or "mtlens"
    return Path(f"{name}-model")
