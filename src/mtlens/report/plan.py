"""A study's plan in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plan_text(plan: Mapping[str, Any]) -> str:
    """What would run, the grid of both sides, and what it costs."""
    looks = ", ".join(str(n) for n in plan["looks"])
    lines = [
        f"{len(plan['tasks'])} tasks; {plan['pairs_measured']} of {plan['pairs_screened']} pairs measured; "
        f"verdicts are tried at {looks} splits.",
        f"first look: {plan['trainings']} network trainings in {plan['stacks']} stacks "
        f"({_kinds(plan['by_kind'])}) and {plan['linear_fits']} linear fits.",
        f"all looks, if nothing were decided before the last: at most {plan['most_trainings']} trainings.",
    ]
    for family, sides in plan["grid"].items():
        alone, joint = sides["alone"]["configurations"], sides["joint"]["configurations"]
        epochs = f" x best of {sides['alone']['epochs']} epochs" if "epochs" in sides["alone"] else ""
        lines.append(f"grid of the {family} family: {alone} configurations alone, {joint} joint{epochs}.")
    if "estimate" in plan:
        given = plan["estimate"]
        lines.append(f"time of the first look: about {_time(given['seconds'])} with {given['workers']} workers.")
    lines.append(f"disk: about {plan['disk_bytes'] / 1e6:.1f} MB.")
    return "\n".join(lines) + "\n"


def _kinds(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in kinds.items()) or "none"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
