"""A study's page: it holds what verdicts.json holds, needs nothing else, and hostile names stay text."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mtlens.report import draw
from mtlens.report.page import page, write_page
from mtlens.report.page_charts import transfer_map
from mtlens.report.tables import advice_table
from mtlens.study import StudyResult

Maker = Callable[..., StudyResult]
HOSTILE = [
    "</title></script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    '" onfocus="document.title=\'owned\'" x="',
    "{{ 7 * 7 }} {% raw %}",
    "ends\x00here \ud800 日本 \u202e right to left",
    "a" * 300,
]
LIMIT = 2_000_000
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Parsed(HTMLParser):
    """Elements with their attributes, and text by element; checks that tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.stack: list[str] = []
        self.feed(text)
        self.close()
        assert not self.stack, self.stack

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.stack[-1] if self.stack else "", data))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def cells(self) -> dict[tuple[int, int], str]:
        found = [a for a in self.all("g") if a.get("class") == "cell"]
        return {(int(a["data-row"]), int(a["data-column"])): a["data-value"] for a in found}


def check_cells(parsed: Parsed, result: StudyResult) -> None:
    names, cells = result.names, parsed.cells
    assert len(cells) == len(names) ** 2
    for row in result.transfer:
        shown = cells[names.index(row["target"]), names.index(row["source"])]
        assert shown == ("" if row["difference"] is None else repr(row["difference"]))


def test_cells_of_the_heat_map_equal_the_verdicts(real_result: StudyResult) -> None:
    parsed = Parsed(page(real_result))
    check_cells(parsed, real_result)
    tips = " ".join(text for tag, text in parsed.texts if tag == "title")
    for row in real_result.transfer:
        if row["difference"] is not None:
            assert f"{row['target']} with {row['source']}: " in tips
            assert f"n = {row['n']}, {row['verdict']}" in tips


def test_every_part_is_there(real_result: StudyResult) -> None:
    text = page(real_result)
    parsed = Parsed(text)
    parts = {attributes["id"] for attributes in parsed.all("section")}
    assert parts >= {
        "transfer",
        "together",
        "parts",
        "capacity",
        "methods",
        "predicted",
        "words",
        "reproduce",
        "advice",
    }
    for link in parsed.all("a"):
        assert link["href"].startswith("#") and any(a.get("id") == link["href"][1:] for _, a in parsed.elements)
    plan = json.loads((real_result.folder / "plan.json").read_text())  # type: ignore[operator]
    assert all(fingerprint in text for fingerprint in plan["tasks"].values())
    controls = {row["against"].removeprefix("control: ") for row in real_result.verdicts["methods"]}
    assert all(control in text for control in controls) and len(controls) > 2


def test_the_answer_comes_first(real_result: StudyResult) -> None:
    parsed = Parsed(page(real_result))
    headings = [tag for tag, _ in parsed.elements if tag in ("h1", "h2", "svg", "table")]
    assert headings[0] == "h1" and headings.count("h1") == 1


def test_needs_nothing_else(real_result: StudyResult) -> None:
    text = page(real_result)
    parsed = Parsed(text)
    loading = {"src", "href", "srcset", "action", "data", "poster", "xlink:href"}
    outside = [a[name] for _, a in parsed.elements for name in loading & set(a) if not a[name].startswith("#")]
    assert not outside and "url(" not in text and "@import" not in text
    policy = next(a["content"] for a in parsed.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    script = next(text for tag, text in parsed.texts if tag == "script")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_same_result_same_bytes(real_result: StudyResult) -> None:
    assert page(real_result) == page(real_result)


def test_hostile_names_stay_text(made_result: Maker) -> None:
    parsed = Parsed(page(made_result(HOSTILE)))
    assert len(parsed.all("script")) == 1 and not parsed.all("img")
    assert not [name for _, a in parsed.elements for name in a if name.startswith("on")]
    shown = " ".join(text for _, text in parsed.texts)
    for name in HOSTILE[:4] + HOSTILE[5:]:
        assert name in shown
    assert "ends\ufffdhere \ufffd 日本" in shown


def test_hostile_settings_and_notes_stay_text(made_result: Maker, tmp_path: Path) -> None:
    result = made_result(["a", "b", "c"], said=[HOSTILE[0]], settings={"seed": 0, "vectors": HOSTILE[1]})
    (tmp_path / "made.json").write_text(json.dumps({"command": HOSTILE[0], "versions": {HOSTILE[1]: HOSTILE[1]}}))
    parsed = Parsed(page(StudyResult(result.verdicts, tmp_path)))
    assert len(parsed.all("script")) == 1 and not parsed.all("img")


@pytest.mark.parametrize("made", ["", "[]", "not json"])
def test_a_damaged_record_is_no_reason_to_fail(made: str, made_result: Maker, tmp_path: Path) -> None:
    (tmp_path / "made.json").write_text(made)
    assert "<h1" in page(StudyResult(made_result(["a", "b"]).verdicts, tmp_path))


def test_fifty_tasks_are_quick_and_small(made_result: Maker, tmp_path: Path) -> None:
    result = made_result([f"label {i} with a longer name" for i in range(50)])
    began = time.process_time()
    path = write_page(result, tmp_path)
    assert time.process_time() - began < 5
    assert path.stat().st_size < LIMIT
    check_cells(Parsed(path.read_text("utf-8")), result)


def test_a_very_large_map_tells_its_clearest_cells(made_result: Maker) -> None:
    result = made_result([f"label {i}" for i in range(70)])
    text = page(result)
    cells = Parsed(text).cells
    assert len(text.encode()) < LIMIT and 1000 < len(cells) < 70 * 70
    values = {(r["target"], r["source"]): r for r in result.transfer}
    told = {(result.names[t], result.names[s]) for t, s in cells}
    proved = {at for at, row in values.items() if row["verdict"] in ("helps", "hurts")}
    assert proved <= told or told <= proved


def test_tasks_of_different_units_share_no_axis(made_result: Maker) -> None:
    """One target in thousands: its cells would turn all others pale, and its row would flatten the chart."""
    verdicts = dict(made_result(["a", "b", "c"]).verdicts)
    scale = {"a": 1e5, "b": 1.0, "c": 1.0}
    numbers = ("difference", "low", "high")
    for what in ("transfer", "together"):
        verdicts[what] = [
            {**row, **{k: None if row[k] is None else row[k] * scale[row["target"]] for k in numbers}}
            for row in verdicts[what]
        ]
    verdicts["tasks"] = [{**task, "margin": 0.01 * scale[task["name"]]} for task in verdicts["tasks"]]
    scaled, plain = transfer_map(verdicts), transfer_map(made_result(["a", "b", "c"]).verdicts)
    tints = [re.findall(r'fill-opacity="([^"]+)"', draw(chart))[:9] for chart in (scaled, plain)]
    assert tints[0] == tints[1]
    assert "in margins" in page(StudyResult(verdicts)) and "in margins" not in page(made_result(["a", "b", "c"]))
    check_cells(Parsed(page(StudyResult(verdicts))), StudyResult(verdicts))


def test_an_interrupted_study_says_so(made_result: Maker) -> None:
    assert "was interrupted" in page(made_result(["a", "b"], complete=False))
    assert "was interrupted" not in page(made_result(["a", "b"]))


def test_a_study_that_measured_nothing_has_a_page(real_result: StudyResult) -> None:
    nothing = {"difference": None, "low": None, "high": None, "n": 0, "p": None, "p_adjusted": None, "score": None}
    verdicts = dict(real_result.verdicts)
    for what in ("transfer", "together", "leave_one_out", "methods"):
        verdicts[what] = [{**row, **nothing, "verdict": "undecided"} for row in verdicts[what]]
    verdicts |= {"capacity": {"curves": [], "summary": {}}, "advice": None, "groups": None}
    text = page(StudyResult(verdicts))
    assert "Nothing was measured yet." in text and not re.search(r"\bnan\b", text, re.IGNORECASE)


def test_advice_and_its_evidence_are_shown(made_result: Maker) -> None:
    plan = {"task": "a", "recipe": "joint", "sources": ["b"], "difference": 0.02, "low": 0.01, "high": 0.03, "n": 10}
    plan |= {"evidence": "the pooled gain is 3 standard errors", "would_change": "a lower end below 0"}
    advice = {"summary": "Train a with b.", "difference": 0.02, "low": 0.01, "high": 0.03, "per_task": [plan]}
    advice |= {"sharing": 0.004, "sharing_low": -0.001, "sharing_high": 0.009, "found": ["equal grids"]}
    advice["groups"] = [{"tasks": ["a", "b"], "stability": 0.9}, {"tasks": ["c"], "stability": 0.7}]
    control = {"name": "alone twice", "gain": 0.016, "error": 0.003, "applied": False, "control": True}
    advice["tried"] = [control, {**control, "name": "joint of all", "gain": 0.02, "applied": True, "control": False}]
    text = page(made_result(["a", "b"], advice=advice))
    for told in (
        "Train a with b.",
        plan["evidence"],
        plan["would_change"],
        "+0.020 (95 %: +0.010 to +0.030)",
        "+0.004 (95 %: −0.001 to +0.009) is due to sharing",
        "together in 90 % of resamples",
        "\u2018c\u2019 (alone in 70 % of resamples)",
        "alone twice: +0.016 ± 0.006 (95 %), control",
    ):
        assert str(told) in text


def test_many_sources_are_cut_for_a_person_and_whole_in_a_file(made_result: Maker) -> None:
    names = [f"task {i:02d}" for i in range(30)]
    plan = {
        "recipe": "joint",
        "weight": 0.25,
        "family": "linear",
        "difference": 0.02,
        "low": 0.01,
        "high": 0.03,
        "n": 10,
    }
    alone = {"task": names[0], "recipe": "alone", "weight": 0.0, "sources": [], "family": "trunk"}
    rows = [alone, *({**plan, "task": n, "sources": [m for m in names if m != n]} for n in names[1:])]
    result = made_result(names, advice={"summary": "Join 29 tasks.", "per_task": rows, "groups": [{"tasks": names}]})
    table = advice_table(result.verdicts)
    first, second = list(csv.DictReader(io.StringIO(table.to_csv())))[:2]
    assert first["weight"] == "" and first["alone by"] == "trunk" and first["with"] == ""
    assert second["weight"] == "0.25" and second["with"].split("; ") == [n for n in names if n != names[1]]
    text = page(result)
    assert "task 00, task 02, task 03, task 04, task 05, task 06 and 23 more" in text
    assert "\u2018task 07\u2019 and 22 more." in text and "\u2018task 29\u2019" not in text.split("grouped")[1][:600]


# ------------------------------------------------------------------ in a browser

DRIVER = """<script>
const cells=[...document.querySelectorAll('.cell')];const told=()=>document.getElementById('told').textContent;
const key=k=>document.activeElement.dispatchEvent(new KeyboardEvent('keydown',{key:k,bubbles:true}));
cells[0].focus();key('ArrowRight');const right=told(), at=document.activeElement.dataset;
const out={right,row:at.row,column:at.column,stops:document.querySelectorAll('.cell[tabindex="0"]').length,
wide:document.documentElement.scrollWidth>document.documentElement.clientWidth};
const p=document.createElement('pre');p.id='out';p.textContent=JSON.stringify(out);document.body.append(p);
</script></body>"""


def browse(path: Path, tmp_path: Path, *options: str) -> tuple[str, list[str]]:
    """The DOM after scripts ran, and what the console complained about."""
    chromium = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )
    if chromium is None:
        pytest.skip("no Chromium is installed here (chromium, chromium-browser or google-chrome on the PATH)")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    flags += [f"--user-data-dir={tmp_path / 'browser'}", "--enable-logging=stderr", "--v=0", "--dump-dom", *options]
    done = subprocess.run([chromium, *flags, path.as_uri()], capture_output=True, timeout=100, check=True,
                          env={**os.environ, "HOME": str(tmp_path)})  # fmt: skip
    errors = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if "CONSOLE" in line]
    return done.stdout.decode("utf-8"), errors


@pytest.mark.medium
def test_in_a_browser(made_result: Maker, tmp_path: Path) -> None:
    path = write_page(made_result(HOSTILE), tmp_path)
    dom, errors = browse(path, tmp_path)
    assert not errors, errors
    assert "<title>Which tasks help or hurt each other</title>" in dom
    assert dom.count("<script") == 1 and dom.count('class="cell"') == len(HOSTILE) ** 2


@pytest.mark.medium
def test_keys_move_over_the_map_and_a_phone_does_not_scroll_sideways(made_result: Maker, tmp_path: Path) -> None:
    result = made_result([f"task {i}" for i in range(20)])
    text = re.sub(r"<meta http-equiv[^>]*>", "", page(result)).replace("</body>", DRIVER)
    path = tmp_path / "driven.html"
    path.write_text(text, "utf-8")
    dom, errors = browse(path, tmp_path, "--window-size=500,900")
    found = json.loads(re.search(r'<pre id="out">(.*?)</pre>', dom)[1].replace("&amp;", "&"))  # type: ignore[index]
    assert not errors, errors
    assert found["right"].startswith("task 0 with task 1: ") and (found["row"], found["column"]) == ("0", "1")
    assert found["stops"] == 1 and not found["wide"]


@pytest.mark.medium
def test_the_content_policy_stops_a_foreign_script(made_result: Maker, tmp_path: Path) -> None:
    path = tmp_path / "foreign.html"
    path.write_text(page(made_result(["a", "b"])).replace("</body>", "<script>document.title='owned'</script></body>"))
    dom, errors = browse(path, tmp_path)
    assert "<title>owned" not in dom and errors
