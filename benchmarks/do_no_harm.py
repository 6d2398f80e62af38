# ruff: noqa: E501 - the report is prose in long lines
"""Does the advice ever lose against tuned single-task models, and does it keep the gain of joining where there is one?

For every set, size and outer split: train rows make the advice and fit everything, test rows score it. Procedures: each
task alone; always join (one joint model for all tasks); always shrink; pick the winner (for each task what has the least
held-out error); the advice; and as controls the same safe stack with a penalty shared and no model shared, and, with
networks, with a second network of the task itself. Points are 100 x R2, or 100 x Brier skill for classes.

Run: python benchmarks/do_no_harm.py run --sets school,wq --sizes 100,1000 --splits 20 [--families linear,trunk] [--minutes 4]
     python benchmarks/do_no_harm.py report --out docs/results/do-no-harm.md
Results go to a file, a line each, and a run goes on where the last one stopped. The report is the page and, beside it, a
table of every split (do-no-harm.csv).
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mtlens.models.fitting import _range
from mtlens.models.linear_members import LinearFits
from mtlens.models.members import Encoded, joined
from mtlens.models.networks import Networks, job_of
from mtlens.models.system import Grid, System
from mtlens.study.advice import PartAdvice
from mtlens.study.candidates import Candidate, HeldOut
from mtlens.study.stacking import best_applied, safe_join
from mtlens.tasks import Task, TaskSet

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
STORE = Path(__file__).resolve().parents[1] / "scratch" / "do-no-harm.jsonl"
MULTILABEL = ("yeast", "emotions", "birds", "bibtex")
MULTITARGET = ("oes97", "wq", "scpf", "sf2", "enb", "edm")
TEXT6 = {"mr": 2, "subj": 2, "cr": 2, "mpqa": 2, "trec": 6, "sst_binary": 2}
GLUE = ("cola", "mrpc", "rte", "sst2", "qnli")
SETS = ("school", "text6", "glue", "chestxray14", *MULTILABEL, *MULTITARGET)
MOST_TEST = 2000  # rows a task scored in a split
WIDEST = 256  # columns kept, as leading directions of the inputs alone, so that twenty splits are affordable
RARE = 5  # test rows of the rarer class below which a task is not scored in a split
MOST_GROUPED = 20  # tasks up to which groups are tried
ELSEWHERE = 3000  # rows of the other tasks when one task is made small
GRID = Grid(capacities=[32], learning_rates=[1e-3, 1e-2], epochs=20)


# ---------------------------------------------------------------------- data


def load(name: str) -> TaskSet:
    """A set as numbers in one space; labels may be missing."""
    if name == "school":
        data = np.load(DATA / "multitarget" / "school.npz", allow_pickle=False)
        X = data["X"].astype(float)
        return TaskSet(
            Task(f"school {t}", X[data["task"] == t], data["y"][data["task"] == t], kind="regression")
            for t in np.unique(data["task"])
        )
    if name in MULTITARGET:
        data = np.load(DATA / "multitarget" / f"{name}.npz", allow_pickle=False)
        return TaskSet.from_arrays(
            _narrow(_filled(data["X"])),
            data["Y"].astype(float),
            names=[str(n) for n in data["target_names"]],
            kind="regression",
        )
    if name in MULTILABEL:
        data = np.load(DATA / "multilabel" / f"{name}.npz", allow_pickle=False)
        common = (data["Y"].sum(axis=0) >= 10) & ((1 - data["Y"]).sum(axis=0) >= 10)
        names = [str(n) for n in data["label_names"][common]]
        return TaskSet.from_arrays(
            _narrow(_filled(data["X"])), data["Y"][:, common].astype(float), names=names, kind="binary"
        )
    if name == "chestxray14":
        data = np.load(DATA / "chestxray14" / "pixels64.npz", allow_pickle=False)
        kept = data["source"] == 0
        images = (
            data["images"][kept].astype(np.float32).reshape(-1, 16, 4, 16, 4).mean(axis=(2, 4)).reshape(kept.sum(), -1)
        )
        labels, names = data["labels"][kept].astype(float), [str(n) for n in data["label_names"]]
        return TaskSet.from_arrays(_narrow(images), labels, names=names, kind="binary", group=data["patient_id"][kept])
    return _texts(name)


def _filled(X: np.ndarray) -> np.ndarray:
    X = X.astype(float)
    return np.where(np.isnan(X), np.nanmean(X, axis=0), X)


def _narrow(X: np.ndarray) -> np.ndarray:
    if X.shape[1] <= WIDEST:
        return np.ascontiguousarray(X, dtype=float)
    centred = X - X.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return np.ascontiguousarray(centred @ vectors[:, ::-1][:, :WIDEST])


def _texts(name: str) -> TaskSet:
    """Sentences as the mean of their word vectors; rows that two sets share are dropped from the second."""
    table = np.load(DATA / "glove" / "glove6b_100d_subset.npz", allow_pickle=False)
    place = {str(w): i for i, w in enumerate(table["words"])}
    vectors = table["vectors"].astype(np.float64)
    folder, members = ("text6", list(TEXT6)) if name == "text6" else ("glue", list(GLUE))
    seen: set[str] = set()
    tasks = []
    for member in members:
        rows = [
            line.split("\t")
            for line in gzip.decompress((DATA / folder / f"{member}.tsv.gz").read_bytes())
            .decode("utf-8")
            .split("\n")[1:]
            if line
        ]
        rows = [row for row in rows if row[0] != "test_unlabelled" and row[1] != "-1"]
        keys = ["".join(c for c in " ".join(row[2:]).lower() if c.isalnum()) for row in rows]
        kept = [i for i, key in enumerate(keys) if not (key in seen or seen.add(key))]
        X = np.stack([_mean_vector(" ".join(rows[i][2:]), place, vectors) for i in kept])
        y = np.array([float(rows[i][1]) for i in kept])
        tasks.append(Task(member, X, y, kind="multiclass" if TEXT6.get(member, 2) > 2 else "binary"))
    return TaskSet(tasks)


def _mean_vector(text: str, place: dict[str, int], vectors: np.ndarray) -> np.ndarray:
    known = [place[w] for w in text.lower().split() if w in place]
    return vectors[known].mean(axis=0) if known else np.zeros(vectors.shape[1])


def split(tasks: TaskSet, size: str, seed: int, target: str | None = None) -> tuple[TaskSet, dict[str, np.ndarray]]:
    """Development tasks of the asked size, and test rows; rows of a shared input and of one group go together.

    A size is a number of rows a task (at most 80 % of what there is) or "full" (80 %), or "30%".
    """
    random = np.random.default_rng([seed, len(size)])
    shared = tasks.has_shared_inputs and len(tasks) > 1
    rows: dict[str, np.ndarray] = {}
    test: dict[str, np.ndarray] = {}
    for task in tasks:
        if shared and rows:
            rows[task.name], test[task.name] = next(iter(rows.values())), next(iter(test.values()))
            continue
        order = random.permutation(task.num_rows)
        if task.group is not None:  # whole groups, in random order
            names, place = np.unique(task.group, return_inverse=True)
            order = np.argsort(random.permutation(len(names))[place], kind="stable")
        count = _count(size if target in (None, task.name) else str(ELSEWHERE), task.num_rows)
        rows[task.name] = order[:count]
        rest = order[count:]
        if task.group is not None:
            rest = rest[~np.isin(task.group[rest], task.group[order[:count]])]
        test[task.name] = rest[:MOST_TEST]
    return tasks.take(rows), test


def _count(size: str, available: int) -> int:
    most = int(0.8 * available)
    if size == "full":
        return most
    return min(most, int(available * float(size[:-1]) / 100) if size.endswith("%") else int(size))


# ---------------------------------------------------------------------- one split


class Deployed:
    """Test predictions of every procedure's pieces, fitted on all development rows by what ``mtlens fit`` uses."""

    def __init__(self, held: HeldOut, full: TaskSet, test: dict[str, np.ndarray]) -> None:
        self.held = held
        self.X = {name: held.space.encode(np.asarray(full[name].X)[rows]) for name, rows in test.items()}
        self.fits = LinearFits(list(held.dense), self._system(Candidate("alone", "linear")))

    def _system(self, candidate: Candidate) -> System:
        return candidate.system(self.held.raw.names, self.held.grid, self.held.seed, self.held.folds)

    def linear(self, name: str, candidate: Candidate | None) -> np.ndarray:
        self.fits.system = self._system(candidate or Candidate("alone", "linear"))  # its cores serve every system
        member = self.fits.alone(name) if candidate is None else self.fits.joint(name)
        return member.predict(Encoded(self.X[name], self.X[name]))

    def shared_penalty(self, name: str) -> np.ndarray:
        core = self.fits._alone
        return core.fit_at(name, core.shared_ridge(self.held.names)).predict(self.X[name])

    def trunk(self, candidate: Candidate | None, seed: int) -> dict[str, np.ndarray]:
        held = self.held
        names = held.names
        system = (candidate or Candidate("alone", "trunk")).system(names, held.grid, seed, held.folds)
        jobs = {name: job_of(system, name, joint=candidate is not None) for name in names}
        networks = Networks(system, list(jobs.values()), [list(part) for part in held.parts], held.options)
        final = networks.final(list(jobs.values()), {task.name: task for task in held.dense})
        return {
            name: np.mean([n.model.predict(name, self.X[name]) for n in final[jobs[name]]], axis=0) for name in names
        }


def one_split(tasks: TaskSet, size: str, seed: int, families: tuple[str, ...]) -> dict[str, object]:
    """Points of every procedure on every task, and what the advice chose.

    A size "200 of one" makes each task small in turn, with ``ELSEWHERE`` rows of the others, and scores that task.
    """
    if not size.endswith(" of one"):
        return _one_split(tasks, size, seed, families, None)
    rows = [_one_split(tasks, size.removesuffix(" of one"), seed, families, name) for name in tasks.names]
    points = {name: row["points"][name] for name, row in zip(tasks.names, rows, strict=True) if name in row["points"]}
    chosen = [row["chosen"] for row in rows]
    return {"points": points, "chosen": max(set(chosen), key=chosen.count), "all chosen": chosen}


def _one_split(
    tasks: TaskSet, size: str, seed: int, families: tuple[str, ...], target: str | None
) -> dict[str, object]:
    tasks = TaskSet(
        t if t.kind == "regression" else t.replace(metric="log_loss") for t in tasks
    )  # chosen as it is scored
    development, test = split(tasks, size, seed, target)
    scored = {name: rows for name, rows in test.items() if _scorable(development[name], tasks[name], rows)}
    development = development.subset([n for n in development.names if _has_variety(development[n])])
    part = PartAdvice(
        HeldOut(development, grid=GRID, seed=seed, folds=5, options={"progress": False}, say=lambda _: None),
        list(families),
        None,
        None,
        None,
    )
    held = part.held
    deployed = Deployed(held, tasks, {n: test[n] for n in development.names})
    own = {family: held.alone(family) for family in families} if held.names else {}
    chosen_family = part._families(own) if held.names else dict.fromkeys(development.names, "linear")
    alone = {name: own[chosen_family[name]][name] for name in held.names}
    grouping, by_fold = part._grouping() if held.names and len(development) <= MOST_GROUPED else (None, ())
    candidates = [c for c in part._candidates(grouping, by_fold) if c.recipe != "sources"]
    heldout = {c: held.joint(c) for c in candidates} if held.names else {}
    joins = {c: safe_join(held.evidence(alone, values)) for c, values in heldout.items()}
    best = best_applied(joins)
    join = None if best is None else joins[best]
    controls = _control_joins(part, alone) if held.names else {}

    test_trunk: dict[str, dict[str, np.ndarray]] = {}
    if "trunk" in families:
        test_trunk["alone"] = deployed.trunk(None, held.seed)
        test_trunk["again"] = deployed.trunk(None, held.seed + 7919)
        test_trunk |= {c.recipe: deployed.trunk(c, held.seed) for c in candidates if c.family == "trunk"}

    points: dict[str, dict[str, float]] = {}
    for name in development.names:
        if name not in scored:
            continue
        y = tasks[name].y[test[name]]
        kind, (low, high) = tasks[name].kind, _range(development[name])
        base = (
            test_trunk["alone"][name]
            if chosen_family[name] == "trunk" and name in test_trunk.get("alone", {})
            else deployed.linear(name, None)
        )
        made = {
            c: (test_trunk[c.recipe].get(name, base) if c.family == "trunk" else deployed.linear(name, c))
            for c in candidates
        }
        found = {"alone": base}
        for c, value in made.items():
            if c.recipe != "group":  # groups differ from split to split: part of the advice, not a procedure
                found[f"always {c.name}"] = value
        found["winner"] = made[w] if (w := _winner(held, name, alone, heldout)) is not None else base
        weight = 0.0 if join is None else join.weights.get(name, join.pooled)
        found["advice"] = joined(base, made[best] if best is not None else None, weight, kind, low, high)
        for label, control in controls.items():
            other = test_trunk["again"].get(name, base) if label == "second network" else deployed.shared_penalty(name)
            found[f"control: {label}"] = joined(base, other, control.weights.get(name, control.pooled), kind, low, high)
        # every procedure within the range of its labels: a bound that only the advice had would be a gain of its own
        found = {label: joined(value, None, 0.0, kind, low, high) for label, value in found.items()}
        points[name] = {label: _points(tasks[name], y, value) for label, value in found.items()}
    return {
        "points": points,
        "chosen": best.name if best is not None else "alone",
        "strength": {c.name: j.strength for c, j in joins.items()},
        "alone is": {f: sum(v == f for v in chosen_family.values()) for f in families},
    }


def _control_joins(part: PartAdvice, alone: dict[str, np.ndarray]) -> dict[str, object]:
    found = {}
    if "linear" in part.families:
        found["shared penalty"] = safe_join(part.held.evidence(alone, part.held.shared_penalty()))
    if "trunk" in part.families:
        found["second network"] = safe_join(part.held.evidence(alone, part.held.alone("trunk", again=True)))
    return found


def _winner(
    held: HeldOut, name: str, alone: dict[str, np.ndarray], heldout: dict[Candidate, dict[str, np.ndarray]]
) -> Candidate | None:
    """What has the least held-out squared error for this task; None: alone."""
    if name not in held.names:
        return None
    errors: dict[Candidate | None, float] = {}
    for candidate, values in heldout.items():
        errors[None], errors[candidate] = _errors(held, name, alone[name], values[name])
    return min(errors, key=errors.__getitem__) if errors else None


def _errors(held: HeldOut, name: str, alone: np.ndarray, joint: np.ndarray) -> tuple[float, float]:
    task = held.raw[name]
    y = task.y[:, None] if task.kind != "multiclass" else (task.y[:, None] == np.arange(task.num_classes)) * 1.0
    known = task.labelled & (held.fold_of[name] >= 0)
    parts = [values if values.ndim == 2 else values[:, None] for values in (alone, joint)]
    return tuple(float(((y - p)[known] ** 2).sum()) for p in parts)  # type: ignore[return-value]


def _has_variety(task: Task) -> bool:
    known = task.y[task.labelled]
    return len(known) >= 4 and len(np.unique(known)) > 1


def _scorable(development: Task, task: Task, rows: np.ndarray) -> bool:
    y = task.y[rows]
    y = y[~np.isnan(y)]
    if not _has_variety(development) or len(y) < 5 or len(np.unique(y)) < 2:
        return False
    return task.kind == "regression" or min(np.bincount(y.astype(int), minlength=max(task.num_classes, 2))) >= RARE


def _points(task: Task, y: np.ndarray, prediction: np.ndarray) -> float:
    """100 x R2 of the label, or of its 0/1 columns (Brier skill)."""
    known = ~np.isnan(y)
    truth = y[known] if task.kind != "multiclass" else (y[known][:, None] == np.arange(task.num_classes)) * 1.0
    error = ((truth - prediction[known]) ** 2).sum()
    return float(100 * (1 - error / ((truth - truth.mean(axis=0)) ** 2).sum()))


# ---------------------------------------------------------------------- running and reporting


def run(options: argparse.Namespace) -> None:
    deadline = time.monotonic() + 60 * options.minutes
    families = tuple(options.families.split(","))
    done = {(r["set"], r["size"], r["split"], r["families"]) for r in stored(options.store)}
    for name in options.sets.split(","):
        tasks = None
        for size in options.sizes.split(","):
            for seed in range(options.splits):
                if (name, size, seed, options.families) in done:
                    continue
                if time.monotonic() > deadline:
                    print("time is up; run again to go on")
                    return
                tasks = tasks or load(name)
                start = time.perf_counter()
                row = {
                    "set": name,
                    "size": size,
                    "split": seed,
                    "families": options.families,
                    **one_split(tasks, size, seed, families),
                }
                row["seconds"] = round(time.perf_counter() - start, 2)
                options.store.parent.mkdir(parents=True, exist_ok=True)
                with options.store.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(_rounded(row)) + "\n")
                means = {k: round(v, 2) for k, v in _means(row).items()}
                print(name, size, seed, row["chosen"], means, row["seconds"], flush=True)


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return round(value, 3) if isinstance(value, float) else value


def _means(row: dict) -> dict[str, float]:
    labels = list(next(iter(row["points"].values()), {}))
    return {label: float(np.mean([p[label] for p in row["points"].values()])) for label in labels}


def stored(path: Path) -> Iterator[dict]:
    if path.exists():
        yield from (json.loads(line) for line in path.read_text("utf-8").split("\n") if line)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--sizes", default="100,1000,full")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--families", default="linear")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.what == "run":
        run(options)
        return
    text = report(list(stored(options.store)))
    print(text)
    if options.out:
        options.out.write_text(text, "utf-8")
        options.out.with_suffix(".csv").write_text(by_split(stored(options.store)), "utf-8")


def by_split(rows: Iterator[dict]) -> str:
    """A line a split and procedure: points of the mean task, and what the advice chose."""
    lines = ["families,set,rows,split,tasks,chosen,procedure,points"]
    for row in rows:
        start = f"{row['families'].replace(',', '+')},{row['set']},{row['size']},{row['split']},{len(row['points'])},{row['chosen']}"
        lines += [f"{start},{label},{value:.3f}" for label, value in _means(row).items()]
    return "\n".join(lines) + "\n"


def report(rows: list[dict]) -> str:
    lines = [HEAD]
    for families in dict.fromkeys(r["families"] for r in rows):
        for size in dict.fromkeys(r["size"] for r in rows if r["families"] == families):
            chosen = [r for r in rows if r["families"] == families and r["size"] == size]
            lines += _table(families, size, chosen)
    return "\n".join(lines) + "\n"


HEAD = """# Do no harm

`python benchmarks/do_no_harm.py run` then `report`; every split is in `do-no-harm.csv`. Points (100 x R2, or 100 x
Brier skill for classes) relative to each task's tuned single-task model, mean over tasks, then over splits, with the
standard error over splits. Train and test rows are drawn anew in each split; the advice is made inside it. A size is
rows a task (rows in all for sets with shared inputs, at most 80 % of what there is). Inputs wider than 256 columns are
brought to their 256 leading directions; sentences are means of 100-dimensional GloVe vectors, sentences that two sets
share are used once.
"""


def _table(families: str, size: str, rows: list[dict]) -> list[str]:
    labels = [label for label in next(iter(rows[0]["points"].values())) if label != "alone"]
    lines = [
        f"## {families}, {size} rows",
        "",
        "| set | splits | tasks | alone | " + " | ".join(labels) + " | joined in | worst task, advice |",
        "|" + "---|" * (6 + len(labels)),
    ]
    advice_means, losses, below, sharing, clearly = [], [], [], [], 0
    for name in dict.fromkeys(r["set"] for r in rows):
        mine = [r for r in rows if r["set"] == name and r["points"]]
        if not mine:
            continue
        means = [_means(r) for r in mine]
        alone = np.mean([m["alone"] for m in means])
        cells = []
        for label in labels:
            gains = np.array([m[label] - m["alone"] for m in means])
            error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.nan
            cells.append(f"{gains.mean():+.2f} ± {error:.2f}")
            if label == "advice":
                advice_means.append(gains.mean())
        per_task: dict[str, list[float]] = {}
        for r in mine:
            for task, p in r["points"].items():
                per_task.setdefault(task, []).append(p["advice"] - p["alone"])
        task_means = {t: np.mean(v) for t, v in per_task.items()}
        losses += list(task_means.values())
        below += [
            np.mean(v) + 2 * np.std(v, ddof=1) / np.sqrt(len(v)) < 0
            for v in per_task.values()
            if len(v) > 4 and np.std(v) > 0
        ]
        clearly += sum(
            np.mean(v) + 2 * np.std(v, ddof=1) / np.sqrt(len(v)) < -0.5 for v in per_task.values() if len(v) > 4
        )
        worst = min(task_means, key=task_means.__getitem__)
        joined_in = np.mean([r["chosen"] != "alone" for r in mine])
        lines.append(
            f"| {name} | {len(mine)} | {len(task_means)} | {alone:.1f} | "
            + " | ".join(cells)
            + f" | {100 * joined_in:.0f} % | {task_means[worst]:+.2f} ({worst}) |"
        )
        sharing.append(
            np.mean(
                [m["advice"] - max(v for k, v in m.items() if k == "alone" or k.startswith("control")) for m in means]
            )
        )
    share = np.mean(np.array(losses) < -0.5)
    lines += [
        "",
        f"Advice, mean over sets {np.mean(advice_means):+.2f}, worst set {min(advice_means):+.2f}; the part beyond each split's best control {np.mean(sharing):+.2f}; {100 * share:.1f} % of {len(losses)} tasks lose more than 0.5 points on average ({clearly} by more than 2 standard errors beyond that); {sum(below)} tasks have an interval (2 standard errors over splits) wholly below 0.",
        "",
    ]
    return lines


if __name__ == "__main__":
    main()
