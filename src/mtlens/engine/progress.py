"""One bar for a call of ``train``: trainings, samples a second, time left. Silent off a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mtlens.engine.bank import Progress


@contextmanager
def watcher(state: Progress, show: bool | None) -> Iterator[Callable[[], None]]:
    """A function to call now and then; it redraws the bar from the counters in ``state``."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    began = time.perf_counter()
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("", total=state.total, rate="")

        def watch() -> None:
            rate = state.samples / max(time.perf_counter() - began, 1e-9)
            bar.update(line, completed=state.finished, rate=f"{rate:,.0f} samples/s")

        yield watch
        watch()
