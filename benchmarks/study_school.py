"""School: all 9,591 pairs of 139 tasks screened by the linear core, the most promising measured over 10 splits.

Run:  python benchmarks/study_school.py --data FOLDER [--set school|bibtex] [--pairs 300] [--splits 10] [--out FOLDER]

It must end within 20 minutes and 4 GB on 2 cores. Prints times, the peak memory of the study and its workers, the
verdicts, and the load of the machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from mtlens.study import Study
from mtlens.tasks import Task, TaskSet


def school(folder: Path) -> TaskSet:
    data = np.load(folder / "multitarget" / "school.npz", allow_pickle=False)
    X, y, task = data["X"].astype(np.float64), data["y"].astype(np.float64), data["task"]
    return TaskSet([Task(f"school {t}", X[task == t], y[task == t], kind="regression") for t in np.unique(task)])


def bibtex(folder: Path, commonest: int = 50) -> TaskSet:
    data = np.load(folder / "multilabel" / "bibtex.npz", allow_pickle=False)
    Y = data["Y"].astype(np.float64)
    kept = np.sort(np.argsort(-Y.sum(0), kind="stable")[:commonest])
    names = [str(data["label_names"][i]) for i in kept]
    return TaskSet.from_arrays(data["X"].astype(np.float64), Y[:, kept], names=names, kind="binary")


SETS = {"school": school, "bibtex": bibtex}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("shared/data"))
    parser.add_argument("--set", choices=SETS, default="school")
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--capacities", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--families", nargs="+", default=["linear", "trunk"])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    tasks = SETS[given.set](given.data)
    print(f"{given.set}: {len(tasks)} tasks; load {os.getloadavg()}; {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        out = given.out or Path(temporary) / "run"
        study = Study(
            tasks, out, pairs=given.pairs, splits=given.splits, capacities=tuple(given.capacities),
            families=tuple(given.families), methods=("plain",), leave_one_out=False, advice=False,
        )  # fmt: skip
        began = time.perf_counter()
        screening = study.screening(study.splitter())
        screened = time.perf_counter()
        print(f"screened {len(screening.order)} pairs in {screened - began:.1f} s", flush=True)
        result = study.run()
        ended = time.perf_counter()
        peaks = [resource.getrusage(who).ru_maxrss / 1e6 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        print(f"study of {given.pairs} pairs over {given.splits} splits: {ended - screened:.1f} s in all")
        print(f"peak memory: {peaks[0]:.2f} GB here, {peaks[1]:.2f} GB in the largest worker")
        print(result, result.verdicts["cost"], sep="\n")
        print(result.table())
        began = time.perf_counter()
        again = Study(
            tasks, out, pairs=given.pairs, splits=given.splits, capacities=tuple(given.capacities),
            families=tuple(given.families), methods=("plain",), leave_one_out=False, advice=False,
        ).run()  # fmt: skip
        print(f"opened again in {time.perf_counter() - began:.2f} s; same table: {again.to_csv() == result.to_csv()}")
        print(f"load {os.getloadavg()}")


if __name__ == "__main__":
    main()
