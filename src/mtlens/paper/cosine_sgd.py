"""cosine-logistic, cosine-relu, cosine-relu-logistic: the other three panels of Figure 7, trained by descent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.paper.baselines import tuned_ridge
from mtlens.paper.constants import needs_test_rows
from mtlens.paper.cosine import MARGIN, WHERE, cosine_claims
from mtlens.paper.descent import Batch, Recipe, Rows, make_task
from mtlens.paper.generators import Inputs, Link, activate, models_at, stream
from mtlens.paper.outcome import Draws, Ledger, Outcome, Panel
from mtlens.paper.registry import Experiment, register
from mtlens.tasks.metrics import score

Model = Literal["logistic", "relu", "relu-logistic"]


@dataclass(frozen=True)
class CosineDescentSettings:
    """Two tasks of standard Gaussian rows. Without ``valid_rows`` the grid should have one point."""

    seeds: int = 40
    seed: int = 0
    d: int = 100
    rows: int = 150
    noise: float = 1.0
    cosines: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
    valid_rows: int = 50
    test_rows: int = 1000
    capacity: int = 1
    lrs: tuple[float, ...] = (1e-3, 1e-2, 1e-1)
    epochs: tuple[int, ...] = (10, 50)
    batch: int = 50

    def __post_init__(self) -> None:
        needs_test_rows(self.test_rows)


def draw_rows(c: CosineDescentSettings, seed: int, name: str, theta: FloatArray, model: Model) -> dict[str, Rows]:
    """Train, validation and test rows of one task.

    Classes threshold the noisy signal at 0 (linear) or at 0.4 (ReLU of a unit Gaussian: a third of the rows lie above):
    the printed threshold, a sigmoid at .5, is where half of all ReLU signals lie exactly.
    """
    plain = Inputs(np.ones(c.d), np.eye(c.d))
    X = plain.rows(stream(seed, name, "inputs"), c.rows + c.valid_rows)
    Xt = plain.rows(stream(seed, name, "test"), c.test_rows)
    link: Link = "linear" if model == "logistic" else "relu"
    signal, clean = activate(X @ theta, link), activate(Xt @ theta, link)
    spread = 1.0 if link == "linear" else float(np.sqrt((1 - 1 / np.pi) / 2))
    noisy = signal + c.noise * spread * stream(seed, name, "noise").standard_normal(len(X))
    if model != "relu":
        threshold = 0.0 if link == "linear" else 0.4
        noisy, clean = (noisy > threshold).astype(np.float64), (clean > threshold).astype(np.float64)
    test = (Xt, clean)
    valid = (X[c.rows :], noisy[c.rows :]) if c.valid_rows else test
    return {"train": (X[: c.rows], noisy[: c.rows]), "valid": valid, "test": test}


def run(c: CosineDescentSettings, model: Model) -> Outcome:
    """Both tasks alone and together, at every cosine; the score is the mean over the two tasks."""
    link: Link = "relu" if model == "relu" else "logistic"
    recipe = Recipe("linear" if model == "logistic" else "relu", c.capacity, c.lrs, c.epochs, c.batch)
    batch, ridge = Batch(), {}
    for seed in range(c.seed, c.seed + c.seeds):
        for cosine in c.cosines:
            thetas = models_at(stream(seed, "models"), c.d, cosine)
            rows = {
                name: draw_rows(c, seed, name, t, model) for name, t in zip(("first", "second"), thetas, strict=True)
            }
            tasks = [make_task(name, link, r["train"], r["valid"], r["test"]) for name, r in rows.items()]
            batch.add((seed, cosine, "both"), tasks, recipe, seed, report=["first", "second"])
            for task in tasks:
                batch.add((seed, cosine, task.name), [task], recipe, seed, report=[task.name])
            ridge[seed, cosine] = float(np.mean([_ridge_score(c, model, r) for r in rows.values()]))
    batch.run()
    draws = Draws()
    for (seed, cosine), tuned in ridge.items():
        both = batch.score((seed, cosine, "both"))
        alone = (batch.score((seed, cosine, "first")) + batch.score((seed, cosine, "second"))) / 2
        draws.add_all("score", 1 - cosine, {"joint": both, "alone, same recipe": alone, "tuned ridge alone": tuned})
        draws.add_all("gap", 1 - cosine, {"against alone": both - alone, "against tuned ridge": both - tuned})
    return _outcome(c, model, draws)


def _ridge_score(c: CosineDescentSettings, model: Model, rows: dict[str, Rows]) -> float:
    parts = ["train", "valid"] if c.valid_rows else ["train"]
    X, y = (np.concatenate([rows[part][i] for part in parts]) for i in (0, 1))
    Xt, yt = rows["test"]
    theta = tuned_ridge(X, y - y.mean())
    if model == "relu":
        value = score("spearman", yt, activate(Xt @ theta, "relu"))
        return value if np.isfinite(value) else 0.0
    return float(np.mean((Xt @ theta + y.mean() > 0.5) == (yt > 0.5)))


def _outcome(c: CosineDescentSettings, model: Model, draws: Draws) -> Outcome:
    x, metric = "cosine distance of the models, 1 - cos", "Spearman" if model == "relu" else "accuracy"
    panels = [
        Panel("score", "Mean score of the two tasks", x, metric, controls=("alone, same recipe", "tuned ridge alone")),
        Panel("gap", "Joint minus alone", x, f"difference in {metric}", reference=0.0),
    ]
    tag = "printed" if not c.valid_rows else "corrected"
    ledger = Ledger(
        f"m = {c.rows:,} each, d = {c.d}, noise {c.noise:g} sd, capacity {c.capacity}, Adam, "
        + ("rate and epochs chosen on validation rows" if c.valid_rows else f"lr {c.lrs[0]:g}, {c.epochs[0]} epochs")
    )
    prefix = f"cosine-{model}.{tag}"
    cosine_claims(ledger, draws, prefix, "gap", "against alone", c.cosines)
    ledger.claim(
        f"{prefix}.tuned-near",
        "Against tuned ridge too, identical models transfer positively.",
        f"{WHERE}; control",
        "above",
        draws.get("gap", "against tuned ridge", 1 - max(c.cosines)),
        threshold=MARGIN,
        quantity="joint minus tuned ridge",
    )
    return Outcome(panels, draws.points(), ledger.findings)


TITLES: dict[Model, tuple[str, str]] = {
    "logistic": ("logistic classification", "(b)"),
    "relu": ("ReLU regression", "(c)"),
    "relu-logistic": ("classification with ReLU", "(d)"),
}
_CORRECTED = CosineDescentSettings()
_PRINTED = CosineDescentSettings(seeds=20, rows=3000, noise=0.0, valid_rows=0, lrs=(1e-3,), epochs=(30,))
for _model, (_title, _panel) in TITLES.items():
    _noise = 1.0 if _model == "logistic" else 0.5
    register(
        Experiment(
            name=f"cosine-{_model}",
            title=f"Transfer by the cosine of the two models, {_title}",
            where=f"{WHERE} {_panel}",
            settings={
                "corrected": replace(_CORRECTED, noise=_noise),
                "printed": _PRINTED,
            },
            quick={"seeds": 6, "cosines": (0.0, 0.5, 1.0)},
            run=partial(run, model=_model),
            about=(
                "Printed: many noise-free rows, learning rate 1e-3, 30 epochs (3,000 rows a task rather than 9,000: "
                "they leave as little to transfer at a third of the cost). Corrected: few noisy rows, rate and epochs "
                "chosen on separate validation rows, and tuned ridge beside the paper's baseline."
            ),
        )
    )
