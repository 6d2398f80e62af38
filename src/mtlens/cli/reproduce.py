"""``mtlens reproduce``: rerun the paper's studies and say, claim by claim, what holds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def reproduce(
    name: Annotated[str, typer.Argument(help="A study's name (see --list), or 'all' for the whole book.")] = "",
    list_names: Annotated[bool, typer.Option("--list", help="List the names and stop.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds and a coarser grid.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for results, figures and (with 'all') the page.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds.")] = None,
    setting: Annotated[
        str | None,
        typer.Option(help="printed or corrected; 'all' runs both by default. sentiment-*: also script, reduced."),
    ] = None,
    constants: Annotated[
        list[str] | None, typer.Option("--set", help="Change a constant of NAME, as name=value (repeatable).")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="With 'all': keep results in --out run with the same constants.")
    ] = False,
) -> None:
    """Rerun a study of the paper and say, claim by claim, what holds.

    Example: mtlens reproduce fig2-linear --quick
    """
    from mtlens.errors import InputError

    if list_names:
        _list()
        return
    if not name:
        raise InputError("reproduce needs a name. List them with 'mtlens reproduce --list', or give 'all'.")
    if name == "all":
        if constants:
            raise InputError("--set changes one study's constants, and 'all' runs many. Give one name with --set.")
        _all(quick, as_json, out, seeds, setting, resume)
    else:
        if resume:
            raise InputError("--resume goes on with a book that stopped. Give it with 'all' (one study is run anew).")
        _one(name, quick, as_json, out, seeds, setting, constants or [])


def _list() -> None:
    from mtlens.paper.registry import experiments

    for name, chosen in experiments().items():
        print(f"{name:<24} {chosen.title}" if sys.stdout.isatty() else name)


def _one(
    name: str,
    quick: bool,
    as_json: bool,
    out: Path | None,
    seeds: int | None,
    setting: str | None,
    constants: list[str],
) -> None:
    from mtlens.paper.book import as_text, make_folder, write_results
    from mtlens.paper.registry import experiment, parse_constants, reproduce

    changes = parse_constants(constants) | ({} if seeds is None else {"seeds": seeds})
    experiment(name).configure(setting or "corrected", quick=quick, **changes)  # mistakes first, then the folder
    if out is not None:
        make_folder(out)
    result = reproduce(name, setting=setting or "corrected", quick=quick, **changes)
    print(result.as_json() if as_json else as_text(result), end="")
    if out is not None:
        _say(f"wrote {', '.join(str(path) for path in write_results(result, out))}")


def _all(quick: bool, as_json: bool, out: Path | None, seeds: int | None, setting: str | None, resume: bool) -> None:
    import json

    from mtlens.paper.book import as_book, as_markdown, as_page, book_names, make_folder, run_book, write_text
    from mtlens.paper.real_data import reproduction

    settings = (setting,) if setting else ("corrected", "printed")
    folder = out or Path("mtlens-paper")
    make_folder(folder)
    results = run_book(
        book_names(), settings=settings, quick=quick, seeds=seeds, folder=folder / "paper", resume=resume, tell=_say
    )
    results.append(reproduction())
    print(json.dumps([r.as_dict() for r in results], indent=1, ensure_ascii=False) if as_json else as_book(results))
    command = "mtlens reproduce all" + " --quick" * quick + (f" --seeds {seeds}" if seeds else "")
    page = write_text(folder / "paper-claims.html", as_page(results, command=command))
    book = write_text(folder / "paper-claims.md", as_markdown(results, command=command))
    _say(f"wrote {page} and {book}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
