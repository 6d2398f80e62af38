"""The default metrics as tensor operations, for models that live on a device.

The values are those of ``tasks.metrics`` (tested); weighted rows and other metrics go through that room.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def roc_auc(y: Tensor, p: Tensor) -> Tensor:
    """Share of (positive, negative) pairs in the right order, ties counting one half; NaN without both classes.

    ``y (m,)`` of 0 and 1, ``p (g, m)``.
    """
    positive, negative = p[:, y > 0], p[:, y <= 0]
    pairs = positive.shape[1] * negative.shape[1]
    if not pairs:
        return torch.full((len(p),), torch.nan, dtype=p.dtype, device=p.device)
    ordered = negative.sort(dim=1).values
    positive = positive.contiguous()
    below = torch.searchsorted(ordered, positive).sum(1) + torch.searchsorted(ordered, positive, right=True).sum(1)
    return below.to(p.dtype) / (2 * pairs)


def accuracy(y: Tensor, p: Tensor) -> Tensor:
    """Share of rows decided right; more than one half decides for class 1."""
    return ((p > 0.5) == (y > 0)).to(p.dtype).mean(1)


def r2(y: Tensor, p: Tensor) -> Tensor:
    """``1 - residual / total`` sum of squares."""
    residual, total = (y - p).square().sum(1), (y - y.mean()).square().sum()
    return 1 - residual / total


FORMULAS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"roc_auc": roc_auc, "accuracy": accuracy, "r2": r2}


def device_scores(metric: str, y: Tensor, p: Tensor) -> Tensor | None:
    """Scores ``(g,)`` of predictions ``p (g, m)``, NaN where one is not finite; None when only numpy knows the metric.

    Fewer than two rows or constant labels are left to ``tasks.metrics`` as well.
    """
    if metric not in FORMULAS or len(y) < 2 or bool((y == y[0]).all()):
        return None
    value = FORMULAS[metric](y, p)
    return torch.where(torch.isfinite(p).all(1), value, torch.nan)
