"""Small data that reaches every branch: three kinds of task, missing labels, sample weights."""

from __future__ import annotations

import numpy as np
import pytest

from mtlens import Task, TaskSet

KINDS = ("regression", "binary", "multiclass")


def _arrays(rows: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draws = np.random.default_rng(7)
    X = draws.normal(size=(rows, width))
    B = draws.normal(size=(width, 3))
    Y = np.stack(
        [
            X @ B[:, 0] + 0.3 * draws.normal(size=rows),
            (X @ B[:, 1] > 0).astype(float),
            np.digitize(X @ B[:, 2], [-1, 1]).astype(float),
        ],
        axis=1,
    )
    Y[draws.random(Y.shape) < 0.1] = np.nan
    return X, Y, draws.choice(["train", "valid", "test"], rows, p=[0.6, 0.2, 0.2])


@pytest.fixture(scope="session")
def shared() -> TaskSet:
    """Three tasks on one input, a tenth of the labels missing, with sample weights."""
    X, Y, split = _arrays(120, 6)
    weight = np.random.default_rng(1).random(120) + 0.1
    return TaskSet.from_arrays(X, Y, names=["r", "b", "c"], kind=KINDS, split=split, weight=weight)


@pytest.fixture(scope="session")
def separate() -> TaskSet:
    """Three tasks with inputs of their own, in other units and of other lengths."""
    X, Y, split = _arrays(150, 6)
    cuts = [slice(0, 30), slice(30, 80), slice(80, 150)]
    return TaskSet(
        Task(name, (i + 1) * X[cut] + i, Y[cut, i], kind=kind, split=split[cut])
        for i, (name, kind, cut) in enumerate(zip("rbc", KINDS, cuts, strict=True))
    )
