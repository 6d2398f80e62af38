"""A study against the same trainings through a plain loop, and what of a study is not training.

Question: 6 tasks x 1,000 rows, all pairs, 3 capacities, 3 methods, 5 splits: how many times faster than training the
same list one by one, and which share of the time is not training? How fast does a study of 10,000 trainings reopen?
Baseline: a plain PyTorch loop (tensors in memory, default Adam, the same batches, epochs, validation each epoch), one
thread, timed on a sample of the study's own trainings and scaled by their number. Interleaved, median of ``--rounds``.

Run:  python benchmarks/bench_study.py [--rounds 5] [--sample 6]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time

import numpy as np
import torch
from torch import nn

from mtlens.study import Ledger, Study
from mtlens.study.plan import Unit
from mtlens.study.run import Run
from mtlens.tasks import TaskSet

TASKS, ROWS, WIDTH, EPOCHS, BATCH = 6, 1000, 30, 30, 50
CHOICES = {
    "capacities": (10, 50, 100), "learning_rates": (1e-3,), "epochs": EPOCHS, "splits": 5,
    "methods": ("plain", "svd", "uncertainty"), "methods_on": "pairs", "families": ("trunk",), "leave_one_out": False,
    "advice": False,
}  # fmt: skip


def tasks() -> TaskSet:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, WIDTH))
    Y = np.tanh(X @ rng.standard_normal((WIDTH, TASKS))) + rng.standard_normal((ROWS, TASKS))
    return TaskSet.from_arrays(X, Y)


def units_of(study: Study) -> list[Unit]:
    """The study's own list of trainings."""
    from mtlens.study.planning import Recorder

    splitter, recorder = study.splitter(), Recorder()
    with Ledger(":memory:") as ledger:
        run = Run(study.tasks, study.settings, splitter, study.screening(splitter), ledger, recorder)
        run.plan_first_look()
    return [unit for stack in recorder.stacks for unit in stack.units]


def plain_loop(given: TaskSet, unit: Unit) -> None:
    """One training as anyone writes it: shared trunk, one head a task, R2 on the validation rows each epoch."""
    torch.manual_seed(unit.seed)
    part = given.subset(unit.tasks)
    split = part[0].split
    X = torch.tensor(np.asarray(part[0].X), dtype=torch.float32)
    Y = torch.tensor(np.stack([task.y for task in part], 1), dtype=torch.float32)
    train, valid = (torch.tensor(np.flatnonzero(split == name)) for name in ("train", "valid"))
    trunk = nn.Sequential(nn.Linear(X.shape[1], unit.config["capacity"]), nn.ReLU())
    heads = nn.ModuleList([nn.Linear(unit.config["capacity"], 1) for _ in part])
    log_vars = nn.Parameter(torch.zeros(len(part)))
    optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters(), log_vars], lr=unit.config["lr"])
    for _ in range(unit.config["epochs"]):
        for rows in train[torch.randperm(len(train))].split(BATCH):
            features = trunk(X[rows])
            loss = sum(((head(features)[:, 0] - Y[rows, t]) ** 2).mean() for t, head in enumerate(heads))
            if unit.method == "uncertainty":
                loss = (torch.exp(-log_vars).sum() * loss + log_vars.sum()) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            features = trunk(X[valid])
            for t, head in enumerate(heads):
                1 - ((head(features)[:, 0] - Y[valid, t]) ** 2).mean() / Y[valid, t].var()


def loop_seconds(study: Study, units: list[Unit], sample: int) -> float:
    """Seconds of the whole list through the loop, from every (number of units / sample)-th of it."""
    splitter = study.splitter()
    chosen = units[:: max(1, len(units) // sample)][:sample]
    splits = {unit.split: splitter.split(unit.split) for unit in chosen}
    began = time.perf_counter()
    for unit in chosen:
        plain_loop(splits[unit.split], unit)
    return (time.perf_counter() - began) * len(units) / len(chosen)


def reopening(trainings: int = 10_000) -> float:
    """Seconds to reopen a finished study of that many trainings (made up scores; the ledger is what it would be)."""
    rng = np.random.default_rng(0)
    choices = {**CHOICES, "learning_rates": tuple(1e-3 * (i + 1) for i in range(13)), "splits": 5}
    with tempfile.TemporaryDirectory() as folder:
        study = Study(tasks(), folder, **choices)
        with study._running() as run:
            run.executor = _MadeUp(rng)
            run.go()
            count = run.evidence_count
        began = time.perf_counter()
        again = Study(tasks(), folder, **choices).run()
        seconds = time.perf_counter() - began
        assert again.verdicts["cost"]["reused"] == count >= trainings, count
    return seconds


class _MadeUp:
    """An executor that makes scores up."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def run(self, stacks):
        for stack in stacks:
            drawn = [{name: float(self.rng.random()) for name in unit.tasks} for unit in stack.units]
            yield stack, [{"scores": {"valid": one, "test": one}} for one in drawn]

    def warm(self) -> None:
        return

    def close(self) -> None:
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sample", type=int, default=6)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"load {os.getloadavg()}, {os.cpu_count()} cores, torch {torch.__version__}")
    ratios, shares, seconds = [], [], []
    for number in range(given.rounds):
        study = Study(tasks(), **CHOICES)
        units = units_of(study)
        loop = loop_seconds(study, units, given.sample)
        began = time.perf_counter()
        result = study.run()
        whole = time.perf_counter() - began
        ratios.append(loop / whole)
        shares.append(1 - result.verdicts["cost"]["training_seconds"] / (whole * study.worker_count))
        seconds.append(whole)
        print(f"round {number}: {len(units)} trainings, study {whole:.1f} s, loop {loop:.1f} s", flush=True)
    for name, values in (("faster than the loop", ratios), ("share that is not training", shares), ("s", seconds)):
        print(f"{name}: {statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})")
    print(f"reopening 10,000 trainings: {statistics.median(reopening() for _ in range(3)):.2f} s")
    print(json.dumps({"ratio": statistics.median(ratios), "overhead": statistics.median(shares)}))


if __name__ == "__main__":
    main()
