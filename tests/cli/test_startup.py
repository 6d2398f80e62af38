"""What starting costs: nothing heavy is imported for ``import mtlens`` and ``mtlens --help``."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

HEAVY = ("torch", "sklearn", "scipy.stats", "ray", "pandas", "pyarrow", "transformers")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize(
    "act",
    [
        "import mtlens; dir(mtlens)",
        "import sys; sys.argv = ['mtlens', '--help']; from mtlens.cli import app; app(standalone_mode=False)",
        "import sys; sys.argv = ['mtlens', 'tasks', '--help']; from mtlens.cli import app; app(standalone_mode=False)",
    ],
)
def test_nothing_heavy_is_loaded(act: str) -> None:
    code = f"{act}\nimport sys; print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules])"
    assert run(code).strip().endswith("HEAVY []")


def test_importing_the_tasks_room_does_not_load_torch_or_sklearn() -> None:
    assert (
        run("import sys, mtlens; mtlens.Task; print([m for m in ('torch', 'sklearn', 'ray') if m in sys.modules])")
        == "[]\n"
    )


@pytest.mark.medium
def test_help_costs_at_most_a_fifth_of_a_second_above_typer_and_rich() -> None:
    bare = [sys.executable, "-c", "import typer, rich.console, rich.panel, rich.table"]
    ours = [sys.executable, "-m", "mtlens", "--help"]
    extra = []
    for _ in range(7):  # interleaved, so that a busy machine slows both; the least difference is the cost
        times = []
        for command in (bare, ours):
            start = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True)
            times.append(time.perf_counter() - start)
        extra.append(times[1] - times[0])
    assert sorted(extra)[2] < 0.2, extra
