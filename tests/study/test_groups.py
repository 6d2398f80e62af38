"""Groups: the exact programme against brute force, greedy close to it, limits, stability."""

from __future__ import annotations

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


@pytest.mark.parametrize("limit", [1, 2, 3, None])
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


def test_greedy_comes_close_to_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = []
    for seed in range(20):
        D = np.random.default_rng(seed).standard_normal((9, 9)) - 0.3
        exact = g.best_groups(D, max_models=4)
        with monkeypatch.context() as patch:
            patch.setattr(g, "EXACT", 0)
            greedy = g.best_groups(D, max_models=4)
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


@pytest.mark.medium
def test_sixteen_tasks_are_exact_in_seconds() -> None:
    found = g.best_groups(np.random.default_rng(0).standard_normal((16, 16)), max_models=5)
    assert found.exact
