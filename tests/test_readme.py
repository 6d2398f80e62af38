"""The README's code runs and prints what the README shows."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.M | re.S)


def test_python_blocks_give_what_they_show() -> None:
    assert blocks("python")
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    for number, block in enumerate(blocks("python")):
        test = doctest.DocTestParser().get_doctest(block, {}, f"README block {number}", "README.md", 0)
        assert test.examples, "a python block of the README is written with >>>"
        assert doctest.DocTestRunner(optionflags=flags).run(test).failed == 0


@pytest.mark.parametrize("block", blocks("console"))
def test_console_blocks_print_what_they_show(block: str, tmp_path: Path) -> None:
    command, shown = block.split("\n", 1)
    assert command.startswith("$ mtlens ")
    arguments = [sys.executable, "-m", *shlex.split(command.removeprefix("$ "))]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    # A block may leave out lines with a line of three dots.
    pattern = re.escape(shown.strip()).replace(r"\.\.\.\n", r"(?:.*\n)*?")
    assert re.fullmatch(pattern, done.stdout.strip()), done.stdout


def test_commands_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"^make ([a-z-]+)", "\n".join(blocks("sh")), flags=re.M):
        assert re.search(rf"^{target}:", makefile, flags=re.M), target


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("http") or (ROOT / link).exists(), link
