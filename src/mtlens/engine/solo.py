"""One model at a time: text trunks, users' own modules, and weightings that need every task's gradient.

Data, orders, starting values, selection and scores are the bank's own (``prepare``, ``order``, ``tracker``,
``scoring``), so a training gives the same numbers either way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlens.engine.assemble import net_of
from mtlens.engine.checkpoints import has_tree, load_tree, save_tree
from mtlens.engine.ending import finish, load_values, net_values
from mtlens.engine.optimizers import build_optimizers, freeze_parts
from mtlens.engine.order import EMPTY, Order, epoch_order
from mtlens.engine.prepare import Member
from mtlens.engine.result import Trained
from mtlens.engine.scoring import losses_of, scores_of
from mtlens.engine.tracker import Tracker
from mtlens.engine.training import WEIGHTINGS
from mtlens.errors import FileError, InputError, MtlensError
from mtlens.nets.streams import torch_seed
from mtlens.nets.text import text_lengths

EVALUATION_ROWS = 1024
CHECKPOINT = "solo_2"  # numbered: of a state of another shape nothing is found, and the training starts over

OnEpoch = Callable[[int], bool]


def train_solo(
    member: Member,
    *,
    device: str = "cpu",
    keep: str = "model",
    on_epoch: OnEpoch | None = None,
    folder: str | os.PathLike[str] | None = None,
    every: float = 30.0,
) -> Trained:
    """Train one member from start to end.

    Args:
        member: a prepared training.
        device: where the net and its data live.
        keep: "model", "predictions" (also) or "scores".
        on_epoch: called after every epoch with the samples it took; False ends the training as "interrupted".
        folder: of a checkpoint; a training found there goes on exactly where it stopped.
        every: least seconds between two checkpoints, which are written at the ends of epochs.
    """
    began = time.perf_counter()
    run = SoloRun(member, device)
    before = run.resume(folder) if folder is not None else 0.0
    written = began
    while not run.tracker.is_done:
        samples = run.epoch()
        now = time.perf_counter()
        if folder is not None and not run.tracker.is_done and now - written >= every:
            run.save(folder, before + now - began)
            written = now
        if on_epoch is not None and not on_epoch(samples) and not run.tracker.is_done:
            run.tracker.fail("interrupted")
    if run.best is not None:
        load_values(run.net, run.best)
    seconds = before + time.perf_counter() - began
    return finish(member, run.net, run.tracker, run.raw, seconds=seconds, keep=keep)


class SoloRun:
    """The moving state of one training: net, optimizers, weighting, tracker and the best values so far."""

    def __init__(self, member: Member, device: str = "cpu") -> None:
        training = member.training
        self.member, self.device = member, torch.device(device)
        self.dtype: torch.dtype = getattr(torch, training.dtype)
        self.net = net_of(member, member.start).to(self.device)
        self.free = freeze_parts(self.net, training)
        starts = [] if member.start.log_vars is None else list(member.start.log_vars)
        self.log_vars = [nn.Parameter(torch.tensor(s, dtype=self.dtype, device=self.device)) for s in starts]
        self.combiner = self._combiner()
        extra = self.combiner.parameters() if self.combiner is not None else self.log_vars
        self.optimizers = build_optimizers(self.net, training, self.free, extra)
        self.tracker = Tracker(training)
        self.turns = [0] * len(member.slots)  # steps of each task since the start
        self.best: dict[str, Tensor] | None = None
        self._inputs: dict[int, Tensor] = {}
        self.data = [
            (self._rows(i), self._tensor(slot.y), self._tensor(slot.weight)) for i, slot in enumerate(member.slots)
        ]

    def epoch(self) -> int:
        """One epoch: its steps, its validation, and the tracker's verdict. Returns the samples it took."""
        number = len(self.tracker.losses)
        order = epoch_order(self.member, number)
        with _noise(torch_seed(self.member.training.seed, "noise", number)):
            loss = self._steps(order)
        if self.combiner is not None:
            self.combiner.end_epoch()
        valid = self._valid_scores() if np.isfinite(loss) else {}
        if self.tracker.end_epoch(loss, valid):
            self.best = net_values(self.net)
        return int((order.rows != EMPTY).sum())

    def _steps(self, order: Order) -> float:
        self.net.train()
        total = 0.0
        for step in range(len(order)):
            value = self._step(order, step)
            if not np.isfinite(value):
                return value
            total += value
        finite = all(bool(torch.isfinite(parameter).all()) for parameter in self.net.parameters())
        return total / len(order) if finite else float("nan")

    def _step(self, order: Order, step: int) -> float:
        """One optimizer step; the sum of its tasks' losses, before weights and penalty."""
        places, losses = self._losses(order, step)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        if self.combiner is not None:
            self.combiner.backward(losses, self.free.trunk, [*self.free.heads, *self.free.align])
        else:
            torch.autograd.backward(self._weighted(places, losses, order, step))
        self._add_penalty(places)
        self._keep_turn(places)
        for optimizer in self.optimizers:
            optimizer.step()
        for place in places:
            self.turns[place] += 1
        if self.combiner is not None:
            self.combiner.after_step(lambda: self._losses(order, step)[1])
        return float(losses.detach().sum())

    def _losses(self, order: Order, step: int) -> tuple[list[int], Tensor]:
        """Places of the step's tasks and their mean losses ``(n,)``."""
        places = range(len(self.member.slots)) if order.active is None else [int(order.active[step])]
        rows = order.rows[step].reshape(len(places) if self.member.mode == "each" else 1, -1)
        batches = [torch.from_numpy(part[part != EMPTY]).to(self.device) for part in rows]
        if self.member.mode == "shared":
            batches = batches * len(places)
        raw = self._outputs(list(places), batches)
        losses = []
        for place, batch, out in zip(places, batches, raw, strict=True):
            _, y, weight = self.data[place]
            own = weight[batch]
            each = losses_of(self.member.slots[place].task.kind, out, y[batch])
            losses.append((own * each).sum() / own.sum().clamp(min=torch.finfo(own.dtype).tiny))
        return list(places), torch.stack(losses)

    def _outputs(self, places: list[int], batches: list[Tensor]) -> list[Tensor]:
        """Raw outputs ``(n, columns)`` of each task on its batch; without alignments the trunk runs once for all."""
        names = [self.member.slots[place].task.name for place in places]
        if self.net.align is not None:
            return [_columns(self.net(self._take(p, b), n)) for p, b, n in zip(places, batches, names, strict=True)]
        if self.member.mode == "shared":
            features = self.net.trunk(self._take(places[0], batches[0]))
            parts = [features] * len(places)
        else:
            together = _stacked([self.data[p][0][b] for p, b in zip(places, batches, strict=True)])
            parts = list(torch.split(self.net.trunk(self._trimmed(together)), [len(b) for b in batches]))
        return [self.net.heads[self.net.index(name)](part) for name, part in zip(names, parts, strict=True)]

    def _weighted(self, places: list[int], losses: Tensor, order: Order, step: int) -> Tensor:
        if self.log_vars:
            s = torch.stack([self.log_vars[place] for place in places])
            kinds = [self.member.slots[place].task.kind for place in places]
            half = self._tensor(np.array([0.5 if kind == "regression" else 1.0 for kind in kinds]))
            return (half * torch.exp(-s) * losses + s / 2).sum()
        weights = self.member.weights if order.weights is None else order.weights[step]
        assert weights is not None
        return (self._tensor(weights[places]) * losses).sum()

    def _add_penalty(self, places: list[int]) -> None:
        """Add the gradient of ``penalty |R_i - I|^2`` of the step's tasks."""
        if self.net.align is None or not self.member.training.penalty or not self.free.align:
            return
        aligned = [self.net.align[self.net.index(self.member.slots[p].task.name)] for p in places]
        torch.autograd.backward(torch.stack([part.regulariser() for part in aligned]).sum())  # type: ignore[operator]

    def _keep_turn(self, places: list[int]) -> None:
        """Algorithm 1 moves a task's head and alignment in turn: on its even steps the head, on odd ones ``R_i``."""
        if self.net.align is None or self.member.training.align != "fixed":
            return
        if self.free.heads and self.free.align:
            for place in places:
                index = self.net.index(self.member.slots[place].task.name)
                for parameter in (self.net.align if self.turns[place] % 2 == 0 else self.net.heads)[index].parameters():
                    parameter.grad = None

    def raw(self, split: str) -> dict[str, Tensor]:
        """Raw outputs ``(m, columns)`` by task on its labelled rows of a split; tasks without any are left out."""
        self.net.eval()
        found = {}
        for place, slot in enumerate(self.member.slots):
            rows = slot.task.rows_of(split)
            if len(rows):
                with torch.no_grad():
                    found[slot.task.name] = self._raw_rows(place, slot.task.name, torch.from_numpy(rows))
        return found

    def _raw_rows(self, place: int, name: str, rows: Tensor) -> Tensor:
        inputs = self.data[place][0]
        order = torch.arange(len(rows))
        if not inputs.is_floating_point():  # texts of similar length together
            order = torch.argsort(text_lengths(inputs[rows.to(self.device)]).cpu(), stable=True)
        parts = [
            _columns(self.net(self._take(place, rows[part].to(self.device)), name))
            for part in torch.split(order, EVALUATION_ROWS)
        ]
        out = torch.cat(parts)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        return out[back.to(out.device)]

    def _valid_scores(self) -> dict[str, float]:
        raw = self.raw("valid")
        slots = {slot.task.name: slot for slot in self.member.slots}
        return {
            name: float(scores_of(slots[name], "valid", out[None], standardised=True)[0]) for name, out in raw.items()
        }

    def state(self) -> dict[str, Any]:
        """Everything the rest of the training depends on."""
        return {
            "identity": self.member.training.identity,
            "net": net_values(self.net),
            "best": self.best,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "log_vars": [float(s.detach()) for s in self.log_vars],
            "turns": self.turns,
            "combiner": None if self.combiner is None else self.combiner.state(),
            "tracker": {k: v for k, v in vars(self.tracker).items() if k != "training"},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken; a state of another training is refused."""
        if state["identity"] != self.member.training.identity:
            raise InputError(
                f"the checkpoint belongs to training {state['identity'][:12]}, not to {self.member.training!r} "
                f"({self.member.training.identity[:12]}). Use the same data and settings, or another folder."
            )
        load_values(self.net, state["net"])
        self.best = state["best"]
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.turns = [int(turn) for turn in state["turns"]]
        with torch.no_grad():
            for own, value in zip(self.log_vars, state["log_vars"], strict=True):
                own.fill_(value)
        if self.combiner is not None:
            self.combiner.load_state(state["combiner"])
        vars(self.tracker).update(state["tracker"])

    def save(self, folder: str | os.PathLike[str], seconds: float) -> None:
        """Write a checkpoint, replacing the one before in one step."""
        save_tree(Path(folder), {"seconds": seconds, "run": self.state()}, name=CHECKPOINT)

    def resume(self, folder: str | os.PathLike[str]) -> float:
        """Load the checkpoint of a folder if there is one; the seconds it took to get there."""
        if not has_tree(folder, name=CHECKPOINT):
            return 0.0
        saved = load_tree(folder, name=CHECKPOINT)
        try:
            self.load_state(saved["run"])
            return float(saved["seconds"])
        except MtlensError:
            raise
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            raise FileError(
                f"{Path(folder) / CHECKPOINT}.json does not hold a half-finished {self.member.training!r} ({error}). "
                "Delete it to train from the start, or give another folder."
            ) from error

    def _combiner(self) -> Any:
        training = self.member.training
        if not isinstance(training.weighting, str) or training.weighting in WEIGHTINGS:
            return None
        from mtlens.weighting.torchjd import TorchJDWeighting

        seed = torch_seed(training.seed, "torchjd")
        made = TorchJDWeighting(training.weighting, len(self.member.slots), seed=seed, dtype=self.dtype)
        return made.to(self.device)

    def _rows(self, place: int) -> Tensor:
        """Encoded, scaled rows of one task as the net reads them; tasks on one input share the tensor."""
        block = self.member.slots[place].block
        if id(block) not in self._inputs:
            self._inputs[id(block)] = self._tensor(block.scaled(self.member.inputs))
        return self._inputs[id(block)]

    def _take(self, place: int, rows: Tensor) -> Tensor:
        return self._trimmed(self.data[place][0][rows])

    def _trimmed(self, batch: Tensor) -> Tensor:
        """Token ids without the columns that are padding for the whole batch."""
        if batch.is_floating_point() or batch.is_cuda:
            return batch
        return batch[:, : max(int(text_lengths(batch).max()) if len(batch) else 1, 1)]

    def _tensor(self, values: np.ndarray[Any, Any]) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(values))
        dtype = self.dtype if tensor.is_floating_point() else torch.int64
        return tensor.to(self.device, dtype)


def _stacked(batches: list[Tensor]) -> Tensor:
    """Batches below one another; texts of different tasks differ in length, and padding at the end changes nothing."""
    longest = max(batch.shape[1] for batch in batches)
    short = [batch.ndim == 2 and batch.shape[1] < longest for batch in batches]
    pairs = zip(batches, short, strict=True)
    return torch.cat([functional.pad(b, (0, longest - b.shape[1])) if is_short else b for b, is_short in pairs])


def _columns(out: Tensor) -> Tensor:
    return out[:, None] if out.ndim == 1 else out


@contextmanager
def _noise(seed: int) -> Iterator[None]:
    """Dropout and its like draw from a stream of the training and epoch; the global one is left as it was."""
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
        torch.manual_seed(seed)
        yield
