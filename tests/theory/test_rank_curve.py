"""The rank curve finds a planted rank, is the tuned ridge at full rank, and says when it is flat."""

from __future__ import annotations

import numpy as np
import pytest

from mtlens.theory.rank_curve import default_ranks, rank_curve
from mtlens.theory.transfer import LinearProblem, LinearTransfer


def planted(rank: int, *, shared: bool, k: int = 10, d: int = 20, m: int = 60, noise: float = 3.0) -> LinearTransfer:
    random = np.random.default_rng(rank)
    B = random.standard_normal((d, rank)) if rank else np.zeros((d, 1))
    X = random.standard_normal((m, d))
    made = []
    for i in range(k):
        rows = X if shared else random.standard_normal((m, d))
        signal = rows @ B @ random.standard_normal(B.shape[1])
        made.append(LinearProblem(str(i), rows, signal + noise * random.standard_normal(m)))
    return LinearTransfer(made)


@pytest.mark.parametrize("shared", [True, False])
def test_a_planted_rank_is_found(shared: bool) -> None:
    curve = rank_curve(planted(3, shared=shared))
    assert curve.suggested == 3 and not curve.flat
    assert curve.scores[0] < curve.scores[2] > curve.scores[-1]


def test_full_rank_is_the_tuned_single_task_ridge() -> None:
    core = planted(2, shared=False, k=4)
    curve = rank_curve(core, [1])
    assert curve.ranks == (1, 4)
    base = core.base_losses()
    fixed = [core._alone[0][i, list(core.ridges).index(core.alone(n).ridge)] for i, n in enumerate(core.names)]
    expected = np.mean([1 - f.sum() / b.sum() for f, b in zip(fixed, base, strict=True)])
    assert curve.scores[-1] == pytest.approx(expected, rel=1e-8)


def test_nothing_to_learn_is_flat() -> None:
    assert rank_curve(planted(0, shared=True)).flat


def test_ladder_ends_at_the_top() -> None:
    assert default_ranks(1) == (1,) and default_ranks(5) == (1, 2, 3, 4, 5)
