"""The command line as it was said, for a run's record."""

from __future__ import annotations

from typing import Any

SAID = "COMMANDLINE"


def command_said(context: Any) -> list[str]:
    """The words of the running command that were given, in the order of its declaration; defaults are left out."""
    words = ["mtlens", str(context.info_name)]
    options: list[str] = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        if source is None or source.name != SAID:
            continue
        value = context.params[parameter.name]
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif parameter.is_flag:
            options.append(parameter.opts[0])
        else:
            options += [parameter.opts[0], str(value)]
    return words + options
