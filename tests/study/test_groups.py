"""Groups: the exact programme against brute force, greedy close to it, limits, stability."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from mtlens.errors import InputError
from mtlens.study import groups as g


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for part in partitions(rest):
        yield [[first], *part]
        for i in range(len(part)):
            yield [*part[:i], [first, *part[i]], *part[i + 1 :]]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, None])
def test_exact_equals_every_partition_tried(limit: int | None) -> None:
    D = np.random.default_rng(4).standard_normal((7, 7))
    np.fill_diagonal(D, 0)
    best = max(
        sum(D[np.ix_(p, p)].sum() / (len(p) - 1) for p in parts if len(p) > 1)
        for parts in partitions(list(range(7)))
        if limit is None or len(parts) <= limit
    )
    found = g.best_groups(D, max_models=limit)
    assert found.exact and found.gain == pytest.approx(best / 7)
    assert sorted(i for group in found.groups for i in group) == list(range(7))
    assert limit is None or len(found.groups) <= limit


def test_max_convolution_is_the_best_of_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(g, "LEAF", (2, 2))  # so that six bits pass through every branch
    a, b = np.random.default_rng(0).standard_normal((2, 64))
    found = g._max_convolution(a, b)
    for whole in range(64):
        parts = [part for part in range(64) if part & whole == part]
        assert found[whole] == max(a[part] + b[whole ^ part] for part in parts)


def test_greedy_comes_close_to_exact() -> None:
    ratios = []
    for seed in range(20):
        D = np.random.default_rng(seed).standard_normal((9, 9)) - 0.3
        exact = g.best_groups(D, max_models=4)
        greedy = g.best_groups(D, max_models=4, exact=0)
        assert not greedy.exact and greedy.gain <= exact.gain + 1e-12 and len(greedy.groups) <= 4
        ratios.append(greedy.gain / exact.gain)
    assert np.mean(ratios) > 0.85


def test_planted_groups_are_found_among_two_hundred_tasks() -> None:
    label = np.arange(200) // 20
    D = np.where(label[:, None] == label, 1.0, -0.5) + 0.1 * np.random.default_rng(0).standard_normal((200, 200))
    found = g.best_groups(D, max_models=10)
    assert found.groups == tuple(tuple(range(i, i + 20)) for i in range(0, 200, 20))


def test_loners_stay_alone_and_stability_tells_noise_from_signal() -> None:
    D = np.full((5, 5), -1.0)
    D[:2, :2] = 2.0
    firm = g.best_groups(D, errors=np.full((5, 5), 0.1))
    assert firm.groups == ((0, 1), (2,), (3,), (4,)) and min(firm.stability) > 0.95
    shaky = g.best_groups(D, errors=np.full((5, 5), 5.0))
    assert max(shaky.stability) < 0.9


def test_too_few_models_force_company_and_nan_counts_as_nothing() -> None:
    D = np.full((3, 3), -1.0)
    assert g.best_groups(D, max_models=1).groups == ((0, 1, 2),)
    assert g.best_groups(np.full((3, 3), np.nan)).gain == 0
    assert g.best_groups(np.zeros((1, 1))).groups == ((0,),)
    for bad in (np.zeros((2, 3)), np.zeros((0, 0))):
        with pytest.raises(InputError, match="square"):
            g.best_groups(bad)
    with pytest.raises(InputError, match="max_models=0"):
        g.best_groups(D, max_models=0)


def test_a_task_at_a_time_leaves_nothing_to_gain_by_a_move() -> None:
    """The running sums of the moves agree with values computed anew."""
    D = np.random.default_rng(3).standard_normal((40, 40)) - 0.2
    np.fill_diagonal(D, 0)
    groups = [list(group) for group in g.best_groups(D, max_models=12).groups]
    value = g._value(D, groups)
    for i in range(40):
        rest = [[j for j in group if j != i] for group in groups]
        for place in range(len(rest)):
            moved = [[*group, i] if n == place else group for n, group in enumerate(rest)]
            assert g._value(D, moved) <= value + 1e-9


@pytest.mark.medium
def test_eighteen_tasks_are_exact_and_two_hundred_are_done_in_seconds() -> None:
    began = time.perf_counter()
    assert g.best_groups(np.random.default_rng(0).standard_normal((18, 18)), max_models=5).exact
    random = np.random.default_rng(1)
    many = g.best_groups(random.standard_normal((200, 200)) - 0.3, errors=np.ones((200, 200)), max_models=20)
    assert not many.exact and len(many.groups) <= 20
    assert time.perf_counter() - began < 30
