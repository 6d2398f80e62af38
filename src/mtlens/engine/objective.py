"""Losses of stacked outputs and their gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from mtlens.engine.prepare import Slot
from mtlens.tasks.task import Kind


class StackedObjective:
    """Task losses of a stack from raw outputs, with the gradient written by hand.

    A task's loss is ``L = sum_r w_r l_r / sum_r w_r`` over the rows of its batch, with squared error or cross entropy
    ``l``; a batch without labelled rows has loss 0. Every head has ``columns`` outputs, the most that any task of
    the stack needs; the columns a task does not have are masked and get gradient 0.
    """

    def __init__(self, slots: Sequence[Sequence[Slot]], columns: int, like: Tensor) -> None:
        kinds = [[slot.task.kind for slot in own] for own in slots]
        self.columns = columns
        self.kinds = {kind for own in kinds for kind in own}
        self._is = {
            kind: torch.tensor([[k == kind for k in own] for own in kinds], device=like.device) for kind in self.kinds
        }
        spare = [[[c >= slot.columns for c in range(columns)] for slot in own] for own in slots]
        self._mask = torch.zeros(len(slots), len(slots[0]), columns, dtype=like.dtype, device=like.device)
        self._mask.masked_fill_(torch.tensor(spare, device=like.device), -torch.inf)  # (S, T, columns)

    def __call__(
        self, raw: Tensor, y: Tensor, weight: Tensor, *, axis: int, active: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Losses ``(S, T)`` and ``dL/draw``, which is not yet multiplied by task weights.

        Args:
            raw: ``(S, R, T, columns)`` with ``axis=1``, or ``(S, T, b, columns)`` with ``axis=2``.
            y: labels, ``raw``'s shape without columns.
            weight: sample weights, 0 where there is no label.
            axis: where the rows are.
            active: ``(S,)`` slots of a one-task step (then T is 1), or None.
        """
        share = weight / weight.sum(axis, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)
        if self.columns == 1:
            each, grad = self._scalar(raw[..., 0], y, axis, active)
            grad = (grad * share).unsqueeze(-1)
        else:
            each, grad = self._several(raw, y, axis, active)
            grad = grad * share.unsqueeze(-1)
        return (each * share).sum(axis), grad

    def _scalar(self, z: Tensor, y: Tensor, axis: int, active: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.kinds == {"binary"}:
            return _binary(z, y)
        if self.kinds == {"regression"}:
            return _regression(z, y)
        is_binary = self._of_kind("binary", axis, active)
        (one, one_grad), (two, two_grad) = _binary(z, y), _regression(z, y)
        return torch.where(is_binary, one, two), torch.where(is_binary, one_grad, two_grad)

    def _several(self, raw: Tensor, y: Tensor, axis: int, active: Tensor | None) -> tuple[Tensor, Tensor]:
        mask = _chosen(self._mask, active)
        masked = raw + (mask.unsqueeze(1) if axis == 1 else mask.unsqueeze(2))
        logs = torch.log_softmax(masked, -1)
        labels = y.long().clamp_(0, self.columns - 1).unsqueeze(-1)
        each = -logs.gather(-1, labels).squeeze(-1)
        grad = logs.exp().scatter_add_(-1, labels, -torch.ones_like(y).unsqueeze(-1))
        if self.kinds == {"multiclass"}:
            return each, grad
        is_multi = self._of_kind("multiclass", axis, active)
        scalar, scalar_grad = self._scalar(raw[..., 0], y, axis, active)
        only_first = functional.pad(scalar_grad.unsqueeze(-1), (0, self.columns - 1))
        return torch.where(is_multi, each, scalar), torch.where(is_multi.unsqueeze(-1), grad, only_first)

    def _of_kind(self, kind: Kind, axis: int, active: Tensor | None) -> Tensor:
        is_kind = self._is.get(kind)
        if is_kind is None:
            return torch.zeros((), dtype=torch.bool, device=self._mask.device)
        return _chosen(is_kind, active).unsqueeze(axis)

    def is_binary(self) -> Tensor:
        """``(S, T)``: which tasks have cross entropy of two classes."""
        return self._is.get("binary", torch.zeros(self._mask.shape[:2], dtype=torch.bool, device=self._mask.device))

    def half_where_regression(self) -> Tensor:
        """``(S, T)``: 1/2 for regression tasks, else 1, the factor of ``exp(-s) L`` in uncertainty weighting."""
        shape = self._mask.shape[:2]
        is_regression = self._is.get("regression", torch.zeros(shape, dtype=torch.bool, device=self._mask.device))
        return 1 - 0.5 * is_regression.to(self._mask.dtype)


def _chosen(table: Tensor, active: Tensor | None) -> Tensor:
    """``(S, T, ...)``, or ``(S, 1, ...)`` with the active slot of every member."""
    if active is None:
        return table
    return table[torch.arange(len(table), device=table.device), active].unsqueeze(1)


def _binary(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return functional.softplus(z) - y * z, torch.sigmoid(z) - y


def _regression(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    gap = z - y
    return gap * gap, 2 * gap
