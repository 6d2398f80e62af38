"""The progress bar of a study: trainings done, cells decided and open. Silent off a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


class Bar:
    """Tells rich about a study's progress."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task = progress.add_task("trainings", total=None, cells="")

    def update(self, *, done: int, planned: int, decided: int, cells: int, look: int) -> None:
        text = f"{decided} of {cells} cells decided, {cells - decided} open"
        self._progress.update(self._task, completed=done, total=planned, cells=text)


@contextlib.contextmanager
def progress_bar(*, quiet: bool = False) -> Iterator[Bar | None]:
    """A bar on stderr while the block runs; None when nobody is looking."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[cells]}"), console=Console(stderr=True), transient=True) as shown:
        yield Bar(shown)
