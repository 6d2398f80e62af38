"""The list of reproductions. Any module may add one; the command line and the book read this list only."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from mtlens.errors import InputError, unknown
from mtlens.paper.claims import Finding
from mtlens.paper.constants import checked
from mtlens.paper.outcome import Outcome, Panel, Point

# Modules that register reproductions, in the order of the book. Add yours here.
MODULES = (
    "mtlens.paper.covariance",
    "mtlens.paper.covariance_sgd",
    "mtlens.paper.cosine",
    "mtlens.paper.cosine_sgd",
    "mtlens.paper.relu_rank",
    "mtlens.paper.alignment",
    "mtlens.paper.alignment_sgd",
    "mtlens.paper.capacity",
    "mtlens.paper.weights",
    "mtlens.paper.theorems",
    "mtlens.paper.sentiment",
)

_REGISTRY: dict[str, Experiment] = {}


@dataclass(frozen=True)
class Experiment:
    """One name of ``mtlens reproduce``.

    Args:
        name: what a user types.
        title: one line; ``where``: its place in the paper.
        settings: ``{"printed": ..., "corrected": ...}``, each a frozen dataclass that holds every constant, among
            them ``seeds`` (how many) and ``seed`` (the first).
        quick: fields to change for ``--quick``.
        run: from settings to an outcome; a pure function of them.
        about: a paragraph for the page: what is shown, and what was changed against the print.
        part_of_book: whether ``reproduce all`` runs it (studies on real data do not belong there).
    """

    name: str
    title: str
    where: str
    settings: Mapping[str, Any]
    run: Callable[[Any], Outcome]
    quick: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""
    part_of_book: bool = True

    def configure(self, setting: str = "corrected", *, quick: bool = False, **changes: Any) -> Any:
        """The settings of a run: a named setting, made quick, with single fields changed (None leaves a field)."""
        if setting not in self.settings:
            raise unknown("setting", setting, self.settings, f"reproduce {self.name}")
        chosen = self.settings[setting]
        changes = (dict(self.quick) if quick else {}) | {k: v for k, v in changes.items() if v is not None}
        known = {f.name for f in dataclasses.fields(chosen)}
        for key in changes:
            if key not in known:
                raise unknown("constant", key, sorted(known), f"the settings of {self.name}")
        where = f"reproduce {self.name}"
        return dataclasses.replace(chosen, **{key: checked(chosen, key, new, where) for key, new in changes.items()})


@dataclass(frozen=True)
class Reproduction:
    """An experiment that was run: what ``--json`` prints."""

    experiment: Experiment
    setting: str
    settings: Any
    outcome: Outcome

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.experiment.name,
            "setting": self.setting,
            "constants": dataclasses.asdict(self.settings),
            "claims": [finding.as_dict() for finding in self.outcome.findings],
            "points": [point.as_dict() for point in self.outcome.points],
            "panels": [dataclasses.asdict(panel) for panel in self.outcome.panels],
            "notes": list(self.outcome.notes),
        }

    def as_json(self) -> str:
        """The dictionary as text; same settings, same bytes."""
        return json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Reproduction:
        """A reproduction that was written with :meth:`as_json` (figures and book are drawn from files too)."""
        found = json.loads(text)
        chosen = experiment(found["name"])
        settings = chosen.configure(found["setting"], **{k: _frozen(v) for k, v in found["constants"].items()})
        outcome = Outcome(
            [Panel(**panel) for panel in found["panels"]],
            [Point.from_dict(point) for point in found["points"]],
            [Finding.from_dict(claim) for claim in found["claims"]],
            found["notes"],
        )
        return cls(chosen, found["setting"], settings, outcome)


def _frozen(value: Any) -> Any:
    """JSON's lists as the tuples that settings hold."""
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


def register(experiment: Experiment) -> Experiment:
    """Add an experiment; a name can be taken once."""
    if experiment.name in _REGISTRY and _REGISTRY[experiment.name].run is not experiment.run:
        raise InputError(f"a reproduction named {experiment.name!r} is registered already. Choose another name.")
    _REGISTRY[experiment.name] = experiment
    return experiment


def experiments() -> dict[str, Experiment]:
    """All experiments by name, in the order of :data:`MODULES` (whichever was imported first); others come last."""
    for module in MODULES:
        import_module(module)
    return dict(sorted(_REGISTRY.items(), key=lambda item: _place(item[1])))


def _place(experiment: Experiment) -> int:
    """Where the module that defines an experiment's ``run`` stands in :data:`MODULES`."""
    home = getattr(experiment.run, "func", experiment.run).__module__  # partial objects keep the function in func
    return MODULES.index(home) if home in MODULES else len(MODULES)


def experiment(name: str) -> Experiment:
    found = experiments()
    if name not in found:
        raise unknown("reproduction", name, found)
    return found[name]


def reproduce(name: str, *, setting: str = "corrected", quick: bool = False, **changes: Any) -> Reproduction:
    """Run one experiment. ``changes`` are constants of its settings, such as ``seeds=40`` or ``kappa=10.0``.

    The result is a pure function of the settings: the same numbers, to the bit, on one machine.
    """
    chosen = experiment(name)
    settings = chosen.configure(setting, quick=quick, **changes)
    return Reproduction(chosen, setting, settings, chosen.run(settings))


def parse_constants(given: Sequence[str]) -> dict[str, Any]:
    """``name=value`` texts as constants; values are TOML, anything else is text.

    >>> parse_constants(["kappa=10.0", "target_rows=[20]", "form=R Q D"])
    {'kappa': 10.0, 'target_rows': (20,), 'form': 'R Q D'}
    """
    constants = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(f"a constant is given as name=value, found {text!r}. Try --set kappa=10.0")
        try:
            constants[name.strip()] = _frozen(tomllib.loads(f"value = {value}")["value"])
        except tomllib.TOMLDecodeError:
            constants[name.strip()] = value.strip()
    return constants
