"""What the rows of each task say by themselves."""

from __future__ import annotations

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.tasks import Table, Task, TaskSet
from mtlens.tasks.duplicates import Duplicates

STEEP = 1e6  # condition numbers above this are not trusted from a Gram matrix, which squares them
MOST_WORK = 5e9  # multiplications worth spending on one exact condition number
RARE = 20  # labelled rows of the rarest class, or per task, below which a warning is due


def balance(task: Task) -> dict[str, float]:
    """Share of each class among labelled rows; mean and standard deviation for regression."""
    known = task.y[task.labelled]
    if task.kind == "regression":
        return {"mean": float(known.mean()), "sd": float(known.std())}
    counts = np.bincount(known.astype(np.int64), minlength=task.num_classes)
    return {str(name): float(count / len(known)) for name, count in zip(task.classes, counts, strict=True)}


def missing_features(task: Task) -> float:
    """Share of input entries that are missing."""
    if isinstance(task.X, Table):
        gone = [
            np.isnan(column).mean() if task.X.kinds[name] == "number" else np.mean([v is None for v in column])
            for name, column in task.X.columns.items()
        ]
        return float(np.mean(gone))
    if np.isfinite(task.X.sum(dtype=np.float64)):
        return 0.0
    return float(np.isnan(task.X).mean())


def width(task: Task) -> int:
    """Number of input columns as given (numbers in a row of an image)."""
    return len(task.X.names) if isinstance(task.X, Table) else int(np.prod(task.X.shape[1:]))


def spectrum_facts(X: Array, values: FloatArray, variances: FloatArray) -> tuple[float, float]:
    """Condition number of ``X`` and effective rank of its centred covariance, from descending eigenvalues.

    The condition number comes from the eigenvalues of ``X^T X`` where they are accurate, from ``X`` itself where it is
    steep and not too large to decompose.
    """
    rows, columns = X.shape
    smallest = max(float(values[min(rows, columns) - 1]), 0.0)
    condition = float(np.sqrt(values[0] / smallest)) if smallest > 0 else float("inf")
    if condition > STEEP and rows * columns * min(rows, columns) <= MOST_WORK:
        singular = np.linalg.svd(np.asarray(X, dtype=np.float64), compute_uv=False)
        condition = float(singular[0] / singular[-1]) if singular[-1] > 0 else float("inf")
    total = float(variances[variances > 0].sum())
    if total == 0.0:
        return condition, 0.0
    shares = variances[variances > 0] / total
    return condition, float(np.exp(-(shares * np.log(shares)).sum()))


def warnings_about(tasks: TaskSet, duplicates: Duplicates) -> list[str]:
    """Things in the data that make any comparison of tasks misleading, each with what to do."""
    lines = []
    for task in tasks:
        within = duplicates.within[task.name]
        count = int(task.labelled.sum())
        if count < RARE:
            lines.append(f"{task.name}: only {count} labelled rows; no verdict about it will be firm.")
        if task.kind != "regression":
            rarest = min(balance(task).items(), key=lambda entry: entry[1])
            if rarest[1] * count < RARE:
                lines.append(
                    f"{task.name}: class {rarest[0]!r} has {round(rarest[1] * count)} rows; its score will be noisy."
                )
        if within.extra:
            lines.append(f"{task.name}: {within.extra} rows repeat an earlier one; keep them on one side of a split.")
        if within.across_splits:
            lines.append(
                f"{task.name}: {within.across_splits} valid or test rows also occur in an earlier part. Drop them."
            )
        if within.conflicting:
            lines.append(f"{task.name}: {within.conflicting} rows have a twin with another label.")
    for overlap in duplicates.across:
        if overlap.leaks:
            lines.append(
                f"{overlap.task}: {overlap.leaks} of its valid or test rows are training rows of {overlap.other}; "
                "joint training would see the answers. Drop them."
            )
        elif overlap.task < overlap.other and overlap.rows:
            lines.append(
                f"{overlap.task} and {overlap.other} share {overlap.rows} rows; keep them on one side of a split."
            )
    return lines
