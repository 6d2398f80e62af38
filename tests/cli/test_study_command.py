"""``mtlens study``, ``plan`` and ``show`` from outside: output, exit status, documented fields."""

from __future__ import annotations

import json
import re
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from mtlens.cli import app
from mtlens.cli.plan import plan as plan_command
from mtlens.cli.study import study as study_command
from mtlens.errors import InputError
from mtlens.study import StudyResult

ROOT = Path(__file__).resolve().parents[2]
QUICK = ["--families", "linear", "--splits", "2"]


def mtlens(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    Y = X @ rng.standard_normal((3, 3)) + rng.standard_normal((60, 3))
    lines = ["x1,x2,x3,a,b,c", *(",".join(f"{v:.4f}" for v in row) for row in np.hstack([X, Y]))]
    path = tmp_path_factory.mktemp("data") / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("out") / "run"
    done = mtlens("study", data, "--targets", "a,b,c", "--out", out, "--json", "--quiet", *QUICK)
    assert done.exit_code == 0, done.output
    return out, done


def test_json_is_what_the_folder_holds(run: tuple[Path, Result]) -> None:
    out, done = run
    assert json.loads(done.stdout) == json.loads((out / "verdicts.json").read_text())
    assert mtlens("show", out, "--json").stdout == done.stdout


NESTED = {
    "alone", "by", "cause", "cells", "contrasts", "curves", "difference", "estimand", "failed", "flat", "high", "joint",
    "linear_fits", "low", "n", "optimum", "p", "pairs", "reused", "seconds", "source", "summary", "target", "together",
    "trainings", "training_seconds", "verdict", "verdicts.json",
}  # fmt: skip


def documented(heading: str) -> set[str]:
    text = (ROOT / "docs" / "json.md").read_text("utf-8")
    section = text.split(f"### {heading}\n", 1)[1].split("\n### ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_field_is_documented(run: tuple[Path, Result]) -> None:
    found = json.loads(run[1].stdout)
    assert set(found) <= documented("mtlens study --json")
    assert set(found) | NESTED >= documented("mtlens study --json")
    assert set(found["tasks"][0]) == documented("One task of a study")
    for cell in (*found["transfer"], *found["together"], *found["leave_one_out"]):
        assert set(cell) <= documented("One cell")
    assert set(found["transfer"][0]) == documented("One cell")


@pytest.mark.medium
def test_every_field_of_a_study_with_networks_is_documented(data: Path, tmp_path: Path) -> None:
    options = ["--splits", 2, "--capacities", "4", "--lr", "0.01", "--epochs", 3, "--workers", 1, "--executor", "here"]
    done = mtlens("study", data, "--targets", "a,b,c", "--out", tmp_path / "run", "--json", "-q", *options)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert set(found["capacity"]["curves"][0]) == documented("One point of a capacity curve")
    assert all(set(row) == documented("One method") for row in found["methods"])
    controls = [row["against"] for row in found["methods"] if row["against"].startswith("control")]
    assert len(controls) == 2


def test_show_and_why(run: tuple[Path, Result]) -> None:
    out, _ = run
    shown = mtlens("show", out)
    assert shown.exit_code == 0 and shown.stdout.startswith(StudyResult.open(out).table())
    why = mtlens("show", out, "--why", "a", "b")
    assert why.exit_code == 0 and "joining 'b' changes 'a' by" in why.stdout
    known = json.loads(mtlens("show", out, "--why", "a", "b", "--json").stdout)
    assert known == {**StudyResult.open(out).cell("a", "b"), "contrasts": []}
    score = StudyResult.open(out).cell("a", "a")["score"]
    assert f"'a' alone scores {score:.4f} (95 %: " in mtlens("show", out, "--why", "a", "a").stdout


def test_plan_and_dry_run_say_the_same(data: Path, tmp_path: Path) -> None:
    plan = mtlens("plan", data, "--targets", "a,b,c", "--json", *QUICK)
    dry = mtlens("study", data, "--targets", "a,b,c", "--dry-run", "--json", "--out", tmp_path / "run", *QUICK)
    first, second = json.loads(plan.stdout), json.loads(dry.stdout)
    assert set(first) == documented("mtlens plan --json")
    assert {**first, "estimate": 0} == {**second, "estimate": 0}
    assert not (tmp_path / "run").exists()
    assert "configurations alone" in mtlens("plan", data, "--targets", "a,b,c", *QUICK).stdout


def test_a_plan_takes_what_a_study_takes() -> None:
    """The same command with another verb: only what needs a folder, or is about output, is the study's own."""
    study, plan = (signature(command).parameters for command in (study_command, plan_command))
    own = {"context", "out", "executor", "ledger", "dry_run", "quiet", "fail_if_hurts"}
    assert set(study) - set(plan) == own and set(plan) <= set(study)


def test_hurting_fails_when_asked(run: tuple[Path, Result], monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    def judged(self: Any) -> list[Any]:
        return [1]

    options = ["--targets", "a,b,c", "--out", run[0], *QUICK]
    assert mtlens("study", data, *options, "--fail-if-hurts").exit_code == 0
    monkeypatch.setattr(StudyResult, "hurts", property(judged))
    assert mtlens("study", data, *options).exit_code == 0
    assert mtlens("study", data, *options, "--fail-if-hurts").exit_code == 1


def test_mistakes_name_the_remedy(data: Path, tmp_path: Path) -> None:
    asked = ["study", data, "--targets", "a,b", "--out", tmp_path / "run"]
    for options, message in (
        (["--budget", "soon"], "Write for example 10m or 500"),
        (["--capacities", "4,x"], "needs numbers, separated by commas"),
        (["--families", "tree"], "no family named 'tree'"),
    ):
        done = mtlens(*asked, *options)
        assert message in str(done.exception), done.output
    assert isinstance(mtlens(*asked, "--budget", "soon").exception, InputError)


def test_a_spec_sets_the_study(data: Path, tmp_path: Path) -> None:
    spec = tmp_path / "tasks.toml"
    spec.write_text(
        f'seed = 3\nmargin = 0.5\nbudget = 40\ncapacity = 4\nlr = 0.01\nepochs = 2\nout = "{tmp_path / "there"}"\n'
        + "".join(
            f'[[task]]\nname = "{n}"\npath = "{data}"\nlabel = "{n}"\nfeatures = ["x1", "x2", "x3"]\n' for n in "ab"
        )
    )
    done = mtlens("study", spec, "--json", "-q", "--splits", 2, "--executor", "here")
    assert done.exit_code == 0, done.exception
    found = json.loads(done.stdout)["settings"]
    assert (found["seed"], found["margin"], found["budget"], found["capacities"]) == (3, 0.5, 40, [4])
    assert (tmp_path / "there" / "verdicts.json").exists()
