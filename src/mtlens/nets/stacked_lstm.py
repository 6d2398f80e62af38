"""Many LSTM trunks as one: for CUDA, where one small LSTM leaves the card idle.

On a CPU one core is already busy with one ``nn.LSTM`` (measured: a stack runs at 0.6 to 0.7 of its speed), so there the
family trains one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mtlens.nets.family import Align, Capacity, StackedTrunk
from mtlens.nets.text import text_lengths

_WEIGHTS = ("encoder.lstm.weight_ih_l0", "encoder.lstm.weight_hh_l0")
_BIASES = ("encoder.lstm.bias_ih_l0", "encoder.lstm.bias_hh_l0")


class StackedLstm(StackedTrunk):
    r"""``S`` one-layer LSTMs over one frozen embedding table, stepped by batched products.

    With gates ``G_t = E_t W_ih + H_{t-1} W_hh + b`` split into ``i, f, g, o``, ``c_t = s(f) c_{t-1} + s(i) tanh(g)``
    and ``H_t = s(o) tanh(c_t)``, the features are ``H`` at each text's last word. Backward in time, ``D_t = dG_t`` and
    ``dH_{t-1} = D_t W_hh^T``; and once for all steps ``dW_ih = sum_t E_t^T D_t``, ``dW_hh = sum_t H_{t-1}^T D_t``.

    An alignment maps the word vectors: ``E_t R`` stands for ``E_t``, whose gradient is ``D_t W_ih^T``. Shapes never
    depend on the data, so a step can be captured in a CUDA graph. Padded units (members narrower than the widest) keep
    ``c = h = 0`` and zero gradients. Memory: about ``L (10 H + d)`` numbers for a text of ``L`` words.

    Args:
        table: ``(V, d)`` frozen vectors, row 0 zero; moved to where the parameters are.
        units: hidden width of each member.
    """

    def __init__(self, table: Tensor, units: Sequence[int]) -> None:
        self.table = table
        self.inputs = table.shape[1]
        self.out_features = max(units)
        columns = 4 * self.out_features
        self.num_parameters = columns * (self.inputs + self.out_features + 2)
        self._steps: list[tuple[Tensor, Tensor]] = []
        self._embedded = self._hidden = self._last = self._final = table.new_empty(0)

    def pack(self, values: Mapping[str, Tensor], capacity: Capacity) -> Tensor:
        units = _units(capacity)
        row = values[_WEIGHTS[0]].new_zeros(self.num_parameters)
        w_ih, w_hh, b_ih, b_hh = (view[0] for view in self._views(row[None]))
        own = [torch.unflatten(values[name], 0, (4, units)) for name in (*_WEIGHTS, *_BIASES)]
        torch.unflatten(w_ih, 1, (4, -1))[:, :, :units] = own[0].permute(2, 0, 1)  # (d, 4, units)
        torch.unflatten(w_hh, 1, (4, -1))[:units, :, :units] = own[1].permute(2, 0, 1)
        torch.unflatten(b_ih[0], 0, (4, -1))[:, :units] = own[2]
        torch.unflatten(b_hh[0], 0, (4, -1))[:, :units] = own[3]
        return row

    def unpack(self, row: Tensor, capacity: Capacity) -> dict[str, Tensor]:
        units = _units(capacity)
        w_ih, w_hh, b_ih, b_hh = (view[0] for view in self._views(row[None]))
        weights = (torch.unflatten(w_ih, 1, (4, -1)), torch.unflatten(w_hh, 1, (4, -1))[:units])
        values = {
            name: weight[:, :, :units].permute(1, 2, 0).flatten(0, 1).clone()
            for name, weight in zip(_WEIGHTS, weights, strict=True)
        }
        biases = (b_ih[0], b_hh[0])
        return values | {
            name: torch.unflatten(bias, 0, (4, -1))[:, :units].flatten().clone()
            for name, bias in zip(_BIASES, biases, strict=True)
        }

    def _views(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``W_ih (S, d, 4H)``, ``W_hh (S, H, 4H)`` and the two biases ``(S, 1, 4H)``, as views."""
        columns, count = 4 * self.out_features, len(parameters)
        sizes = [self.inputs * columns, self.out_features * columns, columns, columns]
        parts = torch.split(parameters, sizes, dim=1)
        shapes = (self.inputs, self.out_features, 1, 1)
        w_ih, w_hh, b_ih, b_hh = (p.view(count, n, columns) for p, n in zip(parts, shapes, strict=True))
        return w_ih, w_hh, b_ih, b_hh

    def numbers_a_row(self, width: int) -> int:
        return width * (10 * self.out_features + self.inputs)

    def forward(self, parameters: Tensor, X: Tensor, align: Align | None = None) -> Tensor:
        """``X (S, R, L)`` token ids to ``(S, R, H)``; ``align`` maps word vectors ``(S, R L, d)``."""
        w_ih, w_hh, b_ih, b_hh = self._views(parameters)
        X = X.long()  # a store of rows may hold ids as floating numbers
        if self.table.device != parameters.device or self.table.dtype != parameters.dtype:
            self.table = self.table.to(parameters)
        count, rows, length = X.shape
        lengths = text_lengths(X.flatten(0, 1)).view(1, count, rows)
        places = torch.arange(1, length + 1, device=X.device).view(length, 1, 1)
        self._last = (lengths == places).to(parameters.dtype).unsqueeze(-1)  # (L, S, R, 1)
        self._embedded = self._embed(X, align)  # (S, L R, d)
        gates = torch.baddbmm(b_ih + b_hh, self._embedded, w_ih).view(count, length, rows, -1)
        self._hidden = parameters.new_zeros(count, length + 1, rows, self.out_features)
        cell = parameters.new_zeros(count * rows, self.out_features)
        features = parameters.new_zeros(count, rows, self.out_features)
        self._steps = []
        for t in range(length):
            before = cell
            summed = torch.baddbmm(gates[:, t], self._hidden[:, t], w_hh).flatten(0, 1)
            hidden, cell, kept = _cell(summed, before)
            self._hidden[:, t + 1] = hidden.view(count, rows, -1)
            features.addcmul_(self._last[t], self._hidden[:, t + 1])
            self._steps.append((before, kept))
        self._final = cell
        return features

    def _embed(self, X: Tensor, align: Align | None) -> Tensor:
        if align is None:
            return self.table[X.transpose(1, 2)].flatten(1, 2)
        count, rows, length = X.shape
        vectors = align(self.table[X].flatten(1, 2))
        return vectors.view(count, rows, length, -1).transpose(1, 2).flatten(1, 2)

    def backward(
        self, parameters: Tensor, grad_features: Tensor, grad: Tensor | None, *, grad_input: bool
    ) -> Tensor | None:
        """As in :class:`StackedTrunk`; the gradient of the word vectors is ``(S, R L, d)``."""
        if grad is None and not grad_input:  # the trunk stays, and token ids have no gradient
            return None
        w_ih, w_hh, _, _ = self._views(parameters)
        count, rows = grad_features.shape[:2]
        length = len(self._steps)
        grad_gates = parameters.new_empty(count, length, rows, 4 * self.out_features)
        grad_hidden = torch.zeros_like(grad_features)
        grad_cell = parameters.new_zeros(count * rows, self.out_features)
        after = self._final
        for t in reversed(range(length)):
            grad_hidden = torch.addcmul(grad_hidden, self._last[t], grad_features)
            before, kept = self._steps[t]
            step_gates, grad_cell = _cell_backward(grad_hidden.flatten(0, 1), grad_cell, before, after, kept)
            grad_gates[:, t] = step_gates.view(count, rows, -1)
            grad_hidden = torch.bmm(grad_gates[:, t], w_hh.transpose(1, 2))
            after = before
        flat = grad_gates.flatten(1, 2)  # (S, L R, 4H)
        if grad is not None:
            ours = self._views(grad)
            torch.bmm(self._embedded.transpose(1, 2), flat, out=ours[0])
            torch.bmm(self._hidden[:, :-1].flatten(1, 2).transpose(1, 2), flat, out=ours[1])
            torch.sum(flat, 1, keepdim=True, out=ours[2])
            ours[3].copy_(ours[2])
        if not grad_input:
            return None
        below = torch.bmm(flat, w_ih.transpose(1, 2)).view(count, length, rows, -1)
        return below.transpose(1, 2).flatten(1, 2)


def _units(capacity: Capacity) -> int:
    return capacity[0] if isinstance(capacity, tuple) else capacity


def _cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One LSTM cell: summed gates ``(N, 4H)`` and cell ``(N, H)`` to hidden, cell, and what backward needs."""
    if gates.is_cuda:  # PyTorch's own fused kernel
        hidden, after, kept = torch.ops.aten._thnn_fused_lstm_cell(gates, torch.zeros_like(gates), cell)
        return hidden, after, kept
    i, f, g, o = gates.chunk(4, 1)
    values = torch.cat([i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()], 1)
    i, f, g, o = values.chunk(4, 1)
    after = f * cell + i * g
    return o * after.tanh(), after, values


def _cell_backward(
    grad_hidden: Tensor, grad_cell: Tensor, before: Tensor, after: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the summed gates ``(N, 4H)`` and of the cell before, from those of hidden and cell after."""
    if kept.is_cuda:
        gates, cell, _ = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(
            grad_hidden, grad_cell, before, after, kept, False
        )
        return gates, cell
    i, f, g, o = kept.chunk(4, 1)
    squashed = after.tanh()
    grad_after = grad_cell + grad_hidden * o * (1 - squashed**2)
    parts = [
        grad_after * g * i * (1 - i),
        grad_after * before * f * (1 - f),
        grad_after * i * (1 - g**2),
        grad_hidden * squashed * o * (1 - o),
    ]
    return torch.cat(parts, 1), grad_after * f
