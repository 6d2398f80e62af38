"""``docs/results/sentiment.md``: what was run, the paper's number beside ours, every claim; from result files only."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mtlens.errors import FileError
from mtlens.paper.book import summary, write_text
from mtlens.paper.claims import Finding, shown_estimate
from mtlens.paper.outcome import Point
from mtlens.paper.registry import Reproduction
from mtlens.paper.sentiment import LITERATURE, PRINTED_ALONE, PRINTED_JOINT, pairs_of

INTRODUCTION = """# The sentence tasks: the paper's sentiment experiments on the real data

Written by `python benchmarks/gpu_sentiment.py --page FILE` from the result files beside it; do not edit.

Six tasks (SST, MR, CR, SUBJ, MPQA, TREC), 100-dimensional GloVe vectors. SST and TREC keep their official test sets,
the others are split 80/10/10 anew for every seed; the epoch is chosen on validation rows, test rows score it once.
`corrected` removes from every task's training rows the sentences that *any* task holds in validation or test (the sets
overlap: 7,531 of SST's 9,613 sentences are in MR, 4,179 of MR's 10,662 in SUBJ), reads the LSTM's last word and keeps
the vectors frozen. `printed` is the paper's text: vectors fine-tuned, Algorithm 1 with the shared module fixed, shared
sentences left in. `script` is what the authors' public script does. Intervals are 95 % t intervals over seeds; training
rows of different seeds overlap, so they are somewhat too narrow, and for SST and TREC (one fixed test set) they cover
the noise of training only. Rounding acts like a seed more: 71 aligned trainings of width 200, one by one and as stacks,
ended 1.5 points apart (standard deviation of a task's test accuracy; mean -0.19, standard error 0.12), and the same
training in float32 and in float64 ends at other epochs. It is in every interval below, and no single training is to be
read closer than that. Verdicts: *holds* or *does not hold* when the interval lies wholly on one side.
What the shared sentences alone do to the scores: [sentiment-shared-sentences.md](sentiment-shared-sentences.md).
"""


def read_results(folder: Path) -> list[Reproduction]:
    """Every ``sentiment-*.json`` of a folder, in the order of their names."""
    files = sorted(folder.glob("sentiment-*.json"))
    if not files:
        raise FileError(
            f"{folder} holds no sentiment-*.json. Run benchmarks/gpu_sentiment.py with --out {folder} first."
        )
    return [Reproduction.from_json(file.read_text("utf-8")) for file in files]


def write_page(folder: Path, page: Path) -> Path:
    """The page of all results in a folder; figures are referred to, not copied."""
    timings = [file.read_text("utf-8").strip() for file in sorted(folder.glob("timing.*.txt"))]
    relative = Path(os.path.relpath(folder, page.parent)).as_posix()
    return write_text(page, as_page(read_results(folder), timings, relative))


def as_page(results: Sequence[Reproduction], timings: Sequence[str], figures: str) -> str:
    """The page's Markdown."""
    lines = [INTRODUCTION, f"In all: {summary(results)}.", ""]
    if timings:
        lines += ["## What was run", "", "```", *timings, "```", ""]
    for result in results:
        lines += _section(result, figures)
    return "\n".join(lines).rstrip() + "\n"


def _section(result: Reproduction, figures: str) -> list[str]:
    stem = f"{result.experiment.name}.{result.setting}"
    c = result.settings
    lines = [f"## {result.experiment.name}, {result.setting}", "", f"{result.experiment.title} {_run(result)}", ""]
    if result.outcome.charts():
        lines += [f"![{result.experiment.title}]({figures}/{stem}.svg)", ""]
    if any(point.panel == "single" for point in result.outcome.points):
        lines += _single_table(result.outcome.points, c.tasks) + _pair_table(result.outcome.points, pairs_of(c))
    if any(point.panel == "transfer" for point in result.outcome.points):
        lines += _transfer_table(result.outcome.points, [name for name in c.tasks if name != c.tasks[0]])
    if any(point.panel == "leak" for point in result.outcome.points):
        lines += _leak_table(result.outcome.points, c.tasks)
    lines += _claims(result.outcome.findings)
    return [*lines, "", *(note for note in result.outcome.notes if "capacities chosen" in note), ""]


def _run(result: Reproduction) -> str:
    c = result.settings
    return (
        f"{c.seeds} seeds, width {c.capacity}, {c.embeddings} vectors, at most {c.epochs} epochs, "
        f"learning rate {c.lr:g}, shared sentences {'removed' if c.duplicates == 'drop' else 'kept'}."
    )


def _claims(findings: Sequence[Finding]) -> list[str]:
    """One row a claim; a condition that most share is said once."""
    usual = Counter(finding.claim.condition for finding in findings).most_common(1)[0][0]
    lines = [f"Condition, unless the claim says another: {usual}.", ""]
    return [*lines, "| verdict | claim | ours | n |", "|---|---|---|---|", *(_row(f, usual) for f in findings)]


def _row(finding: Finding, usual: str) -> str:
    claim = finding.claim
    ours = shown_estimate(finding) + (f" ({claim.quantity})" if claim.quantity else "")
    said = claim.statement if claim.condition == usual else f"{claim.statement} ({claim.condition})"
    return (
        "| "
        + " | ".join(cell.replace("|", "\\|") for cell in (f"**{finding.verdict}**", said, ours, str(finding.n)))
        + " |"
    )


def _of(points: Sequence[Point], panel: str, series: str) -> dict[int, Point]:
    return {int(p.x): p for p in points if (p.panel, p.series) == (panel, series)}


def _shown(point: Point | None) -> str:
    if point is None:
        return ""
    return f"{point.mean:.1f} [{point.low:.1f}, {point.high:.1f}]" if point.n > 1 else f"{point.mean:.1f}"


def _single_table(points: Sequence[Point], tasks: Sequence[str]) -> list[str]:
    ours = _of(points, "single", "alone")
    longer = _of(points, "single", "alone, twice the epochs")
    lines = [
        "| task alone | printed | literature | ours (test accuracy, %) | twice the epochs |",
        "|---|---|---|---|---|",
    ]
    for place, name in enumerate(tasks):
        low, high = LITERATURE[name]
        cells = f"{_shown(ours.get(place))} | {_shown(longer.get(place))}"
        lines.append(f"| {name} | {PRINTED_ALONE[name]} | {low} to {high} | {cells} |")
    return [*lines, ""]


def _pair_table(points: Sequence[Point], pairs: Sequence[tuple[str, str]]) -> list[str]:
    series = (
        ("change", "joint minus alone"),
        ("change", "Algorithm 1 minus joint"),
        ("change", "Algorithm 1 minus alone, twice the epochs"),
    )
    scores = (("score", "before"), ("score", "after"), ("normalised", "before"), ("normalised", "after"))
    lines = [
        "| pair | joint minus alone, points | Algorithm 1 minus joint, points "
        "| Algorithm 1 minus alone for twice the epochs | score before | after | normalised before | after |",
        "|---|---|---|---|---|---|---|---|",
    ]
    found = {key: _of(points, *key) for key in (*series, *scores)}
    for place, pair in enumerate(pairs):
        cells = [_shown(found[key].get(place)) for key in series]
        cells += [f"{found[key][place].mean:.3f}" if place in found[key] else "" for key in scores]
        lines.append(f"| {' + '.join(pair)} | {' | '.join(cells)} |")
    return [*lines, ""]


def _transfer_table(points: Sequence[Point], targets: Sequence[str]) -> list[str]:
    series = list(dict.fromkeys(p.series for p in points if p.panel == "transfer"))
    lines = [f"| target | {' | '.join(series)} |", "|---" * (len(series) + 1) + "|"]
    for place, name in enumerate(targets):
        lines.append(f"| {name} | {' | '.join(_shown(_of(points, 'transfer', s).get(place)) for s in series)} |")
    return [*lines, ""]


def _leak_table(points: Sequence[Point], tasks: Sequence[str]) -> list[str]:
    series = list(dict.fromkeys(p.series for p in points if p.panel == "leak"))
    lines = [f"| task | printed alone | printed joint | {' | '.join(series)} |", "|---" * (len(series) + 3) + "|"]
    for place, name in enumerate(tasks):
        cells = [_shown(_of(points, "leak", s).get(place)) for s in series]
        lines.append(f"| {name} | {PRINTED_ALONE[name]} | {PRINTED_JOINT[name]} | {' | '.join(cells)} |")
    return [*lines, ""]
