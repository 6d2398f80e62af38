"""The paper's transfer theorems as calculators: what they promise, and which of their conditions hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.errors import InputError
from mtlens.theory.covariance import condition_number
from mtlens.theory.inputs import matrix, one_number, to_numpy, vector
from mtlens.theory.models import sin_angle


@dataclass(frozen=True)
class Bound:
    """A theorem's promise for one pair of tasks.

    Attributes:
        value: the bound; infinite where the theorem says nothing.
        c: the error margin ``kappa(X_2) sin(theta_1, theta_2)`` (or the larger one asked for).
        rows_needed: order of magnitude of the source rows needed; the theorem leaves its constant open, here it is 1.
        conditions: every condition that can be checked, in words, and whether it holds.
    """

    value: float
    c: float
    rows_needed: float
    conditions: dict[str, bool]

    @property
    def holds(self) -> bool:
        """Whether every condition holds; only then is ``value`` a bound."""
        return all(self.conditions.values())


def transfer_bound(
    X2: Any,
    y2: Any,
    theta1: Any,
    theta2: Any,
    *,
    covariance1: Any,
    noise1: float,
    noise2: Any,
    delta: float = 0.05,
    margin: float | None = None,
    row_norm: float | None = None,
) -> Bound:
    r"""Error bound for the target's jointly trained model in the linear case (paper, Theorem on transfer, Section 2.3).

    With ``c`` at least :math:`\kappa(X_2) \sin(\theta_1, \theta_2)`, with probability ``1 - delta`` and enough source
    rows,

    .. math:: \frac{|B^\star A_2^\star - \theta_2|}{|\theta_2|} \le 6 c + \frac{1}{1 - 3c} \frac{|\varepsilon_2|}{|X_2
              \theta_2|}.

    **It does not certify positive transfer**: it bounds the joint model's error, does not compare it with single-task
    learning, and is loose (above 1 it says nothing about a model that predicts zero). It needs ``c < 1/3`` strictly (in
    print ``<=``), except without target noise, and full column rank of ``X_2``, hence ``m_2 >= d``. The proof misses a
    factor d in the noise term of the sample size, because the direction it projects noise on is fitted to that noise;
    it is included here. The rows needed are, with the theorem's open constant set to 1,

    .. math:: \max\Big(\frac{L |\Sigma_1| \log(d / \delta)}{\lambda_{\min}^2(\Sigma_1)},
              \frac{\kappa(\Sigma_1) \kappa^2(X_2) |y_2|^2}{c^2},
              \frac{d\, \kappa^2(\Sigma_1) \kappa^4(X_2) \sigma_1^2 \log(1/\delta)}{c^4}\Big),

    all in the theorem's units, where :math:`\theta_1^\top \Sigma_1 \theta_1 = 1`.

    Args:
        X2, y2: ``(m2, d)`` and ``(m2,)`` the target's rows and labels.
        theta1, theta2: ``(d,)`` the tasks' true parameters (or estimates of them: then the bound is one, too).
        covariance1: ``(d, d)`` covariance of one row of the source.
        noise1: standard deviation of the source's label noise.
        noise2: standard deviation of the target's label noise, so that ``|eps_2| = noise2 sqrt(m2)``; or ``(m2,)`` the
            noise itself, whose norm is taken.
        delta: allowed probability of failure.
        margin: a ``c`` larger than the smallest possible one: a weaker bound that needs fewer rows.
        row_norm: bound ``sqrt(L)`` on the length of a source row; by default the root mean squared length,
            ``sqrt(trace(covariance1))``, which is less than the theorem asks for.

    Returns:
        A :class:`Bound`; look at ``conditions`` before ``value``.

    Example:
        >>> bound = transfer_bound(np.eye(2), [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], covariance1=np.eye(2), noise1=0.1,
        ...                        noise2=0.0, margin=0.1)
        >>> round(bound.value, 6), bound.holds
        (0.6, True)
    """
    where = "transfer_bound"
    X2 = matrix(to_numpy(X2, where), where, name="X2")
    y2, theta1, theta2 = (
        vector(to_numpy(v, where), where, name=n, xp=np)
        for v, n in ((y2, "y2"), (theta1, "theta1"), (theta2, "theta2"))
    )
    sigma = matrix(to_numpy(covariance1, where), where, name="covariance1")
    _refuse_shapes(X2, y2, theta1, theta2, sigma, where)
    eps2 = _noise_length(noise2, len(y2), where)
    noise1 = one_number(noise1, where, "noise1")
    if not 0 < one_number(delta, where, "delta") < 1:
        raise InputError(f"{where} needs a probability 0 < delta < 1, found delta={delta!r}.")
    row_norm = None if row_norm is None else one_number(row_norm, where, "row_norm", above=True)
    _refuse_asymmetric(sigma, where)

    kappa = float(condition_number(X2)) if X2.shape[0] >= X2.shape[1] else float("inf")
    sine = float(sin_angle(theta1, theta2))
    smallest = 0.0 if sine == 0.0 else kappa * sine
    c = smallest if margin is None else one_number(margin, where, "margin")
    conditions = _linear_conditions(X2, kappa, sigma, c, smallest, eps2)
    value = 6 * c
    if eps2 > 0:
        signal = float(np.linalg.norm(X2 @ theta2))
        value = value + eps2 / signal / (1 - 3 * c) if c < 1 / 3 and signal > 0 else float("inf")
    rows = _linear_rows(sigma, kappa, c, theta1, float(y2 @ y2), noise1, delta, row_norm)
    return Bound(float(value), c, rows, conditions)


def relu_transfer_bound(
    X2: Any, y2: Any, theta1: Any, theta2: Any, *, margin: float | None = None, signal1: float | None = None
) -> Bound:
    r"""Angle bound for the ReLU model with one shared unit (paper, Theorem on the ReLU model, Appendix A.2.3).

    For standard Gaussian source rows and ``c >= kappa(X_2) sin(theta_1, theta_2)`` (in print divided, not multiplied,
    by ``kappa``), with about ``max(d log d (1/c^2 + log d) / c^2, |y_2|^2 / c^2)`` source rows,

    .. math:: \sin(B^\star, \theta_2) \le \sin(\theta_1, \theta_2) + O(c / \kappa(X_2))

    (the print bounds ``sin(B, theta_1)``, its own proof ``theta_2``). The constant of the ``O`` is open; here it is 1,
    so ``value`` is an order of magnitude, not a certificate.

    Args:
        X2, y2: the target's rows and labels; theta1, theta2: ``(d,)`` parameters.
        margin: a ``c`` larger than the smallest possible one.
        signal1: root mean square of the source's noise-free labels, the unit in which ``|y_2|`` is measured (1 by
        default).

    Example:
        >>> bound = relu_transfer_bound(np.eye(2), [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], margin=0.1)
        >>> bound.value, bound.holds
        (0.1, True)
    """
    where = "relu_transfer_bound"
    X2 = matrix(to_numpy(X2, where), where, name="X2")
    y2, theta1, theta2 = (
        vector(to_numpy(v, where), where, name=n, xp=np)
        for v, n in ((y2, "y2"), (theta1, "theta1"), (theta2, "theta2"))
    )
    d = X2.shape[1]
    _refuse_shapes(X2, y2, theta1, theta2, np.eye(d), where)
    kappa = float(condition_number(X2)) if X2.shape[0] >= d else float("inf")
    sine = float(sin_angle(theta1, theta2))
    smallest = 0.0 if sine == 0.0 else kappa * sine
    c = smallest if margin is None else one_number(margin, where, "margin")
    unit = 1.0 if signal1 is None else one_number(signal1, where, "signal1", above=True)
    energy = float(y2 @ y2) / unit**2
    if c == 0.0:
        rows = float("inf")
    else:
        rows = max(d * np.log(d) / c**2 * (1 / c**2 + np.log(d)), energy / c**2) if np.isfinite(c) else 0.0
    conditions = {
        "c >= kappa(X_2) sin(theta_1, theta_2)": c >= smallest,
        "m_2 >= d": X2.shape[0] >= d,
        "X_2 has full column rank": kappa < 1 / float(np.finfo(np.float64).eps * max(X2.shape)),
    }
    return Bound(sine + (c / kappa if np.isfinite(c) else float("inf")), c, float(rows), conditions)


def _linear_conditions(
    X2: FloatArray, kappa: float, sigma: FloatArray, c: float, smallest: float, eps2: float
) -> dict[str, bool]:
    lowest = float(np.linalg.eigvalsh(sigma)[0])
    return {
        "c >= kappa(X_2) sin(theta_1, theta_2)": c >= smallest,
        "c < 1/3 (or no target noise)": c < 1 / 3 or eps2 == 0,
        "m_2 >= d": X2.shape[0] >= X2.shape[1],
        "X_2 has full column rank": kappa < 1 / float(np.finfo(np.float64).eps * max(X2.shape)),
        "Sigma_1 is positive definite": lowest > float(np.finfo(np.float64).eps * len(sigma) * np.trace(sigma)),
    }


def _linear_rows(
    sigma: FloatArray,
    kappa: float,
    c: float,
    theta1: FloatArray,
    y2_energy: float,
    noise1: float,
    delta: float,
    row_norm: float | None,
) -> float:
    """The theorem's sample size with constant 1, labels rescaled so that ``theta_1^T Sigma_1 theta_1 = 1``."""
    values = np.linalg.eigvalsh(sigma)
    unit = float(theta1 @ sigma @ theta1)
    if values[0] <= 0 or c == 0 or not np.isfinite(kappa) or unit <= 0:
        return float("inf")
    d, spread = len(sigma), values[-1] / values[0]
    L = float(np.trace(sigma)) if row_norm is None else float(row_norm) ** 2
    return float(
        max(
            L * values[-1] * np.log(d / delta) / values[0] ** 2,
            spread * kappa**2 * (y2_energy / unit) / c**2,
            d * spread**2 * kappa**4 * (noise1**2 / unit) * np.log(1 / delta) / c**4,
        )
    )


def _noise_length(noise2: Any, rows: int, where: str) -> float:
    noise = to_numpy(noise2, f"{where}: noise2")
    if noise.shape not in {(), (rows,)} or not np.isfinite(noise).all() or (noise.ndim == 0 and noise < 0):
        raise InputError(
            f"{where} needs noise2 as one standard deviation >= 0, or the {rows} noise values, found {noise2!r}."
        )
    return float(noise) * rows**0.5 if noise.ndim == 0 else float(np.linalg.norm(noise))


def _refuse_asymmetric(sigma: FloatArray, where: str) -> None:
    if np.abs(sigma - sigma.T).max() > 1e-8 * np.abs(sigma).max():
        raise InputError(
            f"{where} needs covariance1 to be symmetric, as every covariance is. Give X^T X / m of its rows."
        )


def _refuse_shapes(
    X2: FloatArray, y2: FloatArray, theta1: FloatArray, theta2: FloatArray, sigma: FloatArray, where: str
) -> None:
    d = X2.shape[1]
    wrong = {"theta1": theta1.shape, "theta2": theta2.shape, "covariance1": sigma.shape, "y2": y2.shape}
    wanted = {"theta1": (d,), "theta2": (d,), "covariance1": (d, d), "y2": (X2.shape[0],)}
    for name, shape in wrong.items():
        if shape != wanted[name]:
            raise InputError(f"{where}: X2 has shape {X2.shape}, so {name} needs shape {wanted[name]}, found {shape}.")
