"""The six sentence-classification tasks of the paper: where they are read, how they are split and what is trained.

The data are not part of the project. A folder is wanted with ``text6/{mr,subj,cr,mpqa,trec,sst_binary}.tsv.gz`` (header
``split label text``) and ``glove/glove6b_100d_subset.npz`` (``words``, ``vectors``), see :func:`data_folder`.

SST and TREC have official test sets (SST an official validation set too) and keep them; the others are split 80/10/10,
anew for every seed. Many sentences occur in several tasks: 7,531 of SST's are in MR, and 4,179 of MR's are in SUBJ.
``duplicates="drop"`` takes every train row out that a validation or test part of *any* task holds, so a joint model
never trains on a sentence that another of its tasks is scored on; ``"keep"`` leaves them in, as published numbers did.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mtlens.errors import FileError, InputError, unknown
from mtlens.features import EmbeddingTable
from mtlens.tasks import Splits, Task, TaskSet, drop_duplicates, read_tasks

FILES = {"SST": "sst_binary", "MR": "mr", "CR": "cr", "SUBJ": "subj", "MPQA": "mpqa", "TREC": "trec"}
SIX = tuple(FILES)
VECTORS = Path("glove") / "glove6b_100d_subset.npz"
DATA_VARIABLE = "MTLENS_DATA"


@dataclass(frozen=True)
class SentimentSettings:
    """Every constant of the sentence studies.

    ``printed`` is the paper's text: one-layer LSTM of width 200 over fine-tuned GloVe vectors, Algorithm 1 with the
    shared module fixed, shared sentences left in. ``script`` is what the authors' public script does instead: two
    layers of width 100 whose last *padded* step is read. ``corrected`` removes shared sentences, reads the last word,
    keeps the vectors frozen (as the cited implementation does) and trains shared module and alignments together.

    Attributes:
        seeds, seed: number of repetitions and the first. A repetition draws splits, starts and batches anew.
        data: the data folder; empty: found, see :func:`data_folder`.
        capacity, depth, last, embeddings: of the trunk. epochs: most; the validation score chooses one.
        align: Algorithm 1 with the shared module trained along ("joint"), or fixed at the joint solution ("fixed").
        train_rows, test_rows: most rows of a part (validation counts as test), 0 for all: for reduced runs.
        tune_epochs: most epochs of fine-tuning on a target.
        workers: processes that train at once, each started anew; 0 or 1 is this one.
        readings: a folder for what finished trainings say; a run that finds it there does not train again.
    """

    seeds: int = 5
    seed: int = 0
    data: str = ""
    tasks: tuple[str, ...] = SIX
    trunk: str = "lstm"
    capacity: int = 200
    capacities: tuple[int, ...] = (5, 20, 50, 100, 200, 500)
    depth: int = 1
    last: Literal["real", "padded"] = "real"
    embeddings: str = "frozen"
    epochs: int = 10
    tune_epochs: int = 10
    lr: float = 3e-3
    batch: int = 50
    align: Literal["joint", "fixed"] = "joint"
    duplicates: Literal["drop", "keep"] = "drop"
    train_rows: int = 0
    test_rows: int = 0
    device: str = "cpu"
    workers: int = 0
    readings: str = ""

    def __post_init__(self) -> None:
        for name in self.tasks:
            if name not in FILES:
                raise unknown("sentence task", name, FILES)
        if len(self.tasks) < 2:
            raise InputError(f"the sentence studies need at least two tasks, found {self.tasks}.")
        for field, allowed in (("duplicates", ("drop", "keep")), ("align", ("joint", "fixed"))):
            if getattr(self, field) not in allowed:
                raise unknown(field, getattr(self, field), allowed)


def data_folder(given: str = "") -> Path:
    """The folder of the data: as given, else ``$MTLENS_DATA``, else ``shared/data`` here or up to three folders up."""
    here = Path.cwd()
    near = [folder / "shared" / "data" for folder in (here, *here.parents[:3])]
    stated = given or os.environ.get(DATA_VARIABLE, "")
    for folder in [Path(stated)] if stated else near:
        if (folder / "text6").is_dir() and (folder / VECTORS).is_file():
            return folder
    raise FileError(
        f"the sentence studies need a data folder with text6/*.tsv.gz and {VECTORS}; "
        f"{f'{stated!r} is none' if stated else f'none was found near {here}'}. "
        f"Name it with --set data=FOLDER or in the environment variable {DATA_VARIABLE}."
    )


@lru_cache(maxsize=8)
def _read(folder: Path, name: str) -> Task:
    path = folder / "text6" / f"{FILES[name]}.tsv.gz"
    return read_tasks(path)[0].replace(name=name, metric="accuracy")


@lru_cache(maxsize=2)
def word_vectors(folder: Path) -> EmbeddingTable:
    """The GloVe vectors beside the data."""
    return EmbeddingTable.load(folder / VECTORS)


@lru_cache(maxsize=4)
def sentence_tasks(c: SentimentSettings, seed: int, duplicates: str = "") -> TaskSet:
    """The tasks of one repetition, split and (unless ``duplicates`` is "keep") without shared sentences."""
    folder = data_folder(c.data)
    tasks = [_read(folder, name) for name in c.tasks]
    drop = (duplicates or c.duplicates) == "drop"
    together: Any = "auto" if drop else "apart"
    parts = _official(tasks, seed, together) | _drawn(tasks, seed, together)
    split = TaskSet([parts[name] for name in c.tasks])
    split = drop_duplicates(split) if drop else split
    return _reduced(split, c, seed) if c.train_rows or c.test_rows else split


def _drawn(tasks: Sequence[Task], seed: int, duplicates: Any) -> dict[str, Task]:
    """The tasks without an official test set, 80/10/10."""
    free = [task for task in tasks if task.split is None]
    if not free:
        return {}
    splits = Splits(seed, "repeated", valid=0.1, test=0.1, duplicates=duplicates)
    return {task.name: task for task in splits.assign(TaskSet(free))}


def _official(tasks: Sequence[Task], seed: int, duplicates: Any) -> dict[str, Task]:
    """Official parts as they are; a missing validation part is a tenth of train, drawn one task at a time."""
    done = {}
    for task in tasks:
        if task.split is not None and not (task.split == "valid").any():
            splits = Splits(seed, "official", valid=0.1, duplicates=duplicates)
            done[task.name] = splits.assign(TaskSet([task]))[0]
        elif task.split is not None:
            done[task.name] = task
    return done


def _reduced(tasks: TaskSet, c: SentimentSettings, seed: int) -> TaskSet:
    """At most ``train_rows`` and ``test_rows`` rows of each part, drawn by the seed."""
    rows = {}
    for place, task in enumerate(tasks):
        rng = np.random.default_rng([seed, place, 6])
        kept = []
        for part in ("train", "valid", "test"):
            own = task.rows_of(part)
            most = c.train_rows if part == "train" else c.test_rows
            kept.append(rng.permutation(own)[:most] if most else own)
        rows[task.name] = np.sort(np.concatenate(kept))
    return tasks.take(rows)
