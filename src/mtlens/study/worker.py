"""A worker process: reads stacks from one pipe, writes what they found to another, ends when its study ends."""

from __future__ import annotations

import os
import sys
import traceback
from collections import OrderedDict
from typing import Any, BinaryIO

from mtlens.study.plan import Unit
from mtlens.study.prepare import Prepared
from mtlens.study.wire import Column, rebuild, receive, send
from mtlens.study.work import Bench

KEPT = 6  # prepared splits a worker remembers


def serve() -> None:
    """A worker in a fresh interpreter. Frames go over the original stdin and stdout; anything printed to stderr."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve_on(requests, answers)
    sys.exit(0)


def serve_on(requests: BinaryIO, answers: BinaryIO) -> None:
    """The loop of a worker: first what it is to be, then stack after stack, until the study is gone."""
    try:
        start, _ = receive(requests)
        if start["networks"]:
            _load()  # while the study makes its splits
        bench = Bench(start["seed"], start["device"])
        store = Store(requests, answers)
        send(answers, {"ready": True})
        while True:
            task, _ = receive(requests)
            send(answers, _answer(bench, store, task))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return  # the study ended, or was interrupted, or was killed


def _answer(bench: Bench, store: Store, task: dict[str, Any]) -> dict[str, Any]:
    try:
        prepared = {int(split): store.prepared(described) for split, described in task["splits"].items()}
        return {"found": bench.run([Unit.read(plain) for plain in task["units"]], prepared)}
    except (EOFError, BrokenPipeError):
        raise
    except Exception:  # a mistake of ours: the study reports it once instead of trying three workers
        return {"error": traceback.format_exc()}


def _load() -> None:
    """Import the engine; one thread for its arithmetic, because there is a worker a core."""
    import torch

    import mtlens.engine  # noqa: F401

    torch.set_num_threads(1)


class Store:
    """Arrays and splits this worker has; asks for what it lacks."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        self._pipes = requests, answers
        self._splits: OrderedDict[str, tuple[Prepared, dict[str, Column]]] = OrderedDict()

    def prepared(self, described: list[dict[str, Any]]) -> Prepared:
        key = str(described)
        if key not in self._splits:
            wanted = {plain[what] for plain in described for what in plain if what in ARRAYS and plain[what]}
            arrays = self._arrays(wanted)
            self._splits[key] = (rebuild(described, arrays), arrays)
            if len(self._splits) > KEPT:
                self._splits.popitem(last=False)
        self._splits.move_to_end(key)
        return self._splits[key][0]

    def _arrays(self, wanted: set[str]) -> dict[str, Column]:
        have = {key: value for _, arrays in self._splits.values() for key, value in arrays.items() if key in wanted}
        missing = sorted(wanted - have.keys())
        if missing:
            requests, answers = self._pipes
            send(answers, {"need": missing})
            have |= receive(requests)[1]
        return have


ARRAYS = ("dense", "raw", "y", "split", "weight", "group")


if __name__ == "__main__":
    serve()
