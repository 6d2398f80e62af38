# ruff: noqa: E501 - the report is prose in long lines
"""How often does a prediction made before training get the sign of the true transfer right?

The paper's family (Section 2.2, figure 2, as corrected in docs): X = R D Q^T, two linear models at an angle, label
noise. Configurations are drawn at random; the truth needs no test set, because the input covariance is known: it is
the population R2 of a fitted joint model minus that of the target's tuned ridge.

Run: python benchmarks/predict_transfer.py [--configurations 200] [--seed 0] [--out docs/results/prediction.md]
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from mtlens.diagnosis import diagnose
from mtlens.tasks import Task, TaskSet
from mtlens.theory import two_task_optimum
from mtlens.theory.transfer import LinearProblem, LinearTransfer

DIMENSION = 100
STRONG = 10  # coordinates stretched by kappa
CLEAR = (0.01, 0.02, 0.05)  # a true transfer of at least this many R2 is clear
TRUTHS = {
    "joint": "joint ridge, every row alike, ridge by cross-validation (what `diagnose` predicts)",
    "weighted": "joint ridge, source weight by cross-validation too",
    "rank 1": "exact rank-1 joint optimum at both tasks' tuned ridges (`two_task_optimum`)",
    "shrink": "own ridge shrunk to the source's solution",
}
PREDICTORS = {
    "predicted": "`diagnose`: predicted",
    "cosine": "cosine of tuned ridge models",
    "score": "covariance similarity",
    "score_normalised": "covariance similarity, normalised",
}


@dataclass(frozen=True)
class Side:
    """One task with its truth: labels are ``X theta`` plus noise of standard deviation ``noise``."""

    X: np.ndarray
    y: np.ndarray
    theta: np.ndarray
    covariance: np.ndarray
    noise: float

    def population_r2(self, coef: np.ndarray, intercept: float) -> float:
        """Of a linear model, over the distribution of inputs (which have mean zero)."""
        error = coef - self.theta
        signal = self.theta @ self.covariance @ self.theta
        return float(1 - (error @ self.covariance @ error + intercept**2 + self.noise**2) / (signal + self.noise**2))


def configuration(random: np.random.Generator) -> dict[str, float]:
    """Rows, stretch, angle, covariance and noise, drawn independently."""
    return {
        "target_rows": round(math.exp(random.uniform(math.log(20), math.log(200)))),
        "source_rows": round(math.exp(random.uniform(math.log(100), math.log(5000)))),
        "kappa": math.exp(random.uniform(math.log(3), math.log(100))),
        "cosine": random.uniform(-1, 1),
        "same_covariance": int(random.integers(2)),
        "noise": random.uniform(0.5, 1.5),  # standard deviations of the clean label
    }


def draw(setting: dict[str, float], random: np.random.Generator) -> tuple[Side, Side]:
    """Target and source of one configuration."""
    d = DIMENSION
    first = random.standard_normal(d)
    first /= np.linalg.norm(first)
    other = random.standard_normal(d)
    other -= (other @ first) * first
    other /= np.linalg.norm(other)
    cosine = setting["cosine"]
    second = cosine * first + math.sqrt(1 - cosine**2) * other
    order = random.permutation(d)
    frames = []
    for i in range(2):
        stretch = np.ones(d)
        stretch[order[i * STRONG : (i + 1) * STRONG]] = setting["kappa"]
        frames.append((stretch / setting["kappa"], np.linalg.qr(random.standard_normal((d, d)))[0]))
    if setting["same_covariance"]:
        frames[1] = frames[0]
    rows = (int(setting["target_rows"]), int(setting["source_rows"]))
    made = [
        _side(m, *frame, theta, setting["noise"], random)
        for m, frame, theta in zip(rows, frames, (first, second), strict=True)
    ]
    return made[0], made[1]


def _side(
    m: int, stretch: np.ndarray, Q: np.ndarray, theta: np.ndarray, noise: float, random: np.random.Generator
) -> Side:
    X = (random.standard_normal((m, len(theta))) * stretch) @ Q.T
    covariance = (Q * stretch**2) @ Q.T
    sd = noise * math.sqrt(theta @ covariance @ theta)
    return Side(X, X @ theta + sd * random.standard_normal(m), theta, covariance, sd)


def truths(target: Side, source: Side) -> dict[str, float]:
    """True transfer of each kind of joint model: its population R2 minus that of the target's tuned ridge."""
    problems = [LinearProblem("target", target.X, target.y), LinearProblem("source", source.X, source.y)]
    core, plain = LinearTransfer(problems), LinearTransfer(problems, weights=(1.0,))
    alone = core.fit("target")
    base = target.population_r2(alone.coef[:, 0], float(alone.intercept[0]))
    fits = {
        "joint": plain.fit("target", ("source",)),
        "weighted": core.fit("target", ("source",)),
        "shrink": core.fit("target", ("source",), method="shrink"),
    }
    found = {name: target.population_r2(m.coef[:, 0], float(m.intercept[0])) - base for name, m in fits.items()}
    found["rank 1"] = target.population_r2(*_exact_rank_one(core, target, source)) - base
    return {"alone": base, **found}


def _exact_rank_one(core: LinearTransfer, target: Side, source: Side) -> tuple[np.ndarray, float]:
    scale = core.view(None).scale_x
    standard = [((s.X - s.X.mean(0)) / scale, (s.y - s.y.mean()) / s.y.std()) for s in (target, source)]
    ridges = (core.alone("target").ridge, core.alone("source").ridge)
    optimum = two_task_optimum(*standard[0], *standard[1], ridge=ridges)
    coef = np.asarray(optimum.coef)[:, 0] * target.y.std() / scale
    return coef, float(target.y.mean() - target.X.mean(0) @ coef)


def predictions(target: Side, source: Side) -> dict[str, float]:
    tasks = TaskSet(
        [Task("target", target.X, target.y, kind="regression"), Task("source", source.X, source.y, kind="regression")]
    )
    pair = diagnose(tasks).pair("target", "source")
    numbers = {name: float(getattr(pair, name)) for name in (*PREDICTORS, "low", "high")}
    return {
        **numbers,
        "cosine": abs(numbers["cosine"]),
        "helps": pair.verdict == "helps",
        "hurts": pair.verdict == "hurts",
    }


def sign_accuracy(prediction: np.ndarray, truth: np.ndarray, clear: np.ndarray) -> float:
    """Share of clear cells whose sign is right. Scores have no sign of their own: theirs is "above their median"."""
    positive = prediction > (0.0 if (prediction < 0).any() else np.median(prediction))
    return float((positive == (truth > 0))[clear].mean())


def report(table: dict[str, np.ndarray], options: argparse.Namespace, seconds: float) -> str:
    n = len(table["alone"])
    lines = [
        "# Predicting transfer before training, on the paper's family",
        "",
        f"{n} random configurations, seed {options.seed}; `python benchmarks/predict_transfer.py` ({seconds:.0f} s). "
        "Target rows 20 to 200 and source rows 100 to 5000 (log-uniform), d = 100, kappa 3 to 100, cosine -1 to 1, "
        "covariances equal or not (half each), label noise 0.5 to 1.5 standard deviations. The truth is exact: population R2 of "
        "the fitted joint model minus that of the target's cross-validated ridge on the same rows. The mean R2 of that ridge is "
        f"{table['alone'].mean():.3f} (the noise leaves at most about .5).",
        "",
        "Sign right (share of cells with |true transfer| of at least .01 / .02 / .05 R2) and Spearman correlation over all cells. "
        "The cosine is absolute; cosine and scores have no zero, so their sign is taken as above or below their own median over "
        "the configurations, which helps them.",
        "",
    ]
    for truth, meaning in TRUTHS.items():
        x = table[truth]
        clear = [np.abs(x) >= c for c in CLEAR]
        lines += [
            f"## Truth: {meaning}",
            "",
            f"Mean {x.mean():+.3f}; positive in {100 * (x[clear[1]] > 0).mean():.0f} % of {clear[1].sum()} cells clear at .02. "
            f"Joining only where predicted to help: mean {np.where(table['predicted'] > 0, x, 0).mean():+.3f}.",
            "",
            f"| predictor | sign, clear at .01 ({clear[0].sum()}) | .02 ({clear[1].sum()}) | .05 ({clear[2].sum()}) | rank correlation |",
            "|---|---|---|---|---|",
        ]
        for name, label in PREDICTORS.items():
            signs = " | ".join(f"{sign_accuracy(table[name], x, c):.2f}" for c in clear)
            lines.append(f"| {label} | {signs} | {spearmanr(table[name], x).statistic:+.2f} |")
        lines.append("")
    lines += _interval_lines(table)
    return "\n".join(lines) + "\n"


def _interval_lines(table: dict[str, np.ndarray]) -> list[str]:
    x = table["joint"]
    covered = ((table["low"] <= x) & (x <= table["high"])).mean()
    helps, hurts = table["helps"].astype(bool), table["hurts"].astype(bool)
    wrong = (helps & (x < 0)).sum() + (hurts & (x > 0)).sum()
    return [
        "## Intervals and verdicts",
        "",
        f"The 95 % interval of `predicted` holds the true transfer of the joint ridge in {100 * covered:.0f} % of the "
        f'configurations. {helps.sum()} verdicts are "helps", {hurts.sum()} "hurts", of which {wrong} have the wrong sign; '
        'the rest is "unsure".',
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--configurations", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    start = time.perf_counter()
    rows = []
    for i in range(options.configurations):
        random = np.random.default_rng([options.seed, i])
        setting = configuration(random)
        target, source = draw(setting, random)
        rows.append({**setting, **truths(target, source), **predictions(target, source)})
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    text = report(table, options, time.perf_counter() - start)
    print(text)
    if options.out:
        options.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
