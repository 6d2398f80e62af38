"""alignment-relu: Algorithm 1 on the ReLU covariance example, trained by descent, with its controls."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mtlens.paper.alignment import (
    ALIGNED,
    LONGER,
    MTL,
    SOURCES,
    TUNE,
    TUNED,
    WEAK,
    WHERE,
    algorithm_claims,
)
from mtlens.paper.covariance import MARGIN, draw_example
from mtlens.paper.covariance_sgd import DescentSettings, recipe_of, ridge_score, target_rows, told
from mtlens.paper.descent import Batch, make_task
from mtlens.paper.outcome import Draws, Ledger, Outcome, Panel
from mtlens.paper.registry import Experiment, register

MTL_LONGER = "joint, twice the epochs"


@dataclass(frozen=True)
class AlignmentDescentSettings(DescentSettings):
    """As fig2-relu; Algorithm 1 and each control get the same number of extra epochs, at rates of their own.

    A step of Adam moves each of the d^2 numbers of R by the rate: at the joint model's rate R is soon far from I.
    """

    source_rows: tuple[int, ...] = (200, 1000, 3000)
    capacity: int = 5
    lrs: tuple[float, ...] = (1e-2, 1e-1)
    extra_lrs: tuple[float, ...] = (1e-4, 1e-3)
    epochs: tuple[int, ...] = (30,)


def run(c: AlignmentDescentSettings) -> Outcome:
    """The joint model, Algorithm 1 from it, and the controls: the same epochs without R, and longer training alone."""
    batch, recipe, draws, tuned = Batch(), recipe_of(c, "relu"), Draws(), {}
    m1 = c.target_rows[0]
    # every extra rate from every first rate, so that one grid serves Algorithm 1 and the controls
    bases, epochs = len(recipe.grid), max(recipe.epochs)
    extra = replace(recipe, lrs=tuple(lr for lr in c.extra_lrs for _ in range(bases)), epochs=(epochs,))
    for seed in range(c.seed, c.seed + c.seeds):
        example = draw_example(c, seed, "relu")
        rows = target_rows(c, seed, "relu", example, m1)
        target = make_task("target", "relu", rows["train"], rows["valid"], rows["test"])
        tuned[seed] = ridge_score(c, "relu", rows)
        alone = batch.add((seed, WEAK), [target], recipe, seed, report=["target"]) * len(c.extra_lrs)
        batch.add((seed, LONGER), [target], extra, seed, report=["target"], start_from=alone)
        for name in SOURCES:
            for m2 in c.source_rows:
                X2, y2 = example.sources[name]
                pair = [target, make_task("source", "relu", (X2[:m2], y2[:m2]))]
                joint = batch.add((seed, name, m2, MTL), pair, recipe, seed, report=["target"]) * len(c.extra_lrs)
                key, report = (seed, name, m2), ["target"]
                batch.add((*key, ALIGNED), pair, extra, seed, report=report, start_from=joint, align="fixed")
                batch.add((*key, MTL_LONGER), pair, extra, seed, report=report, start_from=joint)
                batch.add((*key, TUNE), [target], extra, seed, report=report, start_from=joint)
    batch.run()
    for seed, ridge in tuned.items():
        base = {WEAK: batch.score((seed, WEAK)), LONGER: batch.score((seed, LONGER)), TUNED: ridge}
        for name in SOURCES:
            for m2 in c.source_rows:
                methods = {m: batch.score((seed, name, m2, m)) for m in (MTL, ALIGNED, MTL_LONGER, TUNE)}
                draws.add_all(name, m2, base | methods)
    return _outcome(c, draws)


def _outcome(c: AlignmentDescentSettings, draws: Draws) -> Outcome:
    controls = (MTL_LONGER, TUNE, WEAK, LONGER, TUNED)
    panels = [
        Panel(
            name,
            f"Target with {c.target_rows[0]:,} rows, source of {name}",
            "rows of the source, m_2",
            "Spearman on the target",
            True,
            None,
            controls,
        )
        for name in SOURCES
    ]
    tag, few = "printed" if c.form == "R Q D" else "corrected", min(c.source_rows)
    ledger = Ledger(f"X = {c.form}, noise {c.noise:g} sd, m_1 = {c.target_rows[0]:,}, capacity {c.capacity}, {told(c)}")
    algorithm_claims(ledger, draws, f"alignment-relu.{tag}", c.source_rows, {name: name for name in SOURCES})
    for id, control, words in (
        ("beats-joint-longer", MTL_LONGER, "the same extra epochs of joint training without R"),
        ("beats-ridge", TUNED, "tuned ridge on the target alone"),
    ):
        ledger.claim(
            f"alignment-relu.{tag}.{id}",
            f"Algorithm 1 beats {words}.",
            "control",
            "above",
            draws.get(SOURCES[1], ALIGNED, few) - draws.get(SOURCES[1], control, few),
            threshold=MARGIN,
            quantity="difference of scores",
        )
    mean_alone = float(np.mean(draws.get(SOURCES[0], WEAK, few)))
    return Outcome(panels, draws.points(), ledger.findings, (f"Mean Spearman alone: {mean_alone:.3f}.",))


EXPERIMENT = register(
    Experiment(
        name="alignment-relu",
        title="Algorithm 1 on the covariance example, ReLU regression",
        where=WHERE,
        settings={
            "corrected": AlignmentDescentSettings(),
            "printed": AlignmentDescentSettings(
                seeds=20, form="R Q D", noise=0.0, valid_rows=0, lrs=(1e-3,), extra_lrs=(1e-3,)
            ),
        },
        quick={"seeds": 4, "source_rows": (200, 1000)},
        run=run,
        about=(
            "The example of fig2-relu. Printed: X = R Q D, no noise, learning rate 1e-3. Corrected: X = R D Q^T, "
            "noise of one standard deviation. Joint training, then Algorithm 1 from its trunk (fixed) with R starting"
            " at the identity. Controls with the same number of extra epochs: joint training continued, fine-tuning "
            "on the target without R, and the target alone for twice as long. Rates are chosen on validation rows, "
            "those of the extra epochs on their own, for the controls too."
        ),
    )
)
