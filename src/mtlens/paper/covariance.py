"""fig2-*: does a source help a target when only its covariance differs? (Section 2.3's example, Figure 3.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.paper.baselines import least_squares, tuned_ridge
from mtlens.paper.claims import Finding
from mtlens.paper.constants import needs_test_rows
from mtlens.paper.generators import Form, Inputs, Link, draw_task, models_at, rotation, stream, stretched
from mtlens.paper.outcome import Draws, Ledger, Outcome, Panel
from mtlens.paper.registry import Experiment, register

SAME, DIFFERENT, UNRELATED = "same covariance", "different covariance", "unrelated model"
UNRELATED_OTHER = "unrelated model, different covariance"
OTHER_SCALES, OTHER_TURN = "same rotation, other scales", "same scales, other rotation"  # Appendix B, settings i and ii
WHERE = "Section 2.3, Figure 3"
MARGIN = 0.01  # the smallest difference of scores that is called help or harm


@dataclass(frozen=True)
class CovarianceSettings:
    """Constants of the example. ``noise`` is in standard deviations of the signal; cosine is between the models."""

    seeds: int = 40
    seed: int = 0
    d: int = 100
    kappa: float = 100.0
    strong: int = 10
    cosine: float = 0.96
    form: Form = "R D Q^T"
    noise: float = 1.0
    target_rows: tuple[int, ...] = (20, 50)
    source_rows: tuple[int, ...] = (200, 500, 1000, 3000, 9000)
    test_rows: int = 1000

    def __post_init__(self) -> None:
        needs_test_rows(self.test_rows)


@dataclass(frozen=True)
class Example:
    """One draw of the target and its sources (two with an unrelated model), with all rows that may be asked for.

    ``peak`` is a target of ``d`` rows: least squares is at its worst where the rows are as many as the columns.
    """

    train: tuple[FloatArray, FloatArray]
    peak: tuple[FloatArray, FloatArray]
    test: tuple[FloatArray, FloatArray]
    sources: dict[str, tuple[FloatArray, FloatArray]]


def draw_example(c: CovarianceSettings, seed: int, link: Link = "linear") -> Example:
    """The example's tasks: target and sources differ in covariance, model or neither, as their names say."""
    first = stretched(stream(seed, "Q1"), c.d, kappa=c.kappa, strong=c.strong, block=0, form=c.form)
    second = stretched(stream(seed, "Q2"), c.d, kappa=c.kappa, strong=c.strong, block=1, form=c.form)
    theta1, theta2 = models_at(stream(seed, "models"), c.d, c.cosine)
    theta3 = models_at(stream(seed, "models"), c.d, 0.0)[1]

    def rows(name: str, inputs: Inputs, theta: FloatArray, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        return draw_task(seed, name, inputs, theta, count, noise=c.noise, link=link)

    X, y, _ = rows("target", first, theta1, max(c.target_rows))
    Xt, _, signal = rows("test", first, theta1, c.test_rows)
    most = max(c.source_rows)
    given = {
        SAME: (first, theta2),
        DIFFERENT: (second, theta2),
        OTHER_SCALES: (Inputs(second.scales, first.turn, c.form), theta2),
        OTHER_TURN: (Inputs(first.scales, second.turn, c.form), theta2),
        UNRELATED: (first, theta3),
        UNRELATED_OTHER: (second, theta3),
    }
    sources = {name: rows(name, inputs, theta, most)[:2] for name, (inputs, theta) in given.items()}
    return Example((X, y), rows("target at the peak", first, theta1, c.d)[:2], (Xt, signal), sources)


def rank_correlation(example: Example, theta: FloatArray) -> float:
    """Spearman correlation of predictions with the noise-free test labels (the paper's metric; 1 is perfect)."""
    from mtlens.tasks.metrics import score

    X, signal = example.test
    value = score("spearman", signal, X @ theta)
    return value if np.isfinite(value) else 0.0  # a constant prediction ranks nothing


def run_linear(c: CovarianceSettings) -> Outcome:
    """Exact solutions only: least squares alone, tuned ridge alone, and the global rank-1 joint optimum."""
    draws = Draws()
    for seed in range(c.seed, c.seed + c.seeds):
        example = draw_example(c, seed)
        for m1 in c.target_rows:
            _one_target(draws, c, example, m1)
        if c.noise:
            _at_the_peak(draws, c, example)
    return Outcome(_panels(c), draws.points(), _findings(c, draws), _notes(c, draws))


def _one_target(draws: Draws, c: CovarianceSettings, example: Example, m1: int) -> None:
    from mtlens.theory import two_task_optimum

    X, y = (part[:m1] for part in example.train)
    weak, tuned = (rank_correlation(example, fit(X, y)) for fit in (least_squares, tuned_ridge))
    for m2 in c.source_rows:
        draws.add_all(f"score {m1}", m2, {"least squares alone": weak, "tuned ridge alone": tuned})
        for name, (X2, y2) in example.sources.items():
            joint = rank_correlation(example, two_task_optimum(X, y, X2[:m2], y2[:m2]).coef[:, 0])
            draws.add(f"score {m1}", name, m2, joint)
            draws.add(f"weak {m1}", name, m2, joint - weak)
            draws.add(f"tuned {m1}", name, m2, joint - tuned)
        draws.add(f"weak {m1}", "tuned ridge alone", m2, tuned - weak)


def _at_the_peak(draws: Draws, c: CovarianceSettings, example: Example) -> None:
    """Sources with an unrelated model, for a target with as many rows as columns."""
    from mtlens.theory import two_task_optimum

    X, y = example.peak
    m2 = max(c.source_rows)
    weak, tuned = (rank_correlation(example, fit(X, y)) for fit in (least_squares, tuned_ridge))
    for name in (UNRELATED, UNRELATED_OTHER):
        X2, y2 = example.sources[name]
        joint = rank_correlation(example, two_task_optimum(X, y, X2[:m2], y2[:m2]).coef[:, 0])
        draws.add_all("peak", m2, {f"{name}, weak": joint - weak, f"{name}, tuned": joint - tuned})


def _panels(c: CovarianceSettings) -> list[Panel]:
    x = "rows of the source, m_2"
    others = (OTHER_SCALES, OTHER_TURN, UNRELATED, UNRELATED_OTHER)  # beside the figure's own two lines
    panels = []
    for m1 in c.target_rows:
        shown = f"target with {m1:,} rows"
        panels += [
            Panel(
                f"weak {m1}",
                f"Joint minus least squares alone, {shown}",
                x,
                "difference in Spearman",
                True,
                0.0,
                ("tuned ridge alone", *others),
            ),
            Panel(
                f"tuned {m1}",
                f"Joint minus tuned ridge alone, {shown}",
                x,
                "difference in Spearman",
                True,
                0.0,
                others,
            ),
        ]
    return panels


def _condition(c: CovarianceSettings, m1: int) -> str:
    return f"X = {c.form}, label noise {c.noise:g} sd, m_1 = {m1:,}, exact solver"


def _findings(c: CovarianceSettings, draws: Draws) -> list[Finding]:
    ledger = Ledger()
    tag = "printed" if c.form == "R Q D" else "corrected"
    for m1 in c.target_rows:
        condition = _condition(c, m1)
        paper_claims(ledger, draws, f"weak {m1}", f"fig2-linear.{tag}.{m1}", c.source_rows, condition)
        _appendix_claims(ledger, draws, m1, f"fig2-linear.{tag}.{m1}", c, condition)
        _baseline_claims(ledger, draws, m1, f"fig2-linear.{tag}.{m1}", c.source_rows, condition)
    if c.noise:
        _peak_claims(ledger, draws, c, f"fig2-linear.{tag}.peak")
    if tag == "corrected":
        ledger.findings += similarity_findings(c)
    _rotation_claim(c, ledger, tag)
    if tag == "printed":
        _rate_claim(c, ledger)
    return ledger.findings


def paper_claims(
    ledger: Ledger, draws: Draws, panel: str, prefix: str, source_rows: Sequence[int], condition: str
) -> None:
    """Figure 3's four sentences, against the weak single-task baseline that the paper uses."""
    few, many = min(source_rows), max(source_rows)
    same, different = "same covariance", "different covariance"
    more = {"condition": condition, "quantity": "joint minus weak single-task score"}
    ledger.claim(
        f"{prefix}.same-helps",
        f"A source with the same covariance transfers positively (at {many:,} source rows).",
        WHERE,
        "above",
        draws.get(panel, same, many),
        threshold=MARGIN,
        **more,
    )
    ledger.claim(
        f"{prefix}.same-grows",
        "The transfer from a source with the same covariance grows with the source's rows.",
        WHERE,
        "above",
        draws.slope(panel, same),
        **more | {"quantity": "rank correlation of transfer and rows"},
    )
    ledger.claim(
        f"{prefix}.different-hurts",
        f"A source with a different covariance transfers negatively when it has few rows ({few:,}).",
        WHERE,
        "below",
        draws.get(panel, different, few),
        threshold=-MARGIN,
        **more,
    )
    ledger.claim(
        f"{prefix}.different-small",
        f"Without many rows ({few:,}), a source with a different covariance has only a small effect (within .05).",
        "Section 2.3, analysis of the example",
        "within",
        draws.get(panel, different, few),
        threshold=0.05,
        **more,
    )
    ledger.claim(
        f"{prefix}.different-turns",
        f"A source with a different covariance transfers positively once it has many rows ({many:,}).",
        WHERE,
        "above",
        draws.get(panel, different, many),
        threshold=MARGIN,
        **more,
    )
    gap = draws.mean_over(panel, same, source_rows) - draws.mean_over(panel, different, source_rows)
    ledger.claim(
        f"{prefix}.covariance-matters",
        "With one and the same model, the source with the target's covariance transfers more than the other.",
        WHERE,
        "above",
        gap,
        threshold=MARGIN,
        **more | {"quantity": "difference of the two transfers, mean over source rows"},
    )


def _appendix_claims(ledger: Ledger, draws: Draws, m1: int, prefix: str, c: CovarianceSettings, condition: str) -> None:
    """Appendix B's two ways of changing the covariance, each against the source with the target's own."""
    panel = f"weak {m1}"
    for name, id in ((OTHER_SCALES, "other-scales"), (OTHER_TURN, "other-rotation")):
        gap = draws.mean_over(panel, SAME, c.source_rows) - draws.mean_over(panel, name, c.source_rows)
        ledger.claim(
            f"{prefix}.{id}",
            f"A source with the {name} transfers less than one with the target's covariance.",
            "Appendix B, synthetic settings",
            "above",
            gap,
            threshold=MARGIN,
            condition=condition,
            quantity="difference of the two transfers, mean over source rows",
        )


def _baseline_claims(
    ledger: Ledger, draws: Draws, m1: int, prefix: str, source_rows: Sequence[int], condition: str
) -> None:
    """What the weak baseline hides (correction: the single-task baseline decides everything)."""
    many, where = max(source_rows), "Section 2.3; control"
    weak, tuned = f"weak {m1}", f"tuned {m1}"
    ledger.claim(
        f"{prefix}.ridge-beats-weak",
        "A tuned ridge on the target alone beats the paper's single-task baseline.",
        where,
        "above",
        draws.get(weak, "tuned ridge alone", many),
        threshold=MARGIN,
        condition=condition,
        quantity="tuned ridge minus least squares",
    )
    for id, source, words in (
        ("unrelated-helps-weak", UNRELATED, "and the target's covariance"),
        ("unrelated-other-helps-weak", UNRELATED_OTHER, "and another covariance"),
    ):
        ledger.claim(
            f"{prefix}.{id}",
            f"Even a source with an unrelated (orthogonal) model {words} beats the weak baseline ({many:,} rows).",
            where,
            "above",
            draws.get(weak, source, many),
            threshold=MARGIN,
            condition=condition,
            quantity="joint minus weak single-task score",
        )
    for source, test, words in (
        ("same covariance", "above", "still helps"),
        ("different covariance", "below", "hurts"),
        ("unrelated model", "below", "hurts"),
    ):
        ledger.claim(
            f"{prefix}.{source.split()[0]}-against-tuned",
            f"Against a tuned single-task ridge, the {source} source {words} ({many:,} rows).",
            where,
            test,
            draws.get(tuned, source, many),
            threshold=MARGIN if test == "above" else -MARGIN,
            condition=condition,
            quantity="joint minus tuned single-task score",
        )


def _peak_claims(ledger: Ledger, draws: Draws, c: CovarianceSettings, prefix: str) -> None:
    """Where noise makes the weak baseline weakest, a model that has nothing to do with the target improves on it."""
    many = max(c.source_rows)
    for name, id in ((UNRELATED, "unrelated"), (UNRELATED_OTHER, "unrelated-other")):
        words = "the target's covariance" if name == UNRELATED else "another covariance"
        for baseline, test, says in (("weak", "above", "beats the weak baseline"), ("tuned", "below", "loses to")):
            tail = " a tuned single-task ridge" if baseline == "tuned" else ""
            ledger.claim(
                f"{prefix}.{id}-{baseline}",
                f"With as many target rows as columns, a source with an unrelated model and {words} {says}{tail} "
                f"({many:,} rows).",
                "Section 2.3; control",
                test,
                draws.get("peak", f"{name}, {baseline}", many),
                threshold=MARGIN if test == "above" else -MARGIN,
                condition=f"{_condition(c, c.d)}: least squares at its interpolation peak",
                quantity=f"joint minus {baseline} single-task score",
            )


def similarity_findings(c: CovarianceSettings) -> list[Finding]:
    """The covariance similarity score (Section 2.3): what it says of the example and which invariances it has."""
    from mtlens.theory import covariance_similarity

    ledger, draws = Ledger(f"X = {c.form}, 500 rows"), Draws()
    for seed in range(c.seed, c.seed + c.seeds):
        example = draw_example(c, seed)
        rows = {name: X[:500] for name, (X, _) in example.sources.items()}
        X, same, different = example.test[0][:500], rows["same covariance"], rows["different covariance"]
        turn = rotation(stream(seed, "common turn"), c.d)
        other = rotation(stream(seed, "second turn"), c.d)
        score = covariance_similarity(X, same)
        values = {
            "gap": score - covariance_similarity(X, different),
            "self": covariance_similarity(X, X),
            "own": covariance_similarity(X, X, normalised=True),
            "common": abs(covariance_similarity(X @ turn, same @ turn) - score),
            "separate": abs(covariance_similarity(X @ turn, same @ other) - score),
        }
        eigenvalues = np.linalg.eigvalsh(X.T @ X)[::-1]
        kept = eigenvalues[: int(np.searchsorted(np.cumsum(eigenvalues), 0.99 * eigenvalues.sum())) + 1]
        values["law"] = abs(values["self"] - np.linalg.norm(kept) / kept.sum())
        leading = np.linalg.eigh(X.T @ X)[1][:, -1:]
        values["another"] = values["self"] - covariance_similarity(X, X @ leading @ leading.T)
        draws.add_all("score", 0.0, values)

    where, prefix = "Section 2.3, covariance similarity score", "fig2-linear.score"
    get = {name: draws.get("score", name, 0.0) for name in values}
    ledger.claim(
        f"{prefix}-orders",
        "The score is higher for the source with the target's covariance.",
        where,
        "above",
        get["gap"],
        quantity="score(target, same) - score(target, different)",
    )
    ledger.claim(
        f"{prefix}-common-rotation",
        "The score is unchanged when one rotation turns the columns of both inputs.",
        where,
        "every",
        get["common"],
        threshold=1e-8,
        quantity="change of the score",
    )
    ledger.claim(
        f"{prefix}-separate-rotations",
        "The score is unchanged when the columns of X_1 and of X_2 are rotated, each on its own.",
        where,
        "every",
        get["separate"],
        threshold=1e-8,
        quantity="change of the score",
    )
    ledger.claim(
        f"{prefix}-self",
        "The score of a task with itself is 1.",
        "not claimed; often read into Section 2.3",
        "every",
        1 - get["self"],
        threshold=1e-8,
        quantity="1 - score(X, X)",
    )
    ledger.claim(
        f"{prefix}-self-law",
        "The score of a task with itself is |l|_2 / |l|_1 over the kept eigenvalues l (corrected form).",
        "correction 1",
        "every",
        get["law"],
        threshold=1e-8,
        quantity="distance from the law",
    )
    ledger.claim(
        f"{prefix}-another",
        "A task scores higher with another than with itself: with its own leading direction alone.",
        "correction 1",
        "every",
        get["another"],
        quantity="score(X, X) - score(X, X v v^T)",
    )
    ledger.claim(
        f"{prefix}-normalised-self",
        "The normalised companion of a task with itself is 1 (corrected form).",
        "correction 1",
        "every",
        np.abs(1 - get["own"]),
        threshold=1e-8,
        quantity="|1 - companion(X, X)|",
    )
    return ledger.findings


def _rotation_claim(c: CovarianceSettings, ledger: Ledger, tag: str) -> None:
    """Whether Q does anything: distance of the sample covariance from D^2, against the sampling error's own size."""
    gaps = []
    for seed in range(c.seed, c.seed + min(c.seeds, 20)):
        inputs = stretched(stream(seed, "Q1"), c.d, kappa=c.kappa, strong=c.strong, block=0, form=c.form)
        X = inputs.rows(stream(seed, "Q check"), 20 * c.d)
        scaled = X / inputs.scales
        gaps.append(np.linalg.norm(scaled.T @ scaled / len(X) - np.eye(c.d), 2))
    ledger.claim(
        f"fig2-linear.{tag}.rotation-acts",
        "The rotation Q shapes the task's covariance.",
        f"{WHERE}, data generation",
        "above",
        np.array(gaps),
        threshold=1.0,
        condition=f"X = {c.form}",
        quantity="|D^-1 C D^-1 - I| with C the sample covariance (0.5 is sampling error)",
    )


def _rate_claim(c: CovarianceSettings, ledger: Ledger) -> None:
    """Whether the printed recipe trains on the example's raw features, whose covariance reaches kappa squared."""
    example_rows, rate, epochs, batch = 1000, 1e-3, 30, 50
    ledger.claim(
        "fig2-linear.printed.rate",
        "SGD at the printed rate (1e-3, batches of 50, 30 epochs) lowers the loss on the example's raw features.",
        "Appendix B, training procedures",
        "every",
        [_sgd_growth(c, seed, example_rows, rate, epochs, batch) for seed in range(c.seed, c.seed + min(c.seeds, 20))],
        quantity="log10 of last over first loss, stopped at 10^12",
        condition=f"X = {c.form}, kappa = {c.kappa:g}, {example_rows:,} rows, r = 1, plain SGD on B and head",
    )


def _sgd_growth(c: CovarianceSettings, seed: int, rows: int, rate: float, epochs: int, batch: int) -> float:
    inputs = stretched(stream(seed, "Q1"), c.d, kappa=c.kappa, strong=c.strong, block=0, form=c.form)
    theta = models_at(stream(seed, "models"), c.d, c.cosine)[0]
    X, y, _ = draw_task(seed, "rate", inputs, theta, rows, noise=c.noise)
    b, a = stream(seed, "rate start").standard_normal(c.d) / np.sqrt(c.d), 1.0
    first = last = float(np.mean((X @ b * a - y) ** 2))
    for step in range(epochs * rows // batch):
        part = np.arange(step * batch, (step + 1) * batch) % rows
        miss = X[part] @ b * a - y[part]
        last = float(np.mean(miss**2))
        if last > 1e12 * first:
            return 12.0
        b, a = b - rate * 2 * a * (miss @ X[part]) / batch, a - rate * 2 * float(miss @ (X[part] @ b)) / batch
    return float(np.log10(last / first))


def _notes(c: CovarianceSettings, draws: Draws) -> list[str]:
    many = max(c.source_rows)
    notes = []
    for m1 in c.target_rows:
        weak, tuned = (
            draws.get(f"score {m1}", f"{name} alone", many).mean() for name in ("least squares", "tuned ridge")
        )
        notes.append(f"Mean Spearman at m_1 = {m1:,}: least squares {weak:.3f}, tuned ridge {tuned:.3f}.")
    return notes


LINEAR = register(
    Experiment(
        name="fig2-linear",
        title="Transfer by the source's rows and covariance, linear regression",
        where=WHERE,
        settings={
            "corrected": CovarianceSettings(),
            "printed": CovarianceSettings(form="R Q D", noise=0.0, target_rows=(50, 9000)),
        },
        quick={"seeds": 8, "source_rows": (200, 1000, 3000)},
        run=run_linear,
        about=(
            "Tasks share (nearly) one linear model; the first source has the target's covariance, the second another. "
            "Printed: X = R Q D, in which the rotation does nothing, labels without noise, and 9,000 target rows. "
            "Corrected: X = R D Q^T, noise of one standard deviation, few target rows, the exact joint optimum, and "
            "beside the paper's weak baseline (minimum-norm least squares) a tuned ridge."
        ),
    )
)
