"""The paper's synthetic tasks, every constant an argument, every random stream named.

Streams are derived from a seed and names, never from the order of the draws: adding a series to a figure changes no
other series, and the first 200 rows of a source are the same rows whether 200 or 9,000 are asked for.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.errors import InputError

Link: TypeAlias = Literal["linear", "logistic", "relu"]
Form: TypeAlias = Literal["R D Q^T", "R Q D"]


def stream(seed: int, *names: object) -> np.random.Generator:
    """A random generator that depends on the seed and the names alone.

    >>> float(stream(0, "a").random()) == float(stream(0, "a").random()) != float(stream(0, "b").random())
    True
    """
    digest = hashlib.sha256("/".join(map(str, (seed, *names))).encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))


def rotation(random: np.random.Generator, d: int) -> FloatArray:
    """``(d, d)`` orthonormal matrix, uniform (QR of a Gaussian matrix with the signs of R's diagonal divided out)."""
    q, r = np.linalg.qr(random.standard_normal((d, d)))
    signed: FloatArray = q * np.sign(np.diag(r))
    return signed


def orthogonal_frames(random: np.random.Generator, d: int, rank: int) -> tuple[FloatArray, FloatArray]:
    """Two ``(d, rank)`` orthonormal frames that are orthogonal to each other."""
    if 2 * rank > d:
        raise InputError(f"two orthogonal frames of rank {rank} need d >= {2 * rank}, found d = {d}. Lower the rank.")
    frame = rotation(random, d)[:, : 2 * rank]
    return frame[:, :rank], frame[:, rank:]


def models_at(random: np.random.Generator, d: int, cosine: float) -> tuple[FloatArray, FloatArray]:
    """Two unit vectors of R^d with exactly the given cosine, otherwise uniform.

    >>> a, b = models_at(np.random.default_rng(0), 50, 0.96)
    >>> round(float(a @ b), 12), round(float(b @ b), 12)
    (0.96, 1.0)
    """
    if not -1 <= cosine <= 1:
        raise InputError(f"a cosine lies in [-1, 1], found {cosine}.")
    (a, b) = (frame[:, 0] for frame in orthogonal_frames(random, d, 1))
    return a, cosine * a + np.sqrt(1 - cosine**2) * b


def mixed_frame(frame: FloatArray, other: FloatArray, alpha: float) -> FloatArray:
    """Appendix B's ``Theta_2 = alpha Theta_1 + (1 - alpha) Theta'``, columns scaled to unit norm."""
    mixed = alpha * frame + (1 - alpha) * other
    unit: FloatArray = mixed / np.linalg.norm(mixed, axis=0)
    return unit


def cosine_of_mix(alpha: float) -> float:
    """The cosine that a mix really has: ``alpha / sqrt(alpha^2 + (1 - alpha)^2)``, not alpha as printed.

    >>> [round(cosine_of_mix(a), 3) for a in (0.0, 0.5, 0.8, 1.0)]
    [0.0, 0.707, 0.97, 1.0]
    """
    return float(alpha / np.hypot(alpha, 1 - alpha))


@dataclass(frozen=True)
class Inputs:
    """A Gaussian input distribution with covariance ``Q D^2 Q^T`` ("R D Q^T") or ``D^2`` ("R Q D", as printed).

    The print multiplies the Gaussian matrix by the rotation first; as ``R Q`` has the distribution of ``R``, the
    rotation then does nothing and every task is stretched along the coordinate axes.
    """

    scales: FloatArray
    turn: FloatArray
    form: Form = "R D Q^T"

    def rows(self, random: np.random.Generator, count: int) -> FloatArray:
        """``(count, d)`` rows; the first rows of a stream do not depend on ``count``."""
        raw = random.standard_normal((count, self.scales.size))
        drawn: FloatArray = (
            (raw * self.scales) @ self.turn.T if self.form == "R D Q^T" else (raw @ self.turn) * self.scales
        )
        return drawn

    @property
    def covariance(self) -> FloatArray:
        """``(d, d)`` covariance of a row."""
        turned = self.turn * self.scales if self.form == "R D Q^T" else np.diag(self.scales)
        full: FloatArray = turned @ turned.T
        return full


def stretched(
    random: np.random.Generator, d: int, *, kappa: float, strong: int, block: int, form: Form = "R D Q^T"
) -> Inputs:
    """Section 2.3's inputs: ``kappa`` on the ``block``-th set of ``strong`` coordinates (disjoint sets), else 1."""
    if (block + 1) * strong > d:
        raise InputError(f"block {block} of {strong} coordinates does not fit into d = {d}. Use a smaller share.")
    scales = np.ones(d)
    scales[block * strong : (block + 1) * strong] = kappa
    return Inputs(scales, rotation(random, d), form)


def activate(values: FloatArray, link: Link) -> FloatArray:
    """The signal behind the labels: identity, or ReLU for the ReLU tasks (logistic labels threshold the identity)."""
    return np.maximum(values, 0.0) if link == "relu" else values


def labels(signal: FloatArray, noise: FloatArray, link: Link) -> FloatArray:
    """Labels of a signal: plus noise; for logistic tasks ``1[sigmoid(signal + noise) > .5]`` as the appendix says."""
    noisy = signal + noise
    return (noisy > 0).astype(np.float64) if link == "logistic" else noisy


def signal_sd(inputs: Inputs, theta: FloatArray, link: Link) -> float:
    """Standard deviation of the signal: exact for Gaussian inputs (of a ReLU: ``sd * sqrt((1 - 1/pi) / 2)``)."""
    plain = float(np.sqrt(theta @ inputs.covariance @ theta))
    return plain * float(np.sqrt((1 - 1 / np.pi) / 2)) if link == "relu" else plain


def draw_task(
    seed: int, name: str, inputs: Inputs, theta: FloatArray, rows: int, *, noise: float, link: Link = "linear"
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """``X (rows, d)``, noisy labels and noise-free signal of a task; ``noise`` in standard deviations of the signal."""
    X = inputs.rows(stream(seed, name, "inputs"), rows)
    signal = activate(X @ theta, link)
    epsilon = stream(seed, name, "noise").standard_normal(rows) * noise * signal_sd(inputs, theta, link)
    return X, labels(signal, epsilon, link), signal
