"""How many sentences a second does one GPU train on: LSTMs as one stack, against cuDNN one by one?

LSTM of width 100 over frozen 100-wide vectors, sentences of 30 words, batch 50 a model, Adam. Contestants:

* cuDNN one by one: ``nn.LSTM``, fused Adam, one model after another (its rate does not depend on their number);
* cuDNN one by one, the step captured in a CUDA graph: the fairest single-model loop;
* ``StackedLstm`` with S models: forward, hand-written backward, fused Adam, captured in a CUDA graph; float32 and TF32;
* ``train(device="cuda")`` on 64 trainings against ``engine="solo"`` on the same card, everything included.

First the stack is checked on this card: float64 values and gradients against ``nn.LSTM``, member by member.

Run: python benchmarks/gpu_lstm.py [--repeats 5] [--stacks 64,256,512] [--width 100] [--skip-train]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from mtlens import Task, Training, train
from mtlens.features.vectors import EmbeddingTable
from mtlens.nets.stacked_lstm import StackedLstm
from mtlens.nets.text import text_trunk
from mtlens.nets.text_families import TextFamily

WORDS, DIM, LENGTH, BATCH = 20_000, 100, 30, 50
STEPS = 20  # between two looks at the clock
Step = Callable[[], None]


def check(width: int) -> float:
    """Largest difference between the stack and ``nn.LSTM`` in float64, values and gradients."""
    table = torch.randn(50, 8, dtype=torch.float64)
    table[0] = 0
    units = [width, max(1, width // 2), 3]
    trunks = [text_trunk("lstm", table, u, generator=torch.Generator().manual_seed(u)).cuda() for u in units]
    stack = StackedLstm(table.cuda(), units)
    parameters = torch.stack([stack.pack(t.state_dict(), u) for t, u in zip(trunks, units, strict=True)])
    tokens = torch.randint(0, 50, (3, 7, 9), device="cuda").sort(dim=2, descending=True).values
    features = stack.forward(parameters, tokens)
    upper = torch.randn_like(features)
    for s, u in enumerate(units):
        upper[s, :, u:] = 0
    gradient = torch.zeros_like(parameters)
    stack.backward(parameters, upper, gradient, grad_input=False)
    worst = 0.0
    for s, (trunk, u) in enumerate(zip(trunks, units, strict=True)):
        with torch.backends.cudnn.flags(enabled=False):
            out = trunk(tokens[s])
            (out * upper[s, :, :u]).sum().backward()
        worst = max(worst, float((out - features[s, :, :u]).detach().abs().max()))
        ours = stack.unpack(gradient[s], u)
        worst = max(worst, *(float((ours[n] - p.grad).abs().max()) for n, p in trunk.named_parameters()))
    return worst


def tokens_and_labels(models: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, WORDS, (models, BATCH, LENGTH), generator=generator)
    lengths = torch.randint(5, LENGTH + 1, (models, BATCH, 1), generator=generator)
    return (ids * (torch.arange(LENGTH) < lengths)).cuda(), torch.randint(
        0, 2, (models, BATCH), generator=generator
    ).float().cuda()


def table() -> Tensor:
    vectors = torch.randn(WORDS, DIM, generator=torch.Generator().manual_seed(1)) * 0.4
    vectors[0] = 0
    return vectors.cuda()


def one_model(width: int, graph: bool) -> Step:
    ids, y = (t[0] for t in tokens_and_labels(1))
    trunk = text_trunk("lstm", table(), width, generator=torch.Generator().manual_seed(0)).cuda()
    head = nn.Linear(width, 1).cuda()
    parameters = [*trunk.encoder.parameters(), *head.parameters()]
    adam = torch.optim.Adam(parameters, fused=True, capturable=graph)

    def step() -> None:
        adam.zero_grad(set_to_none=not graph)
        bce(head(trunk(ids))[:, 0], y).backward()
        adam.step()

    return captured(step) if graph else step


def stacked(models: int, width: int) -> Step:
    ids, y = tokens_and_labels(models)
    trunk = StackedLstm(table(), [width])
    generator = torch.Generator(device="cuda").manual_seed(0)
    shapes = [(models, trunk.num_parameters), (models, width + 1)]
    values = [torch.randn(shape, generator=generator, device="cuda") * 0.1 for shape in shapes]
    grads, first, second = ([torch.zeros_like(v) for v in values] for _ in range(3))
    counts = [torch.zeros((), device="cuda") for _ in values]

    def step() -> None:
        features = trunk.forward(values[0], ids)  # (S, R, h)
        weight, bias = values[1][:, :-1], values[1][:, -1:]
        raw = torch.baddbmm(bias.unsqueeze(1), features, weight.unsqueeze(2))[..., 0]
        slope = (torch.sigmoid(raw) - y) / BATCH
        grads[1][:, :-1] = torch.bmm(features.transpose(1, 2), slope.unsqueeze(2))[..., 0]
        grads[1][:, -1] = slope.sum(1)
        trunk.backward(values[0], slope.unsqueeze(2) * weight.unsqueeze(1), grads[0], grad_input=False)
        for count in counts:
            count += 1
        torch._fused_adam_(
            values, grads, first, second, [], counts, lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8,
            amsgrad=False, maximize=False,
        )  # fmt: skip

    return captured(step)


def captured(step: Step) -> Step:
    """The step as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay(kept: Step = step) -> None:  # `kept` owns the tensors the graph points to; freed, it reads garbage
        graph.replay()

    return replay


def rate(step: Step, models: int) -> float:
    """Sentences a second."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return STEPS * models * BATCH / (time.perf_counter() - began)


def rates(width: int, stacks: list[int], repeats: int) -> None:
    contestants: dict[str, tuple[Step, int]] = {"cuDNN one by one": (one_model(width, graph=False), 1)}
    try:
        contestants["cuDNN one by one, CUDA graph"] = (one_model(width, graph=True), 1)
    except RuntimeError as error:
        print(f"cuDNN in a CUDA graph: not run ({str(error).splitlines()[0]})")
    for tf32 in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        for models in stacks:
            try:
                name = f"stack of {models}{', TF32' if tf32 else ''}"
                contestants[name] = (stacked(models, width), models)
            except torch.OutOfMemoryError:
                print(f"{name}: does not fit")
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, (step, models) in contestants.items():
            value = rate(step, models)
            if repeat:  # the first round warms up
                found[name].append(value)
    base = found["cuDNN one by one"]
    for name, values in found.items():
        ratios = [a / b for a, b in zip(values, base, strict=True)]
        spread = f"{statistics.median(ratios):6.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
        print(f"{name:34s} {statistics.median(values) / 1e3:9.1f} k sentences/s   x cuDNN {spread}")


def through_train(width: int, models: int = 64, size: int = 2000) -> None:
    draws = np.random.default_rng(0)
    words = tuple(f"w{i}" for i in range(5000))
    vectors = EmbeddingTable(words, draws.normal(0, 0.4, (len(words), DIM)).astype(np.float32))
    texts = [" ".join(f"w{i}" for i in draws.integers(0, 5000, n)) for n in draws.integers(5, LENGTH + 1, size)]
    split = np.where(np.arange(size) % 10 == 0, "valid", "train")
    task = Task("t", texts, draws.integers(0, 2, size).astype(float), kind="binary", split=split)
    trunk = TextFamily("lstm", vectors=vectors)
    trainings = [Training(task, trunk, width, epochs=4, batch=BATCH, seed=seed) for seed in range(models)]
    seconds = {}
    for engine, some in (("auto", trainings), ("solo", trainings[:4])):
        began = time.perf_counter()
        results = train(some, engine=engine, device="cuda", keep="scores", progress=False)  # type: ignore[arg-type]
        torch.cuda.synchronize()
        assert all(trained.ok for trained in results)
        seconds[engine] = (time.perf_counter() - began) / len(some)
    print(
        f"train, {models} trainings: {seconds['auto']:.3f} s each stacked, {seconds['solo']:.3f} s one by one on the "
        f"card (4 of them): x {seconds['solo'] / seconds['auto']:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--stacks", default="64,256,512")
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--skip-train", action="store_true")
    settings = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device; none is available here.")
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, width {settings.width}, {settings.repeats} repeats"
    )
    print(f"float64, stack against nn.LSTM: largest difference {check(settings.width):.1e} (at most 1e-10)")
    rates(settings.width, [int(s) for s in settings.stacks.split(",")], settings.repeats)
    if not settings.skip_train:
        through_train(settings.width)


if __name__ == "__main__":
    main()
