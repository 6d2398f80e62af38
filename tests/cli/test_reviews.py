"""A user's path: three files of reviews, one SPEC, one command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from mtlens.cli import app

WORDS = {True: ["great", "lovely", "brilliant", "moving"], False: ["dull", "awful", "boring", "weak"]}
FILL = ["the", "a", "it", "was", "story", "very", "quite", "this", "and", "of"]
NAMES = ("films", "books", "games")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """Three TSV files, an empty and a very long review among them, and word vectors beside them."""
    rng = np.random.default_rng(0)
    for name, rows in zip(NAMES, (120, 100, 80), strict=True):
        lines = ["text\tliked"]
        for i in range(rows):
            liked = bool(rng.integers(2))
            words = [*rng.choice(FILL, rng.integers(2, 9)), *rng.choice(WORDS[liked], 2), f"{name}{i}"]
            text = "" if i == 3 else " ".join(words * 2000 if i == 4 else words)
            lines.append(f"{text}\t{'yes' if liked else 'no'}")
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    known = [*WORDS[True], *WORDS[False], *FILL]
    vectors = [f"{word} {' '.join(f'{v:.4f}' for v in rng.normal(size=5))}" for word in known]
    (tmp_path / "words.txt").write_text("\n".join(vectors) + "\n", "utf-8")
    tasks = "".join(f'[[task]]\nname = "{n}"\npath = "{n}.tsv"\nlabel = "liked"\ntext = "text"\n' for n in NAMES)
    settings = 'trunk = "{trunk}"\ncapacities = [4]\nepochs = 2\nlr = 0.01\nmethods = ["plain"]\n{more}'
    path = tmp_path / "reviews.toml"
    path.write_text(settings.replace("{trunk}", "mlp").replace("{more}", "") + tasks, "utf-8")
    (tmp_path / "words.toml").write_text(
        settings.replace("{trunk}", "average").replace("{more}", 'vectors = "words.txt"\n') + tasks, "utf-8"
    )
    return path


@pytest.mark.medium
@pytest.mark.parametrize("name", ["reviews.toml", "words.toml"])
def test_three_files_of_reviews_become_verdicts(spec: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")  # files of a SPEC are found from its own folder
    out = spec.parent / "run"
    options = ["--out", str(out), "--splits", "3", "--quiet"]
    result = CliRunner().invoke(app, ["study", str(spec.with_name(name)), *options])
    assert result.exit_code == 0, (result.output, result.exception)
    verdicts = json.loads((out / "verdicts.json").read_text("utf-8"))
    assert [task["name"] for task in verdicts["tasks"]] == list(NAMES)
    alone = [cell for cell in verdicts["transfer"] if cell["target"] == cell["source"]]
    assert len(alone) == 3 and all(cell["score"] > 0.5 for cell in alone)


@pytest.mark.medium
def test_word_vectors_that_are_not_there_are_refused(spec: Path) -> None:
    (spec.parent / "words.txt").unlink()
    result = CliRunner().invoke(app, ["study", str(spec.with_name("words.toml")), "--out", str(spec.parent / "run")])
    assert result.exit_code != 0
    assert "no file" in str(result.exception) and "words.txt" in str(result.exception)
