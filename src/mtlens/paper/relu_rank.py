"""relu-rank: transfer between ReLU tasks of higher rank, by the cosine of their units (Appendix B, Figure 8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.paper.baselines import tuned_ridge
from mtlens.paper.claims import Finding
from mtlens.paper.constants import needs_test_rows
from mtlens.paper.descent import Batch, Recipe, Rows, make_task
from mtlens.paper.generators import Inputs, Link, cosine_of_mix, mixed_frame, orthogonal_frames, stream, stretched
from mtlens.paper.outcome import Draws, Ledger, Outcome, Panel
from mtlens.paper.registry import Experiment, register
from mtlens.tasks.metrics import score

WHERE = "Appendix B, Figure 8"
MARGIN = 0.01
KINDS = ("regression", "classification")
SAME, DIFFERENT = "same covariance", "different covariance"


@dataclass(frozen=True)
class RankSettings:
    """``rank`` ReLU units a task (the text says 10 and 5), ``alphas`` of the mix, rows of target and source.

    The target's units are a random frame; the source's are ``alpha`` of it and ``1 - alpha`` of an orthogonal frame,
    scaled to unit columns, so that the cosine is ``alpha / sqrt(alpha^2 + (1 - alpha)^2)``. A further source has the
    target's units and another covariance: Section 2.3's, ``kappa`` along ``strong`` random directions.
    """

    seeds: int = 40
    seed: int = 0
    d: int = 100
    rank: int = 10
    capacity: int = 10
    alphas: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    target_rows: int = 100
    source_rows: tuple[int, ...] = (300, 3000)
    noise: float = 0.1
    kappa: float = 100.0
    strong: int = 10
    valid_rows: int = 50
    test_rows: int = 1000
    lrs: tuple[float, ...] = (1e-3, 1e-2)
    epochs: tuple[int, ...] = (10, 30)
    batch: int = 50

    def __post_init__(self) -> None:
        needs_test_rows(self.test_rows)


def draw_rows(
    c: RankSettings,
    seed: int,
    name: str,
    frame: FloatArray,
    rows: int,
    kind: str,
    *,
    clean: bool = False,
    inputs: Inputs | None = None,
) -> Rows:
    """Gaussian rows, standard unless ``inputs`` says otherwise, with labels ``ReLU(X Theta) e`` plus noise of ``noise``
    sd of the signal.

    Classes threshold at the signal's mean (``rank / sqrt(2 pi)`` for standard rows): all signals are positive, so the
    printed threshold (a sigmoid at .5) would leave one class.
    """
    random = stream(seed, name, "inputs")
    X = random.standard_normal((rows, c.d)) if inputs is None else inputs.rows(random, rows)
    signal = np.maximum(X @ frame, 0.0).sum(axis=1)
    spread = float(np.sqrt(c.rank * (1 - 1 / np.pi) / 2)) if inputs is None else float(signal.std())
    noisy = signal + (0.0 if clean else c.noise * spread) * stream(seed, name, "noise").standard_normal(rows)
    if kind == "classification":
        units = np.ones(c.rank) if inputs is None else np.sqrt(np.sum(frame * (inputs.covariance @ frame), axis=0))
        noisy = (noisy > units.sum() / np.sqrt(2 * np.pi)).astype(np.float64)
    return X, noisy


def run(c: RankSettings) -> Outcome:
    """Target alone and with the source, regression and classification, in one call of the engine."""
    batch, recipe, ridge = Batch(), Recipe("relu", c.capacity, c.lrs, c.epochs, c.batch), {}
    for seed in range(c.seed, c.seed + c.seeds):
        frame, other = orthogonal_frames(stream(seed, "frames"), c.d, c.rank)
        other_inputs = stretched(stream(seed, "Q"), c.d, kappa=c.kappa, strong=c.strong, block=0)
        for kind in KINDS:
            link: Link = "logistic" if kind == "classification" else "relu"
            train = draw_rows(c, seed, "target", frame, c.target_rows, kind)
            test = draw_rows(c, seed, "test", frame, c.test_rows, kind, clean=True)
            valid = draw_rows(c, seed, "valid", frame, c.valid_rows, kind) if c.valid_rows else test
            target = make_task("target", link, train, valid, test)
            batch.add((seed, kind), [target], recipe, seed, report=["target"])
            ridge[seed, kind] = _ridge_score(train if not c.valid_rows else _joined(train, valid), test, kind)
            for alpha in c.alphas:
                units = mixed_frame(frame, other, alpha)
                X2, y2 = draw_rows(c, seed, "source", units, max(c.source_rows), kind)
                for m2 in c.source_rows:
                    source = make_task("source", link, (X2[:m2], y2[:m2]))
                    batch.add((seed, kind, alpha, m2), [target, source], recipe, seed, report=["target"])
            X2, y2 = draw_rows(c, seed, "other source", frame, max(c.source_rows), kind, inputs=other_inputs)
            for m2 in c.source_rows:
                source = make_task("source", link, (X2[:m2], y2[:m2]))
                batch.add((seed, kind, "other covariance", m2), [target, source], recipe, seed, report=["target"])
    batch.run()
    return _outcome(c, batch, ridge)


def _joined(first: Rows, second: Rows) -> Rows:
    return np.vstack([first[0], second[0]]), np.append(first[1], second[1])


def _ridge_score(train: Rows, test: Rows, kind: str) -> float:
    X, y = train
    predicted = test[0] @ tuned_ridge(X, y - y.mean()) + y.mean()
    if kind == "classification":
        return float(np.mean((predicted > 0.5) == (test[1] > 0.5)))
    value = score("spearman", test[1], predicted)
    return value if np.isfinite(value) else 0.0


def _outcome(c: RankSettings, batch: Batch, ridge: dict[tuple[int, str], float]) -> Outcome:
    draws = Draws()
    for (seed, kind), tuned in ridge.items():
        alone = batch.score((seed, kind))
        for alpha in c.alphas:
            draws.add(kind, "tuned ridge alone", cosine_of_mix(alpha), tuned - alone)
            for m2 in c.source_rows:
                draws.add(
                    kind, f"source with {m2:,} rows", cosine_of_mix(alpha), batch.score((seed, kind, alpha, m2)) - alone
                )
        for m2 in c.source_rows:
            for name, key in ((SAME, max(c.alphas)), (DIFFERENT, "other covariance")):
                draws.add(f"{kind}, covariance", name, m2, batch.score((seed, kind, key, m2)) - alone)
    panels = [
        Panel(
            kind,
            f"Joint minus alone, rank-{c.rank} ReLU {kind}",
            "cosine of the two tasks' units",
            f"difference in {'accuracy' if kind == 'classification' else 'Spearman'}",
            reference=0.0,
            controls=("tuned ridge alone",),
        )
        for kind in KINDS
    ] + [
        Panel(
            f"{kind}, covariance",
            f"Source with the target's own units, {kind}",
            "rows of the source, m_2",
            f"difference in {'accuracy' if kind == 'classification' else 'Spearman'}",
            True,
            0.0,
        )
        for kind in KINDS
    ]
    return Outcome(panels, draws.points(), _findings(c, draws))


def _findings(c: RankSettings, draws: Draws) -> list[Finding]:
    chosen = "rate and epochs chosen on validation rows" if c.valid_rows else f"lr {c.lrs[0]:g}, {c.epochs[0]} epochs"
    tag = "corrected" if c.valid_rows else "printed"
    ledger = Ledger(
        f"rank {c.rank}, capacity {c.capacity}, m_1 = {c.target_rows}, noise {c.noise:g} sd, Adam, {chosen}"
    )
    nearest, farthest = cosine_of_mix(max(c.alphas)), cosine_of_mix(min(c.alphas))
    few, many = (f"source with {m:,} rows" for m in (min(c.source_rows), max(c.source_rows)))
    for kind in KINDS:
        p = f"relu-rank.{tag}.{kind}"
        ledger.claim(
            f"{p}.trend",
            f"Higher similarity of the models leads to more improvement on the target ({kind}).",
            WHERE,
            "above",
            draws.slope(kind, many),
            quantity="rank correlation of gain and cosine",
        )
        ledger.claim(
            f"{p}.positive",
            f"A source with the target's own units transfers positively ({kind}).",
            WHERE,
            "above",
            draws.get(kind, many, nearest),
            threshold=MARGIN,
            quantity="joint minus alone",
        )
        ledger.claim(
            f"{p}.size",
            f"With equal units, more source rows transfer more ({kind}).",
            WHERE,
            "above",
            draws.get(kind, many, nearest) - draws.get(kind, few, nearest),
            threshold=MARGIN,
            quantity="gain with many minus gain with few source rows",
        )
        ledger.claim(
            f"{p}.orthogonal",
            f"A source with orthogonal units transfers negatively ({kind}).",
            WHERE,
            "below",
            draws.get(kind, few, farthest),
            threshold=-MARGIN,
            quantity="joint minus alone",
        )
        same, other = (draws.mean_over(f"{kind}, covariance", name, c.source_rows) for name in (SAME, DIFFERENT))
        ledger.claim(
            f"{p}.covariance",
            f"The alignment of covariances continues to matter: with equal units, a source with another covariance "
            f"transfers less ({kind}).",
            WHERE,
            "above",
            same - other,
            threshold=MARGIN,
            quantity="difference of the two transfers, mean over source rows",
        )
        ledger.claim(
            f"{p}.tuned",
            f"The best source beats tuned ridge on the target alone ({kind}).",
            f"{WHERE}; control",
            "above",
            draws.get(kind, many, nearest) - draws.get(kind, "tuned ridge alone", nearest),
            threshold=MARGIN,
            quantity="joint minus tuned ridge",
        )
    if tag == "corrected":
        _cosine_claims(c, ledger)
    return ledger.findings


def _cosine_claims(c: RankSettings, ledger: Ledger) -> None:
    """Whether alpha is the cosine of the principal angles, on the frames that are used."""
    printed, corrected = [], []
    for seed in range(c.seed, c.seed + c.seeds):
        frame, other = orthogonal_frames(stream(seed, "frames"), c.d, c.rank)
        for alpha in (0.25, 0.5, 0.75):
            cosines = np.linalg.svd(frame.T @ np.linalg.qr(mixed_frame(frame, other, alpha))[0], compute_uv=False)
            printed.append(float(np.abs(cosines - alpha).max()))
            corrected.append(float(np.abs(cosines - cosine_of_mix(alpha)).max()))
    at = "alpha = .25, .5, .75"
    ledger.claim(
        "relu-rank.alpha",
        "alpha is the cosine of the principal angle between Theta_1 and Theta_2.",
        WHERE,
        "every",
        printed,
        threshold=1e-9,
        quantity="distance",
        condition=at,
    )
    ledger.claim(
        "relu-rank.alpha-corrected",
        "The cosine is alpha / sqrt(alpha^2 + (1 - alpha)^2) (corrected form).",
        "correction 10",
        "every",
        corrected,
        threshold=1e-9,
        quantity="distance",
        condition=at,
    )


EXPERIMENT = register(
    Experiment(
        name="relu-rank",
        title="Transfer between higher-rank ReLU tasks by the cosine of their units",
        where=WHERE,
        settings={
            "corrected": RankSettings(),
            "printed": RankSettings(seeds=20, valid_rows=0, lrs=(1e-3,), epochs=(30,)),
        },
        quick={"seeds": 4, "alphas": (0.0, 0.5, 1.0), "source_rows": (300, 1000)},
        run=run,
        about=(
            "Two ReLU tasks of rank 10 (a setting: the text also says 5), 100 target rows. The axis is the true "
            "cosine, not alpha. A further source has the target's units and the covariance of Section 2.3's example. "
            "Printed: learning rate 1e-3 and 30 epochs. Corrected: both chosen on validation rows. In both, mini-batch "
            "Adam, columns of Theta scaled to unit norm, and classes that split at the signal's mean (at the printed "
            "threshold all rows are of one class)."
        ),
    )
)
