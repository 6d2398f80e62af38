"""``mtlens diagnose``: a table for people, the documented JSON for programs, one sentence for mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mtlens.cli import app
from mtlens.diagnosis.result import MEANING

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["diagnose", *arguments])


def documented(section: str) -> set[str]:
    text = (ROOT / "docs" / "json.md").read_text("utf-8")
    body = text.split(f"### {section}\n")[1].split("\n### ")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", body, flags=re.M)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_json_holds_exactly_the_documented_fields() -> None:
    result = run("example", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert set(found) == documented("mtlens diagnose --json")
    assert set(found["tasks"][0]) == documented("One task of a diagnosis")
    assert set(found["pairs"][0]) == documented("One pair of a diagnosis")
    assert len(found["pairs"]) == 6
    assert result.stdout == run("example", "--json").stdout


def test_people_get_tables_and_what_every_number_means() -> None:
    text = run("example").stdout
    assert "target" in text and "Predicted transfer" in text and "Capacity" in text
    for name in MEANING:
        assert f"{name}:" in text


def test_a_hostile_name_is_shown_as_it_is(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    names = ["[red]x[/red]", "[/]"]
    np.savez(
        tmp_path / "d.npz", X=random.standard_normal((30, 2)), Y=random.standard_normal((30, 2)), target_names=names
    )
    result = run(str(tmp_path / "d.npz"))
    assert result.exit_code == 0 and "[red]x[/red]" in result.stdout and "[/]" in result.stdout


@pytest.mark.parametrize("spec", ["no-such-thing", "no-such-file.csv"])
def test_a_mistake_is_one_library_error(spec: str) -> None:
    result = run(spec)
    assert result.exit_code != 0 and isinstance(result.exception, Exception)
    assert spec in str(result.exception)
