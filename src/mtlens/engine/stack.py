"""Many small models as one: parameters stacked along a first axis, every step one batched product for all.

Shapes: S members, T tasks each, C outputs a head (padded to the most), R rows a step (``R = batch``; ``T * batch`` for
"each" steps), d inputs, h features. A member's numbers depend on its own settings alone; places, padding and
companions change nothing but the last bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mtlens.arrays import FloatArray, IntArray
from mtlens.engine import device_steps, native
from mtlens.engine.graphs import GraphedTick
from mtlens.engine.layout import Layout
from mtlens.engine.objective import StackedObjective
from mtlens.engine.order import epoch_order, order_key, steps_per_epoch
from mtlens.engine.prepare import Member, Start
from mtlens.engine.store import Store
from mtlens.engine.tracker import Tracker
from mtlens.engine.updates import SKIP, WHOLE, FusedUpdate, Part, PlainUpdate
from mtlens.nets.alignment import alignment_gradient, alignment_matrices, apply_alignment
from mtlens.nets.family import StackedTrunk

LAID_TOGETHER = 1024  # epochs of so many members are laid out at a time: with one-task steps no two are alike
WORDS = 16  # lengths of texts are rounded up to a multiple of it


@dataclass(eq=False)
class Run:
    """A member on its way: where it stands and what it showed so far."""

    number: int
    member: Member
    epoch: int = 0
    seconds: float = 0.0

    @cached_property
    def tracker(self) -> Tracker:
        """Made when the member gets a place: thousands that wait take no room for it."""
        return Tracker(self.member.training)


class Stack:
    """Members of one layout, stepping together. Places whose member has left can be given to another."""

    def __init__(self, layout: Layout, runs: Sequence[Run], pool: Sequence[Member], store: Store) -> None:
        """``pool``: all members that may ever take a place (they set the widths and the room for an epoch)."""
        self.layout, self.store = layout, store
        self.runs: list[Run | None] = list(runs)
        self.capacities = [member.training.capacity for member in pool]
        self.trunk = self._new_trunk(pool)
        self.scoring_trunk = self._new_trunk(pool)  # its own buffers: scoring has other shapes than stepping
        self.aligned_width = len(next(iter(pool[0].start.align[0].values()))) if layout.align else 0
        self._room = max(steps_per_epoch(member) for member in pool)
        self._make_parts(len(runs))
        self._make_schedule(len(runs))
        steps = sum(steps_per_epoch(run.member) * run.member.training.epochs for run in runs)
        self._samples = steps * self.index.shape[2]  # that the first members have to go, at most
        self._fill(range(len(runs)))
        self._rebuild()

    # Layout of the parameters --------------------------------------------------------------------------------------

    def _new_trunk(self, pool: Sequence[Member]) -> StackedTrunk:
        rows = self.store.tables.rows or pool[0].rows
        trunk = pool[0].family.stacked(rows, [member.training.capacity for member in pool])
        assert trunk is not None
        return trunk

    def _make_parts(self, count: int) -> None:
        layout, store = self.layout, self.store
        T, C, h = layout.num_tasks, layout.columns, self.trunk.out_features
        d = self.aligned_width
        sizes = {"trunk": (self.trunk.num_parameters, 1, True), "heads": (T * C * (h + 1), T, True)}
        if layout.align:
            each = d * d if layout.align_rank is None else 2 * d * layout.align_rank
            sizes["align"] = (T * each, T, False)
        if layout.uncertain:
            sizes["log_vars"] = (T, T, False)
        self.parts = {
            name: Part(name, torch.zeros(count, n, dtype=store.dtype, device=store.device), segments, decays)
            for name, (n, segments, decays) in sizes.items()
        }
        self.best = {name: torch.zeros_like(part.value) for name, part in self.parts.items()}

    def _pack(self, member: Member) -> dict[str, Tensor]:
        """A member's starting values as padded rows, one a part."""
        start, layout = member.start, self.layout
        heads = torch.zeros(layout.num_tasks, layout.columns, self.trunk.out_features + 1, dtype=torch.float64)
        for t, (weight, bias) in enumerate(start.heads):
            heads[t, : len(weight), : weight.shape[1]] = weight
            heads[t, : len(weight), -1] = bias
        rows = {"trunk": self.trunk.pack(start.trunk, member.training.capacity), "heads": heads.flatten()}
        if layout.align:
            rows["align"] = torch.cat([value.flatten() for own in start.align for value in own.values()])
        if start.log_vars is not None:
            rows["log_vars"] = torch.from_numpy(start.log_vars)
        return rows

    def values(self, places: Sequence[int]) -> list[Start]:
        """The values to keep of some places, cut back to the members' own sizes, on the CPU."""
        rows = {name: own.cpu() for name, own in self.rows_at(self._at(places), kept=True).items()}
        return [
            self._unpack(member, {name: own[number] for name, own in rows.items()})
            for number, member in enumerate(self._members(places))
        ]

    def rows_at(self, at: Tensor, *, kept: bool) -> dict[str, Tensor]:
        """Part -> padded rows ``(g, n)`` of these places: present values, or those that each member keeps."""
        present = {name: part.value.index_select(0, at) for name, part in self.parts.items()}
        if not kept:
            return present
        select_best = torch.tensor([run is not None and run.member.training.select == "best" for run in self.runs])
        is_best = select_best.to(at.device).index_select(0, at)[:, None]
        return {name: torch.where(is_best, self.best[name].index_select(0, at), own) for name, own in present.items()}

    def _unpack(self, member: Member, rows: dict[str, Tensor]) -> Start:
        """The inverse of :meth:`_pack`, but for learned task weights, which no net holds."""
        layout = self.layout
        trunk = self.trunk.unpack(rows["trunk"], member.training.capacity)
        width = member.features
        heads = rows["heads"].view(layout.num_tasks, layout.columns, -1)
        own = [
            (h[: s.columns, :width].clone(), h[: s.columns, -1].clone())
            for h, s in zip(heads, member.slots, strict=True)
        ]
        align = [self._cut_alignment(r) for r in rows["align"].view(layout.num_tasks, -1)] if layout.align else []
        return Start(trunk, own, align)

    def _cut_alignment(self, row: Tensor) -> dict[str, Tensor]:
        matrices = alignment_matrices(row, self.aligned_width, self.layout.align_rank)
        return {name: own[0].clone() for name, own in zip("R" if len(matrices) == 1 else "UV", matrices, strict=True)}

    # Places --------------------------------------------------------------------------------------------------------

    def _make_schedule(self, count: int) -> None:
        layout, device = self.layout, self.store.device
        width = layout.batch * (layout.num_tasks if layout.mode == "each" else 1)
        T = layout.num_tasks
        self.index = torch.zeros(count, self._room, width, dtype=torch.int32, device=device)
        self.active = torch.zeros(count, self._room, dtype=torch.int64, device=device)
        self.drawn = torch.ones(
            count, self._room, T if layout.random_weights else 0, dtype=self.store.dtype, device=device
        )
        self.position = torch.zeros(count, dtype=torch.int64, device=device)
        self.turn = torch.zeros(count, dtype=torch.int64, device=device)  # steps since the member's start
        self.loss = torch.zeros(count, dtype=self.store.dtype, device=device)
        self.words: int | None = None  # columns of token ids that the next step reads; None: all
        self.remaining = [0] * count
        self.length = [1] * count

    @property
    def live(self) -> list[int]:
        """Places with a member."""
        return [place for place, run in enumerate(self.runs) if run is not None]

    def _at(self, places: Sequence[int]) -> Tensor:
        return torch.tensor(list(places), dtype=torch.int64, device=self.store.device)

    def _members(self, places: Sequence[int]) -> list[Member]:
        return [run.member for place in places if (run := self.runs[place]) is not None]

    def _fill(self, places: Sequence[int]) -> None:
        """Starting values and first epoch of the members now at these places."""
        if not places:
            return
        at, members = self._at(places), self._members(places)
        numbers = _numbered(member.start_key for member in members)
        which, distinct = self._at(numbers), dict(zip(numbers, members, strict=True))
        packed = [self._pack(member) for member in distinct.values()]
        for name, part in self.parts.items():
            rows = torch.stack([own[name] for own in packed]).to(part.value)
            part.reset(at, rows.index_select(0, which))
            self.best[name][at] = part.value[at]
        self.turn[at] = 0
        self._begin_epochs(places)

    def _empty_rows(self, member: Member) -> IntArray:
        """The rows of a step that learns nothing: the empty ones in front of the member's blocks, ``(R,)`` or ``(1,)``.

        Steps beyond an epoch's length run when a graph is captured, and those of empty places always: with what an
        earlier member left there, rows and labels would not belong together and could lie outside the store.
        """
        starts = np.array([self.store.start(slot) for slot in member.slots])
        return np.repeat(starts, self.layout.batch) if self.layout.mode == "each" else starts[:1]

    def _quieten(self, places: Sequence[int], members: Sequence[Member]) -> None:
        """Point all steps of each place at the empty rows of a member."""
        at, rows = self._at(places), np.array([self._empty_rows(member) for member in members])
        self.index[at] = torch.from_numpy(rows).to(self.index).unsqueeze(1)
        self.active[at] = 0

    def _begin_epochs(self, places: Sequence[int]) -> None:
        """Lay out the next epoch of these places; members that meet the same rows share the work.

        Orders go to the device many together: with a copy for each, the host would wait for it as many times.
        """
        for some in in_batches(places, LAID_TOGETHER):
            self._lay_out_together(some)
        at = self._at(places)
        self.position[at] = 0
        self.loss[at] = 0

    def _lay_out_together(self, places: Sequence[int]) -> None:
        runs = [run for place in places if (run := self.runs[place]) is not None]
        numbers = _numbered(order_key(run.member, run.epoch) for run in runs)
        distinct = dict(zip(numbers, runs, strict=True))
        schedule = (self.index, self.active, self.drawn)
        laid = [torch.zeros(len(distinct), *part.shape[1:], dtype=part.dtype) for part in schedule]
        steps = [
            self._lay_out(*own) for own in zip(distinct.values(), *(orders.numpy() for orders in laid), strict=True)
        ]
        for place, number in zip(places, numbers, strict=True):
            self.remaining[place] = self.length[place] = steps[number]
        at, which = self._at(places), self._at(numbers)
        for part, orders in zip(schedule, laid, strict=True):
            _put_rows(part, places, at, orders.to(part.device), which)

    def _lay_out(self, run: Run, index: IntArray, active: IntArray, drawn: FloatArray) -> int:
        """Fill one schedule ``(room, ...)``: the run's next epoch, then steps on empty rows; the epoch's length."""
        order, starts = epoch_order(run.member, run.epoch), self._empty_rows(run.member)
        steps = len(order)
        index[steps:] = starts
        if order.active is not None:
            active[:steps] = order.active
            starts = np.array([self.store.start(slot) for slot in run.member.slots])[order.active][:, None]
        index[:steps] = self.store.places(order.rows, starts)
        if order.weights is not None:
            drawn[:steps] = order.weights
        return steps

    def replace(self, changes: dict[int, Run | None]) -> None:
        """Give places to other members, or to none; drop empty places when they are a quarter of the stack."""
        leaving = dict(zip(changes, self._members(list(changes)), strict=True))
        for place, run in changes.items():
            self.runs[place] = run
            self.remaining[place] = 0
        newcomers = [place for place, run in changes.items() if run is not None]
        self._fill(newcomers)
        live = self.live
        if not live or not changes:
            return
        if len(live) <= 0.75 * len(self.runs):
            self._compact(live)
            self._rebuild()
        elif newcomers or not isinstance(self.update, PlainUpdate):
            self._rebuild()
        else:
            self._empty(leaving)

    def _empty(self, leaving: dict[int, Member]) -> None:
        """Let places rest as they are: what was captured for this composition goes on to hold."""
        self._quieten(list(leaving), list(leaving.values()))
        self.update.rest(self._at(list(leaving)))

    def _compact(self, live: list[int]) -> None:
        keep = torch.tensor(live, device=self.store.device)
        for name, part in self.parts.items():
            part.keep(keep)
            self.best[name] = self.best[name].index_select(0, keep)
        for name in ("index", "active", "drawn", "position", "turn", "loss"):
            setattr(self, name, getattr(self, name).index_select(0, keep))
        self.runs = [self.runs[place] for place in live]
        self.remaining = [self.remaining[place] for place in live]
        self.length = [self.length[place] for place in live]

    def _rebuild(self) -> None:
        """Everything derived from who is in the stack."""
        someone = self.runs[self.live[0]]
        assert someone is not None
        members = [(run or someone).member for run in self.runs]
        if empty := [place for place, run in enumerate(self.runs) if run is None]:
            self._quieten(empty, [someone.member] * len(empty))  # an empty place computes something harmless
        count, device, dtype = len(members), self.store.device, self.store.dtype
        self._arange = torch.arange(count, device=device)
        self._offset = self._arange * self._room
        self.shift = torch.tensor([[self.store.shift(s) for s in m.slots] for m in members], device=device)  # (S, T)
        self.objective = StackedObjective([m.slots for m in members], self.layout.columns, self.parts["heads"].value)
        self._half = self.objective.half_where_regression()
        fixed = [np.ones(len(m.slots)) if m.weights is None else m.weights for m in members]
        self.weights = torch.tensor(np.array(fixed), dtype=dtype, device=device)  # (S, T)
        self._penalty = torch.tensor([m.training.penalty for m in members], dtype=dtype, device=device)
        self.affine = self._make_affine(members) if self.layout.rescaled else None
        rates = [(m.training.lr, m.training.weight_decay) for m in members]
        update: Any = FusedUpdate if device.type == "cpu" else PlainUpdate
        self.update = update(self.layout.optimizer, list(self.parts.values()), rates, self.live)
        self._buffers: dict[str, Tensor] = {}
        self._step: Callable[[], None] = GraphedTick(self) if device.type == "cuda" else self.tick

    def moving_tensors(self) -> list[Tensor]:
        """All that a step changes."""
        own = [t for part in self.parts.values() for t in (part.value, part.grad, part.first, part.second, part.steps)]
        return [*own, self.position, self.turn, self.loss]

    def _make_affine(self, members: Sequence[Member]) -> tuple[Tensor, Tensor]:
        """``(S, T, d)`` factors and offsets from the store's rows to every member's own scale."""
        d = self.store.X.shape[1]
        identity = (np.ones(d), np.zeros(d))
        pairs = [[slot.block.affine(m.inputs) or identity for slot in m.slots] for m in members]
        both = torch.tensor(np.array(pairs), dtype=self.store.dtype, device=self.store.device)  # (S, T, 2, d)
        return both[:, :, 0].contiguous(), both[:, :, 1].contiguous()

    # Stepping ------------------------------------------------------------------------------------------------------

    def run_to_epoch_end(self, interrupted: Any = None) -> list[int]:
        """Step until at least one member ends its epoch; the places that did."""
        live = self.live
        count = min(self.remaining[place] for place in live)
        began = time.perf_counter()
        if not self._way_to_step()(count, interrupted):
            return []
        share = (time.perf_counter() - began) / len(live)
        for place in live:
            run = self.runs[place]
            assert run is not None
            run.seconds += share
            self.remaining[place] -= count
        return [place for place in live if self.remaining[place] == 0]

    def _way_to_step(self) -> Callable[[int, Any], bool]:
        """The fastest way that does what this layout asks for; False from it: interrupted."""
        asked = (self.layout, self.trunk, self.store.device)
        if native.can_run(*asked):
            return self._step_natively
        size = (self._samples, len(self.live), self.trunk.num_parameters)
        if device_steps.can_run(*asked) and device_steps.pays(*size):
            return self._step_on_device
        return self._step_stacked

    def _step_on_device(self, count: int, interrupted: Any) -> bool:
        for done in range(0, count, device_steps.MOST_STEPS):
            if interrupted is not None and interrupted():
                return False
            if not device_steps.run_steps(self, min(count - done, device_steps.MOST_STEPS)):
                return self._step_stacked(count - done, interrupted)
            torch.cuda.synchronize(self.store.device)  # a launch returns at once: nothing could be interrupted
        return True

    def _step_natively(self, count: int, interrupted: Any) -> bool:
        for place in self.live:
            if interrupted is not None and interrupted():
                return False
            native.run_steps(self, place, count)
        return True

    def _step_stacked(self, count: int, interrupted: Any) -> bool:
        words = self._words_ahead(count)
        for done in range(count):
            if interrupted is not None and done % 16 == 0 and interrupted():
                return False
            self.words = words[done]
            self._step()
        if self.store.device.type == "cuda":
            torch.cuda.synchronize(self.store.device)  # so that the time is the steps' own
        return True

    def _words_ahead(self, count: int) -> list[int] | list[None]:
        """Words of the longest text that each of the next steps meets; rounded up, so that few lengths are captured."""
        lengths = self.store.lengths
        if lengths is None:
            return [None] * count
        live = self._at(self.live)
        longest = []
        for ahead in torch.split(torch.arange(count, device=live.device), 64):  # all at once would be as large as data
            rows = self.index[live[:, None], self.position[live, None] + ahead]
            longest.append(lengths[rows.long()].amax((0, 2)))
        whole: list[int] = (torch.cat(longest).clamp(min=1).add_(WORDS - 1) // WORDS * WORDS).tolist()
        return whole

    def tick(self) -> None:
        """One optimizer step of every member."""
        at = self._offset + self.position.clamp(max=self._room - 1)
        rows = self.index.flatten(0, 1).index_select(0, at).long()  # (S, R)
        active = self.active.flatten().index_select(0, at) if self.layout.mode == "mixed" else None
        weights = self.weights
        if self.layout.random_weights:
            weights = self.drawn.flatten(0, 1).index_select(0, at)
        self._learn(rows, active, weights)
        self._apply(active)
        self.position += 1
        self.turn += 1

    def _learn(self, rows: Tensor, active: Tensor | None, weights: Tensor) -> None:
        """Fill the parts' gradients for the given rows of the store."""
        layout, parts = self.layout, self.parts
        S, T, C = len(rows), layout.num_tasks, layout.columns
        X = self._inputs(rows, active)  # (S, R, d)
        align = partial(self._align, active=active) if layout.align else None
        features = self.trunk.forward(parts["trunk"].value, X, align)  # (S, R, h)
        heads, features = self._heads(parts["heads"].value, features, active)
        raw = torch.baddbmm(heads[..., -1].unsqueeze(1), features, heads[..., :-1].transpose(1, 2))
        axis = 1 if layout.mode == "shared" else 2
        raw = raw.view(S, -1, T, C) if axis == 1 else raw.view(S, -1, layout.batch, C)
        losses, grad = self.objective(raw, *self._labels(rows, active), axis=axis, active=active)
        grad *= self._task_weights(losses, weights, active)[..., None].unsqueeze(axis)
        self.loss += losses.sum(1)
        self._backward(heads, features, grad.view(*features.shape[:2], -1), active)

    def _inputs(self, rows: Tensor, active: Tensor | None) -> Tensor:
        store = self.store
        flat = self.buffer("X", (rows.numel(), store.X.shape[1]))
        torch.index_select(store.X, 0, rows.view(-1), out=flat)
        X = flat.view(*rows.shape, -1)[..., : self.words]
        if self.affine is not None:
            factor, offset = self.affine
            if active is not None:
                factor, offset = (t[self._arange, active].unsqueeze(1) for t in self.affine)
            elif self.layout.mode == "each":
                factor, offset = (t.repeat_interleave(self.layout.batch, 1) for t in self.affine)
            else:
                factor, offset = factor[:, :1], offset[:, :1]
            X.mul_(factor).add_(offset)
        return X

    def _labels(self, rows: Tensor, active: Tensor | None) -> tuple[Tensor, Tensor]:
        """Labels and weights in the shape of the outputs: ``(S, R, T)``, or ``(S, T, b)`` (T = 1 for mixed steps)."""
        if self.layout.mode == "shared":
            places = rows.unsqueeze(2) + self.shift.unsqueeze(1)
        elif active is not None:
            places = (rows + self.shift[self._arange, active].unsqueeze(1)).unsqueeze(1)
        else:
            places = rows.view(len(rows), self.layout.num_tasks, -1) + self.shift.unsqueeze(2)
        return self.store.y.take(places), self.store.weight.take(places)

    def _heads(self, value: Tensor, features: Tensor, active: Tensor | None) -> tuple[Tensor, Tensor]:
        """Head rows ``[w, b]`` ``(B, outputs, h + 1)`` and the features they read ``(B, rows, h)``."""
        layout, h = self.layout, self.trunk.out_features
        heads = value.view(len(value), layout.num_tasks, layout.columns, h + 1)
        if active is not None:
            return heads[self._arange, active], features
        if layout.mode == "shared":
            return heads.flatten(1, 2), features
        return heads.flatten(0, 1), features.reshape(-1, layout.batch, h)

    def _task_weights(self, losses: Tensor, weights: Tensor, active: Tensor | None) -> Tensor:
        """``(S, T)`` weights of the losses; learned ones leave their own gradient behind.

        Uncertainty weighting adds ``c exp(-s) L + s / 2`` with ``c`` = 1/2 for regression and 1 otherwise, so the
        weight is ``c exp(-s)`` and ``d/ds = 1/2 - c exp(-s) L``.
        """
        if self.layout.uncertain:
            part = self.parts["log_vars"]
            weights = self._half * torch.exp(-part.value)
            own = weights if active is None else weights[self._arange, active].unsqueeze(1)
            slope = 0.5 - own * losses
            part.grad.copy_(slope.expand_as(part.grad))  # one-task steps use the active entry only
            return own
        return weights if active is None else weights[self._arange, active].unsqueeze(1)

    def _backward(self, heads: Tensor, features: Tensor, grad: Tensor, active: Tensor | None) -> None:
        """From ``dL/draw (B, rows, outputs)`` down."""
        layout, parts = self.layout, self.parts
        if layout.trains_heads:
            weight_grad = torch.bmm(grad.transpose(1, 2), features)
            own = torch.cat([weight_grad, grad.sum(1).unsqueeze(2)], 2)  # (B, outputs, h + 1)
            self._put("heads", own, active)
        if not (layout.trains_trunk or layout.trains_align):
            return
        upper = self.buffer("features", tuple(features.shape))
        torch.bmm(grad, heads[..., :-1], out=upper)
        upper = upper.view(len(self.runs), -1, self.trunk.out_features)
        into = parts["trunk"].grad if layout.trains_trunk else None
        below = self.trunk.backward(parts["trunk"].value, upper, into, grad_input=layout.trains_align)
        if below is not None:
            self._align_backward(below, active)

    def _put(self, name: str, grad: Tensor, active: Tensor | None) -> None:
        part = self.parts[name]
        if active is None:
            part.grad.copy_(grad.reshape(part.grad.shape))
        else:
            part.grad.view(len(part.grad), part.segments, -1)[self._arange, active] = grad.flatten(1)

    # Alignment -----------------------------------------------------------------------------------------------------

    def _alignments(self, active: Tensor | None) -> tuple[Tensor, ...]:
        """``R (B, d, d)``, or ``U, V (B, d, r)`` each; B is S for one-task steps, else S * T."""
        part = self.parts["align"]
        own = part.value.view(len(part.value), part.segments, -1)
        own = own.flatten(0, 1) if active is None else own[self._arange, active]
        return alignment_matrices(own, self.aligned_width, self.layout.align_rank)

    def _align(self, vectors: Tensor, active: Tensor | None) -> Tensor:
        """``V R`` of ``V (S, n, d)``, task by task; they are kept for the way back."""
        self._unaligned = vectors
        own = apply_alignment(vectors.view(self._groups(vectors, active)), self._alignments(active))
        return own.view(vectors.shape)

    def _groups(self, V: Tensor, active: Tensor | None) -> tuple[int, int, int]:
        """Shape in which every matrix meets the vectors it maps."""
        count = len(V) if active is not None else len(V) * self.layout.num_tasks
        return count, V.numel() // (count * V.shape[2]), V.shape[2]

    def _align_backward(self, below: Tensor, active: Tensor | None) -> None:
        shape, matrices = self._groups(self._unaligned, active), self._alignments(active)
        V, below = self._unaligned.view(shape), below.reshape(shape)
        pull = self._penalty.repeat_interleave(len(V) // len(self._penalty))[:, None, None]
        self._put("align", alignment_gradient(V, below, matrices, pull), active)

    # Updating ------------------------------------------------------------------------------------------------------

    def _apply(self, active: Tensor | None) -> None:
        """Move the parts that train; a one-task step moves only its own head, alignment and log-variance."""
        layout, parts = self.layout, self.parts
        chosen = None if active is None else self._choice(active)
        if layout.trains_trunk:
            self.update.step(parts["trunk"])
        if layout.align == "fixed" and layout.trains_heads and layout.trains_align:
            choices = [self._choice(self._in_turn(active, parity)) for parity in (0, 1)]  # both before either moves
            for name, choice in zip(("heads", "align"), choices, strict=True):
                self.update.step(parts[name], choice)
        else:
            for name, trains in (("heads", layout.trains_heads), ("align", layout.trains_align)):
                if trains:
                    self.update.step(parts[name], chosen)
        if layout.uncertain:
            self.update.step(parts["log_vars"], chosen)

    def _in_turn(self, active: Tensor | None, parity: int) -> Tensor:
        """Algorithm 1 alternates: heads on even steps of a task, alignments on odd ones."""
        if active is None:
            return torch.where(self.turn % 2 == parity, WHOLE, SKIP)
        steps = self.parts["heads"].steps + self.parts["align"].steps  # (S, T) one-task steps so far
        own = steps.gather(1, active.to(steps.device)[:, None])[:, 0]
        return torch.where((own % 2 == parity).to(active.device), active, SKIP)

    def _choice(self, chosen: Tensor) -> Any:
        return chosen.tolist() if self.store.device.type == "cpu" else chosen

    def buffer(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A tensor that stays between steps, with whatever the last step left in it."""
        kept = self._buffers.get(name)
        if kept is None or kept.shape != shape:
            kept = self._buffers[name] = torch.empty(shape, dtype=self.store.dtype, device=self.store.device)
        return kept

    # Ends of epochs ------------------------------------------------------------------------------------------------

    def mean_losses(self, places: Sequence[int]) -> list[float]:
        """Mean loss of a step over the epoch; NaN when parameters are not finite any more."""
        chosen = torch.tensor(list(places), device=self.store.device)
        steps = torch.tensor([self.length[p] for p in places], dtype=self.loss.dtype, device=self.loss.device)
        means = self.loss[chosen] / steps
        for part in self.parts.values():
            means = torch.where(torch.isfinite(part.value.sum(1)[chosen]), means, torch.nan)
        return means.tolist()

    def keep(self, places: Sequence[int]) -> None:
        """Remember the present values of these places as their best."""
        chosen = torch.tensor(list(places), device=self.store.device)
        for name, part in self.parts.items():
            self.best[name][chosen] = part.value[chosen]

    def next_epoch(self, places: Sequence[int]) -> None:
        """Draw the next epoch of these places."""
        if not places:
            return
        for place in places:
            run = self.runs[place]
            assert run is not None
            run.epoch += 1
        self._begin_epochs(places)


def in_batches(places: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """The places in order, at most ``size`` at a time."""
    for first in range(0, len(places), size):
        yield places[first : first + size]


def _numbered(keys: Iterable[Any]) -> list[int]:
    """Equal keys as equal numbers, counted from 0 in the order in which they first appear."""
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _put_rows(target: Tensor, places: Sequence[int], at: Tensor, rows: Tensor, which: Tensor) -> None:
    """``target[at] = rows[which]``; without a copy in between when these are all the places of ``target``."""
    if list(places) == list(range(len(target))):
        torch.index_select(rows, 0, which, out=target)
    else:
        target.index_copy_(0, at, rows.index_select(0, which))
