"""What trainings must have in common to be computed as one stack."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from mtlens.engine.prepare import Member, Mode
from mtlens.nets.family import Capacity

WIDTH_STEP = 1.3  # widths within one such step share a stack: padding then costs less than a stack of its own


@dataclass(frozen=True)
class Layout:
    """The key of a bucket: members with equal layouts can share a stack, padded to the widest of them."""

    family: str
    inputs: tuple[int, ...]
    width_class: tuple[int, ...]
    mode: Mode
    batch: int
    num_tasks: int
    columns: int
    align: str | None
    align_rank: int | None
    optimizer: str
    dtype: str
    freeze: tuple[str, ...]
    uncertain: bool
    random_weights: bool
    rescaled: bool

    @property
    def trains_trunk(self) -> bool:
        return "trunk" not in self.freeze and self.align != "fixed"

    @property
    def trains_heads(self) -> bool:
        return "heads" not in self.freeze

    @property
    def trains_align(self) -> bool:
        return self.align is not None and "align" not in self.freeze


def layout_of(member: Member) -> Layout:
    """The member's bucket."""
    training = member.training
    return Layout(
        family=json.dumps(member.family.settings(), sort_keys=True),
        inputs=_inputs(member),
        width_class=_width_class(member),
        mode=member.mode,
        batch=member.batch,
        num_tasks=len(member.slots),
        columns=max(slot.columns for slot in member.slots),
        align=training.align,
        align_rank=training.align_rank,
        optimizer=training.optimizer,
        dtype=training.dtype,
        freeze=tuple(sorted(training.freeze)),
        uncertain=member.uncertain,
        random_weights=training.weighting == "random",
        rescaled=any(slot.block.affine(member.inputs) is not None for slot in member.slots),
    )


def _inputs(member: Member) -> tuple[int, ...]:
    """Shape of a row of numbers; of texts nothing, since the store pads them to one length and joins their frozen
    vectors, or the number of words where each member trains a table of them.
    """
    if not member.rows.vocabulary:
        return member.rows.shape
    return (member.rows.vocabulary,) if member.family.learns_tables else ()


def _width_class(member: Member) -> tuple[int, ...]:
    """Classes of widths that share a stack; families that cannot pad a member need the very same width."""
    sizes = widths(member.training.capacity)
    return tuple(math.ceil(math.log(w, WIDTH_STEP)) for w in sizes) if member.family.pads else sizes


def widths(capacity: Capacity) -> tuple[int, ...]:
    """A capacity as one width a layer."""
    return capacity if isinstance(capacity, tuple) else (capacity,)


def is_stackable(member: Member, device_type: str = "cpu") -> bool:
    """Whether the bank can run it: a family with a stacked step worth taking there, and a method the bank knows."""
    training = member.training
    if not member.family.stacks_on(device_type) or any(part.startswith("trunk.") for part in training.freeze):
        return False
    if training.align is not None and len(member.rows.shape) > 1:
        return False  # it would map the last axis of images
    maps_words = training.align is not None and member.rows.vocabulary
    if maps_words and (member.family.align_at is None or member.family.learns_tables):
        return False  # it would map ids, or the table's gradient would have to pass through it
    known_method = not isinstance(training.weighting, str) or training.weighting in (
        "equal", "svd", "uncertainty", "random",
    )  # fmt: skip
    can_step = member.family.stacked(member.rows, [training.capacity]) is not None
    return known_method and training.align_at is None and can_step
