"""Studies of every set in data/multilabel and data/multitarget, as one Markdown page.

Run:  python benchmarks/study_sets.py --data FOLDER [--only emotions,enb] [--runs FOLDER] [--out FILE]

Every study uses the defaults of ``mtlens study`` except for what its row says. Runs are kept in ``--runs``: started
again, the page is made from what is there, and sets that were not finished go on.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from mtlens.study import Study, StudyResult
from mtlens.tasks import Task, TaskSet

QUICK: dict[str, Any] = {"methods": ("plain", "svd", "uncertainty"), "capacities": (10, 50), "small": "drop"}
SETS: dict[str, dict[str, Any]] = {
    "multitarget/edm": QUICK,
    "multitarget/enb": QUICK,
    "multitarget/sf2": QUICK,
    "multitarget/scpf": QUICK,
    "multilabel/emotions": QUICK,
    "multitarget/wq": QUICK | {"budget": 6000},
    "multitarget/oes97": QUICK | {"budget": 6000},
    "multilabel/yeast": QUICK | {"budget": 6000},
    "multilabel/birds": QUICK,
    "multitarget/school": QUICK | {"families": ("linear",), "pairs": 300, "splits": 10, "methods": ("plain",)},
    "multilabel/bibtex": QUICK | {"families": ("linear",), "pairs": 100, "splits": 5, "methods": ("plain",)},
}
COMMONEST = 50  # labels of bibtex


def load(path: Path) -> TaskSet:
    """Tasks of a set; official test rows of the multilabel sets stay official."""
    data = np.load(path, allow_pickle=False)
    if "task" in data:
        X, y, task = data["X"].astype(np.float64), data["y"].astype(np.float64), data["task"]
        return TaskSet([Task(f"school {t}", X[task == t], y[task == t], kind="regression") for t in np.unique(task)])
    key = "label_names" if "label_names" in data else "target_names"
    names, Y = [str(n) for n in data[key]], data["Y"].astype(np.float64)
    kept = np.sort(np.argsort(-Y.sum(0), kind="stable")[:COMMONEST]) if Y.shape[1] > COMMONEST else range(Y.shape[1])
    fields = {"kind": "binary", "split": data["split"]} if "split" in data else {"kind": "regression"}
    return TaskSet.from_arrays(data["X"].astype(np.float64), Y[:, list(kept)], names=[names[i] for i in kept], **fields)


def study(name: str, data: Path, runs: Path) -> StudyResult:
    began = time.perf_counter()
    result = Study(load(data / f"{name}.npz"), runs / name.replace("/", "-"), **SETS[name], advice=False).run()
    print(f"{name}: {result} in {time.perf_counter() - began:.0f} s", flush=True)
    return result


def row(name: str, result: StudyResult) -> str:
    v, counts = result.verdicts, result.counts()
    measured = sum(1 for c in v["transfer"] if c["target"] != c["source"] and c["n"])
    together = {verdict: sum(c["verdict"] == verdict for c in v["together"]) for verdict in counts}
    mean = v["pooled"]["together"]
    pooled = f"{mean['difference']:+.4f} ({mean['low']:+.4f} to {mean['high']:+.4f}): {mean['verdict']}"
    families = [c["family"] for c in v["transfer"] if c["target"] == c["source"]]
    cost = v["cost"]
    return (
        f"| {name} | {len(v['tasks'])} | {v['tasks'][0]['metric']} | {measured} of {sum(counts.values())} "
        f"| {counts['helps']} | {counts['hurts']} | {counts['no difference']} | {counts['undecided']} "
        f"| {together['helps']} / {together['hurts']} / {together['no difference']} / {together['undecided']} "
        f"| {pooled} | {families.count('linear')} / {families.count('trunk')} "
        f"| {cost['trainings']} + {cost['linear_fits']} | {v['settings']['seed']} |"
    )


def page(found: dict[str, StudyResult], data: Path) -> str:
    head = [
        "# Measured transfer in real sets",
        "",
        "Made by `python benchmarks/study_sets.py --data FOLDER`. Joint minus alone on test rows; family, grid and",
        "budget equal on both sides; nested selection; verdicts adjusted over all ordered pairs of a set, those that",
        "were only screened included.",
        f"Settings, where not the defaults: {_said(QUICK)}; "
        + "; ".join(f"{name.split('/')[1]}: {_said(own)}" for name in found if (own := _own(name)))
        + ". Sets that are not listed were not run.",
        "",
        "| set | tasks | metric | cells measured | helps | hurts | no difference | open "
        "| all together: helps / hurts / none / open | mean over tasks, all together (95 %) "
        "| family alone prefers: linear / trunk "
        "| networks + linear fits | seed |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        *(row(name, result) for name, result in found.items()),
        "",
        "Open cells are the honest majority: with so few rows, effects of a point or less cannot be told from noise.",
    ]
    tables = [f"\n## {name}\n\n{result.table()}" for name, result in found.items() if len(result.names) <= 20]
    tests = [_official(name, result) for name, result in found.items() if result.verdicts["official_test"]]
    return "\n".join([*head, *tables, *tests])


def _own(name: str) -> dict[str, Any]:
    return {key: value for key, value in SETS[name].items() if QUICK.get(key) != value}


def _said(choices: dict[str, Any]) -> str:
    return ", ".join(f"{k}={v if not isinstance(v, tuple) else '+'.join(map(str, v))}" for k, v in choices.items())


def _official(name: str, result: StudyResult) -> str:
    cells = result.verdicts["official_test"]["cells"]
    counts = {v: sum(c["verdict"] == v for c in cells) for v in ("helps", "hurts", "no difference", "undecided")}
    return f"\nOfficial test rows of {name} ({len(cells)} comparisons): " + ", ".join(
        f"{n} {v}" for v, n in counts.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    chosen = [n for n in SETS if given.only is None or n.split("/")[1] in given.only.split(",")]
    print(f"load {os.getloadavg()}")
    found = {name: study(name, given.data, given.runs) for name in chosen}
    text = page(found, given.data)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
