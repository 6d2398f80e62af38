"""The data of all trainings of a call, once: inputs and labels in flat tensors that members index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mtlens.arrays import Array, IntArray
from mtlens.engine.order import EMPTY
from mtlens.engine.prepare import Block, Member, Slot
from mtlens.nets.embedding import PADDING
from mtlens.nets.family import RowSpec
from mtlens.nets.text import text_lengths

FILL_ROWS = 8192  # rows encoded at a time when the store is filled


@dataclass(frozen=True, eq=False)
class Panel:
    """Rows that some slots of a member are scored on: ``rows`` in the store, and each slot's own share of them."""

    rows: Tensor
    slots: tuple[int, ...]
    picks: tuple[Tensor | None, ...]  # per slot; None: all rows


class Store:
    """Every block has an all-zero row in front, and every label vector a label of weight 0.

    A batch that is not full points there. Row ``r`` of a block that starts at ``s`` is row ``s + 1 + r`` here, and its
    label for a slot is entry ``row + shift(slot)`` of ``y`` and ``weight``.
    """

    def __init__(self, members: Iterable[Member], dtype: torch.dtype, device: torch.device) -> None:
        members = list(members)
        blocks = {id(slot.block): slot.block for member in members for slot in member.slots}
        slots = {id(slot.y): slot for member in members for slot in member.slots}
        self.dtype, self.device = dtype, device
        self._block_start = dict(zip(blocks, _starts(blocks.values()), strict=True))
        self._label_start = dict(zip(slots, _starts(slot.y for slot in slots.values()), strict=True))
        self.tables = Tables(members)
        self.X = _filled(list(blocks.values()), dtype, self.tables).to(device)  # (rows, d)
        is_text = any(member.rows.vocabulary for member in members)
        self.lengths = text_lengths(self.X) if is_text else None  # words of every row
        self.y = _joined([slot.y for slot in slots.values()], dtype).to(device)
        self.weight = _joined([slot.weight for slot in slots.values()], dtype).to(device)
        self._rows: dict[bytes, Tensor] = {}
        self._panels: dict[tuple[object, ...], list[Panel]] = {}

    def start(self, slot: Slot) -> int:
        """Row of the empty row in front of the slot's block."""
        return self._block_start[id(slot.block)]

    def shift(self, slot: Slot) -> int:
        """What turns a row of ``X`` into the place of its label for this slot."""
        return self._label_start[id(slot.y)] - self.start(slot)

    def words(self, rows: Tensor) -> int | None:
        """Words of the longest text among these rows, at least one: columns beyond are padding. None for numbers."""
        return None if self.lengths is None else max(1, int(self.lengths[rows].max()))

    def places(self, rows: IntArray, starts: Array) -> IntArray:
        """Rows of blocks (``EMPTY`` included, which is why it is -1) to rows of the store; ``starts`` broadcasts."""
        assert EMPTY == -1
        placed: IntArray = rows + (starts + 1)
        return placed

    def panels(self, member: Member, split: str, *, apart: bool) -> list[Panel]:
        """What to run through a member's net to score a split: one panel for slots that read the same rows.

        ``apart`` forces a panel a slot, for members that transform every task's inputs in another way.
        """
        key = (split, apart, *(id(slot.y) for slot in member.slots))
        if key not in self._panels:
            self._panels[key] = self._make_panels(member.slots, split, apart)
        return self._panels[key]

    def _make_panels(self, slots: Sequence[Slot], split: str, apart: bool) -> list[Panel]:
        own = {i: slot.task.rows_of(split) for i, slot in enumerate(slots)}
        groups: dict[object, list[int]] = {}
        for i, rows in own.items():
            if len(rows):
                groups.setdefault(i if apart else id(slots[i].block), []).append(i)
        return [self._panel(slots, group, own) for group in groups.values()]

    def _panel(self, slots: Sequence[Slot], group: list[int], own: dict[int, Array]) -> Panel:
        union = own[group[0]] if len(group) == 1 else np.unique(np.concatenate([own[i] for i in group]))
        picks = tuple(
            None if len(own[i]) == len(union) else torch.from_numpy(np.searchsorted(union, own[i])).to(self.device)
            for i in group
        )
        placed = union + self.start(slots[group[0]]) + 1
        rows = self._rows.setdefault(placed.tobytes(), torch.from_numpy(placed).to(self.device))
        return Panel(rows, tuple(group), picks)


class Tables:
    """Frozen word vectors of all token members as one table: members with different vocabularies share a stack.

    Every featurizer's ids are shifted behind those of the one before; padding stays 0, the first row. ``rows`` is what
    the stacked trunk reads, None when inputs are numbers.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        texts = [m for m in members if m.rows.vocabulary and m.rows.vectors is not None and not m.family.learns_tables]
        maps = {id(member.inputs): member for member in texts}
        sizes = [member.rows.vocabulary for member in maps.values()]
        starts = dict(zip(maps, np.cumsum([0, *sizes])[: len(maps)].tolist(), strict=True))
        self._shift = {id(slot.block): starts[id(member.inputs)] for member in texts for slot in member.slots}
        self.rows: RowSpec | None = None
        if maps:
            whole = np.concatenate([m.rows.vectors for m in maps.values() if m.rows.vectors is not None])
            longest = max(member.rows.shape[0] for member in texts)
            self.rows = RowSpec((longest,), len(whole), whole)

    def placed(self, block: Block, ids: Array) -> Array:
        """A block's token ids as ids of the common table; numbers as they are."""
        shift = self._shift.get(id(block), 0)
        return np.where(ids == PADDING, PADDING, ids + shift) if shift else ids


def _starts(parts: Iterable[Block | Array]) -> list[int]:
    """Where each part begins, with one entry in front of each."""
    lengths = [len(part) + 1 for part in parts]
    return np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(int).tolist()  # type: ignore[no-any-return]


def _filled(blocks: Sequence[Block], dtype: torch.dtype, tables: Tables) -> Tensor:
    width = max(block.take(slice(0, 1)).shape[1] for block in blocks)  # token rows: as long as the longest text
    whole = torch.zeros(sum(len(block) + 1 for block in blocks), width, dtype=dtype)
    place = 0
    for block in blocks:
        place += 1
        for first in range(0, len(block), FILL_ROWS):
            part = torch.from_numpy(tables.placed(block, block.take(slice(first, first + FILL_ROWS))))
            whole[place : place + len(part), : part.shape[1]] = part.to(dtype)
            place += len(part)
    return whole


def _joined(vectors: Sequence[Array], dtype: torch.dtype) -> Tensor:
    padded = [part for vector in vectors for part in (np.zeros(1), vector)]
    return torch.from_numpy(np.concatenate(padded)).to(dtype)
