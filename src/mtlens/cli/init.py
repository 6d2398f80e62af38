"""``mtlens init``: a SPEC to edit."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer


def init(
    file: Annotated[Path, typer.Argument(help="Where to write the SPEC; its name ends in .toml.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is already there.")] = False,
) -> None:
    """Write a SPEC to edit: every field of a task and of a study, each with a word on what it means.

    Example: mtlens init tasks.toml
    """
    from mtlens.tasks.spec import write_template

    write_template(file, overwrite=force)
    sys.stderr.write(f"Wrote {file}. Edit it, then: mtlens tasks {shlex.quote(str(file))}\n")
