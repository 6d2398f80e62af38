"""Two promises about size: early stopping pays only for useful steps, and memory follows one stack, not the study.

1. 1,000 trainings of at most 30 epochs with ``stop="converged"``, against the engine without early stopping: cost of a
   step that was taken (a useful step). Members that stop leave, so the ratio should stay near 1.
2. 10,000 trainings with ``keep="scores"``: growth of the peak memory over that of a run of one stack, against
   one stack's state and the scores themselves.

Each part runs in a process of its own, since a peak is never forgotten.
Run: python benchmarks/bench_engine_scale.py [--repeats 5] [--count 10000]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

from mtlens import TaskSet, Training, train

WIDTH, BATCH = 50, 50


def tasks(rows: int, width: int = 100) -> TaskSet:
    draws = np.random.default_rng(0)
    X = draws.normal(size=(rows, width)).astype(np.float32)
    score = np.maximum(X @ draws.normal(size=(width, 10)), 0) @ draws.normal(size=(10, 2))
    Y = (score + 4 * draws.normal(size=score.shape) > 0).astype(float)
    split = np.repeat(["train", "valid"], [rows * 9 // 10, rows - rows * 9 // 10])
    return TaskSet.from_arrays(X, Y, names=["a", "b"], kind="binary", split=split)


def cost_of_a_step(count: int, stop: str, epochs: int) -> float:
    """Seconds a step of one model, over all steps taken, of one call of ``train``."""
    pair = tasks(2000)
    given = [
        Training(pair, "mlp", WIDTH, lr=10.0 ** -(2 + i % 3), seed=i, epochs=epochs, stop=stop, patience=3)  # type: ignore[arg-type]
        for i in range(count)
    ]
    began = time.perf_counter()
    results = train(given, keep="scores", progress=False)
    seconds = time.perf_counter() - began
    return seconds / (sum(len(r.history["loss"]) for r in results) * 36)


def early_stopping(repeats: int) -> None:
    ratios = []
    for _ in range(repeats):
        stopped, full = cost_of_a_step(1000, "converged", 30), cost_of_a_step(110, "epochs", 30)
        ratios.append(stopped / full)
    print(
        f"1,000 trainings, early stopping on: a useful step costs {statistics.median(ratios):.2f}x "
        f"({min(ratios):.2f} to {max(ratios):.2f}) that of 110 trainings without it; must 1.25x"
    )


def peak(count: int) -> int:
    """Peak resident bytes after ``count`` short trainings."""
    pair = tasks(1000, 20)
    train([Training(pair, "mlp", WIDTH, seed=s, epochs=1) for s in range(count)], keep="scores", progress=False)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def memory(count: int) -> None:
    few, many = (int(_alone(f"--peak={n}")) for n in (64, count))
    growth = (many - few) / count
    print(
        f"{count:,} trainings, keep='scores': peak {many / 2**20:.0f} MiB against {few / 2**20:.0f} MiB for 64; "
        f"{growth:.0f} bytes more a training (settings, scores and history)"
    )


def _alone(argument: str) -> str:
    done = subprocess.run([sys.executable, __file__, argument], capture_output=True, text=True, check=True)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--peak", type=int)
    options = parser.parse_args()
    if options.peak:
        print(peak(options.peak))
        return
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.2f}")
    memory(options.count)
    early_stopping(options.repeats)


if __name__ == "__main__":
    main()
