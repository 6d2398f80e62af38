"""Charts: well-formed, escaped, told in words, and the same bytes for the same data."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlens.errors import InputError
from mtlens.report import CHART_CSS, Bars, HeatMap, LineChart, Scatter, Series, draw, figure, standalone
from mtlens.report.charts import Chart
from mtlens.report.scales import Scale, ticks
from mtlens.report.svg import text_of

HOSTILE = "<script>alert(1)</script>&\"'\x00\ud800 日本"
ET_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 does not allow
NS = "{http://www.w3.org/2000/svg}"


def charts(name: str = "same covariance") -> list[Chart]:
    nan = float("nan")
    line = Series(name, [1.0, 10.0, 100.0], [0.1, nan, 0.3], [0.0, nan, 0.2], [0.2, nan, 0.4])
    other = Series(name + "2", [1.0, 10.0], [0.1, -0.1], muted=True)
    return [
        LineChart(name, [line, other], name, name, x_log=True, reference=0.0),
        LineChart(name, [line], name, name, error_bars=True, x_ticks=[1.0, 100.0]),
        Scatter(name, [line, other], name, name, diagonal=True),
        Bars(
            name,
            [name, "b"],
            ["x", name],
            [[0.1, -0.2], [nan, 0.3]],
            name,
            [[0.0, -0.3], [nan, 0.2]],
            [[0.2, 0.0], [nan, 0.4]],
        ),
        HeatMap(name, [[nan, 0.2], [-0.1, 0.0]], ["a", name], [name, "b"], marks=[["", "+"], ["−", "·"]]),
    ]


@pytest.mark.parametrize("chart", charts(), ids=lambda c: type(c).__name__)
def test_well_formed_named_and_repeatable(chart: Chart) -> None:
    svg = draw(chart)
    root = ET.fromstring(svg)
    assert root.get("aria-label") and root.find(f"{NS}title") is not None and root.find(f"{NS}desc") is not None
    assert svg == draw(chart)
    assert "nan" not in svg.replace("covariance", "")
    ET.fromstring(standalone(svg))


@pytest.mark.parametrize("chart", charts(HOSTILE), ids=lambda c: type(c).__name__)
def test_hostile_names_stay_text(chart: Chart) -> None:
    root = ET.fromstring(draw(chart))
    assert not list(root.iter(f"{NS}script")) and not list(root.iter("script"))
    assert any("<script>alert(1)</script>" in "".join(node.itertext()) for node in root.iter(f"{NS}title"))


@given(st.text(max_size=30))
@settings(max_examples=200, deadline=None)
def test_any_text_is_safe_in_xml(words: str) -> None:
    node = ET.fromstring(f'<a b="{text_of(words)}">{text_of(words)}</a>')
    legal = "".join("\ufffd" if ET_ILLEGAL.match(letter) else letter for letter in words)
    legal = legal.replace("\r\n", "\n").replace("\r", "\n")  # XML's line ends
    assert (node.text or "") == legal


def test_heat_map_cells_carry_their_values() -> None:
    values = np.random.default_rng(0).normal(size=(4, 3))
    chart = HeatMap(
        "t", values.tolist(), list("abcd"), list("xyz"), tips=[[f"{r}{c}" for c in range(3)] for r in range(4)]
    )
    cells = [g for g in ET.fromstring(draw(chart)).iter(f"{NS}g") if g.get("class") == "cell"]
    found = {(int(g.get("data-row") or 0), int(g.get("data-column") or 0)): g for g in cells}
    assert len(found) == 12
    for (r, c), cell in found.items():
        assert float(cell.get("data-value") or "nan") == pytest.approx(values[r, c], rel=1e-5)
        assert cell.get("aria-label") == f"{r}{c}"
        tint = next(rect.get("class") for rect in cell.iter(f"{NS}rect"))
        assert tint == ("better" if values[r, c] > 0 else "worse")
    assert [g.get("tabindex") for g in cells].count("0") == 1  # one tab stop, arrow keys for the rest


def test_fifty_tasks_fit() -> None:
    names = [f"a rather long task name {i}" for i in range(50)]
    svg = draw(HeatMap("t", np.zeros((50, 50)).tolist(), names, names))
    width = float(ET.fromstring(svg).get("width") or 0)
    assert 600 < width < 1400 and len(svg) < 1_500_000


def test_a_gap_breaks_the_line() -> None:
    svg = draw(LineChart("t", [Series("s", [1, 2, 3, 4, 5], [1, 2, float("nan"), 4, 5])], "x", "y"))
    lines = list(ET.fromstring(svg).iter(f"{NS}polyline"))
    assert [len((p.get("points") or "").split()) for p in lines] == [2, 2]


def test_points_lie_where_the_scale_says() -> None:
    scale = Scale(1.0, 100.0, 0.0, 200.0, log=True)
    assert [scale(v) for v in (1.0, 10.0, 100.0)] == pytest.approx([0.0, 100.0, 200.0])
    assert Scale(0.0, 1.0, 100.0, 0.0)(0.25) == 75.0


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
@settings(max_examples=200, deadline=None)
def test_ticks_are_inside_few_and_even(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert 1 <= len(found) <= 12
    assert all(low - 1e-9 * max(abs(low), span) <= t <= low + span + 1e-9 * max(abs(low), span) for t in found)


def test_figures_place_panels_side_by_side() -> None:
    root = ET.fromstring(figure(charts()[:3], title="all", columns=2))
    inner = [g for g in root if g.tag == f"{NS}g"]
    assert [g.get("transform") for g in inner][:2] == ["translate(0 0)", "translate(560 0)"]
    assert len(inner) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Series("s", [1, 2], [1]), "series 's' has 2 x, but 1 y"),
        (lambda: Series("s", [1], [1], low=[0]), "one end of its intervals"),
        (lambda: HeatMap("h", [[1.0]], ["a"], ["b", "c"]), "values needs 1 rows of 2 cells"),
        (lambda: Bars("b", ["g"], ["n", "m"], [[1.0]], "y"), "values needs 1 rows of 2 numbers"),
        (lambda: draw(LineChart("t", [Series("s", [0.0, 1.0], [1, 2])], "x", "y", x_log=True)), "above zero"),
    ],
)
def test_shapes_are_checked(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]


def test_no_colour_outside_the_style_sheet() -> None:
    assert not any("#" in draw(chart) for chart in charts())
    assert "prefers-color-scheme:dark" in CHART_CSS


@pytest.mark.medium
@pytest.mark.parametrize("chart", charts("a $name$"), ids=lambda c: type(c).__name__)
def test_png(chart: Chart) -> None:
    pytest.importorskip("matplotlib", reason="the figures extra is not installed")
    from mtlens.report.png import png

    data = png(chart, dpi=60)
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data == png(chart, dpi=60)


@pytest.mark.medium
def test_a_browser_shows_it(tmp_path: Path) -> None:
    browser = next((b for b in ("chromium", "google-chrome", "chromium-browser") if shutil.which(b)), None)
    if browser is None:
        pytest.skip("no Chromium to look with")
    page = tmp_path / "page.html"
    page.write_text(
        f"<meta charset=utf-8><style>{CHART_CSS}</style>" + "".join(draw(c) for c in charts(HOSTILE)), "utf-8"
    )
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
    ]
    shown = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=60, check=True).stdout
    assert shown.count("<svg") == 5 and "<script>" not in shown
