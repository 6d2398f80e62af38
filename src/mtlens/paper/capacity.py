"""capacity-linear: how large should the shared part be? (Section 2.2, and the exact statements of Appendix A.)"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.paper import propositions
from mtlens.paper.baselines import least_squares, tuned_ridge
from mtlens.paper.claims import Finding
from mtlens.paper.constants import needs
from mtlens.paper.generators import rotation, stream
from mtlens.paper.outcome import Draws, Ledger, Outcome, Panel
from mtlens.paper.registry import Experiment, register

WHERE = "Section 2.2"
JOINT, WEAK, TUNED = "joint, exact optimum", "least squares alone", "tuned ridge alone"


@dataclass(frozen=True)
class CapacitySettings:
    """``problems`` is the number of random problems the exact statements are tried on.

    ``intrinsic`` is the rank of the ``(d, tasks)`` matrix of true models; ``noise``, each a study of its own, in sd of
    each task's signal: the noisier the labels, the fewer directions can be told from noise."""

    seeds: int = 40
    seed: int = 0
    d: int = 50
    tasks: int = 20
    intrinsic: int = 5
    rows: int = 80
    noise: tuple[float, ...] = (0.5, 1.0)
    problems: int = 40

    def __post_init__(self) -> None:
        needs(self.tasks >= 2, f"capacity-linear compares capacities up to the number of tasks: found {self.tasks}.")
        needs(
            self.intrinsic <= self.d,
            f"intrinsic is the rank of models in R^d: it must be at most d = {self.d}, found {self.intrinsic}.",
        )


def true_models(random: np.random.Generator, c: CapacitySettings) -> FloatArray:
    """``(d, tasks)`` unit-norm models inside a random subspace of the intrinsic dimension."""
    inside = rotation(random, c.d)[:, : c.intrinsic] @ random.standard_normal((c.intrinsic, c.tasks))
    models: FloatArray = inside / np.linalg.norm(inside, axis=0)
    return models


def run(c: CapacitySettings) -> Outcome:
    """Error of the exact rank-r joint optimum on shared inputs for every r, beside both single-task baselines."""
    from mtlens.theory import shared_input_optimum

    draws = Draws()
    for seed in range(c.seed, c.seed + c.seeds):
        theta = true_models(stream(seed, "models"), c)
        X = stream(seed, "inputs").standard_normal((c.rows, c.d))
        errors = stream(seed, "noise").standard_normal((c.rows, c.tasks))
        for noise in c.noise:
            Y = X @ theta + noise * errors
            alone = {
                name: _error(np.stack([fit(X, y) for y in Y.T], axis=1), theta)
                for name, fit in ((WEAK, least_squares), (TUNED, tuned_ridge))
            }
            for r in range(1, c.tasks + 1):
                joint = _error(shared_input_optimum(X, Y, rank=r).coef, theta)
                draws.add_all(_panel(noise), r, {JOINT: joint} | alone)
    panels = [
        Panel(
            _panel(noise),
            f"Error by shared capacity ({c.tasks} tasks, true rank {c.intrinsic}, noise {noise:g} sd)",
            "shared capacity r",
            "squared error of the models",
            controls=(WEAK, TUNED),
        )
        for noise in c.noise
    ]
    found = [finding for noise in c.noise for finding in _findings(c, draws, noise)]
    return Outcome(panels, draws.points(), found + (propositions.findings(c.seed, c.problems) if c.problems else []))


def _panel(noise: float) -> str:
    return f"error, noise {noise:g} sd"


def _error(coef: FloatArray, theta: FloatArray) -> float:
    """Mean squared prediction error on fresh standard Gaussian inputs, relative to the signal: 1 is no model at all."""
    return float(np.mean(np.sum((coef - theta) ** 2, axis=0)))


def _findings(c: CapacitySettings, draws: Draws, noise: float) -> list[Finding]:
    condition = f"{c.tasks} tasks of true rank {c.intrinsic}, {c.rows} rows, d = {c.d}, noise {noise:g} sd, exact"
    tag = "printed" if c.intrinsic >= c.tasks else "corrected"
    ledger, prefix = Ledger(condition), f"capacity-linear.{tag}.{noise:g}"
    curve = np.array([draws.get(_panel(noise), JOINT, r) for r in range(1, c.tasks + 1)])  # (tasks, seeds)
    weak, tuned = (draws.get(_panel(noise), name, 1) for name in (WEAK, TUNED))
    best = curve.argmin(axis=0) + 1.0
    inner = min(c.intrinsic, c.tasks - 1)
    ledger.claim(
        f"{prefix}.no-transfer",
        "At r = k joint training gives exactly the single-task error.",
        "Proposition 1",
        "every",
        np.abs(curve[-1] - weak),
        threshold=1e-8,
        quantity="distance of the two errors",
    )
    ledger.claim(
        f"{prefix}.limit",
        "Limiting the capacity below the sum of the tasks' enforces useful transfer.",
        WHERE,
        "above",
        weak - curve[inner - 1],
        quantity=f"single-task error minus joint error at r = {inner}",
    )
    ledger.claim(
        f"{prefix}.too-small",
        "A shared part that is too small makes tasks interfere: r = 1 loses against tuned single-task models.",
        WHERE,
        "above",
        curve[0] - tuned,
        quantity="joint error at r = 1 minus tuned ridge error",
    )
    ledger.claim(
        f"{prefix}.below-sum",
        "The best capacity is below the sum of the single-task capacities.",
        WHERE,
        "below",
        best,
        threshold=float(c.tasks),
        quantity="best capacity",
    )
    ledger.claim(
        f"{prefix}.at-the-true-rank",
        "The best capacity is within one of the true rank of the models.",
        "correction 15",
        "within",
        best - c.intrinsic,
        threshold=1.0,
        quantity="best capacity minus true rank",
    )
    ledger.claim(
        f"{prefix}.against-tuned",
        f"Limited to r = {inner}, joint training beats tuned single-task ridge too.",
        f"{WHERE}; control",
        "above",
        tuned - curve[inner - 1],
        quantity=f"tuned ridge error minus joint error at r = {inner}",
    )
    return ledger.findings


EXPERIMENT = register(
    Experiment(
        name="capacity-linear",
        title="Error by shared capacity, linear models",
        where=WHERE,
        settings={"corrected": CapacitySettings(), "printed": CapacitySettings(intrinsic=20, problems=0)},
        quick={"seeds": 10, "problems": 10},
        run=run,
        about=(
            "The exact joint optimum at every capacity on shared inputs. Printed: tasks with unrelated models, as the "
            "text does not say that they share anything. Corrected: models inside a common subspace, so that there is "
            "something to share; with noise of half and of one label sd. The exact statements of Appendix A are tried "
            "on random problems, in both forms."
        ),
    )
)
