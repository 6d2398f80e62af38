"""One shared trunk, one head a task, and an optional alignment a task."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from mtlens.errors import InputError, unknown
from mtlens.nets.alignment import Alignment
from mtlens.nets.streams import stream

HeadSpec: TypeAlias = "nn.Module | str | int | None"


class MultiTaskNet(nn.Module):
    """``x -> head_i(trunk(align_i(x)))`` for task ``i`` (paper, eq. 1 and Algorithm 1).

    Args:
        trunk: any module ``(m, ...) -> (m, features)``. Its output width is read from ``trunk.out_features`` or from
            its last layer that has one.
        heads: task name -> "regression" or "binary" (one output), a number of classes (one output each), or a module.
            An iterable of tasks (objects with ``name``, ``kind`` and ``num_classes``) works too.
        align: one :class:`Alignment` to copy for every task, or task name -> Alignment. None: no alignment.
        align_at: None puts the alignment before the trunk. The dotted name of a part of the trunk puts it before
            that part: between it and whatever feeds it.

    Outputs are raw: numbers for regression, logits otherwise; ``(m,)`` for one output, ``(m, classes)`` for more.

    Example:
        >>> net = MultiTaskNet(torch.nn.Linear(4, 3), {"price": "regression", "type": 5}, align=Alignment(4))
        >>> {name: tuple(out.shape) for name, out in net(torch.zeros(2, 4)).items()}
        {'price': (2,), 'type': (2, 5)}
        >>> net(torch.zeros(2, 4), "price").shape
        torch.Size([2])
    """

    def __init__(
        self,
        trunk: nn.Module,
        heads: Mapping[str, HeadSpec] | Iterable[Any],
        *,
        align: Alignment | Mapping[str, Alignment] | None = None,
        align_at: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(trunk, nn.Module):
            raise InputError(f"MultiTaskNet: trunk={trunk!r} is no torch.nn.Module. Give the shared module itself.")
        specs = _specs(heads)
        self.names: tuple[str, ...] = tuple(specs)
        self.trunk = trunk
        width = _out_features(trunk) if any(not isinstance(s, nn.Module) for s in specs.values()) else 0
        self.heads = nn.ModuleList(_head(spec, width, name) for name, spec in specs.items())
        self.align = _alignments(align, self.names)
        self.align_at = align_at
        self._hook: _AlignHook | None = None
        if align_at is not None and self.align is not None:
            self._hook = _AlignHook(self.align)
            _part(trunk, align_at).register_forward_pre_hook(self._hook)

    def index(self, task: str) -> int:
        """Place of a task among the heads."""
        if task not in self.names:
            raise unknown("task", task, self.names, "this net")
        return self.names.index(task)

    def features(self, x: Tensor, task: str) -> Tensor:
        """``trunk(align_i(x))``, ``(m, features)``."""
        place = self.index(task)
        if self.align is None:
            return self.trunk(x)  # type: ignore[no-any-return]
        if self._hook is None:
            return self.trunk(self.align[place](x))  # type: ignore[no-any-return]
        self._hook.now = place
        try:
            return self.trunk(x)  # type: ignore[no-any-return]
        finally:
            self._hook.now = None

    def _answer(self, place: int, features: Tensor) -> Tensor:
        """One head's outputs; a trunk whose width was guessed wrongly is told here, by its name and widths."""
        head = self.heads[place]
        if isinstance(head, nn.Linear) and _width(features) != head.in_features:
            raise InputError(
                f"MultiTaskNet: the head of task {self.names[place]!r} was made for {head.in_features} features, but "
                f"{type(self.trunk).__name__} gave {_described(features)}. Return (rows, features) from the trunk, and "
                "set trunk.out_features to their number."
            )
        return _squeezed(head(features))

    def forward(self, x: Tensor | Mapping[str, Tensor], task: str | None = None) -> Any:
        """Outputs of one task, or of every task as a dict.

        ``x`` is one tensor for all tasks, or task name -> tensor (then only those tasks are computed). With one
        tensor and no alignment the trunk runs once.
        """
        if task is not None:
            if isinstance(x, Mapping) and task not in x:
                raise unknown("task", task, x, "the given inputs")
            own = x[task] if isinstance(x, Mapping) else x
            return self._answer(self.index(task), self.features(own, task))
        if isinstance(x, Mapping):
            return {name: self.forward(own, name) for name, own in x.items()}
        if self.align is not None:
            return {name: self.forward(x, name) for name in self.names}
        shared = self.trunk(x)
        return {name: self._answer(place, shared) for place, name in enumerate(self.names)}

    def regulariser(self) -> Tensor:
        """Sum of the alignments' ``penalty * |R_i - I|_F^2``: add it to the loss. Zero without alignments."""
        if self.align is None:
            return torch.zeros(())
        terms = [a.regulariser() for a in self.align if isinstance(a, Alignment)]
        return torch.stack(terms).sum() if terms else torch.zeros(())


class _AlignHook:
    """Applies one task's alignment in front of a part of the trunk; copied together with its net."""

    def __init__(self, align: nn.ModuleList) -> None:
        self.align = align
        self.now: int | None = None

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        del module
        return None if self.now is None else (self.align[self.now](args[0]), *args[1:])


def head_values(seed: int, task: str, inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
    """Starting ``weight (outputs, inputs)`` and ``bias (outputs,)`` of a task's linear head, float64.

    Uniform within ``1 / sqrt(inputs)``; the stream is named by the task, so a task starts alike alone and in company.
    """
    draws, bound = stream(seed, "head", task), 1 / math.sqrt(inputs)
    weight = draws.uniform(-bound, bound, (outputs, inputs))
    return torch.from_numpy(weight), torch.from_numpy(draws.uniform(-bound, bound, outputs))


def _specs(heads: Mapping[str, HeadSpec] | Iterable[Any]) -> dict[str, HeadSpec]:
    if isinstance(heads, Mapping):
        specs = dict(heads)
    elif not isinstance(heads, Iterable):
        raise InputError(f"MultiTaskNet: heads={heads!r}. Give task name -> kind or module, or tasks.")
    else:
        specs = {}
        for task in heads:
            if isinstance(task, str):
                raise InputError(f"MultiTaskNet: head {task!r} has no kind. Give task name -> kind, or tasks.")
            if not hasattr(task, "name") or not hasattr(task, "kind"):
                raise InputError(f"MultiTaskNet: head {task!r} is no task. Give task name -> kind or module, or tasks.")
            specs[task.name] = task.num_classes if task.kind == "multiclass" else task.kind
    if not specs:
        raise InputError("MultiTaskNet needs at least one head, found none. Give task name -> kind or module.")
    return specs


def _head(spec: HeadSpec, width: int, name: str) -> nn.Module:
    if isinstance(spec, nn.Module):
        return spec
    if spec in ("regression", "binary"):
        return nn.Linear(width, 1)
    if isinstance(spec, (int, np.integer)) and not isinstance(spec, bool) and spec >= 2:
        return nn.Linear(width, int(spec))
    raise InputError(
        f"MultiTaskNet: head of task {name!r} is {spec!r}. "
        "It takes 'regression', 'binary', a number of classes (2 or more), or a module."
    )


def _width(features: Any) -> int | None:
    return features.shape[-1] if isinstance(features, Tensor) and features.ndim else None


def _described(features: Any) -> str:
    return f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else f"a {type(features).__name__}"


def _squeezed(out: Tensor) -> Tensor:
    return out.squeeze(-1) if out.shape[-1] == 1 else out


def _alignments(align: Alignment | Mapping[str, Alignment] | None, names: tuple[str, ...]) -> nn.ModuleList | None:
    if align is None:
        return None
    if isinstance(align, Alignment):
        return nn.ModuleList(copy.deepcopy(align) for _ in names)
    if not isinstance(align, Mapping) or not all(isinstance(own, Alignment) for own in align.values()):
        raise InputError(f"MultiTaskNet: align={align!r}. Give an Alignment for all tasks, or task name -> Alignment.")
    strangers = [name for name in align if name not in names]
    if strangers:
        raise unknown("task", strangers[0], names, "the heads of this net")
    return nn.ModuleList(align[name] if name in align else nn.Identity() for name in names)


def _part(trunk: nn.Module, name: str) -> nn.Module:
    parts: dict[str, nn.Module] = dict(trunk.named_modules())
    if name not in parts or not name:
        raise unknown("part", name, [p for p in parts if p], "the trunk (align_at)")
    return parts[name]


def _out_features(trunk: nn.Module) -> int:
    """Width of the trunk's output: its own ``out_features``, or that of its last layer that names one."""
    for module in [trunk, *reversed(list(trunk.modules()))]:
        for name in ("out_features", "hidden_size", "out_channels", "num_features"):
            width = getattr(module, name, None)
            if isinstance(width, int):
                return width
    raise InputError(
        f"MultiTaskNet cannot tell how wide the output of {type(trunk).__name__} is. "
        "Set trunk.out_features to that number, or give modules as heads."
    )
