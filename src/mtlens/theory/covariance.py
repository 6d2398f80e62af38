"""Task covariance: how much two tasks' inputs lie in the same directions (paper, Section 2.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.errors import InputError
from mtlens.tasks import Table, Task
from mtlens.theory.gram import Gram
from mtlens.theory.inputs import Numbers, float64, is_tensor, matrix, numbers_of, plain, same_width, scalar, to_numpy
from mtlens.theory.spectral import checked_energy, descending_eigh, kept_eigenpairs, num_kept, truncated_tensor

_ROUNDING = 1e-14  # what centring leaves of rows of peak 1 that are all equal


def covariance_similarity(
    X1: Any, X2: Any, *, energy: float = 0.99, center: bool = False, normalised: bool = False
) -> Any:
    r"""Overlap of two tasks' covariances in one shared feature space.

    Keep the fewest leading eigenpairs of :math:`X_i^\top X_i` whose eigenvalues sum to ``energy`` of the total, and let
    :math:`C_i = U_i D_i U_i^\top` be what is kept (paper, Section 2.3, covariance similarity score):

    .. math:: s = \|(U_1 D_1^{1/2})^\top U_2 D_2^{1/2}\|_F \,/\, (\|U_1 D_1^{1/2}\|_F \|U_2 D_2^{1/2}\|_F)
                = \sqrt{\mathrm{tr}(C_1 C_2) / (\mathrm{tr}\, C_1 \,\mathrm{tr}\, C_2)}, \qquad 0 \le s \le 1.

    Symmetric; unchanged when either task is rescaled or its rows are rotated or reordered, and when one orthogonal
    matrix rotates *both* feature spaces. **Not** unchanged when only one is rotated (the paper's "invariant to
    rotations of the columns" needs a common rotation). **Not** 1 for a task with itself: ``s(X, X) = |l|_2 / |l|_1``
    over the kept eigenvalues ``l``, so a task can score higher with another one than with itself, and concentrated
    spectra alone raise the score. ``normalised=True`` gives :math:`\langle C_1, C_2\rangle / (\|C_1\|_F \|C_2\|_F)` of
    the same truncated matrices instead, which is 1 exactly when they are proportional. The paper's "99% of the singular
    values" is read as those of the covariance. It did not predict transfer in independent checks (rank correlation
    about 0): a description only.

    Args:
        X1: ``(m1, d)`` features of the first task, or a :class:`Gram` of them.
        X2: ``(m2, d)`` features of the second; same ``d``, any number of rows.
        energy: share of the eigenvalue sum to keep, in ``(0, 1]``; met with a slack of 1e-12.
        center: subtract each task's column means first. The paper does not; a mean shared by all rows, usual in
            embeddings, then dominates the score.
        normalised: give the companion that is 1 for equal covariances.

    Returns:
        A float; for tensors a 0-d float64 tensor that carries gradient.

    Example:
        >>> X = np.array([[3.0, 0.0], [0.0, 3.0]])
        >>> round(covariance_similarity(X, X), 4), round(covariance_similarity(X, X, normalised=True), 4)
        (0.7071, 1.0)
    """
    where = "covariance_similarity"
    energy = checked_energy(energy, where)
    if is_tensor(X1) or is_tensor(X2):
        return _similarity_of_tensors(X1, X2, energy, center, normalised)

    first, second = (_spectrum(X, energy, center, f"{where}: {name}") for X, name in ((X1, "X1"), (X2, "X2")))
    same_width([first.factor.T, second.factor.T], where, ("X1", "X2"))

    return _score(_overlap(first, second), first, second, normalised)


def similarity_matrix(tasks: Any, *, energy: float = 0.99, center: bool = False, normalised: bool = False) -> Any:
    """All pairwise :func:`covariance_similarity` values as a symmetric ``(k, k)`` matrix, from one matrix product.

    The inner products ``<C_i, C_j>`` of all pairs are one product of the flattened truncated covariances; each task is
    decomposed once. Pairs that hardly overlap are computed again from their factors, because the square root would turn
    rounding of 1e-17 into 3e-9.

    Args:
        tasks: a TaskSet, or a sequence of Tasks, ``(m, d)`` arrays, tensors or :class:`Gram` objects, one a task. Of a
            Task only the labelled rows count: they are what it trains on.
        energy, center, normalised: as for :func:`covariance_similarity`.

    Returns:
        ``(k, k)``; the diagonal is each task's score with itself (1 only when ``normalised``). numpy, or a float64
        tensor without gradient when the members are tensors.

    Example:
        >>> similarity_matrix([np.eye(2), np.diag([1.0, 0.0])], normalised=True).round(3).tolist()
        [[1.0, 0.707], [0.707, 1.0]]
    """
    where = "similarity_matrix"
    energy = checked_energy(energy, where)
    members, names = _members(tasks)
    spectra = [_spectrum(X, energy, center, f"{where}: task {n!r}") for X, n in zip(members, names, strict=True)]
    same_width([s.factor.T for s in spectra], where, names)

    inner = _all_overlaps(spectra)
    traces = np.array([s.values.sum() for s in spectra])
    norms = np.array([np.sqrt((s.values**2).sum()) for s in spectra])
    scores = inner / np.outer(norms, norms) if normalised else np.sqrt(inner / np.outer(traces, traces))
    scores = np.minimum(scores, 1.0)  # above it by rounding only

    tensor = next((X for X in members if is_tensor(X)), None)
    return scores if tensor is None else float64(scores, numbers_of(tensor), tensor)


def condition_number(X: Any) -> Any:
    """Largest over ``min(m, d)``-th singular value of ``X`` ``(m, d)`` (paper, Appendix A, notations).

    Of the data matrix, not of its covariance (whose condition number is the square). Computed from ``X`` itself:
    through ``X^T X`` anything above 1e8 would be lost. Infinite when the smallest singular value is exactly zero; a
    rank-deficient ``X`` usually gives a huge finite number instead, because rounding leaves it near 1e-16. A zero
    matrix is refused.

    Example:
        >>> condition_number(np.diag([10.0, 2.0]))
        5.0
    """
    where = "condition_number"
    if isinstance(X, Gram):
        raise InputError(f"{where} needs the rows of X: a Gram holds the square of its condition number.")
    xp = numbers_of(X)
    X = matrix(X, where, xp=xp)
    values = xp.linalg.svdvals(X)
    if plain(values[0]) == 0.0:
        raise InputError(f"{where}: every entry of X is zero, so the ratio is 0/0. Give features that vary.")
    if plain(values[-1]) == 0.0:
        return float("inf") if xp is np else values[0] * float("inf")
    return scalar(values[0] / values[-1])


@dataclass(frozen=True)
class _Spectrum:
    """What is kept of a covariance of trace 1: eigenvalues ``(r,)`` and the factor ``U D^(1/2)`` ``(d, r)``."""

    values: FloatArray
    factor: FloatArray


def _spectrum(X: Any, energy: float, center: bool, where: str) -> _Spectrum:
    if isinstance(X, Gram):
        return _from_covariance(_covariance_of(X, center), energy, where)
    rows = matrix(to_numpy(X, where), where)
    rows = rows / _scale(np.abs(rows).max(), where)
    rows = _centred(rows) if center else rows
    if rows.shape[0] >= rows.shape[1]:
        return _from_covariance(rows.T @ rows, energy, where)
    # Fewer rows than columns: the m x m product has the same eigenvalues, and X^T v_j has norm sqrt(l_j).
    values, vectors = descending_eigh(rows @ rows.T)
    total = _scale(values.sum(), where)
    r = num_kept(values, energy)
    return _Spectrum(values[:r] / total, rows.T @ vectors[:, :r] / np.sqrt(total))


def _from_covariance(C: FloatArray, energy: float, where: str) -> _Spectrum:
    values, vectors = kept_eigenpairs(C / _scale(np.trace(C), where), energy)
    return _Spectrum(values, vectors * np.sqrt(values))


def _covariance_of(gram: Gram, center: bool) -> FloatArray:
    """A Gram's covariance; all zero where centring leaves only the rounding of its sums."""
    C = gram.covariance(center=center)
    return C if np.trace(C) > _ROUNDING * np.trace(gram.matrix) else np.zeros_like(C)


def _centred(rows: Numbers) -> Numbers:
    """Rows of peak 1 about their mean; all zero where only rounding of the mean is left."""
    rows = rows - rows.mean(0)
    return rows if plain(abs(rows).max()) > _ROUNDING else rows * 0.0


def _scale(size: Any, where: str) -> float:
    """The trace (or peak) to divide by; a zero covariance has no direction, so it is refused."""
    if not float(size) > 0.0:
        raise InputError(
            f"{where} has only zeros (after centring, if asked), so the score is 0/0. Give features that vary."
        )
    return float(size)


def _overlap(first: _Spectrum, second: _Spectrum) -> float:
    """``<C_1, C_2>`` as a sum of squares: never negative, and exact to rounding also when it is near zero."""
    return float((np.matmul(first.factor.T, second.factor) ** 2).sum())


def _score(inner: float, first: _Spectrum, second: _Spectrum, normalised: bool) -> float:
    if normalised:
        score = inner / np.sqrt((first.values**2).sum() * (second.values**2).sum())
    else:
        score = np.sqrt(inner / (first.values.sum() * second.values.sum()))
    return min(float(score), 1.0)  # above it by rounding only


def _all_overlaps(spectra: list[_Spectrum]) -> FloatArray:
    """``(k, k)`` inner products of the truncated covariances: their upper triangles, flattened, in one product."""
    width = len(spectra[0].factor)
    rows, columns = np.triu_indices(width)
    twice = np.where(rows == columns, 1.0, np.sqrt(2.0))
    flat = np.stack([(s.factor @ s.factor.T)[rows, columns] * twice for s in spectra])
    inner = flat @ flat.T
    small = inner < 1e-6 * np.sqrt(np.outer(np.diag(inner), np.diag(inner)))
    for i, j in zip(*np.nonzero(np.triu(small)), strict=True):
        inner[i, j] = inner[j, i] = _overlap(spectra[i], spectra[j])
    return inner


def _members(tasks: Any) -> tuple[list[Any], list[str]]:
    """Inputs and names of the tasks, however they were given."""
    members = list(tasks) if isinstance(tasks, Iterable) else []
    if not members or getattr(tasks, "ndim", 3) == 2:
        raise InputError("similarity_matrix needs a TaskSet, or a list with one matrix or Gram a task, found none.")
    names = [m.name if isinstance(m, Task) else str(i) for i, m in enumerate(members)]
    return [_task_rows(m) if isinstance(m, Task) else m for m in members], names


def _task_rows(task: Task) -> Any:
    if isinstance(task.X, Table) or task.X.ndim != 2:
        raise InputError(
            f"similarity_matrix: task {task.name!r} has raw inputs (texts, categories or images), not one matrix of "
            "numbers. Turn them into features first, or give the embedded matrices."
        )
    return task.X if task.labelled.all() else task.X[task.labelled]


def _similarity_of_tensors(X1: Any, X2: Any, energy: float, center: bool, normalised: bool) -> Numbers:
    where = "covariance_similarity"
    xp = numbers_of(X1, X2)
    pair = []
    for X, name, other in ((X1, "X1", X2), (X2, "X2", X1)):
        rows = float64(X.matrix, xp, other) if isinstance(X, Gram) else matrix(X, f"{where}: {name}", xp=xp, like=other)
        if isinstance(X, Gram):
            C = float64(_covariance_of(X, center), xp, other)
        else:
            rows = rows / _scale(abs(rows.detach()).max(), f"{where}: {name}")  # squares of 1e200 would overflow
            rows = _centred(rows) if center else rows
            C = rows.T @ rows
        pair.append(truncated_tensor(C / _scale(C.detach().trace(), f"{where}: {name}"), energy))
    same_width(pair, where, ("X1", "X2"))
    C1, C2 = pair
    inner = (C1 * C2).sum()
    if normalised:
        return (inner / ((C1 * C1).sum() * (C2 * C2).sum()).sqrt()).clamp(max=1.0)
    # sqrt has no derivative at 0: tasks without any overlap get score 0 and gradient 0 rather than NaN.
    score = (inner.clamp(min=1e-300) / (C1.trace() * C2.trace())).sqrt().clamp(max=1.0)
    return xp.where(inner > 0, score, inner * 0.0)
