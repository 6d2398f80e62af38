"""The book of claims: every reproduction's findings as text, Markdown and one self-contained HTML page."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from mtlens.errors import FileError, InputError
from mtlens.paper.claims import Finding, asked, shown_estimate
from mtlens.paper.corrections import CORRECTIONS, REFERENCE
from mtlens.paper.glance import SETTINGS, Sentence, sentences
from mtlens.paper.registry import Reproduction, experiments, reproduce
from mtlens.report.charts import draw, figure
from mtlens.report.svg import CHART_CSS, standalone

PAPER = (
    "Sen Wu, Hongyang R. Zhang, Christopher Ré: Understanding and Improving Information Transfer in Multi-Task "
    "Learning. ICLR 2020, arXiv:2005.00944"
)


def book_names() -> list[str]:
    """Names that ``reproduce all`` runs."""
    return [name for name, chosen in experiments().items() if chosen.part_of_book]


def run_book(
    names: Sequence[str],
    *,
    settings: Sequence[str] = ("corrected", "printed"),
    quick: bool = False,
    seeds: int | None = None,
    folder: Path | None = None,
    resume: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Reproduction]:
    """Run names at settings; with a folder, every result is written as it is finished, and ``resume`` reads those
    that were run with the very same constants instead of running them again."""
    done = []
    for name in names:
        for setting in settings:
            wanted = experiments()[name].configure(setting, quick=quick, seeds=seeds)
            kept = _kept(folder, name, setting, wanted) if resume else None
            tell(f"{name}, {setting}: {'read' if kept else 'running'}")
            done.append(kept or _as_written(reproduce(name, setting=setting, quick=quick, seeds=seeds)))
            if folder is not None:
                write_results(done[-1], folder)
    return done


def _as_written(result: Reproduction) -> Reproduction:
    """The result with the digits its file keeps, so that the book says the same whether a result was run or read."""
    return Reproduction.from_json(result.as_json())


def _kept(folder: Path | None, name: str, setting: str, wanted: object) -> Reproduction | None:
    file = None if folder is None else folder / f"{name}.{setting}.json"
    if file is None or not file.is_file():
        return None
    try:
        found = Reproduction.from_json(file.read_text("utf-8"))
    except (InputError, KeyError, ValueError):  # of another version, or cut off: run it again
        return None
    return found if found.settings == wanted else None


def write_results(result: Reproduction, folder: Path) -> list[Path]:
    """``NAME.SETTING.json`` (claims and points) and ``NAME.SETTING.svg`` (the figure) in a folder."""
    stem = f"{result.experiment.name}.{result.setting}"
    texts = {folder / f"{stem}.json": result.as_json()}
    charts = result.outcome.charts()
    if charts:
        texts[folder / f"{stem}.svg"] = standalone(figure(charts, title=f"{result.experiment.title}, {result.setting}"))
    return [write_text(path, text) for path, text in texts.items()]


def write_text(path: Path, text: str) -> Path:
    make_folder(path.parent)
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise _unwritable(path, error) from None
    return path


def make_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before minutes of work whose results should go there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None
    if not os.access(folder, os.W_OK):
        raise _unwritable(folder, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def _unwritable(path: Path, error: OSError) -> FileError:
    return FileError(f"could not write {path}: {error.strerror}. Choose a folder you may write to with --out.")


# ---------------------------------------------------------------------------------------------- text


def summary(results: Iterable[Reproduction]) -> str:
    """``41 hold, 12 do not hold, 7 undecided (60 claims)``."""
    count = Counter(finding.verdict for result in results for finding in result.outcome.findings)
    total = sum(count.values())
    return (
        f"{count['holds']} hold, {count['does not hold']} do not hold, {count['undecided']} undecided ({total} claims)"
    )


def as_text(result: Reproduction) -> str:
    """Claims with verdicts and the figure's table, for a terminal."""
    shown = result.experiment
    lines = [f"{shown.name} ({result.setting}): {shown.title}", f"{shown.where}. {summary([result])}.", ""]
    for finding in result.outcome.findings:
        lines.append(f"  {finding.verdict:<14} {finding.claim.statement}")
        found = f"{shown_estimate(finding)}, n = {finding.n}, {asked(finding.claim)}"
        lines.append(f"  {'':<14} {finding.claim.quantity or 'value'}: {found}")
        lines.append(f"  {'':<14} {finding.claim.where}; {finding.claim.condition or 'no condition'}")
    for panel in result.outcome.panels:
        rows = [p for p in result.outcome.points if p.panel == panel.name]
        if rows:
            lines += [
                "",
                f"  {panel.title} ({panel.y_label})",
                f"  {'series':<46} {panel.x_label[:24]:>24}   mean      se   n",
            ]
            lines += [f"  {p.series:<46} {p.x:>24g} {p.mean:>7.4g} {p.se:>7.2g} {p.n:>3}" for p in rows]
    lines += ["", *(f"  {note}" for note in result.outcome.notes)] if result.outcome.notes else []
    return "\n".join(lines) + "\n"


def as_book(results: Sequence[Reproduction]) -> str:
    """The printed book: one line a claim, grouped by reproduction."""
    lines = []
    for result in results:
        lines.append(f"{result.experiment.name} ({result.setting}): {summary([result])}")
        lines += [
            f"  {f.verdict:<14} {f.claim.statement} {shown_estimate(f)}, n = {f.n}" for f in result.outcome.findings
        ]
    return "\n".join([*lines, "", f"In all: {summary(results)}."]) + "\n"


# ---------------------------------------------------------------------------------------------- Markdown and HTML


def as_markdown(results: Sequence[Reproduction], *, command: str, figures: str = "paper") -> str:
    """``docs/results/paper-claims.md``: written from the results, never by hand."""
    lines = [
        "# The paper's claims, tried one by one",
        "",
        f"Written by `{command}`; do not edit. {summary(results)}.",
        "",
        f"The paper: {PAPER}.",
        "",
        "A verdict follows from the 95 % t interval of the mean over seeds (paired differences): wholly beyond the",
        'threshold the claim *holds*, wholly on the other side it *does not hold*, else it is *undecided*. "Largest"',
        "marks a statement without exception: the worst draw is shown, and one counterexample refutes it. `printed`",
        "runs the paper's own setting, `corrected` the one that can show the effect. Differences of scores below",
        ".01 are not called help or harm. Cite a claim by the name in the column *where*.",
        "",
        "## At a glance",
        "",
        "The paper's own claims; controls and corrected forms follow, study by study.",
        "",
        "| study | claim | where | printed | corrected |",
        "|---|---|---|---|---|",
        *(_glance_row(sentence) for sentence in sentences(results)),
        "",
    ]
    for result in results:
        shown = result.experiment
        stem = f"{shown.name}.{result.setting}"
        lines += [f"## {shown.name}, {result.setting}", "", f"{shown.title} ({shown.where}). {shown.about}", ""]
        if result.outcome.charts():
            lines += [f"![{shown.title}, {result.setting}]({figures}/{stem}.svg)", ""]
        lines += ["| verdict | claim | where | estimate | n | condition |", "|---|---|---|---|---|---|"]
        lines += [_markdown_row(finding) for finding in result.outcome.findings]
        lines += ["", *result.outcome.notes, ""]
    lines += ["## Corrections", ""]
    lines += [f"{number}. **{c.title}.** {_escaped(c.text)}" for number, c in enumerate(CORRECTIONS, 1)]
    return "\n".join(lines).rstrip() + "\n"


def _glance_row(sentence: Sentence) -> str:
    cells = [sentence.study, _escaped(sentence.statement), sentence.where]
    for setting in SETTINGS:
        told = [f"{finding.verdict}{f' ({at})' if at else ''}" for at, finding in sentence.told(setting)]
        cells.append("; ".join(told) or "—")
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")


def _markdown_row(finding: Finding) -> str:
    claim = finding.claim
    told = "; ".join(filter(None, (claim.quantity, asked(claim)))) if finding.n else ""
    estimate = shown_estimate(finding) + (f" ({told})" if told else "")
    where = f"{claim.where} (`{claim.id}`)"
    cells = (claim.statement, where, estimate, str(finding.n), claim.condition)
    return f"| **{finding.verdict}** | " + " | ".join(map(_escaped, cells)) + " |"


def as_page(results: Sequence[Reproduction], *, command: str) -> str:
    """The book as one HTML page: offline, light and dark, figures inline."""
    environment = Environment(
        loader=PackageLoader("mtlens.paper"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["linked"] = _linked
    entries = [(r, [Markup(draw(chart)) for chart in r.outcome.charts()]) for r in results]
    return environment.get_template("book.html").render(
        entries=entries,
        paper=PAPER,
        sentences=sentences(results),
        settings=SETTINGS,
        corrections=CORRECTIONS,
        summary=summary(results),
        css=Markup(CHART_CSS),
        command=command,
        estimate=shown_estimate,
        asked=asked,
    )


def _linked(where: str) -> Markup:
    """A claim's place, with "correction 3" as a link to that entry of the list."""
    return Markup(REFERENCE.sub(r'<a href="#correction-\1">correction \1</a>', str(escape(where))))
