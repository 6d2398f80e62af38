"""Whole optimizer steps of a stack on a CUDA device in one kernel: the device's twin of the compiled CPU steps.

Step by step, a stack's operations write activations, gradients and moments to the device's memory and read them back.
Here one block of threads takes one member through many steps: gather, forward, loss, backward and Adam, tile by tile,
so that what a member needs stays in the caches near it and gradients are never written at all. A member is computed
alone: companions of its width cannot change a bit of it (others pad it, which can change the tiles' sizes).

Where the kernel cannot run (:func:`can_run`) or would not pay for its compilation (:func:`pays`), ``Stack.tick`` does
the same, operation by operation.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import torch

from mtlens.engine import native
from mtlens.engine.layout import Layout
from mtlens.engine.updates import BETA1, BETA2, EPS
from mtlens.errors import DataWarning
from mtlens.nets.dense import StackedDense
from mtlens.nets.family import StackedTrunk

if TYPE_CHECKING:
    from mtlens.engine.stack import Stack

MOST_ROWS = 128  # of a batch: one tile; larger batches keep the device busy without this
MOST_OUTPUTS = 16  # tasks that read the same rows: their heads are unrolled
MOST_STEPS = 512  # of one launch: a call can be interrupted between launches
LEAST_SAMPLES = 200_000_000  # about a second of plain steps; compiling for a new layout takes about three, once
LEAST_MEMBERS = 128  # about the card's multiprocessors: each member uses one of them
MOST_PARAMETERS = 1 << 15  # of a member's trunk: wider products keep a whole card busy by themselves
INPUT_TILE, MOST_UNITS = 16, 64  # inputs and units of a tile
steps_kernel: Any = None
_failures: list[str] = []  # why the kernel could not be compiled here, said once

try:
    import triton
    import triton.language as tl
except ImportError:
    pass
else:
    from mtlens.engine.device_adam import move

    TINY = tl.constexpr(1.1754944e-38)  # the smallest normal number

    @triton.jit  # type: ignore[untyped-decorator]
    def _corrected(rate, steps, LOG1: tl.constexpr, LOG2: tl.constexpr):  # type: ignore[no-untyped-def]
        """Adam's rate over its first correction ``1 - beta1^steps``, and the root of the second; in double precision,
        since one minus nearly one has no digits to lose."""
        t = steps.to(tl.float64)
        return rate / (1.0 - tl.exp(t * LOG1)).to(tl.float32), tl.sqrt(1.0 - tl.exp(t * LOG2)).to(tl.float32)

    @triton.jit  # type: ignore[untyped-decorator]
    def _inputs(  # type: ignore[no-untyped-def]
        X, rows, k, factor, offset, D: tl.constexpr, RESCALED: tl.constexpr, TURNED: tl.constexpr
    ):  # fmt: skip
        """Columns ``k`` of some rows, on the member's own scale: ``(rows, k)``, or ``(k, rows)`` when turned."""
        inside = k < D
        if TURNED:
            x = tl.load(X + rows[None, :] * D + k[:, None], mask=inside[:, None], other=0.0)
        else:
            x = tl.load(X + rows[:, None] * D + k[None, :], mask=inside[None, :], other=0.0)
        if RESCALED:
            scale, shift = tl.load(factor + k, mask=inside, other=0.0), tl.load(offset + k, mask=inside, other=0.0)
            x = x * scale[:, None] + shift[:, None] if TURNED else x * scale[None, :] + shift[None, :]
        return x

    @triton.jit  # type: ignore[untyped-decorator]
    def _losses(raw, labels, is_binary, outs, OUTPUTS: tl.constexpr, KINDS: tl.constexpr):  # type: ignore[no-untyped-def]
        """Loss of every row and output, and its slope: cross entropy for binary tasks, squared error for the others."""
        gap = raw - labels
        loss, slope = gap * gap, 2.0 * gap
        if KINDS != "regression":
            entropy = tl.maximum(raw, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(raw))) - labels * raw
            surplus = tl.sigmoid(raw) - labels
            if KINDS == "binary":
                loss, slope = entropy, surplus
            else:
                binary = tl.load(is_binary + outs, mask=outs < OUTPUTS, other=0)[None, :] != 0
                loss, slope = tl.where(binary, entropy, loss), tl.where(binary, surplus, slope)
        return loss, slope

    @triton.jit  # type: ignore[untyped-decorator]
    def _first_task(active, tile, MODE: tl.constexpr):  # type: ignore[no-untyped-def]
        """The task of a tile of rows, or the first of its tasks."""
        if MODE == "mixed":
            task = tl.load(active)
        else:
            task = tl.zeros((), tl.int64)
            if MODE == "each":
                task += tile
        return task

    @triton.jit(do_not_specialize=["room", "count"])  # type: ignore[untyped-decorator]
    def steps_kernel(  # type: ignore[no-untyped-def]
        X, y, weight, index, active, shift, task_weights, is_binary, factor, offset,
        trunk, trunk_first, trunk_second, trunk_steps, heads, heads_first, heads_second, head_steps,
        rates, decays, positions, loss, hidden, slopes, room, count,
        D: tl.constexpr, UNITS: tl.constexpr, TASKS: tl.constexpr, BATCH: tl.constexpr, MODE: tl.constexpr,
        RELU: tl.constexpr, BIAS: tl.constexpr, KINDS: tl.constexpr, RESCALED: tl.constexpr, DECOUPLED: tl.constexpr,
        LOG1: tl.constexpr, LOG2: tl.constexpr, KEEP1: tl.constexpr, KEEP2: tl.constexpr, EPS: tl.constexpr,
        ROWS: tl.constexpr, INPUTS: tl.constexpr, BLOCK: tl.constexpr, OUTPUTS: tl.constexpr, WIDE: tl.constexpr,
        PRODUCTS: tl.constexpr,
    ):  # fmt: skip
        """``count`` steps of one member.

        A step has a tile of ``ROWS`` rows for every batch: one, or one a task for "each" steps. A tile feeds
        ``OUTPUTS`` heads (padded to ``WIDE``): those of all tasks for "shared" steps, else one. With one tile and one
        block of units activations stay in registers; otherwise they wait in ``hidden`` and ``slopes``.

        Threads read what others wrote to memory only behind a barrier.
        """
        member = tl.program_id(0).to(tl.int64)
        rate = tl.load(rates + member)
        if rate == 0:  # its place is empty
            return
        TILES: tl.constexpr = TASKS if MODE == "each" else 1
        KEPT: tl.constexpr = TILES == 1 and UNITS <= BLOCK
        SIZE: tl.constexpr = (D + BIAS) * UNITS
        HEAD: tl.constexpr = UNITS + 1
        decay = tl.load(decays + member)
        shrink = 1.0 - rate * decay if DECOUPLED else 1.0
        coupled = 0.0 if DECOUPLED else decay
        start = tl.load(positions + member)
        done = tl.load(trunk_steps + member)
        trunk += member * SIZE
        trunk_first += member * SIZE
        trunk_second += member * SIZE
        heads += member * TASKS * HEAD
        heads_first += member * TASKS * HEAD
        heads_second += member * TASKS * HEAD
        head_steps += member * TASKS
        shift += member * TASKS
        task_weights += member * TASKS
        is_binary += member * TASKS
        factor += member * TASKS * D
        offset += member * TASKS * D
        hidden += member * TILES * ROWS * UNITS
        slopes += member * TILES * ROWS * WIDE
        index += member * room * TILES * BATCH
        active += member * room
        lines, units, inputs, outs = tl.arange(0, ROWS), tl.arange(0, BLOCK), tl.arange(0, INPUTS), tl.arange(0, WIDE)
        in_batch = lines < BATCH
        total = 0.0
        for step in range(count):
            at = start + step
            trunk_rate, trunk_root = _corrected(rate, done + step + 1, LOG1, LOG2)
            uncounted = 0 if MODE == "mixed" else step  # steps of the heads that are counted at the end only
            acc, upper = tl.zeros((ROWS, BLOCK), tl.float32), tl.zeros((ROWS, BLOCK), tl.float32)
            slope = tl.zeros((ROWS, WIDE), tl.float32)

            # Forward: raw outputs, losses and their slopes, tile by tile.
            for tile in range(TILES):
                task = _first_task(active + at, tile, MODE)
                batch = index + (at * TILES + tile) * BATCH
                rows = tl.load(batch + lines, mask=in_batch, other=0).to(tl.int64)
                own = (outs < OUTPUTS)[None, :] & in_batch[:, None]
                places = rows[:, None] + tl.load(shift + task + outs, mask=outs < OUTPUTS, other=0)[None, :]
                labels = tl.load(y + places, mask=own, other=0.0)
                shares = tl.load(weight + places, mask=own, other=0.0)
                raw = tl.zeros((ROWS, WIDE), tl.float32)
                for first_unit in range(0, UNITS, BLOCK):
                    unit = first_unit + units
                    acc = tl.zeros((ROWS, BLOCK), tl.float32)
                    for first_input in range(0, D, INPUTS):
                        k = first_input + inputs
                        x = _inputs(X, rows, k, factor + task * D, offset + task * D, D, RESCALED, False)
                        inside = (k < D)[:, None] & (unit < UNITS)[None, :]
                        w = tl.load(trunk + k[:, None] * UNITS + unit[None, :], mask=inside, other=0.0)
                        acc = tl.dot(x, w, acc, input_precision=PRODUCTS)
                    if BIAS:
                        acc += tl.load(trunk + D * UNITS + unit, mask=unit < UNITS, other=0.0)[None, :]
                    if RELU:
                        acc = tl.where(acc < 0, 0.0, acc)  # NaN stays NaN
                    if not KEPT:
                        spot = hidden + (tile * ROWS + lines)[:, None] * UNITS + unit[None, :]
                        tl.store(spot, acc, mask=(unit < UNITS)[None, :])
                    for o in tl.static_range(OUTPUTS):
                        own_head = tl.load(heads + (task + o) * HEAD + unit, mask=unit < UNITS, other=0.0)
                        part = tl.sum(acc * own_head[None, :], 1)
                        raw += tl.where((outs == o)[None, :], part[:, None], 0.0)
                bias_at = (task + outs) * HEAD + UNITS
                raw += tl.load(heads + bias_at, mask=outs < OUTPUTS, other=0.0)[None, :]
                shares = shares / tl.maximum(tl.sum(shares, 0), TINY)[None, :]
                each, slope = _losses(raw, labels, is_binary + task, outs, OUTPUTS, KINDS)
                total += tl.sum(tl.sum(tl.where(own, each * shares, 0.0), 1), 0)
                own_weight = tl.load(task_weights + task + outs, mask=outs < OUTPUTS, other=0.0)
                slope = tl.where(own, slope * shares * own_weight[None, :], 0.0)
                if not KEPT:
                    tl.store(slopes + (tile * ROWS + lines)[:, None] * WIDE + outs[None, :], slope)
                steps = tl.load(head_steps + task + outs, mask=outs < OUTPUTS, other=0.0) + uncounted + 1.0
                own_rate, own_root = _corrected(rate, steps, LOG1, LOG2)
                tl.debug_barrier()  # the biases are read: they may move
                move(
                    heads, heads_first, heads_second, bias_at, outs < OUTPUTS, tl.sum(slope, 0), own_rate, own_root,
                    shrink, coupled, KEEP1, KEEP2, EPS,
                )  # fmt: skip
            tl.debug_barrier()  # nobody reads parameters any more, and what waits in memory has arrived

            # Backward, one block of units after another; what has its gradient moves at once.
            for first_unit in range(0, UNITS, BLOCK):
                unit = first_unit + units
                unit_bias_grad = tl.zeros((BLOCK,), tl.float32)
                for tile in range(TILES):
                    task = _first_task(active + at, tile, MODE)
                    if not KEPT:
                        spot = hidden + (tile * ROWS + lines)[:, None] * UNITS + unit[None, :]
                        acc = tl.load(spot, mask=(unit < UNITS)[None, :], other=0.0)
                        slope = tl.load(slopes + (tile * ROWS + lines)[:, None] * WIDE + outs[None, :])
                    upper = tl.zeros((ROWS, BLOCK), tl.float32)
                    for o in tl.static_range(OUTPUTS):
                        own_head = tl.load(heads + (task + o) * HEAD + unit, mask=unit < UNITS, other=0.0)
                        column = tl.sum(tl.where((outs == o)[None, :], slope, 0.0), 1)
                        upper += column[:, None] * own_head[None, :]
                    if RELU:
                        upper = tl.where(acc > 0, upper, 0.0)
                    unit_bias_grad += tl.sum(upper, 0)
                    tl.debug_barrier()  # heads and activations are read: both may change now
                    for o in tl.static_range(OUTPUTS):
                        column = tl.sum(tl.where((outs == o)[None, :], slope, 0.0), 1)
                        steps = tl.load(head_steps + task + o) + uncounted + 1.0
                        own_rate, own_root = _corrected(rate, steps, LOG1, LOG2)
                        move(
                            heads, heads_first, heads_second, (task + o) * HEAD + unit, unit < UNITS,
                            tl.sum(acc * column[:, None], 0), own_rate, own_root, shrink, coupled, KEEP1, KEEP2, EPS,
                        )  # fmt: skip
                    if TILES > 1:
                        tl.store(spot, upper, mask=(unit < UNITS)[None, :])
                if BIAS:
                    move(
                        trunk, trunk_first, trunk_second, D * UNITS + unit, unit < UNITS, unit_bias_grad,
                        trunk_rate, trunk_root, shrink, coupled, KEEP1, KEEP2, EPS,
                    )  # fmt: skip
                if TILES > 1:
                    tl.debug_barrier()
                for first_input in range(0, D, INPUTS):
                    k = first_input + inputs
                    grad = tl.zeros((INPUTS, BLOCK), tl.float32)
                    for tile in range(TILES):
                        task = _first_task(active + at, tile, MODE)
                        batch = index + (at * TILES + tile) * BATCH
                        rows = tl.load(batch + lines, mask=in_batch, other=0).to(tl.int64)
                        turned = _inputs(X, rows, k, factor + task * D, offset + task * D, D, RESCALED, True)
                        if TILES > 1:
                            spot = hidden + (tile * ROWS + lines)[:, None] * UNITS + unit[None, :]
                            upper = tl.load(spot, mask=(unit < UNITS)[None, :], other=0.0)
                        grad = tl.dot(turned, upper, grad, input_precision=PRODUCTS)
                    move(
                        trunk, trunk_first, trunk_second, k[:, None] * UNITS + unit[None, :],
                        (k < D)[:, None] & (unit < UNITS)[None, :], grad, trunk_rate, trunk_root, shrink, coupled,
                        KEEP1, KEEP2, EPS,
                    )  # fmt: skip
            tl.debug_barrier()  # what has moved is there for the next step
            if MODE == "mixed":
                counted = head_steps + tl.load(active + at)
                tl.store(counted, tl.load(counted) + 1.0)
                tl.debug_barrier()
        if MODE != "mixed":
            for task in range(TASKS):
                tl.store(head_steps + task, tl.load(head_steps + task) + count)
        tl.store(trunk_steps + member, done + count)
        tl.store(loss + member, tl.load(loss + member) + total)


def can_run(layout: Layout, trunk: StackedTrunk, device: torch.device) -> bool:
    """Whether the kernel does what a stack asks for: one dense layer and heads of one output, trained whole by Adam."""
    return (
        native.is_wanted()
        and device.type == "cuda"
        and steps_kernel is not None
        and not _failures
        and layout.dtype == "float32"
        and isinstance(trunk, StackedDense)
        and len(trunk.widths) == 2
        and layout.columns == 1
        and layout.batch <= MOST_ROWS
        and _outputs(layout) <= MOST_OUTPUTS
        and layout.align is None
        and not (layout.freeze or layout.uncertain or layout.random_weights)
        and layout.optimizer in ("adam", "adamw")
    )


def pays(samples: int, members: int, parameters: int) -> bool:
    """Whether a stack of so many samples in all, members now, and parameters a trunk is worth the kernel.

    The bounds enclose what was measured. With the environment variable ``MTLENS_NATIVE=1`` every stack is. What has
    been compiled once is kept on disk (by Triton), but whether it has been is not known beforehand.
    """
    if native.is_forced():
        return True
    return samples >= LEAST_SAMPLES and members >= LEAST_MEMBERS and parameters <= MOST_PARAMETERS


def run_steps(stack: Stack, count: int) -> bool:
    """The next ``count`` steps of all members, in place of as many of ``Stack.tick``; False when it could not."""
    try:
        steps_kernel[(len(stack.runs),)](*_tensors(stack), count, **_constants(stack), **_launch(stack))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever the compiler raises: the plain operations do the same
        _failures.append(str(error))
        warnings.warn(
            f"the device's steps kernel cannot run here; this process steps without it from now on: {error}",
            DataWarning,
        )
        return False
    stack.position += count
    stack.turn += count
    return True


def _tensors(stack: Stack) -> list[Any]:
    store, layout = stack.store, stack.layout
    trunk, heads = stack.parts["trunk"], stack.parts["heads"]
    lines = _tile_rows(layout) * (layout.num_tasks if layout.mode == "each" else 1)
    waits = layout.mode == "each" or not _is_narrow(stack)  # otherwise everything stays in registers
    hidden = stack.buffer("waiting hidden", (len(stack.runs), lines, stack.trunk.out_features) if waits else (1,))
    slopes = stack.buffer("waiting slopes", (len(stack.runs), lines, _wide(layout)) if waits else (1,))
    factor, offset = stack.affine if stack.affine is not None else (store.X, store.X)
    return [
        store.X, store.y, store.weight, stack.index, stack.active, stack.shift, stack.weights,
        stack.objective.is_binary().int(), factor, offset,
        trunk.value, trunk.first, trunk.second, trunk.steps, heads.value, heads.first, heads.second, heads.steps,
        stack.update.rate, stack.update.decay, stack.position, stack.loss, hidden, slopes, stack.index.shape[1],
    ]  # fmt: skip


def _constants(stack: Stack) -> dict[str, Any]:
    layout, trunk = stack.layout, stack.trunk
    assert isinstance(trunk, StackedDense)
    kinds = stack.objective.kinds
    return {
        "D": trunk.widths[0], "UNITS": trunk.widths[1], "TASKS": layout.num_tasks, "BATCH": layout.batch,
        "MODE": layout.mode, "RELU": trunk.relu, "BIAS": trunk.bias,
        "KINDS": "both" if len(kinds) > 1 else next(iter(kinds)), "RESCALED": stack.affine is not None,
        "DECOUPLED": layout.optimizer == "adamw", "LOG1": math.log(BETA1), "LOG2": math.log(BETA2),
        "KEEP1": 1 - BETA1, "KEEP2": 1 - BETA2, "EPS": EPS, "ROWS": _tile_rows(layout), "INPUTS": INPUT_TILE,
        "BLOCK": min(MOST_UNITS, max(16, _power_of_two(trunk.widths[1]))),
        "OUTPUTS": _outputs(layout), "WIDE": _wide(layout),
        "PRODUCTS": "tf32x3" if _is_narrow(stack) else "ieee",
    }  # fmt: skip


def _launch(stack: Stack) -> dict[str, int]:
    """Threads and registers of a block; measured best on an H200 for widths 50 and 200 (``docs/results/engine.md``)."""
    if _is_narrow(stack):
        return {"num_warps": 4, "num_stages": 2, "maxnreg": 168}
    return {"num_warps": 4, "num_stages": 1, "maxnreg": 128}


def _is_narrow(stack: Stack) -> bool:
    """Whether all units fit one block. Then products run on the matrix units, each as three products of shortened
    numbers ("tf32x3", as exact as float32 up to a few last bits); otherwise plain float32 products are faster."""
    return stack.trunk.out_features <= MOST_UNITS


def _tile_rows(layout: Layout) -> int:
    return max(16, _power_of_two(layout.batch))  # 16: the least that the matrix units take


def _outputs(layout: Layout) -> int:
    """Heads that a tile of rows feeds."""
    return layout.num_tasks if layout.mode == "shared" else 1


def _wide(layout: Layout) -> int:
    return _power_of_two(_outputs(layout))


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
