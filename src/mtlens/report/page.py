"""A study's page: one HTML file that needs nothing else, for someone with two minutes."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mtlens.report import page_charts as charts
from mtlens.report import tables as t
from mtlens.report.answer import (
    Verdicts,
    capacity_told,
    findings,
    headline,
    interval,
    measured,
    measured_pairs,
    methods_told,
    some,
)
from mtlens.report.charts import draw
from mtlens.report.made import made_of
from mtlens.report.predicted import predicted_told
from mtlens.report.svg import CHART_CSS, CHART_SCRIPT, printable
from mtlens.report.tables import DataTable
from mtlens.study.result import StudyResult, write_whole

PAGE_FILE = "report.html"
FEW_OF_A_GROUP = 8  # names of one group in a sentence; advice.toml and verdicts.json have all
MOST_GROUPS = 12
MOST_ROWS = 300  # of a table on the page; its CSV file has all

# What hover shows a mouse, this line shows a finger and a keyboard; printing opens what is folded.
_SCRIPT = (
    CHART_SCRIPT + "function tell(e){var c=e.target.closest&&e.target.closest('.mtl .cell'),"
    "p=document.getElementById('told');if(c&&p)p.textContent=c.querySelector('title').textContent}"
    "['mouseover','focusin','click'].forEach(function(n){document.addEventListener(n,tell)});"
    "addEventListener('beforeprint',function(){document.querySelectorAll('details').forEach("
    "function(d){d.open=true})});"
)


@dataclass(frozen=True)
class Section:
    """A part of the page: a heading, sentences, drawings side by side, and tables that unfold."""

    key: str
    title: str
    told: list[str] = field(default_factory=list)
    drawings: list[Any] = field(default_factory=list)
    more: list[Any] = field(default_factory=list)
    tables: list[DataTable] = field(default_factory=list)
    open: bool = False


def page(result: StudyResult) -> str:
    """The page of a study as HTML text: a pure function of the result and its folder's ``made.json`` and plan."""
    verdicts = result.verdicts
    environment = Environment(
        loader=PackageLoader("mtlens.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["drawn"] = lambda chart: Markup(draw(chart))  # charts escape every name themselves
    text = environment.get_template("study.html").render(
        answer=headline(verdicts),
        findings=findings(verdicts),
        facts=_facts(verdicts),
        complete=verdicts["complete"],
        map=charts.transfer_map(verdicts),
        pairs=t.pairs_table(verdicts),
        sections=[section for make in _SECTIONS if (section := make(verdicts)) is not None],
        said=verdicts["said"],
        cost=_cost(verdicts),
        grid=_grid(made_of(result.folder)["grid"]),
        made=made_of(result.folder),
        settings=_settings(verdicts["settings"]),
        most_rows=MOST_ROWS,
        css=Markup(CHART_CSS),
        script=Markup(_SCRIPT),
        script_hash=_hash(_SCRIPT),
    )
    return printable(text)


def write_page(result: StudyResult, folder: str | Path | None = None) -> Path:
    """Write ``report.html`` into a folder: the run's own when none is given."""
    target = Path(folder) if folder is not None else result.folder
    if target is None:
        raise ValueError("this result has no folder. Name one: write_page(result, folder).")
    path = target / PAGE_FILE
    write_whole(path, page(result))
    return path


# ------------------------------------------------------------------ sections


def _advice(verdicts: Verdicts) -> Section | None:
    advice = verdicts.get("advice")
    if not advice:
        return None
    told = [str(advice["summary"])] if advice.get("summary") else []
    if advice.get("sharing") is not None:
        shared = {"difference": advice["sharing"], "low": advice.get("sharing_low"), "high": advice.get("sharing_high")}
        told.append(
            f"Of its gain {interval(shared)} is due to sharing: what its best control gains without a shared model is "
            "taken off."
        )
        told.append("Each fold scored what the others advised, so the gain pays for the choice among what was tried.")
    told += _groups_told(advice.get("groups") or ())
    told += [_sentence(str(line)) for line in advice.get("found") or ()]
    drawings = _present(charts.advice_chart(verdicts), charts.tried_chart(verdicts))
    tables = _with_rows(t.advice_table(verdicts), t.tried_table(verdicts))
    return Section("advice", "Advice and its evidence", told, drawings, tables=tables, open=True)


def _groups_told(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """The best grouping in one sentence; whether it is advised is said task by task."""
    parts = []
    for group in groups:
        names, stability = some(group["tasks"], FEW_OF_A_GROUP), group.get("stability")
        how = "together" if len(group["tasks"]) > 1 else "alone"
        parts.append(names + ("" if stability is None else f" ({how} in {100 * stability:.0f} % of resamples)"))
    more = f"; and {len(parts) - MOST_GROUPS} more groups" if len(parts) > MOST_GROUPS else ""
    return [f"If tasks had to be grouped: {'; '.join(parts[:MOST_GROUPS])}{more}."] if parts else []


def _sentence(line: str) -> str:
    return f"{line[:1].upper()}{line[1:]}{'' if line.endswith('.') else '.'}"


def _together(verdicts: Verdicts) -> Section | None:
    drawings = _present(charts.together_chart(verdicts))
    if not drawings:
        return None
    told = ["Each task trained with all the others, minus the same task alone: same family, same grid, same splits."]
    return Section("together", "All together", told, drawings, tables=_with_rows(t.together_table(verdicts)))


def _parts(verdicts: Verdicts) -> Section:
    told = [
        "Alone: the tuned score of a task on its own test rows. A task's part says only what is proved.",
    ]
    tables = _with_rows(t.tasks_table(verdicts), t.left_out_table(verdicts))
    return Section("parts", "Each task's part", told, _present(charts.left_out_chart(verdicts)), tables=tables)


def _capacity(verdicts: Verdicts) -> Section | None:
    drawings = _present(charts.capacity_chart(verdicts))
    if not drawings:
        return None
    told = [sentence for sentence in (capacity_told(verdicts),) if sentence]
    told.append("Bands are 95 % intervals over splits; learning rate and epoch were chosen on validation rows.")
    return Section("capacity", "How big the shared part should be", told, drawings,
                   charts.single_capacity_charts(verdicts), _with_rows(t.capacity_table(verdicts)))  # fmt: skip


def _methods(verdicts: Verdicts) -> Section | None:
    drawings = _present(charts.method_chart(verdicts))
    if not drawings:
        return None
    told = [methods_told(verdicts), "Every method beside its controls: what the same effort does without the method."]
    return Section("methods", "Methods and their controls", [s for s in told if s], drawings,
                   tables=_with_rows(t.methods_table(verdicts)))  # fmt: skip


def _predicted(verdicts: Verdicts) -> Section | None:
    drawings = _present(charts.predicted_chart(verdicts))
    if not drawings:
        return None
    return Section("predicted", "Predicted and measured", predicted_told(verdicts), drawings,
                   tables=_with_rows(t.predicted_table(verdicts)))  # fmt: skip


def _causes(verdicts: Verdicts) -> Section | None:
    if not verdicts["causes"]:
        return None
    told = [
        "Each pair that hurts was trained again with one thing changed; a cause is named only where the change takes "
        "away a proved part of the harm."
    ]
    return Section("causes", "Why it hurts", told, tables=_with_rows(t.causes_table(verdicts)), open=True)


def _texts(verdicts: Verdicts) -> Section | None:
    cells = verdicts.get("texts")
    if not cells:
        return None
    told = ["Examples from the first split, the largest changes first; the verdicts rest on all splits, not on these."]
    told += [
        f"{cell['source']} {cell['verdict']} {cell['target']}: of {cell['rows']} test texts joint training fixed "
        f"{cell['fixed_rows']} and broke {cell['broken_rows']}."
        for cell in cells
    ]
    return Section("texts", "What changed, in texts", told, tables=_with_rows(t.texts_table(verdicts)), open=True)


def _official(verdicts: Verdicts) -> Section | None:
    drawings = _present(charts.official_chart(verdicts))
    if not drawings:
        return None
    told = [f"Touched once, at the end. Estimand: {verdicts['official_test']['estimand']}."]
    return Section("official", "Official test set", told, drawings, tables=_with_rows(t.official_table(verdicts)))


_SECTIONS: tuple[Callable[[Verdicts], Section | None], ...] = (
    _advice, _together, _parts, _capacity, _methods, _predicted, _causes, _texts, _official,
)  # fmt: skip


def _present(*given: Any) -> list[Any]:
    return [chart for chart in given if chart is not None]


def _with_rows(*given: DataTable) -> list[DataTable]:
    return [table for table in given if table.rows]


# ------------------------------------------------------------------ facts


def _facts(verdicts: Verdicts) -> list[tuple[str, str]]:
    """What stands under the answer."""
    pairs, cost = measured_pairs(verdicts), verdicts["cost"]
    n = sorted({row["n"] for row in (*pairs, *measured(verdicts["together"]))})
    total = len(verdicts["tasks"]) * (len(verdicts["tasks"]) - 1)
    return [
        ("tasks", str(len(verdicts["tasks"]))),
        ("pairs measured", f"{len(pairs)} of {total}"),
        ("splits (n)", "none" if not n else str(n[0]) if len(n) == 1 else f"{n[0]} to {n[-1]}"),
        ("networks trained", f"{cost['trainings']:,}"),
        ("time", _time(cost["seconds"])),
    ]


def _cost(verdicts: Verdicts) -> list[tuple[str, str]]:
    cost = verdicts["cost"]
    words = {"trainings": "networks trained", "linear_fits": "linear fits", "reused": "reused from the ledger",
             "failed": "failed", "seconds": "time", "training_seconds": "training, all workers together"}  # fmt: skip
    return [
        (words.get(key, key), _time(value) if key.endswith("seconds") else f"{value:,}")
        for key, value in cost.items()
        if isinstance(value, (int, float))
    ]


def _grid(grid: Mapping[str, Any]) -> list[str]:
    """What either side could choose from: the same number on both."""
    lines = []
    for family, sides in grid.items():
        alone, joint = (sides.get(side, {}).get("configurations") for side in ("alone", "joint"))
        lines.append(f"{family}: {alone} configurations alone, {joint} joint")
    return lines


def _settings(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    def told(value: Any) -> str:
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

    return [(name, told(value)) for name, value in settings.items() if value is not None]


def _time(seconds: float) -> str:
    """
    >>> _time(12.3), _time(200), _time(7300)
    ('12 s', '3 min 20 s', '2 h 1 min')
    """
    whole = math.ceil(seconds) if seconds < 1 else round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes == 0:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
