"""From a study to its advice: what was measured goes in, what was advised is remembered in the ledger."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.models.system import Grid
from mtlens.study.advice import FOLDS, advise
from mtlens.study.identity import digest_json, task_fingerprints
from mtlens.study.result import plain_json
from mtlens.study.statistics import variance_factor

if TYPE_CHECKING:
    from mtlens.study.run import Run
    from mtlens.study.study import Study

NAMES: tuple[Literal["linear", "trunk"], ...] = ("linear", "trunk")
VERSION = 2  # raise it when the same study starts to be advised differently


def advised(study: Study, run: Run) -> dict[str, Any] | None:
    """``{"advice": ..., "toml": ...}``, from the ledger if the same study was advised before; None when time is up."""
    if run.is_over:
        return None
    families = _families(run)
    grid = grid_of(study)
    most = study.settings.max_models
    pairs, errors = measured_pairs(run)
    rounded = [[None if math.isnan(v) else round(v, 9) for v in row] for row in pairs.tolist()]
    asked = [
        VERSION,
        task_fingerprints(study.tasks),
        families,
        grid.model_dump(mode="json"),
        run.settings.seed,
        rounded,
        most,
    ]
    key = "advice " + digest_json(asked)
    known = run.ledger.fact(key)
    if known is None:
        advice = advise(
            study.tasks, families=[name for name in NAMES if name in families], grid=grid, seed=run.settings.seed,
            max_models=most, pairs=pairs, pair_errors=errors, device=study.device, workers=study.workers,
        )  # fmt: skip
        known = {"advice": plain_json(advice.to_dict()), "toml": advice.system.to_toml()}
        run.ledger.remember(key, known)
    return dict(known)


def grid_of(study: Study) -> Grid:
    """The study's own grid: the advice compares what the study compared."""
    s = study.settings
    files = {name: str(study.options[name]) for name in ("vectors", "encoder") if name in study.options}
    return Grid(
        trunk=s.trunk, capacities=list(s.capacities), learning_rates=list(s.learning_rates), epochs=s.epochs,
        batch=s.batch, weight_decay=s.weight_decay, seeds=s.seeds, **files,
    )  # fmt: skip


def _families(run: Run) -> tuple[str, ...]:
    """Networks only where a count budget still holds them: alone and joint, on every fold of the advice."""
    needed = 2 * (len(run.names) + 1) * len(run.settings.grid) * FOLDS
    limit = run.allowance.limit
    if "trunk" not in run.families or limit is None or run.allowance.used + needed <= limit:
        return run.families
    run.said.append(f"the budget does not hold the {needed} networks of a full advice: it rests on linear models.")
    return ("linear",)


def measured_pairs(run: Run) -> tuple[FloatArray, FloatArray]:
    """``(k, k)`` measured transfer and its standard error by (target, source); NaN where nothing was measured."""
    place = {name: i for i, name in enumerate(run.names)}
    pairs = np.full((len(place), len(place)), np.nan)
    errors = pairs.copy()
    for cell in run.tables.pairs:
        if cell.n >= 2 and cell.comparison is not None:
            at = place[cell.target], place[cell.source]
            factor = variance_factor(cell.n, run.judge.ratio(cell.target), balanced=run.judge.balanced)
            pairs[at] = float(cell.comparison.difference)
            errors[at] = math.sqrt(float(factor)) * float(cell.comparison.spread)
    return pairs, errors
