"""Word vectors as a layer, and the two Adams that train them cheaply.

A batch of 50 sentences touches some 600 rows of a table of 20,000, so the layer hands out *sparse* gradients, and the
optimizer decides what to do with them: `DenseTableAdam` is plain Adam, `RowwiseAdam` is a different, cheaper algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlens.errors import InputError, unknown

EmbeddingMode: TypeAlias = Literal["frozen", "dense", "rowwise"]
EMBEDDING_MODES: tuple[EmbeddingMode, ...] = ("frozen", "dense", "rowwise")
PADDING = 0  # token id of "no word": its vector is zero and stays zero


class WordEmbedding(nn.Module):
    """Token ids to vectors; id 0 is padding and always the zero vector.

    ``mode="frozen"`` keeps the table as a buffer, so many models share one copy. The other two make it a parameter with
    sparse gradients: step it with `DenseTableAdam` ("dense": plain Adam) or `RowwiseAdam` ("rowwise").

    Args:
        vectors: ``(V, d)`` floating table. Not copied when frozen.
        mode: how the table is trained.
        mean: whether to average a text's vectors; padding does not count and an empty text averages to zero.

    Shape: ``(n, L)`` integer ids to ``(n, L, d)``, or to ``(n, d)`` with ``mean=True``.

    >>> layer = WordEmbedding(torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]]), mean=True)
    >>> layer(torch.tensor([[1, 2, 0], [0, 0, 0]]))
    tensor([[2., 3.],
            [0., 0.]])
    """

    weight: Tensor

    def __init__(self, vectors: Tensor, *, mode: EmbeddingMode = "frozen", mean: bool = False) -> None:
        super().__init__()
        if mode not in EMBEDDING_MODES:
            raise unknown("embedding mode", mode, EMBEDDING_MODES)
        if vectors.ndim != 2 or not vectors.is_floating_point() or 0 in vectors.shape:
            raise InputError(
                f"WordEmbedding needs a floating table with a row a word, found {vectors.dtype} of shape "
                f"{tuple(vectors.shape)}. Give (V, d) vectors, row 0 being the padding."
            )
        if not vectors.is_meta and bool(vectors[PADDING].any()):  # a meta tensor has a shape and no values
            raise InputError(
                "WordEmbedding: row 0 is the padding and must be zero. Prepend a row of zeros to the vectors."
            )
        self.mode: EmbeddingMode = mode
        self.mean = mean
        if mode == "frozen":
            self.register_buffer("weight", vectors)
        else:
            self.weight = nn.Parameter(vectors.clone())

    @property
    def width(self) -> int:
        return self.weight.shape[1]

    def forward(self, tokens: Tensor) -> Tensor:
        is_sparse = self.mode != "frozen" and self.weight.requires_grad
        if not self.mean:
            return functional.embedding(tokens, self.weight, padding_idx=PADDING, sparse=is_sparse)
        return functional.embedding_bag(tokens, self.weight, mode="mean", padding_idx=PADDING, sparse=is_sparse)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]} words, {self.width} columns, {self.mode}{', mean' if self.mean else ''}"


class RowwiseAdam(torch.optim.Optimizer):
    r"""Adam on the rows that have a gradient; the others keep their values *and their moments*.

    For a row with gradient ``g`` at step ``t``: ``m = b1 m + (1-b1) g``, ``v = b2 v + (1-b2) g^2``,
    ``w -= lr (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps)``, with ``t`` counting steps of the whole table.

    This is a *different algorithm* from Adam: there, a row unseen in a batch still moves along its old ``m`` and its
    moments decay. It is that of ``torch.optim.SparseAdam`` but for ``eps``, which stands where Adam has it (SparseAdam
    adds it before the correction of ``v``), with an optional L2 term on the rows seen.
    Cost: proportional to the rows of a batch, not to the table.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._step_table(table, group)

    def _step_table(self, table: Tensor, group: dict[str, Any]) -> None:
        state = self.state[table]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(table), exp_avg_sq=torch.zeros_like(table))
        state["step"] += 1
        rows, gradient = _rows_of(table.grad)
        if group["weight_decay"]:
            gradient = gradient + group["weight_decay"] * table[rows]
        beta1, beta2 = group["betas"]
        first = state["exp_avg"].index_select(0, rows).lerp_(gradient, 1 - beta1)  # (u, d)
        second = state["exp_avg_sq"].index_select(0, rows).mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        state["exp_avg"].index_copy_(0, rows, first)
        state["exp_avg_sq"].index_copy_(0, rows, second)
        correction1, correction2 = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
        denominator = second.sqrt_().div_(math.sqrt(correction2)).add_(group["eps"])
        table.index_add_(0, rows, first.div_(denominator), alpha=-group["lr"] / correction1)


class DenseTableAdam(torch.optim.Optimizer):
    """Plain Adam for parameters of which some are tables with sparse gradients: the numbers of ``torch.optim.Adam``
    with dense ones.

    One gradient buffer a table lives as long as the optimizer; a step adds the batch's rows into it, runs the fused
    kernel once over everything, and clears those rows again. So no step allocates or zeroes a whole table, sorts the
    batch's words, or reads the table ten times.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        # fused: so that loading a state puts its steps beside their parameters, where the kernel is
        given = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "fused": True}
        super().__init__(params, given)
        self._buffers: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            if moved:
                self._step_group(group, moved)

    def _step_group(self, group: dict[str, Any], moved: list[Tensor]) -> None:
        states = [self._state_of(parameter) for parameter in moved]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        beta1, beta2 = group["betas"]
        torch._fused_adam_(
            moved,
            [self._gradient(parameter) for parameter in moved],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )
        for parameter in moved:
            if parameter.grad is not None and parameter.grad.is_sparse:
                self._buffers[parameter].index_fill_(0, parameter.grad._indices()[0], 0.0)

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state.update(
                step=torch.zeros((), dtype=torch.float32, device=parameter.device),
                exp_avg=torch.zeros_like(parameter),
                exp_avg_sq=torch.zeros_like(parameter),
            )
        return state

    def _gradient(self, parameter: Tensor) -> Tensor:
        """The dense gradient; a sparse one is added to its table's buffer of zeros, words that come twice twice."""
        assert parameter.grad is not None
        if not parameter.grad.is_sparse:
            return parameter.grad
        if parameter not in self._buffers:
            self._buffers[parameter] = torch.zeros_like(parameter)
        return self._buffers[parameter].add_(parameter.grad)


def own_values(module: nn.Module) -> dict[str, Tensor]:
    """``state_dict`` without frozen embedding tables: those are data, shared by many models, and not the model's own.

    >>> layer = WordEmbedding(torch.zeros(2, 3))
    >>> list(layer.state_dict()), list(own_values(layer))
    (['weight'], [])
    """
    tables = {
        f"{name}.weight" if name else "weight"
        for name, part in module.named_modules()
        if isinstance(part, WordEmbedding) and part.mode == "frozen"
    }
    return {name: value for name, value in module.state_dict().items() if name not in tables}


def _rows_of(gradient: Tensor | None) -> tuple[Tensor, Tensor]:
    """Distinct rows ``(u,)`` and their gradients ``(u, d)``; a dense gradient has every row."""
    assert gradient is not None
    if not gradient.is_sparse:
        return torch.arange(len(gradient), device=gradient.device), gradient
    summed = gradient.coalesce()
    return summed.indices()[0], summed.values()
