"""Optimizer steps on stacks: every member has its own rate and its own count of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mtlens.engine.device_adam import DeviceAdam

BETA1, BETA2, EPS, MOMENTUM = 0.9, 0.999, 1e-8, 0.9
WHOLE, SKIP = -1, -2  # in place of a segment: all of them, or none


@dataclass(eq=False)
class Part:
    """One group of parameters of all members: ``value (S, n)``, cut into segments that step on their own.

    A trunk is one segment. Heads, alignments and log-variances have a segment a task, because a one-task step moves
    only that task's. ``steps (S, segments)`` counts updates.
    """

    name: str
    value: Tensor
    segments: int
    decays: bool

    def __post_init__(self) -> None:
        self.grad = torch.zeros_like(self.value)
        self.first = torch.zeros_like(self.value)
        self.second = torch.zeros_like(self.value)
        self.steps = torch.zeros(len(self.value), self.segments)  # on the CPU: the fused kernels read them there

    def reset(self, places: Tensor, rows: Tensor) -> None:
        """Give places of the stack to new members; ``rows (n, ...)`` are their starting values."""
        self.value[places] = rows.to(self.value)
        for tensor in (self.first, self.second, self.steps):
            tensor[places.to(tensor.device)] = 0

    def keep(self, places: Tensor) -> None:
        """Drop all members but these."""
        for name in ("value", "grad", "first", "second", "steps"):
            tensor = getattr(self, name)
            setattr(self, name, tensor.index_select(0, places.to(tensor.device)).contiguous())

    def views(self) -> list[list[tuple[Tensor, ...]]]:
        """Per member and segment, the tensors a fused kernel takes; and per member as a whole under index -1."""
        size = self.value.shape[1] // self.segments
        tensors = (self.value, self.grad, self.first, self.second)
        views = []
        for s in range(len(self.value)):
            own = [
                (*(t[s, k * size : (k + 1) * size] for t in tensors), self.steps[s, k]) for k in range(self.segments)
            ]
            views.append([*own, (*(t[s] for t in tensors), self.steps[s, 0])])
        return views


class FusedUpdate:
    """PyTorch's fused CPU kernels, called on views of the members' rows: one call for each learning rate."""

    def __init__(
        self, kind: str, parts: Sequence[Part], rates: Sequence[tuple[float, float]], live: Sequence[int]
    ) -> None:
        self.kind, self.parts = kind, list(parts)
        self._views = {part.name: part.views() for part in parts}
        self._groups: dict[tuple[float, float], list[int]] = {}
        for place in live:
            self._groups.setdefault(rates[place], []).append(place)
        self._whole = {part.name: self._calls(part, None) for part in parts}

    def step(self, part: Part, chosen: Sequence[int] | None = None) -> None:
        """Update a part of every live member: all of it, or what is chosen for each place (WHOLE, SKIP, a segment)."""
        if chosen is None:
            part.steps += 1
        else:
            part.steps += _moves(torch.tensor(chosen), part.segments)
        calls = self._whole[part.name] if chosen is None else self._calls(part, chosen)
        for rate, decay, columns in calls:
            _fused(self.kind, columns, rate, decay)

    def _calls(self, part: Part, chosen: Sequence[int] | None) -> list[tuple[float, float, list[list[Tensor]]]]:
        views, calls = self._views[part.name], []
        for (rate, decay), places in self._groups.items():
            if chosen is None:
                picked = [views[s][-1] for s in places]
            else:
                picked = [views[s][chosen[s]] for s in places if chosen[s] != SKIP]
            if picked:
                calls.append(
                    (rate, decay if part.decays else 0.0, [list(column) for column in zip(*picked, strict=True)])
                )
        return calls


def _moves(chosen: Tensor, segments: int) -> Tensor:
    """``(S, segments)`` of 1 where a segment is updated and 0 elsewhere, from a choice for each place."""
    chosen = chosen[:, None]
    return ((torch.arange(segments, device=chosen.device) == chosen) | (chosen == WHOLE)).float()


def _fused(kind: str, columns: list[list[Tensor]], rate: float, decay: float) -> None:
    values, grads, first, second, steps = columns
    if kind == "sgd":
        torch._fused_sgd_(
            values, grads, first, weight_decay=decay, momentum=MOMENTUM, lr=rate,
            dampening=0.0, nesterov=False, maximize=False, is_first_step=False,
        )  # fmt: skip
        return
    kernel: Any = torch._fused_adam_ if kind == "adam" else torch._fused_adamw_
    kernel(
        values, grads, first, second, [], steps, lr=rate, beta1=BETA1, beta2=BETA2,
        weight_decay=decay, eps=EPS, amsgrad=False, maximize=False,
    )  # fmt: skip


class PlainUpdate:
    """The same formulas as whole-tensor operations, for devices: rates and counts are tensors, nothing waits.

    ``m = b1 m + (1 - b1) g``, ``v = b2 v + (1 - b2) g^2``,
    ``p -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)``.
    Counts sit on the device so that a step can be captured in a CUDA graph.
    """

    def __init__(
        self, kind: str, parts: Sequence[Part], rates: Sequence[tuple[float, float]], live: Sequence[int]
    ) -> None:
        self.kind, self.parts = kind, list(parts)
        like = parts[0].value
        alive = torch.zeros(len(rates), 1)
        alive[list(live)] = 1
        lr, decay = (torch.tensor(column, dtype=torch.float64)[:, None] for column in zip(*rates, strict=True))
        self.rate = (lr * alive).to(like.device, like.dtype)  # (S, 1); 0 for members that have left
        self.decay = decay.to(like.device, like.dtype)
        self._kernel = DeviceAdam(like.device, like.dtype)
        for part in parts:
            part.steps = part.steps.to(like.device)

    def rest(self, places: Tensor) -> None:
        """Move the members at these places no more."""
        self.rate[places] = 0

    def step(self, part: Part, chosen: Tensor | None = None) -> None:
        """As in :class:`FusedUpdate`; ``chosen (S,)`` is a tensor."""
        S, n = part.value.shape
        shape = (S, part.segments, n // part.segments)
        value, grad, first, second = (t.view(shape) for t in (part.value, part.grad, part.first, part.second))
        moves = torch.ones_like(part.steps) if chosen is None else _moves(chosen, part.segments)
        part.steps += moves
        on = moves[..., None].to(value.dtype)
        decay = self.decay[..., None] if part.decays else 0.0
        if self.kind == "sgd":
            self._sgd(value, grad + decay * value, first, on)
        else:
            self._adam(part, value, grad, first, second, on, decay)

    def _sgd(self, value: Tensor, grad: Tensor, first: Tensor, on: Tensor) -> None:
        first += on * ((MOMENTUM - 1) * first + grad)
        value -= self.rate[..., None] * on * first

    def _adam(
        self, part: Part, value: Tensor, grad: Tensor, first: Tensor, second: Tensor, on: Tensor, decay: Any
    ) -> None:
        steps = part.steps.double().clamp(min=1)[..., None]
        bias1, bias2 = (1 - BETA1**steps).to(value.dtype), (1 - BETA2**steps).sqrt().to(value.dtype)
        rate = self.rate[..., None] * on  # (S, segments, 1)
        shrink = 1 - rate * decay if self.kind == "adamw" else torch.ones_like(rate)
        coupled = torch.zeros_like(rate) + (0.0 if self.kind == "adamw" else decay)
        tensors = tuple(t.flatten(0, 1) for t in (value, grad, first, second))
        rows = tuple(t.expand_as(rate).contiguous().flatten() for t in (rate / bias1, bias2, shrink, coupled))
        if self._kernel.step(tensors, rows, (1 - BETA1, 1 - BETA2, EPS)):
            return
        value *= shrink
        grad = grad + coupled * value
        first += on * (1 - BETA1) * (grad - first)
        second += on * (1 - BETA2) * (grad * grad - second)
        value -= (rate / bias1) * first / (second.sqrt() / bias2 + EPS)
