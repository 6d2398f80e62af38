"""Results of studies to make pages of: one real, and made-up ones of any size with any names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtlens.study import Study, StudyResult
from mtlens.tasks import Task, TaskSet

Maker = Callable[..., StudyResult]


def related(rows: Sequence[int] = (60, 120, 120), width: int = 6) -> TaskSet:
    rng = np.random.default_rng(0)
    theta = rng.standard_normal(width)
    inputs = [rng.standard_normal((count, width)) for count in rows]
    return TaskSet([Task(f"t{i}", X, X @ theta + rng.standard_normal(len(X))) for i, X in enumerate(inputs)])


@pytest.fixture(scope="session")
def real_result(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """A small study with networks, methods and their controls."""
    folder = tmp_path_factory.mktemp("study") / "run"
    quick: dict[str, Any] = {"capacities": (4, 8), "learning_rates": (0.02,), "epochs": 4, "splits": 3}
    return Study(related(), folder, executor="here", methods=("plain", "align"), **quick).run()


@pytest.fixture
def made_result(real_result: StudyResult) -> Maker:
    """``made_result(names)``: a result of the real one's form with random numbers and every verdict."""
    return lambda names, **changes: StudyResult({**made_verdicts(real_result.verdicts, names), **changes}, None)


def made_verdicts(form: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    cell, point = form["transfer"][1], form["capacity"]["curves"][0]

    def evidence(like: dict[str, Any], **changes: Any) -> dict[str, Any]:
        value, half = float(rng.normal(0, 0.02)), float(rng.uniform(0.001, 0.03))
        proved = "helps" if value > 0 else "hurts"
        small = "no difference" if abs(value) + half < 0.01 else "undecided"
        verdict = proved if abs(value) > max(half, 0.01) else small
        numbers = {"difference": value, "low": value - half, "high": value + half, "n": 10, "p_adjusted": 0.2}
        return {**like, **numbers, "verdict": verdict, "predicted": value / 2, "runs_needed": "more rows", **changes}

    def transfer(target: str, source: str) -> dict[str, Any]:
        if target != source:
            return evidence(cell, target=target, source=source)
        alone = {"difference": None, "low": 0.4, "high": 0.6, "score": 0.5, "verdict": None, "predicted": None}
        return {**cell, "target": target, "source": source, "n": 10, **alone}

    return {
        **form,
        "advice": None,
        "groups": None,
        "pooled": {
            what: {**like, "n": 0, "difference": None, "low": None, "high": None}
            for what, like in form["pooled"].items()
        },
        "tasks": [{**form["tasks"][0], "name": name} for name in names],
        "transfer": [transfer(target, source) for target in names for source in names],
        "together": [evidence(form["together"][0], target=name, source="all others") for name in names],
        "leave_one_out": [
            evidence(form["leave_one_out"][0], target=t, source=s) for t in names for s in names if s != t
        ][: 12 * 11],
        "capacity": {
            **form["capacity"],
            "curves": [{**point, "task": name, "capacity": size} for size in (4, 8) for name in (*names, None)],
        },
    }


@pytest.fixture
def run_folder(real_result: StudyResult, tmp_path: Path) -> Path:
    """A copy of the real run's verdicts and plan."""
    assert real_result.folder is not None
    (tmp_path / "plan.json").write_bytes((real_result.folder / "plan.json").read_bytes())
    return real_result.save(tmp_path)
