"""Solo trainings on every core: one process a core, one thread each.

Measured: two such processes run at 1.9 to 2.0 times one; two processes with PyTorch's default threads at 0.4 times.
Workers are *forked*, so they see data and users' own functions without any copying, scripts need no ``__main__``
guard, and what comes back crosses a pipe as safetensors and JSON. Where forking is not possible (Windows) or not safe
(:mod:`mtlens.engine.forking`) the workers are threads.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from mtlens import errors
from mtlens.engine.assemble import model_of, net_of
from mtlens.engine.bank import Progress, is_out_of_memory
from mtlens.engine.checkpoints import tree_from_bytes, tree_to_bytes
from mtlens.engine.ending import load_values, net_values
from mtlens.engine.forking import can_fork, note_matrix_threads
from mtlens.engine.prepare import Member
from mtlens.engine.result import Trained
from mtlens.engine.shelf import Shelf
from mtlens.engine.solo import OnEpoch, train_solo
from mtlens.errors import TrainingError
from mtlens.nets.family import ModuleFamily

Jobs = Sequence[tuple[int, Member]]
_EPOCH, _RESULT, _ERROR = b"E", b"R", b"X"


def run_members(
    jobs: Jobs, device: torch.device, keep: str, workers: int, state: Progress, watch: Callable[[], None]
) -> dict[int, Trained]:
    """Train members one by one, on ``workers`` cores; results by number. Ctrl-C keeps what is finished.

    ``state`` counts samples and finished trainings; ``watch`` is called now and then from this thread.
    """
    if state.stop.is_set():
        return {}
    workers = min(workers, len(jobs))
    if workers <= 1 or device.type != "cpu":
        return _here(jobs, device, keep, state, watch)
    return _Crew(jobs, keep, state, watch).run(workers) if can_fork() else _threads(jobs, keep, workers, state, watch)


def _here(
    jobs: Jobs, device: torch.device, keep: str, state: Progress, watch: Callable[[], None]
) -> dict[int, Trained]:
    results: dict[int, Trained] = {}

    def on_epoch(samples: int) -> bool:
        with state.lock:
            state.samples += samples
        watch()
        return not state.stop.is_set()

    try:
        for number, member in jobs:
            if state.stop.is_set():
                break
            with _one_thread(member):
                results[number] = _trained(member, str(device), keep, on_epoch, state.shelf)
            _count(state, results[number])
    except KeyboardInterrupt:
        state.stop.set()
    return results


def _threads(jobs: Jobs, keep: str, workers: int, state: Progress, watch: Callable[[], None]) -> dict[int, Trained]:
    waiting, results, failed = deque(jobs), dict[int, Trained](), list[BaseException]()
    note_matrix_threads()

    def work() -> None:
        torch.set_num_threads(1)
        try:
            while True:
                with state.lock:
                    if not waiting or state.stop.is_set():
                        return
                    job = waiting.popleft()
                results.update(_here([job], torch.device("cpu"), keep, state, lambda: None))
        except BaseException as error:  # handed to the caller's thread below
            failed.append(error)
            state.stop.set()

    crew = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    before = torch.get_num_threads()
    try:
        for thread in crew:
            thread.start()
        for thread in crew:
            while thread.is_alive():
                thread.join(0.05)
                watch()
    except KeyboardInterrupt:
        state.stop.set()
        for thread in crew:
            thread.join()
    finally:
        torch.set_num_threads(before)
    if failed:
        raise failed[0]
    return results


class _Crew:
    """Forked workers and the pipes to them. A worker gets a job's place, trains, and sends its result back."""

    def __init__(self, jobs: Jobs, keep: str, state: Progress, watch: Callable[[], None]) -> None:
        self.jobs, self.keep, self.state, self.watch = jobs, keep, state, watch
        self.waiting = deque(range(len(jobs)))
        self.busy: dict[Connection, tuple[Any, int]] = {}  # pipe -> process, place of its job
        self.results: dict[int, Trained] = {}

    def run(self, workers: int) -> dict[int, Trained]:
        try:
            for _ in range(workers):
                self._hire()
            while self.busy:
                for pipe in wait(list(self.busy), timeout=0.1):
                    self._hear(pipe)  # type: ignore[arg-type]
                self.watch()
        except KeyboardInterrupt:
            self.state.stop.set()
        finally:
            for pipe, (process, _) in self.busy.items():
                process.terminate()
                process.join()
                pipe.close()
        return self.results

    def _hire(self) -> None:
        """Start a worker on the next job, if there is one."""
        if not self.waiting:
            return
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        inherited = [ours, *self.busy]
        job = (theirs, inherited, self.jobs, self.keep, self.state.shelf)
        process = context.Process(target=_work, args=job, daemon=True)
        with warnings.catch_warnings():  # Python warns that forking a process with threads may lock up: see can_fork
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        self.busy[ours] = (process, -1)
        self._give(ours)

    def _give(self, pipe: Connection) -> None:
        process, _ = self.busy[pipe]
        if self.waiting:
            place = self.waiting.popleft()
            self.busy[pipe] = (process, place)
            pipe.send_bytes(str(place).encode())
            return
        pipe.send_bytes(b"")
        process.join()
        pipe.close()
        del self.busy[pipe]

    def _hear(self, pipe: Connection) -> None:
        process, place = self.busy[pipe]
        number, member = self.jobs[place]
        try:
            message = pipe.recv_bytes()
        except EOFError:
            process.join()
            del self.busy[pipe]
            reason = f"its worker process ended with exit code {process.exitcode} (-9: out of memory, most likely)"
            self.results[number] = Trained(member.training, reason=reason)
            self._hire()
            return
        kind, body = message[:1], message[1:]
        if kind == _EPOCH:
            self.state.samples += int(body)
        elif kind == _RESULT:
            self.results[number] = _unpacked(body, member)
            _count(self.state, self.results[number])
            self._give(pipe)
        else:
            raise _told_error(body)


def _work(pipe: Connection, inherited: Sequence[Connection], jobs: Jobs, keep: str, shelf: Shelf | None) -> None:
    """A worker's life. Ctrl-C is the parent's to handle; a parent that was killed ends its workers.

    The fork copied the parent's ends of the pipes: while one of them is open here, no pipe would ever break.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for end in inherited:
        end.close()
    torch.set_num_threads(1)
    with suppress(BrokenPipeError, ConnectionResetError, EOFError):
        _serve(pipe, jobs, keep, shelf)


def _serve(pipe: Connection, jobs: Jobs, keep: str, shelf: Shelf | None) -> None:
    """Train what the parent asks for until it says that nothing is left."""

    def on_epoch(samples: int) -> bool:
        pipe.send_bytes(_EPOCH + str(samples).encode())
        return True

    while place := pipe.recv_bytes():
        try:
            member = jobs[int(place)][1]
            pipe.send_bytes(_RESULT + _packed(_trained(member, "cpu", keep, on_epoch, shelf)))
        except (BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            pipe.send_bytes(_ERROR + tree_to_bytes({"kind": type(error).__name__, "text": str(error)}))


def _trained(member: Member, device: str, keep: str, on_epoch: OnEpoch, shelf: Shelf | None) -> Trained:
    """One training; a model that does not fit into memory ends with that reason."""
    try:
        return train_solo(member, device=device, keep=keep, on_epoch=on_epoch, folder=_folder(shelf, member))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return Trained(member.training, reason="out of memory with one model")


def _folder(shelf: Shelf | None, member: Member) -> Path | None:
    return None if shelf is None else shelf.place(member.training)


def _count(state: Progress, trained: Trained) -> None:
    """Write down a finished training, then count it."""
    if state.shelf is not None:
        state.shelf.put(trained)
    with state.lock:
        state.finished += 1


def _packed(trained: Trained) -> bytes:
    plain = {name: getattr(trained, name) for name in ("scores", "history", "seconds", "reason", "predictions")}
    values = None if trained.model is None else net_values(trained.model.net)
    return tree_to_bytes({**plain, "values": values})


def _unpacked(body: bytes, member: Member) -> Trained:
    plain = tree_from_bytes(body)
    values = plain.pop("values")
    trained = Trained(member.training, **plain)
    if values is not None:
        net = net_of(member, member.start)
        load_values(net, values)
        trained.model = model_of(member, net)
    return trained


def _told_error(body: bytes) -> Exception:
    """The error a worker met, of its own kind if it is one of ours."""
    told = tree_from_bytes(body)
    kind = getattr(errors, told["kind"], None)
    if isinstance(kind, type) and issubclass(kind, errors.MtlensError):
        return kind(told["text"])
    return TrainingError(f"a worker process failed with {told['kind']}: {told['text']}")


@contextmanager
def _one_thread(member: Member) -> Iterator[None]:
    """One thread for our own small models, which a second one slows down (0.85x); users' modules keep theirs."""
    before = torch.get_num_threads()
    if not isinstance(member.family, ModuleFamily):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
