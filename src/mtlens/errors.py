"""One exception family. Each member is also the built-in that a stranger would catch.

A message has four parts in one or two sentences: what was asked, what was found (real values, task names),
what is needed and why, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class MtlensError(Exception):
    """Every error mtlens raises on purpose."""


class InputError(MtlensError, ValueError):
    """A value, array, table or spec that cannot be used."""


class UnknownNameError(MtlensError, KeyError):
    """A task, column, metric or method that does not exist."""

    __str__ = Exception.__str__  # KeyError would print the message in quotes


class FileError(MtlensError, OSError):
    """A file or folder that cannot be read or written."""


class MissingExtraError(MtlensError, ImportError):
    """A feature whose optional dependency is not installed."""


class TrainingError(MtlensError, RuntimeError):
    """A training that could not be carried out."""


class DataWarning(UserWarning):
    """The answer is valid but probably not what was meant."""


def unknown(what: str, name: object, known: Iterable[str], where: str = "") -> UnknownNameError:
    """The error for a name that does not exist: it lists what does and guesses what was meant.

    >>> raise unknown("task", "sst-2", ["mr", "sst2", "subj"], "tasks.toml")
    Traceback (most recent call last):
    mtlens.errors.UnknownNameError: no task named 'sst-2' in tasks.toml (tasks: mr, sst2, subj). Did you mean 'sst2'?
    """
    names = [str(k) for k in known]
    shown = ", ".join(names[:30]) + (f", ... {len(names) - 30} more" if len(names) > 30 else "")
    folded = {known.casefold(): known for known in reversed(names)}  # 'MLP' means 'mlp'
    close = [folded[found] for found in get_close_matches(str(name).casefold(), folded, n=1)]
    return UnknownNameError(
        f"no {what} named {str(name)!r}{f' in {where}' if where else ''} ({_plural(what)}: {shown or 'none'})."
        + (f" Did you mean {close[0]!r}?" if close else "")
    )


def _plural(what: str) -> str:
    """Of a noun; a setting's name (``small``, ``steps``) stays as it is written where an s says nothing."""
    if what.endswith("y") and not what.endswith(("ay", "ey", "oy")):
        return f"{what[:-1]}ies"
    if what.endswith(("ss", "us")):
        return f"{what}es"
    return what if what.endswith("s") else f"{what}s"


def missing_extra(feature: str, extra: str) -> MissingExtraError:
    """The error for a feature whose extra is not installed; it names the command that installs it."""
    return MissingExtraError(f"{feature} needs the '{extra}' extra. Install it with: pip install 'mtlens[{extra}]'")
