"""How much faster are text studies through ``train`` than the best loop on one thread, and fine-tuned embeddings than
dense default Adam?

Questions, each with its baseline in the same run, interleaved; the median over repetitions of one repetition's ratio:

* LSTM and CNN studies (each task alone and both together, several seeds; frozen 100-wide vectors, width 100), on all
  cores, against the best sequential loop we could write on one thread: ids in memory, each batch cut to its longest
  text, time-major ``nn.LSTM`` (the CPU kernel's own layout) or ``Conv1d``, fused Adam, validation every epoch.
* the same study of a fine-tuned averaging model (table of 18,000 words), one thread: ours by plain Adam ("dense", the
  same algorithm) and row-wise (another algorithm), against ``nn.Embedding`` with dense gradients and default Adam.

Texts are drawn: lengths and word frequencies like those of movie reviews. Run on a quiet machine:
    python benchmarks/bench_text.py [--repeats 5] [--rows lstm,cnn,average] [--size 1500]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from mtlens import Task, TaskSet, Training, train
from mtlens.features.vectors import EmbeddingTable
from mtlens.nets.text_families import TextFamily

WORDS, DIM, WIDTH, BATCH, EPOCHS, SEEDS = 5000, 100, 100, 50, 4, 2
TABLE = 18_000


def lengths(draws: np.random.Generator, count: int) -> np.ndarray:
    return np.clip(np.abs(draws.normal(0, 12, count)) + 8, 1, 50).astype(int)


def frequent(draws: np.random.Generator, count: int, words: int) -> np.ndarray:
    return (draws.random(count) ** 3 * (words - 1)).astype(int) + 1


def study_data(size: int, count: int = WORDS) -> tuple[TaskSet, EmbeddingTable]:
    draws = np.random.default_rng(0)
    words = tuple(f"w{i}" for i in range(count))
    table = EmbeddingTable(words, draws.normal(0, 0.4, (count, DIM)).astype(np.float32))
    tasks = []
    for name in ("one", "two"):
        ids = [frequent(draws, n, count) for n in lengths(draws, size)]
        y = np.array([table.vectors[own, 0].mean() > 0 for own in ids], dtype=float)
        split = np.where(np.arange(size) % 10 == 0, "valid", "train")
        tasks.append(Task(name, [" ".join(words[i] for i in own) for own in ids], y, kind="binary", split=split))
    return TaskSet(tasks), table


class LoopNet(nn.Module):
    """What the loop trains: a trunk the plain way, and a head a task."""

    def __init__(self, kind: str, table: Tensor, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(table, padding_idx=0)
        self.lstm = nn.LSTM(DIM, WIDTH) if kind == "lstm" else None
        self.convolutions = nn.ModuleList(nn.Conv1d(DIM, WIDTH, w, padding=w - 1) for w in (3, 4, 5))
        self.heads = nn.ModuleList(nn.Linear(WIDTH if kind == "lstm" else 3 * WIDTH, 1) for _ in range(heads))

    def forward(self, ids: Tensor, head: int) -> Tensor:
        embedded = self.embedding(ids)
        if self.lstm is not None:
            states = self.lstm(embedded.transpose(0, 1))[0]
            last = states[(ids != 0).sum(1).clamp(min=1) - 1, torch.arange(len(ids))]
        else:
            last = torch.cat([c(embedded.transpose(1, 2)).amax(2).relu() for c in self.convolutions], 1)
        return self.heads[head](last)[:, 0]


def loop_study(kind: str, tasks: TaskSet, table: EmbeddingTable) -> float:
    """Seconds for the whole study, one training after another."""
    place = {word: i + 1 for i, word in enumerate(table.words)}
    vectors = torch.cat([torch.zeros(1, DIM), torch.from_numpy(table.vectors)])
    data = [padded(task, place) for task in tasks]
    began = time.perf_counter()
    for group in ([0], [1], [0, 1]):
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            net = LoopNet(kind, vectors, len(group))
            adam = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], fused=True)
            for _ in range(EPOCHS):
                loop_epoch(net, adam, [data[i] for i in group])
    return time.perf_counter() - began


def padded(task: Task, place: dict[str, int]) -> tuple[Tensor, Tensor, np.ndarray]:
    rows = [[place[w] for w in text.split()] for text in task.X["text"]]
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    assert task.split is not None
    return ids, torch.from_numpy(task.y).float(), task.split == "train"


def loop_epoch(net: LoopNet, adam: torch.optim.Optimizer, data: list[tuple[Tensor, Tensor, np.ndarray]]) -> None:
    batches = []
    for head, (_, _, is_train) in enumerate(data):
        rows = torch.from_numpy(np.flatnonzero(is_train))
        batches += [(head, part) for part in rows[torch.randperm(len(rows))].split(BATCH)]
    for i in torch.randperm(len(batches)).tolist():
        head, rows = batches[i]
        ids, y, _ = data[head]
        own = ids[rows]
        loss = bce(net(own[:, : int((own != 0).sum(1).max())], head), y[rows])
        adam.zero_grad()
        loss.backward()
        adam.step()
    with torch.no_grad():
        for head, (ids, y, is_train) in enumerate(data):
            valid = torch.from_numpy(np.flatnonzero(~is_train))
            roc_auc_score(y[valid], net(ids[valid], head))


def train_study(
    trunk: TextFamily, tasks: TaskSet, engine: str, *, seeds: int = SEEDS, workers: int | None = None
) -> float:
    groups = (["one"], ["two"], ["one", "two"])
    trainings = [
        Training(tasks.subset(group), trunk, WIDTH, epochs=EPOCHS, batch=BATCH, seed=seed, steps="mixed")
        for group in groups
        for seed in range(seeds)
    ]
    began = time.perf_counter()
    results = train(trainings, engine=engine, keep="scores", progress=False, workers=workers)  # type: ignore[arg-type]
    assert all(trained.ok for trained in results)
    return time.perf_counter() - began


def study_row(kind: str, size: int, repeats: int) -> None:
    tasks, table = study_data(size)
    one_thread, all_cores, alone = [], [], []
    for _ in range(repeats):
        base = loop_study(kind, tasks, table)
        trunk = TextFamily(kind, vectors=table)
        alone.append(base / train_study(trunk, tasks, "solo"))
        all_cores.append(base / train_study(trunk, tasks, "auto"))
        one_thread.append(base)
    print(
        f"{kind}: loop {statistics.median(one_thread):.2f} s; x loop: one by one {spread(alone)}, "
        f"{len(os.sched_getaffinity(0))} cores {spread(all_cores)} (must 1.7, reach 2.0)"
    )


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def fine_tuned_loop(tasks: TaskSet, table: EmbeddingTable) -> float:
    """Seconds for the study with ``nn.Embedding``, its dense gradients and default Adam, one training after another."""
    place = {word: i + 1 for i, word in enumerate(table.words)}
    vectors = torch.cat([torch.zeros(1, DIM), torch.from_numpy(table.vectors)])
    data = [padded(task, place) for task in tasks]
    began = time.perf_counter()
    for group in ([0], [1], [0, 1]):
        torch.manual_seed(0)
        net = AverageNet(vectors, len(group))
        adam = torch.optim.Adam(net.parameters())
        for _ in range(EPOCHS):
            loop_epoch(net, adam, [data[i] for i in group])
    return time.perf_counter() - began


class AverageNet(nn.Module):
    """The averaging model the plain way: the mean of the words' vectors, two ReLU layers, a head a task."""

    def __init__(self, table: Tensor, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(table.clone(), freeze=False, padding_idx=0)
        self.layers = nn.Sequential(nn.Linear(DIM, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(WIDTH, 1) for _ in range(heads))

    def forward(self, ids: Tensor, head: int) -> Tensor:
        known = (ids != 0).float()[..., None]
        means = (self.embedding(ids) * known).sum(1) / known.sum(1).clamp(min=1)
        return self.heads[head](self.layers(means))[:, 0]


def average_row(size: int, repeats: int) -> None:
    """One worker, so one thread on both sides."""
    tasks, table = study_data(4 * size, TABLE)  # enough for nearly all of the table's words to occur
    found: dict[str, list[float]] = {"dense": [], "rowwise": []}
    loops = []
    for repeat in range(repeats + 1):
        base = fine_tuned_loop(tasks, table)
        for embeddings, ratios in found.items():
            trunk = TextFamily("average", embeddings=embeddings, vectors=table)  # type: ignore[arg-type]
            ratio = base / train_study(trunk, tasks, "auto", seeds=1, workers=1)
            if repeat:  # the first round warms up
                ratios.append(ratio)
        loops.append(base)
    print(
        f"average, fine-tuned table of {TABLE} words: loop {statistics.median(loops):.2f} s; x loop: same algorithm "
        f"{spread(found['dense'])} (must 3), row-wise {spread(found['rowwise'])} (reach 5)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--size", type=int, default=1500, help="texts a task")
    parser.add_argument("--rows", default="lstm,cnn,average")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"load {os.getloadavg()[0]:.2f}, torch {torch.__version__}, {os.cpu_count()} cores, {settings.repeats} repeats"
    )
    for row in settings.rows.split(","):
        if row == "average":
            average_row(settings.size, settings.repeats)
        else:
            study_row(row, settings.size, settings.repeats)
    print(f"load {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
