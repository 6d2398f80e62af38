"""A SPEC: a TOML file that names tasks, their files and columns, and what a study of them should do."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from mtlens.errors import FileError, InputError, unknown
from mtlens.tasks.choices import Choices, as_names
from mtlens.tasks.files import Layout, checked_path
from mtlens.tasks.task import Kind

_LARGEST = 10 << 20  # bytes; a SPEC is written by hand


class Entry(BaseModel):
    """One ``[[task]]``: a file, its label column or columns, and what its other columns are."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    path: str
    name: str | None = None
    label: str | None = None
    labels: list[str] = []
    text: str | list[str] | None = None
    features: list[str] = []
    categories: list[str] = []
    kind: Kind | dict[str, Kind] | None = None
    metric: str | None = None
    split: str | None = None
    group: str | None = None
    time: str | None = None
    weight: str | None = None
    id: str | None = None
    class_weight: Literal["balanced"] | dict[str, float] | None = None
    missing: int | float | str | list[int | float | str] | None = None
    delimiter: str | None = None
    header: bool | None = None
    encoding: str | None = None
    quote: bool | None = None

    @field_validator("name")
    @classmethod
    def _has_a_name(cls, name: str | None) -> str | None:
        if name is not None and not name.strip():
            raise ValueError("is empty. Give every task a name of its own")
        return name

    @model_validator(mode="after")
    def _says_its_labels_once(self) -> Entry:
        if self.label is not None and self.labels:
            raise ValueError("has both label and labels. Use label for one column, labels for several")
        return self

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.label,) if self.label is not None else as_names(self.labels)

    def choices(self) -> Choices:
        """What this entry says, for the readers. A task with one label column is named ``name``."""
        missing = self.missing if isinstance(self.missing, list) else [] if self.missing is None else [self.missing]
        named = {self.targets[0]: self.name} if self.name and self.label is not None else None
        return Choices(
            targets=self.targets,
            names=named,
            text=as_names(self.text),
            features=as_names(self.features),
            categories=as_names(self.categories),
            kind=self.kind,
            metric=self.metric,
            split=self.split,
            group=self.group,
            time=self.time,
            weight=self.weight,
            ids=self.id,
            missing=tuple(missing),
            class_weight=self.class_weight,
        )

    def layout(self) -> Layout:
        """How the file is written, as far as this entry says."""
        choices = self.choices()
        named = (*choices.targets, *choices.text, *choices.features, *choices.special)
        return Layout(self.delimiter, self.header, self.encoding, self.quote, names=named)


_Margin = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Spec(BaseModel):
    """A whole SPEC: its tasks, and settings of a study. Settings that are not written stay None."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    task: list[Entry] = Field(min_length=1)
    seed: int = Field(default=0, ge=0)
    metric: str | None = None
    margin: _Margin | dict[str, _Margin] | None = None
    budget: int | str | None = None
    capacities: list[int] | None = None
    capacity: int | None = Field(default=None, ge=1)
    trunk: str | None = None
    methods: list[str] | None = None
    families: list[str] | None = None
    encoder: str | None = None
    vectors: str | None = None
    splits: Literal["auto", "repeated", "kfold", "time", "official"] | None = None
    outer: int | None = Field(default=None, ge=1)
    valid: float | None = Field(default=None, ge=0, lt=1)
    test: float | None = Field(default=None, gt=0, lt=1)
    least: int | None = Field(default=None, ge=0)
    duplicates: Literal["keep", "drop"] = "keep"
    epochs: int | list[int] | None = None
    batch: int | None = Field(default=None, ge=1)
    lr: float | list[float] | None = None
    max_models: int | None = Field(default=None, ge=1)
    methods_on: str | None = None
    pairs: int | None = Field(default=None, ge=0)
    leave_one_out: bool | None = None
    seeds: int | None = Field(default=None, ge=1)
    weight_decay: float | None = Field(default=None, ge=0)
    small: str | None = None
    device: str | None = None
    out: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are written, by name (``task`` and ``duplicates`` aside)."""
        return {name: getattr(self, name) for name in self.model_fields_set if name not in ("task", "duplicates")}


def read_spec(path: str | Path) -> Spec:
    """The SPEC in a TOML file, checked; nothing else is opened yet."""
    path = checked_path(path)
    try:
        if path.stat().st_size > _LARGEST:
            raise FileError(f"{path} has {path.stat().st_size >> 20} MiB: that is no SPEC. See `mtlens init`.")
        written = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not UTF-8 (byte {error.start}). A SPEC is TOML, which must be UTF-8.") from error
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise InputError(
            f"{path} is not valid TOML: {str(error)[:200]}. `mtlens init FILE` writes one to edit."
        ) from error
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} cannot be read: {error}") from error
    return spec_from(written, str(path))


def spec_from(written: dict[str, Any], where: str) -> Spec:
    """A SPEC from what a TOML file holds; the first mistake is said in one sentence."""
    if not written.get("task"):
        raise InputError(
            f"{where} names no task. Add [[task]] with name, path and label; `mtlens init FILE` shows how."
        )
    try:
        return Spec.model_validate(_whole_numbers_as_floats(written))
    except ValidationError as error:
        raise _mistake(error, written, where) from error
    except RecursionError as error:
        raise InputError(f"{where} is nested too deeply to be a SPEC.") from error


def _whole_numbers_as_floats(written: dict[str, Any]) -> dict[str, Any]:
    """``margin = 1`` means 1.0: TOML tells the two apart, a person does not."""
    floats = ("margin", "valid", "test", "weight_decay")
    return {k: float(v) if k in floats and type(v) is int and abs(v) < 1e300 else v for k, v in written.items()}


def _mistake(error: ValidationError, written: dict[str, Any], where: str) -> Exception:
    first = error.errors()[0]
    place = [part for part in first["loc"] if not (isinstance(part, str) and ("[" in part or part in _TYPES))]
    owner, known = where, Spec.model_fields
    if len(place) > 1 and place[0] == "task" and isinstance(place[1], int):
        owner, known = f"{where}, {_task_label(written, place[1])}", Entry.model_fields
        place = place[2:]
    if first["type"] == "extra_forbidden":
        return unknown("key", place[-1], known, owner)
    if first["type"] == "missing":
        return InputError(f"{owner} has no {place[-1]!r}. Add it; `mtlens init FILE` shows every field.")
    said = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if first["type"] in ("list_type", "model_type") and (place == ["task"] or not place):
        said = "must be written as [[task]] in a line of its own, with its fields below"
    shown = repr(first.get("input"))
    found = "" if first["type"] == "value_error" else f" (found {shown[:80]})"
    key = ".".join(map(str, place))
    return InputError(f"{owner}{': ' + key if key else ''} {_lower(said)}{found}.")


_TYPES = ("str", "int", "float", "dict", "list", "bool")


def _task_label(written: dict[str, Any], place: int) -> str:
    try:
        name = written["task"][place]["name"]
    except (KeyError, TypeError, IndexError):
        return f"task {place + 1}"
    return f"task {name!r}"[:80]


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


TEMPLATE = """\
# Tasks for mtlens. Every line that starts with # is optional; remove the # to use it.
seed = 0
# metric = "roc_auc"          # for every task; default: r2, roc_auc (binary), balanced_accuracy (multiclass)
# margin = 0.01               # differences smaller than this do not matter; or { rmse = 2.0, first = 0.05 }
# budget = "10m"              # a time, or a number of trainings such as 500
# capacities = [10, 50, 200]  # widths of the shared part to try
# trunk = "mlp"               # linear, relu, mlp, lstm, cnn, average
# lr = [0.001, 0.01]          # learning rates to try; also epochs = 30, batch = 50, weight_decay = 0.0, seeds = 1
# families = ["linear"]       # ridge alone; default: linear and trunk
# methods = ["plain", "svd"]  # also align, uncertainty and TorchJD's; methods_on = "pairs" tries them on every pair
# pairs = 100                 # how many pairs to measure, the most promising first
# leave_one_out = true        # also all tasks but one
# max_models = 3              # advise at most three groups
# small = "drop"              # leave tasks out that are too small to split; default: refuse
# splits = "repeated"         # repeated, kfold, time, official
# outer = 10                  # exactly so many splits; also shares of the rows: valid = 0.2, test = 0.2, least = 5
# duplicates = "drop"         # drop exact copies of rows, and rows of train that are in a test part
# encoder = "some-encoder"    # a pretrained text encoder, kept frozen
# vectors = "glove.npz"       # word vectors

[[task]]
name = "first"
path = "first.csv"            # relative to this file: .csv, .tsv, .parquet, .npz, each also .gz
label = "label"               # or labels = ["a", "b"] for several tasks on the same rows
# text = "text"               # or text = ["premise", "hypothesis"]
# features = ["x1", "x2"]     # default: all other columns, matched by name across files
# categories = ["code"]       # columns of numbers that are names
# kind = "binary"             # regression, binary or multiclass; default: found out, and said
# split = "fold"              # a column with train / valid (or dev) / test
# group = "patient"           # rows of one group stay together, also across tasks
# time = "date"               # train on the past, test on the future
# weight = "weight"           # a weight a row
# class_weight = "balanced"   # or { yes = 2.0, no = 1.0 }
# id = "id"                   # names of rows, carried through to predictions
# missing = -1                # label values that mean: no label
# delimiter = ";"             # found out when not given; so are header = true, quote = false
# encoding = "latin-1"        # default: UTF-8

[[task]]
name = "second"
path = "second.csv"
label = "label"
"""


def write_template(path: str | Path, *, overwrite: bool = False) -> None:
    """Write a SPEC to edit; a file that is already there stays as it is unless ``overwrite``."""
    path = Path(path)
    if path.suffix.lower() != ".toml":
        raise InputError(f"a SPEC's name ends in .toml, so that it is read as one; found {str(path)!r}.")
    try:
        with path.open("w" if overwrite else "x", encoding="utf-8") as file:
            file.write(TEMPLATE)
    except FileExistsError as error:
        raise FileError(f"{path} is already there. Choose another name, or overwrite it with --force.") from error
    except FileNotFoundError as error:
        raise FileError(f"{path} cannot be written: there is no folder {path.parent}. Make it first.") from error
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}.") from error
