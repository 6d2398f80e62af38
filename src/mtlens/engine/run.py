"""``train``: many trainings in, results in the same order out, however they are run."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from mtlens.engine.bank import Bank, Progress
from mtlens.engine.layout import is_stackable
from mtlens.engine.prepare import Member, Preparation
from mtlens.engine.progress import watcher
from mtlens.engine.result import Trained, check_keep
from mtlens.engine.shelf import Shelf
from mtlens.engine.training import Training
from mtlens.errors import FileError, InputError, unknown
from mtlens.nets.family import ModuleFamily

Engine: TypeAlias = Literal["auto", "bank", "process", "solo"]
LOG = logging.getLogger("mtlens.engine")
ENGINES = ("auto", "bank", "process", "solo")


def train(
    trainings: Training | Iterable[Training],
    *,
    engine: Engine = "auto",
    device: str | torch.device = "cpu",
    keep: Literal["model", "predictions", "scores"] = "model",
    progress: bool | None = None,
    workers: int | None = None,
    controls: bool = False,
    checkpoints: str | os.PathLike[str] | None = None,
) -> list[Trained]:
    """Train everything; one result a training, in the order given. A result does not depend on its companions.

    Args:
        trainings: any number of settings; those with equal layout are computed as stacks of models.
        engine: "bank" (stacks), "process" (one process a core, one training each at a time), "solo" (one by one), or
            "auto": stacks wherever a family has a stacked step, processes for the rest.
        device: "cpu", "cuda", ...
        keep: "scores" keeps only scores and history; "model" the model too; "predictions" also the predictions on
            every split's labelled rows.
        progress: show a bar; None: only on a terminal.
        workers: stacks or processes at a time; None: one a core.
        controls: also train both controls of every training with alignment (``Trained.controls``): the same extra
            epochs without alignment, and every task alone for twice the epochs.
        checkpoints: a folder for finished trainings (and, every half minute, for those that run one by one). A second
            call with the same folder reads back what is finished and goes on with the rest, to the same results.

    A training whose loss stops being finite ends with that ``reason`` and no scores; the others go on. Ctrl-C ends
    early: what is finished is returned, the rest has reason "interrupted".

    Example:
        >>> import numpy as np
        >>> from mtlens import Task, Training, train
        >>> X = np.random.default_rng(0).normal(size=(200, 5))
        >>> task = Task("sum", X, X.sum(axis=1), split=np.repeat(["train", "valid"], 100))
        >>> (trained,) = train([Training(task, trunk="linear", capacity=1, epochs=60, lr=0.05, dtype="float64")])
        >>> round(trained.scores["valid"]["sum"], 3), trained.reason
        (1.0, 'epochs')
    """
    given = [trainings] if isinstance(trainings, Training) else _listed(trainings)
    _check(given, engine, keep)
    workers = _cores() if workers is None else _workers(workers)
    call = _Call(engine, _device(device), keep, progress, workers, _folder(checkpoints))
    with torch.inference_mode(False), torch.enable_grad():  # also where the caller has switched gradients off
        results = call.run(given)
        if controls:
            from mtlens.engine.controls import add_controls

            add_controls(results, call.run)
    return results


class _Call:
    """One call of ``train``: runs waves of trainings, bases before those that start from them.

    Ctrl-C in any wave sets ``stop``, which ends that wave and all that would follow.
    """

    def __init__(
        self, engine: str, device: torch.device, keep: str, progress: bool | None, workers: int,
        checkpoints: Path | None = None,
    ) -> None:  # fmt: skip
        self.engine, self.device, self.keep, self.progress, self.workers = engine, device, keep, progress, workers
        self.checkpoints = checkpoints
        self.stop = threading.Event()
        self._bases: dict[str, Trained] = {}

    def run(self, trainings: Sequence[Training], keep: str | None = None) -> list[Trained]:
        keep = keep or self.keep
        starts = [base_of(training) for training in trainings]
        self._train_bases([start for start in starts if isinstance(start, Training)])
        resolved = [self._resolved(start, training) for start, training in zip(starts, trainings, strict=True)]
        return self._wave(trainings, resolved, keep)

    def _train_bases(self, bases: Sequence[Training]) -> None:
        wanted = {base.identity: base for base in bases}
        missing = {key: base for key, base in wanted.items() if key not in self._bases}
        if missing:
            trained = self.run(list(missing.values()), keep="model")
            self._bases.update(zip(missing, trained, strict=True))

    def _resolved(self, start: Training | Trained | Path | None, training: Training) -> Trained | None:
        if isinstance(start, Training):
            return self._bases[start.identity]
        if isinstance(start, Path):
            from mtlens.engine.saving import load_trained

            return load_trained(start, trunk=None if isinstance(training.trunk, str) else training.trunk)
        return start

    def _wave(self, trainings: Sequence[Training], starts: Sequence[Trained | None], keep: str) -> list[Trained]:
        """Trainings whose starts are all there."""
        shelf = None if self.checkpoints is None else Shelf(self.checkpoints, keep)
        prepared, results = Preparation(), dict[int, Trained]()
        members: list[tuple[int, Member]] = []
        for number, (training, start) in enumerate(zip(trainings, starts, strict=True)):
            finished = None if shelf is None else shelf.find(training)
            if finished is not None:
                results[number] = finished
            elif self.stop.is_set():
                results[number] = Trained(training, reason="interrupted")
            elif start is not None and start.model is None:
                why = "kept no model" if start.ok else f"ended with: {start.reason}"
                results[number] = Trained(training, reason=f"its start {why}")
            else:
                members.append((number, prepared.member(training, start)))
        stacks = [self._stacks(member) for _, member in members]
        stacked = [pair for pair, can in zip(members, stacks, strict=True) if can]
        rest = [pair for pair, can in zip(members, stacks, strict=True) if not can]
        if self.engine == "auto":
            say_why_not_stacked([member for _, member in rest])
        state = Progress(len(members), shelf=shelf, stop=self.stop)
        members.clear()
        with watcher(state, self.progress) as watch:
            if rest:  # first, as stacks run on threads, after which no worker can be forked
                results.update(self._one_by_one(rest, keep, state, watch))
            if stacked:
                bank = Bank(stacked, device=self.device, keep=keep, workers=self.workers, progress=state)
                stacked.clear()  # the bank frees every member when it has ended
                results.update(bank.run(watch))
        return [
            results.get(number) or Trained(training, reason="interrupted") for number, training in enumerate(trainings)
        ]

    def _stacks(self, member: Member) -> bool:
        if self.engine in ("solo", "process"):
            return False
        can = is_stackable(member, self.device.type)
        if self.engine == "bank" and not can:
            raise InputError(
                f"engine='bank': {member.training!r} has no stacked step (trunk {member.family.name!r}, weighting "
                f"{member.training.weighting!r}). Use engine='auto', 'process' or 'solo'."
            )
        return can

    def _one_by_one(self, rest: list[tuple[int, Member]], keep: str, state: Progress, watch: Any) -> dict[int, Trained]:
        from mtlens.engine.workers import run_members

        in_processes = self.engine != "solo" and self.device.type == "cpu" and len(rest) > 1
        workers = self.workers if in_processes else 1
        found: dict[int, Trained] = run_members(rest, self.device, keep, workers, state, watch)
        return found


def say_why_not_stacked(rest: Sequence[Member]) -> None:
    """One log line for each of a user's trunks that several trainings use and ``torch.func`` cannot stack."""
    counts: dict[str, int] = {}
    for member in rest:
        if isinstance(member.family, ModuleFamily):
            reason = member.family.why_solo(member.rows, member.training.capacity)
            if reason is not None:
                line = (
                    f"trunk {member.family.settings()['factory'].partition('#')[0]}: trained one by one, since {reason}"
                )
                counts[line] = counts.get(line, 0) + 1
    for line, count in counts.items():
        if count > 1:
            LOG.warning("%s (%d trainings)", line, count)


def base_of(training: Training) -> Training | Trained | Path | None:
    """What a training starts from. Algorithm 1 without a start begins from the same training without alignment."""
    start = training.start_from
    if start is None and training.align == "fixed":
        return training.but(align=None, penalty=0.0, align_rank=None, align_at=None)
    return Path(start) if isinstance(start, (str, os.PathLike)) else start


def _listed(trainings: Any) -> list[Any]:
    try:
        return list(trainings)
    except TypeError as error:
        raise InputError(f"train takes trainings, found {trainings!r}. Give a list of Training objects.") from error


def _check(trainings: Sequence[Any], engine: str, keep: str) -> None:
    check_keep(keep)
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES, "train")
    for training in trainings:
        if not isinstance(training, Training):
            raise InputError(
                f"train takes Training objects, found a {type(training).__name__}. Wrap it: Training(tasks, ...)."
            )


def _device(device: str | torch.device) -> torch.device:
    """The device meant, with its number: a worker thread has a current card of its own."""
    try:
        found = torch.device(device)
        torch.zeros(1, device=found).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        why = str(error).strip().splitlines()[0].partition(". ")[0]
        raise InputError(
            f"train: device={str(device)!r} cannot be used here ({why}). Use 'cpu', 'cuda' or 'cuda:1'."
        ) from error
    return torch.device("cuda", torch.cuda.current_device()) if found.type == "cuda" and found.index is None else found


def _workers(workers: Any) -> int:
    if not hasattr(workers, "__index__") or isinstance(workers, bool) or int(workers) < 1:
        raise InputError(f"train: workers={workers!r}. It needs a whole number of at least 1, or None for one a core.")
    return int(workers)


def _folder(checkpoints: Any) -> Path | None:
    """The folder for checkpoints, made now: hours of training must not end with a place that cannot be written."""
    if checkpoints is None:
        return None
    if not isinstance(checkpoints, (str, os.PathLike)) or not str(checkpoints):
        raise InputError(f"train: checkpoints={checkpoints!r}. Give a folder, or None to write nothing.")
    folder = Path(checkpoints)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"train: checkpoints={str(folder)!r} cannot be a folder ({error.strerror}). Name another."
        ) from error
    if not os.access(folder, os.W_OK):
        raise FileError(f"train: nothing can be written to checkpoints={str(folder)!r}. Name another folder.")
    return folder


def _cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
