"""The command line: one file a command, no arithmetic.

A command parses, calls one library function and hands the result to ``report``. Results go to stdout, everything
else to stderr. Heavy imports happen inside the commands, so ``mtlens --help`` stays quick.
"""

from __future__ import annotations

import inspect
import io
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from mtlens.cli.diagnose import diagnose
from mtlens.cli.fit import fit
from mtlens.cli.init import init
from mtlens.cli.plan import plan
from mtlens.cli.predict import predict
from mtlens.cli.report import report
from mtlens.cli.reproduce import reproduce
from mtlens.cli.show import show
from mtlens.cli.study import study
from mtlens.cli.tasks import tasks

app = typer.Typer(
    name="mtlens",
    help="Which tasks help or hurt each other, how big their shared part should be, and how to repair what hurts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        from mtlens import __version__

        sys.stdout.write(f"{__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # eager, with a callback of its own: a command is asked for before this body runs
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options of mtlens itself."""


def _add(command: Callable[..., Any]) -> None:
    """Register a command. The last line of its docstring, "Example: mtlens ...", ends its help page."""
    text, _, example = inspect.cleandoc(command.__doc__ or "").rpartition("Example: ")
    app.command(help=text.strip(), epilog=f"Example: {example.strip()}")(command)


for _command in (diagnose, fit, init, plan, predict, report, reproduce, show, study, tasks):
    _add(_command)


def _one_line(message: str) -> str:
    """The message with control characters spelled out: a column's name cannot break the line or move the cursor."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in message)


def main() -> None:
    """Entry point: a user's mistake ends in one sentence on stderr and exit status 2 (1 for a failure of ours)."""
    from mtlens.errors import MtlensError, TrainingError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name the terminal cannot show is no reason to stop
    try:
        app()
    except MtlensError as error:
        sys.stderr.write(f"error: {_one_line(str(error))}\n")
        raise SystemExit(1 if isinstance(error, TrainingError) else 2) from None
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(130) from None
