"""Carrying out a study: looks, open cells, budget, ledger, and an end at any moment."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mtlens.study.budget import Allowance
from mtlens.study.cells import Cell, Judge, margin_of, pair_cells
from mtlens.study.evidence import Evidence
from mtlens.study.executors import Executor
from mtlens.study.ledger import Ledger, Record
from mtlens.study.plan import (
    Cells,
    Stack,
    Unit,
    alone_units,
    cells_for,
    left_out_units,
    pair_units,
    pairs_to_measure,
    stacks_of,
    together_units,
)
from mtlens.study.prepare import Splitter
from mtlens.study.screening import Screening
from mtlens.study.settings import Settings
from mtlens.tasks import TaskSet

PAIR_SHARE = 0.8  # of the time left after the single tasks, what pairs may plan to use at the first look


class Progress(Protocol):
    """What a progress bar is told."""

    def update(self, *, done: int, planned: int, decided: int, cells: int, look: int) -> None: ...


@dataclass
class Tables:
    """The verdicts so far."""

    pairs: list[Cell] = field(default_factory=list)
    together: list[Cell] = field(default_factory=list)
    left_out: list[Cell] = field(default_factory=list)

    @property
    def decided(self) -> int:
        return sum(not cell.is_open for cell in self.pairs)


class Run:
    """One execution of a study on prepared ingredients."""

    def __init__(
        self,
        tasks: TaskSet,
        settings: Settings,
        splitter: Splitter,
        screening: Screening,
        ledger: Ledger,
        executor: Executor,
        progress: Progress | None = None,
    ) -> None:
        self.tasks, self.settings, self.splitter = tasks, settings, splitter
        self.screening, self.ledger, self.executor, self.progress = screening, ledger, executor, progress
        self.names = tasks.names
        self.evidence = Evidence(settings, self.names)
        margins = {task.name: margin_of(task, settings.margin) for task in tasks}
        ratios = {name: splitter.ratio(name) for name in self.names}
        self.judge = Judge(settings, ratios.__getitem__, margins, balanced=splitter.balanced)
        self.allowance = Allowance(settings.budget.trainings)
        self.cells = Cells((), ())
        self.tables = Tables()
        self.interrupted = False
        self.units: dict[Unit, None] = {}
        self.seconds = 0.0  # spent while stacks ran
        self.training_seconds = 0.0  # spent in trainings, added over workers
        self.said: list[str] = []
        self.reused = 0
        self.failures: Counter[str] = Counter()  # trainings without a score, by reason
        self._began = time.monotonic()
        self._known: set[Unit] = set()

    # ------------------------------------------------------------------ the loop

    def go(self) -> Tables:
        """Look after look until nothing is open, the budget is spent, or someone interrupts."""
        try:
            for number, n in enumerate(self.settings.looks):
                if number == 0:
                    self._first_look(n)
                elif not self._next_look(self.settings.looks[number - 1], n):
                    break
                self.look()
                if self._out_of_time():
                    break
        except KeyboardInterrupt:
            self.interrupted = True
            self.ledger.flush()
            self.look()
        return self.tables

    def plan_first_look(self) -> None:
        """Ask the executor for the first look as a count budget plans it, whatever the clock says."""
        self.settings = self.settings.but(budget=self.settings.budget.trainings)
        self._first_look(self.settings.looks[0])

    def _first_look(self, n: int) -> None:
        splits = range(n)
        alone = alone_units(self.names, splits, self.settings)
        self.allowance.take(alone, force=True)
        empty = cells_for(self.names, (), self.settings)
        for pair in self.screening.order[:1]:  # what is left for everything else, one pair comes first
            self.allowance.take(pair_units(pair, splits, self.settings))
        plain_all = together_units(empty, "plain", splits, self.settings)
        first = alone + (plain_all if self.allowance.take(plain_all) else [])
        if self.settings.budget.seconds is None:
            pairs, rest = self._pairs(splits, None), self._rest(empty, splits)
            self.execute(first + pairs + rest)
            return
        rate = self._timed(first)
        reserve = self._time_left() * (1 - PAIR_SHARE)
        pairs = self._pairs(splits, rate, reserve)
        while self.work(pairs) and not self._out_of_time():  # more pairs while there is time: the first guess is rough
            rate = self._timed(pairs)
            pairs = self._pairs(splits, rate, reserve)
        self.execute(pairs)
        if not self._out_of_time():
            self.execute(self._rest(empty, splits))

    def _timed(self, units: Sequence[Unit]) -> float:
        """Execute; seconds a row that passed through networks."""
        work, before = self.work(units), time.monotonic()
        self.execute(units)
        return (time.monotonic() - before) / max(work, 1.0)

    def _pairs(self, splits: Iterable[int], rate: float | None, reserve: float = 0.0) -> list[Unit]:
        """Pairs in order of promise, as many as settings, count budget and time (less a reserve) allow."""
        found: list[Unit] = []
        chosen: list[tuple[str, str]] = []
        splits = list(splits)
        left = self._time_left() - reserve
        for pair in self.screening.order[: pairs_to_measure(self.names, self.settings)]:
            units = pair_units(pair, splits, self.settings)
            if not self.allowance.take(units):
                break
            if rate is not None and chosen and (left := left - rate * self.work(units)) < 0:
                break
            chosen.append(pair)
            found += units
        self.cells = cells_for(self.names, chosen, self.settings)
        return found

    def _rest(self, cells: Cells, splits: Iterable[int]) -> list[Unit]:
        """Leaving one out, and the other methods on all tasks together: what the budget still holds."""
        parts = [left_out_units(cells, splits, self.settings)]
        parts += [together_units(cells, method, splits, self.settings) for method in self.settings.methods[1:]]
        return [unit for part in parts if self.allowance.take(part) for unit in part]

    def _next_look(self, before: int, n: int) -> bool:
        """More splits for what is still open; False when nothing is, or nothing more fits."""
        splits = range(before, n)
        pairs = self._open_pairs()
        extra: list[Unit] = []
        targets: set[str] = set()
        for pair in pairs:
            units = pair_units(pair, splits, self.settings) + alone_units(pair, range(n), self.settings)
            if self.allowance.take(units):
                extra += units
                targets |= set(pair)
        if any(cell.is_open for cell in self.tables.together + self.tables.left_out):
            units = together_units(self.cells, "plain", splits, self.settings)
            units += alone_units(self.names, splits, self.settings)
            extra += (units if self.allowance.take(units) else []) + self._rest(self.cells, splits)
        if extra:
            self.execute(extra)
        return bool(extra)

    def _open_pairs(self) -> list[tuple[str, str]]:
        """Measured pairs with an undecided direction: those that few splits would decide come first."""
        need: dict[tuple[str, str], float] = {}
        order = {frozenset(pair): pair for pair in self.cells.pairs}
        for cell in self.tables.pairs:
            pair = order.get(frozenset((cell.target, cell.source)))
            if pair and cell.is_open and cell.n:
                wanted = cell.runs_needed if isinstance(cell.runs_needed, int) else float("inf")
                need[pair] = min(need.get(pair, float("inf")), wanted)
        return sorted(need, key=lambda pair: (need[pair], self.cells.pairs.index(pair)))

    # ------------------------------------------------------------------ training

    def execute(self, units: Sequence[Unit]) -> None:
        """Run what the ledger does not hold yet.

        A stack enters whole, so one that is there in part was begun by another study or with other settings: what is
        there is taken, and only the rest is trained. (A training's result depends on its stack by rounding only.)
        """
        wanted = [unit for unit in dict.fromkeys(units) if unit not in self._known]
        prints = {split: self.splitter.fingerprints(split) for split in {unit.split for unit in wanted}}
        stacks = stacks_of(wanted, prints)
        self.units.update(dict.fromkeys(wanted))
        missing = []
        for stack in stacks:
            there = self.ledger.find(stack.identities)
            known, rest = stack.divided(there)
            self._enter(known, [there[identity] for identity in known.identities])
            self.reused += len(known.units)
            if rest.units:
                missing.append(rest)
        self._train(missing)

    def _train(self, stacks: Sequence[Stack]) -> None:
        if not stacks or self._out_of_time():
            return
        began = time.monotonic()
        try:
            for done in self.executor.run(stacks):
                if done is None:
                    self.ledger.tick()
                else:
                    self._finish(*done)
                if self._out_of_time():
                    break
        finally:
            self.seconds += time.monotonic() - began
            self.ledger.flush()

    def _finish(self, stack: Stack, found: Sequence[dict[str, Any]]) -> None:
        self.training_seconds += sum(one.get("seconds", 0.0) for one in found)
        records = [
            Record(
                identity, unit.describe(), _scores(one), one.get("seconds", 0.0), one.get("reason", ""), stack.identity
            )
            for identity, unit, one in zip(stack.identities, stack.units, found, strict=True)
        ]
        self.ledger.add(records)
        self._enter(stack, records)
        self._report()

    def _enter(self, stack: Stack, records: Sequence[Record]) -> None:
        for unit, record in zip(stack.units, records, strict=True):
            self.evidence.add(unit, record)
            if record.reason and not record.scores:
                self.failures[record.reason] += 1
        self._known.update(stack.units)

    def _report(self) -> None:
        if self.progress is not None:
            total = len(self.names) * (len(self.names) - 1)
            look = len({cell.n for cell in self.tables.pairs})
            self.progress.update(
                done=len(self._known), planned=len(self.units), decided=self.tables.decided, cells=total, look=look
            )

    # ------------------------------------------------------------------ looking

    def look(self) -> None:
        """Make all tables from what is finished."""
        families, splits = self.families, range(self.settings.looks[-1])
        self.tables.pairs = pair_cells(self.evidence, self.names, families, splits, self.cells.pairs)
        total = len(self.tables.pairs)
        measured = [cell for cell in self.tables.pairs if cell.n]
        self.judge.table(self.tables.pairs, unmeasured=total - len(measured))
        self.tables.together = self._together(families, splits)
        self.tables.left_out = self._left_out(families, splits)
        self.judge.table(self.tables.together)
        self.judge.table(self.tables.left_out)
        self._report()

    def _together(self, families: Sequence[str], splits: Iterable[int]) -> list[Cell]:
        members = self.cells.together or self.names
        splits = list(splits)
        return [
            Cell(name, "all others", *self.evidence.differences(name, members, splits, families=families))
            for name in self.names
        ]

    def _left_out(self, families: Sequence[str], splits: Iterable[int]) -> list[Cell]:
        """All together minus all but one: what a source adds in the presence of the others."""
        cells, splits = [], list(splits)
        for source in self.cells.left_out:
            rest = tuple(name for name in self.names if name != source)
            for target in rest:
                found = self.evidence.differences(target, self.names, splits, families=families, against=rest)
                cells.append(Cell(target, source, *found))
        return cells

    @property
    def failed(self) -> int:
        return self.failures.total()

    def failures_told(self) -> list[str]:
        """A sentence about trainings without a score, with their commonest reason."""
        if not self.failures:
            return []
        reason = min(self.failures, key=lambda found: (-self.failures[found], found))
        return [f"{self.failed} trainings gave no score; {self.failures[reason]} of them: {reason}"]

    @property
    def evidence_count(self) -> int:
        """Trainings and fits that are evidence now."""
        return len(self._known)

    @property
    def families(self) -> tuple[str, ...]:
        return self.settings.families

    # ------------------------------------------------------------------ time

    def work(self, units: Iterable[Unit]) -> float:
        """Rows that pass through networks, the unit in which time is guessed."""
        rows = {task.name: int(task.labelled.sum()) for task in self.tasks}
        total = 0.0
        for unit in set(units) - self._known:
            if unit.family == "trunk":
                total += sum(rows[name] for name in unit.tasks) * unit.config["epochs"]
        return total

    def _time_left(self) -> float:
        limit = self.settings.budget.seconds
        return float("inf") if limit is None else limit - (time.monotonic() - self._began)

    @property
    def is_over(self) -> bool:
        """Whether nothing more may be trained: interrupted, or out of time."""
        return self.interrupted or self._out_of_time()

    def _out_of_time(self) -> bool:
        return self._time_left() <= 0


def _scores(found: dict[str, Any]) -> dict[str, Any]:
    """What the ledger keeps of a finding: scores, controls, predictions, chosen settings."""
    kept = {**found["scores"]}
    for what in ("controls", "predictions", "settings"):
        if what in found:
            kept[what] = found[what]
    return kept


Maker = Callable[[], Run]
