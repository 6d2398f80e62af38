"""alignment-*: does Algorithm 1 repair negative transfer, and does anything simpler do the same? (Appendix B.)

For the linear model of capacity one, Algorithm 1 needs no stochastic training: with ``B`` fixed, gradient steps on the
head ``a`` and on ``R`` move the target's model ``R B a`` exactly as fine-tuning ``B`` itself would. Both are run here
on the same full-batch steps, each stopped where a validation set says, and beside them the controls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.paper.baselines import RIDGES, least_squares, ridge_path
from mtlens.paper.claims import Finding
from mtlens.paper.constants import needs
from mtlens.paper.covariance import MARGIN, CovarianceSettings, Example, draw_example, rank_correlation
from mtlens.paper.generators import draw_task, models_at, stream, stretched
from mtlens.paper.outcome import Draws, Ledger, Outcome, Panel
from mtlens.paper.registry import Experiment, register

WHERE = "Algorithm 1; Appendix B, Figure 9"
MTL, ALIGNED, TUNE, RIDGED = "joint", "Algorithm 1", "fine-tuning, no R", "Algorithm 1, regularised"
RANDOM, LEAST = "Algorithm 1, random B", "least squares alone"
WEAK, LONGER, TUNED = "alone, gradient descent", "alone, twice the steps", "tuned ridge alone"
SOURCES = ("same covariance", "different covariance")


@dataclass(frozen=True)
class AlignmentSettings(CovarianceSettings):
    """The covariance example's constants and those of the descent. ``steps`` is the budget of each phase.

    The step size is ``rate`` over the largest eigenvalue of the target's Gram matrix, so no scale of X diverges; the
    steps are chosen by ``valid_rows`` labelled rows, for the controls as for Algorithm 1. ``shrinks``: how far the
    covariance that whitens is shrunk towards its mean eigenvalue, each a model of its own. ``unit_rows`` are the
    target's where whitening is tried on tasks that differ by the units of their columns alone.
    """

    target_rows: tuple[int, ...] = (20, 50)
    source_rows: tuple[int, ...] = (200, 1000, 3000, 9000)
    steps: int = 300
    rate: float = 1.0
    valid_rows: int = 20
    folds: int = 5
    shares: tuple[float, ...] = (0.0, 0.5, 1.0)
    shrinks: tuple[float, ...] = (0.01, 1e-6)
    unit_rows: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        needs(self.valid_rows > 0, "alignment-linear stops by validation rows: valid_rows must be at least 1, found 0.")
        needs(
            self.rate < 2,
            f"descent diverges from twice the inverse curvature on: rate must be below 2, found {self.rate:g}.",
        )


def panel_of(source: str, m1: int) -> str:
    """The panel of a source for a target with ``m1`` rows."""
    return f"{source}, m_1 = {m1:,}"


def whitened(shrink: float) -> str:
    """The name of the joint model on inputs whitened with this much shrinkage."""
    return f"joint, inputs whitened (shrunk by {shrink:g})"


def descend(X: FloatArray, y: FloatArray, start: FloatArray, *, steps: int, rate: float) -> FloatArray:
    """Plain gradient descent on ``|X b - y|^2 / 2`` from ``start``: its path, ``(steps + 1, d)``.

    With the head absorbed (``b`` is the model itself) this is fine-tuning the whole of ``B a``.
    """
    G, c = X.T @ X, X.T @ y
    size = rate / float(np.linalg.eigvalsh(G)[-1])
    path = np.empty((steps + 1, start.size))
    path[0] = start
    for t in range(steps):
        path[t + 1] = path[t] - size * (G @ path[t] - c)
    return path


def align(
    X: FloatArray, y: FloatArray, B: FloatArray, a: float, *, steps: int, rate: float, train_head: bool = True
) -> FloatArray:
    """Algorithm 1 with a fixed ``B``: alternate steps on ``a`` and on ``R`` from ``R = I``; the path of ``R B a``.

    ``B`` is scaled to unit norm and steps on ``R`` are divided by ``a^2``, so that each moves the model as far as a
    step on the model itself would, however the head grows.
    """
    norm = float(np.linalg.norm(B))
    B, a = B / norm, a * norm
    G, c = X.T @ X, X.T @ y
    size = rate / float(np.linalg.eigvalsh(G)[-1])
    R = np.eye(B.size)
    path = np.empty((steps + 1, B.size))
    path[0] = a * B
    for t in range(steps):
        moved = R @ B
        if train_head:
            curvature = float(moved @ G @ moved)
            a -= (float(moved @ (G @ moved * a - c))) / max(curvature, 1e-300)
        gradient = a * (G @ (moved * a) - c)
        R = R - size / max(a * a, 1e-12) * np.outer(gradient, B)
        path[t + 1] = a * (R @ B)
    return path


def chosen(path: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
    """The point of a path with the least validation error; points of a path that diverged (not finite) never are."""
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.sum((X @ path.T - y[:, None]) ** 2, axis=0)
    best: FloatArray = path[int(np.argmin(np.where(np.isfinite(errors), errors, np.inf)))]
    return best


def run_linear(c: AlignmentSettings) -> Outcome:
    """Every method on the same draws; all stopping by the same validation rows."""
    draws = Draws()
    for seed in range(c.seed, c.seed + c.seeds):
        example = draw_example(c, seed)
        for m1 in c.target_rows:
            _one_target(draws, c, seed, example, m1)
    return Outcome(_panels(c), draws.points(), _findings(c, draws), _notes(c, draws))


def _notes(c: AlignmentSettings, draws: Draws) -> list[str]:
    """Why Algorithm 1 repairs little where it repairs little."""
    if not c.noise:
        return []
    few, series = min(c.source_rows), "error that descent leaves"
    kept = {m1: draws.get(f"{panel_of(SOURCES[1], m1)}, training", series, few).mean() for m1 in c.target_rows}
    told = ", ".join(f"{share:.0%} at m_1 = {m1:,}" for m1, share in kept.items())
    return [
        f"From the joint optimum with {few:,} source rows of another covariance, {c.steps} steps of descent on the "
        f"target leave {told} of the target's training error. Where they leave nearly all of it, the joint model has "
        "fitted the target's own noise already, and neither Algorithm 1 nor fine-tuning has a way to go."
    ]


def _validation(c: AlignmentSettings, seed: int) -> tuple[FloatArray, FloatArray]:
    """Rows of the target beside its training rows, with noisy labels: what a user would hold out."""
    inputs = stretched(stream(seed, "Q1"), c.d, kappa=c.kappa, strong=c.strong, block=0, form=c.form)
    theta = models_at(stream(seed, "models"), c.d, c.cosine)[0]
    X, y, _ = draw_task(seed, "valid", inputs, theta, c.valid_rows, noise=c.noise)
    return X, y


def _one_target(draws: Draws, c: AlignmentSettings, seed: int, example: Example, m1: int) -> None:
    from mtlens.theory import two_task_optimum

    X, y = (part[:m1] for part in example.train)
    Xv, yv = _validation(c, seed)
    Xall, yall = np.vstack([X, Xv]), np.append(y, yv)
    zero = np.zeros(c.d)
    untrained = stream(seed, "random B").standard_normal(c.d)
    head = float(y @ (X @ untrained)) / float(np.sum((X @ untrained) ** 2))
    alone = {
        WEAK: chosen(descend(X, y, zero, steps=c.steps, rate=c.rate), Xv, yv),
        LONGER: chosen(descend(X, y, zero, steps=2 * c.steps, rate=c.rate), Xv, yv),
        TUNED: cross_validated(Xall, yall, lambda X, y: zero, folds=c.folds, shares=(0.0,)),
        RANDOM: chosen(align(X, y, untrained, head, steps=c.steps, rate=c.rate), Xv, yv),
    }
    base = {name: rank_correlation(example, theta) for name, theta in alone.items()}
    weak = rank_correlation(example, least_squares(X, y))
    for source in SOURCES:
        for m2 in c.source_rows:
            X2, y2 = same_moments(*(part[:m2] for part in example.sources[source]))

            def joint_model(X: FloatArray, y: FloatArray, X2: FloatArray = X2, y2: FloatArray = y2) -> FloatArray:
                return np.asarray(two_task_optimum(X, y, X2, y2).coef)[:, 0]

            best = two_task_optimum(X, y, X2, y2)
            B, a = np.asarray(best.B)[:, 0], float(np.asarray(best.A)[0, 0])
            shared = np.asarray(best.coef)[:, 0]
            tuned = descend(X, y, shared, steps=c.steps, rate=c.rate)
            models = {
                MTL: shared,
                ALIGNED: chosen(align(X, y, B, a, steps=c.steps, rate=c.rate), Xv, yv),
                TUNE: chosen(tuned, Xv, yv),
                RIDGED: cross_validated(Xall, yall, joint_model, folds=c.folds, shares=c.shares),
            }
            white = {whitened(shrink): whitened_joint(X, y, X2, y2, shrink) for shrink in c.shrinks}
            scores, after_whitening = (
                {name: rank_correlation(example, theta) for name, theta in found.items()} for found in (models, white)
            )
            panel = panel_of(source, m1)
            draws.add_all(panel, m2, base | scores)
            draws.add_all(f"{panel}, whitened", m2, {MTL: scores[MTL], LEAST: weak} | after_whitening)
            if c.noise:
                after, before = (float(np.sum((X @ theta - y) ** 2)) for theta in (tuned[-1], shared))
                fitted = before <= 1e-20 * float(y @ y)  # nothing to descend from, so all of it is left
                draws.add(f"{panel}, training", "error that descent leaves", m2, 1.0 if fitted else after / before)


def same_moments(X: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """At most ``d + 1`` rows with the same ``X^T X``, ``X^T y`` and ``|y|``: to a linear model the same data."""
    R = np.asarray(np.linalg.qr(np.column_stack([X, y]), mode="r"))
    return R[:, :-1], R[:, -1]


def cross_validated(
    X: FloatArray,
    y: FloatArray,
    toward: Callable[[FloatArray, FloatArray], FloatArray],
    *,
    folds: int,
    shares: tuple[float, ...],
) -> FloatArray:
    """Ridge towards ``share`` times a model of the same rows, share and strength chosen by cross-validation.

    Towards the joint model this is Algorithm 1 with a penalty on ``R - I``; share zero is plain ridge, so the method
    can decide not to share. ``toward`` is fitted anew without each fold: the choice never sees the labels it is judged
    by.
    """
    folds = min(folds, len(y))
    part = np.arange(len(y)) % folds
    errors = np.zeros((len(shares), len(RIDGES)))
    for fold in range(folds):
        kept, held = part != fold, part == fold
        model = toward(X[kept], y[kept])
        for s, share in enumerate(shares):
            path = ridge_path(X[kept], y[kept], toward=share * model)
            errors[s] += np.sum((X[held] @ path - y[held, None]) ** 2, axis=0)
    best_share, best_ridge = divmod(int(np.argmin(errors)), len(RIDGES))
    theta: FloatArray = ridge_path(X, y, toward=shares[best_share] * toward(X, y))[:, best_ridge]
    return theta


def whitened_joint(X1: FloatArray, y1: FloatArray, X2: FloatArray, y2: FloatArray, shrink: float) -> FloatArray:
    """Joint optimum after whitening each task's inputs by its own (shrunk) covariance, in the target's coordinates."""
    from mtlens.theory import two_task_optimum

    W1, W2 = _whitener(X1, shrink), _whitener(X2, shrink)
    theta: FloatArray = W1 @ np.asarray(two_task_optimum(X1 @ W1, y1, X2 @ W2, y2).coef)[:, 0]
    return theta


def _whitener(X: FloatArray, shrink: float) -> FloatArray:
    """Inverse square root of ``X^T X`` shrunk towards its mean eigenvalue, up to a factor that a head takes up."""
    C = X.T @ X
    values, V = np.linalg.eigh((1 - shrink) * C + shrink * np.trace(C) / len(C) * np.eye(len(C)))
    root: FloatArray = (V / np.sqrt(values / values[-1])) @ V.T
    return root


def _panels(c: AlignmentSettings) -> list[Panel]:
    def panel(source: str, m1: int, tail: str, words: str, controls: tuple[str, ...]) -> Panel:
        title = f"{words} with {m1:,} rows, source of {source}"
        x, y = "rows of the source, m_2", "Spearman on the target"
        return Panel(panel_of(source, m1) + tail, title, x, y, True, None, controls)

    controls = (TUNE, RANDOM, WEAK, LONGER, TUNED)
    kinds = (("", "Target", controls), (", whitened", "Whitening: target", (LEAST,)))
    return [panel(source, m1, *kind) for kind in kinds for m1 in c.target_rows for source in SOURCES]


def _findings(c: AlignmentSettings, draws: Draws) -> list[Finding]:
    tag = "printed" if c.form == "R Q D" else "corrected"
    ledger = Ledger()
    for m1 in c.target_rows:
        ledger.condition = f"X = {c.form}, noise {c.noise:g} sd, m_1 = {m1:,}, r = 1, B from the exact joint optimum"
        prefix, panels = f"alignment-linear.{tag}.{m1}", {source: panel_of(source, m1) for source in SOURCES}
        algorithm_claims(ledger, draws, prefix, c.source_rows, panels)
        _random_claims(ledger, draws, prefix, c.source_rows, panels)
        _regularised_claims(ledger, draws, prefix, c.source_rows, panels)
        _whitening_claims(ledger, draws, prefix, c, panels)
    if tag == "corrected":
        _path_claim(ledger, c)
        _unit_claims(ledger, c)
    return ledger.findings


def _random_claims(
    ledger: Ledger, draws: Draws, p: str, source_rows: tuple[int, ...], panels: Mapping[str, str]
) -> None:
    """The algorithm takes ``B`` as given: what a ``B`` that nobody trained does."""
    many, panel = max(source_rows), panels[SOURCES[0]]
    untrained = draws.get(panel, RANDOM, many)
    for id, other, words in (
        ("random-against-trained", ALIGNED, f"Algorithm 1 from the joint B (same covariance, {many:,} source rows)"),
        ("random-against-alone", WEAK, "the same descent on the target alone"),
    ):
        ledger.claim(
            f"{p}.{id}",
            f"Algorithm 1 with a random fixed B does worse than {words}.",
            "correction 13; control",
            "below",
            untrained - draws.get(panel, other, many),
            threshold=-MARGIN,
            quantity="difference of scores",
        )


def _regularised_claims(
    ledger: Ledger, draws: Draws, p: str, source_rows: tuple[int, ...], panels: Mapping[str, str]
) -> None:
    def gap(source: str) -> FloatArray:
        ours, control = (draws.mean_over(panels[source], name, source_rows) for name in (RIDGED, TUNED))
        return ours - control

    where, quantity = "correction 13", "Spearman difference, mean over source rows"
    ledger.claim(
        f"{p}.regularised-same",
        "Regularised towards the joint model, strength by cross-validation, alignment "
        "beats tuned ridge alone (same covariance).",
        where,
        "above",
        gap(SOURCES[0]),
        threshold=MARGIN,
        quantity=quantity,
    )
    ledger.claim(
        f"{p}.regularised-safe",
        "... and costs less than .02 with a different covariance.",
        where,
        "above",
        gap(SOURCES[1]),
        threshold=-0.02,
        quantity=quantity,
    )


def _whitening_claims(ledger: Ledger, draws: Draws, p: str, c: AlignmentSettings, panels: Mapping[str, str]) -> None:
    """Whitening as a start: mildest with the largest shrinkage, harshest with the least."""
    mild, harsh = whitened(max(c.shrinks)), whitened(min(c.shrinks))
    for source, id, words in ((SOURCES[0], "same", "same covariance"), (SOURCES[1], "other", "different covariance")):
        joint, white = (draws.mean_over(f"{panels[source]}, whitened", name, c.source_rows) for name in (MTL, mild))
        ledger.claim(
            f"{p}.whitening-harms-{id}",
            f"Whitening each task's inputs makes the joint model worse on the paper's own example ({words}).",
            "correction 14",
            "below",
            white - joint,
            threshold=-MARGIN,
            condition=f"{ledger.condition}, shrunk by {max(c.shrinks):g}",
            quantity="Spearman, whitened minus plain joint, mean over source rows",
        )
    joint, white, weak = (
        draws.mean_over(f"{panels[SOURCES[0]]}, whitened", name, c.source_rows) for name in (MTL, harsh, LEAST)
    )
    ledger.claim(
        f"{p}.whitening-destroys",
        "Whitening in full turns the positive transfer into negative transfer (same covariance).",
        "correction 14",
        "below",
        white - weak,
        threshold=-MARGIN,
        condition=f"{ledger.condition}, shrunk by {min(c.shrinks):g}",
        quantity=f"Spearman, joint on whitened inputs minus least squares alone, mean over source rows (plain joint: "
        f"{float(np.mean(joint - weak)):+.2f})",
    )


def _path_claim(ledger: Ledger, c: AlignmentSettings) -> None:
    ledger.claim(
        "alignment-linear.corrected.same-path",
        "With r = 1, Algorithm 1 follows exactly the path of fine-tuning the model from B.",
        "correction 13",
        "every",
        path_distances(c),
        threshold=1e-8,
        quantity="largest distance of the two paths, relative",
        condition="one step on R per step on B, head fixed",
    )


def _unit_claims(ledger: Ledger, c: AlignmentSettings) -> None:
    against_joint, against_alone = unit_gains(c)
    at = f"inputs N(0, I) in units e^N(0, 2^2) of each task's own, m_1 = {c.unit_rows}, m_2 = 200, d = 20"
    for id, words, gains, quantity in (
        ("whitening-units", "Whitening helps", against_joint, "Spearman, whitened minus plain joint"),
        ("whitening-units-alone", "Whitening makes transfer positive", against_alone, "Spearman, whitened minus alone"),
    ):
        ledger.claim(
            f"alignment-linear.corrected.{id}",
            f"{words} when the tasks differ by the units of their columns.",
            "correction 14",
            "above",
            gains,
            threshold=MARGIN,
            quantity=quantity,
            condition=f"{at}, shrunk by {min(c.shrinks):g}",
        )


def algorithm_claims(
    ledger: Ledger, draws: Draws, p: str, source_rows: tuple[int, ...], panels: Mapping[str, str]
) -> None:
    """The appendix's two sentences on Algorithm 1 and the controls that belong beside them. ``panels`` by source."""
    few, many, other = min(source_rows), max(source_rows), SOURCES[1]

    def gap(first: str, second: str, m2: int, source: str = other) -> FloatArray:
        return draws.get(panels[source], first, m2) - draws.get(panels[source], second, m2)

    q = "difference of scores"
    ledger.claim(
        f"{p}.improves",
        f"Algorithm 1 improves on joint training where covariances differ ({few:,} source rows).",
        WHERE,
        "above",
        gap(ALIGNED, MTL, few),
        threshold=MARGIN,
        quantity=q,
    )
    ledger.claim(
        f"{p}.corrects",
        f"Algorithm 1 corrects the negative transfer: not worse than the target alone ({few:,} rows).",
        WHERE,
        "above",
        gap(ALIGNED, WEAK, few),
        threshold=-MARGIN,
        quantity=q,
    )
    ledger.claim(
        f"{p}.matches",
        f"Algorithm 1 matches joint training when the source has many rows ({many:,}, different covariance).",
        WHERE,
        "above",
        gap(ALIGNED, MTL, many),
        threshold=-MARGIN,
        quantity=q,
    )
    ledger.claim(
        f"{p}.matches-same",
        f"... and where the source shares the target's covariance ({many:,} source rows).",
        WHERE,
        "above",
        gap(ALIGNED, MTL, many, SOURCES[0]),
        threshold=-MARGIN,
        quantity=q,
    )
    ledger.claim(
        f"{p}.beats-longer",
        "Algorithm 1 beats training the target alone for twice as long (different covariance).",
        "control",
        "above",
        gap(ALIGNED, LONGER, few),
        threshold=MARGIN,
        quantity=q,
    )
    ledger.claim(
        f"{p}.beats-fine-tuning",
        "Algorithm 1 beats fine-tuning for the same steps without R.",
        "control",
        "above",
        gap(ALIGNED, TUNE, few),
        threshold=MARGIN,
        quantity=q,
    )
    ledger.claim(
        f"{p}.equals-fine-tuning",
        "Algorithm 1 and fine-tuning without R end within .02 of each other.",
        "control",
        "within",
        gap(ALIGNED, TUNE, few),
        threshold=0.02,
        quantity=q,
    )


def path_distances(c: AlignmentSettings) -> list[float]:
    """Distance of Algorithm 1's path of ``R B a`` (head fixed) from descending on ``b = B a`` itself."""
    gaps = []
    for seed in range(c.seed, c.seed + min(c.seeds, 20)):
        random = stream(seed, "path")
        X, y, B = random.standard_normal((30, 8)), random.standard_normal(30), random.standard_normal(8)
        aligned = align(X, y, B, 1.0, steps=50, rate=0.5, train_head=False)
        tuned = descend(X, y, B, steps=50, rate=0.5)
        gaps.append(float(np.abs(aligned - tuned).max() / np.abs(tuned).max()))
    return gaps


def unit_gains(c: AlignmentSettings) -> tuple[list[float], list[float]]:
    """Two equal tasks in different units: the joint model on whitened inputs minus the plain one, and minus alone."""
    from mtlens.tasks.metrics import score
    from mtlens.theory import two_task_optimum

    against_joint, against_alone = [], []
    for seed in range(c.seed, c.seed + c.seeds):
        random, d = stream(seed, "units"), 20
        theta = models_at(random, d, 0.0)[0]
        units = np.exp(2.0 * random.standard_normal((2, d)))
        raw = [random.standard_normal((rows, d)) for rows in (c.unit_rows, 200, 1000)]
        y1, y2 = (Z @ theta + random.standard_normal(len(Z)) for Z in raw[:2])
        X1, X2, Xt = raw[0] * units[0], raw[1] * units[1], raw[2] * units[0]
        joint = np.asarray(two_task_optimum(X1, y1, X2, y2).coef)[:, 0]
        models = (whitened_joint(X1, y1, X2, y2, min(c.shrinks)), joint, least_squares(X1, y1))
        white, plain, alone = (score("spearman", raw[2] @ theta, Xt @ model) for model in models)
        against_joint.append(white - plain)
        against_alone.append(white - alone)
    return against_joint, against_alone


LINEAR = register(
    Experiment(
        name="alignment-linear",
        title="Algorithm 1 on the covariance example, linear regression",
        where=WHERE,
        settings={
            "corrected": AlignmentSettings(),
            "printed": replace(AlignmentSettings(), form="R Q D", noise=0.0),
        },
        quick={"seeds": 6, "source_rows": (200, 1000)},
        run=run_linear,
        about=(
            "The example of fig2-linear. Printed: X = R Q D without noise. Corrected: X = R D Q^T, noise of one "
            "standard deviation. Algorithm 1 starts at R = I from the exact joint B and alternates steps on the head "
            "and on R. Beside it: the same steps without R, the target alone, the target alone for twice as long, "
            "tuned ridge (on training and validation rows), and the regularised form: the target's model shrunk "
            "towards the joint one, share and strength by the cross-validation that tunes the ridge, on the same "
            "rows. Also: joint training on inputs that each task whitened, as a start that corrects covariances "
            "outright."
        ),
    )
)
