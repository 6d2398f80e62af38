"""The engine on one card: stacks through ``train`` against a one-model CUDA-graph loop and against the CPU.

Workload: 100 inputs, a ReLU layer of width 50 or 200, 9000 train rows, batch 50, Adam; one task a model,
so that a model's step is one batch. Rows printed, one line each, as they are measured, the ratios first:

* ``ratio``: for each width, ``--repeats`` rounds of: a single model whose whole step is captured in a CUDA graph (the
  loop a careful user would write), the same loop without a graph, and 2048 models through the public ``train``, setup
  and final scores included; medians and ranges of the ratios within a round;
* ``check``: losses of several kinds of trainings on the card, with and without the steps kernel, against float64 on the
  CPU; and whether companions change a bit;
* ``steps``: steps alone of 256, 2048 and 8192 models, with the state they move against what a copy moves;
* ``plain``: the same without the steps kernel: the captured operations;
* ``valid``: 2048 trainings with a validation ROC-AUC every epoch;
* ``cpu``: 256 of the trainings through ``train`` on this machine's CPU cores (compiled steps, if they are built there).

The script stops starting new rows after ``--limit`` seconds. Run: python benchmarks/gpu_engine.py [--limit 420]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mtlens import Task, TaskSet, Trained, Training, train
from mtlens.engine import native
from mtlens.engine.layout import layout_of
from mtlens.engine.prepare import Preparation
from mtlens.engine.stack import Run, Stack
from mtlens.engine.store import Store

ROWS, VALID, WIDTH, BATCH = 9000, 1000, 100, 50
SEEDS = 16  # distinct seeds of a stack; the rest of the members differ in learning rate, as in a study's grid


def a_task(split: bool = True) -> Task:
    draws = np.random.default_rng(0)
    X = draws.normal(size=(ROWS + VALID, WIDTH)).astype(np.float32)
    y = (np.maximum(X @ draws.normal(size=(WIDTH, 10)), 0).sum(1) + 20 * draws.normal(size=len(X)) > 40).astype(float)
    return Task("t", X, y, kind="binary", split=np.repeat(["train", "valid"], [ROWS, VALID]) if split else None)


def trainings(task: Task, width: int, count: int, epochs: int, **settings: object) -> list[Training]:
    fixed = {"select": "last", **settings}
    return [
        Training(
            task, "mlp", width, epochs=epochs, batch=BATCH, seed=i % SEEDS, lr=1e-3 * (1 + i // SEEDS / count), **fixed
        )  # type: ignore[arg-type]
        for i in range(count)
    ]


def show(row: str, width: int, what: str, rate: float) -> None:
    print(f"{row:6s} width {width:4d}  {what:34s} {rate / 1e6:10.3f} M samples/s", flush=True)


# One model -----------------------------------------------------------------------------------------------------------


def one_model(width: int, *, graph: bool, steps: int = 3000) -> float:
    """Samples a second of one model: static buffers, capturable Adam, one gather a step from data on the card."""
    task = a_task()
    X = torch.from_numpy(np.asarray(task.X[:ROWS])).cuda()
    y = torch.from_numpy(task.y[:ROWS]).float().cuda()
    net = torch.nn.Sequential(torch.nn.Linear(WIDTH, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)).cuda()
    optimizer = torch.optim.Adam(net.parameters(), fused=True, capturable=True)
    rows = torch.randperm(ROWS, device="cuda").view(-1, BATCH)
    at = torch.zeros(1, dtype=torch.int64, device="cuda")

    def step() -> None:
        chosen = rows.index_select(0, at)[0]
        out = net(X.index_select(0, chosen))[:, 0]
        optimizer.zero_grad(set_to_none=False)
        torch.nn.functional.binary_cross_entropy_with_logits(out, y.index_select(0, chosen)).backward()
        optimizer.step()
        at.add_(1).remainder_(len(rows))

    run = captured(step) if graph else step
    for _ in range(50):
        run()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        run()
    torch.cuda.synchronize()
    return steps * BATCH / (time.perf_counter() - began)


def captured(step: Callable[[], None]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


# Stacks --------------------------------------------------------------------------------------------------------------


def through_train(width: int, count: int, epochs: int, device: str = "cuda", **settings: object) -> float:
    """Samples a second of ``train`` as called: preparation, steps, scores."""
    given = trainings(a_task(), width, count, epochs, **settings)
    began = time.perf_counter()
    results = train(given, device=device, keep="scores", progress=False)
    seconds = time.perf_counter() - began
    assert all(r.ok for r in results), {r.reason for r in results}
    return count * epochs * ROWS / seconds


def steps_alone(width: int, count: int) -> tuple[float, float]:
    """Samples a second of the steps of a whole epoch, and bytes a second of the state they move: parameters and both
    moments, read and written once a step. What caches hold between steps counts as moved, too."""
    prepared = Preparation()
    members = [prepared.member(t) for t in trainings(a_task(), width, count, 3)]
    with torch.inference_mode():
        store = Store(members, torch.float32, torch.device("cuda"))
        stack = Stack(layout_of(members[0]), [Run(i, m) for i, m in enumerate(members)], members, store)
        stack.next_epoch(stack.run_to_epoch_end())  # compiles or captures, then begins afresh
        torch.cuda.synchronize()
        began = time.perf_counter()
        stack.run_to_epoch_end()
        seconds = time.perf_counter() - began
    steps = ROWS // BATCH
    state = sum(part.value.numel() for part in stack.parts.values()) * 4
    return count * ROWS / seconds, 6 * state * steps / seconds


def copy_rate(gigabytes: int = 8) -> float:
    """Bytes a second of a copy on the card, read and written counted."""
    a = torch.empty(gigabytes * 2**28, device="cuda")
    b = torch.empty_like(a)
    b.copy_(a)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(10):
        b.copy_(a)
    torch.cuda.synchronize()
    return 10 * 2 * a.numel() * 4 / (time.perf_counter() - began)


def with_kernel(wanted: bool) -> None:
    """Use the steps kernel for any stack, or for none; ``train`` itself uses it where it pays for its compilation."""
    os.environ["MTLENS_NATIVE"] = "1" if wanted else "0"


def check() -> None:
    """float32 on the card, with and without the steps kernel, against float64 on the CPU; and companions."""
    for name, (tasks, settings) in CASES.items():
        exact, same = (
            [
                Training(tasks(), trunk, width, epochs=3, batch=BATCH, seed=1, dtype=dtype, **settings)  # type: ignore[arg-type]
                for trunk, width in (("mlp", 50), ("relu", 90))
            ]
            for dtype in ("float64", "float32")
        )
        wanted = train(exact, keep="scores")
        gaps = {"float64": apart(wanted, train(exact, keep="scores", device="cuda"))}
        for kernel in (True, False):
            with_kernel(kernel)
            own = train(same, keep="scores", device="cuda")
            gaps[f"float32 {'with' if kernel else 'without'} the kernel"] = apart(wanted, own)
        with_kernel(True)
        said = ", ".join(f"{way} {gap:.1e}" for way, gap in gaps.items())
        print(f"check  {name}: losses apart from float64 on the CPU: {said}", flush=True)
    crowd = trainings(a_task(), 50, 64, 3)
    (alone,) = train([crowd[5]], keep="scores", device="cuda")
    among = train(crowd, keep="scores", device="cuda")[5]
    same_bits = np.array_equal(alone.history["loss"], among.history["loss"]) and alone.scores == among.scores
    print(f"check  alone and among 63 others: bit for bit the same: {same_bits}", flush=True)


def apart(one: list[Trained], other: list[Trained]) -> float:
    """Largest difference of epoch losses."""
    return max(float(np.abs(a.history["loss"] - b.history["loss"]).max()) for a, b in zip(one, other, strict=True))


def labels_of_one_table() -> TaskSet:
    """Two tasks on the same rows, one a regression, with labels missing."""
    task, draws = a_task(), np.random.default_rng(2)
    X = np.asarray(task.X)[:3000]
    y = (X[:, :5].sum(1) + draws.normal(size=len(X))).astype(float)
    y[draws.random(len(y)) < 0.3] = np.nan
    split = np.where(np.arange(len(X)) % 4 == 0, "valid", "train")
    return TaskSet([Task("a", X, task.y[: len(X)], kind="binary", split=split), Task("b", X, y, split=split)])


def tables_of_their_own() -> TaskSet:
    """The same two tasks, each on rows of its own."""
    a, b = labels_of_one_table()
    half = len(a.y) // 2
    return TaskSet([t.take(np.arange(half) + place * half) for place, t in enumerate((a, b))])


CASES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "one task": (a_task, {}),
    "labels of one table": (labels_of_one_table, {"weighting": [0.3, 0.7], "weight_decay": 0.01}),
    "tables of their own, joint steps": (tables_of_their_own, {"steps": "joint", "optimizer": "adamw"}),
    "tables of their own, one task a step": (tables_of_their_own, {"steps": "mixed"}),
}


def ratio(width: int, repeats: int, epochs: int) -> None:
    """Rounds of graph loop, eager loop and ``train``; a ratio is taken within its round."""
    through_train(width, 2048, 1)  # warm: kernels, allocator
    graphs, eagers, ours = [], [], []
    for _ in range(repeats):
        graphs.append(one_model(width, graph=True))
        eagers.append(one_model(width, graph=False, steps=300))
        ours.append(through_train(width, 2048, epochs))
    show("one", width, "one model, CUDA graph", statistics.median(graphs))
    show("train", width, "2048 trainings", statistics.median(ours))
    for name, base in (("CUDA-graph loop", graphs), ("eager loop", eagers)):
        found = [a / b for a, b in zip(ours, base, strict=True)]
        spread = f"{statistics.median(found):.1f}x ({min(found):.1f} to {max(found):.1f})"
        print(f"ratio  width {width:4d}  train against the one-model {name}: {spread}, {repeats} rounds", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=420.0, help="start no new row after this many seconds")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    began = time.perf_counter()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, load {os.getloadavg()[0]:.2f}", flush=True)

    copied: list[float] = []

    def copy() -> None:
        copied.append(copy_rate())
        print(f"copy   {copied[0] / 1e12:.2f} TB/s, read and written", flush=True)

    def stacked(width: int, count: int, kernel: bool) -> None:
        with_kernel(kernel)
        rate, moved = steps_alone(width, count)
        with_kernel(True)
        share = f"{moved / 1e12:.2f} TB/s of state ({100 * moved / copied[0]:.0f} % of a copy)"
        show("steps" if kernel else "plain", width, f"{count} models, {share}", rate)

    def validated(width: int) -> None:
        show("valid", width, "2048 trainings, AUC each epoch", through_train(width, 2048, 10, select="best"))

    def on_cpu(width: int) -> None:
        built = "compiled steps" if native.is_built() else "stacks"
        show("cpu", width, f"256 trainings, {os.cpu_count()} cores, {built}", through_train(width, 256, 4, "cpu"))

    rows: list[Callable[[], None]] = [
        *(lambda w=w: ratio(w, options.repeats, options.epochs) for w in (50, 200)),  # type: ignore[misc]
        check,
        copy,
        *(lambda w=w, c=c: stacked(w, c, True) for w in (50, 200) for c in (2048, 8192, 256)),  # type: ignore[misc]
        *(lambda w=w, c=c: stacked(w, c, False) for w in (50, 200) for c in (2048, 8192)),  # type: ignore[misc]
        *(lambda w=w: validated(w) for w in (50, 200)),  # type: ignore[misc]
        *(lambda w=w: on_cpu(w) for w in (50, 200)),  # type: ignore[misc]
    ]
    for row in rows:
        if time.perf_counter() - began > options.limit:
            print(f"stopped after {options.limit:.0f} s with rows left", flush=True)
            return
        try:
            row()
        except Exception:  # one row that fails (out of memory, say) must not cost the others: card time is dear
            traceback.print_exc()


if __name__ == "__main__":
    main()
