"""A claim is data: a sentence, where it stands, and the test that decides it.

Verdicts come from one rule for every claim, fixed before the numbers are seen:

* ``above`` / ``below`` a threshold: the mean of the draws (paired differences, one a seed) against it, one-sided t at
  ``level``. The two-sided ``1 - 2 level`` interval wholly beyond the threshold means *holds*, wholly on the other side
  *does not hold*, anything else *undecided*.
* ``within`` the threshold of zero: the interval inside (-threshold, threshold) *holds*, outside it *does not hold*.
* ``share_above``: draws are 0 / 1; the Clopper-Pearson interval of their share against the threshold.
* ``every``: a statement without exception. Every draw must be at most the threshold; one counterexample refutes it.

Draws are one a seed, so they are independent. Nothing is corrected for the number of claims in the book: at level .025
one claim in forty that sits exactly on its threshold will be called by luck.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.errors import InputError

Test: TypeAlias = Literal["above", "below", "within", "share_above", "every"]
Verdict: TypeAlias = Literal["holds", "does not hold", "undecided"]
LEVEL = 0.025


@dataclass(frozen=True)
class Claim:
    """One sentence that can be true or false of the draws of a study.

    ``statement`` is the claim as made; ``where`` its place ("Section 2.3, Figure 3", or "correction 3" for a corrected
    form of ours); ``condition`` what must be known to read the verdict ("label noise of one sd, m_1 = 20").
    """

    id: str
    statement: str
    where: str
    test: Test
    threshold: float = 0.0
    condition: str = ""
    quantity: str = ""
    level: float = LEVEL

    def __post_init__(self) -> None:
        if not 0 < self.level < 0.5:
            raise InputError(f"claim {self.id!r}: level must be in (0, 0.5), found {self.level}.")


@dataclass(frozen=True)
class Finding:
    """A claim with its verdict: ``estimate`` in [``low``, ``high``] from ``n`` draws, and the one-sided p."""

    claim: Claim
    estimate: float | None
    low: float | None
    high: float | None
    n: int
    p: float | None
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        """The documented JSON form."""
        claim = self.claim
        return {
            "id": claim.id,
            "statement": claim.statement,
            "where": claim.where,
            "quantity": claim.quantity,
            "test": claim.test,
            "threshold": claim.threshold,
            "level": claim.level,
            "estimate": _rounded(self.estimate),
            "low": _rounded(self.low),
            "high": _rounded(self.high),
            "n": self.n,
            "p": _rounded(self.p),
            "verdict": self.verdict,
            "condition": claim.condition,
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Finding:
        """The inverse of :meth:`as_dict`."""
        words = ("id", "statement", "where", "quantity", "test", "threshold", "level", "condition")
        result = ("estimate", "low", "high", "n", "p", "verdict")
        return cls(Claim(**{k: found[k] for k in words}), **{k: found[k] for k in result})


def judge(claim: Claim, draws: Any) -> Finding:
    """Decide a claim from its draws, one a seed (see the module's docstring for the rule).

    >>> judge(Claim("c", "it rises", "here", "above"), [0.9, 1.1, 1.0, 1.2]).verdict
    'holds'
    >>> judge(Claim("c", "never above zero", "here", "every", 1e-9), [-1.0, 0.3]).verdict
    'does not hold'
    """
    values = np.asarray(draws, dtype=np.float64).ravel()
    if values.size == 0:
        raise InputError(f"claim {claim.id!r} has no draws to judge. Run at least one seed, or use not_measured().")
    if not np.isfinite(values).all():
        raise InputError(f"claim {claim.id!r}: {np.sum(~np.isfinite(values))} of {values.size} draws are not finite.")
    return _RULES[claim.test](claim, values)


def not_measured(claim: Claim) -> Finding:
    """The entry of a claim that no study here measures: undecided, n = 0, and the condition says why."""
    return Finding(claim, None, None, None, 0, None, "undecided")


def mean_interval(values: FloatArray, level: float = LEVEL) -> tuple[float, float, float]:
    """Mean and its two-sided ``1 - 2 level`` t interval; a single draw has an unbounded one.

    >>> mean_interval(np.array([1.0, 1.0, 1.0]))
    (1.0, 1.0, 1.0)
    """
    from scipy.stats import t

    mean = float(values.mean())
    if values.size < 2:
        return mean, -np.inf, np.inf
    half = float(t.ppf(1 - level, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size))
    return mean, mean - half, mean + half


def _one_sided_p(values: FloatArray, threshold: float) -> float:
    """P of a mean this far above the threshold were the truth exactly on it."""
    from scipy.stats import t

    if values.size < 2:
        return 1.0
    gap, spread = values.mean() - threshold, values.std(ddof=1) / np.sqrt(values.size)
    if spread == 0:
        return 0.0 if gap > 0 else 1.0
    return float(t.sf(gap / spread, values.size - 1))


def _above(claim: Claim, values: FloatArray) -> Finding:
    mean, low, high = mean_interval(values, claim.level)
    verdict: Verdict = "undecided"
    if low > claim.threshold:
        verdict = "holds"
    elif high <= claim.threshold:
        verdict = "does not hold"
    return Finding(claim, mean, low, high, values.size, _one_sided_p(values, claim.threshold), verdict)


def _below(claim: Claim, values: FloatArray) -> Finding:
    mean, low, high = mean_interval(values, claim.level)
    verdict: Verdict = "undecided"
    if high < claim.threshold:
        verdict = "holds"
    elif low >= claim.threshold:
        verdict = "does not hold"
    return Finding(claim, mean, low, high, values.size, _one_sided_p(-values, -claim.threshold), verdict)


def _within(claim: Claim, values: FloatArray) -> Finding:
    mean, low, high = mean_interval(values, claim.level)
    verdict: Verdict = "undecided"
    if -claim.threshold < low and high < claim.threshold:
        verdict = "holds"
    elif high <= -claim.threshold or low >= claim.threshold:
        verdict = "does not hold"
    p = max(_one_sided_p(values, -claim.threshold), _one_sided_p(-values, -claim.threshold))
    return Finding(claim, mean, low, high, values.size, p, verdict)


def _share_above(claim: Claim, values: FloatArray) -> Finding:
    from scipy.stats import binomtest

    if not np.isin(values, (0.0, 1.0)).all():
        raise InputError(f"claim {claim.id!r} counts how often something happens, so its draws must be 0 or 1.")
    test = binomtest(int(values.sum()), values.size, claim.threshold, alternative="greater")
    both = binomtest(int(values.sum()), values.size).proportion_ci(1 - 2 * claim.level)
    verdict: Verdict = "undecided"
    if both.low > claim.threshold:
        verdict = "holds"
    elif both.high <= claim.threshold:
        verdict = "does not hold"
    share = float(values.mean())
    return Finding(claim, share, float(both.low), float(both.high), values.size, float(test.pvalue), verdict)


def _every(claim: Claim, values: FloatArray) -> Finding:
    """The estimate is the worst draw; low and high are the range of the draws (no interval: nothing is estimated)."""
    worst = float(values.max())
    verdict: Verdict = "holds" if worst <= claim.threshold else "does not hold"
    return Finding(claim, worst, float(values.min()), worst, values.size, None, verdict)


_RULES = {"above": _above, "below": _below, "within": _within, "share_above": _share_above, "every": _every}


def _rounded(value: float | None) -> float | None:
    """Ten significant digits; an unbounded end becomes null, as JSON has no infinity."""
    return None if value is None or not np.isfinite(value) else float(f"{value:.10g}")


def shown_estimate(finding: Finding) -> str:
    """``+0.21 [+0.15, +0.27]`` for a mean, ``largest 1e-12`` for a statement without exception."""
    if finding.estimate is None:
        return "—"
    if finding.claim.test == "every":
        return f"largest {finding.estimate:.3g}"
    if finding.low is None or finding.high is None or not np.isfinite(finding.low):
        return f"{finding.estimate:+.3g} [one draw]"
    sign = "" if finding.claim.test == "share_above" else "+"
    return f"{finding.estimate:{sign}.3g} [{finding.low:{sign}.3g}, {finding.high:{sign}.3g}]"


def asked(claim: Claim) -> str:
    """What the test asks of the quantity, in a few signs.

    >>> asked(Claim("c", "it helps", "here", "above", 0.01)), asked(Claim("c", "equal", "here", "within", 0.02))
    ('asked: above 0.01', 'asked: within ±0.02')
    """
    words = {
        "above": "above ",
        "below": "below ",
        "within": "within ±",
        "share_above": "above ",
        "every": "each at most ",
    }
    return f"asked: {words[claim.test]}{claim.threshold:.3g}"
