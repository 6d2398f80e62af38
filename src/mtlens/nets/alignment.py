"""Algorithm 1's per-task matrix ``R_i``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mtlens.errors import InputError
from mtlens.nets.streams import torch_stream


class Alignment(nn.Module):
    r"""A task's own linear map of a feature space, ``Z = X R`` (paper, Algorithm 1), starting as the identity.

    ``rank=None`` trains the full matrix ``R (d, d)``. ``rank=r`` trains ``R = I + U V^T`` with ``U, V (d, r)``; ``V``
    starts at zero (so ``R = I``) and ``U`` at random, since a product of two zeros would never move. The regularised
    form adds ``penalty * |R - I|_F^2`` to the loss (:meth:`regulariser`), which pulls ``R`` to the shared solution.

    Args:
        d: width of the space; inputs are ``(..., d)``.
        rank: None for a full matrix, else ``1 <= rank <= d``.
        penalty: strength of the pull to the identity, at least 0.
        seed: starts ``U``; not used by the full form.

    Example:
        >>> align = Alignment(3)
        >>> torch.equal(align(torch.ones(2, 3)), torch.ones(2, 3))
        True
    """

    def __init__(self, d: int, *, rank: int | None = None, penalty: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        _check(d, rank, penalty)
        self.d, self.rank, self.penalty = int(d), None if rank is None else int(rank), float(penalty)
        if rank is None:
            self.R = nn.Parameter(torch.eye(d))
        else:
            draws = torch.randn(d, rank, generator=torch_stream(seed, "alignment"), dtype=torch.float64)
            self.U = nn.Parameter((draws / d**0.5).to(torch.get_default_dtype()))
            self.V = nn.Parameter(torch.zeros(d, rank))

    def matrix(self) -> Tensor:
        """``R``, ``(d, d)``."""
        if self.rank is None:
            return self.R
        return torch.eye(self.d, dtype=self.U.dtype, device=self.U.device) + self.U @ self.V.T

    def deviation(self) -> Tensor:
        """``R - I``, ``(d, d)``."""
        if self.rank is None:
            return self.R - torch.eye(self.d, dtype=self.R.dtype, device=self.R.device)
        return self.U @ self.V.T

    def regulariser(self) -> Tensor:
        """``penalty * |R - I|_F^2``, a scalar; add it to the loss."""
        return self.penalty * self.deviation().square().sum()

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.d:
            raise InputError(
                f"Alignment({self.d}) maps features of width {self.d}, but got shape {tuple(x.shape)}. "
                f"Make it with d={x.shape[-1]}, or put it where the features are {self.d} wide."
            )
        if self.rank is None:
            return x @ self.R
        return x + (x @ self.U) @ self.V.T

    def extra_repr(self) -> str:
        return f"{self.d}, rank={self.rank}, penalty={self.penalty}"


def _check(d: Any, rank: Any, penalty: Any) -> None:
    if not _is_whole(d) or d < 1:
        raise InputError(
            f"Alignment: d={d!r}. It needs the width of the features it maps, a whole number of at least 1."
        )
    if rank is not None and not (_is_whole(rank) and 1 <= rank <= d):
        raise InputError(f"Alignment: rank={rank!r} for width {d}. Use 1 <= rank <= {d}, or None for a full matrix.")
    if not isinstance(penalty, (int, float, np.floating)) or not 0 <= penalty < float("inf"):
        raise InputError(
            f"Alignment: penalty={penalty!r}. It pulls R to the identity and needs a finite number, 0 or more."
        )


def _is_whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def alignment_matrices(rows: Tensor, d: int, rank: int | None) -> tuple[Tensor, ...]:
    """Parameters of ``B`` alignments ``(B, numbers)`` as ``R (B, d, d)``, or as ``U, V (B, d, rank)``; views."""
    if rank is None:
        return (rows.view(-1, d, d),)
    both = rows.view(-1, 2, d, rank)
    return both[:, 0], both[:, 1]


def apply_alignment(X: Tensor, matrices: tuple[Tensor, ...]) -> Tensor:
    """``X R``, or ``X + (X U) V^T``, for ``X (B, n, d)``."""
    if len(matrices) == 1:
        return torch.bmm(X, matrices[0])
    U, V = matrices
    return torch.baddbmm(X, torch.bmm(X, U), V.transpose(1, 2))


def alignment_gradient(X: Tensor, below: Tensor, matrices: tuple[Tensor, ...], pull: Tensor) -> Tensor:
    """Gradient of loss and ``pull * |R - I|_F^2`` in the alignments' parameters, ``(B, parameters)``.

    ``dR = X^T G + 2 pull (R - I)``; with ``R = I + U V^T``: ``dU = X^T G V + 2 pull U V^T V``,
    ``dV = G^T X U + 2 pull V U^T U``.
    """
    if len(matrices) == 1:
        (R,) = matrices
        gradient = torch.bmm(X.transpose(1, 2), below)
        eye = torch.eye(R.shape[1], dtype=R.dtype, device=R.device)
        return (gradient + 2 * pull * (R - eye)).flatten(1)
    U, V = matrices
    dU = torch.bmm(X.transpose(1, 2), torch.bmm(below, V)) + 2 * pull * torch.bmm(U, torch.bmm(V.transpose(1, 2), V))
    dV = torch.bmm(below.transpose(1, 2), torch.bmm(X, U)) + 2 * pull * torch.bmm(V, torch.bmm(U.transpose(1, 2), U))
    return torch.stack([dU, dV], 1).flatten(1)
