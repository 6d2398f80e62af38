"""The command line: one file a command, no arithmetic.

A command parses, calls one library function and hands the result to ``report``. Results go to stdout, everything
else to stderr. Heavy imports happen inside the commands, so ``mtlens --help`` stays quick.
"""

from __future__ import annotations

import sys

import typer

app = typer.Typer(
    name="mtlens",
    help="Which tasks help or hurt each other, how big their shared part should be, and how to repair what hurts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    """A callback makes typer keep subcommands even while there is only one."""


def main() -> None:
    """Entry point: a user's mistake ends in one sentence on stderr and exit status 2 (1 for a failure of ours)."""
    from mtlens.errors import MtlensError, TrainingError

    try:
        app()
    except MtlensError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1 if isinstance(error, TrainingError) else 2) from None
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(130) from None
