"""A diagnosis finds what was planted, says what it cannot say, and prints as the documented JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtlens.diagnosis import Diagnosis, diagnose
from mtlens.errors import MtlensError, UnknownNameError
from mtlens.tasks import Table, Task, TaskSet
from mtlens.theory import covariance_similarity, svd_weights


def planted(seed: int = 0) -> TaskSet:
    """ "small" and "twin" follow one model, "stranger" another."""
    random = np.random.default_rng(seed)
    theta, other = random.standard_normal((2, 30))
    made = []
    for name, rows, model in (("small", 28, theta), ("twin", 1500, theta), ("stranger", 1500, other)):
        X = random.standard_normal((rows, 30))
        made.append(Task(name, X, X @ model + 2 * random.standard_normal(rows), kind="regression"))
    return TaskSet(made)


@pytest.fixture(scope="module")
def found() -> Diagnosis:
    return diagnose(planted())


def test_the_planted_transfer_is_found(found: Diagnosis) -> None:
    twin, stranger = found.pair("small", "twin"), found.pair("small", "stranger")
    assert twin.verdict == "helps" and twin.p_helps > 0.95 and twin.predicted > 0.1
    assert stranger.verdict != "helps" and stranger.predicted < twin.predicted
    assert twin.cosine > 0.7 > abs(stranger.cosine)
    assert twin.low < twin.predicted < twin.high and twin.p_helps + twin.p_hurts == pytest.approx(1)


def test_scores_are_those_of_the_theory_room(found: Diagnosis) -> None:
    tasks = planted()
    pair = found.pair("small", "twin")
    first, second = tasks["small"].X, tasks["twin"].X
    assert pair.score == pytest.approx(covariance_similarity(first, second), rel=1e-9)
    assert pair.score_normalised == pytest.approx(covariance_similarity(first, second, normalised=True), rel=1e-9)
    assert pair.score_centred == pytest.approx(covariance_similarity(first, second, center=True), rel=1e-9)
    both = covariance_similarity(first, second, center=True, normalised=True)
    assert pair.score_normalised_centred == pytest.approx(both, rel=1e-9)


def test_weights_of_shared_inputs_are_algorithm_two() -> None:
    random = np.random.default_rng(1)
    X = random.standard_normal((100, 6))
    Y = X @ random.standard_normal((6, 2)) @ random.standard_normal((2, 4)) + random.standard_normal((100, 4))
    tasks = TaskSet.from_arrays(X, Y, kind="regression")
    weights = diagnose(tasks).weights
    assert weights is not None and weights.method == "svd_weights"
    np.testing.assert_allclose(list(weights.svd.values()), svd_weights(X, Y, rank=weights.rank))


def test_json_has_the_documented_keys(found: Diagnosis) -> None:
    read = json.loads(found.to_json())
    assert {"tasks", "pairs", "capacity", "weights", "warnings"} <= set(read)
    keys = {
        "target",
        "source",
        "score",
        "score_normalised",
        "cosine",
        "predicted",
        "low",
        "high",
        "p_helps",
        "p_hurts",
        "verdict",
    }
    assert len(read["pairs"]) == 6 and all(keys <= set(pair) for pair in read["pairs"])
    assert found.to_json() == diagnose(planted()).to_json()


def test_facts(found: Diagnosis) -> None:
    facts = {task.task: task for task in found.tasks}
    X = planted()["small"].X
    assert facts["small"].rows == 28 and facts["small"].width == 30
    assert facts["small"].condition_number == pytest.approx(np.linalg.cond(X), rel=1e-6)
    assert 20 < facts["twin"].effective_rank <= 30
    assert facts["twin"].alone > facts["small"].alone


def test_different_input_spaces_are_told_apart() -> None:
    random = np.random.default_rng(0)
    tasks = TaskSet(
        [
            Task("a", random.standard_normal((40, 3)), random.standard_normal(40)),
            Task("b", random.standard_normal((40, 3)), random.standard_normal(40)),
            Task("wide", random.standard_normal((40, 5)), random.standard_normal(40)),
        ]
    )
    found = diagnose(tasks)
    assert found.pair("a", "wide").predicted is None and found.pair("a", "wide").verdict == "unsure"
    assert found.pair("a", "b").predicted is not None
    assert any("2 different input spaces" in line for line in found.warnings)
    json.loads(found.to_json())


def test_texts_categories_gaps_and_classes_go_through_the_featurizer() -> None:
    random = np.random.default_rng(0)
    city = np.array([["Rome", "Oslo", None][i] for i in random.integers(0, 3, 60)], dtype=object)
    age = np.where(random.random(60) < 0.1, np.nan, random.standard_normal(60))
    table = Table({"city": city, "age": age})
    rome = np.array([c == "Rome" for c in city])
    tasks = TaskSet(
        [
            Task("rome", table, np.where(rome, "yes", "no")),
            Task("sum", table, rome + np.nan_to_num(age) + 0.1 * random.standard_normal(60), kind="regression"),
            Task("which", table, np.array([str(c) for c in city]), kind="multiclass"),
        ]
    )
    found = diagnose(tasks)
    assert all(pair.predicted is not None for pair in found.pairs)
    assert {task.task: task.alone > 0.5 for task in found.tasks} == {"rome": True, "sum": True, "which": True}
    assert found.tasks[0].missing_features > 0


def test_test_rows_are_not_read() -> None:
    tasks = planted()
    small = tasks["small"]
    split = np.where(np.arange(28) < 22, "train", "test")
    poisoned = small.X.copy()
    poisoned[22:] *= 1e6
    one = diagnose(TaskSet([small.replace(split=split), tasks["twin"]]))
    two = diagnose(TaskSet([small.replace(X=poisoned, split=split), tasks["twin"]]))
    assert one.pairs == two.pairs


def test_copies_leaks_and_thin_tasks_are_warned_about() -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((40, 4))
    again = np.concatenate([X, X[:5]])
    split = np.where(np.arange(40) < 30, "train", "test")
    tasks = TaskSet(
        [
            Task("copied", again, np.arange(45) / 7, kind="regression"),
            Task("parted", X, np.arange(40) / 7, split=split, kind="regression"),
            Task("thin", random.standard_normal((5, 4)), np.arange(5) / 7, kind="regression"),
        ]
    )
    found = diagnose(tasks)
    text = "\n".join(found.warnings)
    assert "copied: 5 rows repeat an earlier one" in text
    assert "parted: 10 of its valid or test rows are training rows of copied" in text
    assert "thin: fewer than 8 labelled rows" in text
    assert found.pair("copied", "thin").predicted is None and found.tasks[2].alone is None


def test_one_task_alone_and_inputs_that_do_not_vary() -> None:
    only = diagnose(TaskSet([Task("only", np.eye(12), np.arange(12) / 5, kind="regression")]))
    assert only.pairs == () and only.capacity is None
    flat = np.ones((20, 2))
    tasks = TaskSet.from_arrays(flat, np.random.default_rng(0).standard_normal((20, 2)), kind="regression")
    still = diagnose(tasks)
    assert still.pairs[0].predicted == pytest.approx(0, abs=1e-9) and still.weights is None
    json.loads(still.to_json())


def test_a_label_that_does_not_vary_spoils_no_other_number() -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((3, 50, 3))
    tasks = [Task(name, x, x @ np.ones(3) + random.standard_normal(50)) for name, x in zip("ab", X[:2], strict=True)]
    alone = diagnose(tasks)
    joined = diagnose([*tasks, Task("flat", X[2], np.full(50, 0.5), kind="regression")])
    assert joined.capacity is not None and alone.capacity is not None
    assert joined.pair("flat", "a").predicted == 0 and joined.pair("flat", "a").verdict == "unsure"
    assert joined.capacity.scores[-1] == pytest.approx(alone.capacity.scores[-1], abs=0.05)


def test_a_task_of_one_group_gets_no_prediction() -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((3, 40, 2))
    groups = [np.zeros(40, int), 1 + np.arange(40) % 8, None]
    found = diagnose([Task(n, x, x[:, 0], group=g) for n, x, g in zip("abc", X, groups, strict=True)])
    assert "a: all labelled rows are of one group; nothing is predicted for it." in found.warnings
    assert found.pair("a", "b").predicted is None and found.pair("b", "c").predicted is not None


def test_cosines_stay_between_minus_one_and_one() -> None:
    random = np.random.default_rng(0)
    made = [
        Task(n, s * random.standard_normal((60, 3)), random.standard_normal(60))
        for n, s in (("a", 1e150), ("b", 1e-150))
    ]
    assert abs(diagnose(made).pairs[0].cosine or 0.0) <= 1.0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"folds": 1}, "at least 2 folds, found folds=1"),
        ({"folds": 2.5}, "whole number of at least 2 folds, found folds=2.5"),
        ({"seed": None}, "diagnose needs a whole number as seed, found seed=None"),
        ({"energy": 99}, "0 < energy <= 1, found energy=99"),
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(MtlensError, match=text):
        diagnose(planted(), **options)


def test_a_wrong_name_lists_the_right_ones(found: Diagnosis) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'twin'"):
        found.pair("small", "twins")


@pytest.mark.data
def test_real_tables(real_data: Path) -> None:
    from mtlens.tasks.readers import read_tasks

    school = np.load(real_data / "multitarget" / "school.npz", allow_pickle=False)
    made = []
    for number in range(1, 13):
        rows = school["task"] == number
        made.append(Task(f"school {number}", school["X"][rows], school["y"][rows], kind="regression"))
    found = diagnose(TaskSet(made))
    assert sum(pair.predicted for pair in found.pairs) > 0  # schools help each other on average
    assert all(task.leaks == 0 for task in found.tasks)
    yeast = diagnose(read_tasks(real_data / "multilabel" / "emotions.npz"))
    assert len(yeast.pairs) == 30 and yeast.capacity is not None


@pytest.mark.data
@pytest.mark.medium
def test_the_text_sets_warn_of_their_leak(real_data: Path) -> None:
    import gzip

    def rows(name: str, count: int) -> Task:
        lines = (
            gzip.decompress((real_data / "text6" / f"{name}.tsv.gz").read_bytes())
            .decode("utf-8")
            .split("\n")[1 : count + 1]
        )
        parts = [line.split("\t") for line in lines]
        return Task(name, [p[2] for p in parts], [p[1] for p in parts], kind="binary")

    found = diagnose(TaskSet([rows("mr", 10_000), rows("sst_binary", 2000)]))
    assert any("share" in line for line in found.warnings)
    assert found.pair("sst_binary", "mr").cosine > 0.3
