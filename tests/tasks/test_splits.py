"""Splits: shares, strata, and above all that nothing which belongs together is ever separated."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlens.errors import InputError, MtlensError
from mtlens.tasks import Splits, Task, TaskSet, hold_out_official_test
from mtlens.tasks.splits import units

PARTS = ("train", "valid", "test")


def noise(rows: int, columns: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns))


def assert_together(tasks: TaskSet, labels: dict[str, np.ndarray]) -> None:
    """Rows with one label, in whichever task, are in one part."""
    seen: dict[object, str] = {}
    for task in tasks:
        assert task.split is not None
        for label, part in zip(labels[task.name].tolist(), task.split.tolist(), strict=True):
            assert seen.setdefault(label, part) == part, (task.name, label)


def assert_shares(task: Task, valid: float, test: float, slack: float) -> None:
    assert task.split is not None
    for part, share in (("valid", valid), ("test", test)):
        assert abs((task.split == part).mean() - share) <= slack


@given(st.integers(0, 2**32), st.integers(0, 50), st.sampled_from(["repeated", "kfold"]))
@settings(max_examples=40, deadline=None)
def test_the_same_seed_and_index_give_the_same_split_and_others_do_not(seed: int, index: int, scheme: str) -> None:
    tasks = TaskSet([Task("t", noise(120), np.arange(120) % 3)])
    splits = Splits(seed, scheme, outer=5)
    one, again, other = (splits.assign(tasks, i)["t"].split for i in (index, index, index + 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("classes", [2, 4])
def test_each_class_keeps_its_share(classes: int) -> None:
    y = np.arange(400) % classes
    split = Splits(3).assign(TaskSet([Task("t", noise(400), y)]))["t"].split
    for part, count in zip(PARTS, (240, 80, 80), strict=True):
        assert np.bincount(y[split == part]).tolist() == [count // classes] * classes


def test_regression_labels_are_stratified_by_quantile() -> None:
    y = np.exp(np.random.default_rng(0).standard_normal(500))
    means = []
    for index in range(20):
        split = Splits(1).assign(TaskSet([Task("t", noise(500), y)]), index)["t"].split
        means.append(np.log(y)[split == "test"].mean())
    unstratified = 1 / np.sqrt(100) * np.sqrt(0.8)  # standard deviation of the mean of 100 of 500 rows
    assert np.std(means) < 0.6 * unstratified


def test_kfold_tests_every_row_once_in_a_round() -> None:
    tasks = TaskSet([Task("t", noise(103), np.arange(103) % 2)])
    for again in (0, 1):
        tested = sum((Splits(2, "kfold", outer=5).assign(tasks, 5 * again + f)["t"].split == "test") for f in range(5))
        assert (np.asarray(tested) == 1).all()


def test_a_shared_input_has_one_split_and_stays_shared() -> None:
    Y = np.random.default_rng(0).integers(0, 2, (200, 4)).astype(float)
    Y[::7, 2] = np.nan
    tasks = Splits(5).assign(TaskSet.from_arrays(noise(200), Y))
    assert tasks.has_shared_inputs
    assert all(np.array_equal(task.split, tasks[0].split) for task in tasks)


def test_groups_never_straddle_also_across_tasks() -> None:
    rng = np.random.default_rng(1)
    groups = {"a": rng.integers(0, 40, 300), "b": rng.integers(0, 40, 200).astype(float), "c": rng.integers(0, 40, 250)}
    makes = [
        Task(n, noise(len(g), seed=i), rng.integers(0, 2, len(g)), group=g) for i, (n, g) in enumerate(groups.items())
    ]
    makes[2] = makes[2].replace(group=groups["c"].astype(str))  # 7, 7.0 and "7" are one group
    for index in range(10):
        tasks = Splits(0).assign(TaskSet(makes), index)
        assert_together(tasks, groups)
        for task in tasks:
            assert_shares(task, 0.2, 0.2, 0.08)


def test_the_largest_group_is_not_always_in_train() -> None:
    group = np.concatenate([np.zeros(20), np.arange(1, 101).repeat(2)])
    tasks = TaskSet([Task("t", noise(220), np.random.default_rng(0).integers(0, 2, 220), group=group)])
    where = [str(Splits(0).assign(tasks, i)["t"].split[0]) for i in range(60)]
    assert 0.4 < where.count("train") / 60 < 0.8
    assert min(where.count("valid"), where.count("test")) >= 3


def test_rows_without_a_group_are_on_their_own() -> None:
    group = np.array([None, "a"] * 60, dtype=object)
    task = Task("t", noise(120), np.random.default_rng(0).integers(0, 2, 120), group=group)
    parts = Splits(0, least=0, valid=0.0).scheme_for(TaskSet([task]))
    assert parts == "repeated"
    own = units(TaskSet([task]))[0]
    assert len(set(own[group == "a"].tolist())) == 1
    assert len(set(own.tolist())) == 61


def test_equal_texts_in_two_tasks_fall_into_one_part() -> None:
    texts = [f"sentence number {i}" for i in range(150)]
    loud = [text.upper() + " !" for text in texts]
    a, b = Task("a", texts, np.arange(150) % 2), Task("b", loud, np.arange(150) % 2)
    tasks = Splits(4).assign(TaskSet([a, b]))
    assert np.array_equal(tasks["a"].split, tasks["b"].split)
    apart = Splits(4, duplicates="apart").assign(TaskSet([a, b]))
    assert not np.array_equal(apart["a"].split, apart["b"].split)


def test_discrete_rows_are_not_taken_for_copies_unless_asked() -> None:
    X = np.random.default_rng(0).integers(0, 2, (300, 3)).astype(float)
    tasks = TaskSet([Task("t", X, np.arange(300) % 2)])
    assert len(np.unique(units(tasks)[0])) == 300
    assert len(np.unique(units(tasks, duplicates="together")[0])) == 8


def test_time_trains_on_the_past_of_all_tasks() -> None:
    rng = np.random.default_rng(0)
    makes = [
        Task(n, noise(400, seed=i), rng.standard_normal(400), time=rng.integers(0, 100, 400))
        for i, n in enumerate("ab")
    ]
    splits = Splits(0, outer=4)
    ends = []
    for index in range(4):
        tasks = splits.assign(TaskSet(makes), index)
        times = {part: np.concatenate([t.time[t.split == part] for t in tasks]) for part in PARTS}
        assert times["train"].max() < times["valid"].min() <= times["valid"].max() < times["test"].min()
        ends.append((times["test"].min(), times["test"].max()))
    assert all(a[1] < b[0] for a, b in pairwise(ends))
    dates = np.datetime64("2020-01-01") + np.arange(100)
    dated = Splits(0).assign(TaskSet([Task("d", noise(100), rng.standard_normal(100), time=dates)]), 9)["d"]
    assert (
        dated.time is not None and (dated.time[dated.split == "test"] > dated.time[dated.split == "train"].max()).all()
    )


def test_official_keeps_the_test_part_and_draws_what_is_missing() -> None:
    part = np.array(["train"] * 120 + ["test"] * 60)
    y = np.arange(180) % 2
    official = Task("o", noise(180), y, split=part)
    free = Task("f", noise(200, seed=2), np.arange(200) % 2)
    tasks = Splits(0, "official").assign(TaskSet([official, free]))
    assert ((tasks["o"].split == "test") == (part == "test")).all()
    assert (tasks["o"].split == "valid").sum() == 24
    assert_shares(tasks["f"], 0.2, 0.2, 0.01)


def test_official_test_rows_of_one_task_leave_the_train_rows_of_another() -> None:
    texts = [f"sentence {i}" for i in range(200)]
    part = np.array(["train"] * 140 + ["test"] * 60)
    official = Task("o", texts, np.arange(200) % 2, split=part)
    other = Task("f", texts, np.arange(200) % 2, ids=np.arange(200))
    tasks = Splits(0, "official").assign(TaskSet([official, other]))
    test_ids = set(range(140, 200))
    assert not test_ids & set(tasks["f"].ids[tasks["f"].split != "test"].tolist())
    development, final = hold_out_official_test(TaskSet([official, other]))
    assert final is not None
    assert set(development["f"].ids.tolist()) == set(range(140))
    assert development["o"].num_rows == 140


def test_without_an_official_test_nothing_is_held_out() -> None:
    tasks = TaskSet([Task("t", noise(20), np.arange(20) % 2)])
    assert hold_out_official_test(tasks) == (tasks, None)
    with pytest.raises(InputError, match="needs a task with test rows"):
        Splits(0, "official").assign(tasks)


def test_a_small_class_gets_its_least_in_every_part_or_is_refused_with_counts() -> None:
    y = np.zeros(100)
    y[:15] = 1
    split = Splits(0).assign(TaskSet([Task("t", noise(100), y)]))["t"].split
    assert [int(y[split == part].sum()) for part in PARTS] == [5, 5, 5]
    y[0] = 0
    tasks = TaskSet([Task("t", noise(100), y)])
    with pytest.raises(InputError, match=r"'t' \(of its classes 1 has 14 rows, 3 parts need at least 15\)"):
        Splits(0).assign(tasks)
    assert list(Splits(0).too_small(tasks)) == ["t"]
    assert Splits(0, least=4).too_small(tasks) == {}


@pytest.mark.parametrize(("scheme", "positives"), [("repeated", 25), ("kfold", 30)])
def test_groups_that_leave_little_room_are_still_split(scheme: str, positives: int) -> None:
    group = np.arange(300) // 2  # the positives come in pairs: no part can get its five exactly
    task = Task("t", noise(300), (np.arange(300) < positives).astype(float), group=group)
    for seed in range(5):
        for index in range(5):
            made = Splits(seed, scheme, outer=5).assign(TaskSet([task]), index)  # type: ignore[arg-type]
            assert_together(made, {"t": group})
            assert all((made["t"].y[made["t"].split == part] == 1).sum() >= 5 for part in PARTS)


def test_groups_that_make_it_impossible_are_refused_with_the_counts() -> None:
    y = np.arange(60) % 2
    task = Task("t", noise(60), y, group=np.where(y == 1, "one", np.arange(60).astype(str)))
    with pytest.raises(InputError, match="no repeated split 0 has what every part needs: 't'"):
        Splits(0).assign(TaskSet([task]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"valid": 0.6, "test": 0.5},
        {"outer": 0},
        {"scheme": "random"},
        {"duplicates": "x"},
        {"test": 0.0},
        {"seed": "a"},
        {"seed": 1.5},
        {"outer": 2.5},
        {"valid": "x"},
        {"test": None},
        {"least": None},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(MtlensError):
        Splits(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [-1, 1.5, "a", None])
def test_a_wrong_index_is_refused(index: object) -> None:
    with pytest.raises(InputError, match="splits are counted 0, 1, 2"):
        Splits().assign(TaskSet([Task("t", noise(60), np.arange(60) % 2)]), index)  # type: ignore[arg-type]


def test_a_list_of_tasks_will_do() -> None:
    task = Task("t", noise(60), np.arange(60) % 2)
    np.testing.assert_array_equal(
        Splits(np.int64(3)).assign([task])["t"].split, Splits(3).assign(TaskSet([task]))["t"].split
    )


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_random_task_sets_are_split_without_a_straddle_or_refused(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    groups: dict[str, np.ndarray] = {}
    makes = []
    for name in "abc"[: data.draw(st.integers(1, 3))]:
        rows = data.draw(st.integers(2, 120))
        groups[name] = rng.integers(0, data.draw(st.integers(2, 200)), rows)
        y = rng.integers(0, 2, rows).astype(float) if data.draw(st.booleans()) else rng.standard_normal(rows)
        y[rng.random(rows) < 0.1] = np.nan
        try:
            makes.append(Task(name, rng.standard_normal((rows, 2)), y, group=groups[name]))
        except MtlensError:
            return
    scheme = data.draw(st.sampled_from(["repeated", "kfold"]))
    try:
        tasks = Splits(seed, scheme, outer=4).assign(TaskSet(makes), data.draw(st.integers(0, 9)))
    except InputError as error:
        assert "part" in str(error)
        return
    assert_together(tasks, groups)
    for task in tasks:
        if task.kind == "binary":
            assert min((task.y[task.rows_of(part)] == c).sum() for part in PARTS for c in (0, 1)) >= 5


def test_a_hundred_labels_on_one_input_are_all_stratified() -> None:
    rng = np.random.default_rng(0)
    Y = (rng.random((3000, 100)) < rng.uniform(0.01, 0.5, 100)).astype(float)
    tasks = Splits(0).assign(TaskSet.from_arrays(noise(3000), Y))
    share = np.array([(t.y[t.split == "test"] == 1).sum() / (t.y == 1).sum() for t in tasks])
    assert abs(share - 0.2).max() < 0.06


@pytest.mark.parametrize(
    ("last", "said"), [("soon", "holds 'soon'.*Write dates as 2020-12-31"), (None, "the time of row 59 is missing")]
)
def test_the_time_that_cannot_be_read_is_named(last: object, said: str) -> None:
    time = np.array(["2020-01-01"] * 59 + [last], dtype=object)
    columns = [time] if last else [time, time.astype("M8[D]")]
    for column in columns:
        with pytest.raises(InputError, match=said):
            Splits(scheme="time").assign([Task("t", noise(60), np.arange(60) % 2, time=column)])
