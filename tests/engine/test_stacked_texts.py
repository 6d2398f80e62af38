"""Texts in stacks against texts one by one. A CPU trains LSTMs one by one; here stacks of them are made anyway."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mtlens import Task, TaskSet, Training, train
from mtlens.engine.layout import layout_of
from mtlens.engine.prepare import Preparation
from mtlens.engine.stack import WORDS, Run, Stack
from mtlens.engine.store import Store
from mtlens.features.vectors import EmbeddingTable
from mtlens.nets.text_families import TextFamily

LONGEST = {"short": 9, "long": 50}


@pytest.fixture
def stacked_texts(monkeypatch: pytest.MonkeyPatch) -> TextFamily:
    monkeypatch.setattr(TextFamily, "stacks_on", lambda self, device_type: True)
    draws = np.random.default_rng(0)
    vectors = EmbeddingTable(tuple(f"w{i}" for i in range(60)), draws.normal(0, 0.4, (60, 6)).astype(np.float32))
    return TextFamily("lstm", vectors=vectors)


def tasks() -> TaskSet:
    """A task of short texts and one of long texts, of two and of three classes."""
    draws, made = np.random.default_rng(1), []
    for (name, longest), classes, size in zip(LONGEST.items(), (2, 3), (80, 60), strict=True):
        texts = [" ".join(f"w{i}" for i in draws.integers(0, 60, n)) for n in draws.integers(1, longest, size)]
        split = np.where(np.arange(size) % 4 == 0, "valid", "train")
        kind = "binary" if classes == 2 else "multiclass"
        made.append(Task(name, texts, draws.integers(0, classes, size).astype(float), kind=kind, split=split))
    return TaskSet(made)


@pytest.mark.parametrize("steps", ["mixed", "joint"])
@pytest.mark.parametrize(("align", "rank"), [(None, None), ("joint", None), ("joint", 2), ("fixed", None)])
def test_stacked_lstms_are_those_trained_one_by_one(
    stacked_texts: TextFamily, steps: str, align: str | None, rank: int | None
) -> None:
    penalty = 0.0 if align is None else 0.1
    trainings = [
        Training(
            tasks(), stacked_texts, capacity, epochs=3, batch=16, seed=capacity, steps=steps, align=align,
            align_rank=rank, penalty=penalty, dtype="float64",
        )  # type: ignore[arg-type]
        for capacity in (7, 6)
    ]  # fmt: skip
    together, alone = (train(trainings, engine=way, keep="predictions") for way in ("bank", "solo"))  # type: ignore[arg-type]
    for one, other in zip(together, alone, strict=True):
        assert one.ok and other.ok
        assert np.abs(one.history["loss"] - other.history["loss"]).max() < 1e-10
        for name in LONGEST:
            gap = np.abs(one.predictions["valid"][name] - other.predictions["valid"][name]).max()
            assert gap < 1e-10


def test_a_step_reads_no_more_columns_than_its_longest_text_has(stacked_texts: TextFamily) -> None:
    short = tasks().subset(["short"])
    prepared = Preparation()
    members = [
        prepared.member(Training(given, stacked_texts, 4, epochs=2, batch=16, seed=seed))
        for seed, given in enumerate((short, short, tasks().subset(["long"])))
    ]
    with torch.inference_mode():
        store = Store(members, torch.float32, torch.device("cpu"))
        assert store.X.shape[1] > 2 * WORDS  # one store: short texts are padded to the longest of all
        runs = [Run(i, member) for i, member in enumerate(members[:2])]
        stack = Stack(layout_of(members[0]), runs, members[:2], store)
        ahead = stack._words_ahead(3)
        assert ahead == [WORDS] * 3
        stack._step_stacked(1, None)
        assert stack.trunk._embedded.shape[1] == 16 * WORDS  # type: ignore[attr-defined]
    assert store.words(torch.tensor([0])) == 0  # the empty row
