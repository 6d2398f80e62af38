"""What the closed forms accept: numpy or torch numbers, checked once and turned into float64.

Every function of this room is written once, against the names that numpy and torch share. ``numbers_of`` says which of
the two a call is about; torch is never imported here, only recognised when the caller has.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.errors import InputError

Numbers: TypeAlias = Any
"""A float64 numpy array or torch tensor."""


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def numbers_of(*values: Any) -> Any:
    """The module to compute with: torch when any value (or member of a list of values) is a tensor, else numpy."""
    members = [m for v in values for m in (v if isinstance(v, (list, tuple)) else (v,))]
    return sys.modules["torch"] if any(is_tensor(m) for m in members) else np


def float64(value: Any, xp: Any, like: Any = None, where: str = "the theory") -> Numbers:
    """``value`` as float64 numbers of ``xp``, on the device of ``like`` when that is a tensor."""
    if xp is np:
        return _real(value, where)
    if is_tensor(value):
        return value.to(xp.float64)
    device = like.device if is_tensor(like) else None
    return xp.as_tensor(_real(value, where), device=device)


def _real(value: Any, where: str) -> FloatArray:
    """``value`` as float64; what is no array of real numbers (texts, ragged lists, complex numbers) is refused."""
    try:
        found = np.asarray(value)
        if found.dtype.kind != "c":
            return np.asarray(found, dtype=np.float64)
        problem = "complex numbers"
    except (TypeError, ValueError) as error:
        problem = str(error)
    raise InputError(f"{where} works on real numbers in rows of one length, found {problem}. Convert them first.")


def to_numpy(value: Any, where: str = "the theory") -> FloatArray:
    """A float64 numpy copy or view of any numbers, cut off from every gradient."""
    if is_tensor(value):
        value = value.detach().cpu()
        value = (value if value.is_complex() else value.double()).numpy()  # numpy has no bfloat16
    return _real(value, where)


def scalar(value: Numbers) -> Any:
    """A float for numpy, the 0-d tensor itself for torch."""
    return value if is_tensor(value) else float(value)


def matrix(value: Any, where: str, *, name: str = "X", xp: Any = None, like: Any = None) -> Numbers:
    """``value`` as a finite float64 ``(m, d)`` matrix with at least one row and one column."""
    X = float64(value, numbers_of(value) if xp is None else xp, like, where)
    if X.ndim != 2:
        raise InputError(
            f"{where} needs {name} with rows and columns, found shape {tuple(X.shape)}. "
            f"Use {name}[:, None] for one column."
        )
    if 0 in X.shape:
        raise InputError(f"{where} needs {name} with at least one row and one column, found shape {tuple(X.shape)}.")
    refuse_not_finite(X, where, name)
    return X


def plain(value: Any) -> float:
    """A number as a float, cut off from every gradient."""
    return float(to_numpy(value))


def refuse_not_finite(X: Numbers, where: str, name: str) -> None:
    with np.errstate(all="ignore"):
        total = plain(X.sum())  # one pass without a temporary: a finite sum has finite terms
    if np.isfinite(total):
        return
    bad = ~np.isfinite(to_numpy(X)).reshape(X.shape[0], -1).all(axis=1)
    if bad.any():
        raise InputError(
            f"{where}: {int(bad.sum())} of {X.shape[0]} rows of {name} are not finite "
            f"(first at row {int(bad.argmax())}). Drop or fill those rows first."
        )


def vector(value: Any, where: str, *, name: str, xp: Any, like: Any = None) -> Numbers:
    """``value`` as a finite float64 ``(n,)`` vector; one column ``(n, 1)`` is taken as a vector too."""
    v = float64(value, xp, like, where)
    if v.ndim == 2 and v.shape[1] == 1:
        v = v[:, 0]
    if v.ndim != 1 or v.shape[0] == 0:
        raise InputError(f"{where} needs {name} as a vector, found shape {tuple(v.shape)}. Give one number an entry.")
    refuse_not_finite(v, where, name)
    return v


def labelled_rows(X: Any, y: Any, where: str, xp: Any) -> tuple[Numbers, Numbers]:
    """One task's ``(m, d)`` inputs and ``(m,)`` labels on the rows whose label is known (not NaN)."""
    X = float64(X, xp, y, where)
    y = float64(y, xp, X, where)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if X.ndim != 2 or y.ndim != 1:
        raise InputError(
            f"{where} needs a matrix of inputs and a vector of labels, found shapes {tuple(X.shape)} and "
            f"{tuple(y.shape)}. Give one row and one label an example."
        )
    if X.shape[0] != y.shape[0]:
        raise InputError(
            f"{where}: X has {X.shape[0]} rows, but there are {y.shape[0]} labels. "
            "Give one label a row (NaN = missing)."
        )
    known = ~xp.isnan(y)
    if not bool(known.any()):
        raise InputError(
            f"{where} has no labelled row among {y.shape[0]}. Give it at least one label, or leave it out."
        )
    if not bool(known.all()):
        X, y = X[known], y[known]
    X = matrix(X, where, xp=xp)
    refuse_not_finite(y, where, "y")
    return X, y


def task_list(Xs: Any, ys: Any, where: str) -> tuple[list[Numbers], list[Numbers], Any]:
    """Matrices and label vectors of k tasks over one feature space, NaN rows dropped, and their number module.

    ``Xs`` and ``ys`` are sequences with one member a task; a member of ``Xs`` may be repeated for shared inputs.
    """
    if getattr(Xs, "ndim", 3) == 2:
        raise InputError(
            f"{where} needs a list with one matrix a task, found a single matrix of shape {tuple(Xs.shape)}. "
            "For shared inputs give [X] * k and the k columns of Y as a list."
        )
    for name, members in (("Xs", Xs), ("ys", ys)):
        if getattr(members, "ndim", 1) == 0 or not isinstance(members, Iterable):
            raise InputError(
                f"{where} needs {name} as a list with one member a task, found {members!r}. For one task give a list "
                "of one."
            )
    Xs, ys = list(Xs), list(ys)
    if not Xs or len(Xs) != len(ys):
        raise InputError(
            f"{where} needs one label vector for each task's inputs, "
            f"found {len(Xs)} inputs and {len(ys)} label vectors."
        )
    xp = numbers_of(Xs, ys)
    pairs = [labelled_rows(X, y, f"{where}: task {i}", xp) for i, (X, y) in enumerate(zip(Xs, ys, strict=True))]
    same_width([X for X, _ in pairs], where)
    return [X for X, _ in pairs], [y for _, y in pairs], xp


def same_width(Xs: Sequence[Numbers], where: str, names: Sequence[str] | None = None) -> None:
    """Refuse tasks that do not share one feature space; the message names the two that differ."""
    for i, X in enumerate(Xs):
        if X.shape[1] != Xs[0].shape[1]:
            first, other = (f"task {n!r}" for n in (names[0], names[i])) if names else ("task 0", f"task {i}")
            raise InputError(
                f"{where} needs one feature space: {first} has {Xs[0].shape[1]} columns, {other} has {X.shape[1]}. "
                "Embed both with the same encoder, or project them to one width first."
            )


def shared_labels(X: Any, Y: Any, where: str, instead: str) -> tuple[Numbers, Numbers, Any]:
    """``(m, d)`` inputs and ``(m, k)`` labels of tasks that all label the same rows; NaN is refused."""
    xp = numbers_of(X, Y)
    X = matrix(X, where, xp=xp, like=Y)
    Y = float64(Y, xp, X, where)
    Y = Y[:, None] if Y.ndim == 1 else Y
    if Y.ndim != 2 or Y.shape[1] == 0:
        raise InputError(f"{where} needs Y with one column a task, found shape {tuple(Y.shape)}.")
    if Y.shape[0] != X.shape[0]:
        raise InputError(
            f"{where} needs every task to label the same rows of X. X has {X.shape[0]} rows, Y has {Y.shape[0]}. "
            f"Align the labels row by row, or use {instead}, which allows separate data."
        )
    missing = to_numpy(xp.isnan(Y)).sum(axis=0)
    if missing.any():
        task = int(missing.argmax())
        raise InputError(
            f"{where} needs every task to label the same rows of X. Column {task} of Y misses {int(missing[task])} of "
            f"{Y.shape[0]} labels. Drop those rows, or use {instead}, which allows separate data."
        )
    refuse_not_finite(Y, where, "Y")
    return X, Y, xp


def task_weights(weights: Any, count: int, where: str, xp: Any, like: Any = None) -> Numbers:
    """The paper's alpha_i as given, one a task: finite, not negative, not all zero; ones when None."""
    if weights is None:
        return float64(np.ones(count), xp, like)
    if isinstance(weights, (list, tuple)) and any(is_tensor(w) for w in weights):
        weights = xp.stack([float64(w, xp, like) for w in weights])
    alpha = float64(weights, xp, like, where)
    if tuple(alpha.shape) != (count,):
        raise InputError(
            f"{where} needs one weight for each of the {count} tasks, found shape {tuple(alpha.shape)}. "
            "Give a list of that length, or None for equal weights."
        )
    values = to_numpy(alpha)
    if not np.isfinite(values).all() or (values < 0).any() or not (values > 0).any():
        raise InputError(f"{where} needs finite weights >= 0, not all zero, found {values.tolist()}.")
    return alpha


def task_ridges(ridge: Any, count: int, where: str) -> FloatArray:
    """One ridge a task, ``(k,)``: a number for all of them, or one number each; finite and not negative."""
    rho = to_numpy(ridge, where)
    if rho.shape not in {(), (1,), (count,)}:
        raise InputError(f"{where} needs one ridge, or one for each of the {count} tasks, found shape {rho.shape}.")
    if not np.isfinite(rho).all() or (rho < 0).any():
        raise InputError(f"{where} needs ridge >= 0 and finite, found {ridge!r}. It is added to the diagonal of X^T X.")
    return np.broadcast_to(rho.reshape(-1), (count,)).copy()


def one_ridge(ridge: Any, where: str) -> float:
    """A single ridge, finite and not negative."""
    rho = to_numpy(ridge, where)
    if rho.ndim or not (np.isfinite(rho) and rho >= 0):
        raise InputError(
            f"{where} needs one finite ridge >= 0, found ridge={ridge!r}. It is added to the diagonal of X^T X."
        )
    return float(rho)


def one_number(value: Any, where: str, name: str, *, least: float = 0.0, above: bool = False) -> float:
    """A finite number of at least ``least`` (``above``: more than that)."""
    number = to_numpy(value, f"{where}: {name}")
    if number.ndim or not np.isfinite(number) or not (number > least if above else number >= least):
        raise InputError(
            f"{where} needs {name} as one finite number {'>' if above else '>='} {least:g}, found {name}={value!r}."
        )
    return float(number)


def whole_seed(seed: Any, where: str) -> int:
    """Any whole number as the seed of a generator; negative ones, too."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise InputError(
            f"{where} needs a whole number as seed, found seed={seed!r}. The same seed gives the same answer."
        )
    return int(seed) & (2**64 - 1)


def whole_starts(starts: Any, where: str) -> int:
    if isinstance(starts, bool) or not isinstance(starts, (int, np.integer)) or starts < 1:
        raise InputError(f"{where} needs a whole number and at least one start, found starts={starts!r}.")
    return int(starts)


def whole_rank(rank: Any, where: str) -> int:
    """``rank`` as an int of at least one."""
    if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or rank < 1:
        raise InputError(f"{where} needs a whole rank of at least 1, found rank={rank!r}.")
    return int(rank)
