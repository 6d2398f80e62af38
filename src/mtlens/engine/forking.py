"""Whether this process may be forked: said in one place, for the engine's workers and the study's."""

from __future__ import annotations

import multiprocessing
import sys
import threading

_matrix_threads = threading.Event()


def note_matrix_threads() -> None:
    """Remember that threads of this process have called the matrix library.

    It keeps books on the memory of every thread that ever called it. A fork copies those books without the threads, and
    the copy was seen to wait for them for ever, in its first product or a later one.
    """
    _matrix_threads.set()


def can_fork() -> bool:
    """From a plain process's main thread, where no CUDA is and no threads of ours have multiplied matrices.

    On Linux only: elsewhere there is no fork, or the system's own libraries do not survive one.
    """
    is_plain = threading.current_thread() is threading.main_thread() and not multiprocessing.current_process().daemon
    return sys.platform == "linux" and is_plain and not _matrix_threads.is_set() and not _has_cuda()


def _has_cuda() -> bool:
    """Asked only of a torch that is loaded: one that is not has no state that a fork could break."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())
