"""A linear model of several tasks with one shared module, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from numbers import Real
from typing import Any, TypeGuard

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted, validate_data

from mtlens.arrays import FloatArray, IntArray
from mtlens.errors import InputError
from mtlens.theory import Gram, linear_optimum, svd_weights_separate
from mtlens.theory.inputs import to_numpy
from mtlens.theory.reduced_rank import SharedTasks, cross_validated_losses, default_ridges, svd_alpha

_COARSE = 2  # with missing labels there is no closed form over all ridges: every second one of the grid
_SEARCH_STARTS = 2  # descents inside cross-validation; the final fit takes 20


class LinearMTL(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Several linear regressions that share one module of capacity r: ``X B A + intercept``, a column of y a task.

    .. math:: \min_{B, A} \sum_i \alpha_i \left(|X_i B A_i - y_i|^2 + \rho |B A_i|^2\right)

    over the rows where task i has a label, centred there (so every task has its own intercept, not penalised). With
    complete labels this is reduced-rank ridge regression and solved exactly; with missing labels it is the best of 20
    descents (:func:`mtlens.linear_optimum`). With ``rank`` at least the number of tasks nothing is shared: it equals
    scikit-learn's ``Ridge(alpha=ridge)`` on each column.

    The squares are those of the labels as given: a task in small units counts little in the shared module unless it
    gets weight. ``weights="svd"`` takes care of that (labels of unit length, then Algorithm 2).

    Args:
        rank: capacity of the shared module, or ``"cv"``. More than tasks or features is the same as the smaller of the
        two.
        ridge: rho, added to ``X^T X``, or ``"cv"``.
        weights: None (all 1), the k alphas, or ``"svd"``.
        cv: number of folds when something is cross-validated; rows are dealt to them at random.
        random_state: integer seed of the folds and of the descents.

    Attributes:
        coef_: ``(k, d)`` as in scikit-learn, ``(d,)`` for a 1-D y; equals ``(shared_ @ heads_).T``.
        intercept_: ``(k,)``, or a float for a 1-D y.
        shared_: ``(d, r)`` shared module B.
        heads_: ``(r, k)`` heads A.
        rank_, ridge_: what was used.
        weights_: ``(k,)`` alphas that were used, on labels in their own units.
        capacity_curve_: ``{rank: score}``, the mean over tasks of the cross-validated R2 at the best ridge for that
            rank; None when neither rank nor ridge was cross-validated.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 5))
        >>> Y = np.outer(X[:, 0], [1.0, 2.0, -1.0]) + 0.1 * rng.normal(size=(60, 3))
        >>> Y[:10, 1] = np.nan
        >>> model = LinearMTL(rank=1, ridge=0.1).fit(X, Y)
        >>> model.coef_.shape, model.shared_.shape, round(model.score(X, Y), 2)
        ((3, 5), (5, 1), 0.99)
    """

    capacity_curve_: dict[int, float] | None

    def __init__(
        self,
        rank: int | str = "cv",
        ridge: float | str = "cv",
        weights: Any = None,
        *,
        cv: int = 5,
        random_state: int = 0,
    ) -> None:
        self.rank = rank
        self.ridge = ridge
        self.weights = weights
        self.cv = cv
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> LinearMTL:
        """Fit to ``X`` ``(m, d)`` and ``y`` ``(m, k)`` or ``(m,)``; NaN in y is a missing label."""
        X, y = validate_data(
            self,
            X,
            y,
            validate_separately=(
                {"dtype": np.float64},
                {"dtype": np.float64, "ensure_2d": False, "ensure_all_finite": "allow-nan"},
            ),
        )
        Y = y[:, None] if y.ndim == 1 else y
        self._refuse(X, Y)

        basis = _row_basis(X)  # a rotation: the penalty is the same in it, and wide inputs become narrow
        inputs = X if basis is None else X @ basis
        fitted = self._fit_missing(inputs, Y) if np.isnan(Y).any() else self._fit_complete(inputs, Y)

        B = np.pad(fitted.B, ((0, 0), (0, self.rank_ - fitted.B.shape[1])))  # directions that X does not have
        self.heads_ = np.pad(fitted.A, ((0, self.rank_ - len(fitted.A)), (0, 0)))
        self.shared_ = B if basis is None else basis @ B
        coef = (self.shared_ @ self.heads_).T
        self.coef_: FloatArray = coef[0] if y.ndim == 1 else coef
        self.intercept_: Any = float(fitted.intercept[0]) if y.ndim == 1 else fitted.intercept
        return self

    def predict(self, X: Any) -> FloatArray:
        """``(m, k)`` predictions, ``(m,)`` for a model of a 1-D y."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_.T + self.intercept_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean over tasks of R2 on the rows that have a label; a task with fewer than two of them has no R2."""
        truth = np.asarray(y, dtype=np.float64)
        found = self.predict(X)
        truth, found = truth.reshape(len(truth), -1), found.reshape(len(found), -1)
        if truth.shape != found.shape:
            raise InputError(f"LinearMTL.score needs labels of shape {found.shape}, found {truth.shape}.")
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        scores = []
        for column, fitted in zip(truth.T, found.T, strict=True):
            known = ~np.isnan(column)
            if known.sum() > 1:
                scores.append(
                    r2_score(column[known], fitted[known], sample_weight=None if weight is None else weight[known])
                )
        if not scores:
            raise InputError("LinearMTL.score needs a task with at least two labelled rows, found none.")
        return float(np.mean(scores))

    def _refuse(self, X: FloatArray, Y: FloatArray) -> None:
        if len(X) != len(Y):
            raise InputError(f"LinearMTL: X has {len(X)} rows, y has {len(Y)}. Give one row of labels a row of X.")
        if Y.ndim != 2 or Y.shape[1] == 0:
            raise InputError(f"LinearMTL needs y with one column a task, found shape {Y.shape}.")
        empty = np.isnan(Y).all(axis=0)
        if empty.any():
            raise InputError(
                f"LinearMTL: task {int(empty.argmax())} (a column of y) has no label at all. Leave that column out."
            )
        if not _is_cv(self.rank) and not (_is_number(self.rank) and self.rank >= 1 and self.rank == self.rank // 1):
            raise InputError(f"LinearMTL needs a whole rank of at least 1, or 'cv', found rank={self.rank!r}.")
        if not _is_cv(self.ridge) and not (_is_number(self.ridge) and self.ridge >= 0):
            raise InputError(f"LinearMTL needs one ridge >= 0, or 'cv', found ridge={self.ridge!r}.")
        if (_is_cv(self.rank) or _is_cv(self.ridge)) and not (_is_whole(self.cv) and self.cv >= 2):
            raise InputError(f"LinearMTL needs cv as a number of at least 2 folds, found cv={self.cv!r}.")
        if not (_is_whole(self.random_state) and self.random_state >= 0):
            raise InputError(
                f"LinearMTL needs a whole random_state >= 0, found random_state={self.random_state!r}. "
                "The same one gives the same model."
            )
        self._given_weights(Y.shape[1])

    def _given_weights(self, count: int) -> FloatArray | None:
        """``(k,)`` the alphas to use, or None when they come from the data."""
        if self.weights is None:
            return np.ones(count)
        if isinstance(self.weights, str):
            if self.weights != "svd":
                raise InputError(f"LinearMTL needs weights=None, one number a task or 'svd', found {self.weights!r}.")
            return None
        alpha = to_numpy(self.weights, "LinearMTL: weights")
        if alpha.shape != (count,) or not np.isfinite(alpha).all() or (alpha < 0).any() or not alpha.any():
            raise InputError(
                f"LinearMTL needs one weight >= 0 for each of the {count} tasks, not all zero, found {self.weights!r}."
            )
        return alpha

    def _fit_complete(self, X: FloatArray, Y: FloatArray) -> _Fitted:
        """Complete labels: everything from one decomposition, cross-validation from sums per fold."""
        x, means = X.mean(axis=0), Y.mean(axis=0)
        X, Y = X - x, Y - means
        ranks, ridges = self._grids(X, Y.shape[1])
        alpha = self._given_weights(Y.shape[1])
        if self._searches(len(X)):
            gram = Gram(folds=self.cv).update(X, Y, fold=_folds(len(X), self.cv, self.random_state))
            losses = cross_validated_losses(gram, ridges, ranks, "svd" if alpha is None else alpha)
            self._choose(_scores(losses, (Y**2).sum(axis=0)), ranks, ridges)
        self.weights_ = svd_alpha(X.T @ Y, (Y**2).sum(axis=0), self.rank_) if alpha is None else alpha
        B, A = SharedTasks.from_rows(X, Y).module(self.weights_, self.ridge_, self.rank_)
        return _Fitted(B, A, np.tile(x, (Y.shape[1], 1)), means, self.weights_)

    def _fit_missing(self, X: FloatArray, Y: FloatArray) -> _Fitted:
        """Missing labels: every task has rows of its own, so rank and ridge are searched in turns, not on a grid."""
        count = Y.shape[1]
        ranks, ridges = self._grids(X - X.mean(axis=0), count)
        alpha = self._given_weights(count)
        if self._searches(len(X)):
            folds = _folds(len(X), self.cv, self.random_state)
            energy = np.nansum((Y - np.nanmean(Y, axis=0)) ** 2, axis=0)

            def scores(some_ranks: list[int], some_ridges: FloatArray) -> FloatArray:
                return _scores(_held_out(X, Y, folds, some_ranks, some_ridges, alpha, self.random_state), energy)

            coarse = ridges if len(ridges) == 1 else ridges[::_COARSE]
            ridge = coarse[int(scores([ranks[-1]], coarse)[0].argmax())]
            self._choose(scores(ranks, np.array([ridge])), ranks, np.array([ridge]))
            if len(coarse) > 1 and self.rank_ != ranks[-1]:
                curve = self.capacity_curve_
                self._choose(scores([self.rank_], coarse), [self.rank_], coarse)
                self.capacity_curve_ = {**(curve or {}), **(self.capacity_curve_ or {})}
        fitted = _fit_masked(X, Y, alpha, self.ridge_, self.rank_, 20, self.random_state)
        self.weights_ = fitted.weights
        return fitted

    def _grids(self, X: FloatArray, count: int) -> tuple[list[int], FloatArray]:
        """Candidate ranks and ridges, one each where the user gave a number; sets the choice if there is none."""
        most = min(count, X.shape[1])
        ranks = _rank_grid(most) if _is_cv(self.rank) else [min(int(self.rank), most)]
        ridges = default_ridges(X.T @ X) if _is_cv(self.ridge) else np.array([float(self.ridge)])
        self.rank_, self.ridge_ = ranks[-1], float(ridges[len(ridges) // 2])
        self.capacity_curve_ = None
        return ranks, ridges

    def _searches(self, rows: int) -> bool:
        return rows >= 2 and (_is_cv(self.rank) or _is_cv(self.ridge))

    def _choose(self, scores: FloatArray, ranks: list[int], ridges: FloatArray) -> None:
        """The best cell of ``(ranks, ridges)``; the smaller rank, then the larger ridge, among equals."""
        best = scores.max()
        i = int((scores.max(axis=1) >= best).argmax())
        j = int(np.flatnonzero(scores[i] >= scores[i].max())[-1])
        self.rank_, self.ridge_ = ranks[i], float(ridges[j])
        self.capacity_curve_ = {r: float(row.max()) for r, row in zip(ranks, scores, strict=True)}


@dataclass(frozen=True)
class _Fitted:
    """A joint model about each task's own means.

    Attributes:
        B, A: module ``(q, r)`` and heads ``(r, k)``.
        x, y: ``(k, q)`` and ``(k,)`` means of the rows that have a label.
        weights: ``(k,)`` alphas that were used.
    """

    B: FloatArray
    A: FloatArray
    x: FloatArray
    y: FloatArray
    weights: FloatArray

    @property
    def coef(self) -> FloatArray:
        """``(k, q)``."""
        coef: FloatArray = (self.B @ self.A).T
        return coef

    @property
    def intercept(self) -> FloatArray:
        """``(k,)``."""
        intercept: FloatArray = self.y - (self.coef * self.x).sum(axis=1)
        return intercept


def _fit_masked(
    X: FloatArray, Y: FloatArray, alpha: FloatArray | None, ridge: float, rank: int, starts: int, seed: int
) -> _Fitted:
    """Fit to the labelled rows of every task; one without any label (in a fold) gets the model that predicts zero."""
    known = ~np.isnan(Y)
    present = np.flatnonzero(known.any(axis=0))
    x, y = np.zeros((Y.shape[1], X.shape[1])), np.zeros(Y.shape[1])
    Xs, ys = [], []
    for i in present:
        x[i], y[i] = X[known[:, i]].mean(axis=0), Y[known[:, i], i].mean()
        Xs.append(X[known[:, i]] - x[i])
        ys.append(Y[known[:, i], i] - y[i])
    weights = np.zeros(Y.shape[1])
    weights[present] = _separate_alpha(Xs, ys, rank) if alpha is None else alpha[present]
    if not weights.any():
        weights[present] = 1.0
    best = linear_optimum(Xs, ys, rank=rank, weights=weights[present], ridge=ridge, starts=starts, seed=seed)
    A = np.zeros((rank, Y.shape[1]))
    A[:, present] = best.A
    return _Fitted(best.B, A, x, y, weights)


def _separate_alpha(Xs: list[FloatArray], ys: list[FloatArray], rank: int) -> FloatArray:
    """Algorithm 2 for separate rows, on labels in their own units; constant labels get no weight."""
    energy = np.array([v @ v for v in ys])
    varying = np.flatnonzero([e > 1e-28 * (1.0 + np.abs(v).max() ** 2) for e, v in zip(energy, ys, strict=True)])
    alpha = np.zeros(len(ys))
    if varying.size:
        some = svd_weights_separate([Xs[i] for i in varying], [ys[i] for i in varying], rank=min(rank, varying.size))
        alpha[varying] = some / energy[varying]
    return alpha if alpha.any() else np.ones(len(ys))


def _held_out(
    X: FloatArray,
    Y: FloatArray,
    folds: IntArray,
    ranks: list[int],
    ridges: FloatArray,
    alpha: FloatArray | None,
    seed: int,
) -> FloatArray:
    """``(ranks, ridges, k)`` held-out sums of squares with missing labels."""
    total = np.zeros((len(ranks), len(ridges), Y.shape[1]))
    for fold in np.unique(folds):
        train, held = folds != fold, folds == fold
        for (i, rank), (j, ridge) in product(enumerate(ranks), enumerate(ridges)):
            fitted = _fit_masked(X[train], Y[train], alpha, float(ridge), rank, _SEARCH_STARTS, seed)
            errors = X[held] @ fitted.coef.T + fitted.intercept - Y[held]
            total[i, j] += np.nansum(errors**2, axis=0)
    return total


def _scores(losses: FloatArray, energy: FloatArray) -> FloatArray:
    """``(ranks, ridges)`` mean R2 over the tasks whose labels vary, from ``(ranks, ridges, k)`` sums of squares."""
    varying = energy > 0
    if not varying.any():
        return np.zeros(losses.shape[:2])
    return np.asarray((1.0 - losses[..., varying] / energy[varying]).mean(axis=-1))


def _is_cv(setting: Any) -> bool:
    return isinstance(setting, str) and setting == "cv"


def _is_number(setting: Any) -> TypeGuard[float]:
    return not isinstance(setting, bool) and isinstance(setting, Real) and bool(np.isfinite(float(setting)))


def _is_whole(setting: Any) -> TypeGuard[int]:
    return not isinstance(setting, bool) and isinstance(setting, (int, np.integer))


def _rank_grid(most: int) -> list[int]:
    """Every rank up to 8, then about four for each doubling, and the largest."""
    steps = [round(8 * 2 ** (i / 4)) for i in range(1, 80)]
    return sorted({*range(1, min(most, 8) + 1), *(r for r in steps if r < most), most})


def _folds(rows: int, count: int, seed: int) -> IntArray:
    return np.random.default_rng(seed).permutation(np.arange(rows) % count)


def _row_basis(X: FloatArray) -> FloatArray | None:
    """An orthonormal basis ``(d, m)`` of the rows when there are fewer of them than features, else None."""
    return np.linalg.qr(X.T)[0] if X.shape[0] < X.shape[1] else None
