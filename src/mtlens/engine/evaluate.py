"""Scores of members of a stack: models that read the same rows go through together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from mtlens.arrays import FloatArray
from mtlens.engine.scoring import scores_of
from mtlens.engine.stack import Stack, apply_alignment
from mtlens.engine.store import Panel
from mtlens.nets.family import Align

SCORING_ROWS = 1 << 15  # rows x models of one pass, which bounds the memory of scoring
DEVICE_NUMBERS = 1 << 30  # numbers of one pass on a device, which has more memory and wants larger passes

Scores: TypeAlias = dict[int, dict[str, float]]
Raw: TypeAlias = dict[tuple[int, int], Tensor]


@dataclass(frozen=True, eq=False)
class _Request:
    """One member's need for outputs of some slots on some rows."""

    place: int
    panel: Panel


def scores(stack: Stack, places: Sequence[int], split: str, *, best: bool, standardised: bool = False) -> Scores:
    """Place -> task -> oriented score on a split; places without rows in the split have no entry."""
    outputs = raw_outputs(stack, places, split, best=best)
    found: Scores = {}
    for group in _by_labels(stack, outputs):
        slot = _slot(stack, *group[0])
        raw = torch.stack([outputs[key][..., : slot.columns] for key in group])
        for (place, _), value in zip(group, scores_of(slot, split, raw, standardised=standardised), strict=True):
            found.setdefault(place, {})[slot.task.name] = float(value)
    return {place: _in_task_order(stack, place, own) for place, own in found.items()}


def predictions(stack: Stack, place: int, split: str) -> dict[str, FloatArray]:
    """Task -> predictions of the kept values of one place on a split's labelled rows."""
    outputs = raw_outputs(stack, [place], split, best=True)
    found = {}
    for (_, index), raw in outputs.items():
        slot = _slot(stack, place, index)
        found[slot.task.name] = slot.output.finish(raw[..., : slot.columns])
    return found


def raw_outputs(stack: Stack, places: Sequence[int], split: str, *, best: bool) -> Raw:
    """``(place, slot)`` -> raw outputs ``(rows, C)`` on the split's labelled rows of that slot.

    ``best`` takes the values a member keeps (its best epoch, or the last), else the present ones.
    """
    outputs: Raw = {}
    for requests in _groups(stack, places, split):
        for some in _limited(requests, _pass_rows(stack)):
            whole = _forward(stack, some, best=best)  # (g, rows, slots, C)
            for request, own in zip(some, whole, strict=True):
                for j, (slot, pick) in enumerate(zip(request.panel.slots, request.panel.picks, strict=True)):
                    raw = own[:, j] if pick is None else own[pick, j]
                    outputs[request.place, slot] = raw
    return outputs


def _groups(stack: Stack, places: Sequence[int], split: str) -> Iterator[list[_Request]]:
    """Requests for the same rows and the same number of slots, of members that read them alike or one by one."""
    apart = stack.layout.align is not None or stack.layout.rescaled
    groups: dict[tuple[int, int], list[_Request]] = {}
    for place in places:
        run = stack.runs[place]
        assert run is not None
        for panel in stack.store.panels(run.member, split, apart=apart):
            groups.setdefault((id(panel.rows), len(panel.slots)), []).append(_Request(place, panel))
    yield from groups.values()


def _pass_rows(stack: Stack) -> int:
    if stack.store.device.type == "cpu":
        return SCORING_ROWS
    return DEVICE_NUMBERS // stack.scoring_trunk.numbers_a_row(stack.store.X.shape[1])


def _limited(requests: list[_Request], pass_rows: int) -> Iterator[list[_Request]]:
    size = max(1, pass_rows * 8 // max(1, len(requests[0].panel.rows)))
    for first in range(0, len(requests), size):
        yield requests[first : first + size]


def _forward(stack: Stack, requests: Sequence[_Request], *, best: bool) -> Tensor:
    """Raw outputs ``(g, rows, slots, C)`` of ``g`` requests for the same rows."""
    places = torch.tensor([r.place for r in requests], device=stack.store.device)
    slots = torch.tensor([r.panel.slots for r in requests], device=stack.store.device)  # (g, slots)
    layout, rows = stack.layout, requests[0].panel.rows
    values = {name: _values(stack, name, requests, places, best=best) for name in stack.parts if name != "log_vars"}
    heads = values["heads"].view(len(places), layout.num_tasks, layout.columns, -1)
    heads = heads[torch.arange(len(places), device=places.device)[:, None], slots].flatten(
        1, 2
    )  # (g, slots * C, h + 1)
    out = torch.empty(len(places), len(rows), heads.shape[1], dtype=heads.dtype, device=heads.device)
    align = _alignment(stack, values["align"], slots) if layout.align else None
    size = max(64, _pass_rows(stack) // len(places))
    for first in range(0, len(rows), size):
        X = _inputs(stack, rows[first : first + size], places, slots)
        features = stack.scoring_trunk.forward(values["trunk"], X, align)
        out[:, first : first + size] = torch.baddbmm(
            heads[..., -1].unsqueeze(1), features, heads[..., :-1].transpose(1, 2)
        )
    return out.view(*out.shape[:2], slots.shape[1], layout.columns)


def _values(stack: Stack, name: str, requests: Sequence[_Request], places: Tensor, *, best: bool) -> Tensor:
    """Rows of one part, ``(g, n)``: present values, or those that each member keeps."""
    present = stack.parts[name].value.index_select(0, places)
    if not best:
        return present
    runs = [stack.runs[request.place] for request in requests]
    keeps = torch.tensor([run is not None and run.member.training.select == "best" for run in runs])
    return torch.where(keeps.to(present.device)[:, None], stack.best[name].index_select(0, places), present)


def _inputs(stack: Stack, rows: Tensor, places: Tensor, slots: Tensor) -> Tensor:
    """Rows as each member reads them for its first requested slot, ``(g, n, d)``."""
    X = stack.store.X.index_select(0, rows)[:, : stack.store.words(rows)].expand(len(places), -1, -1)
    if stack.affine is not None:
        factor, offset = (t[places, slots[:, 0]].unsqueeze(1) for t in stack.affine)
        X = X * factor + offset
    return X


def _alignment(stack: Stack, values: Tensor, slots: Tensor) -> Align:
    """The map of each member's first requested slot, of vectors ``(g, n, d)``."""
    layout, d = stack.layout, stack.aligned_width
    own = values.view(len(values), layout.num_tasks, -1)[torch.arange(len(values), device=values.device), slots[:, 0]]
    if layout.align_rank is None:
        return partial(apply_alignment, matrices=(own.view(-1, d, d),))
    both = own.view(-1, 2, d, layout.align_rank)
    return partial(apply_alignment, matrices=(both[:, 0], both[:, 1]))


def _by_labels(stack: Stack, outputs: Raw) -> list[list[tuple[int, int]]]:
    """Keys grouped by task, so that one call of the metric scores all models of a task."""
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for place, index in outputs:
        slot = _slot(stack, place, index)
        groups.setdefault((id(slot.task), id(slot.output)), []).append((place, index))
    return list(groups.values())


def _slot(stack: Stack, place: int, index: int):  # type: ignore[no-untyped-def]
    run = stack.runs[place]
    assert run is not None
    return run.member.slots[index]


def _in_task_order(stack: Stack, place: int, own: dict[str, float]) -> dict[str, float]:
    run = stack.runs[place]
    assert run is not None
    return {task.name: own[task.name] for task in run.member.training.tasks if task.name in own}
