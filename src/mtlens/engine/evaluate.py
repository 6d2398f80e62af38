"""Scores of members of a stack: models that read the same rows go through together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from mtlens.arrays import FloatArray
from mtlens.engine.prepare import Member, Slot
from mtlens.engine.scoring import scores_of
from mtlens.engine.stack import Stack
from mtlens.engine.store import Panel
from mtlens.nets.alignment import alignment_matrices, apply_alignment
from mtlens.nets.family import Align

SCORING_ROWS = 1 << 13  # rows x models of one pass, which bounds the memory of scoring; larger was no faster
DEVICE_ROWS = 1 << 21  # the same on a device, which has more memory and wants larger passes
DEVICE_NUMBERS = 1 << 30  # and how many numbers a pass may keep there

Scores: TypeAlias = dict[int, dict[str, float]]
Predictions: TypeAlias = dict[int, dict[str, FloatArray]]


@dataclass(frozen=True, eq=False)
class _Request:
    """Members with the same slots, and the rows on which some of these slots need outputs."""

    places: list[int]
    panel: Panel


@dataclass(frozen=True, eq=False)
class Outputs:
    """Raw outputs ``(g, rows, columns)`` of the models at ``g`` places, on a split's labelled rows of their slot."""

    places: list[int]
    slot: Slot
    raw: Tensor


def scores(stack: Stack, places: Sequence[int], split: str, *, best: bool, standardised: bool = False) -> Scores:
    """Place -> task -> oriented score on a split; places without rows in the split have no entry."""
    found: Scores = {}
    for outputs in _by_labels(raw_outputs(stack, places, split, best=best)):
        values = scores_of(outputs.slot, split, outputs.raw, standardised=standardised)
        for place, value in zip(outputs.places, values.tolist(), strict=True):
            found.setdefault(place, {})[outputs.slot.task.name] = value
    if stack.layout.num_tasks == 1:
        return found
    return {place: _in_task_order(stack, place, own) for place, own in found.items()}


def predictions(stack: Stack, places: Sequence[int], split: str) -> Predictions:
    """Place -> task -> predictions of the kept values on a split's labelled rows; no entry without such rows."""
    found: Predictions = {}
    for outputs in raw_outputs(stack, places, split, best=True):
        finished = outputs.slot.output.finish(outputs.raw)
        for place, own in zip(outputs.places, finished, strict=True):
            found.setdefault(place, {})[outputs.slot.task.name] = own.copy()  # a view would keep all of them alive
    return found


def raw_outputs(stack: Stack, places: Sequence[int], split: str, *, best: bool) -> Iterator[Outputs]:
    """Raw outputs of some places on a split, for every slot that has labelled rows in it.

    ``best`` takes the values a member keeps (its best epoch, or the last), else the present ones.
    """
    for requests in _groups(stack, places, split):
        for some in _limited(requests, _pass_rows(stack)):
            whole = _forward(stack, some, best=best)  # (g, rows, slots, C)
            for request, own in zip(some, torch.split(whole, [len(r.places) for r in some]), strict=True):
                slots = _member(stack, request.places[0]).slots
                for j, (index, pick) in enumerate(zip(request.panel.slots, request.panel.picks, strict=True)):
                    raw = own[:, :, j] if pick is None else own[:, pick, j]
                    yield Outputs(request.places, slots[index], raw[..., : slots[index].columns])


def _groups(stack: Stack, places: Sequence[int], split: str) -> Iterator[list[_Request]]:
    """Requests for the same rows and the same number of slots, of members that read them alike or one by one."""
    apart = stack.layout.align is not None or stack.layout.rescaled
    alike: dict[int, list[int]] = {}  # places whose members hold the same slots
    for place in places:
        alike.setdefault(id(_member(stack, place).slots), []).append(place)
    groups: dict[tuple[int, int], list[_Request]] = {}
    for own in alike.values():
        for panel in stack.store.panels(_member(stack, own[0]), split, apart=apart):
            groups.setdefault((id(panel.rows), len(panel.slots)), []).append(_Request(own, panel))
    yield from groups.values()


def _pass_rows(stack: Stack) -> int:
    if stack.store.device.type == "cpu":
        return SCORING_ROWS
    return min(DEVICE_ROWS, DEVICE_NUMBERS // stack.scoring_trunk.numbers_a_row(stack.store.X.shape[1]))


def _limited(requests: list[_Request], pass_rows: int) -> Iterator[list[_Request]]:
    """The requests in passes of so many members that memory stays bounded."""
    size = max(1, pass_rows * 8 // max(1, len(requests[0].panel.rows)))
    some: list[_Request] = []
    room = size
    for request in requests:
        left = request.places
        while left:
            taken, left = left[:room], left[room:]
            some.append(_Request(taken, request.panel))
            room -= len(taken)
            if not room:
                yield some
                some, room = [], size
    if some:
        yield some


def _forward(stack: Stack, requests: Sequence[_Request], *, best: bool) -> Tensor:
    """Raw outputs ``(g, rows, slots, C)`` of ``g`` members whose requests are for the same rows."""
    device = stack.store.device
    places = torch.tensor([place for r in requests for place in r.places], device=device)
    counts = [len(r.places) for r in requests]
    slots = torch.from_numpy(np.repeat([r.panel.slots for r in requests], counts, axis=0)).to(device)  # (g, slots)
    layout, rows = stack.layout, requests[0].panel.rows
    values = stack.rows_at(places, kept=best)
    heads = values["heads"].view(len(places), layout.num_tasks, layout.columns, -1)
    heads = heads[torch.arange(len(places), device=device)[:, None], slots].flatten(1, 2)  # (g, slots * C, h + 1)
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


def _inputs(stack: Stack, rows: Tensor, places: Tensor, slots: Tensor) -> Tensor:
    """Rows as each member reads them for its first requested slot, ``(g, n, d)``."""
    X = stack.store.X.index_select(0, rows)[:, : stack.store.words(rows)].expand(len(places), -1, -1)
    if stack.affine is not None:
        factor, offset = (t[places, slots[:, 0]].unsqueeze(1) for t in stack.affine)
        X = X * factor + offset
    return X


def _alignment(stack: Stack, values: Tensor, slots: Tensor) -> Align:
    """The map of each member's first requested slot, of vectors ``(g, n, d)``."""
    layout = stack.layout
    own = values.view(len(values), layout.num_tasks, -1)[torch.arange(len(values), device=values.device), slots[:, 0]]
    return partial(apply_alignment, matrices=alignment_matrices(own, stack.aligned_width, layout.align_rank))


def _by_labels(found: Iterable[Outputs]) -> Iterator[Outputs]:
    """All models of a task as one, so that one call of the metric scores them."""
    groups: dict[tuple[int, int], list[Outputs]] = {}
    for outputs in found:
        groups.setdefault((id(outputs.slot.task), id(outputs.slot.output)), []).append(outputs)
    for group in groups.values():
        places = [place for outputs in group for place in outputs.places]
        yield Outputs(places, group[0].slot, torch.cat([outputs.raw for outputs in group]))


def _member(stack: Stack, place: int) -> Member:
    run = stack.runs[place]
    assert run is not None
    return run.member


def _in_task_order(stack: Stack, place: int, own: dict[str, float]) -> dict[str, float]:
    return {task.name: own[task.name] for task in _member(stack, place).training.tasks if task.name in own}
