"""Arrows between rooms point down: a room imports only rooms of a lower level (and itself)."""

from __future__ import annotations

import ast
from pathlib import Path

import mtlens

ROOT = Path(mtlens.__file__).parent
LEVELS = {
    "errors": 0,
    "arrays": 0,
    "tasks": 1,
    "features": 2,
    "theory": 2,
    "nets": 2,
    "weighting": 3,
    "engine": 4,
    "models": 5,
    "diagnosis": 5,
    "study": 6,
    "report": 7,
    "paper": 8,
    "cli": 9,
}


def imported_rooms(source: str, package: tuple[str, ...]) -> set[str]:
    """Rooms of mtlens that a file imports anywhere, also inside functions and under TYPE_CHECKING."""
    rooms: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            paths = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            stem = base + (node.module.split(".") if node.module else [])
            paths = [[*stem, alias.name] for alias in node.names]
        else:
            continue
        rooms |= {path[1] for path in paths if path[0] == "mtlens" and len(path) > 1}
    return rooms


def upward_arrows(root: Path) -> list[str]:
    found = []
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        room = parts[0]
        if parts in {("__init__",), ("__main__",)}:
            continue  # the front doors: one re-exports every room, lazily, the other is the command line
        package = ("mtlens", *parts[:-1])
        for other in imported_rooms(file.read_text("utf-8"), package):
            if other in LEVELS and other != room and LEVELS[other] >= LEVELS[room]:
                found.append(f"{file.relative_to(root)}: {room} ({LEVELS[room]}) imports {other} ({LEVELS[other]})")
    return found


def test_every_room_has_a_level() -> None:
    rooms = {p.stem for p in ROOT.iterdir() if p.is_dir() or p.suffix == ".py"} - {"__init__", "__pycache__", "py"}
    assert rooms - {"__main__"} <= set(LEVELS), rooms - set(LEVELS)


def test_arrows_point_down() -> None:
    assert upward_arrows(ROOT) == []


def test_an_upward_arrow_is_seen(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "bad.py").write_text("def f():\n    from ..engine import train\n")
    (tmp_path / "theory").mkdir()
    (tmp_path / "theory" / "bad.py").write_text("import mtlens.nets\nfrom mtlens import features\n")
    assert len(upward_arrows(tmp_path)) == 3
