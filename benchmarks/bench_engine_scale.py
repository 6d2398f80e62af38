"""Two promises about size: early stopping pays only for useful steps, and memory follows one stack, not the study.

1. 1,000 trainings of at most 30 epochs with ``stop="converged"``, against the engine without early stopping: cost of a
   step that was taken (a useful step). Members that stop leave, so the ratio should stay near 1.
2. 10,000 trainings with ``keep="scores"``: how much the peak memory rises while ``train`` runs, against the rise for
   64 trainings (one stack a core) plus the size of the results themselves.

Each peak is taken in a process of its own, since it is never forgotten.
Run: python benchmarks/bench_engine_scale.py [--repeats 5] [--count 10000] [--rows stopping,memory] [--epochs 30]
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

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


def early_stopping(repeats: int, epochs: int) -> None:
    ratios = []
    for _ in range(repeats):
        stopped, full = cost_of_a_step(1000, "converged", epochs), cost_of_a_step(110, "epochs", epochs)
        ratios.append(stopped / full)
    print(
        f"1,000 trainings, early stopping on: a useful step costs {statistics.median(ratios):.2f}x "
        f"({min(ratios):.2f} to {max(ratios):.2f}) that of 110 trainings without it; must 1.25x, reach 1.1x",
        flush=True,
    )


def peak(count: int) -> tuple[int, int]:
    """Bytes by which the peak rises during ``count`` short trainings, and bytes of their results."""
    pair = tasks(1000, 20)
    train(Training(pair, "mlp", WIDTH, epochs=1), keep="scores", progress=False)  # what is loaded and built once
    given = [Training(pair, "mlp", WIDTH, seed=s, epochs=1) for s in range(count)]
    before = highest()
    results = train(given, keep="scores", progress=False)
    rise = highest() - before
    return rise, size_of([{**vars(result), "training": None} for result in results])


def highest() -> int:
    """Peak memory of this program in bytes. (``getrusage`` would hand down what the parent had before it.)"""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def size_of(whole: object) -> int:
    """Bytes of a structure of plain values and arrays; what is shared counts once."""
    waiting, seen, total = [whole], set[int](), 0
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and not isinstance(one, type):
            seen.add(id(one))
            total += sys.getsizeof(one)
            waiting += gc.get_referents(one)
    return total


def memory(count: int) -> None:
    (few, _), (many, results) = (map(int, _alone(f"--peak={n}").split()) for n in (64, count))
    print(
        f"{count:,} trainings, keep='scores': the peak rises by {many / 2**20:.1f} MiB, that of 64 by "
        f"{few / 2**20:.1f}, the results hold {results / 2**20:.1f}: "
        f"{many / (few + results):.2f}x of the two; must 1.5x",
        flush=True,
    )


def _alone(argument: str) -> str:
    done = subprocess.run([sys.executable, __file__, argument], capture_output=True, text=True, check=True)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=30, help="most epochs of the early-stopping row")
    parser.add_argument("--rows", default="stopping,memory")
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(*peak(options.peak))
        return
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.2f} at the start", flush=True)
    for row in options.rows.split(","):
        memory(options.count) if row == "memory" else early_stopping(options.repeats, options.epochs)
    print(f"load {os.getloadavg()[0]:.2f} at the end")


if __name__ == "__main__":
    main()
