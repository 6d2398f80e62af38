"""cosine-*: transfer between two tasks as the angle between their models grows (Appendix B, Figure 7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.paper.baselines import least_squares, tuned_ridge
from mtlens.paper.claims import Finding
from mtlens.paper.constants import needs_test_rows
from mtlens.paper.generators import Inputs, draw_task, models_at, stream
from mtlens.paper.outcome import Draws, Ledger, Outcome, Panel
from mtlens.paper.registry import Experiment, register

WHERE = "Appendix B, Figure 7"
MARGIN = 0.01
COSINES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)


@dataclass(frozen=True)
class CosineSettings:
    """Two tasks of ``rows`` standard Gaussian rows each; noise in sd of the signal; ``cosines`` of their models."""

    seeds: int = 40
    seed: int = 0
    d: int = 100
    rows: int = 150
    noise: float = 1.0
    cosines: tuple[float, ...] = COSINES
    test_rows: int = 1000

    def __post_init__(self) -> None:
        needs_test_rows(self.test_rows)


def run_linear(c: CosineSettings) -> Outcome:
    """Exact solver; the score is the mean over the two tasks, as in the paper."""
    from mtlens.tasks.metrics import score
    from mtlens.theory import two_task_optimum

    draws = Draws()
    plain = Inputs(np.ones(c.d), np.eye(c.d))
    for seed in range(c.seed, c.seed + c.seeds):
        for cosine in c.cosines:
            thetas = models_at(stream(seed, "models"), c.d, cosine)
            tasks = [draw_task(seed, f"task {i}", plain, t, c.rows, noise=c.noise)[:2] for i, t in enumerate(thetas)]
            Xt = plain.rows(stream(seed, "test"), c.test_rows)

            def mean_score(
                coefs: list[FloatArray], Xt: FloatArray = Xt, thetas: tuple[FloatArray, ...] = thetas
            ) -> float:
                return float(np.mean([score("spearman", Xt @ t, Xt @ b) for t, b in zip(thetas, coefs, strict=True)]))

            joint = np.asarray(two_task_optimum(*tasks[0], *tasks[1]).coef)
            weak = mean_score([least_squares(X, y) for X, y in tasks])
            tuned = mean_score([tuned_ridge(X, y) for X, y in tasks])
            both = mean_score([joint[:, 0], joint[:, 1]])
            scores = {"joint, r = 1": both, "least squares alone": weak, "tuned ridge alone": tuned}
            draws.add_all("score", 1 - cosine, scores)
            draws.add_all(
                "gap", 1 - cosine, {"against least squares": both - weak, "against tuned ridge": both - tuned}
            )
    x = "cosine distance of the models, 1 - cos"
    panels = [
        Panel(
            "score", "Mean score of the two tasks", x, "Spearman", controls=("least squares alone", "tuned ridge alone")
        ),
        Panel("gap", "Joint minus alone", x, "difference in Spearman", reference=0.0),
    ]
    return Outcome(panels, draws.points(), _linear_findings(c, draws))


def _linear_findings(c: CosineSettings, draws: Draws) -> list[Finding]:
    ledger = Ledger(f"m = {c.rows:,} each, d = {c.d}, noise {c.noise:g} sd, exact solver, r = 1")
    prefix = f"cosine-linear.{'printed' if c.noise == 0 else 'corrected'}"
    cosine_claims(ledger, draws, prefix, "gap", "against least squares", c.cosines)
    near, far = 1 - max(c.cosines), 1 - min(c.cosines)
    if c.noise == 0 and max(c.cosines) == 1:
        ledger.claim(
            f"{prefix}.share",
            "If |cos(theta_1, theta_2)| is 1, both tasks can share one model of capacity 1.",
            "Section 2.3",
            "every",
            np.abs(draws.get("gap", "against least squares", near)),
            threshold=1e-6,
            quantity="distance of the joint from the single-task score",
        )
    ledger.claim(
        f"{prefix}.tuned-near",
        "Against tuned ridge too, identical models transfer positively.",
        f"{WHERE}; control",
        "above",
        draws.get("gap", "against tuned ridge", near),
        threshold=MARGIN,
        quantity="joint minus tuned ridge",
    )
    ledger.claim(
        f"{prefix}.tuned-far",
        "Against tuned ridge, orthogonal models transfer negatively.",
        f"{WHERE}; control",
        "below",
        draws.get("gap", "against tuned ridge", far),
        threshold=-MARGIN,
        quantity="joint minus tuned ridge",
    )
    return ledger.findings


def cosine_claims(
    ledger: Ledger, draws: Draws, prefix: str, panel: str, series: str, cosines: tuple[float, ...], where: str = WHERE
) -> None:
    """The appendix's two sentences, plus the positive end that Section 2.3 states for cosines near one."""
    near, far = 1 - max(cosines), 1 - min(cosines)
    ledger.claim(
        f"{prefix}.trend",
        "The more similar the models, the more joint training gains over training alone.",
        where,
        "below",
        draws.slope(panel, series),
        quantity="rank correlation of gain and cosine distance",
    )
    ledger.claim(
        f"{prefix}.negative",
        "Transfer is negative when the models' similarity is too small.",
        where,
        "below",
        draws.get(panel, series, far),
        threshold=-MARGIN,
        quantity=f"joint minus alone at cosine {1 - far:g}",
    )
    ledger.claim(
        f"{prefix}.positive",
        "Transfer is positive when the models (nearly) agree.",
        where,
        "above",
        draws.get(panel, series, near),
        threshold=MARGIN,
        quantity=f"joint minus alone at cosine {1 - near:g}",
    )


LINEAR = register(
    Experiment(
        name="cosine-linear",
        title="Transfer by the cosine of the two models, linear regression",
        where=f"{WHERE} (a)",
        settings={"corrected": CosineSettings(), "printed": CosineSettings(seeds=20, rows=9000, noise=0.0)},
        quick={"seeds": 6, "cosines": (0.0, 0.5, 0.9, 1.0)},
        run=run_linear,
        about=(
            "Printed: 9,000 noise-free rows a task, which leave nothing to transfer, so joint training can only lose. "
            "Corrected: few noisy rows. The exact joint optimum of capacity one stands against the paper's baseline "
            "and against tuned ridge."
        ),
    )
)
