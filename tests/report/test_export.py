"""Tables and figures as files: every value is that of verdicts.json, and every format can be read."""

from __future__ import annotations

import csv
import io
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from mtlens.errors import FileError
from mtlens.report import draw
from mtlens.report.export import named_charts, write_report
from mtlens.report.forest import Forest, ForestRow
from mtlens.report.tables import latex, tables
from mtlens.study import StudyResult

Maker = Callable[..., StudyResult]


@pytest.mark.medium
def test_every_table_and_figure_is_written(real_result: StudyResult, tmp_path: Path) -> None:
    written = write_report(real_result, tmp_path / "out", figures=True)
    assert all(path.stat().st_size for path in written.paths) and len(set(written.paths)) == len(written.paths)
    endings = {path.suffix for path in written.paths}
    assert endings == {".html", ".csv", ".md", ".tex", ".svg", ".png"} and not written.said
    for path in written.paths:
        if path.suffix == ".svg":
            ET.parse(path)
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")


def test_only_the_page_without_figures(real_result: StudyResult, tmp_path: Path) -> None:
    assert [path.name for path in write_report(real_result, tmp_path).paths] == ["report.html"]


def test_no_matplotlib_leaves_the_pictures_out_and_says_so(
    real_result: StudyResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    written = write_report(real_result, tmp_path, figures=True)
    assert not [path for path in written.paths if path.suffix == ".png"]
    assert "'figures' extra" in written.said[0]


def test_csv_holds_the_numbers_in_full(real_result: StudyResult) -> None:
    text = next(table for table in tables(real_result.verdicts) if table.name == "pairs").to_csv()
    read = {(row["target"], row["source"]): row for row in csv.DictReader(io.StringIO(text))}
    measured = [row for row in real_result.transfer if row["difference"] is not None]
    assert len(read) == len(measured)
    for row in measured:
        found = read[row["target"], row["source"]]
        assert float(found["difference"]) == row["difference"] and int(found["n"]) == row["n"]
        assert found["verdict"] == row["verdict"]


def test_markdown_rows_have_the_columns_of_their_head(made_result: Maker) -> None:
    for table in tables(made_result(["a|b", "c\nd", "e"]).verdicts):
        lines = table.to_markdown().strip().split("\n")[2:]
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {len(table.columns) + 1}
        assert len(lines) == len(table.rows) + 2


def test_latex_escapes_what_it_must() -> None:
    assert latex("50% & a_b #1 {x} ~ ^ \\ $ −1") == (
        r"50\% \& a\_b \#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} \$ $-$1"
    )


def test_latex_rows_have_the_columns_of_their_head(made_result: Maker) -> None:
    for table in tables(made_result(["a&b", "c_d", "e"]).verdicts):
        rows = [line for line in table.to_latex().split("\n") if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(table.columns) - 1}


def test_figures_of_a_study_are_the_pages(real_result: StudyResult) -> None:
    names = [name for name, _ in named_charts(real_result.verdicts)]
    assert names == ["transfer", "together", "gives", "capacity", "methods", "predicted", "advice", "tried"]


def test_a_folder_that_cannot_be_made(real_result: StudyResult, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"cannot make the folder .*file.* Use another --out"):
        write_report(real_result, tmp_path / "file" / "x", figures=False)


def test_a_forest_says_its_rows_and_leaves_out_what_is_not_known() -> None:
    nan = float("nan")
    rows = [ForestRow("<a>", 0.1, 0.0, 0.2, "better", "helps", "a gains"), ForestRow("b", nan, nan, nan)]
    drawing = ET.fromstring(draw(Forest("t", rows, "difference", margin=0.01)))
    space = "{http://www.w3.org/2000/svg}"
    assert len(drawing.findall(f".//{space}circle")) == 1
    assert {"a gains", "b"} <= {title.text for title in drawing.iter(f"{space}title")}
    assert "nan" not in ET.tostring(drawing, "unicode")
