"""A diagnosis as text for people: tables, each number with a line on what it means, and the answer first."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mtlens.diagnosis.result import MEANING, Diagnosis, Pair, TaskFacts

MOST_PAIRS = 40  # rows of the pair table; --json has them all
STYLES = {"helps": "green", "hurts": "red", "unsure": "dim"}


def diagnosis_text(diagnosis: Diagnosis, *, width: int = 110, colour: bool = False) -> str:
    """The whole diagnosis as text of the given width."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour, no_color=not colour, highlight=False)
    console.print(answer(diagnosis), style="bold")
    for line in diagnosis.found:
        console.print(f"found: {escape(line)}")
    for line in diagnosis.warnings:
        console.print(f"warning: {escape(line)}", style="yellow")
    console.print(_tasks(diagnosis.tasks))
    if diagnosis.pairs:
        console.print(_pairs(diagnosis.pairs))
    console.print(_shared(diagnosis))
    console.print("What the numbers mean, and do not mean:")
    for name, meaning in MEANING.items():
        console.print(f"  [bold]{name}[/bold]: {escape(meaning)}")
    return out.getvalue()


def answer(diagnosis: Diagnosis) -> str:
    """One sentence: who is predicted to gain from whom."""
    helps = [pair for pair in diagnosis.pairs if pair.verdict == "helps"]
    hurts = [pair for pair in diagnosis.pairs if pair.verdict == "hurts"]
    if not diagnosis.pairs:
        return "One task alone: nothing to share."
    if not helps and not hurts:
        return f"None of the {len(diagnosis.pairs)} ordered pairs shows a clear linear gain or loss from joining."
    parts = []
    if helps:
        targets = list(dict.fromkeys(pair.target for pair in helps))
        parts.append(
            f"{len(helps)} of {len(diagnosis.pairs)} ordered pairs are predicted to help ({_some(targets)} gain)"
        )
    if hurts:
        targets = list(dict.fromkeys(pair.target for pair in hurts))
        parts.append(f"{len(hurts)} to hurt ({_some(targets)} lose)")
    return escape("; ".join(parts) + "; the rest is unsure.")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _tasks(tasks: Iterable[TaskFacts]) -> Table:
    table = Table(title="Tasks", title_justify="left", box=SIMPLE_HEAD, padding=(0, 0))
    table.add_column("task", overflow="fold")
    for name in ("kind", "rows", "width", "labels", "gaps", "copies", "leaks", "condition", "eff.rank", "alone"):
        table.add_column(name, justify="left" if name in ("kind", "labels") else "right")
    for task in tasks:
        table.add_row(
            escape(task.task),
            task.kind,
            _labelled(task),
            str(task.width),
            escape(_balance(task)),
            f"{100 * task.missing_features:.0f} %",
            str(task.duplicates),
            str(task.leaks),
            f"{task.condition_number:.3g}",
            f"{task.effective_rank:.1f}",
            _number(task.alone),
        )
    return table


def _labelled(task: TaskFacts) -> str:
    return str(task.rows) if task.labelled == task.rows else f"{task.labelled} of {task.rows}"


def _balance(task: TaskFacts) -> str:
    if task.kind == "regression":
        return f"{task.balance['mean']:.3g} ± {task.balance['sd']:.3g}"
    shown = [f"{name} {100 * share:.0f} %" for name, share in list(task.balance.items())[:3]]
    return ", ".join(shown) + (", ..." if len(task.balance) > 3 else "")


def _pairs(pairs: Sequence[Pair]) -> Table:
    shown = sorted(pairs, key=_interest)[:MOST_PAIRS]
    more = f" (the {len(shown)} clearest of {len(pairs)}; --json has all)" if len(pairs) > len(shown) else ""
    table = Table(title=f"Predicted transfer{more}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 0))
    for name in ("target", "source"):
        table.add_column(name, overflow="fold")
    for name in ("predicted", "95 % interval", "verdict", "cosine", "score", "normalised"):
        table.add_column(name, justify="right")
    for pair in shown:
        interval = "-" if pair.low is None else f"{_number(pair.low)} to {_number(pair.high)}"
        verdict = f"[{STYLES[pair.verdict]}]{pair.verdict}[/]"
        scores = (_number(v, signed=False) for v in (pair.score, pair.score_normalised))
        table.add_row(
            escape(pair.target),
            escape(pair.source),
            _number(pair.predicted),
            interval,
            verdict,
            _number(pair.cosine),
            *scores,
        )
    return table


def _interest(pair: Pair) -> tuple[bool, float]:
    """Clear verdicts first, then the largest predictions."""
    return pair.verdict == "unsure", -abs(pair.predicted or 0.0)


def _number(value: float | None, *, signed: bool = True) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:+.3f}" if signed else f"{value:.3f}"


def _shared(diagnosis: Diagnosis) -> str:
    """Capacity and weights in two lines."""
    lines = []
    capacity, weights = diagnosis.capacity, diagnosis.weights
    if capacity is not None:
        curve = ", ".join(
            f"{r}: {s:.3f}" + (f" (±{e:.3f})" if e else "")
            for r, s, e in zip(capacity.ranks, capacity.scores, capacity.errors, strict=True)
        )
        verdict = "flat: the shared part may have any size" if capacity.flat else f"suggested {capacity.suggested}"
        lines.append(
            f"Capacity (shared directions): {verdict}. Mean R2 by rank (standard error against the best): {curve}"
        )
    if weights is not None:
        pairs = ", ".join(f"{escape(name)} {value:.2f}" for name, value in list(weights.svd.items())[:20])
        lines.append(f"SVD weights at rank {weights.rank}: {pairs}")
    return "\n".join(lines)
