"""The study: measured transfer between tasks, with evidence."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mtlens.errors import FileError, InputError, unknown
from mtlens.models.ridge import ALONE_RIDGES, WIDE
from mtlens.study.budget import fit_to_budget
from mtlens.study.executors import executor_of
from mtlens.study.identity import Fingerprint, digest_json, task_fingerprints
from mtlens.study.ledger import Ledger, RunLock
from mtlens.study.linear import can_fit
from mtlens.study.plan import all_pairs, pairs_to_measure
from mtlens.study.prepare import Splitter, is_plain
from mtlens.study.result import PLAN_FILE, StudyResult, write_whole
from mtlens.study.run import Progress, Run
from mtlens.study.screening import Screening, screen
from mtlens.study.settings import SMALL, Budget, Settings
from mtlens.study.texts import read_as, refuse_without_texts
from mtlens.study.verdicts import verdicts_of
from mtlens.tasks import Task, TaskSet
from mtlens.tasks.metrics import metric_named
from mtlens.tasks.splits import hold_out_official_test

FEWEST_TASKS = 2
MOST_TASKS = 200
SCREENING = 2  # raise it when the same data start to be screened differently
LEDGER_FILE = "ledger.sqlite"
ADVICE_FILE = "advice.toml"
OFFICIAL_ONLY = (
    'splits = "official": a study draws splits of its own from the other rows, and compares on the official test rows '
    "once, at the end."
)
OPTIONS = ("metric", "vectors", "encoder")  # choices that are no Settings: of the tasks, and how texts become numbers


class Study:
    """Which tasks help or hurt which, measured: the same family, grid and budget, joint minus alone.

    Every choice (epoch, learning rate, capacity, family) is made on validation rows inside an outer split; the
    split's test rows score the result. An official test set is held out of everything and touched once, at the end.

    Args:
        tasks: a TaskSet; its SPEC's settings apply where nothing else is said.
        out: the run's folder; None keeps nothing. The same command on the same folder goes on where it stopped.
        ledger: a ledger to share between studies; by default ``ledger.sqlite`` in the folder.
        device: "cpu", "cuda".
        workers: processes; by default one a core. 1 works in this process.
        executor: "local" processes, "here", or "ray".
        progress: an object told about progress (see :class:`mtlens.study.run.Progress`).
        advice: also make the advice (``mtlens.study.advice``) from what was measured.
        choices: any field of :class:`mtlens.study.settings.Settings`.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((120, 4))
        >>> Y = X @ rng.standard_normal((4, 2)) + rng.standard_normal((120, 2))
        >>> result = Study(TaskSet.from_arrays(X, Y), splits=5, families=("linear",)).run()
        >>> result.cell("task_0", "task_1")["n"]
        5
    """

    def __init__(
        self,
        tasks: TaskSet,
        out: str | Path | None = None,
        *,
        ledger: str | Path | None = None,
        device: str = "cpu",
        workers: int | None = None,
        executor: str = "local",
        progress: Progress | None = None,
        advice: bool = True,
        **choices: Any,
    ) -> None:
        if not isinstance(tasks, TaskSet):
            raise InputError(f"Study needs a TaskSet, found {type(tasks).__name__}. Use read_tasks or TaskSet([...]).")
        written = tasks.settings
        given = {**{name: written.get(name) for name in OPTIONS}, **choices}
        self.options = {name: value for name in OPTIONS if (value := given.pop(name, None)) is not None}
        metric = self.options.pop("metric", None)
        asked = _with_vectors(Settings.of({**Settings.from_spec(written), **given}), self.options.get("vectors"))
        if workers is not None and (not isinstance(workers, int) or workers < 1):
            raise InputError(f"Study: workers={workers!r}. It needs a whole number of at least 1, or None: one a core.")
        self.said: list[str] = [OFFICIAL_ONLY] if written.get("splits") == "official" else []
        self.given = tasks
        self.tasks, self.official = self._split_off(_with_metric(tasks, metric), asked)
        _check_margins(asked.margin, self.tasks)
        if self._plain:
            _refuse_widths(self.tasks)
        refuse_without_texts(self.tasks, asked)
        self.out = None if out is None else Path(out)
        self.ledger = ledger
        self.device, self.workers, self.executor = device, workers, executor
        self.progress, self.advice = progress, advice
        self.settings, said = fit_to_budget(
            self.tasks.names, self._feasible(asked, self.tasks if self._plain else None)
        )
        self.said += [*said, *read_as(self.tasks, self.settings, self.options)]

    def _split_off(self, tasks: TaskSet, settings: Settings) -> tuple[TaskSet, TaskSet | None]:
        """Development rows and the official test set; tasks that cannot be split are refused or dropped."""
        development, official = hold_out_official_test(tasks)
        small = too_small(development, settings)
        if small and settings.small == SMALL[0]:
            shown = "; ".join(f"{name!r}: {reason}" for name, reason in list(small.items())[:5])
            more = f"; and {len(small) - 5} more" if len(small) > 5 else ""
            raise InputError(
                f"{len(small)} of {len(tasks)} tasks are too small for honest splits ({shown}{more}). Give them more "
                "rows, leave them out, or drop them with --small drop."
            )
        names = [name for name in development.names if name not in small]
        if small:
            self.said.append(f"dropped {len(small)} tasks too small to split: {', '.join(list(small)[:8])}.")
        if not FEWEST_TASKS <= len(names) <= MOST_TASKS:
            left = f"{len(names)} tasks" + (f" ({len(small)} are too small to split)" if small else "")
            raise InputError(f"a study compares {FEWEST_TASKS} to {MOST_TASKS} tasks, found {left}. Choose --targets.")
        kept = development.subset(names)
        return kept, None if official is None else official.subset(names)

    def _feasible(self, settings: Settings, numbers: TaskSet | None) -> Settings:
        """Without families that cannot fit these inputs (None: what they are as numbers is not known yet)."""
        if "linear" in settings.families and numbers is not None and not can_fit(numbers):
            self.said.append("the linear family is left out: it needs rows of numbers of one width, at most 4096.")
            rest = tuple(family for family in settings.families if family != "linear")
            if not rest:
                raise InputError("the linear family does not apply to these inputs. Use families=('trunk',).")
            return settings.but(families=rest)
        return settings

    def settle(self, splitter: Splitter) -> None:
        """Tables and texts become numbers on the first split; only then is it known which families fit."""
        if not self._plain:
            self.settings = self._feasible(self.settings, splitter.prepared(0).dense)

    @property
    def _plain(self) -> bool:
        return all(is_plain(task.X) for task in self.tasks)

    # ------------------------------------------------------------------ running

    def run(self) -> StudyResult:
        """Measure, judge, and write the folder. Interrupting ends with what is known by then."""
        with self._running() as run:
            run.go()
            verdicts = verdicts_of(run, self.said, official=self.official is not None)
            toml = self._advise(run, verdicts) if self.advice else None
        if self.out is not None and toml is not None:
            write_whole(self.out / ADVICE_FILE, toml)
        result = StudyResult(verdicts, self.out)
        if self.out is not None:
            result.save(self.out)
        return result

    def _advise(self, run: Run, verdicts: dict[str, Any]) -> str | None:
        """Put the advice into the verdicts; returns the content of ``advice.toml``."""
        from mtlens.study.advising import advised

        try:
            found = advised(self, run)
        except KeyboardInterrupt:
            verdicts["complete"] = False
            return None
        verdicts["said"] = [*self.said, *run.said]
        if found is None:
            return None
        verdicts["advice"], verdicts["groups"] = found["advice"], found["advice"].get("groups")
        return str(found["toml"])

    def plan(self, *, calibrate: bool = True) -> dict[str, Any]:
        """What :meth:`run` would train at its first look and at most, and (calibrated) how long that takes."""
        from mtlens.study.planning import plan_of

        return plan_of(self, calibrate=calibrate)

    def splitter(self) -> Splitter:
        """The splits of this study."""
        return Splitter(self.tasks, self.settings, official=self.official, options=self.options)

    @property
    def worker_count(self) -> int:
        """How many stacks are trained at a time."""
        if self.executor != "local" or self.device != "cpu":
            return 1
        return self.workers or os.cpu_count() or 1

    @contextlib.contextmanager
    def _running(self) -> Iterator[Run]:
        splitter = self.splitter()
        self.settle(splitter)
        with contextlib.ExitStack() as stack:
            path: str | Path = self.ledger or ":memory:"
            if self.out is not None:
                _make_folder(self.out)
                stack.enter_context(RunLock(self.out))
                self._check_data()
                path = self.ledger or self.out / LEDGER_FILE
            ledger = stack.enter_context(Ledger(path))
            splitter.memory = ledger
            executor = executor_of(
                self.executor, splitter.prepared, seed=self.settings.seed, device=self.device,
                tokens=self.reads_tokens, workers=self.workers, networks="trunk" in self.settings.families,
            )  # fmt: skip
            stack.callback(executor.close)
            if len(ledger) == 0:
                executor.warm()
            screening = self.screening(splitter, ledger)
            yield Run(self.tasks, self.settings, splitter, screening, ledger, executor, self.progress)

    @property
    def reads_tokens(self) -> bool:
        from mtlens.study.trunk import reads_tokens

        return "trunk" in self.settings.families and reads_tokens(self.settings.trunk)

    def screening(self, splitter: Splitter, ledger: Ledger | None = None) -> Screening:
        """All pairs in order of promise; remembered in the ledger. Very wide inputs are screened only when needed."""
        limited = pairs_to_measure(self.tasks.names, self.settings) < len(all_pairs(self.tasks.names))
        budgeted = self.settings.budget != Budget()
        key = "screening " + digest_json([task_fingerprints(self.tasks), splitter.texts, self.settings.seed, SCREENING])
        known = ledger.fact(key) if ledger is not None else None
        if known is not None:
            return Screening.from_fact(self.tasks.names, known)
        dense = splitter.prepared(0).dense
        if not (limited or budgeted) and int(np.asarray(dense[0].X).shape[-1]) > WIDE:
            return Screening.none(self.tasks.names)
        found = screen(dense, seed=self.settings.seed)
        if ledger is not None:
            ledger.remember(key, found.to_fact())
        return found

    # ------------------------------------------------------------------ the folder

    def _check_data(self) -> None:
        """Refuse to go on in a folder that was begun with other data; write the plan."""
        from mtlens.models.given import source_of  # torch, which a plan does without

        assert self.out is not None
        path = self.out / PLAN_FILE
        now = {"tasks": task_fingerprints(self.tasks)}
        if self.official is not None:  # whose test rows may be scored once
            now["official"] = task_fingerprints(self.official)
        if path.exists():
            before = {part: _fingerprints(path, part) for part in now}
            changed = [name for name in self.tasks.names if any(_differ(before[p], now[p], name) for p in now)]
            if changed:
                shown = ", ".join(repr(name) for name in changed[:5])
                raise InputError(
                    f"the data of {len(changed)} tasks ({shown}) are not those this run began with ({path} has their "
                    "fingerprints). Use a new --out, or put the old data back; the ledger there is untouched."
                )
        plan: dict[str, Any] = {
            **now,
            "settings": self.settings.describe(),
            "grid": self.grid,
            "said": self.said,
        }
        plan["source"] = source_of(self.given)
        write_whole(path, json.dumps(plan, indent=1, ensure_ascii=False, default=list) + "\n")

    @property
    def grid(self) -> dict[str, Any]:
        """What each side may choose from: the same list, and its size, for alone and joint."""
        from mtlens.theory.transfer import RIDGES, WEIGHTS

        found: dict[str, Any] = {}
        if "trunk" in self.settings.families:
            grid = self.settings.grid
            side = {"configurations": len(grid), "epochs": self.settings.epochs, "of": grid}
            found["trunk"] = {"alone": side, "joint": side}
        if "linear" in self.settings.families:
            joint = {"configurations": len(RIDGES) * len(WEIGHTS), "ridges": len(RIDGES), "weights": len(WEIGHTS)}
            found["linear"] = {"alone": {"configurations": len(ALONE_RIDGES)}, "joint": joint}
        return found


def too_small(tasks: TaskSet, settings: Settings) -> dict[str, str]:
    """Tasks that honest splits are too much for, with the reason.

    Besides too few rows (of a class): numbers that are nearly all the same, of which a part would hold only one value.
    """
    splits = Splitter(tasks, settings).splits
    reasons = splits.too_small(TaskSet([_counted(task) for task in tasks]))
    parts = splits.outer if splits.scheme == "kfold" else 3
    needed = settings.least * parts
    for task in tasks:
        groups = parts if task.group is None else len(np.unique(np.asarray(task.group).astype(str)[task.labelled]))
        if groups < parts and task.name not in reasons:
            reasons[task.name] = f"its rows are of {groups} groups, {parts} parts need at least as many"
        if task.kind == "regression" and task.name not in reasons:
            values, counts = np.unique(task.y[task.labelled], return_counts=True)
            others = int(counts.sum() - counts.max())
            if others < min(needed, int(counts.sum()) // 2):
                shown = f"all but {others} labels are {values[counts.argmax()]:g}"
                reasons[task.name] = f"{shown}, at least {needed} others are needed"
    return {name: reasons[name] for name in tasks.names if name in reasons}


def _counted(task: Task) -> Task:
    """The task without labels whose weight is 0: they train nothing and are not scored."""
    if task.weight is None or (np.asarray(task.weight) > 0).all():
        return task
    return task.replace(y=np.where(np.asarray(task.weight) > 0, task.y, np.nan))


def _refuse_widths(tasks: TaskSet) -> None:
    """Arrays of different shapes have no part that could be shared. (Tables are matched by their columns' names.)"""
    shapes = {task.name: task.X.shape[1:] for task in tasks if isinstance(task.X, np.ndarray)}
    first, *others = shapes
    for name in others:
        if shapes[name] != shapes[first]:
            raise InputError(
                f"tasks that share a trunk need inputs of one shape: a row of task {first!r} has shape "
                f"{shapes[first]}, of {name!r} {shapes[name]}. Bring both into one space (the same columns, one "
                "encoder, a projection), or study them apart."
            )


def _with_metric(tasks: TaskSet, metric: str | None) -> TaskSet:
    """Every task scored by this metric, or each by its own."""
    if metric is None:
        return tasks
    for task in tasks:
        metric_named(metric, task.kind)
    return TaskSet([t.replace(metric=metric) for t in tasks], found=tasks.found, settings=tasks.settings)


def _check_margins(margin: Any, tasks: TaskSet) -> None:
    known = [*tasks.names, *dict.fromkeys(task.metric for task in tasks)]
    for name in margin if isinstance(margin, Mapping) else ():
        if name not in known:
            raise unknown("task or metric", name, known, "Study(margin=...)")


def _with_vectors(settings: Settings, vectors: Any) -> Settings:
    """Word vectors are a setting of a trunk that reads words: by their file, as trainings may run elsewhere."""
    from mtlens.features.vectors import vectors_from
    from mtlens.study.trunk import reads_tokens

    if vectors is None or "trunk" not in settings.families or not reads_tokens(settings.trunk):
        return settings
    if not isinstance(vectors, (str, Path)):
        raise InputError(f"Study: trunk={settings.trunk!r} takes vectors from a file, found {type(vectors).__name__}.")
    vectors_from(vectors)  # a file that cannot be read is refused now
    return settings.but(vectors=str(vectors))


def _fingerprints(path: Path, part: str) -> dict[str, Fingerprint]:
    """What a plan says of the data: of the ``tasks`` without official test rows, or of the ``official`` data."""
    try:
        found = json.loads(path.read_text("utf-8"))[part]
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # a plan that cannot be read is written again; identities in the ledger guard the data
    return dict(found) if isinstance(found, dict) else {}


def _differ(before: Mapping[str, Fingerprint], now: Mapping[str, Fingerprint], name: str) -> bool:
    return name in before and before[name] != now[name]


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make the run folder {folder}: {error.strerror}. Use another --out.") from error
