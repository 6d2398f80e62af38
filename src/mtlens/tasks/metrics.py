"""How predictions are scored: eleven metrics, each with a direction, batched over leading axes.

``METRICS[name].value(y, prediction, weight)`` is the number as the field prints it; ``oriented`` is the same with
its sign turned where lower is better, so that higher is always better. Both score a whole batch at once: ``y`` and
``prediction`` broadcast over any leading axes, and one prediction is a batch of one.

Where a value does not exist the answer is NaN, never a guess and never an error:

* no labelled rows: every metric;
* labels of one class only: ROC-AUC (scikit-learn warns); no positive label: average precision (scikit-learn warns and
  says 0); neither a positive label nor a positive decision: F1 (same);
* several classes, one of them absent: one-against-rest ROC-AUC and average precision;
* constant labels or predictions: Pearson and Spearman; fewer than two rows: R2, Pearson, Spearman;
* a prediction that is NaN on a row that counts: every metric (a diverged model has no score).

Values that do exist on such folds: balanced accuracy averages over the classes that occur, Matthews is 0 when labels
or decisions are all one class, log loss and accuracy stay what they are, and R2 on constant labels is 1 when met
exactly and 0 otherwise. Everywhere else the values are those of scikit-learn and scipy.

>>> y = np.array([0.0, 0.0, 1.0, np.nan])
>>> METRICS["roc_auc"].value(y, np.array([[0.1, 0.4, 0.3, 0.9], [0.1, 0.2, 0.3, 0.9]]))
array([0.5, 1. ])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.errors import InputError, unknown
from mtlens.tasks import formulas

if TYPE_CHECKING:
    from mtlens.tasks.task import Kind, Task

Needs: TypeAlias = Literal["number", "decision", "ranking", "probability"]
SLACK = 1e-6  # probabilities are refused further than this outside [0, 1]; float32 softmax strays by 1e-7


@dataclass(frozen=True)
class Metric:
    """One way to score predictions.

    Attributes:
        name: its key in ``METRICS``.
        higher_is_better: False for losses and errors.
        kinds: kinds of task it can score.
        needs: what it reads from a prediction: a ``number``, the ``decision`` it implies (the most probable class,
            the first one on ties), the ``ranking`` of rows by it, or a ``probability`` in [0, 1].
    """

    name: str
    higher_is_better: bool
    kinds: tuple[Kind, ...]
    needs: Needs
    formula: formulas.Formula

    def value(self, y: Any, prediction: Any, weight: Any = None, *, classes: int | None = None) -> FloatArray:
        """The metric as printed, one number for every leading index.

        Args:
            y: ``(..., m)`` labels, codes ``0 .. K-1`` for classes; rows with NaN are left out.
            prediction: ``(..., m)`` numbers, or probabilities of class 1; or ``(..., m, K)`` probabilities.
            weight: ``(..., m)`` non-negative; a row of weight 2 counts as two rows, one of weight 0 is left out.
            classes: K when ``prediction`` has a class axis, 0 when it has none. Found from the shapes when not
                given: a class axis is there when ``prediction`` is ``y``'s shape with one axis added at the end.

        Returns:
            float64 of the broadcast leading shape; 0-d for one prediction.
        """
        rows = _Rows.of(self, y, prediction, weight, classes)
        with np.errstate(over="ignore", invalid="ignore"):  # infinite predictions give an infinite error, or NaN
            values = self.formula(rows.y, rows.p, rows.w, rows.num_classes)
        return np.where(rows.broken, np.nan, values).reshape(rows.lead)

    def oriented(self, y: Any, prediction: Any, weight: Any = None, *, classes: int | None = None) -> FloatArray:
        """:meth:`value` with its sign turned where lower is better: higher is always better."""
        value = self.value(y, prediction, weight, classes=classes)
        return value if self.higher_is_better else -value


_NUMERIC: tuple[Kind, ...] = ("regression", "binary")  # 0/1 labels are numbers too: R2 of a probability is sound
_CLASSES: tuple[Kind, ...] = ("binary", "multiclass")

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", True, _CLASSES, "decision", formulas.accuracy),
        Metric("balanced_accuracy", True, _CLASSES, "decision", formulas.balanced_accuracy),
        Metric("f1", True, _CLASSES, "decision", formulas.f1),
        Metric("matthews", True, _CLASSES, "decision", formulas.matthews),
        Metric("roc_auc", True, _CLASSES, "ranking", formulas.roc_auc),
        Metric("average_precision", True, _CLASSES, "ranking", formulas.average_precision),
        Metric("log_loss", False, _CLASSES, "probability", formulas.log_loss),
        Metric("r2", True, _NUMERIC, "number", formulas.r2),
        Metric("rmse", False, _NUMERIC, "number", formulas.rmse),
        Metric("spearman", True, _NUMERIC, "number", formulas.spearman),
        Metric("pearson", True, _NUMERIC, "number", formulas.pearson),
    )
}


def metric_named(name: str, kind: Kind | None = None) -> Metric:
    """The metric of that name; refused when it does not exist or cannot score that kind of task."""
    if not isinstance(name, str) or name not in METRICS:
        raise unknown("metric", name, METRICS)
    metric = METRICS[name]
    if kind is not None and kind not in metric.kinds:
        fitting = ", ".join(m.name for m in METRICS.values() if kind in m.kinds)
        raise InputError(
            f"metric {name!r} scores {' and '.join(metric.kinds)} tasks, not {kind}. Use one of: {fitting}."
        )
    return metric


def metric_of(task: Task) -> Metric:
    """The task's own metric, checked against its kind."""
    return metric_named(task.metric, task.kind)


def score(
    name: str, y: Any, prediction: Any, weight: Any = None, *, classes: Sequence[Any] | int | None = None
) -> float:
    """One prediction's score as a float, *higher is better*: losses and errors come with their sign turned.

    Args:
        name: a key of ``METRICS``.
        y: ``(m,)`` labels; NaN rows are left out.
        prediction: ``(m,)`` or ``(m, K)``, see :meth:`Metric.value`.
        weight: ``(m,)`` or None.
        classes: a task's ``classes`` or their number; () or 0 for regression. Only needed when m equals K.

    >>> score("rmse", [1.0, 2.0], [1.0, 4.0])
    -1.4142135623730951
    """
    metric = metric_named(name)
    count = classes if classes is None or isinstance(classes, int) else len(classes)
    prediction = _numbers(prediction, metric, "predictions")
    if count == 2 and prediction.ndim == 1:
        count = 0  # two classes may come as the probability of class 1 alone
    return float(metric.oriented(y, prediction, weight, classes=count))


@dataclass(frozen=True)
class _Rows:
    """Checked, broadcast and flattened input: y and w (B, m), p (B, m) or (B, m, K)."""

    y: FloatArray
    p: FloatArray
    w: FloatArray
    broken: Any  # (B,) predictions that are NaN on a row that counts
    lead: tuple[int, ...]
    num_classes: int

    @classmethod
    def of(cls, metric: Metric, y: Any, prediction: Any, weight: Any, classes: int | None) -> _Rows:
        y, p = _numbers(y, metric, "labels"), _numbers(prediction, metric, "predictions")
        w = np.ones(y.shape[-1:]) if weight is None else _numbers(weight, metric, "weights")
        width = _class_axis(metric, y, p, classes)
        lead = _leading_shape(metric, y, p, w, width)
        rows, batch = y.shape[-1], math.prod(lead)
        y = np.broadcast_to(y, (*lead, rows)).reshape(batch, rows)
        w = np.broadcast_to(w, (*lead, rows)).reshape(batch, rows)
        own = (rows, width) if width else (rows,)
        p = np.broadcast_to(p, (*lead, *own)).reshape(batch, *own)
        if not (w >= 0).all() or np.isinf(w).any():
            raise InputError(f"{metric.name}: weights must be finite and not negative, found {_first_bad(w)}.")
        return cls._masked(metric, y, p, w, lead, width)

    @classmethod
    def _masked(
        cls, metric: Metric, y: FloatArray, p: FloatArray, w: FloatArray, lead: tuple[int, ...], width: int
    ) -> _Rows:
        counts = ~np.isnan(y) & (w > 0)
        w, y = np.where(counts, w, 0.0), np.where(counts, y, 0.0)
        unusable = np.isnan(p) if p.ndim == 2 else np.isnan(p).any(axis=2)
        broken = (unusable & counts).any(axis=1)
        idle = unusable | ~counts
        p = np.where(idle if p.ndim == 2 else idle[:, :, None], 0.0, p)
        if metric.needs != "number":
            _check_classes(metric, y, max(width, 2))
        if metric.needs == "probability" and ((p < -SLACK) | (p > 1 + SLACK)).any():
            raise InputError(
                f"{metric.name} needs probabilities in [0, 1], found {p.min():.6g} to {p.max():.6g}. "
                "Pass the model's probabilities, or score its ranking with roc_auc."
            )
        return cls(y, p, w, broken, lead, max(width, 2))


def _numbers(values: Any, metric: Metric, what: str) -> FloatArray:
    """Anything with rows as float64; texts, ragged lists and complex numbers are refused."""
    try:
        given = np.asarray(values)
        if given.dtype.kind == "c":
            raise InputError(f"{metric.name}: {what} are complex numbers; it needs real ones.")
        return given.astype(np.float64, copy=False)
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        codes = " Classes are scored by their codes 0, 1, ..., as Task.y holds them." if what == "labels" else ""
        raise InputError(f"{metric.name}: {what} must be numbers in rows of one length ({error}).{codes}") from error


def _class_axis(metric: Metric, y: FloatArray, p: FloatArray, classes: int | None) -> int:
    """Length of the prediction's class axis, 0 when it has none."""
    if y.ndim == 0 or p.ndim == 0:
        raise InputError(
            f"{metric.name} needs one label and one prediction a row, found shapes {y.shape} and {p.shape}."
        )
    if metric.needs == "number" or classes == 0:
        return 0
    fits = p.ndim == y.ndim + 1 and p.shape[:-1] == y.shape
    if classes is None:
        return p.shape[-1] if fits else 0
    if p.shape[-1] != classes or p.ndim < 2:
        raise InputError(
            f"{metric.name}: {classes} classes need predictions (..., rows, {classes}), found shape {p.shape}."
        )
    return classes


def _leading_shape(metric: Metric, y: FloatArray, p: FloatArray, w: FloatArray, width: int) -> tuple[int, ...]:
    own = p.shape[:-1] if width else p.shape
    if not own or own[-1] != y.shape[-1] or w.ndim == 0 or w.shape[-1] != y.shape[-1]:
        raise InputError(
            f"{metric.name}: labels have shape {y.shape}, predictions {p.shape}, weights {w.shape}. "
            "They need the same number of rows."
        )
    try:
        return np.broadcast_shapes(y.shape[:-1], own[:-1], w.shape[:-1])
    except ValueError:
        raise InputError(
            f"{metric.name}: the batches of labels {y.shape}, predictions {p.shape} and weights {w.shape} do not match."
        ) from None


def _check_classes(metric: Metric, y: FloatArray, num_classes: int) -> None:
    wrong = (y != np.floor(y)) | (y < 0) | (y >= num_classes)
    if wrong.any():
        raise InputError(
            f"{metric.name} needs labels as codes 0 to {num_classes - 1}, found {y[wrong][0]:g}. "
            "Give (rows, K) predictions for K classes, or use a regression metric."
        )


def _first_bad(w: FloatArray) -> float:
    return float(w[~(w >= 0) | np.isinf(w)].flat[0])
