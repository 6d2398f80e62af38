"""Sums over rows from which covariances, ridge solutions and cross-validation follow without the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.errors import InputError
from mtlens.theory.inputs import is_tensor, one_ridge, to_numpy

BLOCK_ROWS = 4096  # float32 sums stay this short, then go on in float64: score equal to 1e-9, one temporary of d x d
_FLOAT32_PEAK = (1e-15, 1e15)  # outside, squares leave the range of float32: that block is multiplied in float64


class Gram:
    """Streaming sums of one task's rows: ``X^T X``, and with labels ``X^T y``, ``y^T y`` and the column sums, per fold.

    float32 rows are multiplied in float32 blocks with a symmetric product and summed in float64; anything else is
    float64 throughout. Nothing is centred while streaming: centring is arithmetic on the sums afterwards. Labels may be
    one column (a task) or several over the same rows; missing labels must be left out by the caller, with their rows.

    Args:
        width: number of features d; found at the first ``update`` when None.
        folds: how many folds the rows are divided in; each keeps its own sums.

    Attributes:
        counts: ``(folds,)`` rows so far.

    Example:
        >>> gram = Gram().update(np.array([[1.0, 0.0], [1.0, 2.0]]))
        >>> gram.matrix.tolist(), gram.rows
        ([[2.0, 2.0], [2.0, 4.0]], 2)
    """

    def __init__(self, width: int | None = None, *, folds: int = 1) -> None:
        if isinstance(folds, bool) or not isinstance(folds, (int, np.integer)) or folds < 1:
            raise InputError(f"Gram needs a whole number and at least one fold, found folds={folds!r}.")
        if width is not None and (isinstance(width, bool) or not isinstance(width, (int, np.integer)) or width < 1):
            raise InputError(f"Gram needs a whole number and at least one feature, found width={width!r}.")
        self.counts = np.zeros(folds, np.int64)
        self._xx: FloatArray | None = None
        self._x: FloatArray | None = None
        self._xy: FloatArray | None = None
        self._y: FloatArray | None = None
        self._yy: FloatArray | None = None
        if width is not None:
            self._open(width)

    @classmethod
    def from_batches(cls, batches: Iterable[Any], *, folds: int = 1) -> Gram:
        """Sum over batches, each ``X``, ``(X, y)`` or ``(X, y, fold)``; without a fold, rows go to folds in turn.

        A torch ``DataLoader`` is such an iterable: its batches are lists, ``[X, y]``.
        """
        gram = cls(folds=folds)
        if not isinstance(batches, Iterable):
            raise InputError(f"Gram.from_batches needs batches to go through, found {type(batches).__name__}.")
        for batch in batches:
            several = isinstance(batch, tuple) or (
                isinstance(batch, list) and len(batch) > 0 and getattr(batch[0], "ndim", 1) == 2
            )
            parts: Sequence[Any] = batch if several else (batch,)
            gram.update(*parts[:2], fold=parts[2] if len(parts) > 2 else None)
        if gram._xx is None:
            raise InputError("Gram.from_batches found no batch. Give at least one block of rows.")
        return gram

    def update(self, X: Any, y: Any = None, *, fold: Any = None) -> Gram:
        """Add rows ``(m, d)`` and their labels ``(m,)`` or ``(m, k)``; returns itself.

        Args:
            fold: the fold of all these rows, ``(m,)`` folds one a row, or None: rows go to folds in turn.
        """
        rows = _rows(X)
        labels = None if y is None else _labels(y, len(rows))
        if self._xx is None:
            self._open(rows.shape[1])
        self._refuse_other_width(rows.shape[1], "rows")
        for which, part in self._parts(len(rows), fold):
            self._add(rows[part], None if labels is None else labels[part], which)
        return self

    def merge(self, other: Gram) -> Gram:
        """Add another accumulator's sums (same width, folds and labels); returns itself, ``other`` is not changed."""
        if not isinstance(other, Gram):
            raise InputError(f"Gram.merge needs another Gram, found {type(other).__name__}. Use update for rows.")
        if self._xx is None and other._xx is not None:
            self._open(len(other.x_sum))
        if other._xx is None:
            return self
        self._refuse_other_width(len(other.x_sum), "a Gram")
        if other.num_folds != self.num_folds:
            raise InputError(f"Gram.merge needs equal folds, found {self.num_folds} and {other.num_folds}.")
        if self.rows and other.rows and (self._xy is None) != (other._xy is None):
            raise InputError("Gram.merge: one side has labels and the other has none. Give both labels, or neither.")
        if other._xy is not None:
            self._open_labels(other._xy.shape[2])
        for name in ("_xx", "_x", "_xy", "_y", "_yy"):
            if (theirs := getattr(other, name)) is not None:
                getattr(self, name)[...] += theirs
        self.counts += other.counts
        return self

    @property
    def num_folds(self) -> int:
        return len(self.counts)

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    @property
    def matrix(self) -> FloatArray:
        """``(d, d)`` uncentred ``X^T X`` over all folds."""
        return _total(self._filled("_xx"))

    @property
    def x_sum(self) -> FloatArray:
        """``(d,)`` column sums of X."""
        return _total(self._filled("_x"))

    @property
    def xy(self) -> FloatArray:
        """``(d, k)`` products ``X^T Y``."""
        return _total(self._filled("_xy"))

    @property
    def y_sum(self) -> FloatArray:
        """``(k,)`` sums of the labels."""
        return _total(self._filled("_y"))

    @property
    def yy(self) -> FloatArray:
        """``(k, k)`` products ``Y^T Y``."""
        return _total(self._filled("_yy"))

    def covariance(self, *, center: bool = False) -> FloatArray:
        """``(d, d)`` sum of squares and products, of rows as given or around their mean (not divided by the rows)."""
        return self.matrix - np.outer(self.x_sum, self.x_sum) / max(self.rows, 1) if center else self.matrix

    def fold(self, which: int) -> Gram:
        """One fold's sums as a Gram of their own."""
        return self._selected([self._place(which)])

    def without(self, which: int) -> Gram:
        """The sums of all other folds: the training side of a cross-validation."""
        left_out = self._place(which)
        return self._selected([f for f in range(self.num_folds) if f != left_out])

    def ridge(self, ridge: float = 0.0, *, center: bool = False) -> FloatArray:
        """``(d, k)`` minimisers of ``|X t - y|^2 + ridge |t|^2`` (minimum norm), centred X and y when asked."""
        ridge = one_ridge(ridge, "Gram.ridge")
        xy = self.xy - np.outer(self.x_sum, self.y_sum) / max(self.rows, 1) if center else self.xy
        C = self.covariance(center=center)
        values, vectors = np.linalg.eigh(C)
        cut = values.max(initial=0.0) * len(values) * np.finfo(np.float64).eps
        inverse = np.divide(1.0, values + ridge, out=np.zeros_like(values), where=values + ridge > cut)
        coef: FloatArray = vectors @ (inverse[:, None] * (vectors.T @ xy))
        return coef

    def loss(self, coef: Any) -> FloatArray:
        """``(k,)`` sums of squared errors of ``(d, k)`` coefficients (no intercept)."""
        t = to_numpy(coef, "Gram.loss")
        t = t[:, None] if t.ndim == 1 else t
        if t.shape != self.xy.shape:
            raise InputError(f"Gram.loss needs coefficients of shape {self.xy.shape}, found {t.shape}.")
        squares: FloatArray = np.diag(self.yy) - 2 * (t * self.xy).sum(axis=0) + (t * (self.matrix @ t)).sum(axis=0)
        return squares

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return np.asarray(self.matrix, dtype=dtype)

    def __repr__(self) -> str:
        width = "?" if self._xx is None else self._xx.shape[1]
        labels = 0 if self._xy is None else self._xy.shape[2]
        return f"Gram({self.rows} rows, {width} features, {labels} label columns, {self.num_folds} folds)"

    def _open(self, width: int) -> None:
        self._xx = np.zeros((self.num_folds, width, width))
        self._x = np.zeros((self.num_folds, width))

    def _open_labels(self, count: int) -> None:
        if self._xy is None:
            width = self._filled("_x").shape[1]
            self._xy = np.zeros((self.num_folds, width, count))
            self._y = np.zeros((self.num_folds, count))
            self._yy = np.zeros((self.num_folds, count, count))
        elif self._xy.shape[2] != count:
            raise InputError(
                f"Gram holds {self._xy.shape[2]} label columns, found {count}. Give the same columns each time."
            )

    def _parts(self, count: int, fold: Any) -> Iterable[tuple[int, Any]]:
        """``(fold, rows)`` pairs; consecutive slices of one fold, so no row is copied when there is one."""
        if fold is None and self.num_folds == 1:
            fold = 0
        if fold is None:
            fold = (np.arange(count) + self.rows) % self.num_folds
        which = np.asarray(fold)
        if which.ndim > 1 or (which.ndim == 1 and len(which) != count) or which.dtype.kind not in "iu":
            raise InputError(f"Gram.update needs one whole fold, or one for each of {count} rows, found {fold!r}.")
        if which.size and not (which.min() >= 0 and which.max() < self.num_folds):
            raise InputError(f"Gram.update: folds run from 0 to {self.num_folds - 1}, found {int(which.max())}.")
        if which.ndim == 0:
            return [(int(which), slice(None))]
        return [(int(f), np.flatnonzero(which == f)) for f in np.unique(which)]

    def _add(self, rows: Array, labels: FloatArray | None, fold: int) -> None:
        if (self._xy is not None) != (labels is not None) and self.rows:
            raise InputError("Gram.update: some rows came with labels and some without. Give labels always, or never.")
        xx, x = self._filled("_xx")[fold], self._filled("_x")[fold]
        for start in range(0, len(rows), BLOCK_ROWS):
            block = rows[start : start + BLOCK_ROWS]
            block = _within_range(block)
            xx += block.T @ block
            x += block.sum(axis=0, dtype=np.float64)
        if labels is not None:
            self._open_labels(labels.shape[1])
            self._filled("_xy")[fold] += _product(rows, labels)
            self._filled("_y")[fold] += labels.sum(axis=0)
            self._filled("_yy")[fold] += labels.T @ labels
        self.counts[fold] += len(rows)

    def _place(self, which: int) -> int:
        if isinstance(which, bool) or not isinstance(which, (int, np.integer)) or not 0 <= which < self.num_folds:
            raise InputError(f"Gram: folds run from 0 to {self.num_folds - 1}, found {which!r}.")
        return int(which)

    def _selected(self, folds: list[int]) -> Gram:
        chosen = Gram()
        chosen.counts = self.counts[folds].sum(keepdims=True)
        for name in ("_xx", "_x", "_xy", "_y", "_yy"):
            if (mine := getattr(self, name)) is not None:
                setattr(chosen, name, mine[folds].sum(axis=0, keepdims=True))
        return chosen

    def _filled(self, name: str) -> FloatArray:
        value: FloatArray | None = getattr(self, name)
        if value is None:
            what = "rows" if name in {"_xx", "_x"} else "labels"
            raise InputError(f"this Gram has seen no {what}. Call update(X, y) or from_batches first.")
        return value

    def _refuse_other_width(self, width: int, what: str) -> None:
        mine = self._filled("_x").shape[1]
        if width != mine:
            raise InputError(
                f"Gram needs one feature space: it holds {mine} columns, found {what} of {width}. "
                "Embed both with the same encoder, or project them to one width first."
            )


def _total(per_fold: FloatArray) -> FloatArray:
    return per_fold[0] if len(per_fold) == 1 else np.asarray(per_fold.sum(axis=0))


def _rows(X: Any) -> Array:
    """A finite ``(m, d)`` array: float32 stays float32, the rest becomes float64."""
    is_float32 = str(getattr(X, "dtype", "")) in {"float32", "torch.float32"}
    rows = (X.detach().cpu().numpy() if is_tensor(X) else np.asarray(X)) if is_float32 else to_numpy(X, "Gram.update")
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise InputError(
            f"Gram.update needs rows and columns, found shape {rows.shape}. Use X[:, None] for one column."
        )
    return rows


def _labels(y: Any, count: int) -> FloatArray:
    labels = to_numpy(y, "Gram.update")
    labels = labels[:, None] if labels.ndim == 1 else labels
    if labels.ndim != 2 or len(labels) != count:
        raise InputError(f"Gram.update: X has {count} rows, but y has shape {labels.shape}. Give one label a row.")
    if not np.isfinite(labels).all():
        row = int((~np.isfinite(labels)).any(axis=1).argmax())
        raise InputError(f"Gram.update: the label of row {row} is missing or infinite. Leave out rows without a label.")
    return labels


def _within_range(block: Array) -> Array:
    """The block as it should be multiplied: float64 where float32 squares would overflow or vanish."""
    if block.size == 0:
        return block
    peak = max(float(block.max()), -float(block.min()))
    if not np.isfinite(peak):
        bad = ~np.isfinite(block).all(axis=1)
        raise InputError(
            f"Gram.update: {int(bad.sum())} of {len(block)} rows of a block are not finite (first at row "
            f"{int(bad.argmax())} of the block), so its covariance is undefined. Drop or fill those rows first."
        )
    if block.dtype == np.float32 and peak and not _FLOAT32_PEAK[0] < peak < _FLOAT32_PEAK[1]:
        return block.astype(np.float64)
    return block


def _product(rows: Array, labels: FloatArray) -> FloatArray:
    """``X^T Y`` in float64, without a float64 copy of all rows."""
    total = np.zeros((rows.shape[1], labels.shape[1]))
    for start in range(0, len(rows), BLOCK_ROWS):
        stop = start + BLOCK_ROWS
        total += rows[start:stop].T.astype(np.float64) @ labels[start:stop]
    return total
