"""Where stacks run: in this process, in local worker processes, or on a Ray cluster.

An executor is given stacks and yields each with what it found, in any order; tables do not depend on that order.
A worker that dies takes nothing with it but the stack it was on, which another worker repeats.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any, BinaryIO, Protocol, cast

from mtlens.engine.forking import can_fork
from mtlens.errors import TrainingError, missing_extra, unknown
from mtlens.study.forked import ForkedProcess
from mtlens.study.plan import Stack
from mtlens.study.prepare import Prepared
from mtlens.study.settings import EXECUTORS
from mtlens.study.wire import Outgoing, receive, send
from mtlens.study.work import Bench
from mtlens.study.worker import serve_on

Found = list[dict[str, Any]]
Prepare = Callable[[int], Prepared]
MOST_DEATHS = 3  # a stack that kills this many workers is given up, and says so
KEPT = 6  # described splits kept in memory
TICK = 0.5  # seconds between looks at the clock while workers work
FORK_SECONDS = 30.0  # a forked worker has nothing to load; one that is silent for so long is locked up


class Executor(Protocol):
    """``run`` yields ``(stack, found)`` for every stack, and ``None`` now and then so that the caller can act."""

    def run(self, stacks: Sequence[Stack]) -> Iterator[tuple[Stack, Found] | None]: ...

    def warm(self) -> None:
        """Get ready in the background: there will be work."""

    def close(self) -> None: ...


def executor_of(
    kind: str, prepare: Prepare, *, seed: int, device: str, tokens: bool, workers: int | None, networks: bool = True
) -> Executor:
    """The executor of that name. A GPU is driven from this process: its stacks are parallel already."""
    if kind not in EXECUTORS:
        raise unknown("executor", kind, EXECUTORS, "Study")
    if kind == "ray":
        return RayExecutor(prepare, seed=seed, device=device, tokens=tokens)
    count = workers if workers is not None else (os.cpu_count() or 1)
    if kind == "here" or count <= 1 or device != "cpu":
        return HereExecutor(prepare, seed=seed, device=device)
    start = {"seed": seed, "device": device, "networks": networks}
    return LocalExecutor(prepare, start, tokens=tokens, workers=count)


class HereExecutor:
    """One stack after another in this process; on the CPU by one thread, as in a worker.

    Sums are rounded in another order by more threads: what a study finds would depend on its number of workers.
    """

    def __init__(self, prepare: Prepare, *, seed: int, device: str) -> None:
        self._prepare = prepare
        self._bench = Bench(seed, device)
        self._threads = 1 if device == "cpu" else None

    def run(self, stacks: Sequence[Stack]) -> Iterator[tuple[Stack, Found] | None]:
        from threadpoolctl import threadpool_limits

        for stack in stacks:
            prepared = {split: self._prepare(split) for split in stack.splits}
            with threadpool_limits(self._threads):
                found = self._bench.run(stack.units, prepared)
            yield stack, found

    def warm(self) -> None:
        return

    def close(self) -> None:
        return


class LocalExecutor:
    """Worker processes on this machine, one thread each, started when first needed.

    They are forked where that is safe, after this process has imported what they need. Once a forked worker has died,
    those that follow are fresh interpreters.
    """

    def __init__(self, prepare: Prepare, start: dict[str, Any], *, tokens: bool, workers: int) -> None:
        self._prepare, self._tokens, self._start = prepare, tokens, start
        self._count = workers
        self._forks = True
        self._workers: list[_Worker] = []
        self._busy: dict[_Worker, Stack] = {}
        self._outgoing = Outgoing()
        self._described: OrderedDict[int, tuple[list[dict[str, Any]], dict[str, Any]]] = OrderedDict()

    def run(self, stacks: Sequence[Stack]) -> Iterator[tuple[Stack, Found] | None]:
        self._abandon()
        waiting = list(reversed(stacks))
        deaths: dict[str, int] = {}
        answers: queue.Queue[tuple[_Worker, Any]] = queue.Queue()
        while waiting or self._busy:
            for worker in self._idle(len(waiting)):
                stack = waiting.pop()
                self._busy[worker] = stack
                worker.begin(self._request(worker, stack), answers)
            try:
                worker, answer = answers.get(timeout=TICK)
            except queue.Empty:
                yield None
                continue
            stack = self._busy.pop(worker)
            if isinstance(answer, str):
                raise TrainingError(f"training {_described(stack)} failed in a worker:\n{answer}")
            if answer is not None:
                yield stack, answer
                continue
            self._workers.remove(worker)
            worker.stop()
            self._forks = False
            deaths[stack.identity] = deaths.get(stack.identity, 0) + 1
            if deaths[stack.identity] >= MOST_DEATHS:
                raise TrainingError(_killed(stack, worker))
            waiting.append(stack)

    def _abandon(self) -> None:
        """End workers that are still on a stack of a run that nobody listens to any more (time was over)."""
        for worker in self._busy:
            self._workers.remove(worker)
            worker.stop()
        self._busy.clear()

    def _idle(self, wanted: int) -> list[_Worker]:
        free = [worker for worker in self._workers if worker not in self._busy][:wanted]
        while len(free) < wanted and len(self._workers) < self._count:
            free.append(self._hire())
        return free

    def _hire(self) -> _Worker:
        worker = _Worker(self._start, forked=self._forks and can_fork())
        self._workers.append(worker)
        return worker

    def _request(self, worker: _Worker, stack: Stack) -> dict[str, Any]:
        splits = {}
        worker.offered = {}
        for split in stack.splits:
            splits[str(split)], arrays = self._describe(split)
            worker.offered |= arrays
        return {"units": [unit.describe() for unit in stack.units], "splits": splits}

    def _describe(self, split: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Hashes and arrays of a split, remembered: they are the same for every worker and stack."""
        if split not in self._described:
            self._described[split] = self._outgoing.describe(self._prepare(split), tokens=self._tokens)
            if len(self._described) > KEPT:
                self._described.popitem(last=False)
        self._described.move_to_end(split)
        return self._described[split]

    def warm(self) -> None:
        """Start the workers now, so that they load while the study makes its splits."""
        while len(self._workers) < self._count:
            self._hire()

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers.clear()
        self._busy.clear()


class _Worker:
    """One worker process and the thread that waits for it. Pipes are not inherited by its siblings."""

    def __init__(self, start: dict[str, Any], *, forked: bool) -> None:
        self._is_forked = forked
        self.process = _forked(start) if forked else _fresh()
        self._in = cast(BinaryIO, self.process.stdin)
        self._out = cast(BinaryIO, self.process.stdout)
        self._is_ready = False
        self.offered: dict[str, Any] = {}
        with contextlib.suppress(OSError):  # a worker that is dead already is found out at its first stack
            send(self._in, start)

    def begin(self, request: dict[str, Any], answers: queue.Queue[tuple[_Worker, Any]]) -> None:
        """Hand over a stack; the answer, or None when the worker died, is put into the queue."""
        threading.Thread(target=self._converse, args=(request, dict(self.offered), answers), daemon=True).start()

    def _converse(self, request: Any, offered: dict[str, Any], answers: queue.Queue[tuple[_Worker, Any]]) -> None:
        try:
            self._await_ready()
            send(self._in, request)
            while True:
                message, _ = receive(self._out)
                if "found" in message or "error" in message:
                    answers.put((self, message.get("found", message.get("error"))))
                    return
                send(self._in, {}, {key: offered[key] for key in message["need"]})
        except (OSError, EOFError, ValueError):
            answers.put((self, None))

    def _await_ready(self) -> None:
        """Return once the worker has said that it is ready; EOFError if it died, or is locked up."""
        if self._is_ready:
            return
        if self._is_forked and not wait([self._out], FORK_SECONDS):  # type: ignore[list-item]
            raise EOFError("the worker is silent")
        receive(self._out)
        self._is_ready = True

    def stop(self) -> None:
        """End the process at once: whatever it has not handed over will be repeated."""
        self.process.kill()
        self.process.wait()
        for pipe in (self._in, self._out):
            try:
                pipe.close()
            except OSError:
                continue


def _forked(start: dict[str, Any]) -> ForkedProcess:
    if start["networks"]:
        import mtlens.engine  # noqa: F401  once, here, for all of them
    return ForkedProcess(serve_on)


def _fresh() -> subprocess.Popen[bytes]:
    environment = os.environ | {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
    return subprocess.Popen(
        [sys.executable, "-c", "from mtlens.study.worker import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # Ctrl-C reaches the study, which ends its workers
    )


def _described(stack: Stack) -> str:
    first = stack.units[0]
    return f"{len(stack.units)} {first.family} models ({first.method}) of {', '.join(first.tasks[:4])}"


def _killed(stack: Stack, worker: _Worker) -> str:
    return (
        f"a worker process was killed {MOST_DEATHS} times (exit {worker.process.returncode}) while it trained "
        f"{_described(stack)}: probably out of memory. What was "
        "finished is kept. Use fewer workers, smaller capacities, or fewer rows, and run the same command."
    )


class RayExecutor:
    """Stacks as Ray tasks; the ``scale`` extra. A lost node's stacks are repeated by Ray."""

    def __init__(self, prepare: Prepare, *, seed: int, device: str, tokens: bool) -> None:
        try:
            import ray
        except ImportError as error:
            raise missing_extra("executor='ray'", "scale") from error
        self._ray, self._prepare, self._tokens = ray, prepare, tokens
        if not ray.is_initialized():
            ray.init(log_to_driver=False)
        gpus = 1 if device.startswith("cuda") else 0
        self._remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=MOST_DEATHS)(_ray_stack)
        self._start = (seed, device)
        self._shared: dict[int, Any] = {}

    def run(self, stacks: Sequence[Stack]) -> Iterator[tuple[Stack, Found] | None]:
        running = {self._submit(stack): stack for stack in stacks}
        while running:
            done, _ = self._ray.wait(list(running), timeout=TICK)
            if not done:
                yield None
            for reference in done:
                yield running.pop(reference), self._ray.get(reference)

    def _submit(self, stack: Stack) -> Any:
        for split in stack.splits:
            if split not in self._shared:
                described, arrays = Outgoing().describe(self._prepare(split), tokens=self._tokens)
                self._shared[split] = self._ray.put((described, arrays))
        shared = [self._shared[split] for split in stack.splits]
        return self._remote.remote([u.describe() for u in stack.units], list(stack.splits), self._start, *shared)

    def warm(self) -> None:
        return

    def close(self) -> None:
        self._shared.clear()


def _ray_stack(units: list[dict[str, Any]], splits: list[int], start: tuple[int, str], *shared: Any) -> Found:
    from mtlens.study.plan import Unit
    from mtlens.study.wire import rebuild

    prepared = {split: rebuild(*part) for split, part in zip(splits, shared, strict=True)}
    return Bench(*start).run([Unit.read(plain) for plain in units], prepared)
