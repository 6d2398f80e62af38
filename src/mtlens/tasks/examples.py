"""Built-in tasks: the paper's three-task example, and real tables that ship inside scikit-learn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.tasks.task import Task, TaskSet


def three_tasks(
    seed: int = 0,
    *,
    dimension: int = 100,
    kappa: float = 100.0,
    target_rows: int = 100,
    source_rows: int = 1000,
    noise: float = 1.0,
    cosine: float = 0.96,
) -> TaskSet:
    r"""The paper's example of positive and negative transfer (Section 2.2, figure 2).

    :math:`X_i = R_i D_i Q_i^\top`, with :math:`R_i` Gaussian, :math:`D_i` equal to ``kappa`` on a tenth of the
    coordinates and 1 elsewhere, :math:`Q_i` a random rotation. Labels are :math:`X_i\theta_i` plus noise of ``noise``
    standard deviations of the clean label; the two models have ``cosine`` between them. "target" and "same" share
    :math:`D_1, Q_1`; "different" has :math:`D_2, Q_2`. Both sources follow the second model.

    The paper prints :math:`X = R Q D`, where the rotation does nothing (Gaussian rows stay Gaussian), and no noise,
    which gives the opposite of its figure. Features are divided by ``kappa`` and labels by their standard deviation:
    at kappa = 100 raw ones make gradient descent diverge at the printed rates. Both leave the covariance score and
    the least-squares directions as they are.

    Args:
        target_rows: rows of "target"; few rows are what leaves room for transfer.
        source_rows: rows of each source.
    """
    rng = np.random.default_rng(seed)
    strong = max(1, dimension // 10)
    first, second = (_scales(dimension, kappa, slice(i * strong, (i + 1) * strong)) for i in range(2))
    q1, q2 = (np.linalg.qr(rng.standard_normal((dimension, dimension)))[0] for _ in range(2))
    theta1, theta2 = _pair_of_models(dimension, cosine, rng)
    makes = {
        "target": (target_rows, first, q1, theta1),
        "same": (source_rows, first, q1, theta2),
        "different": (source_rows, second, q2, theta2),
    }
    tasks = []
    for name, (rows, scales, rotation, theta) in makes.items():
        X = (rng.standard_normal((rows, dimension)) * scales) @ rotation.T / kappa
        clean = X @ theta
        y = clean + noise * clean.std() * rng.standard_normal(rows)
        tasks.append(Task(name, X, y / y.std(), kind="regression"))
    found = (
        f"the paper's three-task example: {dimension} inputs; 'target' and 'same' share their covariance, 'different' "
        "does not; both sources have one model",
    )
    return TaskSet(tasks, found=found)


def _scales(dimension: int, kappa: float, strong: slice) -> FloatArray:
    scales = np.ones(dimension)
    scales[strong] = kappa
    return scales


def _pair_of_models(dimension: int, cosine: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Two unit vectors with this cosine."""
    theta1, other = np.linalg.qr(rng.standard_normal((dimension, 2)))[0].T
    return theta1, cosine * theta1 + np.sqrt(1 - cosine**2) * other


def breast_cancer() -> TaskSet:
    """569 real cell samples (ships with scikit-learn): ten mean measurements; a diagnosis and three worst values.

    Mixed kinds on one shared input: is it malignant (binary), and the worst radius, texture and concavity of the
    sample's cells (regression).
    """
    from sklearn.datasets import load_breast_cancer

    raw = load_breast_cancer()
    names = [str(name) for name in raw.feature_names]
    means = [i for i, name in enumerate(names) if name.startswith("mean ")]
    X: Array = raw.data[:, means]
    features = [names[i] for i in means]
    labels = {"malignant": np.asarray(raw.target == 0, dtype=float)}
    labels |= {what: raw.data[:, names.index(what)] for what in ("worst radius", "worst texture", "worst concavity")}
    tasks = [
        Task(name, X, y, kind="binary" if name == "malignant" else "regression", feature_names=features)
        for name, y in labels.items()
    ]
    return TaskSet(tasks, found=("breast cancer (Wisconsin, from scikit-learn): 569 rows x 10 mean measurements",))


def digits() -> TaskSet:
    """1797 real 8 x 8 digits (ships with scikit-learn) and five yes/no questions about each, on one shared input."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    digit = raw.target
    questions = {
        "is even": digit % 2 == 0,
        "is above 4": digit > 4,
        "is prime": np.isin(digit, (2, 3, 5, 7)),
        "has a loop": np.isin(digit, (0, 6, 8, 9)),
        "is a multiple of 3": digit % 3 == 0,
    }
    labels = np.stack(list(questions.values()), axis=1)
    tasks = TaskSet.from_arrays(raw.data, labels, names=list(questions), kind="binary")
    return TaskSet(tasks, found=("digits (UCI, from scikit-learn): 1797 rows x 64 pixels, five yes/no questions",))


EXAMPLES: dict[str, Callable[[], TaskSet]] = {
    "example": three_tasks,
    "example-real": breast_cancer,
    "example-digits": digits,
}
