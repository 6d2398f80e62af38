"""Running one stack, wherever it runs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from mtlens.errors import MtlensError
from mtlens.study.linear import LinearSplit
from mtlens.study.plan import Unit
from mtlens.study.prepare import Prepared

KEPT = 2  # linear cores kept in memory: a d x d moment matrix a fold and task each


class Bench:
    """Runs stacks on prepared splits; remembers the linear core of the last splits."""

    def __init__(self, seed: int, device: str = "cpu") -> None:
        self.seed = seed
        self.device = device
        self._cores: OrderedDict[int, LinearSplit] = OrderedDict()

    def run(self, units: Sequence[Unit], prepared: Mapping[int, Prepared]) -> list[dict[str, Any]]:
        """What each unit found: ``scores``, ``seconds``, ``reason``, and more by family. In the order of the units.

        A stack that cannot be trained is a finding too: every unit of it carries the reason and no scores.
        """
        try:
            if units[0].family == "linear":
                return self._core(units[0].split, prepared).run(units)
            from mtlens.study.trunk import run_trunk

            return run_trunk(units, prepared, device=self.device)
        except MtlensError as error:
            return [{"scores": {}, "seconds": 0.0, "reason": str(error)} for _ in units]

    def _core(self, split: int, prepared: Mapping[int, Prepared]) -> LinearSplit:
        if split not in self._cores:
            self._cores[split] = LinearSplit(prepared[split].dense, seed=self.seed)
            if len(self._cores) > KEPT:
                self._cores.popitem(last=False)
        self._cores.move_to_end(split)
        return self._cores[split]
