"""The fused native steps: one member at a time, all of it in the processor's cache.

A stack's step is many small operations over memory; here gather, forward, backward and Adam of one member run as one
call of compiled code for a whole epoch (measured in ``docs/results/engine.md``). The extension is optional: when it
could not be built, when a stack does what it cannot do (:func:`can_run`), or when the environment variable
``MTLENS_NATIVE`` is ``0``, the stack steps by itself and gives the same numbers up to rounding. A member is computed
alone, so its companions cannot change a single bit of it.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mtlens.engine.layout import Layout
from mtlens.engine.updates import BETA1, BETA2, EPS, Part
from mtlens.errors import TrainingError
from mtlens.nets.dense import StackedDense
from mtlens.nets.family import StackedTrunk

if TYPE_CHECKING:
    from mtlens.engine.stack import Stack

MOST_LAYERS = 8
MODES = {"shared": 0, "each": 1, "mixed": 2}
KINDS = {"regression": 0, "binary": 1, "multiclass": 2}
BEST_INSTRUCTIONS = 2  # 0: plain vectors, 1: AVX2, 2: AVX-512; never more than the machine has

_POINTER, _INT, _DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


class _Net(ctypes.Structure):
    _fields_ = (
        ("depth", _INT), ("width", _INT * (MOST_LAYERS + 1)), ("relu", _INT), ("bias", _INT), ("tasks", _INT),
        ("columns", _INT), ("mode", _INT), ("batch", _INT), ("rows", _INT), ("align", _INT),
        ("kind", _POINTER), ("classes", _POINTER),
    )  # fmt: skip


class _Data(ctypes.Structure):
    _fields_ = tuple(
        (name, _POINTER)
        for name in ("X", "y", "weight", "shift", "index", "active", "weights", "drawn", "factor", "offset")
    )


class _Recipe(ctypes.Structure):
    _fields_ = (*((name, _DOUBLE) for name in ("lr", "beta1", "beta2", "eps", "decay", "penalty")), ("decoupled", _INT))


class _State(ctypes.Structure):
    _fields_ = tuple(
        (name, _POINTER)
        for name in (
            "trunk", "trunk_first", "trunk_second", "heads", "heads_first", "heads_second",
            "log_vars", "log_vars_grad", "log_vars_first", "log_vars_second",
            "align", "align_first", "align_second",
            "trunk_steps", "head_steps", "log_vars_steps", "align_steps", "loss",
        )
    )  # fmt: skip


@cache
def _library() -> ctypes.CDLL | None:
    spec = find_spec("mtlens.engine.native._steps")
    if spec is None or spec.origin is None:
        return None
    try:
        return ctypes.CDLL(spec.origin)
    except OSError:  # built for another machine: do without
        return None


def is_wanted() -> bool:
    """Whether the environment leaves compiled steps on, here and on devices: ``MTLENS_NATIVE`` is not ``0``."""
    return os.environ.get("MTLENS_NATIVE") != "0"


def is_forced() -> bool:
    """Whether the environment asks for them also where they may not pay: ``MTLENS_NATIVE`` is ``1``."""
    return os.environ.get("MTLENS_NATIVE") == "1"


def is_built() -> bool:
    """Whether the extension was built with this installation."""
    return _library() is not None


def can_run(layout: Layout, trunk: StackedTrunk, device: torch.device) -> bool:
    """Whether the compiled steps do what a stack asks for: dense trunks, trained whole by Adam.

    Alignments are within it when they are full matrices trained with everything else, not in turn (Algorithm 1 with
    the trunk fixed) and not of low rank.
    """
    return (
        is_wanted()
        and device.type == "cpu"
        and isinstance(trunk, StackedDense)
        and len(trunk.widths) - 1 <= MOST_LAYERS
        and (layout.align is None or (layout.align == "joint" and layout.align_rank is None))
        and not layout.freeze
        and layout.optimizer in ("adam", "adamw")
        and is_built()
    )


def run_steps(stack: Stack, place: int, count: int, *, instructions: int = BEST_INSTRUCTIONS) -> None:
    """The next ``count`` optimizer steps of the member at ``place``, in place of as many of ``Stack.tick``."""
    library = _library()
    assert library is not None
    run = stack.runs[place]
    assert run is not None
    training, layout = run.member.training, stack.layout
    recipe = _Recipe(
        training.lr, BETA1, BETA2, EPS, training.weight_decay, training.penalty, layout.optimizer == "adamw"
    )
    kinds = torch.tensor([KINDS[slot.task.kind] for slot in run.member.slots])
    classes = torch.tensor([slot.columns for slot in run.member.slots])
    net = _net(stack, kinds, classes)
    data = _data(stack, place)
    state = _state(stack, place)

    steps = library.mtlens_steps_f32 if layout.dtype == "float32" else library.mtlens_steps_f64
    records = [ctypes.byref(record) for record in (net, data, recipe, state)]
    if steps(*records, ctypes.c_long(count), ctypes.c_int(instructions)):
        raise MemoryError(f"{training!r}: no memory for the buffers of one model")
    stack.position[place] += count
    stack.turn[place] += count


def _net(stack: Stack, kinds: Tensor, classes: Tensor) -> _Net:
    trunk, layout = stack.trunk, stack.layout
    if not isinstance(trunk, StackedDense):
        raise TrainingError("the compiled steps know dense trunks only")
    widths = (_INT * (MOST_LAYERS + 1))(*trunk.widths)
    rows = int(stack.index.shape[2])
    return _Net(
        len(trunk.widths) - 1, widths, trunk.relu, trunk.bias, layout.num_tasks, layout.columns,
        MODES[layout.mode], layout.batch, rows, layout.align is not None, kinds.data_ptr(), classes.data_ptr(),
    )  # fmt: skip


def _data(stack: Stack, place: int) -> _Data:
    store, position = stack.store, int(stack.position[place])
    factor, offset = (None, None) if stack.affine is None else (_at(t, place) for t in stack.affine)
    return _Data(
        store.X.data_ptr(), store.y.data_ptr(), store.weight.data_ptr(), _at(stack.shift, place),
        _at(stack.index, place, position),
        _at(stack.active, place, position) if stack.layout.mode == "mixed" else None,
        _at(stack.weights, place),
        _at(stack.drawn, place, position) if stack.layout.random_weights else None,
        factor, offset,
    )  # fmt: skip


def _state(stack: Stack, place: int) -> _State:
    trunk, heads, log_vars, align = (stack.parts.get(name) for name in ("trunk", "heads", "log_vars", "align"))
    return _State(
        *_moments(trunk, place), *_moments(heads, place),
        *(_at(getattr(log_vars, name), place) if log_vars else None for name in ("value", "grad", "first", "second")),
        *_moments(align, place),
        *(_at(part.steps, place) if part else None for part in (trunk, heads, log_vars, align)),
        _at(stack.loss, place),
    )  # fmt: skip


def _moments(part: Part | None, place: int) -> list[Any]:
    if part is None:
        return [None] * 3
    return [_at(tensor, place) for tensor in (part.value, part.first, part.second)]


def _at(tensor: Tensor, *place: int) -> Any:
    """Address of an entry (or of the first one of a row) of a contiguous tensor."""
    assert tensor.is_contiguous()
    return tensor.data_ptr() + tensor.element_size() * sum(p * s for p, s in zip(place, tensor.stride(), strict=False))
