"""Where in a trunk an alignment stands, and how wide the features are there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mtlens.errors import InputError, unknown
from mtlens.nets.family import RowSpec


def aligned_width(trunk: nn.Module, rows: RowSpec, align_at: str | None) -> int:
    """Width of what an alignment maps: the rows themselves, or what enters the part named ``align_at``.

    The second is found by sending two rows through the trunk. The part must take a floating tensor first, whose last
    axis is the feature axis.

    >>> trunk = nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 2))
    >>> aligned_width(trunk, RowSpec((4,)), None), aligned_width(trunk, RowSpec((4,)), "2")
    (4, 7)
    """
    if align_at is None:
        if rows.vocabulary:
            raise InputError(
                "an alignment cannot stand before token ids. Name the part of the trunk it stands before, "
                "as in align_at='encoder'."
            )
        return rows.shape[-1]
    parts = dict(trunk.named_modules())
    if align_at not in parts or not align_at:
        raise unknown("part", align_at, [name for name in parts if name], "the trunk (align_at)")
    seen: list[Any] = []
    handle = parts[align_at].register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    try:
        _probe(trunk, rows)
    finally:
        handle.remove()
    if not seen or not isinstance(seen[0], Tensor) or not seen[0].is_floating_point():
        found = type(seen[0]).__name__ if seen else "nothing (it never ran)"
        raise InputError(
            f"align_at={align_at!r}: that part receives {found}, an alignment needs a floating tensor (..., features). "
            "Name another part of the trunk."
        )
    return int(seen[0].shape[-1])


def _probe(trunk: nn.Module, rows: RowSpec) -> None:
    """Two rows through a trunk, without gradient and without touching running statistics."""
    parameter = next(trunk.parameters(), torch.empty(0))
    probe = torch.ones(2, *rows.shape, dtype=torch.int64 if rows.vocabulary else parameter.dtype)
    was_training = trunk.training
    trunk.eval()
    try:
        with torch.no_grad():
            trunk(probe)
    finally:
        trunk.train(was_training)
