"""alignment-*: does Algorithm 1 repair negative transfer, and does anything simpler do the same? (Appendix B.)

For the linear model of capacity one, Algorithm 1 needs no stochastic training: with ``B`` fixed, gradient steps on the
head ``a`` and on ``R`` move the target's model ``R B a`` exactly as fine-tuning ``B`` itself would. Both are run here
on the same full-batch steps, each stopped where a validation set says, and beside them the controls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.paper.baselines import RIDGES, least_squares, ridge_path, tuned_ridge
from mtlens.paper.claims import Finding
from mtlens.paper.covariance import MARGIN, CovarianceSettings, Example, draw_example, rank_correlation
from mtlens.paper.generators import draw_task, models_at, stream, stretched
from mtlens.paper.outcome import Draws, Ledger, Outcome, Panel
from mtlens.paper.registry import Experiment, register

WHERE = "Algorithm 1; Appendix B, Figure 8"
MTL, ALIGNED, TUNE, RIDGED = "joint", "Algorithm 1", "fine-tuning, no R", "Algorithm 1, regularised"
WEAK, LONGER, TUNED = "alone, gradient descent", "alone, twice the steps", "tuned ridge alone"
WHITENED = "joint on whitened inputs"
SOURCES = ("same covariance", "different covariance")


@dataclass(frozen=True)
class AlignmentSettings(CovarianceSettings):
    """The covariance example's constants and those of the descent. ``steps`` is the budget of each phase.

    The step size is ``rate`` over the largest eigenvalue of the target's Gram matrix, so no scale of X diverges; the
    steps are chosen by ``valid_rows`` labelled rows, for the controls as for Algorithm 1.
    """

    target_rows: tuple[int, ...] = (20,)
    source_rows: tuple[int, ...] = (200, 1000, 3000, 9000)
    steps: int = 300
    rate: float = 1.0
    valid_rows: int = 20
    folds: int = 5
    shares: tuple[float, ...] = (0.0, 0.5, 1.0)


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

    ``B`` is scaled to unit norm, so that a step on ``R`` moves the model as far as a step on ``B`` would.
    """
    norm = float(np.linalg.norm(B))
    B, a = B / norm, a * norm
    G, c = X.T @ X, X.T @ y
    size = rate / (float(np.linalg.eigvalsh(G)[-1]) * max(a * a, 1e-12))
    R = np.eye(B.size)
    path = np.empty((steps + 1, B.size))
    path[0] = a * B
    for t in range(steps):
        moved = R @ B
        if train_head:
            curvature = float(moved @ G @ moved)
            a -= (float(moved @ (G @ moved * a - c))) / max(curvature, 1e-300)
        gradient = a * (G @ (moved * a) - c)
        R = R - size * np.outer(gradient, B)
        path[t + 1] = a * (R @ B)
    return path


def chosen(path: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
    """The point of a path with the least validation error."""
    errors = np.sum((X @ path.T - y[:, None]) ** 2, axis=0)
    best: FloatArray = path[int(np.argmin(errors))]
    return best


def run_linear(c: AlignmentSettings) -> Outcome:
    """Every method on the same draws; all stopping by the same validation rows."""
    draws = Draws()
    for seed in range(c.seed, c.seed + c.seeds):
        example = draw_example(c, seed)
        for m1 in c.target_rows:
            _one_target(draws, c, seed, example, m1)
    return Outcome(_panels(c), draws.points(), _findings(c, draws), ())


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
    alone = {
        WEAK: chosen(descend(X, y, zero, steps=c.steps, rate=c.rate), Xv, yv),
        LONGER: chosen(descend(X, y, zero, steps=2 * c.steps, rate=c.rate), Xv, yv),
        TUNED: tuned_ridge(Xall, yall),
    }
    base = {name: rank_correlation(example, theta) for name, theta in alone.items()}
    base["least squares alone"] = rank_correlation(example, least_squares(X, y))
    for source in SOURCES:
        for m2 in c.source_rows:
            X2, y2 = (part[:m2] for part in example.sources[source])
            best = two_task_optimum(X, y, X2, y2)
            B, a = np.asarray(best.B)[:, 0], float(np.asarray(best.A)[0, 0])
            shared = np.asarray(best.coef)[:, 0]
            models = {
                MTL: shared,
                ALIGNED: chosen(align(X, y, B, a, steps=c.steps, rate=c.rate), Xv, yv),
                TUNE: chosen(descend(X, y, shared, steps=c.steps, rate=c.rate), Xv, yv),
                RIDGED: regularised(Xall, yall, X2, y2, folds=c.folds, shares=c.shares),
                WHITENED: _whitened_joint(X, y, X2, y2),
            }
            draws.add_all(source, m2, base | {n: rank_correlation(example, theta) for n, theta in models.items()})


def regularised(
    X: FloatArray, y: FloatArray, X2: FloatArray, y2: FloatArray, *, folds: int, shares: tuple[float, ...]
) -> FloatArray:
    """Algorithm 1 with a penalty on ``R - I``: ridge towards ``share`` times the joint model, both cross-validated.

    The joint model is fitted anew without each fold, so the choice never sees the labels it is judged by. Share zero is
    plain ridge: the method can decide not to share.
    """
    from mtlens.theory import two_task_optimum

    part = np.arange(len(y)) % folds
    errors = np.zeros((len(shares), len(RIDGES)))
    for fold in range(folds):
        kept, held = part != fold, part == fold
        shared = np.asarray(two_task_optimum(X[kept], y[kept], X2, y2).coef)[:, 0]
        for s, share in enumerate(shares):
            path = ridge_path(X[kept], y[kept], toward=share * shared)
            errors[s] += np.sum((X[held] @ path - y[held, None]) ** 2, axis=0)
    best_share, best_ridge = divmod(int(np.argmin(errors)), len(RIDGES))
    shared = np.asarray(two_task_optimum(X, y, X2, y2).coef)[:, 0]
    theta: FloatArray = ridge_path(X, y, toward=shares[best_share] * shared)[:, best_ridge]
    return theta


def _whitened_joint(X1: FloatArray, y1: FloatArray, X2: FloatArray, y2: FloatArray) -> FloatArray:
    """Joint optimum after whitening each task's inputs by its own (shrunk) covariance, in the target's coordinates."""
    from mtlens.theory import two_task_optimum

    W1, W2 = _whitener(X1), _whitener(X2)
    theta: FloatArray = W1 @ np.asarray(two_task_optimum(X1 @ W1, y1, X2 @ W2, y2).coef)[:, 0]
    return theta


def _whitener(X: FloatArray) -> FloatArray:
    """Inverse square root of the covariance, shrunk by a hundredth towards its mean so that few rows do not explode."""
    C = X.T @ X / len(X)
    values, V = np.linalg.eigh(0.99 * C + 0.01 * np.trace(C) / len(C) * np.eye(len(C)))
    root: FloatArray = (V / np.sqrt(values)) @ V.T
    return root


def _panels(c: AlignmentSettings) -> list[Panel]:
    controls = (TUNE, WEAK, LONGER, TUNED, "least squares alone")
    return [
        Panel(
            source,
            f"Target with {c.target_rows[0]:,} rows, source of {source}",
            "rows of the source, m_2",
            "Spearman on the target",
            True,
            None,
            controls,
        )
        for source in SOURCES
    ]


def _findings(c: AlignmentSettings, draws: Draws) -> list[Finding]:
    tag = "printed" if c.form == "R Q D" else "corrected"
    condition = f"X = {c.form}, noise {c.noise:g} sd, m_1 = {c.target_rows[0]:,}, r = 1, B from the exact joint optimum"
    ledger = Ledger(condition)
    algorithm_claims(ledger, draws, f"alignment-linear.{tag}", c.source_rows)
    p, few, many = f"alignment-linear.{tag}", min(c.source_rows), max(c.source_rows)

    def gap(first: str, second: str, source: str) -> FloatArray:
        return draws.mean_over(source, first, c.source_rows) - draws.mean_over(source, second, c.source_rows)

    ledger.claim(
        f"{p}.regularised-same",
        "Regularised towards the joint model, strength by cross-validation, alignment "
        "beats tuned ridge alone (same covariance).",
        "correction: Algorithm 1",
        "above",
        gap(RIDGED, TUNED, SOURCES[0]),
        threshold=MARGIN,
        quantity="Spearman difference, mean over source rows",
    )
    ledger.claim(
        f"{p}.regularised-safe",
        "... and costs less than .02 with a different covariance.",
        "correction: Algorithm 1",
        "above",
        gap(RIDGED, TUNED, SOURCES[1]),
        threshold=-0.02,
        quantity="Spearman difference, mean over source rows",
    )
    ledger.claim(
        f"{p}.whitening-harms",
        "Whitening each task's inputs destroys transfer on the paper's own example.",
        "correction: CORAL start",
        "below",
        draws.get(SOURCES[0], WHITENED, many) - draws.get(SOURCES[0], MTL, many),
        threshold=-MARGIN,
        quantity=f"Spearman, whitened minus plain joint, {many:,} rows",
    )
    if tag == "corrected":
        ledger.claim(
            f"{p}.same-path",
            "With r = 1, Algorithm 1 follows exactly the path of fine-tuning the model from B.",
            "correction: Algorithm 1",
            "every",
            path_distances(c),
            threshold=1e-8,
            quantity="largest distance of the two paths, relative",
            condition="one step on R per step on B, head fixed",
        )
        ledger.claim(
            f"{p}.whitening-units",
            "Whitening helps when the tasks differ by the units of their columns.",
            "correction: CORAL start",
            "above",
            unit_gains(c),
            threshold=MARGIN,
            quantity=f"Spearman, whitened minus plain joint, {few:,} source rows",
            condition="inputs N(0, I) in units e^N(0, 2^2) of each task's own, m_1 = 200, d = 20",
        )
    return ledger.findings


def algorithm_claims(ledger: Ledger, draws: Draws, p: str, source_rows: tuple[int, ...]) -> None:
    """The appendix's two sentences on Algorithm 1 and the controls that belong beside them."""
    few, many, other = min(source_rows), max(source_rows), SOURCES[1]

    def gap(first: str, second: str, m2: int, source: str = other) -> FloatArray:
        return draws.get(source, first, m2) - draws.get(source, second, m2)

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
        f"Algorithm 1 matches joint training when the source has many rows ({many:,}, same covariance).",
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


def unit_gains(c: AlignmentSettings) -> list[float]:
    """What whitening does when two equal tasks come in different units: joint scores, whitened minus plain."""
    from mtlens.tasks.metrics import score
    from mtlens.theory import two_task_optimum

    gains = []
    for seed in range(c.seed, c.seed + c.seeds):
        random, d = stream(seed, "units"), 20
        theta = models_at(random, d, 0.0)[0]
        units = np.exp(2.0 * random.standard_normal((2, d)))
        raw = [random.standard_normal((rows, d)) for rows in (200, max(min(c.source_rows), 200), 1000)]
        y1, y2 = (Z @ theta + c.noise * random.standard_normal(len(Z)) for Z in raw[:2])
        X1, X2, Xt = raw[0] * units[0], raw[1] * units[1], raw[2] * units[0]
        plain = np.asarray(two_task_optimum(X1, y1, X2, y2).coef)[:, 0]
        white = _whitened_joint(X1, y1, X2, y2)
        gains.append(score("spearman", raw[2] @ theta, Xt @ white) - score("spearman", raw[2] @ theta, Xt @ plain))
    return gains


LINEAR = register(
    Experiment(
        name="alignment-linear",
        title="Algorithm 1 on the covariance example, linear regression",
        where=WHERE,
        settings={
            "corrected": AlignmentSettings(),
            "printed": replace(AlignmentSettings(), form="R Q D", noise=0.0),
        },
        quick={"seeds": 8, "source_rows": (200, 1000)},
        run=run_linear,
        about=(
            "Algorithm 1 starts at R = I from the exact joint B and alternates steps on the head and on R. Beside it: "
            "the same steps without R, the target alone, the target alone for twice as long, tuned ridge (on training "
            "and validation rows), and the regularised form: the target's model shrunk towards the joint one, "
            "strength by cross-validation on the same rows."
        ),
    )
)
