"""The reference page equals what the commands say of themselves, and every help page ends in an example that works."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mtlens.cli import app
from mtlens.cli.reference import example_of, name_of, reference

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
COMMANDS = {name_of(command): command for command in app.registered_commands}
# Quick enough for every run; the examples of the others run in `make test`.
QUICK = {"tasks", "init"}
NEEDS = {  # what must have run before an example
    "predict": "mtlens fit example --family linear --out model",
    "report": "mtlens study example --splits 2 --families linear",
    "show": "mtlens study example --splits 2 --families linear",
}
ROWS = ",".join(f"x{i}" for i in range(100)) + "\n" + ",".join(["0.5"] * 100) + "\n"  # of the example, as rows.csv


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == reference(), "docs/cli.md is out of date: run `make docs`"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_the_command_does_and_ends_in_an_example(name: str) -> None:
    command = COMMANDS[name]
    example = example_of(command)
    assert command.help and example and example.startswith(f"mtlens {name}")
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).output
    assert shown.strip().endswith(f"Example: {example}")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.medium) for n in COMMANDS])
def test_the_example_works(name: str, tmp_path: Path) -> None:
    example = example_of(COMMANDS[name])
    assert example
    (tmp_path / "rows.csv").write_text(ROWS)
    for line in filter(None, (NEEDS.get(name), example)):
        command = [sys.executable, "-m", *shlex.split(line)]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, timeout=280, check=False, env=dict(os.environ)
        )
        assert done.returncode == 0, done.stderr
