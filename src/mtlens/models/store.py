"""A fitted system as a folder, and back.

The folder holds ``model.json``, one ``model-<hash>.safetensors`` and the card ``MODEL.md``: numbers and plain values,
never pickle. It is written beside its place and moved there, so a reader finds a whole model or none. Reading checks
the files (names, kinds, sizes, hashes), then that everything fits together and is finite. The checks find damage and
careless or clumsy changes; they are no signature: a model from a stranger is a stranger's model.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mtlens.arrays import FloatArray
from mtlens.engine.checkpoints import Tree, load_tree, save_tree
from mtlens.engine.saving import model_from_tree, model_tree, plain_settings
from mtlens.errors import FileError, MtlensError
from mtlens.features import State, restore
from mtlens.models.card import card_of
from mtlens.models.inputs import Schema
from mtlens.models.members import LinearMember, Member, NetMember, Network, SourcesMember
from mtlens.models.model import Model, TaskModel
from mtlens.models.space import Space
from mtlens.models.system import System
from mtlens.tasks.table import Table
from mtlens.theory.transfer import LinearModel

FORMAT = "mtlens-model-1"
NAME = "model"
CARD = "MODEL.md"
KINDS = ("regression", "binary", "multiclass")
_FILES = re.compile(rf"{NAME}\.json|{NAME}-[0-9a-f]{{16}}\.safetensors|{re.escape(CARD)}")
_MISFITS = (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, ArithmeticError, LookupError)


def save_model(model: Model, path: str | os.PathLike[str]) -> Path:
    """Write a model to a folder; a model that is there is replaced, anything else is left alone and refused."""
    target = Path(path)
    check_place(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{NAME}."))
    except OSError as error:
        raise FileError(f"the model cannot be written to {target}: {error.strerror}. Choose another place.") from error
    try:
        save_tree(made, _tree(model), name=NAME)
        (made / CARD).write_text(card_of(model), encoding="utf-8", errors="backslashreplace")
        _open_to_readers(made)
        _move(made, target)
    except (OSError, ValueError) as error:  # ValueError: a name no file can have
        if isinstance(error, MtlensError):
            raise
        raise FileError(
            f"the model cannot be written to {str(target)!r:.200}: {error}. Choose another place."
        ) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model folder. What is damaged, changed, incomplete or not a model is refused with the reason.

    The model predicts the same values, to the bit on one machine, as the one that was saved.
    """
    folder = Path(path)
    _check_files(folder)
    try:
        tree = load_tree(folder, name=NAME)
    except (KeyError, TypeError, AttributeError) as error:
        raise _refused(folder, f"{NAME}.json is no record of a model ({error!r})") from error
    if not isinstance(tree, Mapping) or tree.get("format") != FORMAT:
        found = tree.get("format") if isinstance(tree, Mapping) else type(tree).__name__
        raise _refused(folder, f"its format is {found!r}, this version reads {FORMAT!r}")
    place = _not_finite(tree, "")
    if place is not None:
        raise _refused(folder, f"{place} holds values that are not finite")
    try:
        model = _model(tree, folder)
        _try(model)
        return model
    except _MISFITS as error:
        raise _refused(folder, f"its parts do not fit together ({error})") from error


# ---------------------------------------------------------------------- files


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse a place that holds anything but a model, before a model is trained for it."""
    target = Path(path)
    try:
        if target.is_symlink() or (target.exists() and not target.is_dir()):
            raise FileError(f"{target} is there and is not a folder. Choose another place for the model.")
        held = sorted(entry.name for entry in target.iterdir()) if target.is_dir() else []
    except (OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"the model cannot be written to {str(target)!r:.200}: {error}.") from error
    foreign = [name for name in held if not _FILES.fullmatch(name)]
    if foreign or (held and f"{NAME}.json" not in held):
        raise FileError(
            f"{target} holds other things ({', '.join(foreign[:5] or held[:5])}), which a model would replace. "
            "Choose an empty or new folder."
        )


def _open_to_readers(made: Path) -> None:
    """Files made under temporary names are their writer's alone; a model is read by whoever may read its card."""
    mode = (made / CARD).stat().st_mode & 0o777  # what the umask leaves
    for file in made.iterdir():
        file.chmod(mode)
    made.chmod(mode | (mode & 0o444) >> 2)


def _move(made: Path, target: Path) -> None:
    """Put a finished folder in its place; an older model steps aside first and is deleted last."""
    if not target.exists():
        made.rename(target)
        return
    aside = made.with_name(made.name + ".old")
    target.rename(aside)
    try:
        made.rename(target)
    except OSError:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _check_files(folder: Path) -> None:
    """Exactly the files of a model, each a plain one; hidden files of a file manager are nobody's business."""
    try:
        entries = sorted(folder.iterdir())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(
            f"no model at {str(folder)!r:.200}: {reason}. Give the folder that `mtlens fit --out` wrote."
        ) from error
    held = {entry.name for entry in entries}
    if f"{NAME}.json" not in held and held & {"plan.json", "advice.toml"}:
        raise FileError(f"{folder} is a study's folder. Make its model first: mtlens fit {folder} --out MODEL")
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if not _FILES.fullmatch(entry.name):
            raise _refused(folder, f"it holds {entry.name!r:.100}, which is no part of a model")
        if entry.is_symlink() or not entry.is_file():
            raise _refused(folder, f"{entry.name} is not a plain file")
    tensors = [name for name in held if name.endswith(".safetensors")]
    for needed in (f"{NAME}.json", CARD):
        if needed not in held:
            raise _refused(folder, f"{needed} is missing")
    if len(tensors) != 1:
        raise _refused(folder, f"it holds {len(tensors)} tensor files, a model has one")


def _refused(folder: Path, reason: str) -> FileError:
    return FileError(f"the model {folder} is refused: {reason:.400}. Use an intact copy, or fit it again.")


def _not_finite(tree: Tree, place: str) -> str | None:
    """The first place of a number that is not finite."""
    if isinstance(tree, float):
        return None if math.isfinite(tree) else place
    if isinstance(tree, np.ndarray):
        return place if tree.dtype.kind == "f" and not np.isfinite(tree).all() else None
    if isinstance(tree, torch.Tensor):
        return place if tree.is_floating_point() and not bool(torch.isfinite(tree).all()) else None
    parts: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(tree, Mapping):
        parts = iter(tree.items())
    elif isinstance(tree, (list, tuple)):
        parts = iter(enumerate(tree))
    found = (_not_finite(part, f"{place}/{key}") for key, part in parts)
    return next((where for where in found if where is not None), None)


# ---------------------------------------------------------------------- model to tree


def _tree(model: Model) -> Tree:
    """The model as plain values; networks that tasks share are kept once, tasks refer to them by number."""
    networks: list[Network] = []
    tasks = [_task_tree(task, networks) for task in model.tasks.values()]
    return {
        "format": FORMAT,
        "system": model.system.to_toml(),
        "notes": list(model.notes),
        "made": model.made,
        "spaces": [_space_tree(space) for space in model.spaces],
        "tasks": tasks,
        "networks": _pooled([{"net": model_tree(n.model), "settings": plain_settings(n.settings)} for n in networks]),
    }


def _pooled(networks: list[Tree]) -> Tree:
    """Networks whose inputs hold equal arrays (such as one table of word vectors) keep them once."""
    pool: dict[str, Any] = {}
    for network in networks:
        arrays = network["net"]["inputs"]["arrays"]
        for name, array in arrays.items():
            key = sha256(
                repr((array.dtype.str, array.shape)).encode() + np.ascontiguousarray(array).tobytes()
            ).hexdigest()
            pool.setdefault(key, array)
            arrays[name] = key
    return {"each": networks, "arrays": pool}


def _unpooled(saved: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The inverse of `_pooled`; networks share the arrays."""
    networks: list[dict[str, Any]] = saved["each"]
    for network in networks:
        arrays = network["net"]["inputs"]["arrays"]
        arrays.update({name: saved["arrays"][key] for name, key in arrays.items()})
    return networks


def _task_tree(task: TaskModel, networks: list[Network]) -> Tree:
    plain = {name: getattr(task, name) for name in ("name", "kind", "metric", "space", "weight", "low", "high")}
    return {
        **plain,
        "classes": [_plain_class(label) for label in task.classes],
        "schema": task.schema.plain(),
        "alone": _member_tree(task.alone, networks),
        "joint": None if task.joint is None else _member_tree(task.joint, networks),
        "errors": task.errors,
        "facts": task.facts,
    }


def _plain_class(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _space_tree(space: Space) -> Tree:
    if space.featurizer is None:
        return {"names": list(space.names), "features": None}
    state = space.featurizer.state()
    return {"names": list(space.names), "features": {"arrays": dict(state.arrays), "meta": state.meta}}


def _member_tree(member: Member, networks: list[Network]) -> Tree:
    if isinstance(member, LinearMember):
        return {"kind": "linear", "model": _linear_tree(member.model)}
    if isinstance(member, SourcesMember):
        return {
            "kind": "sources",
            "sources": [_linear_tree(m) for m in member.sources],
            "model": _linear_tree(member.model),
        }
    assert isinstance(member, NetMember)  # the three kinds of members.py
    places = []
    for network in member.networks:
        place = next((i for i, known in enumerate(networks) if known is network), len(networks))
        if place == len(networks):
            networks.append(network)
        places.append(place)
    return {"kind": "networks", "networks": places, "task": member.task, "tokens": member.tokens}


def _linear_tree(model: LinearModel) -> Tree:
    names = ("target", "method", "coef", "intercept", "low", "high", "kind")
    return {
        **{name: getattr(model, name) for name in names},
        "sources": list(model.sources),
        "settings": model.settings,
    }


# ---------------------------------------------------------------------- tree to model


def _model(tree: Mapping[str, Any], folder: Path) -> Model:
    spaces = [_space(space) for space in tree["spaces"]]
    parts = _unpooled(tree["networks"])
    networks = [Network(model_from_tree(n["net"], n["settings"], folder), dict(n["settings"])) for n in parts]
    for network, saved in zip(networks, parts, strict=True):
        _check_dtypes(saved["net"]["net"]["values"], saved["settings"]["dtype"])
        network.model.net.eval()
    tasks = [_task(task, spaces, networks) for task in tree["tasks"]]
    system = System.from_toml(tree["system"], f"the system of {folder}")
    _need(tuple(task.name for task in tasks) == system.names, "tasks and system name different tasks")
    return Model(tasks, spaces, system, notes=[str(note) for note in tree["notes"]], made=tree["made"])


def _try(model: Model) -> None:
    """Predict one row of which nothing is known: parts that do not fit are found now, not at the first real row."""
    for schema in model.schemas:
        names = [task.name for task in model.tasks.values() if task.schema == schema]
        columns = {name: np.array([np.nan if kind == "number" else None]) for name, kind in schema.by_name.items()}
        model.table(np.zeros((1, *schema.shape)) if schema.shape else Table(columns, schema.by_name), names)


def _space(saved: Mapping[str, Any]) -> Space:
    names = tuple(str(name) for name in saved["names"])
    if saved["features"] is None:
        return Space(names, None)
    return Space(names, restore(State(dict(saved["features"]["arrays"]), saved["features"]["meta"])))


def _task(saved: Mapping[str, Any], spaces: list[Space], networks: list[Network]) -> TaskModel:
    name, kind, number = str(saved["name"]), saved["kind"], saved["space"]
    _need(kind in KINDS, f"task {name!r} is of kind {kind!r}")
    _need(type(number) is int and 0 <= number < len(spaces), f"task {name!r} reads space {number!r}")
    classes = tuple(saved["classes"])
    fits = {"regression": len(classes) == 0, "binary": len(classes) == 2, "multiclass": len(classes) > 1}
    _need(fits[kind], f"task {name!r} is {kind} with {len(classes)} classes")
    _need(0 <= saved["weight"] <= 2 and saved["low"] <= saved["high"], f"task {name!r} has a strange weight or range")
    check = _Check(name, kind, len(classes), spaces[number], networks)
    alone = check.member(saved["alone"])
    joint = None if saved["joint"] is None else check.member(saved["joint"])
    return TaskModel(
        name, kind, classes, str(saved["metric"]), number, Schema.from_plain(saved["schema"]), alone, joint,
        float(saved["weight"]), float(saved["low"]), float(saved["high"]), _errors(saved["errors"], name),
        dict(saved["facts"]),
    )  # fmt: skip


def _errors(errors: Any, name: str) -> FloatArray | None:
    if errors is None:
        return None
    _is_float64(errors, 1, f"errors of task {name!r}")
    _need(bool((errors >= 0).all() and (np.diff(errors) >= 0).all()), f"errors of task {name!r} are not sorted")
    return np.ascontiguousarray(errors)


class _Check:
    """Builds the members of one task, refusing what does not fit its space and kind."""

    def __init__(self, name: str, kind: str, classes: int, space: Space, networks: list[Network]) -> None:
        self.name, self.kind, self.space, self.networks = name, kind, space, networks
        self.columns = classes if kind == "multiclass" else 1

    def member(self, saved: Mapping[str, Any]) -> Member:
        if saved["kind"] == "networks":
            return self._networks(saved)
        _need(self.space.featurizer is not None, f"task {self.name!r} is linear, but its space makes no numbers")
        width = int(self.space.featurizer.width)
        if saved["kind"] == "linear":
            return LinearMember(self._linear(saved["model"], width))
        _need(saved["kind"] == "sources", f"task {self.name!r} has a member of kind {saved['kind']!r}")
        sources = tuple(_linear(source, width) for source in saved["sources"])
        more = sum(source.coef.shape[1] for source in sources)
        return SourcesMember(sources, self._linear(saved["model"], width + more))

    def _linear(self, saved: Mapping[str, Any], width: int) -> LinearModel:
        model = _linear(saved, width)
        fits = model.kind == self.kind and model.coef.shape[1] == self.columns
        _need(fits, f"task {self.name!r}: its linear model is {model.kind} with {model.coef.shape[1]} columns")
        return model

    def _networks(self, saved: Mapping[str, Any]) -> NetMember:
        places, task = saved["networks"], str(saved["task"])
        _need(bool(places), f"task {self.name!r} has no network")
        _need(
            all(type(p) is int and 0 <= p < len(self.networks) for p in places), f"task {self.name!r}: no such network"
        )
        chosen = tuple(self.networks[place] for place in places)
        for network in chosen:
            output = network.model.outputs[task]
            columns = len(output.classes) if output.kind == "multiclass" else 1
            fits = output.kind == self.kind and columns == self.columns
            _need(fits, f"task {self.name!r}: its network is {output.kind} with {columns} columns")
        return NetMember(chosen, task, bool(saved["tokens"]))


def _linear(saved: Mapping[str, Any], width: int) -> LinearModel:
    coef, intercept, kind = saved["coef"], saved["intercept"], saved["kind"]
    _is_float64(coef, 2, "a linear model")
    _is_float64(intercept, 1, "a linear model")
    _need(kind in KINDS, f"a linear model is of kind {kind!r}")
    _need(coef.shape == (width, len(intercept)), f"a linear model has shape {coef.shape}, its inputs {width} columns")
    settings = {str(name): float(value) for name, value in saved["settings"].items()}
    return LinearModel(
        str(saved["target"]), tuple(map(str, saved["sources"])), str(saved["method"]), np.ascontiguousarray(coef),
        np.ascontiguousarray(intercept), float(saved["low"]), float(saved["high"]), kind, settings,
    )  # fmt: skip


def _check_dtypes(values: Mapping[str, torch.Tensor], dtype: str) -> None:
    strange = [
        name for name, value in values.items() if value.is_floating_point() and str(value.dtype) != f"torch.{dtype}"
    ]
    _need(not strange, f"{strange[:1]} of a network is not {dtype}")


def _is_float64(array: Any, rank: int, where: str) -> None:
    fits = isinstance(array, np.ndarray) and array.dtype == np.float64 and array.ndim == rank
    found = f"{array.dtype} of rank {array.ndim}" if isinstance(array, np.ndarray) else type(array).__name__
    _need(fits, f"{where}: found {found}, it needs float64 of rank {rank}")


def _need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
