"""Linear, ReLU and deep trunks: dense layers whose stacked step is written by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor, nn

from mtlens.errors import InputError
from mtlens.nets.family import Align, Capacity, Family, RowSpec, StackedTrunk, register
from mtlens.nets.streams import stream


class DenseTrunk(nn.Module):
    """``x -> g(x W_1 + b_1) -> ...``: dense layers, each followed by ReLU or by nothing.

    ``weight`` is ``(inputs, units)`` as in the paper's ``X B``, the transpose of ``nn.Linear``.
    """

    def __init__(self, widths: Sequence[int], *, relu: bool, bias: bool) -> None:
        super().__init__()
        self.relu = relu
        self.out_features = widths[-1]
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(i, o)) for i, o in pairwise(widths))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(o)) for o in widths[1:]) if bias else None
        self._start()

    def _start(self) -> None:
        for layer, weight in enumerate(self.weights):
            bound = 1 / math.sqrt(weight.shape[0])
            nn.init.uniform_(weight, -bound, bound)
            if self.biases is not None:
                nn.init.uniform_(self.biases[layer], -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer, weight in enumerate(self.weights):
            x = x @ weight if self.biases is None else torch.addmm(self.biases[layer], x, weight)
            x = torch.relu(x) if self.relu else x
        return x


class Dense(Family):
    """The families "linear" (``X B``), "relu" (``g(X B)``, the paper's model) and "mlp" (any depth, with biases).

    The capacity is the number of units, the paper's ``r``; "mlp" also takes a tuple, one width a layer. The heads
    carry the intercepts of "linear" and "relu". Every entry starts uniform within ``1 / sqrt(inputs)``, as in
    ``nn.Linear``.
    """

    def __init__(self, name: str, *, relu: bool, bias: bool, deep: bool) -> None:
        self.name = name
        self.relu, self.bias, self.deep = relu, bias, deep

    def check(self, capacity: Capacity) -> None:
        super().check(capacity)
        if not self.deep and isinstance(capacity, tuple) and len(capacity) > 1:
            raise InputError(
                f"trunk {self.name!r} has one layer, but capacity={capacity} names {len(capacity)}. "
                "Use trunk='mlp' for more layers."
            )

    def trunk(self, rows: RowSpec, capacity: Capacity) -> nn.Module:
        return DenseTrunk(_widths(rows, capacity), relu=self.relu, bias=self.bias)

    def draw(self, rows: RowSpec, capacity: Capacity, seed: int) -> dict[str, Tensor]:
        return dict(_drawn(_widths(rows, capacity), self.bias, seed))

    def out_features(self, rows: RowSpec, capacity: Capacity) -> int:
        return _widths(rows, capacity)[-1]

    def stacked(self, rows: RowSpec, capacities: Sequence[Capacity]) -> StackedDense:
        widths = [_widths(rows, capacity) for capacity in capacities]
        depths = {len(w) for w in widths}
        if len(depths) > 1:
            raise InputError(f"a stack needs members of one depth, found {sorted(d - 1 for d in depths)} layers.")
        return StackedDense([max(column) for column in zip(*widths, strict=True)], relu=self.relu, bias=self.bias)


@lru_cache(maxsize=32)  # members of a grid share seeds: at thousands a second, drawing was half of their set-up
def _drawn(widths: tuple[int, ...], bias: bool, seed: int) -> dict[str, Tensor]:
    values: dict[str, Tensor] = {}
    for layer, (inputs, units) in enumerate(pairwise(widths)):
        draws, bound = stream(seed, "layer", layer), 1 / math.sqrt(inputs)
        values[f"weights.{layer}"] = torch.from_numpy(draws.uniform(-bound, bound, (inputs, units)))
        if bias:
            values[f"biases.{layer}"] = torch.from_numpy(draws.uniform(-bound, bound, units))
    return values


def _widths(rows: RowSpec, capacity: Capacity) -> tuple[int, ...]:
    return (rows.width, *(capacity if isinstance(capacity, tuple) else (capacity,)))


class StackedDense(StackedTrunk):
    """A stack of :class:`DenseTrunk`, forward and backward by batched products into reused buffers.

    ``H_l = g(H_{l-1} W_l + b_l)`` and, with ``D_l`` the gradient at the layer's sum,
    ``dW_l = H_{l-1}^T D_l``, ``db_l = sum_rows D_l``, ``D_{l-1} = (D_l W_l^T) * [H_{l-1} > 0]``.
    """

    def __init__(self, widths: Sequence[int], *, relu: bool, bias: bool) -> None:
        self.widths, self.relu, self.bias = tuple(widths), relu, bias
        self.out_features = self.widths[-1]
        self.num_parameters = sum((i + bias) * o for i, o in pairwise(self.widths))
        self._buffers: dict[tuple[str, int], Tensor] = {}
        self._inputs: list[Tensor] = []
        self._seen: list[tuple[Tensor, list[tuple[Tensor, Tensor | None]]]] = []

    def pack(self, values: Mapping[str, Tensor], capacity: Capacity) -> Tensor:
        first = values["weights.0"]
        row = first.new_zeros(self.num_parameters)
        for name, view in self._named(row):
            value = values[name]
            view[tuple(slice(0, n) for n in value.shape)] = value
        del capacity
        return row

    def unpack(self, row: Tensor, capacity: Capacity) -> dict[str, Tensor]:
        own = (self.widths[0], *(capacity if isinstance(capacity, tuple) else (capacity,)))
        values: dict[str, Tensor] = {}
        for name, view in self._named(row):
            layer = int(name.rpartition(".")[2])
            kept = own[layer + 2 - view.ndim : layer + 2]
            values[name] = view[tuple(slice(0, n) for n in kept)].clone()
        return values

    def _named(self, row: Tensor) -> list[tuple[str, Tensor]]:
        """Views of one row ``(num_parameters,)`` under their ``state_dict`` names."""
        named = []
        for layer, (weight, bias) in enumerate(self._make_views(row[None])):
            named.append((f"weights.{layer}", weight[0]))
            if bias is not None:
                named.append((f"biases.{layer}", bias[0, 0]))
        return named

    def _views(self, parameters: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Per layer ``(S, inputs, units)`` and ``(S, 1, units)`` views of ``parameters``; the last few are kept."""
        for known, views in self._seen:
            if known is parameters:
                return views
        views = self._make_views(parameters)
        self._seen = [(parameters, views), *self._seen[:1]]
        return views

    def _make_views(self, parameters: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        views, start, count = [], 0, len(parameters)
        for inputs, units in pairwise(self.widths):
            weight = parameters[:, start : start + inputs * units].view(count, inputs, units)
            start += inputs * units
            bias = parameters[:, start : start + units].view(count, 1, units) if self.bias else None
            start += units if self.bias else 0
            views.append((weight, bias))
        return views

    def _buffer(self, what: str, layer: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A buffer that is kept between calls: fresh large tensors cost page faults on every step."""
        key = (what, layer)
        kept = self._buffers.get(key)
        if kept is None or kept.shape != shape or kept.dtype != like.dtype or kept.device != like.device:
            kept = self._buffers[key] = torch.empty(shape, dtype=like.dtype, device=like.device)
        return kept

    def numbers_a_row(self, width: int) -> int:
        del width  # it is the first of the widths
        return sum(self.widths)

    def forward(self, parameters: Tensor, X: Tensor, align: Align | None = None) -> Tensor:
        X = X if align is None else align(X)
        self._inputs = [X]
        for layer, (weight, bias) in enumerate(self._views(parameters)):
            out = self._buffer("sum", layer, (*X.shape[:2], weight.shape[2]), parameters)
            if bias is None:
                torch.bmm(X, weight, out=out)
            else:
                torch.baddbmm(bias, X, weight, out=out)
            X = out.relu_() if self.relu else out
            self._inputs.append(X)
        return X

    def backward(
        self, parameters: Tensor, grad_features: Tensor, grad: Tensor | None, *, grad_input: bool
    ) -> Tensor | None:
        layers = self._views(parameters)
        grads = self._views(grad) if grad is not None else None
        upper = grad_features
        for layer in reversed(range(len(layers))):
            if self.relu:
                _zero_where_off(upper, self._inputs[layer + 1])
            weight = layers[layer][0]
            if grads is not None:
                weight_grad, bias_grad = grads[layer]
                torch.bmm(self._inputs[layer].transpose(1, 2), upper, out=weight_grad)
                if bias_grad is not None:
                    torch.sum(upper, 1, keepdim=True, out=bias_grad)
            if layer or grad_input:
                out = self._buffer("grad", layer, (*upper.shape[:2], weight.shape[1]), parameters)
                upper = torch.bmm(upper, weight.transpose(1, 2), out=out)
        return upper if grad_input else None


def _zero_where_off(grad: Tensor, activation: Tensor) -> None:
    """``grad *= [activation > 0]`` in one pass, in place."""
    torch.ops.aten.threshold_backward.grad_input(grad, activation, 0, grad_input=grad)


LINEAR = register(Dense("linear", relu=False, bias=False, deep=False))
RELU = register(Dense("relu", relu=True, bias=False, deep=False))
MLP = register(Dense("mlp", relu=True, bias=True, deep=True))
