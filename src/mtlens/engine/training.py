"""What is to be trained: one record of settings, checked in one place, with an identity."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from torch import nn

from mtlens.engine.digests import data_digest
from mtlens.errors import InputError, UnknownNameError, unknown
from mtlens.nets.family import Capacity, Family, family_of
from mtlens.tasks.metrics import metric_of
from mtlens.tasks.task import Task, TaskSet

if TYPE_CHECKING:
    from mtlens.engine.result import Trained

Align: TypeAlias = Literal["fixed", "joint"]
Optimizer: TypeAlias = Literal["adam", "adamw", "sgd"]
Steps: TypeAlias = Literal["auto", "joint", "mixed"]
Stop: TypeAlias = Literal["epochs", "converged"]
Select: TypeAlias = Literal["best", "last"]
Dtype: TypeAlias = Literal["float32", "float64"]
Weighting: TypeAlias = "str | Mapping[str, float] | Sequence[float]"

WEIGHTINGS = ("equal", "svd", "uncertainty", "random")  # any other name is one of TorchJD's
PARTS = ("trunk", "heads", "align")
VERSION = 3  # enters every identity: raise it when the same settings start to give other numbers


@dataclass(frozen=True, eq=False)
class Training:
    """One model to train: tasks, trunk, method and recipe. Immutable; a field is changed with :meth:`but`.

    The recipe (paper, App. B): features, and labels of regression tasks, are standardised by statistics of the train
    split; *joint* steps take one batch of the shared inputs for all tasks, *mixed* steps a batch of one task, all
    tasks' batches shuffled together. A task's loss is the mean over the batch's labelled rows (squared error or cross
    entropy); the loss of a step is their weighted *sum*.

    Args:
        tasks: a TaskSet, tasks, or one task. One task is single-task learning.
        trunk: "linear", "relu", "mlp", "lstm", "cnn", "average", a Family, or a factory ``capacity -> nn.Module``.
        capacity: units of the shared part, the paper's ``r``; "mlp" also takes a tuple, one width a layer.
        align: None, "joint" (train ``R_i`` with everything else), or "fixed" (Algorithm 1: the trunk stays as it
            starts; a task's head and its alignment are updated in turn, one of them at each of its batches). "fixed"
            without ``start_from`` first trains the same settings without alignment and starts from that.
        weighting: "equal" (all 1), "svd" (Algorithm 2), "uncertainty", "random", numbers (by task or in order), or
            the name of a TorchJD method.
        optimizer: "adam", "adamw" or "sgd" (momentum 0.9).
        lr, epochs, batch: learning rate, most epochs, rows of a batch (of each task for joint steps).
        weight_decay: on trunk and heads; never on alignments, which ``penalty`` pulls to the identity instead.
        penalty: strength of ``penalty * sum_i |R_i - I|_F^2``.
        steps: "joint", "mixed", or "auto" (joint on shared inputs, else mixed). Joint steps on separate inputs take
            one batch of every task; an epoch is then as long as the largest task, smaller ones come round again.
        stop: "epochs" runs them all; "converged" ends when ``patience`` epochs in a row did not improve the
            validation score (without validation rows: the training loss, relatively) by more than ``tolerance``.
        select: "best" keeps the epoch with the best mean validation score, "last" the last one.
        seed: the only source of randomness. The same seed gives the same start and order alone and in company.
        dtype: "float32" or "float64".
        freeze: parts that stay as they start: "trunk", "heads", "align", or a named part of the trunk: "trunk.encoder".
        start_from: a Trained, the folder of one, or a Training (then trained first): its trunk, its heads of tasks
            with equal names, its alignments and the scale of its inputs. Other heads start fresh.
        align_rank: None for full ``R_i``, or r for ``I + U V^T``.
        align_at: for modules with named parts: the part the alignment stands before; None: before the trunk.
        patience, tolerance: see ``stop``.
    """

    tasks: Any
    trunk: str | Family | Callable[[Any], nn.Module] = "mlp"
    capacity: Any = 50
    align: Align | None = None
    weighting: Any = "equal"
    optimizer: Optimizer = "adam"
    lr: float = 1e-3
    epochs: int = 30
    batch: int = 50
    weight_decay: float = 0.0
    penalty: float = 0.0
    steps: Steps = "auto"
    stop: Stop = "epochs"
    select: Select = "best"
    seed: int = 0
    dtype: Dtype = "float32"
    freeze: tuple[str, ...] = ()
    start_from: Trained | Training | str | Path | None = None
    align_rank: int | None = None
    align_at: str | None = None
    patience: int = 5
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        set_ = object.__setattr__  # frozen: only this method fills in the canonical form of what was given
        set_(self, "tasks", _task_set(self.tasks))
        set_(self, "capacity", _capacity(self.capacity))
        set_(self, "freeze", _freeze(self.freeze))
        for name in ("epochs", "batch", "seed", "patience", "align_rank"):
            set_(self, name, _whole(getattr(self, name)))
        for name in ("lr", "weight_decay", "penalty", "tolerance"):
            set_(self, name, _real(getattr(self, name)))
        set_(self, "weighting", _weighting(self.weighting, self.tasks))
        set_(self, "dtype", str(self.dtype).removeprefix("torch."))
        check(self)

    def but(self, **changes: Any) -> Training:
        """The same training with some settings changed."""
        return replace(self, **changes)

    @property
    def family(self) -> Family:
        return family_of(self.trunk)

    @cached_property
    def shares_rows(self) -> bool:
        """Whether all tasks label the same rows with the same split, so that one batch can serve them all."""
        first: Task = self.tasks[0]
        return self.tasks.has_shared_inputs and all(_same_split(first, task) for task in self.tasks)

    @property
    def joint(self) -> bool:
        """Whether a step serves all tasks (else one). TorchJD's methods compare tasks, so they need that."""
        if len(self.tasks) == 1 or self.steps == "joint":
            return True
        return self.steps == "auto" and (self.shares_rows or self.uses_torchjd)

    @property
    def uses_torchjd(self) -> bool:
        """Whether the weighting is one of TorchJD's, which train one model at a time."""
        return isinstance(self.weighting, str) and self.weighting not in WEIGHTINGS

    @property
    def identity(self) -> str:
        """64 hex digits of everything that determines the result: data, settings and the version of the recipe."""
        return hashlib.sha256(json.dumps(self.settings(), sort_keys=True).encode()).hexdigest()

    def settings(self) -> dict[str, Any]:
        """All that determines the result, as JSON: data by digest, a start by its identity."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["tasks"] = [[task.name, data_digest(task)] for task in self.tasks]
        plain["trunk"] = self.family.settings()
        plain["start_from"] = _start_identity(self.start_from)
        plain["version"] = VERSION
        return plain

    def __repr__(self) -> str:
        names = "+".join(self.tasks.names[:4]) + (f"+{len(self.tasks) - 4} more" if len(self.tasks) > 4 else "")
        method = f", align={self.align!r}" if self.align else ""
        return f"Training({names}, {self.family.name} {self.capacity}{method}, {self.weighting}, seed={self.seed})"


def check(training: Training) -> None:
    """Refuse settings that cannot be trained. Every Training goes through here once, when it is made."""
    _check_choices(training)
    _check_numbers(training)
    training.family.check(training.capacity)
    for task in training.tasks:
        metric_of(task)
    _check_splits(training)
    _check_alignment(training)
    _check_start(training)


def _check_choices(training: Training) -> None:
    choices = {"optimizer": Optimizer, "steps": Steps, "stop": Stop, "select": Select, "dtype": Dtype}
    for name, literal in choices.items():
        if getattr(training, name) not in get_args(literal):
            raise unknown(name, getattr(training, name), get_args(literal), "Training")
    if training.align is not None and training.align not in get_args(Align):
        raise unknown("align", training.align, get_args(Align), "Training")
    for part in training.freeze:
        if part not in PARTS and not part.startswith("trunk."):  # a part of a trunk is known once it is built
            raise unknown("part", part, PARTS, "Training(freeze=...)")
    if training.uses_torchjd:
        _check_torchjd(training)


def _check_torchjd(training: Training) -> None:
    from mtlens.weighting.torchjd import parse_method, torchjd_names

    name = training.weighting
    if get_close_matches(name, WEIGHTINGS, n=1, cutoff=0.7):  # a slip of one of ours, with or without the extra
        raise unknown("weighting", name, WEIGHTINGS, "Training")
    try:
        parse_method(name)
    except UnknownNameError as error:
        raise unknown("weighting", name, [*WEIGHTINGS, *torchjd_names()], "Training") from error
    if not training.joint:
        raise InputError(
            f"Training: weighting={training.weighting!r} compares the tasks at every step, but steps='mixed' shows one "
            "task a step. Use steps='joint' or 'auto'."
        )


def _check_numbers(training: Training) -> None:
    least = {"epochs": 1, "batch": 1, "seed": 0, "patience": 1}
    for name, low in least.items():
        value = getattr(training, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise InputError(f"Training: {name}={value!r}. It needs a whole number of at least {low}.")
    for name, positive in {"lr": True, "weight_decay": False, "penalty": False, "tolerance": False}.items():
        value = getattr(training, name)
        fits = isinstance(value, float) and math.isfinite(value) and (value > 0 or (value == 0 and not positive))
        if not fits:
            raise InputError(
                f"Training: {name}={value!r}. It needs a {'positive' if positive else 'non-negative'} number."
            )


def _check_splits(training: Training) -> None:
    for task in training.tasks:
        if not len(task.rows_of("train")):
            raise InputError(f"task {task.name!r} has no labelled row in its train split, so nothing can be trained.")
    if training.select == "best":
        bare = [task.name for task in training.tasks if not len(task.rows_of("valid"))]
        if bare:
            why = "no split" if training.tasks[bare[0]].split is None else "no labelled rows in 'valid'"
            raise InputError(
                f"select='best' chooses the epoch on validation rows, but task {bare[0]!r} has {why}. "
                "Give the task a split with 'valid' rows, or use select='last'."
            )


def _check_alignment(training: Training) -> None:
    rank, part = training.align_rank, training.align_at
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 1):
        raise InputError(f"Training: align_rank={rank!r}. It needs a whole number of at least 1, or None for full R.")
    if part is not None and not (isinstance(part, str) and part):
        raise InputError(f"Training: align_at={part!r}. Give the name of a part of the trunk, or None: before it.")
    if training.align is None and (training.penalty or rank is not None or part is not None):
        raise InputError(
            f"Training: penalty={training.penalty}, align_rank={rank} and align_at={part!r} "
            "shape an alignment, but align is None. Set align='joint' or 'fixed', or leave them out."
        )
    if set(PARTS[:2]) <= set(training.freeze) and (training.align is None or "align" in training.freeze):
        raise InputError(f"Training: freeze={training.freeze} leaves nothing to train. Free at least one part.")


def _check_start(training: Training) -> None:
    from mtlens.engine.result import Trained

    start = training.start_from
    if start is not None and not isinstance(start, (Trained, Training, str, os.PathLike)):
        raise InputError(
            f"Training: start_from={start!r} is a {type(start).__name__}. Give a Trained, the folder of one, or a "
            "Training."
        )
    if isinstance(start, Trained) and start.ok and start.model is None:
        raise InputError(
            f"Training: start_from={start.training!r} kept no model, so there is nothing to start from. Train it with "
            "keep='model'."
        )
    moves = "trunk" not in training.freeze and training.align != "fixed"
    if start is None and moves and training.optimizer != "adam" and training.family.learns_tables:
        raise InputError(
            f"{training!r}: optimizer={training.optimizer!r} with fine-tuned embeddings. Their tables are trained by "
            "Adam only. Use optimizer='adam', or embeddings='frozen'."
        )


def _task_set(tasks: Any) -> TaskSet:
    if isinstance(tasks, TaskSet):
        return tasks
    given = [tasks] if isinstance(tasks, Task) else list(tasks) if isinstance(tasks, Iterable) else [tasks]
    strangers = [one for one in given if not isinstance(one, Task)]
    if strangers:
        raise InputError(
            f"Training takes a Task, tasks or a TaskSet, found {strangers[0]!r:.60}. Make tasks with Task(name, X, y), "
            "or read them with read_tasks(path)."
        )
    return TaskSet(given)


def _freeze(parts: Any) -> tuple[str, ...]:
    given = (parts,) if isinstance(parts, str) else tuple(parts) if isinstance(parts, Iterable) else (parts,)
    if not all(isinstance(part, str) for part in given):
        raise InputError(
            f"Training: freeze={parts!r}. Give names of parts: 'trunk', 'heads', 'align', 'trunk.encoder'."
        )
    return tuple(sorted(set(given)))  # one order: the same parts are the same training, also where a set was given


def _capacity(capacity: Any) -> Capacity:
    if isinstance(capacity, (list, tuple)):
        sizes = tuple(_whole(c) for c in capacity)
        return sizes[0] if len(sizes) == 1 else sizes
    whole: Capacity = _whole(capacity)
    return whole


def _whole(value: Any) -> Any:
    """Whole numbers of any library as int; anything else as it is, for the checks to refuse."""
    return int(value) if hasattr(value, "__index__") and not isinstance(value, (bool, np.bool_)) else value


def _real(value: Any) -> Any:
    """Numbers of any library as float, so that 0 and 0.0 are one setting; anything else for the checks to refuse."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        return value
    try:
        return float(value)
    except OverflowError:  # a whole number beyond the largest float
        return math.inf


def _weighting(weighting: Any, tasks: TaskSet) -> str | dict[str, float]:
    """A name, or positive-or-zero numbers by task name."""
    if isinstance(weighting, str):
        return weighting
    numbers = _numbers(weighting)
    given = numbers if isinstance(numbers, Mapping) else dict(zip(tasks.names, numbers, strict=False))
    strangers = [name for name in given if name not in tasks.names]
    if strangers:
        raise unknown("task", strangers[0], tasks.names, "Training(weighting=...)")
    if len(numbers) != len(tasks):
        raise InputError(f"Training: weighting has {len(numbers)} numbers for {len(tasks)} tasks. Give one each.")
    ordered = {name: given[name] for name in tasks.names}
    if not all(math.isfinite(v) and v >= 0 for v in ordered.values()) or not any(ordered.values()):
        raise InputError(f"Training: weighting={ordered}. Task weights must be finite, not negative and not all zero.")
    return ordered


def _numbers(weighting: Any) -> dict[Any, float] | list[float]:
    """Numbers by name, or in order; torch and numpy ones as float."""
    try:
        if isinstance(weighting, Mapping):
            return {name: float(value) for name, value in weighting.items()}
        return [float(value) for value in weighting]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"Training: weighting={weighting!r}. Give {', '.join(map(repr, WEIGHTINGS))}, the name of a TorchJD "
            "method, or one number a task."
        ) from error


def _same_split(a: Task, b: Task) -> bool:
    if a.split is None or b.split is None:
        return a.split is b.split
    return a.split is b.split or bool((a.split == b.split).all())


def _start_identity(start: Any) -> str | None:
    if start is None:
        return None
    if isinstance(start, (str, os.PathLike)):
        from mtlens.engine.saving import trained_identity

        return trained_identity(Path(start))
    return str(start.identity)
