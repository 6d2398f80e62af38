"""``mtlens tasks``: what the tasks are, and what is odd about them."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer


def tasks(
    spec: Annotated[
        str, typer.Argument(help="A SPEC (.toml), a data file (.npz, .csv, .tsv, .parquet, or .gz), or an example.")
    ] = "example",
    targets: Annotated[
        str | None, typer.Option(help="Label columns of a data file, or the tasks to keep: a,b.", metavar="A,B")
    ] = None,
    missing: Annotated[
        str | None, typer.Option(help="A label value of a data file that means: no label, such as -1.")
    ] = None,
    duplicates: Annotated[
        str | None, typer.Option(help="keep, or drop: exact copies, and rows of train that are in a test part.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON (docs/json.md).")] = False,
) -> None:
    """Say what the tasks are: kinds, sizes, labels, splits; copies and leaks within and between them.

    Built-in examples: example (the paper's three tasks), example-real, example-digits.

    Example: mtlens tasks example
    """
    from mtlens.report.facts import facts_text
    from mtlens.tasks.facts import task_facts
    from mtlens.tasks.readers import read_tasks

    facts = task_facts(read_tasks(spec, targets=targets, missing=missing, duplicates=duplicates))
    sys.stdout.write(json.dumps(facts, indent=2) + "\n" if as_json else facts_text(facts))
