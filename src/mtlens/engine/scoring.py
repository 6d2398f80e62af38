"""Raw outputs to scores, many models at a time."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mtlens.arrays import FloatArray
from mtlens.engine.device_scores import device_scores
from mtlens.engine.prepare import Slot
from mtlens.tasks.metrics import metric_of


def scores_of(slot: Slot, split: str, raw: Tensor, *, standardised: bool = False) -> FloatArray:
    """Oriented scores ``(g,)`` of ``g`` models from raw outputs ``(g, m, columns)`` on ``task.rows_of(split)``.

    ``standardised=True`` scores a regression in units of its labels' train standard deviation.
    """
    task = slot.task
    rows = task.rows_of(split)
    if raw.device.type != "cpu" and task.weight is None and task.kind != "multiclass":
        y_there = torch.from_numpy(task.y[rows]).to(raw.device)
        there = device_scores(task.metric, y_there, slot.output.answers(raw.double()))
        if there is not None:
            return there.cpu().numpy()
    predictions = slot.output.finish(raw)
    if standardised and task.kind == "regression":
        predictions = predictions / slot.output.scale
        y = task.y[rows] / slot.output.scale
    else:
        y = task.y[rows]
    weight = None if task.weight is None else task.weight[rows]
    classes = task.num_classes if task.kind == "multiclass" else 0
    with np.errstate(all="ignore"):
        return np.atleast_1d(metric_of(task).oriented(y, predictions, weight, classes=classes))


def losses_of(kind: str, raw: Tensor, y: Tensor) -> Tensor:
    """Loss of every row ``(...,)`` from raw outputs ``(..., columns)``: squared error or cross entropy."""
    if kind == "regression":
        return (raw[..., 0] - y).square()
    if kind == "binary":
        return torch.nn.functional.softplus(raw[..., 0]) - y * raw[..., 0]
    picked = raw.gather(-1, y.long().unsqueeze(-1)).squeeze(-1)
    return torch.logsumexp(raw, -1) - picked
