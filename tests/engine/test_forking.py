"""Forked workers. Each check runs in a process of its own: one that has trained on threads is never forked."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mtlens import Task, Training, train
from mtlens.engine import workers
from mtlens.engine.forking import can_fork
from mtlens.engine.prepare import Preparation
from mtlens.engine.result import Trained
from mtlens.errors import InputError, TrainingError

SPLIT = np.repeat(["train", "valid"], 20)
CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
@pytest.mark.parametrize("name", ["order", "the_same_as_one_by_one", "a_worker_dies", "an_error", "the_parent_is_gone"])
def test_forked_workers(name: str) -> None:
    code = f"import runpy; runpy.run_path({__file__!r})['CHECKS'][{name!r}]()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def texts(**settings: Any) -> list[Training]:
    """Trainings that have no stacked step on a CPU."""
    words = ["good film", "dull book", "so long", "a fine day"] * 10
    task = Task("mood", words, np.arange(40) % 2, split=SPLIT)
    asked = {"epochs": 2, "dtype": "float64", **settings}
    return [Training(task, "cnn", 3, seed=seed, **asked) for seed in range(5)]


@check
def order() -> None:
    """Workers are forked before stacks train on threads, and never after."""
    forks: list[int] = []
    fork = os.fork
    os.fork = lambda: forks.append(1) or fork()
    X = np.random.default_rng(0).normal(size=(40, 3))
    numbers = Task("numbers", X, np.arange(40) % 2, split=SPLIT)
    stacks = [Training(numbers, "mlp", 2, epochs=1, seed=seed) for seed in range(3)]
    assert can_fork()
    assert all(one.ok for one in train([*stacks, *texts()], workers=2))
    before = len(forks)
    assert before == 2 and not can_fork()
    assert all(one.ok for one in train(texts(), workers=2))
    assert len(forks) == before


@check
def the_same_as_one_by_one() -> None:
    solo, forked = train(texts(), engine="solo"), train(texts(), workers=2)
    for one, two in zip(solo, forked, strict=True):
        assert one.scores == two.scores and one.model is not None and two.model is not None
        for mine, other in zip(one.model.net.parameters(), two.model.net.parameters(), strict=True):
            assert float((mine - other).detach().abs().max()) < 1e-10


@check
def a_worker_dies() -> None:
    real, parent = workers.train_solo, os.getpid()

    def dying(member: Any, **settings: Any) -> Trained:
        if member.training.seed == 1:
            assert os.getpid() != parent
            os.kill(os.getpid(), signal.SIGKILL)
        return real(member, **settings)

    workers.train_solo = dying
    trained = train(texts(), workers=2)
    assert [one.ok for one in trained] == [True, False, True, True, True]
    assert "exit code -9" in trained[1].reason


@check
def an_error() -> None:
    """A worker's error is the caller's: of its own kind if it is one of ours."""

    def refused(*_: Any, **__: Any) -> Trained:
        raise InputError("no such thing")

    def broken(*_: Any, **__: Any) -> Trained:
        raise ZeroDivisionError("by zero")

    workers.train_solo = refused
    with pytest.raises(InputError, match="no such thing"):
        train(texts(), workers=2)
    workers.train_solo = broken
    with pytest.raises(TrainingError, match="ZeroDivisionError: by zero"):
        train(texts(), workers=2)


@check
def the_parent_is_gone() -> None:
    """A parent that was killed closes its ends of the pipes; the copies that forking made must not keep them open."""
    member = Preparation().member(texts(epochs=10**9, select="last")[0])
    context = multiprocessing.get_context("fork")
    (ours, theirs), (other, _) = context.Pipe(), context.Pipe()
    arguments = (theirs, [ours, other], [(0, member)], "scores", None)
    worker = context.Process(target=workers._work, args=arguments, daemon=True)
    worker.start()
    theirs.close()
    ours.send_bytes(b"0")
    assert ours.recv_bytes().startswith(b"E")  # it trains
    ours.close()
    worker.join(30)
    assert worker.exitcode == 0
