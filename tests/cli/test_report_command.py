"""``mtlens study`` ends with the answer and its page; ``mtlens report`` writes page, tables and figures again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from mtlens.cli import app


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the command on a table with three labels."""
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 4))
    Y = X @ rng.standard_normal((4, 3)) + rng.standard_normal((90, 3))
    head = "x0,x1,x2,x3,a,b,c"
    np.savetxt(folder / "t.csv", np.hstack([X, Y]), delimiter=",", header=head, comments="")
    command = ["study", str(folder / "t.csv"), "--targets", "a,b,c", "--families", "linear", "--splits", "3"]
    done = CliRunner().invoke(app, [*command, "--executor", "here", "--out", str(folder / "run")])
    assert done.exit_code == 0, done.output
    assert "Pairs: of 6 measured" in done.stdout and str(folder / "run" / "report.html") in done.stderr
    return folder / "run"


def test_the_page_says_how_to_run_it_again(run: Path) -> None:
    command = json.loads((run / "made.json").read_text())["command"]
    assert command.startswith("mtlens study ") and "--targets a,b,c" in command and "--splits 3" in command
    assert "--seed" not in command  # only what was said
    assert "--splits 3" in (run / "report.html").read_text("utf-8")


def test_report_writes_the_same_page_again(run: Path) -> None:
    before = (run / "report.html").read_bytes()
    done = CliRunner().invoke(app, ["report", str(run)])
    assert done.exit_code == 0 and done.stdout == f"{run / 'report.html'}\n"
    assert (run / "report.html").read_bytes() == before


@pytest.mark.medium
def test_report_writes_figures_elsewhere(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(run), "--out", str(tmp_path / "out"), "--figures"])
    paths = [Path(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 0 and all(path.is_file() for path in paths)
    assert tmp_path / "out" / "tables" / "pairs.tex" in paths and tmp_path / "out" / "figures" / "transfer.svg" in paths


def test_show_ends_with_the_answer(run: Path) -> None:
    done = CliRunner().invoke(app, ["show", str(run)])
    assert done.exit_code == 0 and "Pairs: of 6 measured" in done.stdout
