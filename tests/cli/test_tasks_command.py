"""``mtlens tasks`` and ``mtlens init`` as a user runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mtlens import __version__

ROOT = Path(__file__).resolve().parents[2]


def mtlens(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mtlens", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=60, check=False)


def documented(section: str) -> set[str]:
    """The field names that docs/json.md lists under a heading."""
    text = (ROOT / "docs" / "json.md").read_text("utf-8")
    body = text.split(f"### {section}\n")[1].split("\n### ")[0].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)`", body, flags=re.M))


def test_facts_hold_exactly_the_documented_fields(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,y,z,split\n" + "".join(f"{i // 2},{i % 2},{i / 7},train\n" for i in range(20)))
    facts: dict[str, Any] = json.loads(mtlens("tasks", "d.csv", "--targets", "y,z", "--json", cwd=tmp_path).stdout)
    assert set(facts) == documented("mtlens tasks --json")
    assert set(facts["tasks"][0]) == documented("One task of mtlens tasks")
    assert set(facts["tasks"][0]["duplicates"]) == documented("Duplicates of a task")
    assert set(facts["tasks"][0]["inputs"]) == documented("Inputs of a task")
    assert facts["shared_inputs"] is True and facts["tasks"][0]["split"] == {"train": 20, "valid": 0, "test": 0}


def test_the_page_says_what_is_odd() -> None:
    done = mtlens("tasks", "example")
    assert done.returncode == 0 and done.stderr == ""
    assert re.search(r"^target +regression +r2 +100 +100", done.stdout, flags=re.M)
    assert "not more rows than columns" in done.stdout
    assert mtlens("tasks").stdout == done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tasks", "nowhere.csv"), "error: there is no file nowhere.csv"),
        (("tasks", "."), "error: there is no file . and no example|error: . is a folder|no format"),
        (("tasks", "example", "--targets", "sorce"), "error: no task named 'sorce'"),
        (("tasks", "example", "--duplicates", "x"), "error: no choice named 'x'"),
        (("tasks", "exmple"), "error: there is no file exmple .* Did you mean 'example'"),
        (("init", "tasks.txt"), "error: a SPEC's name ends in .toml"),
        (("init", "missing/folder/s.toml"), "error: .* cannot be written: there is no folder missing/folder"),
    ],
)
def test_a_mistake_ends_in_one_sentence_and_status_two(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = mtlens(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert re.match(said, done.stderr) and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_init_writes_a_spec_once(tmp_path: Path) -> None:
    assert mtlens("init", "s.toml", cwd=tmp_path).returncode == 0
    (tmp_path / "s.toml").write_text("mine")
    again = mtlens("init", "s.toml", cwd=tmp_path)
    assert again.returncode == 2 and "already there" in again.stderr
    assert (tmp_path / "s.toml").read_text() == "mine"


def test_hostile_names_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text('x,"\x1b[2J<script>"\n1,0\n2,1\n3,0\n')
    done = mtlens("tasks", "d.csv", "--targets", "\x1b[2J<script>", cwd=tmp_path)
    assert done.returncode == 0 and "\x1b" not in done.stdout and "<script>" in done.stdout
    (tmp_path / "d.csv").write_text('x,"\x1b[2J\nz"\n1,0\n2,1\n3,0\n')
    done = mtlens("tasks", "d.csv", "--targets", "q", cwd=tmp_path)
    assert done.returncode == 2 and "\x1b" not in done.stderr and done.stderr.count("\n") == 1


def test_labels_near_the_largest_number_give_valid_json(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,y\n" + "".join(f"{i},{(i - 15) * 1e307}\n" for i in range(31)))
    done = mtlens("tasks", "d.csv", "--json", cwd=tmp_path)
    labels = json.loads(done.stdout, parse_constant=lambda word: pytest.fail(word))["tasks"][0]["labels"]
    assert (
        labels["high"] == 1.5e308 and abs(labels["mean"]) < 1e295 and labels["sd"] == pytest.approx(8.94e307, rel=1e-3)
    )


def test_the_version_is_printed_without_a_command() -> None:
    done = mtlens("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")


def test_the_next_command_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    done = mtlens("init", "my tasks.toml", cwd=tmp_path)
    assert done.stderr.strip().endswith("mtlens tasks 'my tasks.toml'")
