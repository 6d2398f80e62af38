"""What a study would run and cost, before it runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from mtlens.study.ledger import Ledger
from mtlens.study.plan import Unit, count_trainings, stacks_of
from mtlens.study.run import Run

if TYPE_CHECKING:
    from mtlens.study.study import Study

CALIBRATION = 12  # networks trained to guess the time; at most this many seconds
BYTES_A_RECORD = 900  # a ledger row of a pair, measured
WHAT = (("alone", 1), ("pairs", 2))


class Recorder:
    """An executor that trains nothing and remembers what it was asked for."""

    def __init__(self) -> None:
        self.stacks: list[Any] = []

    def run(self, stacks: Any) -> Any:
        self.stacks += list(stacks)
        return iter(())

    def warm(self) -> None:
        return

    def close(self) -> None:
        return


def plan_of(study: Study, *, calibrate: bool = True) -> dict[str, Any]:
    """Counts by kind, the grid of each side, looks, stacks, disk, and (calibrated) time.

    Everything but ``estimate`` is a pure function of data, settings and seed. Later looks depend on what the first
    one decides: ``most_trainings`` is what they could add up to if nothing were ever decided.
    """
    splitter = study.splitter()
    study.settle(splitter)
    recorder = Recorder()
    screening = study.screening(splitter)
    with Ledger(":memory:") as ledger:
        run = Run(study.tasks, study.settings, splitter, screening, ledger, recorder)
        run.plan_first_look()
    units = [unit for stack in recorder.stacks for unit in stack.units]
    networks = count_trainings(units)
    looks = study.settings.looks
    most = networks * looks[-1] // looks[0]
    if study.settings.budget.trainings is not None:
        most = min(most, study.settings.budget.trainings)
    plan: dict[str, Any] = {
        "tasks": list(study.tasks.names),
        "looks": list(looks),
        "grid": study.grid,
        "pairs_measured": len(run.cells.pairs),
        "pairs_screened": len(screening.order),
        "trainings": networks,
        "most_trainings": max(most, networks),
        "linear_fits": len(units) - networks,
        "by_kind": by_kind(units),
        "stacks": len(recorder.stacks),
        "disk_bytes": len(units) * BYTES_A_RECORD,
        "said": list(study.said),
        "settings": study.settings.describe(),
    }
    if calibrate:
        plan["estimate"] = estimate(study, run, units)
    return plan


def by_kind(units: list[Unit]) -> dict[str, int]:
    """Networks alone, in pairs, and in larger sets, and by method."""
    found: dict[str, int] = {}
    for unit in units:
        if unit.family == "trunk":
            size = {1: "alone", 2: "pairs"}.get(len(unit.tasks), "larger sets")
            name = size if unit.method == "plain" else f"{size}, {unit.method}"
            found[name] = found.get(name, 0) + 1
    return found


def estimate(study: Study, run: Run, units: list[Unit]) -> dict[str, Any]:
    """Seconds for the first look, from a short calibration: a few of its own networks and linear fits, run here."""
    from mtlens.study.executors import HereExecutor

    executor = HereExecutor(run.splitter.prepared, seed=study.settings.seed, device=study.device)
    seconds = 0.0
    networks = [unit for unit in units if unit.family == "trunk"]
    linear = [unit for unit in units if unit.family == "linear"]
    for kind in (networks, linear):
        sample = _spread(kind)
        if not sample:
            continue
        prints = {split: run.splitter.fingerprints(split) for split in {unit.split for unit in sample}}
        list(executor.run(stacks_of(sample[:1], prints)))  # what happens once (imports, moments) is not scaled up
        began = time.perf_counter()
        list(executor.run(stacks_of(sample, prints)))
        spent = time.perf_counter() - began
        whole = run.work(kind) / max(run.work(sample), 1.0) if kind is networks else len(kind) / len(sample)
        seconds += spent * max(whole, 1.0)
    workers = study.worker_count
    return {
        "seconds": round(seconds / workers, 1),
        "workers": workers,
        "calibrated_on": min(len(networks), CALIBRATION),
    }


def _spread(units: list[Unit]) -> list[Unit]:
    """A few units, evenly from the first split's."""
    first = [unit for unit in units if unit.split == units[0].split] if units else []
    step = max(1, len(first) // CALIBRATION)
    return first[::step][:CALIBRATION]
