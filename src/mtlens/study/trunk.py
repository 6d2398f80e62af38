"""The trunk family: networks trained by the engine, alone and together, by every method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from mtlens.study.plan import Unit
from mtlens.study.prepare import Prepared

PLAIN_WEIGHTING = {"plain": "equal", "align": "equal"}
ALIGN_EPOCHS = 10  # Algorithm 1 goes on from the plain joint model for this many epochs; so do its controls


def reads_tokens(trunk: str) -> bool:
    from mtlens.features import form_of

    return form_of(trunk) == "tokens"


def training_of(unit: Unit, prepared: Prepared, *, tokens: bool) -> Any:
    """The engine's Training for a unit."""
    from mtlens.engine import Training

    tasks = prepared.for_family("trunk", tokens=tokens).subset(unit.tasks)
    weighting = PLAIN_WEIGHTING.get(unit.method, unit.method)
    plain = Training(tasks, seed=unit.seed, weighting=weighting, **unit.config)
    if unit.method != "align":
        return plain
    return plain.but(align="fixed", start_from=plain, epochs=min(ALIGN_EPOCHS, plain.epochs))


def run_trunk(units: Sequence[Unit], prepared: Mapping[int, Prepared], *, device: str = "cpu") -> list[dict[str, Any]]:
    """Train a stack through the engine, in this process, and say what each training scored."""
    from mtlens.engine import train

    tokens = reads_tokens(units[0].config["trunk"])
    trainings = [training_of(unit, prepared[unit.split], tokens=tokens) for unit in units]
    keep: Literal["predictions", "scores"] = "predictions" if any(unit.split < 0 for unit in units) else "scores"
    controls = units[0].method == "align"
    done = train(trainings, device=device, keep=keep, workers=1, controls=controls)
    return [_found(unit, trained) for unit, trained in zip(units, done, strict=True)]


def _found(unit: Unit, trained: Any) -> dict[str, Any]:
    kept = ("valid", "test")
    scores = {split: trained.scores[split] for split in kept if split in trained.scores}
    found = {"scores": scores, "seconds": trained.seconds, "reason": "" if trained.ok else trained.reason}
    if trained.controls:
        found["controls"] = {
            name: {split: control.scores[split] for split in kept if split in control.scores}
            for name, control in trained.controls.items()
        }
    if unit.split < 0 and trained.predictions:
        found["predictions"] = {name: values.tolist() for name, values in trained.predictions["test"].items()}
    return found
