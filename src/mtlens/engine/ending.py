"""An ended training to its result, and the values of a net that belong to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from mtlens.engine.assemble import model_of
from mtlens.engine.prepare import Member
from mtlens.engine.result import Trained
from mtlens.engine.scoring import scores_of
from mtlens.engine.tracker import Tracker
from mtlens.nets.embedding import own_values
from mtlens.nets.multitask import MultiTaskNet
from mtlens.tasks.task import SPLIT_NAMES


def load_values(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Set named parameters and buffers; values that are not named (a frozen embedding table) stay."""
    own = dict(module.state_dict(keep_vars=True))
    with torch.no_grad():
        for name, value in values.items():
            own[name].copy_(value)


def net_values(net: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters and buffers but frozen embedding tables, which are data."""
    return {name: value.detach().clone() for name, value in own_values(net).items()}


def finish(
    member: Member,
    net: MultiTaskNet,
    tracker: Tracker,
    raw: Callable[[str], Mapping[str, Tensor]],
    *,
    seconds: float,
    keep: str,
) -> Trained:
    """The result of an ended training whose net holds the chosen parameters.

    ``raw(split)`` gives the raw outputs ``(m, columns)`` of every task on its labelled rows of a split.
    """
    trained = Trained(member.training, history=tracker.history(member), seconds=seconds, reason=tracker.reason)
    if tracker.failed:
        return trained
    outputs = {split: raw(split) for split in SPLIT_NAMES}
    slots = {slot.task.name: slot for slot in member.slots}
    names = [task.name for task in member.training.tasks]  # results in the order the tasks were given
    for split, found in outputs.items():
        scores = {name: float(scores_of(slots[name], split, found[name][None])[0]) for name in names if name in found}
        if scores:
            trained.scores[split] = scores
    if keep == "predictions":
        trained.predictions = {
            split: {name: slots[name].output.finish(found[name]) for name in names if name in found}
            for split, found in outputs.items()
            if found
        }
    if keep != "scores":
        trained.model = model_of(member, net.cpu())
    return trained
