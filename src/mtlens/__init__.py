"""mtlens tells which tasks help or hurt each other, how big their shared part should be, and repairs what hurts.

Names are loaded when first used, so ``import mtlens`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# The one list of public names: room -> names.
_ROOMS = {
    "tasks": ("Table", "Task", "TaskSet"),
    "errors": ("MtlensError",),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}
__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from mtlens.errors import MtlensError as MtlensError
    from mtlens.tasks import Table as Table
    from mtlens.tasks import Task as Task
    from mtlens.tasks import TaskSet as TaskSet


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mtlens' has no attribute {name!r}")
    return getattr(import_module(f"mtlens.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
