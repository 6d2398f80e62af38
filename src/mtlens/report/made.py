"""How a run was made: the command and the versions, in ``made.json`` beside the verdicts.

They are kept out of ``verdicts.json`` and ``plan.json``, which are pure functions of data, SPEC and seed.
"""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mtlens.study.result import PLAN_FILE, write_whole

MADE_FILE = "made.json"
PACKAGES = ("mtlens", "torch", "numpy", "scipy", "scikit-learn")


def note_made(folder: str | Path, command: Sequence[str]) -> None:
    """Write the command and the versions it ran under into a run's folder."""
    made = {"command": shlex.join(command), "versions": versions()}
    write_whole(Path(folder) / MADE_FILE, json.dumps(made, indent=1, ensure_ascii=False) + "\n")


def versions() -> dict[str, str]:
    """Of Python and the packages that numbers depend on."""
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


def made_of(folder: Path | None) -> dict[str, Any]:
    """``command`` and ``versions`` of a run (empty where nothing was noted), and its data's ``fingerprints``."""
    made = _read(folder, MADE_FILE)
    plan = _read(folder, PLAN_FILE)
    known: dict[str, Any] = {"command": str(made.get("command", "")), "versions": made.get("versions", {})}
    return known | {"fingerprints": plan.get("tasks", {}), "grid": plan.get("grid", {})}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _read(folder: Path | None, name: str) -> dict[str, Any]:
    """A JSON file of the run's folder; what is missing or damaged is not worth failing a page for."""
    try:
        found = {} if folder is None else json.loads((folder / name).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
