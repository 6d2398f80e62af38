"""Why a cell hurts: each component the paper names is named here only on a measured contrast.

For a cell that hurts, the joint training is repeated with one thing changed: four times the capacity, aligned
(Algorithm 1, against the same epochs without alignment), the source's loss at a quarter, the source's labels cleaned
of noise, the sizes made equal. A cause is named when the change takes away a part of the harm that is significant
(adjusted over the contrasts of the cell) and at least the margin. A cell of the linear family is explained by linear
fits: the last three (very wide inputs are not, each fit would cost a new set of moments).

A matrix before the trunk repairs more than covariances: given too little capacity, it frees any two tasks. Different
covariances are therefore named only where the covariances differ, too (:func:`covariances_differ`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mtlens.study.cells import Cell
from mtlens.study.contrasts import (
    ALIGNED,
    CAPACITY,
    CLEANED,
    CONTRASTS,
    EQUALISED,
    LARGER,
    LINEAR_CONTRASTS,
    REWEIGHTED,
)
from mtlens.study.linear import is_wide
from mtlens.study.plan import Unit, config_units
from mtlens.study.statistics import ERROR, benjamini_hochberg, compare_splits

if TYPE_CHECKING:
    from mtlens.study.run import Run

NOT_ESTABLISHED = "not established"
NAMES = {
    CAPACITY: "too little capacity", ALIGNED: "different covariances", REWEIGHTED: "weighting of the losses",
    CLEANED: "label noise of the source", EQUALISED: "unequal sizes",
}  # fmt: skip
MOST_CELLS = 6  # cells explained by default: the most harmful ones
MOST_SPLITS = 10
PERMUTATIONS = 199
MOST_ROWS, MOST_COLUMNS = 1000, 64  # of a task, when covariances are compared
WITHOUT = "same epochs, no alignment"  # the engine's name for the control of an aligned training


def find_causes(run: Run) -> list[dict[str, Any]]:
    """Measure the contrasts of the most harmful cells; sets ``cause`` on every cell that hurts."""
    harmful = sorted((c for c in run.tables.pairs if c.verdict == "hurts"), key=lambda c: float(c.differences.mean()))
    found = []
    for number, cell in enumerate(harmful):
        cell.cause = NOT_ESTABLISHED
        if number >= MOST_CELLS:
            continue
        contrasts = measure(run, cell)
        named = [contrast["cause"] for contrast in contrasts if contrast["established"]]
        cell.cause = " + ".join(named) if named else NOT_ESTABLISHED
        found.append({"target": cell.target, "source": cell.source, "cause": cell.cause, "contrasts": contrasts})
    return found


def measure(run: Run, cell: Cell) -> list[dict[str, Any]]:
    """All contrasts of one cell that apply to its family and that the budget still holds."""
    splits = range(min(cell.n, MOST_SPLITS))
    family = "trunk" if cell.families.count("trunk") * 2 > cell.n else "linear"
    measured = []
    for contrast in _contrasts_of(run, family):
        if contrast == EQUALISED and not _source_is_larger(run, cell):
            continue
        units = contrast_units(run, cell, family, contrast, splits)
        if not run.allowance.take(units):
            continue
        run.execute(units)
        measured.append((contrast, _gains(run, cell, family, contrast, splits)))
    return _judged(run, cell, [(name, gains) for name, gains in measured if len(gains) >= 2])


def _contrasts_of(run: Run, family: str) -> tuple[str, ...]:
    if family == "trunk":
        return CONTRASTS
    return () if is_wide(run.splitter.prepared(0).dense) else LINEAR_CONTRASTS


def contrast_units(run: Run, cell: Cell, family: str, contrast: str, splits: Sequence[int]) -> list[Unit]:
    """The trainings of a contrast: the pair with one thing changed, and alone where that changes alone too."""
    if family == "linear":
        return config_units(family, contrast, (cell.target, cell.source), splits, run.settings)
    pair = tuple(name for name in run.names if name in (cell.target, cell.source))
    units = config_units(family, contrast, pair, splits, run.settings)
    if contrast == CAPACITY:
        return units + config_units(family, contrast, (cell.target,), splits, run.settings)
    if contrast == ALIGNED:
        return units
    named = ("target", cell.target)
    return [
        Unit(u.family, u.method, u.tasks, u.split, u.seed, tuple(sorted((*u.settings, named)))) for u in units
    ]  # fmt: skip


def _source_is_larger(run: Run, cell: Cell) -> bool:
    rows = {name: int(run.tasks[name].labelled.sum()) for name in (cell.target, cell.source)}
    return rows[cell.source] > LARGER * rows[cell.target]


def _gains(run: Run, cell: Cell, family: str, contrast: str, splits: Sequence[int]) -> list[float]:
    """By how much the change lessens the harm, split by split (positive: it does)."""
    pair, target, evidence = (cell.target, cell.source), cell.target, run.evidence
    ordered = pair if family == "linear" else tuple(name for name in run.names if name in pair)
    found = []
    for split in splits:
        joint, alone = evidence.joint(family, pair, target, split), evidence.alone(family, target, split)
        varied = evidence.choice(family, contrast, ordered, target, split)
        base = evidence.choice(family, contrast, (target,), target, split) if contrast == CAPACITY else alone
        if contrast == ALIGNED:
            joint, base = evidence.choice(family, contrast, ordered, target, split, WITHOUT), alone
        if varied is None or base is None or joint is None or alone is None:
            break
        found.append((varied.test - base.test) - (joint.test - alone.test))
    return found


def _judged(run: Run, cell: Cell, measured: Sequence[tuple[str, list[float]]]) -> list[dict[str, Any]]:
    ratio, harm = run.judge.ratio(cell.target), float(cell.differences.mean())
    comparisons = [compare_splits(gains, ratio, balanced=run.judge.balanced) for _, gains in measured]
    adjusted = benjamini_hochberg([float(c.p) for c in comparisons]) if comparisons else np.empty(0)
    return [
        {
            "contrast": name, "cause": NAMES[name], "harm": harm, "gain": float(c.difference), "low": float(c.low),
            "high": float(c.high), "n": c.n, "p_adjusted": float(p),
            **_established(run, cell, name, lessens=bool(p <= ERROR and float(c.difference) >= cell.margin)),
        }
        for (name, _), c, p in zip(measured, comparisons, adjusted.tolist(), strict=True)
    ]  # fmt: skip


def _established(run: Run, cell: Cell, contrast: str, *, lessens: bool) -> dict[str, Any]:
    """Whether a cause is named, and the p value of what else it needs (null where nothing else is needed)."""
    if contrast != ALIGNED or not lessens:
        return {"established": lessens, "p_covariances": None}
    tasks = run.splitter.prepared(0).dense
    p = covariances_differ(tasks[cell.target].X, tasks[cell.source].X, seed=run.settings.seed)
    return {"established": p <= ERROR, "p_covariances": p}


def covariances_differ(first: Any, second: Any, *, seed: int = 0) -> float:
    """The p value of "both inputs have one covariance": rows, less their task's mean, change places at random.

    The statistic is the Frobenius distance of the two covariances, in columns of unit pooled variance. Many rows or
    columns are thinned out. One input, or inputs that are not rows of numbers: 1.
    """
    if first is second or np.ndim(first) != 2 or np.ndim(second) != 2:
        return 1.0
    rng = np.random.default_rng(seed)
    parts = [np.asarray(X, np.float64)[_some(rng, len(X), MOST_ROWS)] for X in (first, second)]
    rows = np.concatenate([part - part.mean(axis=0) for part in parts])
    rows = rows[:, rows.std(axis=0) > 0]
    rows = rows[:, _some(rng, rows.shape[1], MOST_COLUMNS)] if rows.size else rows
    rows = rows / rows.std(axis=0)
    count, whole = len(parts[0]), rows.T @ rows

    def distance(chosen: Any) -> float:
        own = rows[chosen].T @ rows[chosen]
        return float(np.linalg.norm(own / count - (whole - own) / (len(rows) - count)))

    seen = distance(np.arange(count))
    drawn = [distance(rng.permutation(len(rows))[:count]) for _ in range(PERMUTATIONS)]
    return (1 + sum(one >= seen for one in drawn)) / (1 + PERMUTATIONS)


def _some(rng: np.random.Generator, count: int, most: int) -> Any:
    return np.sort(rng.permutation(count)[:most])


def explain(cell: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> str:
    """One cell in words, with its measured contrasts."""
    target, source = cell["target"], cell["source"]
    if target == source:
        return _alone_line(cell)
    if cell["difference"] is None:
        needed = cell["runs_needed"]
        return f"{target!r} was not trained together with {source!r}; {needed} splits would be a start."
    interval = "" if cell["low"] is None else f"95 %: {cell['low']:+.4f} to {cell['high']:+.4f}, "
    lines = [
        f"joining {source!r} changes {target!r} by {cell['difference']:+.4f} ({interval}n = {cell['n']}, "
        f"adjusted p = {cell['p_adjusted']:.2g}, margin {cell['margin']:g}): {cell['verdict']}.",
        f"measured with the {cell['family']} family ({_families(cell['families'])}), chosen on validation rows.",
    ]
    both = cell.get("by_family", {})
    lines += [f"  {name} family on all splits: {_family_line(found)}." for name, found in both.items() if len(both) > 1]
    if cell["verdict"] == "undecided":
        lines.append(f"to decide it: {_needed(cell['runs_needed'])}.")
    if cell["verdict"] == "hurts":
        lines.append(f"cause: {cell['cause'] or NOT_ESTABLISHED}.")
        lines += _contrast_lines(cell, causes)
    return "\n".join(lines)


def _alone_line(cell: Mapping[str, Any]) -> str:
    if cell["score"] is None:
        return f"{cell['target']!r} has no score alone yet: no split of it was finished."
    interval = "" if cell["low"] is None else f" (95 %: {cell['low']:.4f} to {cell['high']:.4f}, n = {cell['n']})"
    return f"{cell['target']!r} alone scores {cell['score']:.4f}{interval}: the baseline of its row."


def _families(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} on {count} splits" for name, count in counts.items())


def _family_line(found: Mapping[str, Any]) -> str:
    interval = "" if found["low"] is None else f"95 %: {found['low']:+.4f} to {found['high']:+.4f}, "
    return f"{found['difference']:+.4f} ({interval}n = {found['n']})"


def _contrast_lines(cell: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> list[str]:
    pair = cell["target"], cell["source"]
    known = next((c for c in causes if (c["target"], c["source"]) == pair), None)
    if known is None:
        return [f"  no contrast was measured: a finished study explains its {MOST_CELLS} most harmful cells."]
    if not known["contrasts"]:
        return ["  no contrast was measured: the budget held none, or linear fits of such wide inputs take too long."]
    return [_contrast_line(contrast) for contrast in known["contrasts"]]


def _needed(needed: int | str) -> str:
    return f"about {needed} more splits" if isinstance(needed, int) else "more rows; splits cannot help"


def _contrast_line(c: Mapping[str, Any]) -> str:
    word = "established" if c["established"] else NOT_ESTABLISHED
    p = c.get("p_covariances")  # runs of earlier versions have none
    more = "" if p is None else f" (the covariances {'differ' if c['established'] else 'do not differ'}: p = {p:.2g})"
    return (
        f"  {c['contrast']}: takes away {c['gain']:+.4f} of the harm of {-c['harm']:.4f} "
        f"({c['low']:+.4f} to {c['high']:+.4f}, n = {c['n']}); {c['cause']}: {word}{more}."
    )
