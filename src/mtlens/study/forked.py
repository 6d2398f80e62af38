"""Worker processes forked from the study: what it has imported is theirs at once.

A fresh interpreter spends a second or two on imports before it trains anything, on every core. A fork spends none. It
is done where it is known to be safe (:mod:`mtlens.engine.forking`), and made safe the rest of the way: the child uses
one thread, so no thread pool of the parent is missed; it holds none of the parent's files, so a lock or a pipe of a
study that was killed does not live on in it; and it ends without the parent's clean-up. A child that does not say that
it is ready is given up for a fresh interpreter (:mod:`mtlens.study.executors`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

Serve = Callable[[BinaryIO, BinaryIO], None]


class ForkedProcess:
    """A child with a pipe each way; what a worker needs of :class:`subprocess.Popen`."""

    def __init__(self, serve: Serve) -> None:
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        with warnings.catch_warnings():  # Python warns that a fork of a process with threads may lock up: see above
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _live(serve, requests, answers)
        os.close(requests)
        os.close(answers)
        self.stdin, self.stdout = os.fdopen(self._requests, "wb"), os.fdopen(self._answers, "rb")
        self.returncode: int | None = None

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def _live(serve: Serve, requests: int, answers: int) -> None:
    """The child's life. It never returns into the parent's code, and leaves the parent's buffers unwritten."""
    status = 1
    try:
        os.setsid()  # Ctrl-C reaches the study, which ends its workers
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        _close_all_but({0, 1, 2, requests, answers})
        os.dup2(2, 1)  # anything printed goes to stderr
        _one_thread()
        serve(os.fdopen(requests, "rb"), os.fdopen(answers, "wb"))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _close_all_but(kept: set[int]) -> None:
    """Close every file of the parent: its lock, its ledger, the pipes of other workers."""
    for number in [int(file.name) for file in Path("/proc/self/fd").iterdir()]:
        if number not in kept:
            with contextlib.suppress(OSError):  # the listing's own is closed already
                os.close(number)


def _one_thread() -> None:
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
