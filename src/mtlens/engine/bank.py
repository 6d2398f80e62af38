"""Runs of many members as stacks, on as many threads as there are cores.

PyTorch releases the interpreter's lock inside its operations, so two threads with a stack each and one thread per
operation use two cores nearly as well as two processes do (measured 1.77x against 1.86x), share the data without
copying it, and need no guard in the user's script.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from mtlens.engine import evaluate
from mtlens.engine.assemble import model_of, net_of
from mtlens.engine.forking import note_matrix_threads
from mtlens.engine.layout import Layout, layout_of
from mtlens.engine.order import steps_per_epoch
from mtlens.engine.prepare import Member
from mtlens.engine.result import Trained
from mtlens.engine.shelf import Shelf
from mtlens.engine.stack import Run, Stack, in_batches
from mtlens.engine.store import Store
from mtlens.tasks.task import SPLIT_NAMES

CHUNK = {"shared": 32, "each": 32, "mixed": 128}  # models a stack; measured: flat up to here, slower by 512
MOST_NUMBERS = 1 << 24  # parameters of a stack on a CPU: with gradients, moments and best values five times that
READ_TOGETHER = 256  # models read back from a stack at a time: the copies stay small beside it
DEVICE_CHUNK = 8192  # measured flat from 2,048; memory ends it earlier for wide models, and halves the stack


@dataclass(eq=False)
class Bucket:
    """Runs of one layout that wait for a place; ``size`` models make a stack."""

    layout: Layout
    store: Store
    pool: list[Member]
    waiting: deque[Run]
    size: int

    @property
    def work(self) -> int:
        """Steps still to do, to start the longest bucket first."""
        return sum(steps_per_epoch(run.member) * run.member.training.epochs for run in self.waiting)


@dataclass(eq=False)
class Progress:
    """Counters that the workers raise and the caller's thread shows."""

    total: int
    finished: int = 0
    samples: int = 0
    shelf: Shelf | None = None  # where finished trainings are written
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Bank:
    """All stackable members of a call."""

    def __init__(
        self,
        members: Sequence[tuple[int, Member]],
        *,
        device: torch.device,
        keep: str,
        workers: int,
        progress: Progress,
    ) -> None:
        self.keep, self.progress, self.device = keep, progress, device
        self.workers = 1 if device.type != "cpu" else workers
        self.results: dict[int, Trained] = {}
        self._error: BaseException | None = None
        self.buckets = self._make_buckets(members, device)

    def _make_buckets(self, members: Sequence[tuple[int, Member]], device: torch.device) -> list[Bucket]:
        groups: dict[Layout, list[Run]] = {}
        for number, member in members:
            groups.setdefault(layout_of(member), []).append(Run(number, member))
        stores: dict[tuple[str, int], list[Run]] = {}
        for runs in groups.values():
            stores.setdefault(store_key(runs[0].member), []).extend(runs)
        made = {
            key: Store([run.member for run in runs], getattr(torch, key[0]), device) for key, runs in stores.items()
        }
        buckets = []
        for layout, runs in groups.items():
            store = made[store_key(runs[0].member)]
            pool = representatives(runs)
            size = stack_size(len(runs), self.workers, _chunk(layout, pool, device))
            runs.sort(key=lambda run: -steps_per_epoch(run.member) * run.member.training.epochs)
            buckets.append(Bucket(layout, store, pool, deque(runs), size))
        return buckets

    def run(self, watch: Callable[[], None]) -> dict[int, Trained]:
        """Train everything; ``watch`` is called now and then from the caller's thread. Ctrl-C keeps what is done."""
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self.workers)]
        before = torch.get_num_threads()
        note_matrix_threads()
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.05)
                    watch()
            watch()  # a call that ends before the first look is seen, too
        except KeyboardInterrupt:
            self.progress.stop.set()
            for thread in threads:
                thread.join()
        finally:
            torch.set_num_threads(before)
        if self._error is not None:
            raise self._error
        return self.results

    def _work(self) -> None:
        torch.set_num_threads(1)
        try:
            with torch.inference_mode(), self._on_device():
                while not self.progress.stop.is_set() and (taken := self._take()) is not None:
                    self._train(*taken)
        except BaseException as error:
            self._error = error
            self.progress.stop.set()

    def _on_device(self) -> AbstractContextManager[Any]:
        """A thread starts on the first card: streams and graphs must be made on the one asked for."""
        device = self.device
        return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

    def _take(self) -> tuple[Bucket, list[Run]] | None:
        """The next stack: from the bucket with most work left."""
        with self.progress.lock:
            open_buckets = [bucket for bucket in self.buckets if bucket.waiting]
            if not open_buckets:
                return None
            bucket = max(open_buckets, key=lambda b: b.work)
            return bucket, [bucket.waiting.popleft() for _ in range(min(bucket.size, len(bucket.waiting)))]

    def _train(self, bucket: Bucket, runs: list[Run]) -> None:
        stack: Stack | None = None
        fits = True
        try:
            stack = Stack(bucket.layout, runs, bucket.pool, bucket.store)
            while stack.live and not self.progress.stop.is_set():
                self._end_epochs(bucket, stack, stack.run_to_epoch_end(self.progress.stop.is_set))
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            fits = False
        on_stack = [run for run in (runs if stack is None else stack.runs) if run is not None]
        left = [run for run in on_stack if run.number not in self.results]
        stack = None  # its memory is free before a smaller one is made
        if self.progress.stop.is_set():
            for run in left:
                self.results[run.number] = _unfinished(run, "interrupted")
        elif not fits:
            self._retry_smaller(bucket, left)

    def _end_epochs(self, bucket: Bucket, stack: Stack, ended: list[int]) -> None:
        if not ended:
            return
        runs = {place: run for place in ended if (run := stack.runs[place]) is not None}
        valid = evaluate.scores(stack, ended, "valid", best=False, standardised=True)
        losses = stack.mean_losses(ended)
        better = [
            place
            for (place, run), loss in zip(runs.items(), losses, strict=True)
            if run.tracker.end_epoch(loss, valid.get(place, {})) and run.member.training.select == "best"
        ]
        if better:  # who takes the last epoch reads it from the stack when it ends
            stack.keep(better)
        done = [place for place, run in runs.items() if run.tracker.is_done]
        with self.progress.lock:
            self.progress.samples += stack.index.shape[2] * sum(stack.length[place] for place in ended)
        if done:
            self._finish(stack, done)
        stack.next_epoch([place for place, run in runs.items() if not run.tracker.is_done])
        if done:
            stack.replace(self._successors(bucket, done))

    def _successors(self, bucket: Bucket, done: list[int]) -> dict[int, Run | None]:
        with self.progress.lock:
            return {place: bucket.waiting.popleft() if bucket.waiting else None for place in done}

    def _finish(self, stack: Stack, done: list[int]) -> None:
        """Scores, predictions and models of members that ended."""
        runs = {place: run for place in done if (run := stack.runs[place]) is not None}
        sound = [place for place, run in runs.items() if not run.tracker.failed]
        scores = {split: evaluate.scores(stack, sound, split, best=True) for split in SPLIT_NAMES}
        finished = {place: _unfinished(run, run.tracker.reason) for place, run in runs.items()}
        for place in sound:
            finished[place].scores = {split: own[place] for split, own in scores.items() if place in own}
        self._add_kept(stack, {place: finished[place] for place in sound})
        for place, run in runs.items():
            self.results[run.number] = finished[place]
            if self.progress.shelf is not None:
                self.progress.shelf.put(finished[place])
        with self.progress.lock:
            self.progress.finished += len(done)

    def _add_kept(self, stack: Stack, finished: dict[int, Trained]) -> None:
        """Predictions and models, where they are asked for."""
        if self.keep == "predictions":
            found = {split: evaluate.predictions(stack, list(finished), split) for split in SPLIT_NAMES}
            for place, trained in finished.items():
                trained.predictions = {split: own[place] for split, own in found.items() if place in own}
        if self.keep != "scores":
            with torch.inference_mode(False), torch.no_grad():
                for places in in_batches(list(finished), READ_TOGETHER):
                    for place, values in zip(places, stack.values(places), strict=True):
                        run = stack.runs[place]
                        assert run is not None
                        finished[place].model = model_of(run.member, net_of(run.member, values))

    def _retry_smaller(self, bucket: Bucket, runs: list[Run]) -> None:
        """Put runs back and halve the stack; a model that does not fit alone ends with that reason."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        with self.progress.lock:
            if bucket.size == 1:
                for run in runs:
                    self.results[run.number] = _unfinished(run, "out of memory with a stack of one model")
                return
            bucket.size = max(1, min(bucket.size, len(runs)) // 2)
            bucket.waiting.extendleft(reversed([Run(run.number, run.member) for run in runs]))


def representatives(runs: Sequence[Run]) -> list[Member]:
    """One member of every capacity, and the one with the longest epoch: all that a stack must know of its pool.

    Nobody else holds the members then, so that each is freed when its training ends.
    """
    longest = max(runs, key=lambda run: steps_per_epoch(run.member)).member
    return [longest, *{run.member.training.capacity: run.member for run in runs}.values()]


def _chunk(layout: Layout, pool: Sequence[Member], device: torch.device) -> int:
    """Most models of a stack: as many as are worth it, and on a CPU as many as keep its parameters small."""
    if device.type != "cpu":
        return DEVICE_CHUNK
    trunk = pool[0].family.stacked(pool[0].rows, [member.training.capacity for member in pool])
    assert trunk is not None
    return min(CHUNK[layout.mode], max(1, MOST_NUMBERS // trunk.num_parameters))


def store_key(member: Member) -> tuple[str, int]:
    """Members with equal keys share a store: a type of numbers and a width.

    The width is ``-d`` for texts of d-wide frozen vectors, and 0 for texts whose vectors each member trains.
    """
    if member.rows.vocabulary and member.family.learns_tables:
        return member.training.dtype, 0
    vectors = member.rows.vectors
    width = member.rows.width if not member.rows.vocabulary or vectors is None else -int(vectors.shape[1])
    return member.training.dtype, width


def stack_size(count: int, workers: int, chunk: int) -> int:
    """Models a stack, so that all workers get equally many full stacks of at most ``chunk``.

    >>> stack_size(75, 2, 32), stack_size(10_000, 2, 32), stack_size(3, 2, 32)
    (19, 32, 2)
    """
    rounds = -(-count // (workers * chunk))
    return -(-count // (workers * rounds))


def _unfinished(run: Run, reason: str) -> Trained:
    history = run.tracker.history(run.member)
    return Trained(run.member.training, history=history, seconds=run.seconds, reason=reason)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a device or here."""
    said = str(error)  # PyTorch's CPU allocator raises a plain RuntimeError: the first on Windows, the second elsewhere
    told = "not enough memory" in said or "can't allocate memory" in said
    return told or isinstance(error, (MemoryError, torch.OutOfMemoryError))
