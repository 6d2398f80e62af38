"""A whole study: what it writes, that it is a pure function, and that it refuses what it cannot judge."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from mtlens.errors import FileError, InputError, MissingExtraError, UnknownNameError
from mtlens.study import Settings, Study, StudyResult
from mtlens.study.causes import covariances_differ
from mtlens.study.evidence import Evidence
from mtlens.study.executors import HereExecutor, executor_of
from mtlens.study.ledger import Record
from mtlens.study.plan import Unit, all_pairs, alone_units, pair_units, stacks_of
from mtlens.study.prepare import Splitter
from mtlens.study.screening import screen
from mtlens.study.settings import Budget
from mtlens.tasks import Table, Task, TaskSet, read_tasks

QUICK: dict[str, Any] = {
    "capacities": (4,), "learning_rates": (0.02,), "epochs": 6, "methods": ("plain",), "splits": 5, "workers": 1,
    "advice": False,
}  # fmt: skip


def related(seed: int = 0, rows: tuple[int, ...] = (60, 120, 120), width: int = 6) -> TaskSet:
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(width)
    tasks = []
    for number, count in enumerate(rows):
        X = rng.standard_normal((count, width))
        y = X @ (theta + 0.2 * rng.standard_normal(width)) + rng.standard_normal(count)
        tasks.append(Task(f"t{number}", X, y))
    return TaskSet(tasks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "run"
    Study(related(), path, **QUICK).run()
    return path


def test_the_folder(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert {"ledger.sqlite", "plan.json", "verdicts.json", "transfer.csv"} <= names
    assert not [name for name in names if name.endswith(".tmp")]


def test_every_ordered_pair_and_the_diagonal(folder: Path) -> None:
    result = StudyResult.open(folder)
    cells = {(c["target"], c["source"]): c for c in result.transfer}
    assert len(cells) == 9 == len(result.transfer)
    for (target, source), cell in cells.items():
        assert {"difference", "low", "high", "n", "p_adjusted", "verdict", "runs_needed", "cause"} <= cell.keys()
        if target == source:
            assert cell["difference"] is None and 0 < cell["score"] < 1
        else:
            assert cell["n"] == 5 and cell["low"] <= cell["difference"] <= cell["high"] and cell["score"] is None
    assert {"tasks", "transfer", "capacity", "methods", "groups", "advice", "cost"} <= result.verdicts.keys()
    header, *lines = (folder / "transfer.csv").read_text().splitlines()
    assert header.startswith("target,source,difference,low,high,n,") and len(lines) == 9
    json.loads((folder / "verdicts.json").read_text(), parse_constant=lambda c: pytest.fail(f"{c} is not JSON"))


def test_a_finished_study_opens_without_training(folder: Path) -> None:
    before = StudyResult.open(folder).verdicts
    again = Study(related(), folder, **QUICK).run().verdicts
    assert again["cost"]["seconds"] == 0.0
    assert again["cost"]["reused"] == again["cost"]["trainings"] + again["cost"]["linear_fits"]
    assert {**again, "cost": None} == {**before, "cost": None}


def test_nothing_is_trained_twice_in_a_shared_ledger(tmp_path: Path) -> None:
    """More splits take what is there, though their stacks are others; the numbers stay the same."""
    quick = {**QUICK, "families": ("trunk",), "epochs": 2}
    few = Study(related(), ledger=tmp_path / "shared", **{**quick, "splits": 2}).run().verdicts["cost"]
    more = Study(related(), ledger=tmp_path / "shared", **{**quick, "splits": 3}).run()
    assert few["reused"] == 0 and more.verdicts["cost"]["reused"] == few["trainings"] > 0
    assert more.to_csv() == Study(related(), **{**quick, "splits": 3}).run().to_csv()


def test_cells_are_differences_of_validated_choices(folder: Path) -> None:
    """One cell recomputed from the ledger by hand."""
    study = Study(related(), folder, **QUICK)
    with study._running() as run:
        run.go()
        found = []
        for split in range(5):
            alone = {f: run.evidence.alone(f, "t0", split) for f in ("linear", "trunk")}
            family = "linear" if alone["linear"].valid > alone["trunk"].valid else "trunk"  # type: ignore[union-attr]
            joint = run.evidence.joint(family, ("t0", "t1"), "t0", split)
            found.append(joint.test - alone[family].test)  # type: ignore[union-attr]
    cell = StudyResult.open(folder).cell("t0", "t1")
    assert cell["difference"] == pytest.approx(np.mean(found))
    alone = StudyResult.open(folder).cell("t0", "t0")
    for family in ("linear", "trunk"):  # both are kept, and shown on demand
        one = Study(related(), ledger=folder / "ledger.sqlite", **{**QUICK, "families": (family,)}).run()
        assert cell["by_family"][family]["difference"] == one.cell("t0", "t1")["difference"]
        assert alone["by_family"][family]["score"] == one.cell("t0", "t0")["score"]


def test_validation_chooses_and_test_scores() -> None:
    """The configuration is the one with the best validation score of that target, whatever its test score."""
    settings = Settings(capacities=(2, 4), learning_rates=(0.1,), families=("trunk",))
    evidence = Evidence(settings, ("a", "b"))
    for capacity, valid, test in ((2, {"a": 0.9, "b": 0.1}, 0.3), (4, {"a": 0.8, "b": 0.7}, 0.99)):
        unit = Unit("trunk", "plain", ("a", "b"), 0, 0, (("capacity", capacity),))
        evidence.add(unit, Record(str(capacity), {}, {"valid": valid, "test": {"a": test, "b": test}}))
    assert evidence.joint("trunk", "ab", "a", 0).test == 0.3  # type: ignore[union-attr]
    assert evidence.joint("trunk", "ab", "b", 0).test == 0.99  # type: ignore[union-attr]


def test_ties_do_not_depend_on_what_finished_first() -> None:
    """Small validation parts tie often; workers finish in any order."""
    settings = Settings(capacities=(2, 4), learning_rates=(0.1, 0.2), families=("trunk",))
    grid = [{"capacity": c, "lr": lr} for c in (2, 4) for lr in (0.1, 0.2)]
    chosen = set()
    for order in permutations(range(4)):
        evidence = Evidence(settings, ("a", "b"))
        for place in order:
            unit = Unit("trunk", "plain", ("a",), 0, 0, tuple(sorted(grid[place].items())))
            valid = 0.5 if place else 0.4
            evidence.add(unit, Record(str(place), {}, {"valid": {"a": valid}, "test": {"a": place / 10}}))
        chosen.add(evidence.alone("trunk", "a", 0).test)  # type: ignore[union-attr]
    assert chosen == {0.1}


def test_half_a_grid_is_no_evidence() -> None:
    evidence = Evidence(Settings(capacities=(2, 4), learning_rates=(0.1,)), ("a", "b"))
    unit = Unit("trunk", "plain", ("a",), 0, 0, (("capacity", 2),))
    evidence.add(unit, Record("x", {}, {"valid": {"a": 1.0}, "test": {"a": 1.0}}))
    assert evidence.alone("trunk", "a", 0) is None


def test_seeds_are_averaged_within_a_split() -> None:
    evidence = Evidence(Settings(capacities=(2,), learning_rates=(0.1,), seeds=2), ("a", "b"))
    for seed, test in ((0, 0.2), (1, 0.6)):
        unit = Unit("trunk", "plain", ("a",), 0, seed, (("capacity", 2),))
        evidence.add(unit, Record(str(seed), {}, {"valid": {"a": 0.5}, "test": {"a": test}}))
    assert evidence.alone("trunk", "a", 0).test == pytest.approx(0.4)  # type: ignore[union-attr]


@pytest.mark.medium
def test_workers_change_nothing() -> None:
    here = Study(related(), **QUICK).run()
    apart = Study(related(), **{**QUICK, "workers": 2}).run()
    assert here.to_csv() == apart.to_csv()


def test_threads_of_this_process_change_nothing() -> None:
    """Sums of many rows are rounded in another order by two threads; a worker has one."""
    rng = np.random.default_rng(0)
    seen: list[list[int]] = []
    tasks = TaskSet([Task(name, rng.standard_normal((80, 3)), rng.standard_normal(80)) for name in "ab"])
    settings = Settings(splits=2, families=("linear",))
    splitter = Splitter(tasks, settings)
    executor = HereExecutor(splitter.prepared, seed=0, device="cpu")

    class Bench:
        def run(self, units: Any, prepared: Any) -> list[dict[str, Any]]:
            seen.append([pool["num_threads"] for pool in threadpool_info()])
            return [{} for _ in units]

    executor._bench = Bench()  # type: ignore[assignment]
    with threadpool_limits(2):
        list(executor.run(stacks_of(alone_units(tasks.names, [0], settings), {0: splitter.fingerprints(0)})))
    assert seen and set(seen[0]) == {1}


@pytest.mark.medium
def test_fresh_workers_do_what_forked_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    forked = Study(related(), **{**QUICK, "workers": 2}).run()
    monkeypatch.setattr("mtlens.study.executors.can_fork", lambda: False)
    fresh = Study(related(), **{**QUICK, "workers": 2}).run()
    assert forked.to_csv() == fresh.to_csv()


@pytest.mark.medium
def test_a_run_that_was_left_early_does_not_answer_for_the_next_one() -> None:
    """Time is over while workers train: what they are on must not be taken for what they are asked next."""
    tasks = related()
    settings = Settings(**{k: v for k, v in QUICK.items() if k not in ("workers", "advice")}, families=("trunk",))
    splitter = Splitter(tasks, settings)
    units = alone_units(tasks.names, range(5), settings)
    long = alone_units(tasks.names, range(5), settings.but(epochs=5000))
    prints = {split: splitter.fingerprints(split) for split in range(5)}
    here = executor_of("here", splitter.prepared, seed=0, device="cpu", tokens=False, workers=1)
    ((same, expected),) = [done for done in here.run(stacks_of(units, prints)) if done]
    local = executor_of("local", splitter.prepared, seed=0, device="cpu", tokens=False, workers=2)
    try:
        left = local.run(stacks_of(long, prints))
        assert next(left) is None
        ((stack, found),) = [done for done in local.run(stacks_of(units, prints)) if done]
    finally:
        local.close()
    assert stack == same
    assert [one["scores"] for one in found] == [one["scores"] for one in expected]


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
@pytest.mark.parametrize("fault", [lambda *_: time.sleep(60), lambda *_: os._exit(3)], ids=["locked up", "dead"])
def test_a_forked_worker_that_does_not_start_is_replaced(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Study(related(), **QUICK).run()
    monkeypatch.setattr("mtlens.study.executors.FORK_SECONDS", 0.3)
    monkeypatch.setattr("mtlens.study.executors.serve_on", fault)
    assert Study(related(), **{**QUICK, "workers": 2}).run().to_csv() == here.to_csv()


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
def test_a_forked_process_holds_none_of_the_parents_files(tmp_path: Path) -> None:
    from mtlens.study.forked import ForkedProcess
    from mtlens.study.wire import receive, send

    def tell(_: Any, answers: Any) -> None:
        names = [str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.exists()]
        send(answers, {"files": names, "threads": threading.active_count()})

    other = ForkedProcess(lambda requests, _: requests.read())
    with (tmp_path / "held").open("w"):
        process = ForkedProcess(tell)
    told, _ = receive(process.stdout)
    assert process.wait() == 0 and told["threads"] == 1
    assert not [name for name in told["files"] if "held" in name]
    assert sum("pipe:" in name for name in told["files"]) <= 2 + 3  # its own two; the standard ones may be pipes
    other.kill()
    assert other.wait() == -signal.SIGKILL
    for pipe in (process.stdin, process.stdout, other.stdin, other.stdout):
        pipe.close()


def test_rounding_orders_no_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equally promising pairs keep the order of the tasks, whatever the last digit of a sum was."""
    tasks = TaskSet([Task(name, np.eye(4), np.arange(4.0)) for name in "abcd"])
    noise = 1e-13 * np.random.default_rng(0).standard_normal((4, 4))
    table = SimpleNamespace(difference=0.1 + noise, high=np.full((4, 4), 0.2))
    monkeypatch.setattr("mtlens.study.screening.core_of", lambda *_, **__: SimpleNamespace(pairs=lambda: table))
    assert screen(tasks).order == tuple(all_pairs("abcd"))


def test_grids_are_equal_and_printed(folder: Path) -> None:
    grid = json.loads((folder / "plan.json").read_text())["grid"]
    assert grid["trunk"]["alone"] == grid["trunk"]["joint"]
    assert grid["linear"]["alone"]["configurations"] == grid["linear"]["joint"]["configurations"]


def test_a_plan_counts_what_a_study_trains(folder: Path) -> None:
    plan = Study(related(), **QUICK).plan(calibrate=False)
    cost = StudyResult.open(folder).verdicts["cost"]
    assert (plan["trainings"], plan["linear_fits"]) == (cost["trainings"], cost["linear_fits"])
    assert plan == Study(related(), **QUICK).plan(calibrate=False)


def test_stacks_depend_on_the_plan_only() -> None:
    tasks = related()
    settings = Settings(**{k: v for k, v in QUICK.items() if k not in ("workers", "advice")})
    splitter = Splitter(tasks, settings)
    units = alone_units(tasks.names, range(5), settings) + pair_units(("t0", "t1"), range(5), settings)
    prints = {split: splitter.fingerprints(split) for split in range(5)}
    stacks = stacks_of(units, prints)
    assert sorted(map(str, (u for stack in stacks for u in stack.units))) == sorted(map(str, set(units)))
    assert [s.identity for s in stacks] == [s.identity for s in stacks_of(units + units, prints)]
    assert len({i for s in stacks for i in s.identities}) == len(set(units))
    for stack in stacks:
        assert len({(u.family, u.method, len(u.tasks)) for u in stack.units if u.family == "trunk"}) <= 1


def test_identities_follow_data_and_settings() -> None:
    tasks = related()
    other = TaskSet([tasks["t0"].replace(y=tasks["t0"].y + 1e-9), tasks["t1"], tasks["t2"]])
    settings = Settings(**{k: v for k, v in QUICK.items() if k not in ("workers", "advice")})

    def identity(given: TaskSet, **changes: Any) -> str:
        chosen = settings.but(**changes)
        units = alone_units(["t0"], [0], chosen.but(families=("trunk",)))
        return stacks_of(units, {0: Splitter(given, chosen).fingerprints(0)})[0].identities[0]

    known = identity(tasks)
    assert identity(tasks) == known
    assert identity(other) != known and identity(tasks, seed=1) != known and identity(tasks, epochs=7) != known
    assert identity(tasks, families=("trunk",), methods=("plain", "svd"), looks=(5, 10)) == known


# ---------------------------------------------------------------------- budgets


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (500, Budget(500)),
        ("500", Budget(500)),
        ("10m", Budget(None, 600)),
        ("1.5h", Budget(None, 5400)),
        (None, Budget()),
    ],
)
def test_budgets(given: Any, expected: Budget) -> None:
    assert Budget.parse(given) == expected


@pytest.mark.parametrize("given", ["ten", "-5", 0, "5 days", True, "1.5"])
def test_budgets_that_are_none(given: Any) -> None:
    with pytest.raises(InputError, match=r"neither a time nor a number .* 10m or 500"):
        Budget.parse(given)


@pytest.mark.medium
def test_a_count_budget_is_kept_and_reproducible() -> None:
    choices = {**QUICK, "splits": None, "budget": 60}
    first, second = (Study(related(), **choices).run() for _ in range(2))
    assert first.verdicts["cost"]["trainings"] <= 60
    assert first.to_csv() == second.to_csv()


def test_a_small_budget_measures_the_most_promising_pairs() -> None:
    result = Study(related(), **{**QUICK, "budget": 22, "families": ("trunk",)}).run()
    run = [c for c in result.transfer if c["target"] != c["source"] and c["n"]]
    assert 0 < len(run) < 6
    missing = next(c for c in result.transfer if c["target"] != c["source"] and not c["n"])
    assert missing["verdict"] == "undecided" and missing["runs_needed"] == 5 and missing["difference"] is None


def test_a_tiny_budget_leaves_the_linear_family() -> None:
    result = Study(related(), **{**QUICK, "budget": 3}).run()
    assert result.verdicts["cost"]["trainings"] == 0 and result.cell("t0", "t1")["n"] == 5
    assert "leaves out" in result.verdicts["said"][0]


@pytest.mark.medium
def test_time_that_is_left_buys_all_pairs_before_more_splits() -> None:
    result = Study(related(), **{**QUICK, "splits": None, "looks": (2, 3), "budget": "5m"}).run()
    assert all(cell["n"] >= 2 for cell in result.transfer)


def test_trainings_that_fail_are_counted_and_said() -> None:
    hot = {**QUICK, "families": ("trunk",), "splits": 2, "learning_rates": (1e30,)}
    verdicts = Study(related(), **hot).run().verdicts
    assert verdicts["cost"]["failed"] == verdicts["cost"]["trainings"] > 0
    assert any("trainings gave no score" in line and "finite" in line for line in verdicts["said"])
    assert all(cell["verdict"] in ("undecided", None) for cell in verdicts["transfer"])


@pytest.mark.medium
def test_a_time_budget_ends() -> None:
    result = Study(related(), **{**QUICK, "splits": None, "budget": "1s"}).run()
    assert result.verdicts["cost"]["seconds"] < 20


# ---------------------------------------------------------------------- kinds of tasks


@pytest.mark.medium
def test_planted_transfer_is_found() -> None:
    """300 target rows and 200 features, a related source of 3,000 rows, noise .7: joint ridge helps, measurably."""
    rng = np.random.default_rng(0)
    theta = rng.standard_normal(200) / np.sqrt(200)
    tasks = []
    for name, rows in (("target", 300), ("source", 3000)):
        X = rng.standard_normal((rows, 200))
        tasks.append(Task(name, X, X @ theta + 0.7 * rng.standard_normal(rows)))
    cell = (
        Study(TaskSet(tasks), splits=10, families=("linear",), workers=1, advice=False).run().cell("target", "source")
    )
    assert cell["verdict"] == "helps" and cell["difference"] > 0.05


@pytest.mark.medium
def test_mixed_kinds_missing_labels_and_unequal_sizes() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 5))
    y = X @ rng.standard_normal(5)
    part = np.where(rng.random(150) < 0.3, np.nan, y + rng.standard_normal(150))
    tasks = TaskSet([
        Task("number", X, part),
        Task("binary", X, (y > 0).astype(float), kind="binary"),
        Task("three", rng.standard_normal((90, 5)), rng.integers(0, 3, 90), kind="multiclass"),
    ])  # fmt: skip
    result = Study(tasks, **{**QUICK, "methods": ("plain", "uncertainty")}).run()
    assert all(c["n"] == 5 for c in result.transfer)
    assert {t["metric"] for t in result.verdicts["tasks"]} == {"r2", "roc_auc", "balanced_accuracy"}
    assert "| number | " in result.table() and "mean of" not in result.table()  # there is none over three metrics


@pytest.mark.medium
def test_tables_with_categories_and_missing_features() -> None:
    rng = np.random.default_rng(0)
    city = np.array([["Rome", "Oslo", None][i] for i in rng.integers(0, 3, 100)], dtype=object)
    age = np.where(rng.random(100) < 0.2, np.nan, rng.standard_normal(100))
    table = Table({"age": age, "city": city})
    y = np.nan_to_num(age) + (city == "Rome") + 0.3 * rng.standard_normal(100)
    tasks = TaskSet([Task("a", table, y), Task("b", table, -y + rng.standard_normal(100))])
    here, apart = (Study(tasks, **{**QUICK, "workers": n}).run() for n in (1, 2))
    assert here.cell("a", "b")["n"] == 5 and here.to_csv() == apart.to_csv()


def test_an_official_test_set_is_touched_once_at_the_end() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((160, 5))
    Y = X @ rng.standard_normal((5, 3)) + rng.standard_normal((160, 3))
    split = np.where(np.arange(160) < 110, "train", "test")
    tasks = TaskSet.from_arrays(X, Y, split=split)
    found = Study(tasks, **QUICK).run()
    tested = found.verdicts["official_test"]
    assert [c["target"] for c in tested["cells"]][:3] == list(tasks.names)
    assert all(c["rows"] == 50 and c["low"] <= c["difference"] <= c["high"] for c in tested["cells"])
    assert all(t["rows"] == 110 for t in found.verdicts["tasks"])
    spoiled = Y.copy()
    spoiled[110:] = rng.standard_normal((50, 3))  # other test labels change nothing but the official comparison
    again = Study(TaskSet.from_arrays(X, spoiled, split=split), **QUICK).run()
    assert again.to_csv() == found.to_csv()


def test_official_test_rows_that_change_are_refused(tmp_path: Path) -> None:
    """Scoring other official rows in the same folder would touch an official test set twice."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((160, 5))
    Y = X @ rng.standard_normal((5, 3)) + rng.standard_normal((160, 3))
    split = np.where(np.arange(160) < 110, "train", "test")
    choices = {**QUICK, "families": ("linear",), "splits": 2}
    found = Study(TaskSet.from_arrays(X, Y, split=split), tmp_path, **choices).run()
    again = Study(TaskSet.from_arrays(X, Y, split=split), tmp_path, **choices).run()
    assert again.verdicts["official_test"] == found.verdicts["official_test"]
    Y[130, 1] += 1
    with pytest.raises(InputError, match=r"the data of 1 tasks \('task_1'\) are not those this run began with"):
        Study(TaskSet.from_arrays(X, Y, split=split), tmp_path, **choices).run()


def test_two_tasks_are_compared_by_every_method_and_on_the_official_test() -> None:
    """All tasks together are the pair then: methods are tried on it, and it is compared on the official test once."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((140, 5))
    Y = X @ rng.standard_normal((5, 2)) + rng.standard_normal((140, 2))
    split = np.where(np.arange(140) < 100, "train", "test")
    tasks = TaskSet.from_arrays(X, Y, split=split)
    methods = ("plain", "align", "svd", "uncertainty")
    found = Study(tasks, **{**QUICK, "methods": methods, "splits": 2, "epochs": 2}).run().verdicts
    assert {row["method"] for row in found["methods"] if row["n"] == 2} == set(methods)
    assert sum(row["against"].startswith("control") for row in found["methods"]) == 2
    tested = [(cell["target"], cell["sources"]) for cell in found["official_test"]["cells"]]
    assert tested == [("task_0", ["task_1"]), ("task_1", ["task_0"])]
    assert found["leave_one_out"] == []


def test_arrays_of_different_shapes_are_refused() -> None:
    rng = np.random.default_rng(0)
    tasks = TaskSet([Task(n, rng.standard_normal((80, d)), rng.standard_normal(80)) for n, d in (("a", 3), ("b", 4))])
    with pytest.raises(InputError, match=r"a row of task 'a' has shape \(3,\), of 'b' \(4,\)\. Bring both into one"):
        Study(tasks)


def test_rows_of_no_weight_do_not_count() -> None:
    tasks = list(related())
    tasks[1] = tasks[1].replace(weight=np.arange(120) % 40 == 0)
    with pytest.raises(InputError, match="'t1': 3 labelled rows, 5 parts need at least"):
        Study(TaskSet(tasks))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # what overflows is the point
def test_numbers_that_overflow_are_null() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 60, 4))
    second[3, 0] = 1e140
    tasks = [Task("a", first, first[:, 0] + rng.standard_normal(60)), Task("b", second, rng.standard_normal(60))]
    result = Study(TaskSet(tasks), **{**QUICK, "families": ("linear",), "splits": 2}).run()
    assert "Infinity" not in result.to_json() and result.cell("b", "a")["predicted"] is None


def test_what_a_spec_says_of_a_study() -> None:
    tasks = list(related())
    written = {"pairs": 1, "seeds": 2, "leave_one_out": False, "methods_on": "pairs", "small": "drop", "outer": 3}
    settings = Study(TaskSet(tasks, settings=written)).settings
    assert {name: getattr(settings, name) for name in written if name != "outer"} == {
        name: value for name, value in written.items() if name != "outer"
    }
    assert settings.looks == (3,)
    assert "official test rows once" in Study(TaskSet(tasks, settings={"splits": "official"})).said[0]
    for wrong, message in (({"epochs": []}, r"epochs=\[\]"), ({"outer": 1}, "outer=1. It needs a whole number")):
        with pytest.raises(InputError, match=message):
            Study(TaskSet(tasks, settings=wrong))


def test_a_trunk_that_reads_words_is_refused_without_texts() -> None:
    with pytest.raises(InputError, match="task 't0' has no text column, and the lstm trunk reads words"):
        Study(related(), **{**QUICK, "trunk": "lstm"})
    Study(related(), **{**QUICK, "trunk": "lstm", "families": ("linear",)})


def test_small_tasks_are_refused_by_name_or_dropped() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3))
    rare = np.zeros(80)
    rare[:4] = 1
    tasks = TaskSet([*(Task(n, X, X @ rng.standard_normal(3)) for n in "ab"), Task("rare", X, rare)])
    with pytest.raises(InputError, match=r"1 of 3 tasks are too small .*'rare'.*drop"):
        Study(tasks)
    grouped = [task.replace(group=np.arange(80) % (3 if task.name == "a" else 20)) for task in tasks.subset(["a", "b"])]
    with pytest.raises(InputError, match="'a': its rows are of 3 groups, 5 parts need at least as many"):
        Study(TaskSet(grouped))
    study = Study(tasks, **QUICK, small="drop")
    assert study.tasks.names == ("a", "b") and "dropped 1 tasks" in study.said[0]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"epochs": 0}, "whole number of at least 1"),
        ({"looks": (10, 5), "splits": None}, "looks must be increasing"),
        ({"capacities": ()}, "distinct positive whole numbers"),
        ({"capacities": (5, 5)}, "distinct positive whole numbers"),
        ({"capacities": (8.5,)}, "distinct positive whole numbers"),
        ({"learning_rates": "x"}, "distinct positive numbers"),
        ({"splits": "x"}, "splits='x'. It needs a whole number of at least 2"),
        ({"looks": 1, "splits": None}, "looks=1. It needs a whole number of at least 2"),
        ({"seed": -3}, "seed=-3. It needs a whole number of at least 0"),
        ({"seed": 2**31}, "seed=2147483648. It needs a whole number below 2147483648"),
        ({"pairs": 1.5}, "pairs=1.5. It needs a whole number"),
        ({"test": 0}, "test=0. It needs a share of the rows between 0 and 1"),
        ({"valid": "a"}, "valid='a'. It needs a share"),
        ({"margin": -1}, "margin=-1. It needs a number of at least 0"),
        ({"margin": {"r2": "a"}}, "It needs a number of at least 0, or one by task or metric"),
        ({"margin": {"t7": 0.1}}, r"no task or metric named 't7' in Study\(margin=...\)"),
        ({"workers": 0}, "workers=0. It needs a whole number of at least 1"),
        ({"metric": "f1x"}, "no metric named 'f1x'"),
        ({"metric": "roc_auc"}, "'roc_auc' scores binary and multiclass tasks, not regression"),
        ({"executor": "cloud"}, "no executor named 'cloud'"),
        ({"families": ("tree",)}, r"no family named 'tree' in Study \(families: linear, trunk\)"),
        ({"methods": ("uncertanty",)}, "no method named 'uncertanty' .*Did you mean 'uncertainty'"),
        ({"capacitys": (5,)}, "Did you mean 'capacities'"),
    ],
)
def test_bad_settings(choices: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        Study(related(), **{**QUICK, **choices}).run()


def test_too_few_tasks_and_no_taskset() -> None:
    with pytest.raises(InputError, match="a study compares 2 to 200 tasks, found 1 tasks"):
        Study(TaskSet([related()["t0"]]))
    with pytest.raises(InputError, match="needs a TaskSet, found list"):
        Study([1, 2])  # type: ignore[arg-type]


def test_ray_is_an_extra() -> None:
    try:
        import ray  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtraError, match=r"mtlens\[scale\]"):
            Study(related(), **QUICK, executor="ray").run()
    else:
        result = Study(related(), **QUICK, executor="ray").run()
        assert result.to_csv() == Study(related(), **QUICK).run().to_csv()


def test_showing_what_is_not_there(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(FileError, match=r"holds no verdicts.json.*mtlens study"):
        StudyResult.open(tmp_path)
    for content, message in (("{", "cannot read .*Run the same study again"), ('{"a": 1}', "format None, needed 1")):
        (tmp_path / "verdicts.json").write_text(content)
        with pytest.raises(FileError, match=message):
            StudyResult.open(tmp_path)
    with pytest.raises(UnknownNameError, match="Did you mean 't1'"):
        StudyResult.open(folder).cell("t0", "t11")


def test_names_that_are_markup(tmp_path: Path) -> None:
    tasks = related()
    names = ["a|b", "<script>", "x\ny"]
    renamed = TaskSet([Task(name, task.X, task.y) for name, task in zip(names, tasks, strict=True)])
    table = Study(renamed, tmp_path / "run", **{**QUICK, "families": ("linear",)}).run().table()
    assert "a\\|b" in table and "<script>" not in table and "x\ny" not in table


def test_why_says_the_numbers(folder: Path) -> None:
    text = StudyResult.open(folder).why("t0", "t1")
    assert "n = 5" in text and "chosen on validation rows" in text
    assert "linear family on all splits: " in text and "trunk family on all splits: " in text


def test_images_are_left_to_networks() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4, 4))
    tasks = TaskSet([Task(n, X, X.sum((1, 2)) + rng.standard_normal(60)) for n in "ab"])
    study = Study(tasks, **QUICK)
    assert study.settings.families == ("trunk",) and "linear family is left out" in study.said[0]
    with pytest.raises(InputError, match="does not apply"):
        Study(tasks, **{**QUICK, "families": ("linear",)})


def test_a_module_of_ones_own_is_no_name() -> None:
    with pytest.raises(InputError, match="A study trains trunks by name"):
        Study(related(), **{**QUICK, "trunk": lambda capacity: None})


def harmed(rows: tuple[int, int] = (100, 800), noise: float = 0.1) -> TaskSet:
    """A small task and a larger one of another solution."""
    rng = np.random.default_rng(0)
    solutions = np.linalg.qr(rng.standard_normal((10, 2)))[0].T
    tasks = []
    for name, theta, count in zip(("small", "large"), solutions, rows, strict=True):
        X = rng.standard_normal((count, 10))
        tasks.append(Task(name, X, X @ theta + noise * rng.standard_normal(count)))
    return TaskSet(tasks)


def test_causes_of_linear_harm_are_measured_by_linear_fits() -> None:
    result = Study(harmed(), **{**QUICK, "families": ("linear",)}).run()
    cell = result.cell("small", "large")
    assert cell["verdict"] == "hurts" and cell["cause"] == "weighting of the losses + unequal sizes"
    contrasts = {c["contrast"]: c for c in result.verdicts["causes"][0]["contrasts"]}
    assert set(contrasts) == {"source weight 1/4", "source labels cleaned", "sizes equalised"}
    assert not contrasts["source labels cleaned"]["established"]  # there is next to no noise
    equal = Study(harmed((100, 100)), **{**QUICK, "families": ("linear",)}).run()
    assert contrasts["sizes equalised"]["gain"] == pytest.approx(
        equal.cell("small", "large")["difference"] - cell["difference"], abs=0.05
    )
    assert "unequal sizes: established" in result.why("small", "large")


@pytest.mark.medium
def test_a_cause_is_named_on_a_measured_contrast() -> None:
    """One hidden unit for two unrelated tasks hurts the small one: four units do not."""
    rng = np.random.default_rng(0)
    first, second = np.linalg.qr(rng.standard_normal((10, 2)))[0].T
    tasks = []
    for name, theta, rows in (("small", first, 300), ("large", second, 1500)):
        X = rng.standard_normal((rows, 10))
        tasks.append(Task(name, X, X @ theta + 0.1 * rng.standard_normal(rows)))
    choices = {
        "trunk": "linear",
        "capacities": (1,),
        "learning_rates": (0.03,),
        "epochs": 20,
        "methods": ("plain",),
        "advice": False,
    }
    result = Study(TaskSet(tasks), families=("trunk",), splits=5, workers=1, **choices).run()
    cell = result.cell("small", "large")
    assert cell["verdict"] == "hurts" and "too little capacity" in cell["cause"]
    assert "capacity x4: takes away" in result.why("small", "large")
    contrasts = {c["contrast"]: c for c in result.verdicts["causes"][0]["contrasts"]}
    assert contrasts["capacity x4"]["established"] and set(contrasts) >= {"align", "source weight 1/4"}
    aligned = contrasts["align"]  # it frees the tasks of each other, but their inputs have one covariance
    assert aligned["p_adjusted"] <= 0.05 and aligned["gain"] > 0.1 and aligned["p_covariances"] > 0.05
    assert not aligned["established"] and "different covariances" not in cell["cause"]
    assert "(the covariances do not differ: p = " in result.why("small", "large")


def test_covariances_are_compared_by_permutation() -> None:
    """Equal covariances are rejected in at most about 5 % of draws, other ones nearly always; means do not matter."""
    rng = np.random.default_rng(0)
    mix = np.array([[1.0, 0.8], [0.0, 0.6]])

    def p(seed: int, by: Any) -> float:
        return covariances_differ(rng.standard_normal((60, 2)), 5 + rng.standard_normal((150, 2)) @ by, seed=seed)

    assert sum(p(seed, np.eye(2)) <= 0.05 for seed in range(60)) <= 9  # of 60, when 5 % are expected: p < .003
    assert sum(p(seed, mix) <= 0.05 for seed in range(10)) >= 9
    X = rng.standard_normal((20, 2))
    assert covariances_differ(X, X) == covariances_differ(np.ones((9, 2)), np.ones((8, 2))) == 1.0
    assert covariances_differ(np.zeros((9, 2, 2)), X) == 1.0


def test_numbers_that_are_nearly_all_the_same() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    rare = np.zeros(200)
    rare[:7] = 1.5
    tasks = TaskSet([*(Task(n, X, X @ rng.standard_normal(3)) for n in "ab"), Task("rare", X, rare, kind="regression")])
    with pytest.raises(InputError, match="all but 7 labels are 0, at least 25 others are needed"):
        Study(tasks)


@pytest.mark.medium
def test_the_advice_is_written_and_remembered(tmp_path: Path) -> None:
    choices = {**QUICK, "advice": True, "families": ("linear",)}
    found = Study(related(), tmp_path / "run", **choices).run().verdicts
    assert {"difference", "low", "high", "per_task"} <= found["advice"].keys()
    assert [row["task"] for row in found["advice"]["per_task"]] == ["t0", "t1", "t2"]
    toml = (tmp_path / "run" / "advice.toml").read_text()
    again = Study(related(), tmp_path / "run", **choices).run().verdicts
    assert again["advice"] == found["advice"] and (tmp_path / "run" / "advice.toml").read_text() == toml


def test_groups_and_times() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 4))
    Y = X @ rng.standard_normal((4, 2)) + rng.standard_normal((400, 2))
    quick = {**QUICK, "families": ("linear",)}
    grouped = Study(TaskSet.from_arrays(X, Y, group=np.repeat(np.arange(50), 8)), **quick)
    split = grouped.splitter().split(3)["task_0"]
    for part in ("train", "valid"):
        assert not set(split.group[split.rows_of(part)]) & set(split.group[split.rows_of("test")])  # type: ignore[index]
    assert grouped.run().cell("task_0", "task_1")["n"] == 5
    timed = Study(TaskSet.from_arrays(X, Y, time=np.arange(400)), **quick)
    split = timed.splitter().split(0)["task_0"]
    assert split.time[split.rows_of("train")].max() < split.time[split.rows_of("test")].min()  # type: ignore[index]
    assert not timed.splitter().balanced and timed.run().cell("task_0", "task_1")["n"] == 5


def test_weights_reach_both_families() -> None:
    tasks = related()
    weighted = TaskSet([task.replace(weight=np.linspace(0.1, 2, task.num_rows)) for task in tasks])
    for family in ("linear", "trunk"):
        choices = {**QUICK, "families": (family,), "splits": 2}
        assert Study(weighted, **choices).run().to_csv() != Study(tasks, **choices).run().to_csv()


def test_a_spec_says_everything_that_a_study_can_be_told(tmp_path: Path) -> None:
    rows = "\n".join(f"{i % 7},{i % 5},{(i * 37 % 11) / 3},{(i * 53 % 13) / 3}" for i in range(60))
    (tmp_path / "d.csv").write_text("a,b,y,z\n" + rows + "\n")
    (tmp_path / "s.toml").write_text(
        "margin = { r2 = 0.02, y = 0.0 }\nmethods_on = 'pairs'\npairs = 1\nleave_one_out = false\nseeds = 2\n"
        "weight_decay = 0\nsmall = 'drop'\nmax_models = 2\n[[task]]\npath = 'd.csv'\nlabels = ['y', 'z']\n"
    )
    found = Study(read_tasks(tmp_path / "s.toml"), splits=5).settings
    assert found.margin == {"r2": 0.02, "y": 0.0} and (found.methods_on, found.small) == ("pairs", "drop")
    assert (found.pairs, found.leave_one_out, found.seeds, found.weight_decay) == (1, False, 2, 0.0)
    assert found.max_models == 2
    assert Study(read_tasks(tmp_path / "s.toml"), max_models=5).settings.max_models == 5
