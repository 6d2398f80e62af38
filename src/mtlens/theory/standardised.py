"""Tasks seen from the training rows of one fold: centred, scaled, ready for ridge regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.errors import InputError
from mtlens.theory.folded import Moments


@dataclass(frozen=True, eq=False)
class Standard:
    """One task seen from the training rows of one fold: inputs and labels centred and scaled, and the held-out rows."""

    G: FloatArray  # (d, d)
    c: FloatArray  # (d, q)
    rows: float
    mean_x: FloatArray
    mean_y: FloatArray
    scale_y: float
    hold_xx: FloatArray
    hold_xy: FloatArray
    hold_yy: float


@dataclass(frozen=True, eq=False)
class View:
    """All tasks with one fold left out (or none): what models are fitted to and judged on."""

    scale_x: FloatArray
    tasks: tuple[Standard, ...]
    sharing: tuple[int, ...]  # tasks with the same number have the same G and the same held-out inputs
    kept: dict[Any, Any] = field(default_factory=dict)  # eigenbases and merged sources, made when first asked for

    def eigen(self, i: int) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues (not negative) and eigenvectors of a task's ``G``; once for tasks that share it."""
        key = ("eigen", self.sharing[i])
        if key not in self.kept:
            self.kept[key] = _eigen(self.tasks[i].G)
        values, vectors = self.kept[key]
        return values, vectors


def standardised(
    total: Sequence[Moments],
    held: Sequence[Moments] | None,
    sharing: Sequence[int],
    names: Sequence[str],
    fold: int | None,
) -> View:
    """Every task centred and scaled by what its training rows say.

    Args:
        total: moments of all rows of each task.
        held: those of the rows that fold number ``fold`` leaves out; None leaves nothing out.
        sharing: equal numbers for tasks with the same inputs and rows; they keep sharing their matrices.
        names: of the tasks, for messages.
    """
    train = list(total) if held is None else Moments.combined(total, held, -1, sharing)
    centred: dict[int, FloatArray] = {}
    labels = []
    for moments, group, name in zip(train, sharing, names, strict=True):
        if moments.mass <= 0:
            raise InputError(
                f"task {name!r} has no labelled row outside fold {fold}, so nothing to train on: its rows are kept "
                "together by groups, by inputs shared with other tasks, or by the folds given. Leave that task "
                "out, or give it rows of other groups."
            )
        xx, xy, yy = moments.about(moments.mean_x, moments.mean_y, inputs=group not in centred)
        centred.setdefault(group, xx)
        labels.append((xy, max(yy, 0.0) / moments.mass))
    scale_x = _column_scales(
        np.stack([np.diagonal(centred[g]) / m.mass for g, m in zip(sharing, train, strict=True)]),
        np.stack([np.diagonal(t.xx) / m.mass for t, m in zip(total, train, strict=True)]),
    )
    scale_y = _label_scales(np.array([v for _, v in labels]), np.array([m.mass for m in train]))

    outer = np.outer(scale_x, scale_x)
    scaled = {group: xx / outer for group, xx in centred.items()}
    held_inputs: dict[int, FloatArray] = {}
    tasks = []
    for i, (moments, group) in enumerate(zip(train, sharing, strict=True)):
        unit_y = float(scale_y[i])
        hold_xx, hold_xy, hold_yy = np.zeros((0, 0)), np.zeros((0, 0)), 0.0
        if held is not None:
            is_first = group not in held_inputs
            raw_xx, raw_xy, raw_yy = held[i].about(moments.mean_x, moments.mean_y, inputs=is_first)
            hold_xx = held_inputs.setdefault(group, raw_xx / outer if is_first else raw_xx)
            hold_xy, hold_yy = raw_xy / (scale_x[:, None] * unit_y), raw_yy / unit_y**2
        c = labels[i][0] / (scale_x[:, None] * unit_y)
        means = moments.mean_x, moments.mean_y
        tasks.append(Standard(scaled[group], c, moments.mass, *means, unit_y, hold_xx, hold_xy, hold_yy))
    return View(scale_x, tuple(tasks), tuple(sharing))


def _eigen(G: FloatArray) -> tuple[FloatArray, FloatArray]:
    values, vectors = np.linalg.eigh(G)
    return np.maximum(values, 0.0), vectors


def _column_scales(variances: FloatArray, squares: FloatArray) -> FloatArray:
    """One standard deviation a column: the geometric mean over the tasks in which the column varies.

    Infinite where it varies in none (a rare word whose rows are all held out): such a column takes no part. Training
    sums are differences of sums over all rows, ``squares``, so a variance within their rounding error is none.

    Args:
        variances: ``(k, d)`` of the training rows.
        squares: ``(k, d)`` sums of squares over all rows, in the same unit.
    """
    noise = 1e-12 * np.maximum(squares, variances.max(axis=0))
    varies = variances > np.maximum(noise, np.finfo(float).tiny)
    logs = np.where(varies, np.log(np.where(varies, variances, 1.0)), 0.0)
    scales: FloatArray = np.exp(0.5 * logs.sum(axis=0) / np.maximum(varies.sum(axis=0), 1))
    return np.where(varies.any(axis=0), scales, np.inf)


def _label_scales(variances: FloatArray, rows: FloatArray) -> FloatArray:
    """Standard deviations of the labels, drawn to their common value as far as sampling explains how they differ.

    On the log scale a sample standard deviation has variance about ``1 / (2 (m - 1))``; what the tasks differ beyond
    that is real (other units) and kept. Tasks in one unit with few rows then share one scale; tasks in metres and
    millimetres keep their own.
    """
    known = variances > 0
    if not known.any():
        return np.ones(len(variances))
    logs = 0.5 * np.log(variances[known])
    noise = 0.5 / np.maximum(rows[known] - 1.0, 1.0)
    precision = 1.0 / noise
    centre = float(precision @ logs / precision.sum())
    freedom = len(logs) - 1
    excess = float(precision @ (logs - centre) ** 2) - freedom
    spread = max(excess, 0.0) / max(precision.sum() - (precision**2).sum() / precision.sum(), np.finfo(float).tiny)
    keep = spread / (spread + noise) if freedom else np.ones(1)
    scales = np.ones(len(variances))
    scales[known] = np.exp(centre + keep * (logs - centre))
    return scales
