"""Scikit-learn estimators over the engine: a shared net whose tasks are the columns of ``y``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from mtlens.arrays import Array, FloatArray
from mtlens.engine import Trained, Training, train
from mtlens.engine.saving import SavedTraining
from mtlens.errors import InputError, TrainingError
from mtlens.nets.family import family_of
from mtlens.tasks import Task, TaskSet

LARGEST_SEED = 2**31 - 1


class _SharedNet(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: settings, data in, one training, predictions out."""

    def __init__(
        self,
        trunk: Any = "mlp",
        capacity: Any = 50,
        *,
        align: Any = None,
        weighting: Any = "equal",
        optimizer: Any = "adam",
        lr: float = 1e-2,
        epochs: int = 100,
        batch: int = 50,
        weight_decay: float = 0.0,
        penalty: float = 0.0,
        stop: Any = "epochs",
        validation: float = 0.1,
        dtype: Any = "float32",
        device: str = "cpu",
        warm_start: bool = False,
        random_state: Any = None,
    ) -> None:
        self.trunk = trunk
        self.capacity = capacity
        self.align = align
        self.weighting = weighting
        self.optimizer = optimizer
        self.lr = lr
        self.epochs = epochs
        self.batch = batch
        self.weight_decay = weight_decay
        self.penalty = penalty
        self.stop = stop
        self.validation = validation
        self.dtype = dtype
        self.device = device
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Any:
        """Train on ``X (m, d)`` and ``y (m,)`` or ``(m, tasks)``; missing labels are NaN (or None)."""
        names = _column_names(y)
        X = self._inputs(X, reset=True)
        columns = _label_columns(y, len(X))
        self._y_ndim = np.asarray(y).ndim
        tasks = self._tasks(X, columns, names)
        self.task_names_ = list(tasks.names)
        seed = _seed(self.random_state)
        tasks, select = _held_out(tasks, self.validation, seed)
        start = getattr(self, "trained_", None) if self.warm_start else None
        training = Training(
            tasks, self.trunk, self.capacity, align=self.align, weighting=self.weighting, optimizer=self.optimizer,
            lr=self.lr, epochs=self.epochs, batch=self.batch, weight_decay=self.weight_decay, penalty=self.penalty,
            stop=self.stop, select=select, seed=seed, dtype=self.dtype, start_from=start,
        )  # fmt: skip
        self._keep(train(training, device=self.device, progress=False)[0])
        return self

    def _keep(self, trained: Trained) -> None:
        if not trained.ok or trained.model is None:
            raise TrainingError(f"{type(self).__name__}: the training ended with: {trained.reason}. Try a smaller lr.")
        # Settings without data: the estimator would otherwise carry its training set through every copy and pickle.
        saved = SavedTraining(trained.identity, trained.training.settings())
        trained.model.net.double()  # predictions of a row then do not depend on the rows around it
        self.trained_ = Trained(
            saved,  # type: ignore[arg-type]
            trained.scores, trained.history, trained.model, trained.seconds, trained.reason,
        )  # fmt: skip
        self.model_ = trained.model
        self.n_outputs_ = len(self.task_names_)
        self.loss_curve_ = trained.history["loss"].tolist()
        self.n_iter_ = len(self.loss_curve_)

    def _inputs(self, X: Any, *, reset: bool) -> Any:
        if family_of(self.trunk).inputs == "tokens":
            return X if isinstance(X, np.ndarray) else list(X)
        checked = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], allow_nd=True)
        return np.array(checked, dtype=np.float64)

    def _raw_predictions(self, X: Any) -> list[FloatArray]:
        check_is_fitted(self, "model_")
        X = self._inputs(X, reset=False)
        return [self.model_.predict(name, X) for name in self.task_names_]

    def _tasks(self, X: Any, columns: list[Array], names: Sequence[str] | None) -> TaskSet:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class SharedNetRegressor(RegressorMixin, _SharedNet):  # type: ignore[misc]
    """A shared trunk with one regression head a column of ``y``.

    Args:
        trunk, capacity, align, weighting, optimizer, lr, epochs, batch, weight_decay, penalty, stop, dtype: see
            `mtlens.Training`.
        validation: share of the rows held out to choose the epoch (and, with ``stop="converged"``, to stop). With 0, or
            where a task would have no labelled row among them, all rows are trained on and the last epoch is kept.
        device: "cpu", "cuda", ...
        warm_start: whether ``fit`` goes on from the net of the last ``fit``.
        random_state: seed, generator or None.

    Attributes:
        model_: the trained net with its scales; ``trained_`` adds scores and history.
        task_names_, n_outputs_, n_iter_, loss_curve_: names of the columns, their number, epochs run, mean losses.

    There is no ``sample_weight``: batches are drawn, so weighting a row by 2 is not repeating it, as scikit-learn
    would demand. Give ``Task(weight=...)`` to `mtlens.train` where that difference does not matter.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> Y = np.stack([X.sum(1), X[:, 0]], 1)
        >>> Y[:100, 1] = np.nan
        >>> model = SharedNetRegressor(random_state=0).fit(X, Y)
        >>> model.predict(X[:2]).shape, model.score(X, Y) > 0.95
        ((2, 2), True)
    """

    def _tasks(self, X: Any, columns: list[Array], names: Sequence[str] | None) -> TaskSet:
        return TaskSet(Task(n, X, c, kind="regression") for n, c in zip(_named(names, columns), columns, strict=True))

    def predict(self, X: Any) -> FloatArray:
        """``(m,)`` or ``(m, tasks)``, as ``y`` was, in its units."""
        columns = self._raw_predictions(X)
        return columns[0] if self._y_ndim == 1 else np.stack(columns, axis=1)

    def score(self, X: Any, y: Any) -> float:
        """Mean over tasks of R2 on the rows with a label."""
        predicted = _label_columns(self.predict(X), len(X))
        pairs = [_known(own, guess) for own, guess in zip(_label_columns(y, len(X)), predicted, strict=True)]
        return float(np.mean([r2_score(own, guess) for own, guess in pairs]))


class SharedNetClassifier(ClassifierMixin, _SharedNet):  # type: ignore[misc]
    """A shared trunk with one classification head a column of ``y`` (two classes or more, any labels).

    Settings and most attributes are those of `SharedNetRegressor`; ``classes_`` holds the labels, a list of arrays
    when ``y`` has columns.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> y = np.where(X[:, 0] > 0, "high", "low")
        >>> model = SharedNetClassifier(random_state=0).fit(X, y)
        >>> model.predict_proba(X[:2]).shape, model.classes_.tolist(), model.score(X, y) > 0.9
        ((2, 2), ['high', 'low'], True)
    """

    def _tasks(self, X: Any, columns: list[Array], names: Sequence[str] | None) -> TaskSet:
        labels = [
            _classes_and_codes(column, name) for name, column in zip(_named(names, columns), columns, strict=True)
        ]
        classes = [own for own, _ in labels]
        self.classes_ = classes[0] if self._y_ndim == 1 else classes
        return TaskSet(
            Task(name, X, codes, kind="binary" if len(own) == 2 else "multiclass")
            for name, (own, codes) in zip(_named(names, columns), labels, strict=True)
        )

    def predict_proba(self, X: Any) -> Any:
        """Probabilities ``(m, classes)`` in the order of ``classes_``; a list of them when ``y`` had columns."""
        columns = [np.stack([1 - p, p], 1) if p.ndim == 1 else p for p in self._raw_predictions(X)]
        return columns[0] if self._y_ndim == 1 else columns

    def predict(self, X: Any) -> Array:
        """The most probable labels, ``(m,)`` or ``(m, tasks)`` as ``y`` was."""
        if self._y_ndim_checked() == 1:
            return np.asarray(self.classes_[self.predict_proba(X).argmax(1)])
        columns = [own[p.argmax(1)] for own, p in zip(self.classes_, self.predict_proba(X), strict=True)]
        return np.stack(columns, axis=1)

    def score(self, X: Any, y: Any) -> float:
        """Mean over tasks of the accuracy on the rows with a label."""
        predicted = _label_columns(self.predict(X), len(X))
        pairs = [_known(own, guess) for own, guess in zip(_label_columns(y, len(X)), predicted, strict=True)]
        return float(np.mean([np.mean(own == guess) for own, guess in pairs]))

    def _y_ndim_checked(self) -> int:
        check_is_fitted(self, "model_")
        return int(self._y_ndim)


def _label_columns(y: Any, rows: int) -> list[Array]:
    """One array a task from ``(m,)`` or ``(m, k)`` labels."""
    if y is None:
        raise InputError("this estimator needs labels: it requires y to be passed, but the target y is None.")
    array = np.asarray(y)
    if array.dtype.kind == "c":
        raise InputError("Complex data not supported: y holds complex numbers. Give its parts as two columns.")
    if array.ndim not in (1, 2) or 0 in array.shape[1:]:
        raise InputError(f"y needs shape (rows,) or (rows, tasks), found {array.shape}.")
    if len(array) != rows:
        raise InputError(
            f"X has {rows} rows, but y has {len(array)}: inconsistent numbers of samples. Give one label a row."
        )
    return [array] if array.ndim == 1 else list(array.T)


def _column_names(y: Any) -> list[str] | None:
    columns = getattr(y, "columns", None)
    return None if columns is None else [str(name) for name in columns]


def _named(names: Sequence[str] | None, columns: Sequence[Array]) -> list[str]:
    return list(names) if names is not None else [f"task_{i}" for i in range(len(columns))]


def _missing(column: Array) -> Any:
    """Mask of NaN and None."""
    if column.dtype.kind == "f":
        return np.isnan(column)
    if column.dtype.kind == "O":
        return np.array([v is None or (isinstance(v, float) and v != v) for v in column], dtype=bool)
    return np.zeros(len(column), dtype=bool)


def _known(y: Array, predicted: Array) -> tuple[Array, Array]:
    known = ~_missing(y)
    own = y[known]
    return (own.astype(predicted.dtype) if predicted.dtype.kind in "fiub" else own), predicted[known]


def _classes_and_codes(column: Array, name: str) -> tuple[Array, FloatArray]:
    """Sorted labels of a column, and their places with NaN where the label is missing."""
    known = ~_missing(column)
    if not known.any():
        raise InputError(f"task {name!r}: no row has a label. A classifier needs at least two classes.")
    present = column[known]
    if present.dtype.kind == "f" and not np.array_equal(present, np.round(present)):
        found = present[present != np.round(present)][0]
        raise InputError(
            f"Unknown label type: continuous. Task {name!r} has labels such as {found}; a classifier needs classes. "
            "Use SharedNetRegressor for numbers."
        )
    if present.dtype.kind == "O" and all(isinstance(v, (bool, int, float, np.number)) for v in present):
        present = present.astype(np.float64)
    if present.dtype.kind == "f" and not known.all():
        present = present.astype(np.int64)
    classes, places = np.unique(present, return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"task {name!r}: its labels have one class, {classes[0]}. A classifier needs at least two.")
    codes = np.full(len(column), np.nan)
    codes[known] = places
    return classes, codes


def _held_out(tasks: TaskSet, share: Any, seed: int) -> tuple[TaskSet, Any]:
    """Tasks with a validation split, and how to select; unchanged tasks where none is wanted or possible."""
    if not isinstance(share, (int, float, np.floating)) or not 0 <= share < 1:
        raise InputError(
            f"validation={share!r} is the share of rows held out to choose the epoch. Use 0 <= validation < 1."
        )
    first = tasks[0]
    held = round(share * first.num_rows)
    if held == 0:
        return tasks, "last"
    split = np.full(first.num_rows, "train")
    split[np.random.default_rng(seed).permutation(first.num_rows)[:held]] = "valid"
    whole = TaskSet(task.replace(split=split) for task in tasks)
    if any(_is_bare(task) for task in whole):
        return tasks, "last"
    return whole, "best"


def _is_bare(task: Task) -> bool:
    """Whether a part of the split lacks labels, or its train part lacks a class."""
    train, valid = task.rows_of("train"), task.rows_of("valid")
    if not len(train) or len(valid) < 2:
        return True
    return task.kind != "regression" and len(np.unique(task.y[train])) < task.num_classes


def _seed(random_state: Any) -> int:
    if isinstance(random_state, (int, np.integer)):
        if random_state < 0:
            raise InputError(f"random_state={random_state}: a seed is a whole number of at least 0, or None.")
        return int(random_state)
    return int(check_random_state(random_state).randint(LARGEST_SEED))
