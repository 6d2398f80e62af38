"""The trunk family: networks trained by the engine, alone and together, by every method."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from mtlens.study.contrasts import CONTRASTS, changed
from mtlens.study.plan import Unit
from mtlens.study.prepare import Prepared

KEPT = ("valid", "test")  # splits whose scores enter the ledger
EQUAL = ("plain", *CONTRASTS)  # methods that are not the name of a weighting


def reads_tokens(trunk: str) -> bool:
    from mtlens.features import form_of

    return form_of(trunk) == "tokens"


def training_of(unit: Unit, prepared: Prepared, *, tokens: bool) -> Any:
    """The engine's Training for a unit."""
    from mtlens.engine import Training
    from mtlens.features.vectors import vectors_from
    from mtlens.nets.text_families import TextFamily

    tasks = prepared.for_family("trunk", tokens=tokens).subset(unit.tasks)
    tasks, settings = changed(unit.method, tasks, unit.config)
    if settings.pop("vectors_digest", None):
        settings["trunk"] = TextFamily(settings["trunk"], vectors=vectors_from(settings.pop("vectors")))
    if unit.method not in EQUAL:
        settings.setdefault("weighting", unit.method)
    plain = Training(tasks, seed=unit.seed, **settings)
    if unit.method != "align":
        return plain
    # Algorithm 1 goes on from the plain joint model for as many epochs again; so do its controls.
    return plain.but(align="fixed", start_from=plain)


def run_trunk(units: Sequence[Unit], prepared: Mapping[int, Prepared], *, device: str = "cpu") -> list[dict[str, Any]]:
    """Train a stack through the engine, in this process, and say what each training scored."""
    from mtlens.engine import train

    tokens = reads_tokens(units[0].config["trunk"])
    trainings = [training_of(unit, prepared[unit.split], tokens=tokens) for unit in units]
    keep: Literal["predictions", "scores"] = "predictions" if any(unit.split < 0 for unit in units) else "scores"
    controls = units[0].method == "align"
    began = time.perf_counter()
    done = train(trainings, device=device, keep=keep, workers=1, controls=controls, progress=False)
    each = (time.perf_counter() - began) / len(done)  # members of a stack share its time
    if any(trained.reason == "interrupted" for trained in done):
        raise KeyboardInterrupt  # the engine hands back what it has; here a stack is whole or it is not
    return [_found(unit, trained) | {"seconds": each} for unit, trained in zip(units, done, strict=True)]


def _found(unit: Unit, trained: Any) -> dict[str, Any]:
    scores = {split: trained.scores[split] for split in KEPT if split in trained.scores}
    found = {"scores": scores, "reason": "" if trained.ok else trained.reason}
    if trained.controls:
        found["controls"] = {name: _control_scores(control) for name, control in trained.controls.items()}
    if unit.split < 0 and trained.predictions:
        found["predictions"] = {name: values.tolist() for name, values in trained.predictions["test"].items()}
    return found


def _control_scores(control: Any) -> dict[str, dict[str, float]]:
    """split -> task -> score, of one joint training or of one training a task."""
    trained = list(control.values()) if isinstance(control, dict) else [control]
    parts = [(split, one.scores[split]) for one in trained for split in KEPT if split in one.scores]
    found: dict[str, dict[str, float]] = {}
    for split, scores in parts:
        found.setdefault(split, {}).update(scores)
    return found
