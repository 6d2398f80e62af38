"""Duplicates: against a slow twin that compares rows one by one, and on planted copies."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlens.tasks import Table, Task, TaskSet, drop_duplicates, find_duplicates
from mtlens.tasks.duplicates import row_keys

WORDS = st.sampled_from(["good film", "Good film!", "bad", "b a d", "", "!", "ümlaut", "Ümlaut"])


def letters(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum()) or text


@given(st.lists(WORDS, min_size=2, max_size=12), st.lists(WORDS, min_size=2, max_size=12), st.randoms())
@settings(max_examples=150, deadline=None)
def test_counts_equal_a_slow_twin(a: list[str], b: list[str], random: object) -> None:
    rng = np.random.default_rng(len(a) * 100 + len(b))
    tasks = [
        Task(n, texts, rng.standard_normal(len(texts)), split=rng.choice(["train", "valid", "test"], len(texts)))
        for n, texts in (("a", a), ("b", b))
    ]
    found = find_duplicates(tasks)
    order = {"train": 0, "valid": 1, "test": 2}
    rows = {
        t.name: [(letters(x), order[p]) for x, p in zip(s, t.split, strict=True)]
        for t, s in zip(tasks, (a, b), strict=True)
    }
    for name, own in rows.items():
        texts = [text for text, _ in own]
        assert found.within[name].rows == sum(texts.count(text) > 1 for text in texts)
        assert found.within[name].extra == len(texts) - len(set(texts))
        assert found.within[name].across_splits == sum(any(u == t and q < p for u, q in own) for t, p in own)
    across = {(o.task, o.other): (o.rows, o.leaks) for o in found.across}
    for one, two in (("a", "b"), ("b", "a")):
        shared = sum(any(u == t for u, _ in rows[two]) for t, _ in rows[one])
        leaks = sum(any(u == t and q < p for u, q in rows[two]) for t, p in rows[one])
        assert across.get((one, two), (0, 0)) == (shared, leaks)


@given(st.lists(WORDS, min_size=2, max_size=15), st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_after_dropping_nothing_repeats_or_leaks_and_test_parts_keep_their_distinct_rows(
    texts: list[str], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    tasks = TaskSet(
        Task(
            n,
            texts,
            rng.standard_normal(len(texts)),
            split=["train", *rng.choice(["train", "valid", "test"], len(texts) - 1)],
        )
        for n in "ab"
    )
    before = {t.name: {letters(x) for x, p in zip(texts, t.split, strict=True) if p == "test"} for t in tasks}
    try:
        after = drop_duplicates(tasks)
    except ValueError as error:
        assert "has no rows" in str(error)
        return
    found = find_duplicates(after)
    assert all(own.extra == own.across_splits == 0 for own in found.within.values())
    assert all(overlap.leaks == 0 for overlap in found.across)
    for task in after:
        kept = {letters(x) for x, p in zip(task.X["text"], task.split, strict=True) if p == "test"}
        assert kept == before[task.name]
    again = drop_duplicates(TaskSet(tuple(tasks)[::-1]))
    assert all(np.array_equal(again[t.name].y, t.y) for t in after)


def test_numbers_compare_by_value() -> None:
    X = np.array([[0.0, np.nan], [-0.0, -np.nan], [1.0, 2.0], [2.0, 1.0], [1e-300, 0], [0, 0]])
    keys = row_keys(X)
    assert keys[0] == keys[1]
    assert len(set(keys.tolist())) == 5
    assert np.array_equal(row_keys(X[2:4].astype(np.float32)), keys[2:4])
    assert np.array_equal(row_keys(np.asfortranarray(X)), keys)


def test_columns_of_a_table_may_stand_in_any_order() -> None:
    one = Table({"a": np.array([1.0, 2.0]), "b": np.array(["x", None], dtype=object)})
    assert np.array_equal(row_keys(one), row_keys(one.select(["b", "a"])))


def test_keys_rarely_collide_on_near_rows() -> None:
    grid = np.stack(np.meshgrid(*[np.arange(12.0)] * 4), -1).reshape(-1, 4)
    assert len(np.unique(row_keys(grid))) == len(grid)
    assert len(np.unique(row_keys(np.eye(500)))) == 500


def test_conflicts_and_identical_rows_are_told_apart() -> None:
    task = Task("t", ["a b", "a b", "A  b", "c"], ["no", "yes", "no", "no"])
    found = find_duplicates([task]).within["t"]
    assert (found.rows, found.extra, found.conflicting, found.identical) == (3, 2, 3, 0)
    assert find_duplicates([Task("t", ["a", "a", "b"], [1, 1, 0])]).within["t"].identical == 1


def test_a_shared_input_stays_shared_after_dropping() -> None:
    X = np.repeat(np.arange(10.0), 2)[:, None]
    tasks = TaskSet.from_arrays(X, np.random.default_rng(0).standard_normal((20, 3)))
    after = drop_duplicates(tasks)
    assert after.has_shared_inputs
    assert after[0].num_rows == 10
    assert find_duplicates(after).any is False


@pytest.mark.medium
def test_a_million_rows_in_under_ten_seconds() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1_000_000, 20))
    X[500_000:500_100] = X[:100]
    texts = [f"Sentence {i % 199_999}, with some words to read in it." for i in range(200_000)]
    start = time.process_time()
    numbers = find_duplicates([Task("numbers", X, X[:, 0])])
    words = find_duplicates([Task("words", texts, np.arange(200_000) % 2)])
    assert numbers.within["numbers"].extra == 100
    assert words.within["words"].extra == 1
    assert time.process_time() - start < 10
