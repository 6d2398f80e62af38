"""``make demo`` does what it promises: real studies in under a minute, ending with the page and its findings."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = re.findall(r"^\t@\$\(BIN\)/(mtlens study .*)$", (ROOT / "Makefile").read_text("utf-8"), flags=re.M)
LIMIT = 60 * 2.5  # seconds: a minute, on a machine that runs other tests beside this one


def test_the_demo_has_two_studies() -> None:
    assert [command.split()[2] for command in COMMANDS] == ["example", "example-real"]


@pytest.mark.medium
def test_the_demo_ends_with_its_pages_and_findings(tmp_path: Path) -> None:
    began = time.monotonic()
    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)], capture_output=True, text=True, cwd=tmp_path,
            timeout=LIMIT, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        folder = command.split("--out ")[1]
        assert (tmp_path / folder / "report.html").is_file()
        assert f"The page: {folder}/report.html" in done.stderr.splitlines()[-1]
        findings = done.stdout[done.stdout.rindex("\n1. ") :]
        assert all(f"\n{number}. " in findings for number in (1, 2, 3))
    assert time.monotonic() - began < LIMIT
