"""``mtlens fit`` and ``mtlens predict`` as a newcomer runs them: a CSV, four commands, predictions."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mtlens import load_model

ROOT = Path(__file__).resolve().parents[2]


def mtlens(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mtlens", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120, check=False)


def shop(folder: Path, rows: int = 150) -> Path:
    """A table of two labels with an id, gaps and a category."""
    rng = np.random.default_rng(0)
    path = folder / "shop.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "age", "size", "city", "price", "bought"])
        for i in range(rows):
            age, size = rng.normal(size=2)
            size_cell = "" if i % 11 == 0 else f"{size:.3f}"
            bought = "yes" if age + rng.normal() > 0 else "no"
            writer.writerow(
                [f"c{i:03d}", f"{age:.3f}", size_cell, ["Rome", "Oslo"][i % 2], f"{age + size:.3f}", bought]
            )
    return path


@pytest.mark.medium
def test_four_commands_from_a_table_to_predictions(tmp_path: Path) -> None:
    shop(tmp_path)
    (tmp_path / "new.csv").write_text("city,id,age,size\nRome,n1,0.5,1.0\nBern,n2,,0.1\n")
    commands = [
        ("tasks", "shop.csv", "--targets", "price,bought"),
        ("study", "shop.csv", "--targets", "price,bought", "--families", "linear", "--splits", "2", "--workers", "1"),
        ("fit", "shop-study"),
        ("predict", "shop-model", "new.csv"),
    ]
    for command in commands:
        done = mtlens(*command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "shop-study" / "advice.toml").is_file()
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["id"] for row in rows] == ["n1", "n2"]
    assert list(rows[0]) == ["id", "price", "price_low", "price_high", "bought", "bought_p_yes"]
    assert float(rows[0]["price_low"]) < 1.5 < float(rows[0]["price_high"])
    assert "note: column 'city': 'Bern'" in done.stderr and "2 rows predicted" in done.stderr
    model = load_model(tmp_path / "shop-model")
    frame = {"city": ["Rome"], "age": [0.5], "size": [1.0]}
    assert float(rows[0]["price"]) == model.predict(frame, "price")[0]


@pytest.mark.medium
def test_advice_without_a_study_and_json(tmp_path: Path) -> None:
    shop(tmp_path)
    arguments = ("shop.csv", "--targets", "price,bought", "--family", "linear", "--json", "--workers", "1")
    done = mtlens("fit", *arguments, "--advise", "--out", "m", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    text = (ROOT / "docs" / "json.md").read_text("utf-8")
    for section, record in (("mtlens fit --json", found), ("One task of mtlens fit", found["tasks"][0])):
        body = text.split(f"### {section}\n")[1].split("\n### ")[0].split("\n## ")[0]
        assert set(record) == set(re.findall(r"^\| `(\w+)`", body, flags=re.M))
    assert found["model"] == "m" and [task["name"] for task in found["tasks"]] == ["price", "bought"]
    assert found["tasks"][0]["held_out"] > 0.5


@pytest.mark.medium
def test_mistakes_end_in_one_sentence(tmp_path: Path) -> None:
    shop(tmp_path, rows=30)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("")
    cases = [
        (("fit", "nowhere.csv"), "there is no file nowhere.csv"),
        (("fit", "other"), "other is a folder, but not that of a study"),
        (("fit", "shop.csv", "--targets", "price", "--family", "tree"), "no family named 'tree'"),
        (("fit", "shop.csv", "--targets", "price", "--family", "linear", "--out", "other"), "holds other things"),
        (("fit", "shop.csv", "--targets", "price,bought", "--max-models", "1"), "Add --advise"),
        (("predict", "other", "shop.csv"), "it holds 'mine.txt', which is no part of a model"),
        (("predict", "nowhere", "shop.csv"), "no model at 'nowhere'"),
    ]
    for arguments, said in cases:
        done = mtlens(*arguments, "-q", cwd=tmp_path)
        assert done.returncode == 2 and done.stdout == "", (arguments, done.stderr)
        assert said in done.stderr and done.stderr.count("\n") == 1 and done.stderr.startswith("error: ")
