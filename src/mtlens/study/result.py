"""What a study found: the record that is written, read back and shown."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mtlens.errors import FileError, unknown

FORMAT = 1
VERDICTS_FILE = "verdicts.json"
TRANSFER_FILE = "transfer.csv"
PLAN_FILE = "plan.json"
COLUMNS = ("target", "source", "difference", "low", "high", "n", "p", "p_adjusted", "verdict", "runs_needed", "cause",
           "score", "family", "margin")  # fmt: skip
MARKS = {"helps": "+", "hurts": "−", "no difference": "=", "undecided": "?"}
WIDE = 12  # a matrix with more tasks is shown as a list of decided cells


@dataclass(frozen=True)
class StudyResult:
    """The verdicts of a study; ``verdicts`` is exactly what ``verdicts.json`` holds (see ``docs/json.md``)."""

    verdicts: Mapping[str, Any]
    folder: Path | None = None

    @classmethod
    def open(cls, folder: str | Path) -> StudyResult:
        """Read a finished (or interrupted) run's folder."""
        path = Path(folder) / VERDICTS_FILE
        try:
            found = json.loads(path.read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise FileError(
                f"{folder} holds no {VERDICTS_FILE}, so no study has ended there. Run: mtlens study SPEC --out {folder}"
            ) from None
        except (OSError, ValueError) as error:
            raise FileError(f"cannot read {path}: {error}. Run the same study again: its ledger is kept.") from error
        if not isinstance(found, dict) or found.get("format") != FORMAT or not {"tasks", "transfer"} <= found.keys():
            form = found.get("format") if isinstance(found, dict) else None
            raise FileError(
                f"{path} is not what a study of this mtlens writes (format {form!r}, needed {FORMAT}). Run the same "
                "study again: its ledger is kept."
            )
        return cls(found, Path(folder))

    def save(self, folder: str | Path) -> Path:
        """Write ``verdicts.json`` and ``transfer.csv``, each whole or not at all."""
        target = Path(folder)
        write_whole(target / VERDICTS_FILE, self.to_json())
        write_whole(target / TRANSFER_FILE, self.to_csv())
        return target

    def to_json(self) -> str:
        return json.dumps(self.verdicts, indent=1, allow_nan=False, ensure_ascii=False) + "\n"

    def to_csv(self) -> str:
        """The transfer table: a line for every ordered pair, and the diagonal."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.transfer)
        return text.getvalue()

    @property
    def transfer(self) -> Sequence[Mapping[str, Any]]:
        """Every ordered pair and the diagonal, target by target."""
        cells: Sequence[Mapping[str, Any]] = self.verdicts["transfer"]
        return cells

    @property
    def names(self) -> list[str]:
        return [task["name"] for task in self.verdicts["tasks"]]

    def cell(self, target: str, source: str) -> Mapping[str, Any]:
        for name in (target, source):
            if name not in self.names:
                raise unknown("task", name, self.names)
        return next(c for c in self.transfer if c["target"] == target and c["source"] == source)

    def counts(self) -> dict[str, int]:
        """How many ordered pairs have each verdict."""
        found = dict.fromkeys(MARKS, 0)
        for cell in self.transfer:
            if cell["target"] != cell["source"]:
                found[cell["verdict"]] += 1
        return found

    @property
    def hurts(self) -> list[Mapping[str, Any]]:
        """Cells and joint trainings that are proved to hurt."""
        return [c for c in (*self.transfer, *self.verdicts["together"]) if c["verdict"] == "hurts"]

    def table(self) -> str:
        """The answer as Markdown: the matrix (or, with many tasks, the decided cells), then all tasks together."""
        parts = [self._matrix() if len(self.names) <= WIDE else self._decided(), self._together()]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _matrix(self) -> str:
        names = self.names
        lines = [
            "| target \\ source | " + " | ".join(map(escaped, names)) + " | alone |",
            "|---" * (len(names) + 2) + "|",
        ]
        cells = {(c["target"], c["source"]): c for c in self.transfer}
        for target in names:
            shown = ["" if s == target else short(cells[target, s]) for s in names]
            alone = cells[target, target].get("score")
            lines.append(f"| {escaped(target)} | " + " | ".join(shown) + f" | {_number(alone, signed=False)} |")
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts().items())
        legend = (
            "Joint minus alone on test rows, in units of the metric; + helps, − hurts, = no difference, ? undecided."
        )
        return "\n".join([*lines, "", f"{legend} {counts}."])

    def _decided(self) -> str:
        decided = [c for c in self.transfer if c["verdict"] in ("helps", "hurts")]
        decided.sort(key=lambda c: -abs(c["difference"]))
        lines = ["| target | source | difference | 95 % | n | verdict |", "|---|---|---|---|---|---|"]
        for c in decided[:40]:
            interval = f"{_number(c['low'])} .. {_number(c['high'])}"
            lines.append(
                f"| {escaped(c['target'])} | {escaped(c['source'])} | {_number(c['difference'])} | {interval} "
                f"| {c['n']} | {c['verdict']} |"
            )
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts().items())
        return "\n".join(
            [*(lines if decided else []), "", f"{len(self.names)} tasks; ordered pairs: {counts}."]
        ).strip()

    def _together(self) -> str:
        rows = [c for c in self.verdicts["together"] if c["n"]]
        if not rows or len(self.names) < 3:
            return ""
        lines = ["| target | all together − alone | 95 % | n | verdict |", "|---|---|---|---|---|"]
        for c in rows[:40]:
            interval = f"{_number(c['low'])} .. {_number(c['high'])}"
            lines.append(
                f"| {escaped(c['target'])} | {_number(c['difference'])} | {interval} | {c['n']} | {c['verdict']} |"
            )
        pooled = self.verdicts["pooled"]["together"]
        if pooled["difference"] is None:  # no mean over tasks of different metrics
            return "\n".join(lines)
        interval = f"{_number(pooled['low'])} .. {_number(pooled['high'])}"
        lines.append(
            f"| **mean of {pooled['cells']}** | {_number(pooled['difference'])} | {interval} | {pooled['n']} "
            f"| {pooled['verdict']} |"
        )
        return "\n".join(lines)

    def why(self, target: str, source: str) -> str:
        """What is known about one cell, in words: the numbers, and the measured causes when it hurts."""
        from mtlens.study.causes import explain

        return explain(self.cell(target, source), self.verdicts.get("causes", []))

    def known(self, target: str, source: str) -> dict[str, Any]:
        """One cell with the contrasts that were measured for it: what :meth:`why` puts into words."""
        causes = self.verdicts.get("causes", [])
        contrasts = [c["contrasts"] for c in causes if (c["target"], c["source"]) == (target, source)]
        return {**self.cell(target, source), "contrasts": contrasts[0] if contrasts else []}

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts().items())
        return f"StudyResult({len(self.names)} tasks; {counts})"


def short(cell: Mapping[str, Any]) -> str:
    """A cell of the matrix."""
    if cell["difference"] is None:
        return "·"
    return f"{_number(cell['difference'])} {MARKS[cell['verdict']]}"


def escaped(name: str) -> str:
    """A task's name inside a Markdown table."""
    return name.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _number(value: Any, *, signed: bool = True) -> str:
    if value is None:
        return "–"
    return f"{value:+.3f}" if signed else f"{value:.3f}"


def plain_json(value: Any) -> Any:
    """The same with numbers JSON knows: numpy scalars become plain, what is not finite becomes null.

    (Inputs of 1e150 overflow: there is no such score.)
    """
    if isinstance(value, dict):
        return {str(key): plain_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, never sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        why = "the disk is full" if error.errno == 28 else error.strerror
        raise FileError(
            f"cannot write {path}: {why}. The ledger keeps what was measured; make room and run the same command."
        ) from error
