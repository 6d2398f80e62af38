"""A training resolved against its data: everything a loop needs, whichever way it runs."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from mtlens.arrays import Array, FloatArray
from mtlens.engine.inputs import InputMap, Scaler, fit_inputs, is_plain, split_key, train_part
from mtlens.engine.result import Output, Trained, output_of
from mtlens.engine.training import Training
from mtlens.errors import InputError
from mtlens.nets.alignment import Alignment
from mtlens.nets.embedding import own_values
from mtlens.nets.family import Family, RowSpec
from mtlens.nets.multitask import head_values
from mtlens.nets.placement import aligned_width
from mtlens.nets.streams import torch_seed
from mtlens.nets.text import average_vectors
from mtlens.tasks.task import Task
from mtlens.weighting.fixed import WeightInputs, equal_weights, svd_task_weights, uncertainty_start

LEAST_ROOM = 64  # rows of a batch up to which room is not cut to the data
BUILDING = threading.RLock()  # modules draw from the global generator, which is put back: one thread at a time

Mode: TypeAlias = Literal["shared", "each", "mixed"]


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of one input before a member's own scale; shared by every training that reads it.

    A plain array is kept as it came and standardised by its own train rows when taken, so that no second copy of the
    data stays around; anything else is kept encoded (``mean`` and ``scale`` are then None).
    """

    source: Array
    mean: FloatArray | None = None
    scale: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: Array | slice = slice(None)) -> Array:
        """The given rows as the store holds them: ``(n, d)`` float64, or whatever the encoder gives."""
        taken = self.source[rows]
        if self.mean is None or self.scale is None:
            return taken
        standardised: Array = (taken.reshape(len(taken), -1).astype(np.float64) - self.mean) / self.scale
        return standardised

    def scaled(self, inputs: InputMap, rows: Array | slice = slice(None)) -> Array:
        """The given rows as the trunk of a member with ``inputs`` reads them, ``(n, *inputs.rows.shape)``."""
        taken, affine = self.take(rows), self.affine(inputs)
        if affine is not None:
            taken = taken * affine[0] + affine[1]
        return taken.reshape(len(taken), *inputs.rows.shape) if self.mean is not None else taken

    def affine(self, inputs: InputMap) -> tuple[FloatArray, FloatArray] | None:
        """``(a, b)`` such that ``a * take() + b`` is the input as ``inputs`` scales it; None when it already is."""
        if self.mean is None or self.scale is None or not isinstance(inputs, Scaler):
            return None
        mean, scale = inputs.mean.ravel(), inputs.scale.ravel()
        if np.array_equal(mean, self.mean) and np.array_equal(scale, self.scale):
            return None
        return self.scale / scale, (self.mean - mean) / scale


@dataclass(frozen=True, eq=False)
class Slot:
    """One task of a training.

    Attributes:
        y: ``(m,)`` float64: standardised numbers, or codes; 0 where missing.
        weight: ``(m,)`` loss weights of train rows, mean 1 over the labelled ones, 0 on all other rows.
        train: labelled train rows.
        columns: outputs of the head.
    """

    task: Task
    block: Block
    output: Output
    y: FloatArray
    weight: FloatArray
    train: Array
    columns: int


@dataclass(eq=False)
class Start:
    """Starting values by name, float64: the trunk's, then per slot weight, bias, alignment and log-variance."""

    trunk: dict[str, Tensor]
    heads: list[tuple[Tensor, Tensor]]
    align: list[dict[str, Tensor]] = field(default_factory=list)
    log_vars: FloatArray | None = None


@dataclass(eq=False)
class Member:
    """One training, ready to run. ``slots`` are ordered by number of outputs, so equal layouts line up in a stack.

    Nothing here is large: rows are shared with the other members, and starting values are drawn when asked for, so that
    ten thousand members that wait take little room.
    """

    training: Training
    family: Family
    rows: RowSpec
    inputs: InputMap
    slots: list[Slot]
    mode: Mode
    weights: FloatArray | None  # (k,) fixed task weights in slot order; None when they are drawn or learned
    union: Array  # train rows of a shared input that at least one task labels: one object wherever they are equal
    origin: Trained | None  # the finished training that this one starts from

    @property
    def start(self) -> Start:
        """Starting values, drawn afresh at every call (always the same)."""
        with BUILDING:
            values = starting_values(self.training, self.family, self.rows, self.slots)
            if self.origin is not None:
                continue_from(values, self.training, self.slots, self.origin)
            return values

    @property
    def start_key(self) -> tuple[Any, ...]:
        """What :attr:`start` reads: equal for members that start from the same values."""
        training = self.training
        drawn_by = (training.seed, training.capacity, training.align, training.align_rank, training.align_at)
        return (*drawn_by, self.uncertain, id(self.family), id(self.slots), id(self.origin))

    @cached_property
    def features(self) -> int:
        """Width of the trunk's output."""
        with BUILDING:
            return self.family.out_features(self.rows, self.training.capacity)

    @property
    def names(self) -> list[str]:
        return [slot.task.name for slot in self.slots]

    @cached_property
    def batch(self) -> int:
        """Room for the rows of a batch: what was asked for, or a power of two that holds every row of a task.

        More would only be padding, which costs memory and time but never changes a result (``batch=10**9`` means "all
        rows"). Powers of two, not the very counts, so that small tasks of different lengths still share a stack.
        """
        most = max(len(self.union), *(len(slot.train) for slot in self.slots))
        return min(self.training.batch, max(LEAST_ROOM, 1 << (most - 1).bit_length()))

    @property
    def uncertain(self) -> bool:
        """Whether task weights are learned log-variances."""
        return bool(self.training.weighting == "uncertainty")


class Preparation:
    """Resolves trainings; whatever they share (encoded inputs, scaled labels, fitted maps, slots) is made once.

    Members that read the same tasks alike hold the very same list of slots, so what they share further on (orders of
    rows, passes of scoring) is found by identity, without comparing data.
    """

    def __init__(self) -> None:
        self._blocks: dict[Any, Block] = {}
        self._maps: dict[Any, InputMap] = {}
        self._labels: dict[Any, tuple[Output, FloatArray, FloatArray]] = {}
        self._train_rows: dict[int, Array] = {}
        self._unions: dict[int, Array] = {}
        self._row_sets: dict[bytes, Array] = {}
        self._slots: dict[Any, list[Slot]] = {}
        self._is_plain: dict[int, bool] = {}
        self._input_keys: dict[int, tuple[int, bytes]] = {}
        self._svd_weights: dict[tuple[int, int], FloatArray] = {}
        self._kept: list[Any] = []  # keeps what ids point to alive

    def member(self, training: Training, start: Trained | None = None) -> Member:
        """The training with data, weights and starting values resolved."""
        family = training.family
        inputs = self._inputs(training, family) if start is None else _source(start).inputs
        slots = self._slots_of(training, inputs, start)
        rows = _row_spec(inputs, slots)
        weights = self._weights(training, slots, inputs)
        union = self._union(slots) if training.shares_rows else slots[0].train
        member = Member(training, family, rows, inputs, slots, _mode(training), weights, union, start)
        if start is not None or training.align is not None:
            _ = member.start  # a start that does not fit is refused here, not in the middle of a run
        return member

    def _union(self, slots: list[Slot]) -> Array:
        if id(slots) not in self._unions:
            rows = slots[0].train
            if not all(np.array_equal(slot.train, rows) for slot in slots[1:]):
                rows = np.unique(np.concatenate([slot.train for slot in slots]))
            self._unions[id(slots)] = self._row_sets.setdefault(hashlib.sha256(rows.tobytes()).digest(), rows)
        return self._unions[id(slots)]

    def _inputs(self, training: Training, family: Family) -> InputMap:
        reads = repr(family.settings()) if family.inputs == "tokens" else "numbers"
        key = (reads, *sorted({self._input_key(task) for task in training.tasks}))
        if key not in self._maps:
            self._maps[key] = fit_inputs(list(training.tasks), family)
        return self._maps[key]

    def _input_key(self, task: Task) -> tuple[int, bytes]:
        """Equal for tasks with one input and the same train rows."""
        if id(task) not in self._input_keys:
            self._kept.append(task)
            self._input_keys[id(task)] = (id(task.X), split_key(task))
        return self._input_keys[id(task)]

    def _slots_of(self, training: Training, inputs: InputMap, start: Trained | None) -> list[Slot]:
        tasks = sorted(training.tasks, key=_columns)
        units = [_kept_units(task, start) for task in tasks]
        key = (id(inputs), *((id(task), own) for task, own in zip(tasks, units, strict=True)))
        if key not in self._slots:
            self._kept.append((inputs, tasks))
            self._slots[key] = [self._slot(task, inputs, own) for task, own in zip(tasks, units, strict=True)]
        return self._slots[key]

    def _slot(self, task: Task, inputs: InputMap, units: tuple[float, float] | None) -> Slot:
        key = (id(task), units)
        if key not in self._labels:
            self._train_rows.setdefault(id(task), task.rows_of("train"))
            self._labels[key] = _scaled_labels(task, units)
        output, y, weight = self._labels[key]
        block = self._block(task, inputs)
        return Slot(task, block, output, y, weight, self._train_rows[id(task)], _columns(task))

    def _block(self, task: Task, inputs: InputMap) -> Block:
        plain = isinstance(inputs, Scaler) and self._known_plain(task)
        key = self._input_key(task) if plain else (id(task.X), id(inputs))
        if plain and np.asarray(task.X).shape[1:] != inputs.rows.shape:  # the scale of a start
            raise InputError(
                f"task {task.name!r} has rows of shape {np.asarray(task.X).shape[1:]}, but the training it starts from "
                f"read rows of shape {inputs.rows.shape}. Give the same columns in the same order."
            )
        if key not in self._blocks:
            self._blocks[key] = _plain_block(task) if plain else Block(inputs.encode(task))
        return self._blocks[key]

    def _known_plain(self, task: Task) -> bool:
        if id(task.X) not in self._is_plain:
            self._is_plain[id(task.X)] = is_plain(task)  # reads all of the input
        return self._is_plain[id(task.X)]

    def _weights(self, training: Training, slots: list[Slot], inputs: InputMap) -> FloatArray | None:
        weighting = training.weighting
        if isinstance(weighting, dict):
            return np.array([weighting[slot.task.name] for slot in slots])
        if weighting == "svd":
            key = (id(slots), _rank(training))
            if key not in self._svd_weights:
                self._svd_weights[key] = _svd(training, slots, inputs)
            return self._svd_weights[key]
        return equal_weights(len(slots)) if weighting == "equal" else None


def starting_values(training: Training, family: Family, rows: RowSpec, slots: Sequence[Slot]) -> Start:
    """Every starting value from the seed and the name of its part; a pure function of the training."""
    seed = training.seed
    trunk = family.draw(rows, training.capacity, torch_seed(seed, "trunk"))
    width = family.out_features(rows, training.capacity)
    heads = [head_values(seed, slot.task.name, width, slot.columns) for slot in slots]
    align: list[dict[str, Tensor]] = []
    if training.align:
        with torch.random.fork_rng(devices=[]):  # only its shapes are read: leave the user's stream alone
            module = family.trunk(rows, training.capacity)
        place = aligned_width(module, rows, training.align_at or family.align_at)
        align = [_alignment(training, place, slot.task.name) for slot in slots]
    uncertain = training.weighting == "uncertainty"
    log_vars = uncertainty_start([slot.task.kind for slot in slots]) if uncertain else None
    return Start(trunk, heads, align, log_vars)


def _alignment(training: Training, width: int, task: str) -> dict[str, Tensor]:
    rank = training.align_rank
    if rank is not None and rank > width:
        raise InputError(f"Training: align_rank={rank} for features of width {width}. Use at most {width}.")
    with torch.random.fork_rng(devices=[]):
        align = Alignment(width, rank=rank, seed=torch_seed(training.seed, "align", task))
    return {name: value.detach().double() for name, value in align.state_dict().items()}


def continue_from(values: Start, training: Training, slots: Sequence[Slot], start: Trained) -> None:
    """Overwrite starting values by those of a finished training: trunk, heads and alignments of equal names."""
    net = _source(start).net
    trunk = {
        name: value.detach().double() if value.is_floating_point() else value
        for name, value in own_values(net.trunk).items()
    }
    _check_trunk(values.trunk, trunk, training, start)
    values.trunk = trunk
    for place, slot in enumerate(slots):
        if slot.task.name not in net.names:
            continue
        index = net.index(slot.task.name)
        head = {name: value.detach().double() for name, value in net.heads[index].state_dict().items()}
        if head.get("weight", torch.empty(0)).shape == values.heads[place][0].shape:
            values.heads[place] = (head["weight"], head["bias"])
        if values.align and net.align is not None:
            own = {name: value.detach().double() for name, value in net.align[index].state_dict().items()}
            if {n: v.shape for n, v in own.items()} == {n: v.shape for n, v in values.align[place].items()}:
                values.align[place] = own


def _check_trunk(fresh: dict[str, Tensor], given: dict[str, Tensor], training: Training, start: Trained) -> None:
    shapes = {name: tuple(value.shape) for name, value in given.items()}
    wanted = {name: tuple(value.shape) for name, value in fresh.items()}
    if shapes != wanted:
        raise InputError(
            f"{training!r} cannot start from {start.training!r}: its trunk has parameters {shapes}, but this training "
            f"needs {wanted}. Use the same trunk, capacity and features."
        )


def _source(start: Trained) -> Any:
    if start.model is None:
        raise InputError(
            f"start_from: {start.training!r} kept no model (it ended with: {start.reason}). "
            "Train it with keep='model' first."
        )
    return start.model


def _kept_units(task: Task, start: Trained | None) -> tuple[float, float] | None:
    """Units of a continued head: its labels must stay scaled as it learned them."""
    if start is None or task.kind != "regression":
        return None
    known = _source(start).outputs.get(task.name)
    return (known.mean, known.scale) if known is not None and known.kind == "regression" else None


def _scaled_labels(task: Task, units: tuple[float, float] | None) -> tuple[Output, FloatArray, FloatArray]:
    train = task.rows_of("train")
    mean, scale = 0.0, 1.0
    if task.kind == "regression":
        mean, scale = units or _label_units(task.y[train], task.name)
    y = np.where(task.labelled, (task.y - mean) / scale, 0.0)
    weight = np.zeros(len(y))
    own = np.ones(len(train)) if task.weight is None else task.weight[train]
    if not own.sum() > 0:
        raise InputError(f"task {task.name!r}: the sample weights of its train rows are all zero. Give one a weight.")
    weight[train] = own / own.mean()
    return output_of(task, mean, scale), y, weight


def _label_units(y: FloatArray, name: str) -> tuple[float, float]:
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale = float(y.mean()), float(y.std())
    if not np.isfinite(scale):
        raise InputError(
            f"task {name!r}: labels up to {np.abs(y).max():.3g} have squares beyond the largest number, so they cannot "
            "be standardised. Divide them by a constant first."
        )
    return mean, scale if scale > 1e-12 * max(1e-300, abs(mean)) else 1.0


def _plain_block(task: Task) -> Block:
    X = np.asarray(task.X)
    base = Scaler.fit([(X, train_part(task))])
    return Block(X, base.mean.ravel(), base.scale.ravel())


def _row_spec(inputs: InputMap, slots: Sequence[Slot]) -> RowSpec:
    spec = inputs.rows
    if spec.vocabulary:  # token rows are as long as the longest text met
        return RowSpec((max(slot.block.source.shape[1] for slot in slots),), spec.vocabulary, spec.vectors)
    return spec


def _columns(task: Task) -> int:
    """Outputs of a head: one, or one a class."""
    return task.num_classes if task.kind == "multiclass" else 1


def _mode(training: Training) -> Mode:
    if not training.joint:
        return "mixed"
    return "shared" if training.shares_rows and training.align is None else "each"


def _svd(training: Training, slots: Sequence[Slot], inputs: InputMap) -> FloatArray:
    parts = []
    for slot in slots:
        rows = train_part(slot.task)
        X = _features(slot.block.scaled(inputs, rows), inputs.rows, slot)
        classes = slot.task.num_classes if slot.task.kind == "multiclass" else 0
        parts.append(WeightInputs(X, slot.task.y[rows], classes))
    return svd_task_weights(parts, rank=_rank(training), shared=training.shares_rows)


def _rank(training: Training) -> int:
    """Width of the trunk's last layer, the paper's ``r``."""
    capacity = training.capacity
    return int(capacity[-1] if isinstance(capacity, tuple) else capacity)


def _features(rows: Array, spec: RowSpec, slot: Slot) -> Array:
    """What Algorithm 2 sees: the inputs laid flat, or the mean vectors of texts."""
    if not spec.vocabulary:
        return rows.reshape(len(rows), -1)
    if spec.vectors is None:
        raise InputError(
            f"weighting='svd' needs features before training, but the words of task {slot.task.name!r} have no vectors "
            "yet. Give the trunk pretrained vectors=..., or use weighting='uncertainty'."
        )
    return average_vectors(rows, spec.vectors)
