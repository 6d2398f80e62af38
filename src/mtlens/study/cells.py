"""Verdicts: the transfer of every ordered pair, of all tasks together, of leaving one out, and of every method."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.study.evidence import Evidence
from mtlens.study.settings import UNITLESS, Settings
from mtlens.study.statistics import (
    Comparison,
    VerdictName,
    benjamini_hochberg,
    compare_splits,
    judge,
    sequential_p,
    splits_needed,
)
from mtlens.tasks import Task


@dataclass
class Cell:
    """One comparison: what it is of, the differences a split, and what they prove."""

    target: str
    source: str  # a task, or what stands for several
    differences: FloatArray
    families: list[str] = field(default_factory=list)
    comparison: Comparison | None = None
    p: float = 1.0
    p_adjusted: float = 1.0
    verdict: VerdictName = "undecided"
    runs_needed: int | str = 0
    cause: str | None = None
    margin: float = UNITLESS
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def n(self) -> int:
        return len(self.differences)

    @property
    def is_open(self) -> bool:
        return self.verdict == "undecided"

    def as_dict(self) -> dict[str, Any]:
        """As in verdicts.json. Numbers that do not exist (no split, an endless interval) are null."""
        c = self.comparison
        plain: dict[str, Any] = {"target": self.target, "source": self.source}
        plain |= {what: _finite(getattr(c, what, None)) for what in ("difference", "low", "high")}
        plain |= {"n": self.n, "p": _finite(self.p) if self.n else None}
        plain |= {"p_adjusted": _finite(self.p_adjusted) if self.n else None, "verdict": self.verdict}
        plain |= {"runs_needed": self.runs_needed, "cause": self.cause, "margin": self.margin}
        plain["family"] = Counter(self.families).most_common(1)[0][0] if self.families else None
        plain["families"] = dict(sorted(Counter(self.families).items()))
        return plain | self.extra


def _finite(value: Any) -> float | None:
    if value is None or not np.isfinite(value):
        return None
    return float(value)


def margin_of(task: Task, given: Any) -> float:
    """The smallest difference that matters for a task: as given (a number, by task or by metric), else the default."""
    if isinstance(given, dict):
        given = given.get(task.name, given.get(task.metric))
    if given is not None:
        return float(given)
    if task.metric == "rmse":
        return UNITLESS * float(np.nanstd(task.y)) or UNITLESS
    return UNITLESS


Ratio = Callable[[str], float]


class Judge:
    """Turns differences into verdicts, one table of cells at a time; multiplicity is counted within a table.

    Args:
        ratio: test rows over other rows, by task.
        balanced: whether splits are complete repeats of folds.
        margins: by task.
    """

    def __init__(self, settings: Settings, ratio: Ratio, margins: dict[str, float], *, balanced: bool) -> None:
        self.looks = settings.looks
        self.ratio = ratio
        self.margins = margins
        self.balanced = balanced

    def table(self, cells: Sequence[Cell], *, unmeasured: int = 0) -> Sequence[Cell]:
        """Fill in p values, adjusted p values, verdicts and what is needed. Returns the cells.

        ``unmeasured``: comparisons that were screened away on the same rows. They count in the adjustment as cells
        that show nothing, because the measured ones were chosen from among them.
        """
        for cell in cells:
            self._measure(cell)
        p = [cell.p if cell.n else math.nan for cell in cells] + [1.0] * unmeasured
        adjusted = benjamini_hochberg(p)
        for cell, value in zip(cells, adjusted[: len(cells)].tolist(), strict=True):
            cell.p_adjusted = 1.0 if math.isnan(value) else value
            self._decide(cell)
        return cells

    def _measure(self, cell: Cell) -> None:
        cell.margin = self.margins[cell.target]
        if cell.n == 0:
            return
        ratio = self.ratio(cell.target)
        cell.comparison = compare_splits(cell.differences, ratio, balanced=self.balanced)
        p = [self._p_at(cell.differences, look, ratio) for look in range(len(self.looks))]
        cell.p = float(sequential_p(p, self.looks))

    def _p_at(self, differences: FloatArray, look: int, ratio: float) -> float:
        """The p value a look saw: of its own splits, or of all there are when the study stopped on the way to it."""
        before = self.looks[look - 1] if look else 0
        if len(differences) <= before:
            return math.nan
        return float(compare_splits(differences[: self.looks[look]], ratio, balanced=self.balanced).p)

    def _decide(self, cell: Cell) -> None:
        if cell.comparison is None:
            cell.verdict, cell.runs_needed = "undecided", self.looks[0]
            return
        cell.verdict = judge(cell.comparison, cell.p_adjusted, cell.margin).item()
        if cell.n < 2:
            cell.verdict = "undecided"
        cell.runs_needed = 0
        if cell.is_open:
            c = cell.comparison
            factor = cell.p_adjusted / max(float(c.p), 1e-300)
            ratio = self.ratio(cell.target)
            numbers = float(c.difference), float(c.spread), cell.n, ratio, factor, cell.margin
            cell.runs_needed = splits_needed(*numbers, balanced=self.balanced)


def pair_cells(evidence: Evidence, names: Sequence[str], families: Sequence[str], splits: Iterable[int],
               measured: Iterable[tuple[str, str]]) -> list[Cell]:  # fmt: skip
    """A cell for every ordered pair of distinct tasks, empty where it was not run."""
    run = {frozenset(pair) for pair in measured}
    splits = list(splits)
    cells = []
    for target in names:
        for source in names:
            if source == target:
                continue
            empty: tuple[FloatArray, list[str]] = (np.empty(0), [])
            is_run = frozenset((target, source)) in run
            found = evidence.differences(target, (target, source), splits, families=families) if is_run else empty
            cells.append(Cell(target, source, *found))
    return cells
