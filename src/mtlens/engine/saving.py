"""A finished training as a folder, and back: what ``start_from`` and predictions need, without its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mtlens.engine.checkpoints import Tree, check_state_dict, load_tree, save_tree
from mtlens.engine.inputs import input_map
from mtlens.engine.result import Output, Trained, TrainedModel
from mtlens.engine.training import Training
from mtlens.errors import FileError, InputError, MtlensError
from mtlens.nets.alignment import Alignment
from mtlens.nets.embedding import own_values
from mtlens.nets.family import FAMILIES, Family, family_of
from mtlens.nets.multitask import MultiTaskNet

NAME = "trained"


@dataclass(frozen=True)
class SavedTraining:
    """What is left of a training once it was saved: its identity and settings, not its data."""

    identity: str
    saved: dict[str, Any]

    def settings(self) -> dict[str, Any]:
        """The settings it was trained with, as ``Training.settings`` gave them."""
        return self.saved

    def __getattr__(self, name: str) -> Any:
        """A saved setting, as an attribute of ``Training`` is read."""
        saved = self.__dict__.get("saved", {})
        if name not in saved or name == "tasks":
            raise AttributeError(f"a saved training has no {name!r} (its data are not saved)")
        return saved[name]

    def but(self, *, tasks: Any, **changes: Any) -> Training:
        """A Training with these settings on ``tasks``; a user's own trunk has to be given again."""
        kept = {f.name: self.saved[f.name] for f in fields(Training) if f.name not in ("tasks", "trunk", "start_from")}
        trunk = changes.pop("trunk", None)
        family = _family(self.saved["trunk"], Path("the saved training"), trunk)
        return Training(tasks, trunk=family if trunk is None else trunk, **{**kept, **changes})

    def __repr__(self) -> str:
        names = "+".join(str(name) for name, _ in self.saved["tasks"])
        return f"SavedTraining({names}, {self.saved['trunk']['name']} {self.saved['capacity']})"


def save_trained(trained: Trained, path: str | Path) -> Path:
    """Write model (if it was kept), scores, history and settings to the folder ``path``; returns the folder.

    The folder holds JSON and safetensors only. A user's own trunk is saved by its values: loading it takes the factory.
    """
    tree = {
        "identity": trained.identity,
        "settings": plain_settings(trained.training.settings()),
        "scores": trained.scores,
        "history": trained.history,
        "seconds": trained.seconds,
        "reason": trained.reason,
        "model": None if trained.model is None else model_tree(trained.model),
    }
    save_tree(path, tree, name=NAME)
    return Path(path)


def load_trained(path: str | Path, *, trunk: Family | Callable[[Any], nn.Module] | None = None) -> Trained:
    """The finished training saved in a folder: model, scores and history; ``training`` is a `SavedTraining`.

    Args:
        path: the folder that `save_trained` wrote. Damaged or changed files are refused.
        trunk: the factory (or Family) of a user's own trunk; built-in trunks are known by name.
    """
    saved = load_tree(path, name=NAME)
    try:
        _check_shape(saved)
        return _restored(saved, Path(path), trunk)
    except MtlensError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        raise FileError(
            f"{path} does not hold a finished training ({error!r}). Give a folder that save wrote."
        ) from error


def trained_identity(path: str | Path) -> str:
    """Identity of the training saved in a folder."""
    saved = load_tree(path, name=NAME)
    if not isinstance(saved, Mapping) or not isinstance(saved.get("identity"), str):
        raise FileError(f"{path} does not hold a finished training. Give a folder that save wrote.")
    return str(saved["identity"])


def _check_shape(saved: Mapping[str, Any]) -> None:
    """Refuse a record whose fields are not what `Trained` says they are."""
    kinds = {
        "identity": str,
        "settings": Mapping,
        "scores": Mapping,
        "history": Mapping,
        "seconds": float,
        "reason": str,
    }
    for name, kind in kinds.items():
        if not isinstance(saved[name], kind):
            raise TypeError(f"{name} is {saved[name]!r:.40}")
    if not all(isinstance(own, Mapping) for own in saved["scores"].values()):
        raise TypeError("scores are not split -> task -> number")


def _restored(saved: Mapping[str, Any], path: Path, trunk: Any) -> Trained:
    return Trained(
        SavedTraining(saved["identity"], dict(saved["settings"])),  # type: ignore[arg-type]
        scores=saved["scores"],
        history=saved["history"],
        model=None if saved["model"] is None else model_from_tree(saved["model"], saved["settings"], path, trunk),
        seconds=saved["seconds"],
        reason=saved["reason"],
    )


def model_tree(model: TrainedModel) -> Tree:
    """A trained model as plain values and tensors; building it again takes the settings of its training too."""
    arrays, meta = model.inputs.state()
    outputs = {name: _output_tree(output) for name, output in model.outputs.items()}
    return {"inputs": {"arrays": dict(arrays), "meta": meta}, "outputs": outputs, "net": _net_tree(model.net)}


def model_from_tree(
    saved: Mapping[str, Any], settings: Mapping[str, Any], path: Path, trunk: Any = None
) -> TrainedModel:
    """The inverse of `model_tree`; ``path`` is where it came from, for messages, ``trunk`` a user's own factory."""
    inputs = input_map(saved["inputs"]["arrays"], saved["inputs"]["meta"])
    dtype = getattr(torch, settings["dtype"])
    family, capacity = _family(settings["trunk"], path, trunk), _as_capacity(settings["capacity"])
    outputs = {name: Output(o["kind"], o["classes"], o["mean"], o["scale"]) for name, o in saved["outputs"].items()}
    if trunk is None:  # shapes first, without memory: a changed capacity must not allocate what was never saved
        with torch.device("meta"):
            planned = _net(family.trunk(inputs.rows, capacity), saved["net"], dtype)
        check_state_dict(saved["net"]["values"], own_values(planned), str(path))
    net = _net(family.trunk(inputs.rows, capacity).to(dtype), saved["net"], dtype)
    check_state_dict(saved["net"]["values"], own_values(net), str(path))
    net.load_state_dict(saved["net"]["values"], strict=False)
    return TrainedModel(net.eval(), inputs, outputs)


def _net_tree(net: MultiTaskNet) -> Tree:
    align = None
    if net.align is not None:
        align = [{"d": a.d, "rank": a.rank, "penalty": a.penalty} for a in net.align if isinstance(a, Alignment)]
    return {
        "names": list(net.names),
        "heads": [[head.in_features, head.out_features] for head in net.heads],
        "align": align,
        "align_at": net.align_at,
        "values": {name: value.detach().cpu() for name, value in own_values(net).items()},
    }


def _net(trunk: nn.Module, tree: Mapping[str, Any], dtype: torch.dtype) -> MultiTaskNet:
    with torch.random.fork_rng(devices=[]):
        heads = {
            name: nn.Linear(width, columns, dtype=dtype)
            for name, (width, columns) in zip(tree["names"], tree["heads"], strict=True)
        }
        align = None
        if tree["align"] is not None:
            align = {name: Alignment(**own).to(dtype) for name, own in zip(tree["names"], tree["align"], strict=True)}
        return MultiTaskNet(trunk, heads, align=align, align_at=tree["align_at"])


def _family(settings: Mapping[str, Any], path: Path, trunk: Any) -> Family:
    if trunk is not None:
        return family_of(trunk)
    if settings["name"] not in FAMILIES:
        raise InputError(
            f"{path} holds a trunk made by {settings.get('factory', settings['name'])}, which is not saved with it. "
            "Give its factory: load_trained(path, trunk=factory)."
        )
    family = FAMILIES[settings["name"]]
    return family.restored(settings)


def _as_capacity(capacity: Any) -> Any:
    return tuple(capacity) if isinstance(capacity, list) else capacity


def _output_tree(output: Output) -> Tree:
    return {"kind": output.kind, "classes": tuple(output.classes), "mean": output.mean, "scale": output.scale}


def plain_settings(settings: Mapping[str, Any]) -> Tree:
    """Settings as plain values: paths become text."""
    return {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()}
