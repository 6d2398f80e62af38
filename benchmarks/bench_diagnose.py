"""How long and how much memory does ``diagnose`` take, and how does it compare with a joint ridge pair by pair?

Baseline: for every ordered pair, ridge and source weight by the same five folds with scikit-learn's Ridge on stacked
rows, timed on a few pairs and multiplied up. Targets: 20 tasks x 5,000 rows x 100 columns under 10 s; 50 x 20,000 x 300
under 60 s and 2 GB, on two cores. The figures depend on the machine; the ratio comes from one run.
"""

from __future__ import annotations

import argparse
import os
import resource
import time

import numpy as np
from sklearn.linear_model import Ridge

from mtlens.diagnosis import diagnose
from mtlens.tasks import Task, TaskSet
from mtlens.theory.transfer import RIDGES, WEIGHTS

SIZES = {"small": (20, 5_000, 100), "large": (50, 20_000, 300)}
FOLDS = 5


def tasks_of(count: int, rows: int, width: int) -> TaskSet:
    """Separate inputs and related models, float32 as they would come from a file."""
    random = np.random.default_rng(0)
    common = random.standard_normal((width, 3))
    made = []
    for i in range(count):
        X = random.standard_normal((rows, width), dtype=np.float32)
        y = X @ (common @ random.standard_normal(3)) + 5 * random.standard_normal(rows)
        made.append(Task(f"task {i}", X, y, kind="regression"))
    return TaskSet(made)


def naive_pair(target: Task, source: Task) -> float:
    """Best cross-validated error of one ordered pair, row by row; returns seconds."""
    start = time.perf_counter()
    fold = np.arange(target.num_rows) % FOLDS
    best = np.inf
    for weight in WEIGHTS:
        for ridge in RIDGES:
            error = 0.0
            for f in range(FOLDS):
                rows = fold != f
                X = np.concatenate([target.X[rows], source.X[rows]])
                y = np.concatenate([target.y[rows], source.y[rows]])
                alpha = np.repeat([1.0, weight], rows.sum())
                model = Ridge(alpha=ridge * X.shape[1]).fit(X, y, sample_weight=alpha)
                error += float(((target.y[~rows] - model.predict(target.X[~rows])) ** 2).sum())
            best = min(best, error)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=[*SIZES, "all"], default="all")
    parser.add_argument("--repeats", type=int, default=5, help="of the small size; the large one runs once")
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
    for name in SIZES if options.size == "all" else [options.size]:
        count, rows, width = SIZES[name]
        tasks = tasks_of(count, rows, width)
        times, naive = [], []
        for _ in range(options.repeats if name == "small" else 1):
            times.append(diagnose(tasks).seconds)
            if name == "small":
                naive.append(naive_pair(tasks[0], tasks[1]))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        line = f"{name}: {count} tasks x {rows} x {width}: {np.median(times):.1f} s, peak {peak:.2f} GB (data included)"
        if naive:
            pairs = count * (count - 1)
            alone = float(np.median(naive)) * pairs
            line += f"; pair by pair {alone:.0f} s, ratio {alone / np.median(times):.0f}"
        print(line)


if __name__ == "__main__":
    main()
