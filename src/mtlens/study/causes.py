"""Why a cell hurts: named only on a measured contrast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NOT_ESTABLISHED = "not established"


def explain(cell: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> str:
    """One cell in words."""
    target, source = cell["target"], cell["source"]
    if cell["difference"] is None:
        needed = cell["runs_needed"]
        return f"{target!r} was not trained together with {source!r}; {needed} splits would be a start."
    lines = [
        f"joining {source!r} changes {target!r} by {cell['difference']:+.4f} "
        f"(95 %: {cell['low']:+.4f} to {cell['high']:+.4f}, n = {cell['n']}): {cell['verdict']}."
    ]
    return "\n".join(lines)
