"""fig2-logistic and fig2-relu: the covariance example for classification and for ReLU tasks, trained by descent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.paper.baselines import tuned_ridge
from mtlens.paper.claims import Finding
from mtlens.paper.covariance import MARGIN, WHERE, CovarianceSettings, Example, draw_example, paper_claims
from mtlens.paper.descent import Batch, Recipe, make_task
from mtlens.paper.generators import Link, activate, draw_task, models_at, stream, stretched
from mtlens.paper.outcome import Draws, Ledger, Outcome, Panel
from mtlens.paper.registry import Experiment, register
from mtlens.tasks.metrics import score
from mtlens.tasks.task import Task

SOURCES = ("same covariance", "different covariance")


@dataclass(frozen=True)
class DescentSettings(CovarianceSettings):
    """The example's constants and the recipe's. Without ``valid_rows`` the grid should have one point."""

    seeds: int = 40
    target_rows: tuple[int, ...] = (20,)
    source_rows: tuple[int, ...] = (200, 1000, 3000)
    valid_rows: int = 50
    capacity: int = 1
    lrs: tuple[float, ...] = (1e-3, 1e-2, 1e-1)
    epochs: tuple[int, ...] = (10, 50)
    batch: int = 50


def recipe_of(c: DescentSettings, link: Link) -> Recipe:
    return Recipe("relu" if link == "relu" else "linear", c.capacity, c.lrs, c.epochs, c.batch)


def told(c: DescentSettings) -> str:
    """How the grid was chosen, for a claim's condition."""
    chosen = "rate and epochs chosen on validation rows" if c.valid_rows else f"lr {c.lrs[0]:g}, {c.epochs[0]} epochs"
    return f"Adam, {chosen}, standardised features"


def target_rows(
    c: DescentSettings, seed: int, link: Link, example: Example, m1: int
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """The target's train, validation and test rows; test labels are noise-free."""
    X, signal = example.test
    test = (X, (signal > 0).astype(np.float64) if link == "logistic" else signal)
    if not c.valid_rows:
        return {"train": (example.train[0][:m1], example.train[1][:m1]), "valid": test, "test": test}
    inputs = stretched(stream(seed, "Q1"), c.d, kappa=c.kappa, strong=c.strong, block=0, form=c.form)
    theta = models_at(stream(seed, "models"), c.d, c.cosine)[0]
    Xv, yv, _ = draw_task(seed, "valid", inputs, theta, c.valid_rows, noise=c.noise, link=link)
    return {"train": (example.train[0][:m1], example.train[1][:m1]), "valid": (Xv, yv), "test": test}


def usable(task: Task) -> bool:
    """Whether a binary training split holds both classes (with 20 rows it once in a while does not)."""
    return task.kind != "binary" or np.unique(task.y[task.rows_of("train")]).size == 2


def run(c: DescentSettings, link: Link) -> Outcome:
    """All models of all seeds in one call of the engine."""
    batch, recipe, draws, tuned = Batch(), recipe_of(c, link), Draws(), {}
    for seed in range(c.seed, c.seed + c.seeds):
        example = draw_example(c, seed, link)
        for m1 in c.target_rows:
            rows = target_rows(c, seed, link, example, m1)
            target = make_task("target", link, rows["train"], rows["valid"], rows["test"])
            tuned[seed, m1] = ridge_score(c, link, rows)
            batch.add((seed, m1), [target], recipe, seed, report=["target"])
            for name in SOURCES:
                for m2 in c.source_rows:
                    X2, y2 = example.sources[name]
                    source = make_task("source", link, (X2[:m2], y2[:m2]))
                    batch.add((seed, m1, name, m2), [target, source], recipe, seed, report=["target"])
    batch.run()
    for (seed, m1), ridge in tuned.items():
        alone = batch.score((seed, m1))
        for m2 in c.source_rows:
            draws.add(f"weak {m1}", "tuned ridge alone", m2, ridge - alone)
            for name in SOURCES:
                draws.add(f"weak {m1}", name, m2, batch.score((seed, m1, name, m2)) - alone)
    return Outcome(_panels(c, link), draws.points(), _findings(c, link, draws), _notes(c, tuned, batch))


def ridge_score(c: DescentSettings, link: Link, rows: dict[str, tuple[FloatArray, FloatArray]]) -> float:
    """Tuned ridge on the target alone, on training and (when they are not the test rows) validation rows."""
    parts = ["train", "valid"] if c.valid_rows else ["train"]
    X, y = (np.concatenate([rows[part][i] for part in parts]) for i in (0, 1))
    Xt, yt = rows["test"]
    if link == "logistic":
        return float(np.mean((Xt @ tuned_ridge(X, 2 * y - 1) > 0) == (yt > 0.5)))
    value = score("spearman", yt, activate(Xt @ tuned_ridge(X, y - y.mean()), link))
    return value if np.isfinite(value) else 0.0


def _panels(c: DescentSettings, link: Link) -> list[Panel]:
    metric = "accuracy" if link == "logistic" else "Spearman"
    return [
        Panel(
            f"weak {m1}",
            f"Joint minus alone, same recipe, target with {m1:,} rows",
            "rows of the source, m_2",
            f"difference in {metric}",
            True,
            0.0,
            ("tuned ridge alone",),
        )
        for m1 in c.target_rows
    ]


def _findings(c: DescentSettings, link: Link, draws: Draws) -> list[Finding]:
    ledger, tag = Ledger(), "printed" if c.form == "R Q D" else "corrected"
    for m1 in c.target_rows:
        condition = f"X = {c.form}, noise {c.noise:g} sd, m_1 = {m1:,}, capacity {c.capacity}, {told(c)}"
        prefix, panel = f"fig2-{link}.{tag}.{m1}", f"weak {m1}"
        paper_claims(ledger, draws, panel, prefix, c.source_rows, condition)
        few = min(c.source_rows)
        if c.valid_rows:
            ledger.claim(
                f"{prefix}.vanishes",
                "Trained by descent with validation, the different source does no harm beyond .02 "
                f"({few:,} rows): early stopping regularises.",
                "correction 9",
                "above",
                draws.get(panel, "different covariance", few),
                threshold=-2 * MARGIN,
                condition=condition,
                quantity="joint minus alone",
            )
        ledger.claim(
            f"{prefix}.against-ridge",
            f"The same-covariance source beats tuned ridge on the target alone ({max(c.source_rows):,} rows).",
            f"{WHERE}; control",
            "above",
            draws.get(panel, "same covariance", max(c.source_rows))
            - draws.get(panel, "tuned ridge alone", max(c.source_rows)),
            threshold=MARGIN,
            condition=condition,
            quantity="joint minus tuned ridge",
        )
    return ledger.findings


def _notes(c: DescentSettings, tuned: dict[tuple[int, int], float], batch: Batch) -> list[str]:
    return [
        f"Mean score at m_1 = {m1:,}: alone {np.mean([batch.score(k) for k in tuned if k[1] == m1]):.3f}, "
        f"tuned ridge {np.mean([v for k, v in tuned.items() if k[1] == m1]):.3f}."
        for m1 in c.target_rows
    ]


PRINTED = DescentSettings(
    seeds=20, form="R Q D", noise=0.0, target_rows=(200,), valid_rows=0, lrs=(1e-3,), epochs=(30,)
)
ABOUT = (
    "The covariance example trained by mini-batch Adam. Printed: no noise, learning rate 1e-3, 30 epochs (200 target "
    "rows rather than 9,000, which leave nothing to transfer, and sources up to 3,000). Corrected: noisy labels, few "
    "target rows, rate and epochs chosen on separate validation rows, tuned ridge beside it. In both, the engine "
    "standardises features: plain SGD on raw ones of scale 100 diverges at the printed rate. Capacity 1 for logistic "
    "tasks and 5 for ReLU tasks."
)

LOGISTIC = register(
    Experiment(
        name="fig2-logistic",
        title="Transfer by the source's rows and covariance, classification",
        where=WHERE,
        settings={"corrected": DescentSettings(), "printed": PRINTED},
        quick={"seeds": 6, "source_rows": (200, 1000)},
        run=partial(run, link="logistic"),
        about=ABOUT,
    )
)
RELU = register(
    Experiment(
        name="fig2-relu",
        title="Transfer by the source's rows and covariance, ReLU regression",
        where=WHERE,
        settings={"corrected": replace(DescentSettings(), capacity=5), "printed": replace(PRINTED, capacity=5)},
        quick={"seeds": 6, "source_rows": (200, 1000)},
        run=partial(run, link="relu"),
        about=ABOUT,
    )
)
