"""Measured transfer: plan, ledger, executors, statistics, verdicts, advice."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Study": "study",
    "StudyResult": "result",
    "Settings": "settings",
    "Ledger": "ledger",
}
__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from mtlens.study.ledger import Ledger as Ledger
    from mtlens.study.result import StudyResult as StudyResult
    from mtlens.study.settings import Settings as Settings
    from mtlens.study.study import Study as Study


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mtlens.study' has no attribute {name!r}")
    return getattr(import_module(f"mtlens.study.{_HOMES[name]}"), name)
