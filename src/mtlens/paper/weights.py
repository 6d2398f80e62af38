"""weights-noise: task weights when some labels are noisy (Section 2.4, Algorithm 2), printed and corrected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.paper.claims import Finding
from mtlens.paper.constants import needs
from mtlens.paper.generators import rotation, stream
from mtlens.paper.outcome import Draws, Ledger, Outcome, Panel
from mtlens.paper.registry import Experiment, register

WHERE = "Section 2.4, Algorithm 2"
EQUAL, PRINTED = "equal weights, raw labels", "Algorithm 2 as printed (raw labels)"
SCALED, OURS = "equal weights, unit-norm labels", "Algorithm 2, unit-norm labels"
UNCERTAINTY, ORACLE = "uncertainty weights", "oracle weights (true noise)"
LITERAL, WHITENED = "Algorithm 2, unit-norm labels, theta = X_i^T y_i", "Algorithm 2, each task whitened"


@dataclass(frozen=True)
class WeightSettings:
    """Half of the tasks have label noise ``noise`` sd of their signal, the others ``clean_noise``.

    Where the noise is mild, noisy tasks have ``at_noise`` and the others this over ``mild_ratio``.
    ``units`` is the sd of the logarithm of the tasks' label units: 0 gives all labels one unit.
    """

    seeds: int = 40
    seed: int = 0
    d: int = 50
    rows: int = 200
    tasks: int = 10
    intrinsic: int = 2
    rank: int = 2
    clean_noise: float = 0.2
    noise: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    at_noise: float = 2.0
    mild_ratio: float = 2.0
    units: float = 1.0
    ranks: tuple[int, ...] = (1, 2, 3, 5, 10)
    separate_tasks: int = 6
    separate_d: int = 20
    separate_rows: int = 60
    problems: int = 40

    def __post_init__(self) -> None:
        least = min(self.d, self.separate_d)
        needs(
            self.intrinsic <= least,
            f"intrinsic is the rank of models in R^d: it must be at most {least} (d and separate_d), "
            f"found {self.intrinsic}.",
        )
        needs(
            min(self.tasks, self.separate_tasks) >= 2,
            f"weights-noise compares noisy with clean tasks: tasks and separate_tasks must be at least 2, "
            f"found {self.tasks} and {self.separate_tasks}.",
        )
        quietest = min(*self.noise, self.at_noise)
        needs(
            quietest > self.clean_noise,
            f"every second task has more noise than clean_noise = {self.clean_noise:g}: noise and at_noise must lie "
            f"above it, found {quietest:g}.",
        )


@dataclass(frozen=True)
class Labelled:
    """Tasks on shared inputs: true models in label units, labels, and each task's noise sd relative to its signal."""

    X: FloatArray
    Y: FloatArray
    theta: FloatArray
    noise: FloatArray


def draw_shared(c: WeightSettings, seed: int, noise: float) -> Labelled:
    """``(rows, d)`` inputs and ``(rows, tasks)`` labels; every second task is noisy."""
    random = stream(seed, "models")
    theta = rotation(random, c.d)[:, : c.intrinsic] @ random.standard_normal((c.intrinsic, c.tasks))
    theta = theta / np.linalg.norm(theta, axis=0) * np.exp(c.units * random.standard_normal(c.tasks))
    X = stream(seed, "inputs").standard_normal((c.rows, c.d))
    levels = np.where(np.arange(c.tasks) % 2, noise, c.clean_noise)
    sd = np.linalg.norm(theta, axis=0)
    Y = X @ theta + stream(seed, "noise").standard_normal((c.rows, c.tasks)) * levels * sd
    return Labelled(X, Y, theta, levels)


def relative_error(coef: FloatArray, theta: FloatArray) -> float:
    """Mean over tasks of ``|coef_i - theta_i|^2 / |theta_i|^2``: free of label units; 1 is no model at all."""
    return float(np.mean(np.sum((coef - theta) ** 2, axis=0) / np.sum(theta**2, axis=0)))


def weightings(t: Labelled, rank: int) -> dict[str, FloatArray]:
    """Weights that apply to the raw labels' squared losses, by method. Unit-norm labels divide them by ``|y_i|^2``."""
    from mtlens.theory import svd_weights, uncertainty_weights_shared

    k = t.Y.shape[1]
    unit = 1.0 / np.sum(t.Y**2, axis=0)
    capped = min(rank, k)
    return {
        EQUAL: np.ones(k),
        PRINTED: svd_weights(t.X, t.Y, rank=capped, scale_labels=False, normalise=None),
        SCALED: unit,
        OURS: svd_weights(t.X, t.Y, rank=capped) * unit,
        UNCERTAINTY: uncertainty_weights_shared(t.X, t.Y, rank=rank),
        ORACLE: 1.0 / (t.noise**2 * np.sum(t.theta**2, axis=0)),
    }


def run(c: WeightSettings) -> Outcome:
    """Exact weighted optima only, so that nothing but the weights differs."""
    draws = Draws()
    for seed in range(c.seed, c.seed + c.seeds):
        for noise in c.noise:
            _shared(draws, "noise", noise, draw_shared(c, seed, noise), c.rank)
        for rank in c.ranks:
            _shared(draws, "rank", rank, draw_shared(c, seed, c.at_noise), rank)
        mild = replace(c, clean_noise=c.at_noise / c.mild_ratio, noise=(c.at_noise,))
        _shared(draws, "mild", c.at_noise, draw_shared(mild, seed, c.at_noise), c.rank)
        for noise in c.noise:
            _separate(draws, c, seed, noise)
    return Outcome(_panels(c), draws.points(), _findings(c, draws), _notes(c, draws))


def _shared(draws: Draws, panel: str, x: float, t: Labelled, rank: int) -> None:
    from mtlens.theory import shared_input_optimum

    noisy = t.noise > t.noise.min()
    for name, alpha in weightings(t, rank).items():
        coef = shared_input_optimum(t.X, t.Y, rank=rank, weights=alpha / alpha.mean()).coef
        draws.add(panel, name, x, relative_error(coef, t.theta))
        if name in (PRINTED, OURS) and noisy.any():
            share = alpha if name == PRINTED else alpha * np.sum(t.Y**2, axis=0)
            draws.add(f"{panel} weight", name, x, float(np.log(share[noisy].mean() / share[~noisy].mean())))


def _separate(draws: Draws, c: WeightSettings, seed: int, noise: float) -> None:
    """Every task with inputs of its own, stretched along axes of its own: the paper's open question."""
    from mtlens.theory import linear_optimum, svd_weights_separate

    k, d, random = c.separate_tasks, c.separate_d, stream(seed, "separate models")
    theta = rotation(random, d)[:, : c.intrinsic] @ random.standard_normal((c.intrinsic, k))
    theta /= np.linalg.norm(theta, axis=0)
    levels = np.where(np.arange(k) % 2, noise, c.clean_noise)
    Xs, ys, roots = [], [], []
    for i in range(k):
        own = stream(seed, "separate inputs", i)
        raw = own.standard_normal((c.separate_rows, d))
        root = np.exp(own.standard_normal(d)) * rotation(own, d)  # of the covariance of a row: X = raw root^T
        X = raw @ root.T
        roots.append(root.T)
        signal = X @ theta[:, i]
        Xs.append(X)
        ys.append(signal + levels[i] * signal.std() * own.standard_normal(c.separate_rows))
    unit = np.array([1.0 / (y @ y) for y in ys])
    methods = {
        SCALED: unit,
        LITERAL: _literal_weights(Xs, ys, c.intrinsic) * unit,
        WHITENED: np.asarray(svd_weights_separate(Xs, ys, rank=c.intrinsic)) * unit,
        ORACLE: np.array([1.0 / (level * (X @ t).std()) ** 2 for X, t, level in zip(Xs, theta.T, levels, strict=True)]),
    }
    for name, alpha in methods.items():
        best = linear_optimum(Xs, ys, rank=c.intrinsic, weights=alpha / alpha.mean(), starts=4, seed=seed)
        seen = [
            np.stack([root @ m for root, m in zip(roots, models.T, strict=True)], 1) for models in (best.coef, theta)
        ]
        draws.add("separate", name, noise, relative_error(*seen))


def _literal_weights(Xs: Sequence[FloatArray], ys: Sequence[FloatArray], rank: int) -> FloatArray:
    """Algorithm 2 word for word on separate inputs: ``theta_i = X_i^T y_i`` on unit-norm labels, no whitening."""
    moments = np.stack([X.T @ y / np.linalg.norm(y) for X, y in zip(Xs, ys, strict=True)], axis=1)
    u = np.linalg.svd(moments, full_matrices=False)[0][:, :rank]
    weights: FloatArray = np.linalg.norm(u.T @ moments, axis=0)
    return weights / float(weights.mean())


def _panels(c: WeightSettings) -> list[Panel]:
    error = "relative squared error of the models"
    sd = "label noise of every second task (sd of its signal)"
    return [
        Panel("noise", f"Error by label noise, capacity {c.rank}", sd, error, controls=(EQUAL, ORACLE)),
        Panel(
            "rank", f"Error by capacity, noise {c.at_noise:g} sd", "shared capacity r", error, controls=(EQUAL, ORACLE)
        ),
        Panel("noise weight", "Weight of noisy tasks over clean ones", sd, "log ratio of mean weights", reference=0.0),
        Panel(
            "separate",
            "Every task with its own inputs",
            sd,
            "relative squared error of predictions",
            controls=(ORACLE,),
        ),
    ]


def _noise_judged(c: WeightSettings) -> float:
    """The noise at which the claims are judged: ``at_noise`` when it is in the figure."""
    return c.at_noise if c.at_noise in c.noise else max(c.noise)


def _notes(c: WeightSettings, draws: Draws) -> list[str]:
    """The mean errors behind the ratios."""
    at = _noise_judged(c)

    def told(panel: str, names: Sequence[str]) -> str:
        return ", ".join(f"{draws.get(panel, name, at).mean():.3f} {name}" for name in names)

    return [
        f"Mean error at noise {at:g} sd: {told('noise', (EQUAL, PRINTED, SCALED, OURS, UNCERTAINTY, ORACLE))}.",
        f"Every task with its own inputs: {told('separate', (SCALED, LITERAL, WHITENED, ORACLE))}.",
    ]


def _findings(c: WeightSettings, draws: Draws) -> list[Finding]:
    tag, at = "printed" if c.units == 0 else "corrected", _noise_judged(c)
    units = "one label unit" if c.units == 0 else f"label units e^N(0, {c.units:g}^2)"
    condition = f"{c.tasks} tasks of true rank {c.intrinsic}, half with noise {at:g} sd, {units}, exact, r = {c.rank}"
    ledger, p = Ledger(condition), f"weights-noise.{tag}"

    def error(name: str, panel: str = "noise", x: float = at) -> FloatArray:
        logs: FloatArray = np.log(draws.get(panel, name, x))
        return logs

    q = "log ratio of errors"
    ledger.claim(
        f"{p}.printed-down-weights",
        "Algorithm 2 as printed gives noisy tasks smaller weights.",
        WHERE,
        "below",
        draws.get("noise weight", PRINTED, at),
        quantity="log of noisy over clean weight",
    )
    ledger.claim(
        f"{p}.ours-down-weights",
        "On unit-norm labels Algorithm 2 gives noisy tasks smaller weights (corrected).",
        "correction 11",
        "below",
        draws.get("noise weight", OURS, at),
        quantity="log of noisy over clean weight",
    )
    ledger.claim(
        f"{p}.printed-helps",
        "Algorithm 2 as printed is more robust to label noise than equal weights.",
        WHERE,
        "below",
        error(PRINTED) - error(EQUAL),
        quantity=f"{q}, printed over equal",
    )
    ledger.claim(
        f"{p}.ours-helps",
        "Algorithm 2 on unit-norm labels is more robust than equal weights on raw labels.",
        "correction 11",
        "below",
        error(OURS) - error(EQUAL),
        quantity=f"{q}, corrected over equal",
    )
    ledger.claim(
        f"{p}.beyond-normalising",
        "Algorithm 2 beats equal weights on the same unit-norm labels.",
        "correction 11; control",
        "below",
        error(OURS) - error(SCALED),
        quantity=f"{q}, corrected over normalising alone",
    )
    gain, normalising, most = (
        draws.get("noise", EQUAL, at) - draws.get("noise", m, at) for m in (OURS, SCALED, ORACLE)
    )
    ledger.claim(
        f"{p}.mostly-normalising",
        "At least 80 % of Algorithm 2's gain is the label normalisation alone.",
        "correction 11; control",
        "above",
        normalising - 0.8 * gain,
        quantity=f"normalising's gain minus 80 % of the whole; on average {normalising.mean() / gain.mean():.0%} of it",
    )
    ledger.claim(
        f"{p}.near-oracle",
        "Algorithm 2 on unit-norm labels gets at least 90 % of what oracle weights gain over equal weights.",
        "correction 11",
        "above",
        gain - 0.9 * most,
        quantity=f"its gain minus 90 % of the oracle's; on average {gain.mean() / most.mean():.0%} of it",
    )
    ledger.claim(
        f"{p}.matches-uncertainty",
        "Algorithm 2 on unit-norm labels is within 10 % of uncertainty weighting's error.",
        f"{WHERE}; Section 3",
        "within",
        error(OURS) - error(UNCERTAINTY),
        threshold=0.1,
        quantity=q,
    )
    ledger.claim(
        f"{p}.matches-uncertainty-mild",
        f"... and where noisy tasks have only {c.mild_ratio:g} times the noise of the others, it is.",
        "correction 11",
        "within",
        error(OURS, "mild", c.at_noise) - error(UNCERTAINTY, "mild", c.at_noise),
        threshold=0.1,
        quantity=q,
        condition=f"{c.tasks} tasks of true rank {c.intrinsic}, half with noise {c.at_noise:g} sd, the others with "
        f"{c.at_noise / c.mild_ratio:g} sd, {units}, exact, r = {c.rank}",
    )
    large = max(c.ranks)
    between = [rank for rank in c.ranks if c.intrinsic < rank < large]
    if between and c.intrinsic in c.ranks:
        larger = np.mean([error(OURS, "rank", rank) for rank in between], axis=0)
        ledger.claim(
            f"{p}.capacity-matters-more",
            f"Choosing the capacity matters more than the weights: equal weights at r = {c.intrinsic} beat Algorithm 2 "
            f"at r = {', '.join(map(str, between))} (unit-norm labels).",
            "correction 11",
            "below",
            error(SCALED, "rank", c.intrinsic) - larger,
            quantity=q,
            condition=f"{c.tasks} tasks of true rank {c.intrinsic}, half with noise {c.at_noise:g} sd, {units}, exact",
        )
    if large >= c.tasks:
        ledger.claim(
            f"{p}.capacity-first",
            f"With capacity {large} (no transfer) the weights change nothing.",
            "correction 11",
            "within",
            error(OURS, "rank", large) - error(EQUAL, "rank", large),
            threshold=0.01,
            quantity=q,
        )
    ledger.claim(
        f"{p}.separate-whitened",
        "With inputs of its own per task, whitening each task beats the literal scheme.",
        "Section 5, open question",
        "below",
        error(WHITENED, "separate") - error(LITERAL, "separate"),
        quantity=q,
    )
    ledger.claim(
        f"{p}.separate-helps",
        "With inputs of its own per task, whitened weights beat equal weights.",
        "Section 5, open question",
        "below",
        error(WHITENED, "separate") - error(SCALED, "separate"),
        quantity=q,
    )
    if c.problems:
        ledger.findings += shared_input_findings(c)
    return ledger.findings


def shared_input_findings(c: WeightSettings) -> list[Finding]:
    """Proposition 3 and the two-task example behind Algorithm 2, on random problems."""
    from scipy.stats import differential_entropy

    from mtlens.theory import linear_optimum, mtl_loss, shared_input_optimum

    drops, ends, spans, remark, entropy = [], [], [], [], []
    for seed in range(c.seed, c.seed + c.problems):
        random = stream(seed, "two tasks")
        X, theta = random.standard_normal((30, 8)), random.standard_normal(8)
        signal = X @ theta
        y = np.stack([signal, signal + 2 * signal.std() * random.standard_normal(30)], axis=1)
        cosines = []
        for alpha in (0.1, 1.0, 10.0, 100.0, 1e6):
            B = shared_input_optimum(X, y, rank=1, weights=(alpha, 1.0)).B[:, 0]
            cosines.append(abs(float(B @ theta)) / np.linalg.norm(B) / np.linalg.norm(theta))
        drops.append(float(-np.diff(cosines).min()))
        ends.append(1 - cosines[-1])
        entropy.append(float(differential_entropy(y[:, 1]) - differential_entropy(y[:, 0])))

        Y, weights = (
            random.standard_normal((30, 4)) + X @ random.standard_normal((8, 4)),
            np.exp(random.standard_normal(4)),
        )
        Xs, ys, energy = [X] * 4, list(Y.T), float(weights @ np.sum(Y**2, axis=0))
        closed = shared_input_optimum(X, Y, rank=2, weights=weights)
        best = linear_optimum(Xs, ys, rank=2, weights=weights, starts=5, seed=seed).loss
        spans.append((max(closed.loss, mtl_loss(_span(X, Y * np.sqrt(weights), 2), Xs, ys, weights)) - best) / energy)
        remark.append((mtl_loss(_span(X, Y * weights, 2), Xs, ys, weights) - best) / energy)

    ledger, p = Ledger("random problems on shared inputs, full column rank"), "weights-noise"
    share = "extra loss over the best of 5 starts, share of the labels' energy"
    ledger.claim(
        f"{p}.optimum",
        "On shared inputs the span of B* is that of (X^T X)^-1 V D Q_r.",
        "Proposition 3, Section 2.4",
        "every",
        spans,
        threshold=1e-7,
        quantity=share,
        condition="needs full column rank",
    )
    ledger.claim(
        f"{p}.remark",
        "B* is spanned by (X^T X)^-1 X^T [alpha_i y_i] (X^T for the printed X).",
        "Section 2.4, below Proposition 3",
        "every",
        remark,
        threshold=1e-7,
        quantity=share,
        condition="corrected form: sqrt(alpha_i) for alpha_i",
    )
    ledger.claim(
        f"{p}.raising-alpha",
        "Raising the clean task's weight never lowers cos(B*, theta).",
        "Section 2.4, example",
        "every",
        drops,
        threshold=1e-9,
        quantity="largest fall of the cosine",
    )
    ledger.claim(
        f"{p}.raising-alpha-limit",
        "... and the cosine tends to 1.",
        "Section 2.4, example",
        "every",
        ends,
        threshold=1e-4,
        quantity="1 - cosine at weight 10^6",
        condition="the clean task has no noise at all",
    )
    ledger.claim(
        f"{p}.entropy",
        "The entropy of a noisy label vector is smaller than that of a clean one.",
        WHERE,
        "below",
        entropy,
        quantity="differential entropy, noisy minus clean",
    )
    return ledger.findings


def _span(X: FloatArray, Z: FloatArray, rank: int) -> FloatArray:
    """``(X^T X)^-1 V D Q_r`` with ``Q_r`` the leading left singular vectors of ``U^T Z``."""
    u, s, vt = np.linalg.svd(X, full_matrices=False)
    q = np.linalg.svd(u.T @ Z, full_matrices=False)[0][:, :rank]
    span: FloatArray = (vt.T / s) @ q
    return span


EXPERIMENT = register(
    Experiment(
        name="weights-noise",
        title="Task weights under label noise",
        where=WHERE,
        settings={"corrected": WeightSettings(), "printed": WeightSettings(units=0.0, problems=0)},
        quick={"seeds": 6, "noise": (0.5, 2.0), "ranks": (1, 2, 10), "problems": 10},
        run=run,
        about=(
            "Half of the tasks carry noisy labels. Printed: all labels in one unit. Corrected: labels in units that "
            "differ, as they do in practice. In both, Algorithm 2 as printed and on centred unit-norm labels stands "
            "beside equal weights on either kind of labels (the control: most of the gain is the normalisation), "
            "uncertainty weighting, and the oracle."
        ),
    )
)
