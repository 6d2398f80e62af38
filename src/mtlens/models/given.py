"""What ``fit`` was given: data and advice, wherever they come from."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtlens.engine.digests import data_digest
from mtlens.errors import DataWarning, FileError, InputError, unknown
from mtlens.models.inputs import listed
from mtlens.models.system import FamilyName, Grid, System, TaskPlan
from mtlens.tasks.readers import read_tasks
from mtlens.tasks.task import Task, TaskSet

ADVICE_FILE = "advice.toml"
PLAN_FILE = "plan.json"
_GRID = ("trunk", "capacities", "batch", "weight_decay", "vectors", "encoder")


@dataclass(frozen=True)
class Given:
    """Tasks, what to build of them, lines to say, and facts for the card."""

    tasks: TaskSet
    system: System
    notes: tuple[str, ...] = ()
    made: dict[str, Any] = field(default_factory=dict)


def given_from(
    source: Any,
    advice: Any = None,
    *,
    tasks: TaskSet | None = None,
    targets: str | Sequence[str] | None = None,
    missing: Any = None,
    family: FamilyName | None = None,
    seed: int | None = None,
) -> Given:
    """Resolve a source and an advice; see :func:`mtlens.models.fitting.fit`."""
    folder = run_folder(source)
    notes: list[str] = []
    if folder is not None:
        tasks = tasks if tasks is not None else _data_of(folder, notes)
        advice = folder if advice is None and (folder / ADVICE_FILE).is_file() else advice
        if advice is None:
            notes.append(f"{folder} holds no {ADVICE_FILE}: every task is fitted by itself")
    elif tasks is None:
        tasks = _tasks_from(source, targets, missing)
    if targets is not None and folder is not None:
        names = targets.split(",") if isinstance(targets, str) else targets
        tasks = tasks.subset([name.strip() for name in names])
    if advice is None:
        system = _alone(tasks, family or "best", seed)
        notes += [] if folder is not None else [ALONE_NOTE] if len(tasks) > 1 else []
    elif family is not None:
        raise InputError(
            f"family={family!r} goes without advice: the advice says the family of every task. Leave family out, edit "
            "the advice, or give the data instead of the study."
        )
    else:
        system = _fitted_to(_system_from(advice), tasks, notes)
    if seed is not None:
        system = system.model_copy(update={"seed": seed})
    return Given(tasks, system, tuple(notes), _facts(folder, tasks))


ALONE_NOTE = (
    "no study was given, so every task is fitted by itself; `mtlens study` measures whether joining pays, "
    "`mtlens fit --advise` finds a safe way of joining"
)


def run_folder(source: Any) -> Path | None:
    """The folder of a study when that is what was given."""
    if type(source).__name__ == "StudyResult":  # of a room above this one
        if source.folder is None:
            raise InputError(
                "this study kept no folder (out=None). Give fit its tasks, or run Study(tasks, out=folder)."
            )
        return Path(source.folder)
    if isinstance(source, (str, os.PathLike)) and Path(source).is_dir():
        path = Path(source)
        if not (path / PLAN_FILE).is_file() and not (path / ADVICE_FILE).is_file():
            raise FileError(
                f"{path} is a folder, but not that of a study (it has neither {PLAN_FILE} nor {ADVICE_FILE}). "
                "Give the folder that `mtlens study --out` wrote, a SPEC, or a data file."
            )
        return path
    return None


def _tasks_from(source: Any, targets: Any, missing: Any) -> TaskSet:
    if isinstance(source, TaskSet):
        return source if targets is None else source.subset([targets] if isinstance(targets, str) else targets)
    if isinstance(source, Task):
        return TaskSet([source])
    if isinstance(source, (list, tuple)) and source and all(isinstance(task, Task) for task in source):
        return TaskSet(source)
    return read_tasks(source, targets, missing=missing)


def _data_of(folder: Path, notes: list[str]) -> TaskSet:
    """The study's data, read again from where the study read them; a change since then is said."""
    try:
        plan = json.loads((folder / PLAN_FILE).read_text("utf-8"))
        recorded = plan.get("source")
    except (OSError, ValueError, AttributeError) as error:
        raise FileError(
            f"{folder / PLAN_FILE} cannot be read ({error}). Give fit the data: tasks=read_tasks(...)."
        ) from error
    if not isinstance(recorded, Mapping) or not isinstance(recorded.get("read"), Mapping):
        raise FileError(
            f"{folder} does not say where its data were read from (they were not read from a file). "
            "Give them: fit(folder, tasks=...), or on the command line --data SPEC."
        )
    given, digests = dict(recorded["read"]), dict(recorded.get("digests", {}))
    tasks = _read_again(folder, given).subset(digests)
    changed = [task.name for task in tasks if digests[task.name] != data_digest(task)]
    if changed:
        line = f"the data of {len(changed)} tasks ({', '.join(map(repr, changed[:5]))}) changed since the study"
        notes.append(line)
        warnings.warn(f"{line}: its advice was made for the old data. Study them again.", DataWarning, stacklevel=4)
    return tasks


def _read_again(folder: Path, given: dict[str, Any]) -> TaskSet:
    try:
        return read_tasks(given.pop("spec_or_path"), **given)
    except FileError as error:
        names = given.get("targets")
        targets = f" --targets {names if isinstance(names, str) else ','.join(names)}" if names else ""
        raise FileError(
            f"{error} The study in {folder} read its data there. If they have moved, add --data FILE{targets}"
        ) from error


def source_of(tasks: TaskSet) -> dict[str, Any] | None:
    """What a study's folder keeps so that ``fit`` can read its data again; None when they came from no file."""
    if tasks.source is None:
        return None
    return {"read": dict(tasks.source), "digests": {task.name: data_digest(task) for task in tasks}}


def _system_from(advice: Any) -> System:
    if isinstance(advice, System):
        return advice
    if isinstance(advice, Mapping):
        return System.from_dict(advice)
    if isinstance(advice, (str, os.PathLike)):
        path = Path(advice)
        return System.read(path / ADVICE_FILE if path.is_dir() else path)
    raise InputError(f"advice is a {type(advice).__name__}. Give a System, an advice.toml, or a study's folder.")


def _fitted_to(system: System, tasks: TaskSet, notes: list[str]) -> System:
    """The advice for exactly these tasks: those it does not know stand alone, and sources need data."""
    strangers = [name for name in tasks.names if name not in system.names]
    if len(strangers) == len(tasks):
        raise unknown("task", strangers[0], system.names, "the advice")
    if strangers:
        notes.append(f"not in the advice, so fitted by themselves: {', '.join(strangers[:10])}")
    wanted = set(tasks.names)
    gone = [name for name in system.names if name not in wanted]
    if gone:
        notes.append(f"in the advice, but not in the data, so left out: {', '.join(gone[:10])}")
    needed = [(plan.name, s) for plan in system.tasks if plan.name in wanted for s in system.sources_of(plan.name)]
    without = next(((target, source) for target, source in needed if source in gone), None)
    if without is not None:
        raise InputError(
            f"the advice joins task {without[0]!r} with {without[1]!r}, but the data hold no task {without[1]!r} "
            f"(they hold {', '.join(map(repr, tasks.names[:10]))}). Give its data, or take it out of the advice."
        )
    plans = [system.plan_of(n) if n in system.names else TaskPlan(name=n, family="best") for n in tasks.names]
    idle = [plan.name for plan in plans if plan.settings and not plan.has_networks]
    if idle:
        notes.append(f"settings are of networks, but these tasks are linear, so theirs change nothing: {listed(idle)}")
    groups = [group for group in system.groups if set(group.tasks) <= wanted]
    joint = [_with_sources(plan, system) for plan in plans]
    return system.model_copy(update={"tasks": joint, "groups": groups})


def _with_sources(plan: TaskPlan, system: System) -> TaskPlan:
    """Sources by name, so that tasks that are not in the advice do not become sources."""
    if plan.recipe in ("alone", "group") or plan.name not in system.names:
        return plan
    return plan.model_copy(update={"sources": list(system.sources_of(plan.name))})


def _alone(tasks: TaskSet, family: FamilyName, seed: int | None) -> System:
    """Every task by itself, with the grid that the SPEC states."""
    written = tasks.settings
    grid = {name: written[name] for name in _GRID if written.get(name) is not None}
    if written.get("capacity") is not None:
        grid.setdefault("capacities", [written["capacity"]])
    if written.get("lr") is not None:
        grid["learning_rates"] = written["lr"] if isinstance(written["lr"], list) else [written["lr"]]
    if written.get("epochs") is not None:
        grid["epochs"] = max(written["epochs"]) if isinstance(written["epochs"], list) else written["epochs"]
    start = written.get("seed", 0) if seed is None else seed
    return System.alone(tasks.names, family=family, seed=start, grid=Grid(**grid), summary=ALONE_NOTE)


def _facts(folder: Path | None, tasks: TaskSet) -> dict[str, Any]:
    """What the card says of the data."""
    from mtlens import __version__

    return {
        "mtlens": __version__,
        "run": None if folder is None else folder.name,
        "found": list(tasks.found)[:50],
        "digests": {task.name: data_digest(task) for task in tasks},
    }
