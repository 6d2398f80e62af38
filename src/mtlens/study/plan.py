"""What is trained, in what order, and which trainings share a stack: pure functions of tasks, settings and seed.

A :class:`Unit` is one training (or one linear fit). Units of one kind are cut into stacks of fixed size in a fixed
order; a stack is trained together, enters the ledger whole and is what a resumed study repeats.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

from mtlens.study.identity import Fingerprint, digest_json, training_identity
from mtlens.study.settings import MOST_LEFT_OUT, MOST_PAIRS, Settings

STACK = 64  # models of a stack: where stacking saturates on a CPU core
LINEAR_STACK = 1000  # linear fits of one split share its moments
OFFICIAL = -1  # the "split" that is the data's own test set


@dataclass(frozen=True)
class Unit:
    """One training: who is trained together, how, on which split.

    For the trunk family ``tasks`` is a set in the order of the study; for the linear family it is the target followed
    by its sources, and one fit serves one target only.
    """

    family: str
    method: str
    tasks: tuple[str, ...]
    split: int
    seed: int = 0
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.settings)

    def describe(self) -> dict[str, Any]:
        """As JSON, for the ledger."""
        plain = {"family": self.family, "method": self.method, "tasks": list(self.tasks), "split": self.split}
        return plain | {"seed": self.seed, "settings": self.config}

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Unit:
        settings = tuple(plain["settings"].items())
        return cls(plain["family"], plain["method"], tuple(plain["tasks"]), plain["split"], plain["seed"], settings)


@dataclass(frozen=True)
class Stack:
    """Units that are trained together. Its identity follows from theirs."""

    units: tuple[Unit, ...]
    identities: tuple[Fingerprint, ...] = field(repr=False)

    @property
    def identity(self) -> Fingerprint:
        return digest_json(list(self.identities))

    @property
    def splits(self) -> tuple[int, ...]:
        return tuple(sorted({unit.split for unit in self.units}))

    def divided(self, identities: Container[Fingerprint]) -> tuple[Stack, Stack]:
        """The part whose identities are among these, and the rest."""
        pairs = list(zip(self.units, self.identities, strict=True))
        sides = [[pair for pair in pairs if (pair[1] in identities) is known] for known in (True, False)]
        found = [Stack(tuple(u for u, _ in side), tuple(i for _, i in side)) for side in sides]
        return found[0], found[1]


@dataclass(frozen=True)
class Cells:
    """Which comparisons are measured: unordered pairs, all together, all but one."""

    pairs: tuple[tuple[str, str], ...]
    together: tuple[str, ...]  # all tasks; of two tasks that is their pair
    left_out: tuple[str, ...] = ()


def all_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    return list(combinations(names, 2))


def pairs_to_measure(names: Sequence[str], settings: Settings) -> int:
    """How many unordered pairs a study without a count budget measures."""
    total = len(names) * (len(names) - 1) // 2
    return min(total, MOST_PAIRS if settings.pairs is None else settings.pairs)


def cells_for(names: Sequence[str], pairs: Iterable[tuple[str, str]], settings: Settings) -> Cells:
    """The comparisons of a study whose measured pairs are given."""
    wanted = settings.leave_one_out if settings.leave_one_out is not None else len(names) <= MOST_LEFT_OUT
    left_out = tuple(names) if len(names) > 2 and wanted else ()
    return Cells(tuple(pairs), tuple(names), left_out)


def config_units(
    family: str, method: str, tasks: tuple[str, ...], splits: Iterable[int], settings: Settings
) -> list[Unit]:
    """Every configuration and seed of one set of tasks, on these splits. The linear family tunes itself inside."""
    if family == "linear":  # the seed is that of its inner folds
        return [Unit(family, method, tasks, split, settings.seed) for split in splits]
    common = {"trunk": settings.trunk, "epochs": settings.epochs, "batch": settings.batch}
    common |= {"weight_decay": settings.weight_decay}
    if settings.vectors is not None:
        common |= {"vectors": settings.vectors, "vectors_digest": _file_digest(settings.vectors)}
    return [
        Unit(family, method, tasks, split, settings.seed + seed, tuple(sorted((common | config).items())))
        for split in splits
        for config in settings.grid
        for seed in range(settings.seeds)
    ]


@lru_cache(maxsize=4)
def _file_digest(path: str) -> str:
    """Hash of a file: the same name with other content is another setting."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def alone_units(names: Iterable[str], splits: Iterable[int], settings: Settings) -> list[Unit]:
    splits = list(splits)
    return [
        unit for family in settings.families for name in names
        for unit in config_units(family, "plain", (name,), splits, settings)
    ]  # fmt: skip


def set_units(members: tuple[str, ...], method: str, splits: Iterable[int], settings: Settings) -> list[Unit]:
    """Joint training of a set of tasks. The linear family fits each target with the others as sources."""
    splits = list(splits)
    found = []
    for family in settings.families:
        if family == "trunk":
            found += config_units(family, method, members, splits, settings)
        elif method == "plain":
            for target in members:
                others = tuple(name for name in members if name != target)
                found += config_units(family, method, (target, *others), splits, settings)
    return found


def pair_units(pair: tuple[str, str], splits: Iterable[int], settings: Settings) -> list[Unit]:
    splits = list(splits)
    methods = settings.methods if settings.methods_on == "pairs" else ("plain",)
    return [unit for method in methods for unit in set_units(pair, method, splits, settings)]


def together_units(cells: Cells, method: str, splits: Iterable[int], settings: Settings) -> list[Unit]:
    """All tasks together, by one method."""
    return set_units(cells.together, method, splits, settings) if cells.together else []


def left_out_units(cells: Cells, splits: Iterable[int], settings: Settings) -> list[Unit]:
    """All tasks but one. Of three tasks those are the pairs, which are planned already."""
    splits, found = list(splits), []
    for name in cells.left_out if len(cells.together) > 3 else ():
        rest = tuple(other for other in cells.together if other != name)
        found += set_units(rest, "plain", splits, settings)
    return found


def identities_of(units: Sequence[Unit], prepared: Mapping[int, Mapping[str, Fingerprint]]) -> list[Fingerprint]:
    """Identities of units, from the fingerprints of every task on every split.

    A linear fit is standardised together with all tasks of the study, so all of them enter its identity.
    """
    found = []
    for unit in units:
        data = prepared[unit.split]
        involved = [data[name] for name in unit.tasks] + (sorted(data.values()) if unit.family == "linear" else [])
        settings = unit.describe()
        del settings["split"]  # the prepared data say which rows are where
        settings["tasks"] = len(unit.tasks)  # names do not matter for closed forms; networks' streams are named
        if unit.family == "trunk":
            settings["tasks"] = list(unit.tasks)
        found.append(training_identity(involved, settings))
    return found


def stacks_of(units: Iterable[Unit], prepared: Mapping[int, Mapping[str, Fingerprint]]) -> list[Stack]:
    """Cut units into stacks: same family, method and number of tasks, in order, a fixed number each.

    Linear stacks also share their split, because they share its moments.
    """
    groups: dict[tuple[Any, ...], list[Unit]] = {}
    for unit in dict.fromkeys(units):
        key = (unit.family, unit.method, len(unit.tasks), unit.config.get("capacity"))
        groups.setdefault((unit.family, unit.split) if unit.family == "linear" else key, []).append(unit)
    stacks = []
    for key, members in groups.items():
        members.sort(key=lambda unit: unit.split)  # a stack then needs the data of one split or two
        size = LINEAR_STACK if key[0] == "linear" else stack_size(key[2])
        for start in range(0, len(members), size):
            part = tuple(members[start : start + size])
            stacks.append(Stack(part, tuple(identities_of(part, prepared))))
    return stacks


def stack_size(num_tasks: int) -> int:
    """Fewer models a stack when each holds many tasks, so that a stack stays a matter of seconds."""
    return max(4, min(STACK, 4 * STACK // max(num_tasks, 1)))


def count_trainings(units: Iterable[Unit]) -> int:
    """What a count budget counts: networks. Linear fits are closed forms and free."""
    return sum(unit.family == "trunk" for unit in units)
