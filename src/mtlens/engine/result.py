"""What a training gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mtlens.arrays import Array, FloatArray
from mtlens.engine.inputs import InputMap
from mtlens.errors import TrainingError, unknown
from mtlens.nets.multitask import MultiTaskNet
from mtlens.tasks.task import Kind, Task

if TYPE_CHECKING:
    from mtlens.engine.training import Training

PREDICTION_ROWS = 4096  # rows that go through a net at a time when it predicts


@dataclass(frozen=True)
class Output:
    """How one task's raw output reads: its kind, its classes, and the units of a regression label."""

    kind: Kind
    classes: tuple[Any, ...] = ()
    mean: float = 0.0
    scale: float = 1.0

    def finish(self, raw: torch.Tensor) -> FloatArray:
        """Raw outputs ``(..., columns)`` to original units ``(...)``, P(class 1) ``(...)`` or P(class) ``(..., K)``."""
        return self.answers(raw.detach().to("cpu", torch.float64)).numpy()

    def answers(self, raw: torch.Tensor) -> torch.Tensor:
        """The same, as a tensor where the raw outputs are."""
        if self.kind == "multiclass":
            return torch.softmax(raw, -1)
        if self.kind == "binary":
            return torch.sigmoid(raw[..., 0])
        return raw[..., 0] * self.scale + self.mean


@dataclass
class TrainedModel:
    """A trained net with all that raw rows need: the scale of inputs and the units of labels.

    ``net`` maps standardised inputs to raw outputs; :meth:`predict` goes from raw inputs to answers.
    """

    net: MultiTaskNet
    inputs: InputMap
    outputs: dict[str, Output]

    @property
    def task_names(self) -> tuple[str, ...]:
        return self.net.names

    def predict(self, task: str, X: Any) -> FloatArray:
        """Predictions for raw rows: original units ``(m,)``, P(class 1) ``(m,)``, or ``(m, K)`` probabilities.

        Args:
            task: name of a trained task.
            X: rows as the task had them (array, table, data frame, texts), or a Task.
        """
        if task not in self.outputs:
            raise unknown("task", task, self.outputs, "this model")
        encoded = self.inputs.encode(X)
        return self.outputs[task].finish(self.raw(task, encoded))

    def raw(self, task: str, encoded: Array) -> torch.Tensor:
        """Raw outputs ``(m, columns)`` of encoded rows."""
        parameter = next(self.net.parameters())
        was_training = self.net.training
        self.net.eval()
        parts = []
        with torch.no_grad():
            for start in range(0, max(len(encoded), 1), PREDICTION_ROWS):
                rows = torch.from_numpy(np.ascontiguousarray(encoded[start : start + PREDICTION_ROWS]))
                rows = rows.to(parameter.device, parameter.dtype if rows.is_floating_point() else torch.int64)
                out = self.net(rows, task)
                parts.append(out[:, None] if out.ndim == 1 else out)
        self.net.train(was_training)
        return torch.cat(parts)


@dataclass
class Trained:
    """One finished (or failed) training.

    Attributes:
        scores: split -> task -> the task's metric in original units, oriented so that higher is better; a split
            without labelled rows has no key. Empty when the training failed.
        history: "loss" ``(epochs,)``, the mean training loss; "valid", task -> ``(epochs,)`` validation scores;
            "epoch", the chosen one, counted from 1; "weights", task -> weight, for methods that set them.
        model: the trained model, or None with ``keep="scores"``.
        seconds: time this training took; members of a stack share its time.
        reason: why it ended: "epochs", "converged", "interrupted", or what went wrong ("loss not finite in epoch 3").
        training: the settings.
        predictions: split -> task -> predictions for ``task.rows_of(split)``; only with ``keep="predictions"``.
        controls: the two controls of an aligned training, when asked for.
    """

    training: Training
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    history: dict[str, Any] = field(default_factory=dict)
    model: TrainedModel | None = None
    seconds: float = 0.0
    reason: str = ""
    predictions: dict[str, dict[str, FloatArray]] | None = None
    controls: dict[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether there are results: neither failed nor interrupted."""
        return self.reason in ("epochs", "converged")

    @property
    def identity(self) -> str:
        """Identity of the training; the same settings on the same data give the same result."""
        return self.training.identity

    def predict(self, task: str, X: Any) -> FloatArray:
        """``model.predict``, with a clear refusal when no model was kept."""
        return self._needed().predict(task, X)

    def _needed(self) -> TrainedModel:
        if self.model is None:
            raise TrainingError(
                f"{self.training!r} kept no model (it ended with: {self.reason}). Train with keep='model'."
            )
        return self.model

    def save(self, path: str | Path) -> Path:
        """Write model, scores and settings to a folder that ``start_from`` and ``load_trained`` read."""
        from mtlens.engine.saving import save_trained

        return save_trained(self, Path(path))


def output_of(task: Task, mean: float, scale: float) -> Output:
    """The output record of a task whose regression labels were standardised by ``mean`` and ``scale``."""
    return Output(task.kind, task.classes, mean, scale)


def check_keep(keep: str) -> None:
    """Refuse an unknown ``keep``."""
    if keep not in ("model", "predictions", "scores"):
        raise unknown("keep", keep, ("model", "predictions", "scores"), "train")
