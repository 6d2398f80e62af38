"""Fitting a study into a number of trainings: what is given up first, and what is bought with the rest."""

from __future__ import annotations

from collections.abc import Sequence

from mtlens.study.plan import Unit, alone_units, count_trainings, pair_units
from mtlens.study.settings import Settings


class Allowance:
    """Counts distinct networks against a limit; linear fits cost nothing."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._taken: set[Unit] = set()

    @property
    def used(self) -> int:
        return count_trainings(self._taken)

    def take(self, units: Sequence[Unit], *, force: bool = False) -> bool:
        """Whether all of the units fit; if so (or if forced) they are taken. Units taken before are free."""
        cost = count_trainings(set(units) - self._taken)
        if not force and self.limit is not None and self.used + cost > self.limit:
            return False
        self._taken.update(units)
        return True


def fit_to_budget(names: Sequence[str], settings: Settings) -> tuple[Settings, list[str]]:
    """Settings under which every task alone and at least one pair fit the budget, and what was given up for that.

    In order: other methods, learning rates, capacities, then networks altogether (the linear family is free).
    """
    limit = settings.budget.trainings
    said: list[str] = []

    def least(chosen: Settings) -> int:
        splits = range(chosen.looks[0])
        units = alone_units(names, splits, chosen) + pair_units((names[0], names[1]), splits, chosen.but(methods=()))
        return count_trainings(set(units))

    if limit is None or "trunk" not in settings.families:
        return settings, said
    narrower = [
        ("methods", ("plain",), "other methods"),
        ("learning_rates", settings.learning_rates[len(settings.learning_rates) // 2 :][:1], "learning rates but one"),
        ("capacities", settings.capacities[len(settings.capacities) // 2 :][:1], "capacities but one"),
    ]
    for field, value, name in narrower:
        if least(settings) <= limit:
            break
        if getattr(settings, field) != value:
            settings = settings.but(**{field: value})
            said.append(name)
    if least(settings) > limit:
        said.append(f"networks (every task alone on {settings.looks[0]} splits needs {least(settings)} trainings)")
        settings = settings.but(families=("linear",))
    return settings, [f"the budget of {limit} trainings leaves out: {', '.join(said)}."] if said else []
