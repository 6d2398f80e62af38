"""The code of the README, and of the page on tasks, runs and prints what is shown."""

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


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.M | re.S)


@pytest.mark.parametrize("page", ["README.md", "docs/tasks.md"])
def test_python_blocks_give_what_they_show(page: str) -> None:
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    names: dict[str, object] = {}  # a page's blocks follow each other
    found = blocks("python", (ROOT / page).read_text("utf-8"))
    assert found
    for number, block in enumerate(found):
        test = doctest.DocTestParser().get_doctest(block, names, f"{page} block {number}", page, 0)
        names = test.globs
        assert test.examples, "a python block of these pages is written with >>>"
        assert doctest.DocTestRunner(optionflags=flags).run(test, clear_globs=False).failed == 0


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
