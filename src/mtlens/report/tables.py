"""A study's tables, each once: shown on the page, written as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from mtlens.report.answer import DECIDED, Row, Verdicts, advice_rows, needed, signed
from mtlens.report.page_charts import predicted_points
from mtlens.study.result import escaped

FEW = 6  # names in a cell as a person reads it; CSV files have all
Form: TypeAlias = Literal["text", "difference", "score", "fine", "p", "count"]


@dataclass(frozen=True)
class Column:
    """A heading and how its values are shown: a difference with its sign, a p value with two digits."""

    title: str
    form: Form = "text"

    @property
    def is_number(self) -> bool:
        return self.form != "text"


@dataclass(frozen=True)
class DataTable:
    """Rows of raw values; ``name`` is its file's name, ``tones`` (a row each) colour proved rows on the page."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    tones: Sequence[str] = ()

    def shown(self, most: int | None = None) -> list[list[str]]:
        """The values (of the first ``most`` rows) as a person reads them."""
        return [[_shown(value, c.form) for value, c in zip(row, self.columns, strict=True)] for row in self.rows[:most]]

    def to_csv(self) -> str:
        """Raw values in full precision; what is not known is empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([column.title for column in self.columns])
        writer.writerows([[_plain(value) for value in row] for row in self.rows])
        return text.getvalue()

    def to_markdown(self) -> str:
        head = [column.title for column in self.columns]
        marks = ["---:" if column.is_number else "---" for column in self.columns]
        body = [[escaped(value) for value in row] for row in self.shown()]
        lines = ["| " + " | ".join(row) + " |" for row in (head, marks, *body)]
        return f"{self.title}\n\n" + "\n".join(lines) + "\n"

    def to_latex(self) -> str:
        """A ``tabular`` with the rules of booktabs."""
        form = "".join("r" if column.is_number else "l" for column in self.columns)
        head = _latex_row([column.title for column in self.columns])
        body = "\n".join(_latex_row(row) for row in self.shown())
        return (
            f"% {latex(self.title)}; needs \\usepackage{{booktabs}}\n\\begin{{tabular}}{{{form}}}\n\\toprule\n{head}\n"
            f"\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
        )


def tables(verdicts: Verdicts) -> list[DataTable]:
    """Every table that has rows."""
    makers: Sequence[Callable[[Verdicts], DataTable]] = (
        pairs_table, together_table, left_out_table, methods_table, capacity_table, tasks_table, predicted_table,
        advice_table, tried_table, causes_table, texts_table, official_table,
    )  # fmt: skip
    made = [make(verdicts) for make in makers]
    return [table for table in made if table.rows]


_EVIDENCE = (
    Column("difference", "difference"), Column("low", "difference"), Column("high", "difference"), Column("n", "count"),
    Column("adjusted p", "p"), Column("verdict"), Column("to decide"),
)  # fmt: skip


def pairs_table(verdicts: Verdicts) -> DataTable:
    """Every ordered pair, proved ones first, then by size; unmeasured ones are left to transfer.csv."""
    rows = [row for row in verdicts["transfer"] if row["target"] != row["source"] and row["n"]]
    rows.sort(key=lambda row: (row["verdict"] not in ("helps", "hurts"), -abs(row["difference"] or 0.0)))
    columns = (Column("target"), Column("source"), *_EVIDENCE, Column("family"), Column("cause"))
    values = [[row["target"], row["source"], *_evidence(row), row["family"], row["cause"]] for row in rows]
    return DataTable("pairs", "Joint minus alone, every measured pair", columns, values, _tones(rows))


def together_table(verdicts: Verdicts) -> DataTable:
    rows = [row for row in verdicts["together"] if row["n"]]
    columns = (Column("target"), *_EVIDENCE, Column("family"))
    values = [[row["target"], *_evidence(row), row["family"]] for row in rows]
    return DataTable("together", "All tasks together minus each alone", columns, values, _tones(rows))


def left_out_table(verdicts: Verdicts) -> DataTable:
    rows = [row for row in verdicts["leave_one_out"] if row["n"]]
    columns = (Column("target"), Column("source"), *_EVIDENCE)
    values = [[row["target"], row["source"], *_evidence(row)] for row in rows]
    title = "What a source adds to a target in the presence of all others (all together minus all but the source)"
    return DataTable("leave_one_out", title, columns, values, _tones(rows))


def methods_table(verdicts: Verdicts) -> DataTable:
    rows = [row for row in verdicts["methods"] if row["n"]]
    columns = (Column("method"), Column("against"), Column("tasks", "count"), *_EVIDENCE[:6])
    values = [[row["method"], row["against"], row["tasks"], *_evidence(row)[:6]] for row in rows]
    return DataTable("methods", "Methods on all tasks together, mean over tasks", columns, values, _tones(rows))


def capacity_table(verdicts: Verdicts) -> DataTable:
    sides = [
        (f"{side}{end}", "score") for side in ("joint", "alone") for end in ("", "_low", "_high")
    ]  # fmt: skip
    keys = [key for key, _ in sides]
    columns = (
        Column("task"), Column("capacity", "count"), *(Column(key.replace("_", " "), "score") for key in keys),
        Column("n", "count"),
    )  # fmt: skip
    rows = [
        [point["task"] if point["task"] is not None else "(mean over tasks)", point["capacity"],
         *(point[key] for key in keys), point["n_joint"]]
        for point in verdicts["capacity"]["curves"]
    ]  # fmt: skip
    return DataTable("capacity", "Test score by capacity of the shared part", columns, rows)


def tasks_table(verdicts: Verdicts) -> DataTable:
    """Each task's part: its rows, its score alone, and who helps or hurts whom as far as is proved."""
    columns = (
        Column("task"), Column("kind"), Column("metric"), Column("labelled rows", "count"),
        Column("train / valid / test"), Column("alone", "score"), Column("low", "score"), Column("high", "score"),
        Column("n", "count"), Column("its part"),
    )  # fmt: skip
    alone = {row["target"]: row for row in verdicts["transfer"] if row["target"] == row["source"]}
    rows, parts = [], _parts(verdicts)
    for task in verdicts["tasks"]:
        score, split = alone[task["name"]], " / ".join(str(count) for count in task["split"].values())
        numbers = [score["score"], score["low"], score["high"], score["n"]]
        rows.append([task["name"], task["kind"], task["metric"], task["rows"], split, *numbers, parts[task["name"]]])
    return DataTable("tasks", "Each task and its part", columns, rows)


def predicted_table(verdicts: Verdicts) -> DataTable:
    columns = (
        Column("target"), Column("source"), Column("predicted", "difference"), Column("measured", "difference"),
        Column("low", "difference"), Column("high", "difference"), Column("n", "count"), Column("verdict"),
    )  # fmt: skip
    keys = ("target", "source", "predicted", "difference", "low", "high", "n", "verdict")
    rows = [[row[key] for key in keys] for row in predicted_points(verdicts)]
    return DataTable("predicted", "Predicted from the data, and measured", columns, rows)


def advice_table(verdicts: Verdicts) -> DataTable:
    columns = (
        *(Column(title) for title in ("task", "advice", "with")), Column("weight", "score"), Column("alone by"),
        *(Column(title, "difference") for title in ("difference", "low", "high")),
        Column("n", "count"), Column("evidence"), Column("would change it"),
    )  # fmt: skip
    keys = (
        "task",
        "recipe",
        "sources",
        "weight",
        "family",
        "difference",
        "low",
        "high",
        "n",
        "evidence",
        "would_change",
    )
    told = [row if row.get("recipe") != "alone" else {**row, "weight": None} for row in advice_rows(verdicts)]
    rows = [[row.get(key) for key in keys] for row in told]
    return DataTable("advice", "Advice, task by task", columns, rows)


def tried_table(verdicts: Verdicts) -> DataTable:
    columns = (
        Column("tried"), Column("gain", "fine"), Column("standard error", "fine"), Column("above 2 errors"),
        Column("control"),
    )  # fmt: skip
    tried = (verdicts.get("advice") or {}).get("tried") or ()
    rows = [
        [
            row["name"],
            row["gain"],
            row["error"],
            "yes" if row["applied"] else "no",
            "yes" if row.get("control") else "no",
        ]
        for row in tried
    ]
    return DataTable("tried", "What the advice tried, and its controls: pooled held-out gain over alone", columns, rows)


def causes_table(verdicts: Verdicts) -> DataTable:
    columns = (
        Column("target"), Column("source"), Column("changed"), Column("names the cause"), Column("harm", "difference"),
        Column("harm taken away", "difference"), Column("low", "difference"), Column("high", "difference"),
        Column("n", "count"), Column("established"),
    )  # fmt: skip
    rows = [
        [cell["target"], cell["source"], c["contrast"], c["cause"], c["harm"], c["gain"], c["low"], c["high"], c["n"],
         "yes" if c["established"] else "no"]
        for cell in verdicts["causes"]
        for c in cell["contrasts"]
    ]  # fmt: skip
    return DataTable("causes", "Measured contrasts of the pairs that hurt", columns, rows)


def texts_table(verdicts: Verdicts) -> DataTable:
    columns = [Column(title) for title in ("target", "source", "joint training", "text", "label", "alone", "joint")]
    rows = [
        [cell["target"], cell["source"], sort, row["text"], row["label"], row["alone"], row["joint"]]
        for cell in verdicts.get("texts", ())
        for sort in ("fixed", "broken")
        for row in cell[sort]
    ]
    return DataTable("texts", "Test texts that joint training fixed or broke", columns, rows)


def official_table(verdicts: Verdicts) -> DataTable:
    columns = (
        Column("target"), Column("with"), Column("test rows", "count"), Column("difference", "difference"),
        Column("low", "difference"), Column("high", "difference"), Column("adjusted p", "p"), Column("verdict"),
    )  # fmt: skip
    cells = (verdicts.get("official_test") or {}).get("cells", [])
    keys = ("target", "sources", "rows", "difference", "low", "high", "p_adjusted", "verdict")
    return DataTable(
        "official_test",
        "On the official test rows",
        columns,
        [[row[key] for key in keys] for row in cells],
        _tones(cells),
    )


# ------------------------------------------------------------------ values


def _evidence(row: Row) -> list[Any]:
    return [row["difference"], row["low"], row["high"], row["n"], row["p_adjusted"], row["verdict"], needed(row)]


def _tones(rows: Sequence[Row]) -> list[str]:
    return [str(row["verdict"]).replace(" ", "-") for row in rows]


_PARTS = {  # what is said of a task that is the target, and of one that is the source, of a proved pair
    "helped by": ("helps", "target", "source"),
    "hurt by": ("hurts", "target", "source"),
    "helps": ("helps", "source", "target"),
    "hurts": ("hurts", "source", "target"),
}


def _parts(verdicts: Verdicts) -> dict[str, str]:
    """For every task: who is proved to help or hurt it, and whom it is proved to help or hurt."""
    found: dict[str, dict[str, list[str]]] = {task["name"]: {} for task in verdicts["tasks"]}
    proved = [row for row in verdicts["transfer"] if row["verdict"] in DECIDED]
    for words, (verdict, mine, other) in _PARTS.items():
        for row in proved:
            if row["verdict"] == verdict:
                found[row[mine]].setdefault(words, []).append(row[other])
    return {name: _part(parts) for name, parts in found.items()}


def _part(parts: Mapping[str, Sequence[str]]) -> str:
    told = [
        f"{words} {', '.join(names[:4])}" + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        for words, names in parts.items()
    ]
    return "; ".join(told) or "nothing proved"


def _plain(value: Any) -> Any:
    """A value in a CSV file: several names are parted by semicolons."""
    return "" if value is None else "; ".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def _shown(value: Any, form: Form) -> str:
    if value is None or value == "":
        return "–"
    if form == "difference":
        return signed(float(value))
    if form == "fine":
        return f"{value:.4f}".replace("-", "−")
    if form == "score":
        return f"{value:.3f}"
    if form == "p":
        return "< 0.001" if value < 0.001 else f"{value:.2g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        more = f" and {len(value) - FEW} more" if len(value) > FEW else ""
        return ", ".join(map(str, value[:FEW])) + more or "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "–": "--",
          "<": r"\textless{}", ">": r"\textgreater{}", "\n": " ",
          **{letter: f"\\{letter}" for letter in "&%$#_{}"}}  # fmt: skip


def latex(words: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> latex("a_b & 50 %")
    'a\\_b \\& 50 \\%'
    """
    return "".join(_LATEX.get(letter, letter) for letter in words)


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(latex, cells)) + r" \\"
