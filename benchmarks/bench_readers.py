"""Question: what do mtlens' reader and duplicate finder cost beside pyarrow's own CSV reader?

One million rows by 100 columns of numbers as CSV (about 750 MB; --rows for less). Every time is taken in a fresh
process, interleaved, median of 5; memory is the peak above that of the interpreter with the imports done.
Goals: at most 3 times pyarrow's time, at most 2 times the array in memory, a million rows of duplicates in 10 s.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

_PROLOGUE = """
import sys, time, threading
import numpy as np, pyarrow.csv
import mtlens.tasks.readers, mtlens.tasks.duplicates
def resident(what):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(what)) * 1024
bare = resident("VmRSS")
start = time.perf_counter()
"""
_EPILOGUE = """
print(time.perf_counter() - start, resident("VmHWM") - bare)
"""
_ACTIONS = {
    "pyarrow.csv.read_csv": "table = pyarrow.csv.read_csv(sys.argv[1])",
    "read_tasks": "tasks = mtlens.tasks.readers.read_tasks(sys.argv[1], targets=['c99'])",
    "find_duplicates": (
        "X = np.random.default_rng(0).standard_normal((int(sys.argv[2]), 20)); bare = resident('VmRSS')\n"
        "task = mtlens.tasks.Task('t', X, X[:, 0])\n"
        "start = time.perf_counter()\n"
        "found = mtlens.tasks.duplicates.find_duplicates([task])"
    ),
}


def write_csv(path: Path, rows: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    schema = pa.schema([(f"c{i}", pa.float64()) for i in range(columns)])
    with pacsv.CSVWriter(path, schema) as writer:
        for start in range(0, rows, 50_000):
            count = min(50_000, rows - start)
            block = rng.standard_normal((count, columns)).round(5)
            writer.write_table(pa.table([pa.array(block[:, i]) for i in range(columns)], schema=schema))


def measure(action: str, path: Path, rows: int) -> tuple[float, float]:
    code = _PROLOGUE + _ACTIONS[action] + _EPILOGUE
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(rows)], capture_output=True, text=True, check=True
    )
    seconds, peak = done.stdout.split()
    return float(seconds), float(peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    array = given.rows * given.columns * 8
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "numbers.csv"
        write_csv(path, given.rows, given.columns)
        print(f"{given.rows} x {given.columns}, {path.stat().st_size >> 20} MiB of CSV, array {array >> 20} MiB")
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start")
        found: dict[str, list[tuple[float, float]]] = {action: [] for action in _ACTIONS}
        for _ in range(given.repeats):
            for action in _ACTIONS:
                found[action].append(measure(action, path, given.rows))
    seconds = {action: statistics.median(s for s, _ in taken) for action, taken in found.items()}
    for action, taken in found.items():
        spread = f"{min(s for s, _ in taken):.2f} to {max(s for s, _ in taken):.2f}"
        peak = statistics.median(p for _, p in taken)
        print(f"{action:<22} {seconds[action]:6.2f} s ({spread})  peak {peak / array:.2f} x the array")
    ratio = seconds["read_tasks"] / seconds["pyarrow.csv.read_csv"]
    print(f"read_tasks takes {ratio:.2f} times pyarrow's time; load average {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
