"""The card of a model, ``MODEL.md``: what it predicts, how well on held-out rows, how it was made, and the verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mtlens.models.model import LEVEL, Model, TaskModel
from mtlens.models.system import TaskPlan

MOST_ROWS = 300


def card_of(model: Model) -> str:
    """The card as Markdown. Names from data are escaped."""
    return (
        "\n".join([*_head(model), *_tasks(model), *_why(model), *_limits(model), *_inputs(model), *_made(model)]) + "\n"
    )


def summary_of(model: Model) -> dict[str, Any]:
    """What ``mtlens fit --json`` prints: a record a task, and the notes."""
    return {
        "tasks": [_task_summary(model, task) for task in model.tasks.values()],
        "notes": list(model.notes),
        "mtlens": model.made.get("mtlens"),
    }


def _task_summary(model: Model, task: TaskModel) -> dict[str, Any]:
    plan = model.system.plan_of(task.name)
    sources = list(model.system.sources_of(task.name)) if task.joint is not None else []
    return {
        "name": task.name,
        "kind": task.kind,
        "classes": [label if isinstance(label, (str, int, float, bool)) else str(label) for label in task.classes],
        "recipe": plan.recipe if task.joint is not None else "alone",
        "family": plan.family,
        "sources": sources,
        "weight": task.weight if task.joint is not None else 0.0,
        "rows": task.facts.get("rows"),
        "metric": task.metric,
        "held_out": task.facts.get("deployed"),
        "held_out_alone": task.facts.get("alone"),
    }


def summary_table(model: Model) -> str:
    """The same for a person: a Markdown table, then the notes."""
    return (
        "\n".join([*_tasks(model), *(["", *(f"note: {line}" for line in model.notes)] if model.notes else [])]) + "\n"
    )


def _head(model: Model) -> Iterator[str]:
    yield "# Model card"
    yield ""
    yield escaped(model.system.summary or f"{len(model.names)} tasks, fitted by mtlens on all labelled rows.")
    yield ""
    yield "## Tasks"
    yield ""


def _tasks(model: Model) -> Iterator[str]:
    yield "| task | kind | how | rows | metric | held out | alone, held out |"
    yield "|---|---|---|---|---|---|---|"
    for task in list(model.tasks.values())[:MOST_ROWS]:
        facts = task.facts
        cells = [task.name, task.kind, _how(model, task), str(facts.get("rows", "")), task.metric]
        scores = [_number(facts.get("deployed")), _number(facts.get("alone"))]
        yield "| " + " | ".join(map(escaped, [*cells, *scores])) + " |"
    if len(model.tasks) > MOST_ROWS:
        yield f"\n... and {len(model.tasks) - MOST_ROWS} more tasks"


def _how(model: Model, task: TaskModel) -> str:
    plan = model.system.plan_of(task.name)
    if task.joint is None:
        return f"alone ({plan.family})"
    sources = model.system.sources_of(task.name)
    shown = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else "")
    return f"{plan.recipe} with {shown} ({plan.family_of_joint}), weight {task.weight:.2f}; alone {plan.family}"


def _why(model: Model) -> Iterator[str]:
    plans = [plan for plan in model.system.tasks if plan.evidence or plan.would_change or plan.difference is not None]
    if not plans:
        return
    yield from ("", "## Why", "")
    for plan in plans[:MOST_ROWS]:
        yield f"* **{escaped(plan.name)}**: {escaped(_reason(plan))}"


def _reason(plan: TaskPlan) -> str:
    parts = [plan.evidence.rstrip(". ")] if plan.evidence else []
    if plan.difference is not None:
        between = f" ({_number(plan.low)} .. {_number(plan.high)})" if plan.low is not None else ""
        parts.append(f"measured against alone: {plan.difference:+.3f}{between}, n = {plan.n}")
    if plan.would_change:
        parts.append(f"What would change it: {plan.would_change.rstrip('. ')}")
    return ". ".join(parts) + "."


def _limits(model: Model) -> Iterator[str]:
    yield from ("", "## Reading the numbers", "")
    yield "* Held-out scores come from folds that treat rows as exchangeable; they say nothing about a changed world."
    yield "* The model itself was then fitted on all labelled rows, those of a test set too: do not score it on them."
    if any(task.kind == "regression" for task in model.tasks.values()):
        yield (
            f"* Intervals hold about {LEVEL:.0%} of new labels on average. Their width is one for all rows of a task, "
            "from held-out errors."
        )
        yield "* Predictions stay inside the range of the training labels."
    if any(task.kind != "regression" for task in model.tasks.values()):
        yield (
            "* Probabilities are as the models give them, but never 0 or 1 (at least 1 / (rows + classes) off); "
            "they were not calibrated afterwards."
        )


def _inputs(model: Model) -> Iterator[str]:
    yield from ("", "## Inputs", "")
    for schema in model.schemas[:20]:
        if schema.shape:
            yield f"* arrays of shape {schema.shape} a row"
            continue
        columns = [f"{name} ({kind})" for name, kind in list(schema.by_name.items())[:100]]
        more = f" and {len(schema.names) - 100} more" if len(schema.names) > 100 else ""
        yield "* " + escaped(", ".join(columns) + more)


def _made(model: Model) -> Iterator[str]:
    yield from ("", "## How it was made", "")
    run = model.made.get("run")
    yield escaped(
        f"mtlens {model.made.get('mtlens', '?')}, seed {model.system.seed}" + (f", study {run}" if run else "")
    )
    for line in (*model.made.get("found", ()), *model.notes):
        yield f"* {escaped(str(line))}"
    yield from ("", "## Advice that was built", "", *(f"    {line}" for line in model.system.to_toml().splitlines()))


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:.3f}"


_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_[]|#"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def escaped(text: str) -> str:
    """Text from data inside Markdown: one line, nothing of it markup."""
    return " ".join(text.translate(_SPECIAL).split())
