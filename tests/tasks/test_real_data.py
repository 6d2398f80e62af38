"""The real sets beside the project: every layout loads, and the counts of their own description are found."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from mtlens.tasks import Splits, TaskSet, drop_duplicates, find_duplicates, read_tasks
from mtlens.tasks.table import Table

pytestmark = pytest.mark.data


def text_tasks(real_data: Path, *names: str) -> TaskSet:
    return TaskSet(itertools.chain.from_iterable(read_tasks(real_data / "text6" / f"{name}.tsv.gz") for name in names))


def test_mr_and_sst_share_the_sentences_that_their_description_counts(real_data: Path) -> None:
    tasks = text_tasks(real_data, "mr", "sst_binary")
    found = {(o.task, o.other): o for o in find_duplicates(tasks).across}
    assert found["sst_binary", "mr"].parts == {"train": 5409, "valid": 691, "test": 1431}
    assert found["sst_binary", "mr"].leaks == 691 + 1431  # all of MR is train
    cleaned = drop_duplicates(tasks)
    left = {(o.task, o.other): o.leaks for o in find_duplicates(cleaned).across}
    assert all(leaks == 0 for leaks in left.values())
    assert (cleaned["sst_binary"].split == "test").sum() == len(set(_letters(tasks["sst_binary"], "test")))


def _letters(task: object, part: str) -> list[str]:
    rows = np.flatnonzero(task.split == part)  # type: ignore[attr-defined]
    return ["".join(c for c in task.X["text"][i].lower() if c.isalnum()) for i in rows]  # type: ignore[attr-defined]


def test_mpqa_and_trec_have_the_duplicates_that_their_description_counts(real_data: Path) -> None:
    found = find_duplicates(text_tasks(real_data, "mpqa", "trec")).within
    assert found["mpqa"].identical == 2266
    assert (found["trec"].identical, found["trec"].identical_across_splits) == (71, 10)
    # Compared on letters and digits only, a few more are the same, such as "What 's" and "What's".
    assert (found["mpqa"].extra, found["trec"].across_splits) == (2379, 11)


def test_splits_keep_mr_and_sst_apart_sentence_by_sentence(real_data: Path) -> None:
    tasks = Splits(0).assign(text_tasks(real_data, "mr", "sst_binary", "trec"))
    found = find_duplicates(tasks)
    assert all(overlap.leaks == 0 for overlap in found.across)
    assert all(own.across_splits == 0 for own in found.within.values())
    assert abs((tasks["mr"].split == "test").mean() - 0.2) < 0.02


@pytest.mark.parametrize(
    ("name", "rows", "kind", "train", "valid", "test"),
    [
        ("text6/mr", 10662, "binary", 10662, 0, 0),
        ("text6/trec", 5952, "multiclass", 5452, 0, 500),
        ("text6/sst_fine", 11855, "multiclass", 8544, 1101, 2210),
        ("glue/cola", 10657, "binary", 8551, 1043, 0),
        ("glue/mrpc", 5801, "binary", 3668, 408, 1725),
        ("glue/qnli", 12926, "binary", 2000, 5463, 0),
        ("glue/sst2", 70042, "binary", 67349, 872, 0),
    ],
)
def test_texts_load_with_their_parts(
    real_data: Path, name: str, rows: int, kind: str, train: int, valid: int, test: int
) -> None:
    task = next(iter(read_tasks(real_data / f"{name}.tsv.gz")))
    assert (task.name, task.num_rows, task.kind) == (name.split("/")[1], rows, kind)
    assert [len(task.rows_of(part)) for part in ("train", "valid", "test")] == [train, valid, test]
    assert isinstance(task.X, Table) and set(task.X.kinds.values()) == {"text"}


def test_empty_texts_stay_texts(real_data: Path) -> None:
    for name, count in (("mpqa", 3), ("cr", 4)):
        X = text_tasks(real_data, name)[0].X
        assert isinstance(X, Table) and X["text"].tolist().count("") == count


@pytest.mark.parametrize(
    ("name", "tasks", "shape", "kind"),
    [
        ("multilabel/yeast", 14, (2417, 103), "binary"),
        ("multilabel/bibtex", 159, (7395, 1836), "binary"),
        ("multitarget/scpf", 3, (1137, 23), "regression"),
        ("multitarget/edm", 2, (154, 16), "regression"),
        ("chestxray14/pixels64", 14, (6423, 64, 64), "binary"),
    ],
)
def test_arrays_load_as_shared_inputs(
    real_data: Path, name: str, tasks: int, shape: tuple[int, ...], kind: str
) -> None:
    loaded = read_tasks(real_data / f"{name}.npz")
    assert len(loaded) == tasks and loaded.has_shared_inputs and loaded[0].X.shape == shape
    assert {task.kind for task in loaded} == {kind}


def test_school_is_139_tasks_under_each_other(real_data: Path) -> None:
    tasks = read_tasks(real_data / "multitarget" / "school.npz")
    sizes = [task.num_rows for task in tasks]
    assert (len(tasks), sum(sizes), min(sizes), max(sizes)) == (139, 15362, 22, 251)
    assert {task.kind for task in tasks} == {"regression"}
    assert len(Splits(0).assign(tasks)) == 139


def test_radiographs_split_by_patient(real_data: Path) -> None:
    tasks = read_tasks(real_data / "chestxray14" / "labels.csv.gz", targets="Mass,Hernia", group="patient_id")
    split = Splits(0).assign(tasks)[0]
    parts: dict[str, str] = {}
    for patient, part in zip(split.group.tolist(), split.split.tolist(), strict=True):
        assert parts.setdefault(patient, part) == part
    assert abs((split.split == "test").mean() - 0.2) < 0.02
