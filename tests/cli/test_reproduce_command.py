"""``mtlens reproduce``: names, JSON on stdout and everything else on stderr, mistakes in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = ["theorem-relu", "--seeds", "2", "--set", "source_rows=[50, 100]"]


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mtlens", "reproduce", *words], capture_output=True, text=True, cwd=cwd
    )


@pytest.mark.medium
def test_list_prints_one_full_name_a_line() -> None:
    names = run("--list").stdout.splitlines()
    assert {"fig2-linear", "cosine-relu-logistic", "theorem-relu"} <= set(names)
    assert all(name and " " not in name for name in names)


@pytest.mark.medium
def test_json_is_documented_and_the_files_are_written(tmp_path: Path) -> None:
    done = run(*SMALL, "--json", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["name"] == "theorem-relu" and found["setting"] == "corrected" and found["constants"]["seeds"] == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["theorem-relu.corrected.json", "theorem-relu.corrected.svg"]
    assert (tmp_path / "theorem-relu.corrected.json").read_text() == done.stdout
    assert "wrote" in done.stderr


@pytest.mark.medium
def test_a_table_for_people() -> None:
    done = run(*SMALL, "--setting", "printed")
    assert done.returncode == 0, done.stderr
    assert "theorem-relu (printed)" in done.stdout and "n = 2" in done.stdout


@pytest.mark.medium
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "reproduce needs a name"),
        (["fig2"], "no reproduction named 'fig2'"),
        (["all", "--set", "kappa=1"], "Give one name with --set"),
        (["theorem-relu", "--setting", "wrong"], "no setting named 'wrong'"),
        (["theorem-relu", "--set", "kapa=3"], "Did you mean 'kappa'?"),
        (["theorem-relu", "--set", "source_rows=[50, 50]"], "source_rows holds 50 twice"),
        (["theorem-relu", "--resume"], "Give it with 'all'"),
    ],
)
def test_mistakes_end_in_one_sentence(words: list[str], message: str) -> None:
    done = run(*words)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and message in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


@pytest.mark.parametrize("name", ["theorem-relu", "all"])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from mtlens.cli.reproduce import reproduce
    from mtlens.paper import book, registry

    (tmp_path / "file").write_text("")
    for module in (book, registry):
        monkeypatch.setattr(module, "reproduce", lambda *args, **more: pytest.fail("it ran"))
    with pytest.raises(OSError, match=r"could not write .*file.* Choose a folder"):
        reproduce(name, out=tmp_path / "file")


@pytest.mark.medium
def test_all_prints_the_book_and_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mtlens.cli.reproduce import reproduce
    from mtlens.paper import book

    monkeypatch.setattr(book, "book_names", lambda: ["theorem-relu"])
    reproduce("all", quick=True, out=tmp_path, seeds=2)
    out = capsys.readouterr().out
    assert "theorem-relu (corrected)" in out and "theorem-relu (printed)" in out and "In all:" in out
    assert (tmp_path / "paper-claims.html").stat().st_size > 10_000
    assert "theorem-relu, printed" in (tmp_path / "paper-claims.md").read_text("utf-8")
