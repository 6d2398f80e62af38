"""What only runs on a device, checked here as far as a CPU can: the tensor updates and the tensor metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mtlens import TaskSet, Training, train
from mtlens.engine import stack
from mtlens.engine.device_scores import FORMULAS, device_scores
from mtlens.engine.updates import PlainUpdate
from mtlens.tasks.metrics import METRICS


class _Listed(PlainUpdate):
    """Takes the lists that the CPU path passes."""

    def step(self, part: Any, chosen: Any = None) -> None:
        super().step(part, None if chosen is None else torch.tensor(chosen))


@pytest.mark.parametrize("steps", ["joint", "mixed"])
@pytest.mark.parametrize(
    "method",
    [{}, {"optimizer": "sgd", "weight_decay": 0.01}, {"optimizer": "adamw", "weight_decay": 0.1},
     {"weight_decay": 0.1, "weighting": "uncertainty"}, {"align": "fixed"}],
    ids=str,
)  # fmt: skip
def test_tensor_updates_are_the_fused_ones(
    shared: TaskSet, steps: Any, method: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTLENS_NATIVE", "0")
    trainings = [
        Training(shared, "mlp", 5, steps=steps, epochs=2, batch=16, dtype="float64", seed=seed, lr=lr, **method)
        for seed, lr in ((0, 0.01), (1, 0.02))
    ]
    fused = train(trainings, workers=1)
    monkeypatch.setattr(stack, "FusedUpdate", _Listed)
    for one, other in zip(fused, train(trainings, workers=1), strict=True):
        assert one.model is not None and other.model is not None
        theirs = other.model.net.state_dict()
        for name, value in one.model.net.state_dict().items():
            torch.testing.assert_close(value, theirs[name], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_tensor_metrics_are_the_metrics(name: str) -> None:
    draws = np.random.default_rng(0)
    y = (draws.random(60) > 0.6).astype(float)
    p = np.round(draws.random((5, 60)), 1)  # many ties, also at one half
    p[4, 3] = np.nan
    there = device_scores(name, torch.from_numpy(y), torch.from_numpy(p))
    assert there is not None
    np.testing.assert_allclose(there.numpy(), METRICS[name].oriented(y, p, classes=0), atol=1e-12)
    assert device_scores(name, torch.ones(5), torch.rand(2, 5)) is None
    assert device_scores("spearman", torch.from_numpy(y), torch.from_numpy(p)) is None
