"""What to build, task by task: what ``advice.toml`` holds, a person can edit, and ``fit`` builds."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mtlens.engine.training import Align, Optimizer, Steps
from mtlens.errors import FileError, InputError, unknown

Recipe: TypeAlias = Literal["alone", "joint", "group", "shrink", "sources"]
FamilyName: TypeAlias = Literal["linear", "trunk", "best"]
Choice: TypeAlias = bool | int | float | str

VERSION = 1
LARGEST = 16 << 20  # bytes
WIDEST = 1_000_000  # units of a network: a slip of the finger must not ask for terabytes
_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Grid(BaseModel):
    """What every member chooses from, alone and joint alike: unequal grids fake gains.

    ``trunk`` with its capacities, learning rates and epochs (up to ``epochs``; the best one on validation rows is
    used) is the network family; ``seeds`` networks are averaged. ``vectors`` (a file) or ``encoder`` say how texts
    become numbers. ``ridges`` (multiples of the number of columns) and ``weights`` (of another task's row) are the
    linear family's; None is its own grid.
    """

    model_config = _STRICT

    trunk: str = "mlp"
    capacities: list[int] = Field(default=[10, 50], min_length=1)
    learning_rates: list[float] = Field(default=[1e-3, 1e-2], min_length=1)
    epochs: int = Field(default=30, ge=1)
    batch: int = Field(default=50, ge=1)
    weight_decay: float = Field(default=0.0, ge=0)
    seeds: int = Field(default=1, ge=1, le=100)
    vectors: str | None = None
    encoder: str | None = None
    ridges: list[float] | None = Field(default=None, min_length=1)
    weights: list[float] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _is_positive(self) -> Grid:
        for name in ("capacities", "learning_rates", "ridges", "weights"):
            if any(value <= 0 for value in getattr(self, name) or ()):
                raise ValueError(f"{name} must hold numbers above zero")
        if max(self.capacities) > WIDEST:
            raise ValueError(f"capacities must hold numbers up to {WIDEST}, not {max(self.capacities)}")
        return self


class Fixed(BaseModel):
    """Choices of a task's networks that its plan fixes instead of leaving them to the grid; see ``mtlens.Training``."""

    model_config = _STRICT

    capacity: int = Field(default=1, ge=1, le=WIDEST)
    lr: float = Field(default=1.0, gt=0)
    epochs: int = Field(default=1, ge=1)
    batch: int = Field(default=1, ge=1)
    weight_decay: float = Field(default=0.0, ge=0)
    weighting: str = Field(default="equal", min_length=1)
    align: Align | None = None
    align_rank: int = Field(default=1, ge=1)
    penalty: float = Field(default=0.0, ge=0)
    optimizer: Optimizer = "adam"
    steps: Steps = "auto"


SETTINGS = tuple(Fixed.model_fields)


class TaskPlan(BaseModel):
    """One task: how its predictions are made, and why.

    A prediction is ``alone + weight * (joint - alone)``, brought into the range of the labels. ``alone`` is the tuned
    single-task model of ``family`` (``best``: linear or trunk, whichever predicts held-out rows of the task better);
    ``joint`` is what ``recipe`` says, of ``joint_family`` (or the same family):

    * ``alone``: no joint model.
    * ``joint``: one model for the task and its ``sources``; all other tasks when none are named.
    * ``group``: the same with the other members of ``group``.
    * ``shrink``: the task's own linear model, shrunk towards the joint solution of its sources (linear only).
    * ``sources``: the sources' predictions as further inputs of the task's own linear model (linear only).

    ``settings`` fixes choices of the networks of this task (see ``SETTINGS``); everything else is chosen from the
    grid. ``difference``, ``low``, ``high``, ``n`` and the texts are the evidence, and do not change what is built.
    """

    model_config = _STRICT

    name: str = Field(min_length=1)
    recipe: Recipe = "alone"
    family: FamilyName = "linear"
    joint_family: FamilyName | None = None
    weight: float = Field(default=1.0, ge=0, le=2)
    sources: list[str] | None = None
    group: str | None = None
    settings: dict[str, Choice] = {}
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = Field(default=0, ge=0)
    evidence: str = ""
    would_change: str = ""

    @model_validator(mode="after")
    def _is_consistent(self) -> TaskPlan:
        if self.joint_family == "best":
            raise ValueError('joint_family is "linear", "trunk", or left out: the family of the task alone')
        if self.recipe in ("shrink", "sources") and (self.joint_family or "linear") != "linear":
            raise ValueError(f"recipe {self.recipe!r} is linear, but joint_family is {self.joint_family!r}")
        if self.recipe == "group" and not self.group:
            raise ValueError("recipe 'group' needs group = the name of a [[group]]")
        if self.recipe == "alone" and self.sources:
            raise ValueError("recipe 'alone' has no sources. Use recipe = \"joint\", or leave sources out")
        strange = sorted(set(self.settings) - set(SETTINGS))
        if strange:
            raise ValueError(f"settings has no {strange[0]!r} (it takes {', '.join(SETTINGS)})")
        try:
            Fixed.model_validate(self.settings)
        except ValidationError as error:
            first = error.errors()[0]
            must = _PYDANTIC.sub("must", first["msg"])
            raise ValueError(
                f"settings: {first['loc'][0]} {must[:1].lower()}{must[1:]} (found {first['input']!r})"
            ) from error
        return self

    @property
    def is_joint(self) -> bool:
        """Whether anything but the task's own model enters its predictions."""
        return self.recipe != "alone" and self.weight > 0

    @property
    def has_networks(self) -> bool:
        """Whether any of its members may be a network, so that ``settings`` matter."""
        return self.family != "linear" or (self.is_joint and self.family_of_joint == "trunk")

    @property
    def family_of_joint(self) -> FamilyName:
        """Family of the joint member; linear where the task's own family is still to be found."""
        if self.recipe in ("shrink", "sources"):
            return "linear"
        return self.joint_family or ("trunk" if self.family == "trunk" else "linear")


class Group(BaseModel):
    """Tasks that are trained together."""

    model_config = _STRICT

    name: str = Field(min_length=1)
    tasks: list[str] = Field(min_length=1)


class System(BaseModel):
    """One plan a task, the grid they choose from, and the groups; what ``advice.toml`` says.

    Example:
        >>> system = System(tasks=[TaskPlan(name="a", recipe="joint", weight=0.5), TaskPlan(name="b")])
        >>> system.sources_of("a")
        ('b',)
        >>> System.from_toml(system.to_toml()) == system
        True
    """

    model_config = _STRICT

    version: Literal[1] = 1
    seed: int = Field(default=0, ge=0, lt=2**31)
    folds: int = Field(default=5, ge=2, le=50)
    summary: str = ""
    found: list[str] = []
    grid: Grid = Grid()
    tasks: list[TaskPlan] = Field(min_length=1)
    groups: list[Group] = []

    @model_validator(mode="after")
    def _names_exist(self) -> System:
        names = [plan.name for plan in self.tasks]
        for what, found in (("task", names), ("group", [group.name for group in self.groups])):
            twice = next((name for name in found if found.count(name) > 1), None)
            if twice is not None:
                raise ValueError(f"two {what}s are named {twice!r}. Keep one of them")
        groups = {group.name: group.tasks for group in self.groups}
        for group, members in groups.items():
            _refuse_strangers(members, names, f"group {group!r}")
        for plan in self.tasks:
            _refuse_strangers(plan.sources or (), names, f"the sources of task {plan.name!r}")
            if plan.name in (plan.sources or ()):
                raise ValueError(f"task {plan.name!r} is a source of itself. Take it out of its sources")
            if plan.recipe == "group" and plan.name not in groups.get(plan.group or "", ()):
                raise ValueError(f"task {plan.name!r} asks for group {plan.group!r}, which does not list it")
        return self

    @classmethod
    def alone(cls, names: Iterable[str], *, family: FamilyName = "linear", **fields: Any) -> System:
        """Every task by itself: what a system has to beat."""
        plans = [{"name": name, "family": family} for name in names]
        try:
            return cls.model_validate({"tasks": plans, **fields})
        except ValidationError as error:
            raise _mistake(error, {"tasks": plans}, "a system of single tasks") from error

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(plan.name for plan in self.tasks)

    def plan_of(self, name: str) -> TaskPlan:
        """The plan of a task."""
        for plan in self.tasks:
            if plan.name == name:
                return plan
        raise unknown("task", name, self.names, "the advice")

    def sources_of(self, name: str) -> tuple[str, ...]:
        """The tasks that this one's joint model is trained with, in the order of the system; () when alone."""
        plan = self.plan_of(name)
        if plan.recipe == "alone":
            return ()
        chosen = set(plan.sources if plan.sources is not None else self.names)
        if plan.recipe == "group":
            chosen = {member for group in self.groups if group.name == plan.group for member in group.tasks}
        return tuple(other for other in self.names if other in chosen and other != name)

    # ------------------------------------------------------------------ TOML

    def to_toml(self) -> str:
        """The same as text that a person can read and change; fields at their defaults are left out."""
        top = self.model_dump(exclude={"grid", "tasks", "groups"}, exclude_none=True)
        grid = self.grid.model_dump(exclude_none=True)
        tasks = [plan.model_dump(exclude_defaults=True) for plan in self.tasks]
        groups = [group.model_dump() for group in self.groups]
        blocks = [_HEADER + _lines(top), "[grid]\n" + _lines(grid)]
        blocks += ["[[group]]\n" + _lines(group) for group in groups]
        blocks += ["[[task]]\n" + _lines({**_SHOWN, **plan}) for plan in tasks]
        return "\n".join(blocks)

    @classmethod
    def from_toml(cls, text: str, where: str = "the advice") -> System:
        """The inverse of :meth:`to_toml`; the first mistake is said in one sentence."""
        try:
            written = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
            raise InputError(f"{where} is not valid TOML: {str(error)[:200]}. Correct that line.") from error
        return cls.from_dict(written, where)

    @classmethod
    def from_dict(cls, written: Mapping[str, Any], where: str = "the advice") -> System:
        """A system from plain values, refused in house voice."""
        if written.get("version", VERSION) != VERSION:
            raise InputError(
                f"{where} says version {written['version']!r}; this mtlens reads version {VERSION}. "
                "Make the advice again with this version."
            )
        written = {_ATTRIBUTES.get(key, key): value for key, value in written.items()}
        try:
            return cls.model_validate(_with_floats(written))
        except ValidationError as error:
            raise _mistake(error, written, where) from error

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write ``advice.toml``; a file that is there is replaced in one step."""
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(self.to_toml(), encoding="utf-8", newline="\n")
            temporary.replace(path)
        except OSError as error:
            raise FileError(f"the advice cannot be written to {path}: {error.strerror}.") from error
        return path

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> System:
        """Read what :meth:`write` wrote, or what a person made of it."""
        path = Path(path)
        try:
            if path.stat().st_size > LARGEST:
                raise FileError(f"{path} has {path.stat().st_size >> 20} MiB: that is no advice.")
            text = path.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise FileError(f"{path} is not UTF-8 (byte {error.start}), as TOML must be.") from error
        except (OSError, ValueError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(
                f"no advice at {path}: {getattr(error, 'strerror', None) or error}. "
                "`mtlens study` writes advice.toml into its --out folder."
            ) from error
        return cls.from_toml(text, str(path))


_HEADER = """\
# What mtlens advises, task by task. `mtlens fit` builds it; edit it to build something else.
# A prediction is alone + weight * (joint - alone), brought into the range of the labels.
# recipe: alone, joint, group, shrink or sources; family: linear or trunk.
"""
_ATTRIBUTES = {"task": "tasks", "group": "groups"}  # [[task]] in TOML, as in a SPEC
_WRITTEN = {attribute: key for key, attribute in _ATTRIBUTES.items()}
_SHOWN = {"name": "", "recipe": "alone", "family": "linear"}  # written even at their defaults


def _refuse_strangers(given: Iterable[str], names: Sequence[str], where: str) -> None:
    for name in given:
        if name not in names:
            raise ValueError(str(unknown("task", name, names, where)).rstrip("."))


def _lines(values: Mapping[str, Any]) -> str:
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in values.items())


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "a").isalnum() else _text(name)


def _value(value: Any) -> str:
    """A TOML value: every text is quoted with its control characters escaped, so no name can add a line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_value(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _with_floats(written: dict[str, Any]) -> dict[str, Any]:
    """``weight = 1`` means 1.0: TOML tells the two apart, a person does not."""

    def floats(part: Any, names: Sequence[str]) -> Any:
        if not isinstance(part, Mapping):
            return part
        return {key: _as_float(value) if key in names else value for key, value in part.items()}

    if "grid" in written:
        written["grid"] = floats(written["grid"], ("learning_rates", "weight_decay", "ridges", "weights"))
    if isinstance(written.get("tasks"), list):
        written["tasks"] = [floats(plan, ("weight", "difference", "low", "high")) for plan in written["tasks"]]
    return written


def _as_float(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_float(item) for item in value]
    return float(value) if type(value) is int and abs(value) < 2**53 else value


def _mistake(error: ValidationError, written: Mapping[str, Any], where: str) -> Exception:
    """The first thing wrong, with the task it belongs to."""
    first = error.errors()[0]
    place = list(first["loc"])
    owner, known = where, list(System.model_fields)
    if place[:1] == ["grid"]:
        owner, known, place = f"{where}, [grid]", list(Grid.model_fields), place[1:]
    elif place[:1] in (["tasks"], ["groups"]) and len(place) > 1:
        model = TaskPlan if place[0] == "tasks" else Group
        owner, known = f"{where}, {_label(written, str(place[0]), place[1])}", list(model.model_fields)
        place = place[2:]
    if first["type"] == "extra_forbidden" and place:
        return unknown("key", place[-1], [_WRITTEN.get(key, key) for key in known], owner)
    if first["type"] == "missing" and place:
        return InputError(f"{owner} has no {_WRITTEN.get(str(place[-1]), place[-1])!r}. Add it.")
    said = _PYDANTIC.sub("must", first["msg"].removeprefix("Value error, ")).split(" after validation")[0]
    found = "" if first["type"] == "value_error" else f" (found {first.get('input')!r:.80})"
    key = "".join(f"{part} " for part in place)
    end = "" if said.endswith("?") else "."
    return InputError(f"{owner}: {key}{said[:1].lower() + said[1:]}{found}{end}")


_PYDANTIC = re.compile(r"^(Input|List|String|Dictionary) should")


def _label(written: Mapping[str, Any], kind: str, number: Any) -> str:
    entries = written.get(kind)
    entry = entries[number] if isinstance(entries, list) and isinstance(number, int) else None
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return f"{kind[:-1]} {name!r}"[:80] if name else f"{kind[:-1]} {number}"
