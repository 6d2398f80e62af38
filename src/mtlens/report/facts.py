"""Facts about tasks as text for a person."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

_WIDTH = 118


def facts_text(facts: dict[str, Any]) -> str:
    """The page that ``mtlens tasks`` prints: a row a task, then what was found out and what is odd."""
    rows = [_row(fact) for fact in facts["tasks"]]
    parts = [columns(("task", "kind", "metric", "rows", "labelled", "inputs", "labels", "train/valid/test"), rows)]
    if facts["shared_inputs"] and len(rows) > 1:
        parts.append("All tasks label the same rows.")
    for title, lines in (("Found", facts["found"]), ("Odd", facts["odd"])):
        if lines:
            parts.append("\n".join([f"{title}:", *(_bullet(line) for line in lines)]))
    if not facts["odd"]:
        parts.append("Nothing odd: no copies, no leaks between parts or tasks, no constant columns, no rare class.")
    return "\n\n".join(parts) + "\n"


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells under each other, two spaces apart; numbers to the right.

    >>> print(columns(("task", "rows"), [("reviews", "10"), ("b", "9")]))
    task     rows
    reviews    10
    b           9
    """
    table = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    right = [all(row[i].replace(".", "").replace("-", "").isdigit() for row in table[1:]) for i in range(len(head))]
    lines = [
        "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in table
    ]
    return "\n".join(lines)


def printable(text: str, most: int = 40) -> str:
    """A name that cannot move the cursor or fill the screen: control characters spelled out, the middle left out."""
    safe = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return safe if len(safe) <= most else f"{safe[: most - 10]}...{safe[-7:]}"


def _row(fact: dict[str, Any]) -> tuple[str, ...]:
    split = "-" if fact["split"] is None else "/".join(str(count) for count in fact["split"].values())
    rows, labelled = str(fact["rows"]), str(fact["labelled"])
    return (fact["name"], fact["kind"], fact["metric"], rows, labelled, _inputs(fact["inputs"]), _labels(fact), split)


def _inputs(inputs: dict[str, Any]) -> str:
    shape = inputs["shape"]
    if inputs["form"] == "array":
        return " x ".join(map(str, shape))
    what = {"numbers": "numbers", "text": "text" if shape[0] == 1 else "texts", "table": "columns"}[inputs["form"]]
    return f"{shape[0]} {what}"


def _labels(fact: dict[str, Any]) -> str:
    labels = fact["labels"]
    if fact["kind"] == "regression":
        return f"{labels['mean']:.3g} +- {labels['sd']:.3g}"
    if len(labels) > 4:
        return f"{len(labels)} classes, {min(labels.values())} to {max(labels.values())} rows"
    return ", ".join(f"{label}: {count}" for label, count in labels.items())


def _bullet(line: str) -> str:
    return textwrap.fill(printable(line, 2000), _WIDTH, initial_indent="  - ", subsequent_indent="    ")
