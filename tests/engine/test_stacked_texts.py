"""Texts in stacks against texts one by one. A CPU trains LSTMs one by one; here stacks of them are made anyway."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mtlens import Task, TaskSet, Training, train
from mtlens.engine.bank import CHUNK, MOST_NUMBERS, _chunk
from mtlens.engine.layout import layout_of
from mtlens.engine.prepare import Preparation
from mtlens.engine.stack import WORDS, Run, Stack
from mtlens.engine.store import Store
from mtlens.errors import InputError
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


@pytest.mark.parametrize("steps", ["mixed", "joint"])
@pytest.mark.parametrize(
    "method", [{}, {"weight_decay": 0.1}, {"weighting": "uncertainty"}, {"freeze": ("heads",)}], ids=str
)
@pytest.mark.parametrize("pretrained", [True, False])
def test_averages_with_tables_of_their_own_are_those_trained_one_by_one(
    steps: str, method: dict[str, Any], pretrained: bool
) -> None:
    """Members that end at other times, of other widths: places empty, are compacted, and are given to others."""
    vectors = EmbeddingTable(tuple(f"w{i}" for i in range(40)), np.random.default_rng(0).normal(0, 0.4, (40, 6)))
    trunk = TextFamily("average", embeddings="dense", vectors=vectors if pretrained else None, width=6)
    trainings = [
        Training(
            tasks(),
            trunk,
            capacity,
            epochs=epochs,
            lr=0.01,
            batch=16,
            seed=capacity,
            steps=steps,
            dtype="float64",
            **method,
        )
        for capacity, epochs in ((7, 1), (6, 4), (7, 2), (6, 3), (7, 3))
    ]
    together, alone = (train(trainings, engine=way, keep="predictions", workers=1) for way in ("bank", "solo"))  # type: ignore[arg-type]
    for one, other in zip(together, alone, strict=True):
        assert one.ok and other.ok and one.model is not None and other.model is not None
        assert np.abs(one.history["loss"] - other.history["loss"]).max() < 1e-10
        theirs = other.model.net.state_dict()
        for name, value in one.model.net.state_dict().items():
            torch.testing.assert_close(value, theirs[name], rtol=0, atol=1e-10)


def test_tables_and_their_members_stay_within_bounds() -> None:
    """Large tables make small stacks; tables of other lengths, or of texts and of numbers, make other stacks."""
    prepared = Preparation()
    learned = [
        prepared.member(Training(tasks().subset([name]), TextFamily("average", width=width), 4, epochs=1, batch=16))
        for name, width in (("short", 6), ("long", 6))
    ]
    layouts = {layout_of(member) for member in learned}
    assert {layout.inputs for layout in layouts} == {(member.rows.vocabulary,) for member in learned}
    (layout, *_), cpu = layouts, torch.device("cpu")
    assert _chunk(layout, learned[:1], cpu) == CHUNK[layout.mode]
    wide = prepared.member(Training(tasks().subset(["short"]), TextFamily("average", width=1 << 16), 4, batch=16))
    trunk = wide.family.stacked(wide.rows, [4])
    assert trunk is not None
    assert 1 < _chunk(layout, [wide], cpu) == MOST_NUMBERS // trunk.num_parameters < CHUNK[layout.mode]


def test_aligned_averages_with_tables_of_their_own_go_one_by_one() -> None:
    training = Training(tasks(), TextFamily("average", width=6), 4, epochs=1, batch=16, align="joint")
    (trained,) = train([training])
    assert trained.ok
    with pytest.raises(InputError, match="no stacked step"):
        train([training], engine="bank")


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
    assert store.words(torch.tensor([0])) == 1  # the empty row: no trunk is given nothing to read
