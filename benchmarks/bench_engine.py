"""How much faster is a study through ``train`` than the loops people write?

The study: 6 tasks alone, 15 pairs, all 6 together, 5 seeds (110 trainings), on 6 binary tasks that share
100 inputs; 9000 train and 1000 validation rows a task, width 50, Adam, batch 50, validation ROC-AUC every epoch.

Baselines, one thread each, on the same data and the same number of epochs:
* DataLoader loop: TensorDataset, DataLoader(shuffle=True), default Adam, one optimizer step a batch;
* tuned loop: data in memory, one gather an epoch, fused Adam (15 lines, what a sceptic would write).
Both validate every epoch with one no-grad pass and scikit-learn's ROC-AUC. Every repetition runs all contestants one
after another on fresh seeds; the ratio of one repetition is taken from that repetition alone, and the median is shown.
The loops are timed on a sample of the study's trainings (one of each size) and scaled to the whole study; ``train``
runs the whole study.

Run: python benchmarks/bench_engine.py [--repeats 5] [--epochs 3] [--rows mixed,align,uncertainty,widths,joint]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from mtlens import TaskSet, Training, train
from mtlens.nets import Alignment, MultiTaskNet

ROWS, VALID, WIDTH, TASKS, BATCH = 9000, 1000, 100, 6, 50


def data(seed: int) -> tuple[np.ndarray, np.ndarray, TaskSet]:
    draws = np.random.default_rng(seed)
    X = draws.normal(size=(ROWS + VALID, WIDTH)).astype(np.float32)
    hidden = np.maximum(X @ draws.normal(size=(WIDTH, 10)), 0)
    Y = (hidden @ draws.normal(size=(10, TASKS)) + 5 * draws.normal(size=(len(X), TASKS)) > 0).astype(float)
    split = np.repeat(["train", "valid"], [ROWS, VALID])
    return X, Y, TaskSet.from_arrays(X, Y, names=list("abcdef"), kind="binary", split=split)


def groups() -> list[tuple[str, ...]]:
    names = "abcdef"
    return [*((n,) for n in names), *combinations(names, 2), tuple(names)]


class Loop:
    """One training the usual way: a net, an optimizer, a loop. Options are those of the study's row."""

    def __init__(
        self, X: np.ndarray, Y: np.ndarray, group: Sequence[str], width: int, method: str, *, fused: bool
    ) -> None:
        columns = ["abcdef".index(n) for n in group]
        self.X, self.Y = torch.from_numpy(X), torch.from_numpy(Y[:, columns]).float()
        align = Alignment(WIDTH) if method == "align" else None
        trunk = torch.nn.Sequential(torch.nn.Linear(WIDTH, width), torch.nn.ReLU())
        trunk.out_features = width
        self.net = MultiTaskNet(trunk, dict.fromkeys(group, "binary"), align=align)
        self.log_vars = torch.nn.Parameter(torch.zeros(len(group)))
        self.method, self.names = method, list(group)
        own = [self.log_vars] if method == "uncertainty" else []
        self.optimizer = torch.optim.Adam([*self.net.parameters(), *own], lr=1e-3, fused=fused or None)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = self.net(x)
        losses = torch.stack([bce(out[name], y[:, i]) for i, name in enumerate(self.names)])
        if self.method == "uncertainty":
            return (torch.exp(-self.log_vars) * losses + self.log_vars / 2).sum()
        return losses.sum()

    def step(self, loss: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def validate(self) -> None:
        with torch.no_grad():
            out = self.net(self.X[ROWS:])
        for i, name in enumerate(self.names):
            roc_auc_score(self.Y[ROWS:, i].numpy(), out[name].numpy())

    def one_task(self, x: torch.Tensor, y: torch.Tensor, task: int) -> None:
        self.step(bce(self.net(x, self.names[task]), y[:, task]))

    def loader_epoch(self) -> None:
        split = torch.utils.data.TensorDataset(self.X[:ROWS], self.Y[:ROWS])
        if self.method == "mixed":
            loaders = [torch.utils.data.DataLoader(split, BATCH, shuffle=True) for _ in self.names]
            feeds = [iter(loader) for loader in loaders]
            steps = torch.arange(len(feeds)).repeat_interleave(len(loaders[0]))
            for task in steps[torch.randperm(len(steps))].tolist():
                self.one_task(*next(feeds[task]), task)
            return
        for x, y in torch.utils.data.DataLoader(split, BATCH, shuffle=True):
            self.step(self.loss(x, y))

    def tuned_epoch(self) -> None:
        if self.method == "mixed":
            orders = [torch.randperm(ROWS) for _ in self.names]
            gathered = [(self.X[o].split(BATCH), self.Y[o].split(BATCH)) for o in orders]
            batches = ROWS // BATCH
            for k in torch.randperm(batches * len(orders)).tolist():
                xs, ys = gathered[k // batches]
                self.one_task(xs[k % batches], ys[k % batches], k // batches)
            return
        order = torch.randperm(ROWS)
        for x, y in zip(self.X[order].split(BATCH), self.Y[order].split(BATCH), strict=True):
            self.step(self.loss(x, y))


def time_loop(kind: str, X: np.ndarray, Y: np.ndarray, row: Row, epochs: int) -> float:
    """Seconds the whole study would take with one loop on one thread, from one training of each size."""
    torch.set_num_threads(1)
    total = 0.0
    for width in row.widths:
        for size, count in ((1, 30), (2, 75), (6, 5)):
            loop = Loop(X, Y, "abcdef"[:size], width, row.method, fused=kind == "tuned")
            epoch: Callable[[], None] = loop.tuned_epoch if kind == "tuned" else loop.loader_epoch
            epoch()  # warm
            began = time.perf_counter()
            epoch()
            loop.validate()
            total += count * epochs * (time.perf_counter() - began)
    return total


class Row:
    """One line of the table: the study's widths and method, and the least ratios asked for."""

    def __init__(self, name: str, widths: tuple[int, ...], method: str, floors: tuple[float, float]) -> None:
        self.name, self.widths, self.method, self.floors = name, widths, method, floors

    def trainings(self, tasks: TaskSet, epochs: int, seed: int) -> list[Training]:
        extra: dict[str, Any] = {
            "mixed": {"steps": "mixed"}, "align": {"align": "joint"}, "uncertainty": {"weighting": "uncertainty"},
        }.get(self.method, {})  # fmt: skip
        subsets = {group: tasks.subset(group) for group in groups()}
        return [
            Training(subset, "mlp", width, epochs=epochs, batch=BATCH, seed=seed + s, **extra)
            for width in self.widths
            for subset in subsets.values()
            for s in range(5)
        ]


ROWS_OF_TABLE = {
    "joint": Row("110 trainings, width 50", (50,), "joint", (15, 7)),
    "widths": Row("220 trainings, widths 50 and 200", (50, 200), "joint", (8, 4)),
    "mixed": Row("110 trainings, one-task steps", (50,), "mixed", (8, 4)),
    "align": Row("110 trainings, alignment matrices", (50,), "align", (8, 4)),
    "uncertainty": Row("110 trainings, uncertainty weights", (50,), "uncertainty", (8, 4)),
}


def measure(row: Row, repeats: int, epochs: int) -> None:
    ratios: dict[str, list[float]] = {"DataLoader": [], "tuned": []}
    rates, samples = [], sum(len(g) for g in groups()) * 5 * len(row.widths) * ROWS * epochs
    for repeat in range(repeats):
        X, Y, tasks = data(repeat)
        began = time.perf_counter()
        results = train(row.trainings(tasks, epochs, 100 * repeat), keep="scores", progress=False)
        ours = time.perf_counter() - began
        assert all(r.ok for r in results)
        rates.append(samples / ours / 1e6)
        for kind in ratios:
            ratios[kind].append(time_loop(kind, X, Y, row, epochs) / ours)
    shown = [f"{k} {statistics.median(v):5.1f}x ({min(v):.1f} to {max(v):.1f})" for k, v in ratios.items()]
    floors = f"floors {row.floors[0]:g}x / {row.floors[1]:g}x"
    rate = statistics.median(rates)
    print(f"{row.name:36s} {rate:6.2f} M samples/s   {'   '.join(shown)}   {floors}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rows", default=",".join(ROWS_OF_TABLE))
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores, torch {torch.__version__}, load {os.getloadavg()[0]:.2f} at the start")
    print(f"median (range) of {options.repeats} interleaved repetitions, {options.epochs} epochs")
    for name in options.rows.split(","):
        measure(ROWS_OF_TABLE[name], options.repeats, options.epochs)
    print(f"load {os.getloadavg()[0]:.2f} at the end")


if __name__ == "__main__":
    main()
