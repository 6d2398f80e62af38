"""The corrections that claims refer to: what the paper prints, and what is true."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Correction:
    """One entry of the list: its number is its place, counted from 1."""

    title: str
    text: str


CORRECTIONS = (
    Correction(
        "Covariance similarity score",
        "The score of a task with itself is |l|_2 / |l|_1 over the kept eigenvalues l, not 1, so a task can score "
        'higher with another than with itself, and "the score rose" may only mean that a spectrum got concentrated. '
        "The score is unchanged by one common rotation of the columns, not by separate ones. A normalised companion, "
        "<C1, C2> / (|C1| |C2|), is 1 exactly when the covariances are proportional.",
    ),
    Correction(
        "Equal covariances",
        "B* = V D^-1 C* with D the singular values of X_i. The printed V D^(-1/2) C* is right only if D holds "
        "eigenvalues of the covariance.",
    ),
    Correction(
        "Excess loss of capacity r",
        "It is exactly the sum over i > r of the eigenvalues of sum_i alpha_i U_i^T y_i y_i^T U_i; the print gives a "
        "bound with squares, of a matrix that lacks a factor.",
    ),
    Correction(
        "Orthogonalising procedure",
        "The sign is reversed: the best loss of capacity r is at most OPT + sum over j > r of lambda_j, as the lambdas "
        "sum to the explained energy and OPT is the residual. The greedy directions are not optimal from r = 2 on.",
    ),
    Correction(
        "Shared inputs",
        "Proposition 3 is right, and needs full column rank. The remark below it needs X^T for X and sqrt(alpha_i) for "
        "alpha_i.",
    ),
    Correction(
        "Landscape",
        "With proportional covariances every local minimum is global. With different ones it often is not, so one "
        "descent is not the optimal joint model: the linear studies here use the exact optimum. Just above "
        "m_1 + m_2 = d that optimum itself interpolates and explodes.",
    ),
    Correction(
        "Linear transfer theorem",
        "It holds where its conditions hold (c < 1/3, m_2 >= d), but is loose, compares nothing with training alone, "
        "and so certifies no positive transfer. Its sample size misses a factor d; its geometric fact is sharp at "
        "1 / kappa.",
    ),
    Correction(
        "ReLU transfer theorem",
        "The condition is c >= kappa(X_2) sin(theta_1, theta_2), and the conclusion bounds the angle of B* to theta_2. "
        "The moment identity is used as (sin p + (pi - p) cos p) / (2 pi), finite at a right angle too.",
    ),
    Correction(
        "The example of Figure 3",
        "X = R Q D makes the rotation Q do nothing; X = R D Q^T is meant. Without label noise, and with 9,000 target "
        "rows, nothing is left to transfer: noise of one standard deviation, few target rows and the exact optimum "
        "show the figure. Raw features of scale 100 diverge under SGD at the printed rate, and an optimiser that stops "
        "by validation hides most of the harm.",
    ),
    Correction(
        "Higher-rank ReLU",
        "The cosine of the units is alpha / sqrt(alpha^2 + (1 - alpha)^2), not alpha. The text says rank 10 and 5.",
    ),
    Correction(
        "Algorithm 2",
        "On raw labels it weighs noisy and frequent tasks up. Centre the labels and scale them to unit norm first, and "
        "divide the weights by their mean; most of the gain is that scaling. Re-weighting pays at most where the "
        "capacity is no larger than the intrinsic rank. A noisy label vector has the larger entropy, not the smaller.",
    ),
    Correction(
        "Single-task baselines",
        "A tuned single-task model is the baseline that decides. Against unregularised least squares even an unrelated "
        "source can look helpful.",
    ),
    Correction(
        "Algorithm 1",
        "With capacity one it follows the path of fine-tuning the target's model from B, so B must be a trained one. "
        "Shrinking the target's model "
        "towards the joint one, with a strength chosen by cross-validation, is the form that is safe.",
    ),
    Correction(
        "Whitening",
        "Whitening each task's inputs, which makes all covariances equal, helps when tasks differ by the units of "
        "their columns and destroys transfer on the paper's own example.",
    ),
    Correction(
        "Capacity",
        "The best shared capacity is the intrinsic rank of the tasks' models where the labels are clean enough to "
        "tell, and smaller where they are not; always well below the sum over tasks.",
    ),
)
REFERENCE = re.compile(r"correction (\d+)")
