"""Do the study's intervals cover, do its nulls stay null, does it see what is there?

Run:  python benchmarks/statistics_simulation.py [--draws 2000] [--studies 200] [--power 100] [--out FILE]

Procedures: ridge on the target alone, and ridge on target and source rows together; the penalty is chosen on
validation rows inside every split, from one grid for both. The estimand of an interval is the mean of joint minus
alone over data sets of this size *and* over splits, at the number of training rows a split leaves; it is computed as
the mean over all simulated data sets and splits, so its own error is negligible beside one interval.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mtlens.study.statistics import (
    ERROR,
    LOOKS,
    benjamini_hochberg,
    compare_splits,
    judge,
    sequential_p,
    variance_factor,
)

RIDGES = 10.0 ** np.arange(-2, 5)
METRICS = ("r2", "roc_auc", "accuracy")
TEST, VALID = 0.2, 0.16  # shares of a target's rows, as in the study's own splits
MARGIN = 0.01
CASES = ((0.8, 200), (0.0, 200), (0.8, 60))  # cosine of source and target, rows of the target
WORLDS = 4
FOLDS = 5


def score(metric: str, y: np.ndarray, prediction: np.ndarray) -> np.ndarray:
    """``(..., m)`` labels (+-1 for classes) and predictions -> one score a leading index, higher better."""
    if metric == "r2":
        centred = y - y.mean(-1, keepdims=True)
        return 1 - ((y - prediction) ** 2).sum(-1) / (centred**2).sum(-1)
    if metric == "accuracy":
        return (np.sign(prediction) == y).mean(-1)
    ranks = prediction.argsort(-1).argsort(-1) + 1.0
    positive = y > 0
    count = positive.sum(-1)
    others = y.shape[-1] - count
    return ((ranks * positive).sum(-1) - count * (count + 1) / 2) / np.maximum(count * others, 1)


def problem(rng, metric, draws, rows, theta, noise):
    """``draws`` data sets of ``rows`` rows: X (draws, rows, d), y (draws, rows); theta (draws, d)."""
    X = rng.standard_normal((draws, rows, theta.shape[-1]))
    y = np.einsum("nmd,nd->nm", X, theta) + noise * rng.standard_normal((draws, rows))
    return X, (y if metric == "r2" else np.where(y >= 0, 1.0, -1.0))


def ridge_path(gram: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """``(n, d, d)``, ``(n, d)`` -> coefficients for every penalty ``(n, ridges, d)``, by one eigenbasis a problem."""
    values, vectors = np.linalg.eigh(gram)
    turned = np.einsum("nij,ni->nj", vectors, moment)
    shrunk = turned[:, None] / (np.maximum(values, 0)[:, None] + RIDGES[None, :, None])
    return np.einsum("nij,nrj->nri", vectors, shrunk)


def split_scores(metric, X, y, extra, order) -> list[np.ndarray]:
    """Test scores of one split for every entry of ``extra`` (None = alone, else the source's Gram and moment)."""
    m = y.shape[1]
    test, valid = round(TEST * m), round(VALID * m)
    X, y = np.take_along_axis(X, order[..., None], 1), np.take_along_axis(y, order, 1)
    train = slice(test + valid, None)
    gram = np.swapaxes(X[:, train], 1, 2) @ X[:, train]
    moment = np.einsum("nmd,nm->nd", X[:, train], y[:, train])
    found = []
    for more in extra:
        coef = ridge_path(gram, moment) if more is None else ridge_path(gram + more[0], moment + more[1])
        guess = np.swapaxes(X[:, : test + valid] @ np.swapaxes(coef, 1, 2), 1, 2)  # (n, ridges, test + valid)
        held = score(metric, y[:, None, test : test + valid], guess[:, :, test:])
        best = np.take_along_axis(guess, held.argmax(1)[:, None, None], 1)[:, 0]
        found.append(score(metric, y[:, :test], best[:, :test]))
    return found


def moments(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.swapaxes(X, 1, 2) @ X, np.einsum("nmd,nm->nd", X, y)


def unit(rng, draws, d):
    theta = rng.standard_normal((draws, d))
    return theta / np.linalg.norm(theta, axis=1, keepdims=True)


def paired_differences(
    rng, metric, draws, splits, *, rows=200, columns=20, source_rows=400, cosine=0.8, noise=1.0, orders=None
) -> np.ndarray:
    """Joint minus alone, ``(draws, splits)``, in one world: fresh target rows in every draw, one fixed source."""
    theta = unit(rng, 1, columns)
    other = cosine * theta + np.sqrt(1 - cosine**2) * unit(rng, 1, columns)
    source = moments(*problem(rng, metric, 1, source_rows, other, noise))
    found = []
    for n in in_chunks(draws, max(1, 50_000_000 // (rows * columns * 100))):
        X, y = problem(rng, metric, n, rows, np.repeat(theta, n, 0), noise)
        drawn = (orders or fold_orders)(rng, n, rows, splits)
        pairs = [split_scores(metric, X, y, [None, source], order) for order in drawn]
        found.append(np.stack([joint - alone for alone, joint in pairs], 1))
    return np.concatenate(found)


def fold_orders(rng, draws: int, rows: int, splits: int) -> Iterator[np.ndarray]:
    """Row orders (test rows first) of repeated complete 5-fold partitions; the rest is shuffled for validation."""
    fold = round(TEST * rows)
    for split in range(splits):
        if split % FOLDS == 0:
            base = rng.random((draws, rows)).argsort(1)
        turned = np.roll(base, -fold * (split % FOLDS), axis=1)
        rest = turned[:, fold:]
        shuffled = np.take_along_axis(rest, rng.random(rest.shape).argsort(1), 1)
        yield np.concatenate([turned[:, :fold], shuffled], 1)


def drawn_orders(rng, draws: int, rows: int, splits: int) -> Iterator[np.ndarray]:
    """Row orders of splits drawn independently: what Nadeau and Bengio's factor is for."""
    for _ in range(splits):
        yield rng.random((draws, rows)).argsort(1)


def in_chunks(draws: int, size: int = 250) -> Iterator[int]:
    yield from [size] * (draws // size) + ([draws % size] if draws % size else [])


def ratio() -> float:
    return TEST / (1 - TEST)


def coverage(draws: int, seed: int = 0) -> list[dict]:
    """Share of data sets whose 95 % interval holds its world's estimand: a study's folds, and random splits."""
    found = []
    for case, (cosine, rows) in enumerate(CASES):
        for metric in METRICS:
            estimates = {}
            for name, orders in (("folds", fold_orders), ("random", drawn_orders)):
                worlds = []
                for world in range(WORLDS):
                    rng = np.random.default_rng([seed, case, METRICS.index(metric), world])
                    given = {"cosine": cosine, "rows": rows, "orders": orders}
                    worlds.append(paired_differences(rng, metric, draws // WORLDS, max(LOOKS), **given))
                estimates[name] = np.stack(worlds)  # (worlds, draws, splits)
            for n in LOOKS:
                found.append({"metric": metric, "cosine": cosine, "rows": rows, "n": n} | one_coverage(estimates, n))
    return found


def one_coverage(estimates: dict[str, np.ndarray], n: int) -> dict:
    folds, random = estimates["folds"], estimates["random"]
    part = compare_splits(folds[..., :n], ratio(), balanced=True)
    return {
        "estimand": folds.mean(),
        "covers": covered(folds, part),
        "folds_as_random": covered(folds, compare_splits(folds[..., :n], ratio())),
        "random": covered(random, compare_splits(random[..., :n], ratio())),
        "naive": covered(random, compare_splits(random[..., :n], 0.0)),
        "needed": (part.difference.var(1, ddof=1) / (part.spread**2).mean(1)).mean(),
        "used": float(variance_factor(n, ratio(), balanced=True)),
        "half_width": np.mean(part.high - part.difference),
    }


def covered(values: np.ndarray, intervals) -> float:
    estimand = values.mean((1, 2))[:, None]  # one a world
    return float(np.mean((intervals.low <= estimand) & (estimand <= intervals.high)))


def adaptive_verdicts(differences: np.ndarray) -> np.ndarray:
    """``(cells, splits)`` -> verdicts of the study's own rule: fixed looks, stop what is clear, adjust over cells."""
    cells = len(differences)
    p_by_look = np.full((cells, len(LOOKS)), np.nan)
    verdicts = np.full(cells, "undecided", dtype=object)
    latest = np.zeros(cells, int)
    for look, n in enumerate(LOOKS):
        open_cells = verdicts == "undecided"
        latest[open_cells] = n
        for at in LOOKS[: look + 1]:
            here = latest == at
            if here.any():
                p_by_look[here, LOOKS.index(at)] = compare_splits(differences[here, :at], ratio(), balanced=True).p
        adjusted = benjamini_hochberg(sequential_p(p_by_look, LOOKS))
        for at in LOOKS[: look + 1]:
            here = latest == at
            if here.any():
                verdicts[here] = judge(
                    compare_splits(differences[here, :at], ratio(), balanced=True), adjusted[here], MARGIN
                )
    return verdicts


def null_studies(studies: int, metric: str, *, tasks=6, rows=200, block=4, seed=1) -> np.ndarray:
    """Verdicts ``(studies, cells)`` when nothing differs: joint with source j against joint with its twin.

    The target's coefficients have the same size in every block of columns, source j knows block j exactly, the twin
    knows one more block: over target data sets the procedures are exchangeable, so every true difference is exactly 0,
    while on one data set one block happens to look better (what splits cannot see). A target's cells share its rows,
    splits and baseline, as in a real study.
    """
    rng = np.random.default_rng([seed, METRICS.index(metric)])
    columns, strength = tasks * block, 40.0
    found = []
    for n in in_chunks(studies, 50):
        per_target = []
        for _ in range(tasks):
            theta = rng.choice([-1.0, 1.0], columns) / np.sqrt(columns)
            X, y = problem(rng, metric, n, rows, np.repeat(theta[None], n, 0), 1.0)
            known = [theta * (np.arange(columns) // block == j) for j in range(tasks)]
            sources = [(strength * np.eye(columns)[None], strength * part[None]) for part in known]
            orders = fold_orders(rng, n, rows, max(LOOKS))
            scores = [split_scores(metric, X, y, sources, order) for order in orders]
            values = np.asarray(scores)  # (splits, tasks, studies): entry 0 is the twin every cell is compared with
            per_target.append(values[:, 1:] - values[:, :1])
        cells = np.concatenate(per_target, 1).transpose(2, 1, 0)  # (studies, cells, splits)
        found += [adaptive_verdicts(study) for study in cells]
    return np.stack(found)


def planted(draws: int, *, n=10, cosine=0.95, seed=2) -> np.ndarray:
    """p values on the planted effect: 300 target rows, 200 features, a related source of 3,000 rows, noise .7."""
    rng = np.random.default_rng(seed)
    given = {"rows": 300, "columns": 200, "source_rows": 3000, "cosine": cosine, "noise": 0.7}
    values = np.concatenate([paired_differences(rng, "r2", draws // 4, n, **given) for _ in range(4)])
    result = compare_splits(values, ratio(), balanced=True)
    return np.where(result.difference >= MARGIN, result.p, 1.0)


def report(draws: int, studies: int, power: int) -> str:
    lines = ["# Does the study's statistics do what it says?", "", (__doc__ or "").split("\n\n", 2)[2].strip(), ""]
    lines += [
        f"Reproduce: `python benchmarks/statistics_simulation.py --draws {draws} --studies {studies} --power {power}`.",
        "",
        f"## Coverage of the 95 % interval ({draws:,} data sets in {WORLDS} worlds a row; must: 92 to 99 %)",
        "",
        "**covers** is the rule a study uses (repeats of 5 folds). Beside it: Nadeau and Bengio's factor on the same",
        "folds and on splits drawn independently, and the ordinary t interval. `needed` is the variance factor that",
        "would have been exactly right in that row, `used` the one the rule takes.",
        "",
        "| metric | rows | cosine | n | estimand | covers | N-B, folds | N-B, random | ordinary t | needed | used "
        "| half-width |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in coverage(draws):
        lines.append(
            "| {metric} | {rows} | {cosine} | {n} | {estimand:+.4f} | **{covers:.1%}** | {folds_as_random:.1%} "
            "| {random:.1%} | {naive:.1%} | {needed:.2f} | {used:.2f} | {half_width:.4f} |".format(**row)
        )
    lines += [
        "",
        "When a difference is mostly noise of the training itself (the null studies below), intervals over-cover: the",
        "rule assumes that rows, which all splits share, carry the spread. That costs power, not false verdicts.",
        "",
        f"## False verdicts ({studies} null studies a row of 30 cells, looks at {', '.join(map(str, LOOKS))} splits)",
        "",
        "| metric | studies with any helps/hurts | no difference | undecided |",
        "|---|---|---|---|",
    ]
    for metric in METRICS:
        verdicts = null_studies(studies, metric)
        wrong = np.isin(verdicts, ["helps", "hurts"]).any(1)
        lines.append(
            f"| {metric} | **{wrong.sum()} of {len(wrong)}** | {(verdicts == 'no difference').mean():.1%} of cells "
            f"| {(verdicts == 'undecided').mean():.1%} of cells |"
        )
    lines += [
        "",
        "## Power",
        "",
        f"Planted effect: 300 target rows, 200 features, a source of 3,000 rows, noise .7, n = 10; {power} data sets a",
        "row. A study of the two tasks has two cells; with all its splits planned, one look spends all of the error;",
        "the adaptive plan's second look has 40 % of it.",
        "",
        "| cosine of source and target | two cells, planned | two cells, adaptive look | the only real one of 30 |",
        "|---|---|---|---|",
    ]
    for cosine in (0.9, 0.95, 1.0):
        p = planted(power, cosine=cosine)
        shares = [np.mean(p * factor <= ERROR) for factor in (2, 2 / 0.4, 30)]
        lines.append(
            f"| {cosine} | "
            + " | ".join(f"**{share:.0%}**" if i == 0 else f"{share:.0%}" for i, share in enumerate(shares))
            + " |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--power", type=int, default=100)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    text = report(given.draws, given.studies, given.power)
    print(text)
    if given.out:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
