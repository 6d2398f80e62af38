"""What a study is asked to do: one record, checked in one place."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral, Real
from typing import Any

from mtlens.errors import InputError, UnknownNameError, unknown
from mtlens.study.statistics import LOOKS, look_shares

FAMILIES = ("linear", "trunk")
METHODS = ("plain", "align", "svd", "uncertainty")  # any other name is a TorchJD method
METHODS_ON = ("all", "pairs")
EXECUTORS = ("local", "here", "ray")
SMALL = ("refuse", "drop")
TRUNKS = ("linear", "relu", "mlp", "lstm", "cnn", "average")
SCHEMES = ("auto", "kfold", "repeated", "time")
UNITLESS = 0.01  # default margin of metrics without a unit; rmse takes this share of the labels' spread
MOST_PAIRS = 300  # measured by default; more are screened by the linear core first
MOST_SEEDS = 2**31  # seeds are 0 .. 2^31 - 1 wherever a model is kept
MOST_LEFT_OUT = 12  # leave-one-out of all by default up to this many tasks


@dataclass(frozen=True)
class Budget:
    """A limit of networks trained, or of seconds, or none."""

    trainings: int | None = None
    seconds: float | None = None

    @classmethod
    def parse(cls, given: Any) -> Budget:
        """``None``, a number of trainings (``500``), or a time (``"90s"``, ``"10m"``, ``"2h"``).

        >>> Budget.parse("10m"), Budget.parse(500)
        (Budget(trainings=None, seconds=600.0), Budget(trainings=500, seconds=None))
        """
        if given is None or isinstance(given, Budget):
            return given or cls()
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            return cls(trainings=given)
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", str(given).lower())
        if match and float(match[1]) > 0:
            if match[2]:
                return cls(seconds=float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]])
            if match[1].isdigit():
                return cls(trainings=int(match[1]))
        raise InputError(f"budget={given!r} is neither a time nor a number of trainings. Write for example 10m or 500.")


@dataclass(frozen=True)
class Settings:
    """All choices of a study. Alone and joint training share every one of them, so their grids are equal.

    Args:
        seed: of splits, starts and resampling.
        budget: None, a number of network trainings, or a time such as "10m".
        splits: exactly this many outer splits; by default ``looks`` decide, cell by cell.
        looks: numbers of splits at which verdicts are tried; open cells go on to the next.
        trunk, capacities, learning_rates, epochs, batch, weight_decay: the trunk family and its grid
            (capacities x learning rates; the epoch is chosen on validation rows too).
        families: "linear" (ridge against joint ridge) and "trunk" (network against the same network).
        methods: "plain" and others to compare with it: "align", "svd", "uncertainty", or a TorchJD method.
        methods_on: methods besides plain are tried on "all" tasks together, or on all measured "pairs" too.
        pairs: how many unordered pairs to measure; None: all, or the 300 most promising when there are more.
        leave_one_out: also all tasks but one; None: with up to 12 tasks.
        seeds: starts averaged within every split.
        margin: smallest difference that matters: a number, or one a metric or task; None: 0.01, for rmse 0.01 of the
            labels' standard deviation.
        small: tasks too small to split are refused, or dropped (and said).
        scheme: of the outer splits: "kfold" (complete repeats of ``1 / test`` folds), "repeated" (drawn independently),
            "time" (train on the past); "auto" is time when every task has a time column, else kfold.
        valid, test, least: shares of the rows, and the fewest rows of a class in every part.
        vectors: file of word vectors for a trunk that reads words one by one; None: learned from scratch.
        max_models: most groups when the advice joins tasks in groups; None: no limit.
    """

    seed: int = 0
    budget: Budget = Budget()
    splits: int | None = None
    looks: tuple[int, ...] = LOOKS
    trunk: str = "mlp"
    capacities: tuple[int, ...] = (10, 50)
    learning_rates: tuple[float, ...] = (1e-3, 1e-2)
    epochs: int = 30
    batch: int = 50
    weight_decay: float = 0.0
    families: tuple[str, ...] = FAMILIES
    methods: tuple[str, ...] = METHODS
    methods_on: str = "all"
    pairs: int | None = None
    leave_one_out: bool | None = None
    seeds: int = 1
    margin: Any = None
    small: str = "refuse"
    scheme: str = "auto"
    valid: float = 0.2
    test: float = 0.2
    least: int = 5
    vectors: str | None = None
    max_models: int | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__  # frozen: only this method puts given values into their canonical form
        set_(self, "budget", Budget.parse(self.budget))
        for what, least in COUNTS.items():
            set_(self, what, _count(getattr(self, what), what, least))
        looks = self.looks if isinstance(self.looks, Sequence) else (self.looks,)
        set_(self, "looks", (self.splits,) if self.splits else tuple(_count(n, "looks", 2) for n in looks))
        set_(self, "capacities", _numbers(self.capacities, "capacities", whole=True))
        set_(self, "learning_rates", _numbers(self.learning_rates, "learning_rates"))
        set_(self, "families", _names(self.families))
        set_(self, "methods", _with_plain(_names(self.methods)))
        self._check()

    def _check(self) -> None:
        look_shares(self.looks)
        if self.seed + self.seeds > MOST_SEEDS:
            raise InputError(f"Study: seed={self.seed}. It needs a whole number below {MOST_SEEDS - self.seeds + 1}.")
        for family in self.families:
            if family not in FAMILIES:
                raise unknown("family", family, FAMILIES, "Study")
        if not self.families:
            raise InputError("a study needs at least one family. Use families=('linear', 'trunk').")
        if not isinstance(self.trunk, str):
            raise InputError(
                f"Study: trunk={self.trunk!r}. A study trains trunks by name ({', '.join(TRUNKS)}), in processes of "
                "their own; train a module of yours with train([...])."
            )
        for what, known in (("trunk", TRUNKS), ("methods_on", METHODS_ON), ("small", SMALL), ("scheme", SCHEMES)):
            if getattr(self, what) not in known:
                raise unknown(what, getattr(self, what), known, "Study")
        for method in self.methods:
            _check_method(method)
        for what in ("valid", "test"):
            if not _is_number(getattr(self, what)) or not 0 < getattr(self, what) < 1:
                raise InputError(
                    f"Study: {what}={getattr(self, what)!r}. It needs a share of the rows between 0 and 1, such as 0.2."
                )
        if not _is_number(self.weight_decay) or self.weight_decay < 0:
            raise InputError(f"Study: weight_decay={self.weight_decay!r}. It needs a number of at least 0.")
        for value in self.margin.values() if isinstance(self.margin, Mapping) else (self.margin,):
            if value is not None and (not _is_number(value) or value < 0):
                raise InputError(
                    f"Study: margin={self.margin!r}. It needs a number of at least 0, or one by task or metric."
                )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """From keyword arguments or the top level of a SPEC; unknown names are refused with a guess."""
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                raise unknown("setting", name, known, "Study")
        return cls(**given)

    @classmethod
    def from_spec(cls, written: Mapping[str, Any]) -> dict[str, Any]:
        """The choices among the top-level settings of a SPEC, under the names they have here."""
        found = {name: written[name] for name in _SAME if written.get(name) is not None}
        if written.get("capacity") is not None:
            found.setdefault("capacities", (written["capacity"],))
        if written.get("lr") is not None:
            found["learning_rates"] = written["lr"]
        if written.get("epochs") is not None:
            epochs = written["epochs"]  # the epoch is chosen up to the largest one
            found["epochs"] = max(epochs) if isinstance(epochs, list) and epochs else epochs
        if written.get("outer") is not None:
            found["splits"] = _count(written["outer"], "outer", 2)
        if written.get("splits") in SCHEMES:
            found["scheme"] = written["splits"]
        return found

    def but(self, **changes: Any) -> Settings:
        return replace(self, **changes)

    def describe(self) -> dict[str, Any]:
        """As JSON, with the size of the grid on each side."""
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}
        plain["budget"] = self.budget.trainings or (f"{self.budget.seconds:g}s" if self.budget.seconds else None)
        return plain

    @property
    def grid(self) -> list[dict[str, Any]]:
        """The configurations of the trunk family: the same list for alone and joint."""
        return [{"capacity": c, "lr": lr} for c in self.capacities for lr in self.learning_rates]


# Whole numbers and the least each may be; None stands for a default where the field has one.
COUNTS = {"seed": 0, "splits": 2, "epochs": 1, "batch": 1, "seeds": 1, "pairs": 0, "least": 1, "max_models": 1}
_SAME = (
    "seed", "margin", "budget", "capacities", "trunk", "methods", "families", "batch", "valid", "test", "least",
    "methods_on", "pairs", "leave_one_out", "seeds", "weight_decay", "small", "max_models",
)  # fmt: skip


def _count(given: Any, what: str, least: int) -> int | None:
    if given is None and what in ("splits", "pairs", "max_models"):
        return None
    if isinstance(given, bool) or not isinstance(given, Integral) or int(given) < least:
        raise InputError(f"Study: {what}={given!r}. It needs a whole number of at least {least}.")
    return int(given)


def _is_number(given: Any) -> bool:
    return not isinstance(given, bool) and isinstance(given, Real) and math.isfinite(given)


def _numbers(given: Any, what: str, *, whole: bool = False) -> tuple[Any, ...]:
    values = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    kind = int if whole else float
    numbers = tuple(kind(v) for v in values) if all(_is_number(v) and kind(v) == v for v in values) else ()
    if not numbers or len(set(numbers)) < len(numbers) or not all(math.isfinite(v) and v > 0 for v in numbers):
        raise InputError(
            f"Study: {what}={given!r}. It needs distinct positive {'whole ' if whole else ''}numbers, for example "
            f"{'10, 50' if whole else '0.001, 0.01'}."
        )
    return numbers


def _names(given: Any) -> tuple[str, ...]:
    names = given.split(",") if isinstance(given, str) else list(given)
    return tuple(dict.fromkeys(str(name).strip() for name in names))


def _check_method(method: str) -> None:
    """A method is one of ours or TorchJD's, which are known when the extra is there."""
    if method in METHODS:
        return
    from mtlens.weighting.torchjd import parse_method, torchjd_names

    try:
        parse_method(method)
    except UnknownNameError:
        raise unknown("method", method, (*METHODS, *torchjd_names()), "Study") from None


def _with_plain(methods: tuple[str, ...]) -> tuple[str, ...]:
    """Plain joint training is always there: it is what methods are compared with."""
    return ("plain", *(method for method in methods if method != "plain"))
