"""The answer of a study in words: a headline, three findings, and the sentence behind every number.

Every sentence is made from ``verdicts.json`` and says no more than its verdicts: what is not proved is called that.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from mtlens.report.facts import printable
from mtlens.study.result import StudyResult

Verdicts: TypeAlias = Mapping[str, Any]
Row: TypeAlias = Mapping[str, Any]

DECIDED = ("helps", "hurts")
BEATS = ("better", "worse")
WIDTH = 118
FEW = 3  # names in a sentence
PAIR_WORDS = {  # of one pair, and of several
    "helps": ("helps", "help"),
    "hurts": ("hurts", "hurt"),
    "no difference": ("makes no difference", "make no difference"),
    "undecided": ("is undecided", "are undecided"),
}


def headline(verdicts: Verdicts) -> str:
    """The shortest honest answer to "should these tasks be trained together?"."""
    joined = [row for row in advice_rows(verdicts) if row.get("recipe", "alone") != "alone" and row.get("weight", 1)]
    if joined:
        return f"Share: a system that joins {len(joined)} of {len(verdicts['tasks'])} tasks is advised."
    proved = Counter(row["verdict"] for row in (*measured_pairs(verdicts), *measured(verdicts["together"])))
    if proved["helps"] and verdicts.get("advice"):
        return "Keep each task alone: some pairs help, but no joint system beats the best single-task models here."
    if proved["helps"] and proved["hurts"]:
        return "Some of these tasks help each other, and some hurt: choose who is trained with whom."
    if proved["helps"]:
        return "Training together helps some of these tasks, and nothing is proved to hurt."
    if proved["hurts"]:
        return "Training together hurts some of these tasks, and nothing is proved to help."
    if not proved:
        return "Nothing was measured yet."
    if (pooled := pooled_together(verdicts)) and pooled["verdict"] in DECIDED:
        return f"On average training together {pooled['verdict']} these tasks; for none alone is it proved."
    if proved["undecided"] == 0:
        return "Nothing to gain here: training together makes no difference that matters."
    return "Nothing is proved to help or to hurt: train each task alone until something is."


def findings(verdicts: Verdicts) -> list[str]:
    """The main findings, at most three: the advice when there is one, the pairs, all together, size and method."""
    told = [advice_told(verdicts), pairs_told(verdicts), together_told(verdicts), size_and_method_told(verdicts)]
    return [sentence for sentence in told if sentence][:3]


def answer_text(result: StudyResult) -> str:
    """What a terminal shows of a study: the tables, then the answer and the findings."""
    told = [f"{number}. {sentence}" for number, sentence in enumerate(findings(result.verdicts), 1)]
    lines = [_filled(headline(result.verdicts)), *(_filled(line, indent="   ") for line in told)]
    return result.table() + "\n" + "\n".join(lines) + "\n"


def _filled(sentence: str, indent: str = "") -> str:
    return textwrap.fill(sentence, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def pairs_told(verdicts: Verdicts) -> str:
    """What the ordered pairs prove, the clearest one by name, and what would decide the open ones."""
    rows = measured_pairs(verdicts)
    if not rows:
        return "No pair of tasks was trained together yet."
    count = Counter(row["verdict"] for row in rows)
    parts = [f"{count[verdict] or 'none'} {words[count[verdict] > 1]}" for verdict, words in PAIR_WORDS.items()]
    told = f"Pairs: of {len(rows)} measured (target, source) pairs {_listed(parts)}."
    return " ".join([told, *_clearest(rows), *_needed(rows)])


def together_told(verdicts: Verdicts) -> str:
    """What training all tasks together does to each."""
    rows = measured(verdicts["together"])
    if not rows or len(verdicts["tasks"]) < 3:
        return ""
    parts = []
    for verdict, words in (("helps", "helps"), ("hurts", "hurts"), ("no difference", "makes no difference to")):
        members = [row for row in rows if row["verdict"] == verdict]
        if members:
            parts.append(f"{words} {some([row['target'] for row in members])}")
    undecided = [row["target"] for row in rows if row["verdict"] == "undecided"]
    if undecided:
        parts.append(f"leaves {some(undecided)} undecided")
    clear = max(rows, key=lambda row: (row["verdict"] in DECIDED, abs(row["difference"] or 0.0)))
    told = f"Training all {len(verdicts['tasks'])} tasks together {_listed(parts)}. Largest: {cell_told(clear)}."
    if (pooled := pooled_together(verdicts)) is None:
        return told
    return f"{told} Mean over tasks {interval(pooled)}, {pooled['verdict']}."


def pooled_together(verdicts: Verdicts) -> Row | None:
    """The mean over tasks of all together minus alone, where tasks have one metric."""
    pooled: Row = (verdicts.get("pooled") or {}).get("together") or {"n": 0}
    return pooled if pooled["n"] and pooled["difference"] is not None else None


def advice_rows(verdicts: Verdicts) -> list[dict[str, Any]]:
    """The advice task by task, whether it is written as a list or as a table by name."""
    given = (verdicts.get("advice") or {}).get("per_task") or ()
    if isinstance(given, Mapping):
        rows = {name: row if isinstance(row, Mapping) else {"difference": row} for name, row in given.items()}
        return [{"task": name, **row} for name, row in rows.items()]
    return [{"task": row.get("target", row.get("name")), **row} for row in given]


def size_and_method_told(verdicts: Verdicts) -> str:
    """Whether the size of the shared part matters, and whether a method beats plain joint training."""
    return " ".join(part for part in (capacity_told(verdicts), methods_told(verdicts)) if part)


def capacity_told(verdicts: Verdicts) -> str:
    """Size of the shared part: flat as far as was measured, or the best one."""
    tried = sorted({point["capacity"] for point in verdicts["capacity"]["curves"]})
    joint = verdicts["capacity"]["summary"].get("joint")
    if joint is None or len(tried) < 2:
        return ""
    if joint["flat"]:
        return f"The size of the shared part does not matter measurably between {tried[0]} and {tried[-1]}."
    return f"The best size of the shared part is {joint['optimum']} (tried: {', '.join(map(str, tried))})."


def methods_told(verdicts: Verdicts) -> str:
    """Methods that beat, or lose to, plain joint training."""
    rows = [row for row in measured(verdicts["methods"]) if row["against"] == "plain"]
    if not rows:
        return ""
    parts = [f"{row['method']} is {row['verdict']} ({interval(row)})" for row in rows if row["verdict"] in BEATS]
    if parts:
        return f"Against plain joint training, {_listed(parts)}."
    return (
        f"No method ({', '.join(row['method'] for row in rows)}) is proved better or worse than plain joint training."
    )


def advice_told(verdicts: Verdicts) -> str:
    """The advice's own summary; without one, what it gains over the best tuned single-task system."""
    advice = verdicts.get("advice") or {}
    summary = str(advice.get("summary") or "").strip()
    if summary or advice.get("difference") is None:
        return f"Advice: {summary}" if summary else ""
    return f"Advice: measured gain over the best tuned single-task system {interval(advice)} on average over tasks."


# ------------------------------------------------------------------ rows


def measured(rows: Sequence[Row]) -> list[Row]:
    """Rows with at least one split and a difference."""
    return [row for row in rows if row["n"] and row["difference"] is not None]


def measured_pairs(verdicts: Verdicts) -> list[Row]:
    """Ordered pairs of distinct tasks that were trained."""
    return measured([row for row in verdicts["transfer"] if row["target"] != row["source"]])


def cell_told(row: Row) -> str:
    """One comparison in words, with its interval and n."""
    how = "with all others" if row["source"] == "all others" else f"with {quoted(row['source'])}"
    return f"{quoted(row['target'])} {how} {interval(row)}, n = {row['n']}, {row['verdict']}"


def interval(row: Row) -> str:
    """``+0.012 (95 %: -0.003 to +0.027)``; without an interval only the number.

    >>> interval({"difference": 0.5, "low": None, "high": None})
    '+0.500'
    """
    if row["difference"] is None:
        return "not measured"
    if row.get("low") is None or row.get("high") is None:
        return signed(row["difference"])
    return f"{signed(row['difference'])} (95 %: {signed(row['low'])} to {signed(row['high'])})"


def signed(value: float | None) -> str:
    """A difference with its sign, never ``-0.000``.

    >>> signed(-0.0001), signed(0.0126), signed(-5231.332), signed(None)
    ('0.000', '+0.013', '−5,231', '–')
    """
    if value is None:
        return "–"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
    text = f"{value:+,.{digits}f}"
    return "0.000" if text in ("+0.000", "-0.000") else text.replace("-", "\u2212")


def needed(row: Row) -> str:
    """What would decide an open cell.

    >>> needed({"verdict": "undecided", "runs_needed": 7}), needed({"verdict": "helps", "runs_needed": 0})
    ('about 7 more splits', '')
    """
    if row["verdict"] != "undecided" or not row.get("runs_needed"):
        return ""
    wanted = row["runs_needed"]
    if not isinstance(wanted, int):
        return str(wanted)
    return f"about {wanted} more split{'s' if wanted > 1 else ''}"


def quoted(name: str) -> str:
    """A task's name in a sentence: quoted, printable, not longer than a glance."""
    return f"\u2018{printable(name)}\u2019"


def _clearest(rows: Sequence[Row]) -> list[str]:
    decided = [row for row in rows if row["verdict"] in DECIDED]
    if not decided:
        return []
    best = max(decided, key=lambda row: abs(row["difference"]))
    return [f"Largest: {cell_told(best)}."]


def _needed(rows: Sequence[Row]) -> list[str]:
    undecided = [row for row in rows if row["verdict"] == "undecided"]
    if not undecided:
        return []
    by_splits = [row["runs_needed"] for row in undecided if isinstance(row["runs_needed"], int)]
    rest = len(undecided) - len(by_splits)
    parts = [f"{_need(len(by_splits))} more splits ({min(by_splits)} or more)"] if by_splits else []
    parts += [f"{_need(rest)} more rows"] if rest else []
    return [f"To be decided, {_listed(parts)}."]


def _need(count: int) -> str:
    return f"{count} {'needs' if count == 1 else 'need'}"


def some(names: Sequence[str], few: int = FEW) -> str:
    """The first few names in a sentence, and how many more."""
    shown = [quoted(name) for name in names[:few]]
    return _listed(shown) if len(names) <= few else f"{', '.join(shown)} and {len(names) - few} more"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
