"""The reference page of the command line, generated from what the commands declare for their own help.

``make docs`` writes it to docs/cli.md; a test fails when the two differ.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, CommandInfo

from mtlens.cli import app

_INTRO = """\
# The command line

Generated from the commands' help by `make docs`; do not edit. Results go to stdout, everything else to stderr.
Exit status: 0 done, 1 something failed while running, 2 a mistake in what was asked.
`mtlens --version` prints the version.
"""
_VALUES = {str: "TEXT", int: "N", float: "X", Path: "PATH"}


def reference() -> str:
    """The whole page as Markdown."""
    commands = sorted(app.registered_commands, key=name_of)
    return "\n".join([_INTRO, *(_section(command) for command in commands)])


def name_of(command: CommandInfo) -> str:
    return command.name or _callback(command).__name__.replace("_", "-")


def example_of(command: CommandInfo) -> str | None:
    """The command line that a command's help ends in, or None."""
    epilog = (command.epilog or "").strip()
    return epilog.removeprefix("Example: ") or None if epilog.startswith("Example:") else None


def _callback(command: CommandInfo) -> Callable[..., Any]:
    assert command.callback is not None  # typer makes commands from functions only
    return command.callback


def _section(command: CommandInfo) -> str:
    hints = get_type_hints(_callback(command), include_extras=True)
    hints.pop("return", None)
    arguments: list[tuple[str, str]] = []
    options: list[tuple[str, str]] = []
    for name, parameter in inspect.signature(_callback(command)).parameters.items():
        if hints[name] is typer.Context:
            continue  # handed over by typer, not said by anyone
        kind, info = _declared(hints[name])
        listed = arguments if isinstance(info, ArgumentInfo) else options
        listed.append((_spelling(name, kind, info, parameter), _help(info, parameter)))
    usage = " ".join([f"mtlens {name_of(command)}", *(spelled for spelled, _ in arguments), "[OPTIONS]"])
    lines = [f"## mtlens {name_of(command)}", "", f"    {usage}", "", (command.help or "").strip(), ""]
    lines += [f"- `{spelled}`: {text}" for spelled, text in arguments + options]
    return "\n".join([*lines, "", f"    {example_of(command)}", ""])


def _declared(hint: Any) -> tuple[Any, Any]:
    """The type and the typer record of ``Annotated[type, typer.Option(...)]``."""
    if get_origin(hint) is not Annotated:
        return hint, None
    kind, info = get_args(hint)[:2]
    return kind, info


def _spelling(name: str, kind: Any, info: Any, parameter: inspect.Parameter) -> str:
    if isinstance(info, ArgumentInfo):
        shown = (info.metavar or name).upper()
        return shown if _is_required(parameter) else f"[{shown}]"
    # Inside Annotated, typer takes the first spelling for the default until it builds the command.
    declared = [flag for flag in (info.default, *(info.param_decls or ())) if isinstance(flag, str)] if info else []
    flags = ", ".join(declared or [f"--{name.replace('_', '-')}"])
    return flags if _base(kind) is bool else f"{flags} {getattr(info, 'metavar', None) or _value(kind)}"


def _base(kind: Any) -> Any:
    """The type inside ``X | None`` or ``list[X]``."""
    inner = [part for part in get_args(kind) if part is not type(None)]
    return _base(inner[0]) if inner else kind


def _value(kind: Any) -> str:
    return _VALUES.get(_base(kind), "VALUE")


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty or parameter.default is ...


def _help(info: Any, parameter: inspect.Parameter) -> str:
    said = " ".join((getattr(info, "help", None) or "").split())
    default = parameter.default
    silent = _is_required(parameter) or default is None or default in (False, "", [], ())
    return said if silent else f"{said} Default: {default}."


if __name__ == "__main__":
    sys.stdout.write(reference())
