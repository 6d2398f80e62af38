"""From finished trainings to differences: one number a cell and split, every choice made on validation rows.

For a target, a split and a set of tasks trained together, the configuration with the best validation score of *that
target* is taken (averaged over seeds), and its test score is what counts; alone and joint do this over one grid. The
family whose *alone* model validates best on that split is the one reported for the target there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.study.ledger import Record
from mtlens.study.plan import Unit
from mtlens.study.settings import Settings

Key = tuple[str, str, tuple[str, ...], int]  # family, method, tasks, split


@dataclass(frozen=True)
class Choice:
    """What validation chose: its validation and test score, and the configuration."""

    valid: float
    test: float
    config: Mapping[str, Any]
    tried: int


class Evidence:
    """All finished trainings of a study, by what they are evidence of."""

    def __init__(self, settings: Settings, names: Sequence[str]) -> None:
        self.settings = settings
        self.names = tuple(names)
        self._found: dict[Key, dict[tuple[Any, ...], dict[int, Record]]] = defaultdict(lambda: defaultdict(dict))
        self._chosen: dict[tuple[Any, ...], Choice | None] = {}

    def add(self, unit: Unit, record: Record) -> None:
        key = (unit.family, unit.method, unit.tasks, unit.split)
        self._found[key][unit.settings][unit.seed] = record
        self._chosen.clear()

    def records(self, family: str, method: str, tasks: tuple[str, ...], split: int) -> list[Record]:
        return [r for seeds in self._found.get((family, method, tasks, split), {}).values() for r in seeds.values()]

    def alone(self, family: str, target: str, split: int, **only: Any) -> Choice | None:
        return self.choice(family, "plain", (target,), target, split, **only)

    def joint(self, family: str, members: Iterable[str], target: str, split: int, method: str = "plain", **only: Any
              ) -> Choice | None:  # fmt: skip
        """The chosen joint model of a set that holds the target."""
        others = [name for name in members if name != target]
        if family == "linear":
            return self.choice(family, method, (target, *others), target, split) if method == "plain" else None
        inside = {target, *others}
        return self.choice(family, method, tuple(n for n in self.names if n in inside), target, split, **only)

    def choice(
        self, family: str, method: str, tasks: tuple[str, ...], target: str, split: int,
        control: str = "", **only: Any,
    ) -> Choice | None:  # fmt: skip
        """The configuration that validates best on the target; None when a training of the grid is still missing.

        Of equals (small validation parts make ties) the first by capacity, then learning rate.
        ``only`` restricts the grid (a capacity, for the capacity curve); ``control`` reads a control of the method.
        """
        key = (family, method, tasks, target, split, control, tuple(sorted(only.items())))
        if key not in self._chosen:
            found = self._found.get((family, method, tasks, split), {})
            self._chosen[key] = self._choose(found, family, target, control, only)
        return self._chosen[key]

    def _choose(
        self, found: Mapping[tuple[Any, ...], Mapping[int, Record]], family: str, target: str, control: str,
        only: Mapping[str, Any],
    ) -> Choice | None:  # fmt: skip
        configs = {config: seeds for config, seeds in found.items() if only.items() <= dict(config).items()}
        expected = 1 if family == "linear" else len(self.settings.grid)
        if not configs or (not only and len(configs) < expected):
            return None
        best: Choice | None = None
        for config, seeds in sorted(configs.items(), key=lambda item: item[0]):  # not in the order of finishing
            if family == "trunk" and len(seeds) < self.settings.seeds:
                return None
            pairs = [_scores(record, target, control) for record in seeds.values()]
            valid, test = (math.fsum(values) / len(values) for values in zip(*pairs, strict=True))
            usable = math.isfinite(test) and (math.isfinite(valid) or len(configs) == 1)
            if usable and (best is None or valid > best.valid):
                best = Choice(valid, test, dict(config), len(configs))
        return best

    def predictions(self, family: str, members: Sequence[str], target: str, split: int) -> FloatArray | None:
        """Test predictions of the chosen configuration (its first seed), where the ledger keeps them."""
        chosen = self.joint(family, members, target, split)
        if chosen is None:
            return None
        others = tuple(name for name in members if name != target)
        tasks = (target, *others) if family == "linear" else tuple(n for n in self.names if n in {target, *others})
        for config, seeds in self._found[family, "plain", tasks, split].items():
            if dict(config) == dict(chosen.config):
                kept = seeds[min(seeds)].scores.get("predictions", {}).get(target)
                return None if kept is None else np.asarray(kept, np.float64)
        return None

    def family(self, target: str, split: int, families: Sequence[str]) -> str | None:
        """The family whose alone model validates best for this target on this split, of those that are finished."""
        found = {family: self.alone(family, target, split) for family in families}
        if any(choice is None for choice in found.values()):
            return None
        valid = {name: choice.valid for name, choice in found.items() if choice is not None}
        return max(valid, key=lambda name: (valid[name] if math.isfinite(valid[name]) else -math.inf, name))

    def differences(
        self, target: str, members: Sequence[str], splits: Iterable[int], *, families: Sequence[str],
        against: Sequence[str] | None = None, method: str = "plain",
    ) -> tuple[FloatArray, list[str]]:  # fmt: skip
        """Joint minus alone (or minus joint of the tasks ``against``) on every finished split, and the family of each.

        Splits count from the first one on; the first unfinished split ends the list, so that what finished early by
        chance cannot matter.
        """
        found, used = [], []
        for split in splits:
            family = self.family(target, split, families)
            if family is None:
                break
            joint = self.joint(family, members, target, split, method)
            base = self.joint(family, against, target, split) if against else self.alone(family, target, split)
            if joint is None or base is None:
                break
            found.append(joint.test - base.test)
            used.append(family)
        return np.asarray(found, np.float64), used


def _scores(record: Record, target: str, control: str) -> tuple[float, float]:
    scores = record.scores["controls"][control] if control else record.scores
    return _number(scores, "valid", target), _number(scores, "test", target)


def _number(scores: Mapping[str, Any], split: str, target: str) -> float:
    value = scores.get(split, {}).get(target)
    return float("nan") if value is None else float(value)
