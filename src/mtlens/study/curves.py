"""Capacity curves and the comparison of methods, from the same trainings as the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mtlens.study.evidence import Choice, Evidence
from mtlens.study.settings import Settings
from mtlens.study.statistics import ERROR, Comparison, benjamini_hochberg, compare_splits

Ratio = Callable[[str], float]


def capacity_curves(
    evidence: Evidence, members: Sequence[str], settings: Settings, ratio: Ratio, *, balanced: bool
) -> list[dict[str, Any]]:
    """Test score by capacity, alone and with all tasks together; other settings are chosen on validation rows.

    One entry a task and capacity, and one with ``task`` null for the mean over tasks.
    """
    if "trunk" not in settings.families:
        return []
    mean_ratio = float(np.mean([ratio(name) for name in members]))
    found = []
    for capacity in settings.capacities:
        sides: dict[str, dict[str, list[float]]] = {"alone": {}, "joint": {}}
        for name in members:
            alone = [evidence.alone("trunk", name, s, capacity=capacity) for s in range(settings.looks[-1])]
            joint = [evidence.joint("trunk", members, name, s, capacity=capacity) for s in range(settings.looks[-1])]
            sides["alone"][name], sides["joint"][name] = _prefix(alone), _prefix(joint)
            entry = {"task": name, "capacity": capacity}
            found.append(entry | _points(sides, [name], ratio(name), balanced=balanced))
        found.append({"task": None, "capacity": capacity} | _points(sides, members, mean_ratio, balanced=balanced))
    return found


def capacity_summary(curves: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """For the mean over tasks: the best capacity of each side, and whether its curve is flat.

    Flat: the interval of the best point holds every other point of the curve, so no capacity is better than another as
    far as was measured.
    """
    means = [point for point in curves if point["task"] is None]
    summary: dict[str, Any] = {}
    for side in ("alone", "joint"):
        known = [point for point in means if point[side] is not None]
        if not known:
            continue
        best = max(known, key=lambda point: point[side])
        low = best[f"{side}_low"]
        flat = len(known) < 2 or low is None or all(point[side] >= low for point in known)
        summary[side] = {"optimum": best["capacity"], "flat": bool(flat)}
    return summary


def _prefix(choices: Sequence[Choice | None]) -> list[float]:
    """Test scores of the splits finished from the first one on."""
    found: list[float] = []
    for choice in choices:
        if choice is None:
            break
        found.append(choice.test)
    return found


def _points(sides: dict[str, dict[str, list[float]]], names: Iterable[str], ratio: float, *, balanced: bool
            ) -> dict[str, Any]:  # fmt: skip
    names, point = list(names), dict[str, Any]()
    for side, scores in sides.items():
        n = min(len(scores[name]) for name in names)
        values = np.mean([scores[name][:n] for name in names], axis=0) if n else np.empty(0)
        c = compare_splits(values, ratio, balanced=balanced) if n else None
        for what, attribute in (("", "difference"), ("_low", "low"), ("_high", "high")):
            value = None if c is None else float(getattr(c, attribute))
            point[side + what] = value if value is not None and np.isfinite(value) else None
        point[f"n_{side}"] = n
    return point


def method_table(
    evidence: Evidence, members: Sequence[str], settings: Settings, ratio: Ratio, *, balanced: bool
) -> list[dict[str, Any]]:
    """Every method on all tasks together against alone, against plain joint training, and against its controls.

    The difference is averaged over tasks first; ``verdict`` uses the study's rule with the adjustment over this table.
    """
    mean_ratio = float(np.mean([ratio(name) for name in members]))
    rows: list[dict[str, Any]] = []
    comparisons: list[Comparison | None] = []
    for method in settings.methods if "trunk" in settings.families else ():
        for against in _opponents(evidence, members, method):
            values = _method_differences(evidence, members, settings, method, against)
            c = compare_splits(values, mean_ratio, balanced=balanced) if len(values) >= 2 else None
            rows.append({"method": method, "against": against, "tasks": len(members), "n": len(values)})
            comparisons.append(c)
    adjusted = benjamini_hochberg([np.nan if c is None else float(c.p) for c in comparisons])
    for row, c, p in zip(rows, comparisons, adjusted.tolist(), strict=True):
        known = {} if c is None else {what: float(getattr(c, what)) for what in ("difference", "low", "high", "p")}
        row |= {what: known.get(what) for what in ("difference", "low", "high", "p")}
        row |= {"p_adjusted": p if c is not None else None, "verdict": _word(c, p)}
    return rows


def _word(c: Comparison | None, p: float) -> str:
    if c is None or p > ERROR:
        return "undecided"
    return "better" if float(c.difference) > 0 else "worse"


def _opponents(evidence: Evidence, members: Sequence[str], method: str) -> list[str]:
    controls: set[str] = set()
    for record in evidence.records("trunk", method, tuple(members), 0):
        controls |= set(record.scores.get("controls", {}))
    return ["alone", *(["plain"] if method != "plain" else []), *(f"control: {name}" for name in sorted(controls))]


def _method_differences(
    evidence: Evidence, members: Sequence[str], settings: Settings, method: str, against: str
) -> list[float]:
    found: list[float] = []
    for split in range(settings.looks[-1]):
        per_task = []
        for name in members:
            mine = evidence.joint("trunk", members, name, split, method)
            other = _opponent(evidence, members, name, split, method, against)
            if mine is None or other is None:
                return found
            per_task.append(mine.test - other.test)
        found.append(float(np.mean(per_task)))
    return found


def _opponent(
    evidence: Evidence, members: Sequence[str], target: str, split: int, method: str, against: str
) -> Choice | None:
    if against == "alone":
        return evidence.alone("trunk", target, split)
    if against == "plain":
        return evidence.joint("trunk", members, target, split)
    control = against.removeprefix("control: ")
    return evidence.choice("trunk", method, tuple(members), target, split, control)
