"""Values to modules: the net of one member, at its start or as a stack left it."""

from __future__ import annotations

import torch
from torch import nn

from mtlens.engine.prepare import BUILDING, Member, Start
from mtlens.engine.result import TrainedModel
from mtlens.nets.alignment import Alignment
from mtlens.nets.multitask import MultiTaskNet


def net_of(member: Member, values: Start, dtype: torch.dtype | None = None) -> MultiTaskNet:
    """The member's net holding ``values``; heads stand in the order of the training's tasks."""
    training = member.training
    dtype = dtype or getattr(torch, training.dtype)
    place = {name: i for i, name in enumerate(member.names)}
    order = [place[task.name] for task in training.tasks]
    with BUILDING, torch.random.fork_rng(devices=[]):  # what is drawn is replaced: leave the user's stream alone
        trunk = member.family.trunk(member.rows, training.capacity)
        heads: dict[str, nn.Module] = {}
        for i in order:
            weight, _ = values.heads[i]
            heads[member.names[i]] = nn.Linear(weight.shape[1], weight.shape[0])
        aligned = order if values.align else []
        align = {member.names[i]: _empty_alignment(values.align[i], training.penalty) for i in aligned}
        net = MultiTaskNet(trunk, heads, align=align or None, align_at=training.align_at or member.family.align_at)
    return _filled(net.to(dtype), values, order)


def _filled(net: MultiTaskNet, values: Start, order: list[int]) -> MultiTaskNet:
    """Values go in after the cast: float32 parameters in between would round them."""
    with torch.no_grad():
        net.trunk.load_state_dict(values.trunk, strict=False)
        for head, i in zip(net.heads, order, strict=True):
            head.load_state_dict(dict(zip(("weight", "bias"), values.heads[i], strict=True)))
        if net.align is not None:
            for own, i in zip(net.align, order, strict=True):
                own.load_state_dict(values.align[i])
    return net


def _empty_alignment(values: dict[str, torch.Tensor], penalty: float) -> Alignment:
    if "R" in values:
        return Alignment(len(values["R"]), penalty=penalty)
    return Alignment(len(values["U"]), rank=values["U"].shape[1], penalty=penalty)


def model_of(member: Member, net: MultiTaskNet) -> TrainedModel:
    """The net with the scale of its inputs and the units of its labels."""
    outputs = {slot.task.name: slot.output for slot in member.slots}
    return TrainedModel(net.eval(), member.inputs, {task.name: outputs[task.name] for task in member.training.tasks})
