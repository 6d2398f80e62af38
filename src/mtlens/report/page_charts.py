"""The charts of a study's page, each made from ``verdicts.json`` alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mtlens.report.answer import (
    Row,
    Verdicts,
    advice_rows,
    interval,
    measured,
    measured_pairs,
    needed,
    pooled_together,
    signed,
)
from mtlens.report.charts import HeatMap, LineChart, Scatter, Series
from mtlens.report.forest import Forest, ForestRow
from mtlens.study.result import MARKS

NUMBERS_IN_CELLS = 12  # tasks up to which a cell shows its number too
MOST_SINGLE_CURVES = 12
MOST_TIPS = 600  # points of a cloud that each carry a sentence
MOST_POINTS = 2500
CLOUDS = {"helps or hurts": ("helps", "hurts"), "no difference": ("no difference",), "undecided": ("undecided",)}
TONES = {"helps": "better", "hurts": "worse", "better": "better", "worse": "worse"}
NAN = float("nan")
NORMAL_95 = 1.96


def transfer_map(verdicts: Verdicts) -> HeatMap:
    """Every ordered pair: colour is the difference, the mark its verdict, weak colour an undecided one.

    The diagonal has no difference; its mark (with few tasks) is the score of the task alone.
    """
    names = [task["name"] for task in verdicts["tasks"]]
    cells = {(row["target"], row["source"]): row for row in verdicts["transfer"]}
    grid = [[cells[target, source] for source in names] for target in names]
    numbers = len(names) <= NUMBERS_IN_CELLS
    margin = _margin(verdicts)
    units = None if margin is not None else [margins(verdicts)[name] for name in names]
    unit = dict(zip(names, units or [1.0] * len(names), strict=True))
    largest = max((abs(row["difference"]) / unit[row["target"]] for row in measured_pairs(verdicts)), default=0.0)
    least = 2 * (1.0 if margin is None else margin)  # what does not matter stays pale
    return HeatMap(
        "Joint minus alone, by target and source",
        [[_value(row["difference"]) for row in line] for line in grid],
        names,
        names,
        marks=[[_mark(row, numbers=numbers) for row in line] for line in grid],
        tips=[[cell_tip(row) for row in line] for line in grid],
        faint=[[row["verdict"] == "undecided" for row in line] for line in grid],
        limit=max(largest, least),
        units=units,
        better="joint training is better" if units is None else "in margins of the target: joint training is better",
        cell=72.0 if numbers and len(names) <= 8 else None,
    )


def cell_tip(row: Row) -> str:
    """The sentence of a cell."""
    target, source = row["target"], row["source"]
    if target == source:
        score = "not measured" if row["score"] is None else f"{row['score']:.3f}"
        ends = "" if row["low"] is None else f" (95 %: {row['low']:.3f} to {row['high']:.3f})"
        return f"{target} alone: score {score}{ends}, n = {row['n']}"
    if row["difference"] is None:
        return f"{target} with {source}: not measured"
    wanted = f"; to decide: {needed(row)}" if needed(row) else ""
    cause = f"; cause: {row['cause']}" if row.get("cause") else ""
    return f"{target} with {source}: {interval(row)}, n = {row['n']}, {row['verdict']}{wanted}{cause}"


def _mark(row: Row, *, numbers: bool) -> str:
    if row["target"] == row["source"]:
        return f"{row['score']:.2f}" if numbers and row["score"] is not None else "·"
    if row["difference"] is None:
        return ""
    return f"{signed(row['difference'])}\n{MARKS[row['verdict']]}" if numbers else MARKS[row["verdict"]]


def together_chart(verdicts: Verdicts) -> Forest | None:
    """All tasks trained together against each alone."""
    rows = measured(verdicts["together"])
    if not rows or len(verdicts["tasks"]) < 3:
        return None
    shown = [(row["target"], row) for row in rows]
    if (pooled := pooled_together(verdicts)) is not None and _margin(verdicts) is not None:
        shown.append(("mean over tasks", pooled))
    return _by_target("All tasks together minus each alone", "difference (right: together is better)", verdicts, shown)


def left_out_chart(verdicts: Verdicts) -> Forest | None:
    """What each task gives the others: all together minus all without it, the mean over targets (no interval)."""
    given: dict[str, list[Row]] = {}
    for row in measured(verdicts["leave_one_out"]):
        given.setdefault(row["source"], []).append(row)
    if not given:
        return None
    margin, rows = _margin(verdicts), []
    unit = margins(verdicts) if margin is None else {}
    for source, cells in given.items():
        mean = sum(row["difference"] / unit.get(row["target"], 1.0) for row in cells) / len(cells)
        helps, hurts = (sum(row["verdict"] == verdict for row in cells) for verdict in ("helps", "hurts"))
        note = f"helps {helps}, hurts {hurts} of {len(cells)}"
        tip = f"{source} in the presence of all others changes them by {signed(mean)} on average; {note}"
        rows.append(ForestRow(source, mean, NAN, NAN, note=note, tip=tip))
    return Forest(
        "What each task gives the others",
        rows,
        "mean change of the others when it joins" + (", in their margins" if margin is None else ""),
        margin=1.0 if margin is None else margin,
    )


def method_chart(verdicts: Verdicts) -> Forest | None:
    """Every method against alone, plain joint training and its own controls, the mean over tasks."""
    rows = measured(verdicts["methods"])
    if not rows:
        return None
    return Forest(
        "Methods on all tasks together, mean over tasks",
        [_forest_row(f"{row['method']} − {row['against'].removeprefix('control: ')}", row) for row in rows],
        "difference (right: the method is better)",
    )


def capacity_chart(verdicts: Verdicts, task: str | None = None) -> LineChart | None:
    """Test score over the size of the shared part, joint and alone, with bands; without a task their mean."""
    points = [p for p in verdicts["capacity"]["curves"] if p["task"] == task and p["joint"] is not None]
    if not points:
        return None
    series = [_curve(points, side, label) for side, label in (("joint", "together"), ("alone", "alone"))]
    sizes = [float(point["capacity"]) for point in points]
    return LineChart(
        "Mean over tasks" if task is None else task, series, "capacity of the shared part", "test score",
        x_log=len(sizes) > 1, x_ticks=sizes, error_bars=len(sizes) == 1,
        width=560.0 if task is None else 360.0, height=340.0 if task is None else 280.0,
    )  # fmt: skip


def _curve(points: Sequence[Mapping[str, Any]], side: str, label: str) -> Series:
    low, high = ([_value(p[f"{side}_{end}"]) for p in points] for end in ("low", "high"))
    value = [_value(point[side]) for point in points]
    has_band = all(map(math.isfinite, low + high))
    tips = [
        f"{label}, capacity {p['capacity']}: {_value(p[side]):.3f} "
        f"(95 %: {_value(p[f'{side}_low']):.3f} to {_value(p[f'{side}_high']):.3f}), n = {p[f'n_{side}']}"
        for p in points
    ]
    sizes = [float(p["capacity"]) for p in points]
    return Series(label, sizes, value, low if has_band else None, high if has_band else None, tips=tips)


def single_capacity_charts(verdicts: Verdicts) -> list[LineChart]:
    """The capacity curve of every task, with few tasks."""
    names = [task["name"] for task in verdicts["tasks"]]
    charts = [capacity_chart(verdicts, name) for name in names] if len(names) <= MOST_SINGLE_CURVES else []
    return [chart for chart in charts if chart is not None]


def predicted_points(verdicts: Verdicts) -> list[Row]:
    """Measured pairs that were also predicted from the data."""
    return [row for row in measured_pairs(verdicts) if row.get("predicted") is not None]


def predicted_chart(verdicts: Verdicts) -> Scatter | None:
    """Predicted transfer (linear core, before training) against measured transfer, by verdict.

    With very many pairs every k-th is drawn, and the title says so.
    """
    every = predicted_points(verdicts)
    step = -(-len(every) // MOST_POINTS) or 1
    points = every[::step]
    series = [_cloud(name, [row for row in points if row["verdict"] in members], told=len(points) <= MOST_TIPS)
              for name, members in CLOUDS.items()]  # fmt: skip
    if not points:
        return None
    some = f" (every {step}th pair)" if step > 1 else ""
    return Scatter(
        f"Predicted and measured transfer{some}", [cloud for cloud in series if len(cloud.x)],
        "predicted (linear, R2 or Brier skill)", "measured (joint − alone)", reference=0.0,
    )  # fmt: skip


def _cloud(name: str, rows: Sequence[Row], *, told: bool) -> Series:
    tips = [f"{cell_tip(row)}; predicted {signed(row['predicted'])}" if told else "" for row in rows]
    return Series(name, [row["predicted"] for row in rows], [row["difference"] for row in rows], tips=tips)


def advice_chart(verdicts: Verdicts) -> Forest | None:
    """The advised system against the best tuned single-task system, task by task and on average."""
    advice = verdicts.get("advice") or {}
    per_task = [row for row in advice_rows(verdicts) if row.get("difference") is not None]
    if not per_task:
        return None
    rows = [ForestRow(row["task"], row["difference"], _value(row.get("low")), _value(row.get("high")),
                      note=str(row.get("recipe", "")), tip=f"{row['task']}: {interval(row)}")
            for row in per_task]  # fmt: skip
    if advice.get("difference") is not None:
        mean = ForestRow("mean over tasks", advice["difference"], _value(advice.get("low")), _value(advice.get("high")),
                         tip=f"mean over tasks: {interval(advice)}")  # fmt: skip
        rows.append(mean)
    return Forest("Advised system minus the best single-task system", rows, "difference (right: the advice is better)")


def official_chart(verdicts: Verdicts) -> Forest | None:
    """Joint minus alone on the official test rows."""
    tested = verdicts.get("official_test") or {}
    rows = [row for row in tested.get("cells", ()) if row["difference"] is not None]
    if not rows:
        return None
    names = [f"{row['target']} with {', '.join(row['sources'][:2])}" + (" …" if len(row["sources"]) > 2 else "")
             for row in rows]  # fmt: skip
    shown = [(name, {**row, "n": row["rows"]}) for name, row in zip(names, rows, strict=True)]
    return _by_target("On the official test rows", "joint − alone", verdicts, shown)


def tried_chart(verdicts: Verdicts) -> Forest | None:
    """Every candidate the advice tried, and its controls: pooled held-out gain over alone.

    "passes": the gain exceeds two standard errors, without which nothing is joined.
    """
    tried = (verdicts.get("advice") or {}).get("tried") or ()
    if not tried:
        return None
    rows = []
    for row in tried:
        gain, reach = _value(row["gain"]), NORMAL_95 * _value(row["error"])
        note = ", ".join(word for word, is_so in (("control", row.get("control")), ("passes", row["applied"])) if is_so)
        tip = f"{row['name']}: {signed(gain)} ± {reach:.3f} (95 %){', ' if note else ''}{note}"
        tone = "better" if row["applied"] and not row.get("control") else ""
        rows.append(ForestRow(str(row["name"]), gain, gain - reach, gain + reach, tone, note, tip))
    return Forest("What was tried, and its controls", rows, "held-out gain over alone (R2 or Brier skill)")


def _forest_row(name: str, row: Row, unit: float = 1.0) -> ForestRow:
    tip = f"{name}: {interval(row)}, n = {row['n']}, {row['verdict']}"
    value, low, high = (_value(row[what]) / unit for what in ("difference", "low", "high"))
    return ForestRow(name, value, low, high, TONES.get(row["verdict"], ""), row["verdict"], tip)


def margins(verdicts: Verdicts) -> dict[str, float]:
    """The smallest difference that matters, by task (in the unit of its metric)."""
    return {task["name"]: float(task["margin"]) or 1.0 for task in verdicts["tasks"]}


def _margin(verdicts: Verdicts) -> float | None:
    """The margin of all tasks, when they have one: then their differences share an axis."""
    found = {float(task["margin"]) for task in verdicts["tasks"]}
    return found.pop() if len(found) == 1 else None


def _by_target(title: str, x_label: str, verdicts: Verdicts, rows: Sequence[tuple[str, Row]]) -> Forest:
    """Comparisons of several targets: on one axis as they are, or in margins where units differ."""
    margin = _margin(verdicts)
    if margin is not None:
        return Forest(title, [_forest_row(name, row) for name, row in rows], x_label, margin=margin)
    unit = margins(verdicts)
    shown = [_forest_row(name, row, unit.get(row.get("target", ""), 1.0)) for name, row in rows]
    return Forest(title, shown, f"{x_label}, in margins of the task", margin=1.0)


def _value(given: float | None) -> float:
    return NAN if given is None else float(given)
