"""Advice: a system that is not worse than the best tuned single-task models, and keeps the gain where there is one.

Everything is judged on held-out predictions of what would be deployed. A task's own family is chosen by half its own
and half the pooled evidence; each candidate way of joining is given safe weights (``stacking``); the candidate with the
largest pooled gain is advised, and none when no gain exceeds two standard errors: "nothing to gain here" is the
commonest honest answer. Controls stand beside it: what the same stack gains from a second network of the task itself,
and from a penalty that tasks share without sharing a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.errors import InputError
from mtlens.models.space import spaces_of
from mtlens.models.system import Grid, Group, System, TaskPlan
from mtlens.study.candidates import FEW_SOURCES, Candidate, Family, HeldOut
from mtlens.study.groups import Grouping, best_groups
from mtlens.study.stacking import OWN, THRESHOLD, Evidence, Gain, SafeJoin, best_applied, judged, safe_join
from mtlens.tasks import Task, TaskSet
from mtlens.theory.rank_curve import RankCurve, rank_curve

FOLDS = 5
LEAST_FOLDS = 2  # without one of them nothing is left to choose groups by
FEW_PAIRS = 60  # tasks up to which the linear core predicts every pair for groups that were not measured
MANY_PAIRS = 200  # the same when groups were asked for: half a minute of one core at 140 tasks of 30 columns
WIDE_PAIRS = 512  # columns up to which it does
EXACT_BY_FOLD = 16  # tasks up to which also the groups without a fold are the best of all
NORMAL_95 = 1.96

Say = Callable[[str], None]


@dataclass(frozen=True)
class Tried:
    """One row of the table: a candidate or control, its pooled held-out gain over alone, and whether it was applied."""

    name: str
    gain: float
    error: float
    applied: bool
    control: bool = False


@dataclass(frozen=True, eq=False)
class Advice:
    """A system with its evidence.

    ``difference`` (R2 or Brier skill, mean over tasks) is the held-out gain over the best tuned single-task system,
    with its 95 % interval; it is 0 with an empty interval when nothing is joined. It is that of the procedure: each
    fold scores what the other folds would have advised, so that the choice itself is paid for. ``sharing`` is that
    gain minus the best control's, with its interval: the part that is not ensembling or a shared penalty.
    """

    system: System
    difference: float
    low: float
    high: float
    sharing: float | None
    sharing_low: float | None
    sharing_high: float | None
    tried: tuple[Tried, ...]
    capacity: tuple[RankCurve, ...] = ()
    grouping: tuple[tuple[tuple[str, ...], float], ...] = ()
    found: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """What ``verdicts.json`` holds under ``advice``."""
        return {
            "summary": self.system.summary,
            "difference": self.difference,
            "low": self.low,
            "high": self.high,
            "sharing": self.sharing,
            "sharing_low": self.sharing_low,
            "sharing_high": self.sharing_high,
            "per_task": [
                plan.model_dump(
                    include={"recipe", "family", "joint_family", "weight", "difference", "low", "high", "n"}
                )
                | {"task": plan.name, "sources": list(self.system.sources_of(plan.name))}
                | {"weight": plan.weight if plan.is_joint else 0.0}
                | {"evidence": plan.evidence, "would_change": plan.would_change}
                for plan in self.system.tasks
            ],
            "tried": [vars(row) | {} for row in self.tried],
            "groups": [{"tasks": list(group), "stability": stability} for group, stability in self.grouping],
            "found": list(self.found),
        }


def advise(
    tasks: TaskSet | Sequence[Task],
    *,
    families: Sequence[Family] = ("linear", "trunk"),
    grid: Grid | None = None,
    joint_grid: Grid | None = None,
    seed: int = 0,
    folds: int = FOLDS,
    max_models: int | None = None,
    pairs: FloatArray | None = None,
    pair_errors: FloatArray | None = None,
    device: str = "cpu",
    workers: int | None = None,
    progress: Say | None = None,
) -> Advice:
    """Advise a system from development rows; splits that tasks carry are ignored, so pass no test rows.

    Args:
        tasks: development rows.
        families: "linear", "trunk" (the grid's networks) or both.
        grid: what every member, alone or joint, chooses from.
        joint_grid: refused unless equal to ``grid``: unequal grids fake gains of several points.
        seed: of folds and networks.
        folds: of the held-out predictions.
        max_models: most groups when tasks are joined in groups; None for no limit.
        pairs: ``(k, k)`` measured transfer (target, source); NaN where not measured: the linear core fills these in.
        pair_errors: their standard errors, for the stability of groups.
        device, workers: of ``mtlens.train``.
        progress: told what is being done.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> theta = rng.standard_normal(8)
        >>> def school(name: str) -> Task:
        ...     X = rng.standard_normal((24, 8))
        ...     return Task(name, X, X @ theta + 2 * rng.standard_normal(24), kind="regression")
        >>> advice = advise([school(f"school {i}") for i in range(8)], families=("linear",))
        >>> advice.system.tasks[0].recipe != "alone", advice.difference > 0.05
        (True, True)
    """
    tasks = TaskSet.of(tasks)
    grid = grid or Grid()
    _check(families, grid, joint_grid)
    if max_models is not None and (type(max_models) is not int or max_models < 1):
        raise InputError(f"max_models={max_models!r} is no number of models. Use 1 or more, or None for no limit.")
    say = progress or (lambda _: None)
    options = {"device": device, "workers": workers, "progress": False}
    blank = System.alone(tasks.names, seed=seed, folds=folds, grid=grid)
    parts = []
    for names in spaces_of(tasks, blank):
        say(f"held-out predictions of {len(names)} tasks")
        held = HeldOut(tasks.subset(names), grid=grid, seed=seed, folds=folds, options=options, say=say)
        place = [tasks.names.index(name) for name in names]
        measured = None if pairs is None else np.asarray(pairs)[np.ix_(place, place)]
        errors = None if pair_errors is None else np.asarray(pair_errors)[np.ix_(place, place)]
        parts.append(PartAdvice(held, _usable(families, held), max_models, measured, errors).advise())
    return _together(tasks, blank, parts)


def _check(families: Sequence[str], grid: Grid, joint_grid: Grid | None) -> None:
    strange = [family for family in families if family not in ("linear", "trunk")]
    if strange or not families:
        raise InputError(
            f"families={list(families)!r} must name linear, trunk or both. Leave the argument out for both."
        )
    if joint_grid is not None and joint_grid != grid:
        fields = [name for name in Grid.model_fields if getattr(grid, name) != getattr(joint_grid, name)]
        name = fields[0]
        raise InputError(
            f"advise: alone chooses {name} from {getattr(grid, name)!r}, joint from {getattr(joint_grid, name)!r}. "
            "Unequal grids fake gains, so both sides need one grid. Give only grid=."
        )


def _usable(families: Sequence[Family], held: HeldOut) -> list[Family]:
    usable: list[Family] = [family for family in families if family == "trunk" or held.has_columns]
    if not usable:
        raise InputError(f"the linear family does not apply to {', '.join(held.raw.names[:5])}. Add family 'trunk'.")
    return usable


@dataclass(frozen=True, eq=False)
class _Advised:
    """The advice for one input space."""

    plans: dict[str, TaskPlan]
    groups: list[Group]
    join: SafeJoin | None
    chosen: Candidate | None
    judged: Gain | None
    sharing: tuple[float, float] | None
    tried: list[Tried]
    curve: RankCurve | None
    grouping: list[tuple[tuple[str, ...], float]]
    found: list[str]


class PartAdvice:
    """Advice for the tasks of one input space."""

    def __init__(
        self,
        held: HeldOut,
        families: list[Family],
        max_models: int | None,
        pairs: FloatArray | None,
        pair_errors: FloatArray | None,
    ) -> None:
        self.held, self.families, self.max_models = held, families, max_models
        self.pairs, self.pair_errors = pairs, pair_errors
        self.found: list[str] = []

    def advise(self) -> _Advised:
        held = self.held
        if held.small:
            shown = "; ".join(f"{name}: {reason}" for name, reason in list(held.small.items())[:3])
            self.found.append(f"{len(held.small)} tasks are too small for evidence of their own ({shown})")
        if not held.names:
            return self._alone_without_evidence()
        own = {family: held.alone(family) for family in self.families}
        families = self._families(own)
        alone = {name: own[families[name]][name] for name in held.names}
        if len(held.raw) < 2:
            return _Advised(self._plans({}, None, None, families), [], None, None, None, None, [], None, [], self.found)
        grouping, by_fold = self._grouping()
        evidence = {c: held.evidence(alone, held.joint(c)) for c in self._candidates(grouping, by_fold)}
        joins = {c: safe_join(parts) for c, parts in evidence.items()}
        controls = {name: safe_join(parts) for name, parts in self._controls(alone).items()}
        chosen = best_applied(joins)
        join = None if chosen is None else joins[chosen]
        gained = None if chosen is None else judged(evidence)
        tried = [_row(c.name, j) for c, j in joins.items()] + [_row(n, j, control=True) for n, j in controls.items()]
        curve = rank_curve(held.alone_core) if held.has_columns else None
        if curve is not None:
            self.found.append(_capacity_line(curve))
        groups = [] if chosen is None else chosen.system(held.raw.names, held.grid, held.seed, held.folds).groups
        stability = [] if grouping is None else self._named(grouping)
        plans = self._plans(joins, chosen, gained, families)
        sharing = None if gained is None else _sharing_of(gained, controls)
        return _Advised(plans, list(groups), join, chosen, gained, sharing, tried, curve, stability, self.found)

    def _alone_without_evidence(self) -> _Advised:
        families = dict.fromkeys(self.held.raw.names, self.families[0])
        return _Advised(self._plans({}, None, None, families), [], None, None, None, None, [], None, [], self.found)

    # ------------------------------------------------------------------ alone

    def _families(self, own: Mapping[Family, Mapping[str, FloatArray]]) -> dict[str, Family]:
        """The family of each task by itself: half its own held-out evidence, half that of all tasks."""
        names = self.held.raw.names
        if len(own) == 1:
            return dict.fromkeys(names, next(iter(own)))
        evidence = self.held.evidence(own["linear"], own["trunk"])
        gains = {}
        for name, part in evidence.items():
            errors = [((part.y - p) ** 2).sum() for p in (part.alone, part.joint)]
            gains[name] = float((errors[0] - errors[1]) / max(len(part.y) * part.variance, np.finfo(float).tiny))
        pooled = float(np.mean(list(gains.values()))) if gains else 0.0
        return {name: "trunk" if OWN * gains.get(name, pooled) + (1 - OWN) * pooled > 0 else "linear" for name in names}

    # ------------------------------------------------------------------ candidates

    def _candidates(self, grouping: Grouping | None, by_fold: Sequence[Grouping] = ()) -> list[Candidate]:
        found: list[Candidate] = []
        if "linear" in self.families:
            found += [Candidate("joint", "linear"), Candidate("shrink", "linear")]
            if len(self.held.names) <= FEW_SOURCES:
                found.append(Candidate("sources", "linear"))
        if "trunk" in self.families:
            found.append(Candidate("joint", "trunk"))
        if grouping is not None and by_fold:
            groups = tuple(group for group, _ in self._named(grouping))
            chosen = tuple(tuple(group for group, _ in self._named(some)) for some in by_fold)
            found += [Candidate("group", family, groups, chosen) for family in self.families]
        return found

    def _grouping(self) -> tuple[Grouping | None, tuple[Grouping, ...]]:
        """Groups from measured pairs, and from the linear core where nothing was measured; and those without each fold
        (none where the groups are all tasks together, or each alone: those are other candidates).

        The ones without a fold come from the linear core alone, which then never reads that fold's rows: measured pairs
        have seen every row, and so have the models that score the other folds.
        """
        held, D, errors = self.held, self.pairs, self.pair_errors
        most = FEW_PAIRS if self.max_models is None else MANY_PAIRS
        affordable = held.has_columns and len(held.raw) <= most and held.joint_core.width <= WIDE_PAIRS
        if affordable:
            table = held.joint_core.pairs()
            predicted, spread = table.difference, held.joint_core.standard_error(table.folds)
            D = predicted if D is None else np.where(np.isnan(D), predicted, D)
            errors = spread if errors is None else np.where(np.isnan(errors), spread, errors)
        if D is None:
            return None, ()
        grouping = best_groups(D, errors=errors, max_models=self.max_models, seed=held.seed)
        divides = 1 < len(grouping.groups) < len(held.raw)  # else it is joining all, or none
        return grouping, self._groups_by_fold() if affordable and divides and held.folds > LEAST_FOLDS else ()

    def _groups_by_fold(self) -> tuple[Grouping, ...]:
        rest = (self.held.pairs_without(fold) for fold in range(self.held.folds))
        return tuple(best_groups(D, max_models=self.max_models, exact=EXACT_BY_FOLD) for D in rest)

    def _named(self, grouping: Grouping) -> list[tuple[tuple[str, ...], float]]:
        names = self.held.raw.names
        return [
            (tuple(names[i] for i in group), stability)
            for group, stability in zip(grouping.groups, grouping.stability, strict=True)
        ]

    def _controls(self, alone: Mapping[str, FloatArray]) -> dict[str, dict[str, Evidence]]:
        """The same stack with something that shares no model in place of the joint one.

        The network has another seed than the task's own: what it adds is ensembling.
        """
        found = {}
        if "trunk" in self.families:
            found["a network of the task itself"] = self.held.evidence(alone, self.held.alone("trunk", again=True))
        if "linear" in self.families:
            found["penalty shared, no model shared"] = self.held.evidence(alone, self.held.shared_penalty())
        return found

    # ------------------------------------------------------------------ plans

    def _plans(
        self,
        joins: Mapping[Candidate, SafeJoin],
        chosen: Candidate | None,
        gained: Gain | None,
        families: Mapping[str, Family],
    ) -> dict[str, TaskPlan]:
        names = self.held.raw.names
        if chosen is None or gained is None:
            told = _nothing(joins)
            return {n: TaskPlan(name=n, family=families[n], evidence=told, would_change=_MORE) for n in names}
        return {name: self._plan(name, chosen, joins[chosen], gained, families[name]) for name in names}

    def _plan(self, name: str, chosen: Candidate, join: SafeJoin, gained: Gain, family: Family) -> TaskPlan:
        weight = join.weights.get(name, join.pooled)
        group = chosen.group_of(name) if chosen.recipe == "group" else None
        if weight <= 0.0 or (chosen.recipe == "group" and group is None):
            return TaskPlan(
                name=name, family=family, evidence="alone: joining moved it the wrong way", would_change=_MORE
            )
        gain, error = gained.own_gains.get(name), gained.own_errors.get(name, np.inf)
        known = gain is not None and np.isfinite(error)
        return TaskPlan(
            name=name,
            recipe=chosen.recipe,
            family=family,
            joint_family=chosen.family,
            weight=round(weight, 4),
            group=group,
            difference=gain,
            low=gain - NORMAL_95 * error if known and gain is not None else None,
            high=gain + NORMAL_95 * error if known and gain is not None else None,
            n=int(self.held.raw[name].labelled.sum()) if known else 0,
            evidence=f"pooled held-out gain {join.gain:+.4f}, {join.strength:.1f} standard errors",
            would_change=f"a pooled gain below {THRESHOLD:g} standard errors on other rows",
        )


def _nothing(joins: Mapping[Candidate, SafeJoin]) -> str:
    """Why nothing is joined, with what came nearest to being."""
    if not joins:
        return "nothing to join it with, or too few rows to tell"
    nearest = max(joins, key=lambda c: joins[c].strength)
    told = f"{nearest.name}: {joins[nearest].gain:+.4f}, {joins[nearest].strength:.1f} standard errors"
    return f"no way of joining gains more than {THRESHOLD:g} standard errors on held-out rows (nearest, {told})"


_MORE = "more rows, or sources closer to this task"


def _row(name: str, join: SafeJoin, *, control: bool = False) -> Tried:
    return Tried(name, join.gain, join.error, join.applied, control)


def _capacity_line(curve: RankCurve) -> str:
    if curve.flat:
        return f"capacity: flat from {curve.ranks[0]} to {curve.ranks[-1]} shared linear directions; any size will do"
    ranks = ", ".join(map(str, curve.ranks))
    return f"capacity: {curve.suggested} shared linear directions (best {curve.best} of {ranks})"


def _together(tasks: TaskSet, blank: System, parts: Sequence[_Advised]) -> Advice:
    """One system of all input spaces; the difference is the mean over all tasks."""
    plans = {name: plan for part in parts for name, plan in part.plans.items()}
    groups: list[Group] = []
    for number, part in enumerate(parts):
        renamed = {g.name: f"{g.name} of space {number + 1}" if len(parts) > 1 else g.name for g in part.groups}
        groups += [Group(name=renamed[g.name], tasks=g.tasks) for g in part.groups]
        for name in part.plans:
            if plans[name].group is not None:
                plans[name] = plans[name].model_copy(update={"group": renamed[str(plans[name].group)]})
        if len(parts) > 1:
            _name_sources(plans, part)
    shares = [len(part.plans) / len(tasks) for part in parts]
    gain, error = _weighted(shares, [None if p.judged is None else (p.judged.gain, p.judged.error) for p in parts])
    shared, shared_error = _weighted(shares, [part.sharing for part in parts])
    joined = any(part.join is not None for part in parts)
    found = [line for part in parts for line in part.found]
    system = System(
        seed=blank.seed, folds=blank.folds, grid=blank.grid, groups=groups, found=found,
        tasks=[plans[name] for name in tasks.names], summary=_summary(parts, gain, error, shared),
    )  # fmt: skip
    return Advice(
        system=system,
        difference=gain,
        low=gain - NORMAL_95 * error,
        high=gain + NORMAL_95 * error,
        sharing=shared if joined else None,
        sharing_low=shared - NORMAL_95 * shared_error if joined else None,
        sharing_high=shared + NORMAL_95 * shared_error if joined else None,
        tried=tuple(row for part in parts for row in part.tried),
        capacity=tuple(part.curve for part in parts if part.curve is not None),
        grouping=tuple(entry for part in parts for entry in part.grouping),
        found=tuple(found),
    )


def _name_sources(plans: dict[str, TaskPlan], part: _Advised) -> None:
    """With several input spaces "all other tasks" means those of the same space: say which."""
    for name in part.plans:
        if plans[name].recipe in ("joint", "shrink", "sources"):
            others = [other for other in part.plans if other != name]
            plans[name] = plans[name].model_copy(update={"sources": others})


def _sharing_of(gained: Gain, controls: Mapping[str, SafeJoin]) -> tuple[float, float]:
    """The procedure's gain less the best control's (no control counts for less than nothing), and its error."""
    best = max(controls.values(), key=lambda join: join.gain, default=None)
    return (gained.gain, gained.error) if best is None or best.gain <= 0 else gained.less(best.found)


def _weighted(shares: Sequence[float], found: Sequence[tuple[float, float] | None]) -> tuple[float, float]:
    """The mean of independent parts and its standard error; None is nothing gained."""
    known = [(share, *part) for share, part in zip(shares, found, strict=True) if part is not None]
    return float(sum(s * gain for s, gain, _ in known)), float(np.sqrt(sum((s * error) ** 2 for s, _, error in known)))


def _summary(parts: Sequence[_Advised], gain: float, error: float, shared: float) -> str:
    joined = [part for part in parts if part.chosen is not None]
    if not joined:
        return "Keep every task alone: no way of joining gains anything that can be told from noise here."
    names = " and ".join(dict.fromkeys(part.chosen.name for part in joined if part.chosen is not None))
    count = sum(plan.is_joint for part in joined for plan in part.plans.values())
    return (
        f"Join {count} tasks: {names}, safely weighted. Held-out gain over the best tuned single-task models "
        f"{100 * gain:+.1f} points of R2 or Brier skill on average ({100 * (gain - NORMAL_95 * error):+.1f} to "
        f"{100 * (gain + NORMAL_95 * error):+.1f}); {_shared_told(shared, gain)}."
    )


def _shared_told(shared: float, gain: float) -> str:
    """What of a gain is due to sharing, at a tenth of a point."""
    if 100 * (gain - shared) < 0.05:
        return "all of it is due to sharing: no control without a shared model gains anything"
    if 100 * shared < 0.05:
        return "none of it is due to sharing: a control without a shared model gains as much"
    return f"{100 * shared:+.1f} of them are due to sharing, the rest a control without a shared model gains too"
