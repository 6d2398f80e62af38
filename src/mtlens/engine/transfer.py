"""Transfer learning: go on from a source's model on a target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mtlens.engine.controls import PLAIN
from mtlens.engine.result import Trained
from mtlens.engine.training import Align, Training
from mtlens.errors import InputError

FINE_TUNING_EPOCHS = 10  # the paper fine-tunes for 5 to 10


def fine_tune(
    source: Trained | Training | str | Path,
    target: Any,
    *,
    align: Align | None = None,
    epochs: int = FINE_TUNING_EPOCHS,
    **changes: Any,
) -> Training:
    """The training that fine-tunes a source's model on a target (paper, section 3), to be given to ``train``.

    The trunk, and the scale of its inputs, come from the source; the target's head starts fresh unless the source had
    a task of that name. ``align="joint"`` adds ``R`` and trains everything, ``align="fixed"`` keeps the trunk and
    updates head and ``R`` in turn, None is plain fine-tuning, the comparison.

    Args:
        source: a finished training (with its model), its folder, or a Training, which is then trained first.
        target: task, tasks or TaskSet.
        changes: further settings; all others are the source's.
    """
    settings = _settings_of(source)
    plain = PLAIN if align is None else {"align_at": settings.align_at}
    changed = {**plain, "align": align, "epochs": epochs, "tasks": target, "start_from": source, "freeze": ()}
    if isinstance(settings.weighting, dict):
        changed["weighting"] = "equal"
    return settings.but(**{**changed, **changes})


def _settings_of(source: Trained | Training | str | Path) -> Training:
    if isinstance(source, Training):
        return source
    if isinstance(source, (str, Path)):
        from mtlens.engine.saving import load_trained

        source = load_trained(Path(source))
    if not isinstance(source, Trained):
        raise InputError(f"fine_tune starts from a Trained, a Training or a folder, found a {type(source).__name__}.")
    return source.training
