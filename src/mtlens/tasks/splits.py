"""Train, valid and test parts of every task, made together so that nothing leaks between tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias

import numpy as np

from mtlens.arrays import Array, BoolArray, FloatArray, IntArray
from mtlens.errors import InputError, unknown
from mtlens.tasks.duplicates import row_keys
from mtlens.tasks.frames import is_missing, seconds_of
from mtlens.tasks.table import Table
from mtlens.tasks.task import Inputs, Task, TaskSet

Scheme: TypeAlias = Literal["auto", "repeated", "kfold", "time", "official"]
SCHEMES = ("auto", "repeated", "kfold", "time", "official")
DUPLICATES = ("auto", "together", "apart")
PARTS = ("train", "valid", "test")
_WHOLE = re.compile(r"^([+-]?\d+)\.0+$")  # a whole number that is written like a fraction

_NONE, _TRAIN, _VALID, _TEST = -1, 0, 1, 2
_DRAWS = 25  # a draw that leaves a class short is repeated this often before it is refused
_PATIENCE = 3  # every so many draws, a row more of every class is asked for: groups are rarely met exactly
_BINS = 5  # regression labels are stratified by this many quantiles
_MANY_GROUPS = 0.2  # above this share of units with several rows of one stratum, sizes decide the order
_FEWEST_ROWS = 2  # of a regression task in a part: a score needs two different labels
_MOSTLY_DISTINCT = 0.9  # above this share of distinct rows, equal rows are copies and not chance


@dataclass(frozen=True)
class Splits:
    """A seeded family of train / valid / test splits of several tasks at once.

    Rows that belong together always fall into one part, in every task they occur in: rows of one shared input, rows
    with the same ``group`` label (also in different tasks), and exact copies of a row. Labels are stratified: each
    class, and each fifth of a regression label, keeps its share in every part (iterative stratification, rarest label
    first). A draw that leaves fewer than ``least`` rows of a class in a part is repeated; what cannot be drawn is
    refused with the counts. The result is a pure function of the data, these settings and ``index``.

    What does not hold: with groups, shares are met as well as the sizes of the groups allow.

    Args:
        seed: any integer.
        scheme: "repeated" draws a new split for every index; "kfold" makes every row test once in ``outer`` folds
            (index ``outer`` starts a new partition); "time" trains on the past (window ``index`` of ``outer`` is
            test, rows after it are left out); "official" keeps each task's own test part, and its valid part when it
            has one. "auto" is "time" when every task has a time column and "repeated" otherwise.
        outer: number of splits.
        valid, test: shares of the rows.
        least: fewest labelled rows of every class in every part.
        duplicates: "together" keeps exact copies in one part, "apart" does not look; "auto" keeps texts together, and
            rows of numbers when at least 90 % of them are distinct (in small discrete tables equal rows are chance).

    Example:
        >>> task = Task("t", np.arange(50.0)[:, None], np.arange(50) % 2)
        >>> split = Splits(seed=1).assign(TaskSet([task]), index=3)["t"].split
        >>> [int((split == part).sum()) for part in ("train", "valid", "test")]
        [30, 10, 10]
    """

    seed: int = 0
    scheme: Scheme = "auto"
    outer: int = field(default=10, kw_only=True)
    valid: float = field(default=0.2, kw_only=True)
    test: float = field(default=0.2, kw_only=True)
    least: int = field(default=5, kw_only=True)
    duplicates: Literal["auto", "together", "apart"] = field(default="auto", kw_only=True)

    def __post_init__(self) -> None:
        for what in ("seed", "outer", "least"):
            if not _is_whole(getattr(self, what)):
                raise InputError(f"Splits: {what}={getattr(self, what)!r} must be a whole number.")
        for what in ("valid", "test"):
            if isinstance(getattr(self, what), bool) or not isinstance(getattr(self, what), Real):
                raise InputError(f"Splits: {what}={getattr(self, what)!r} must be a share of the rows, such as 0.2.")
        if self.scheme not in SCHEMES:
            raise unknown("scheme", self.scheme, SCHEMES, "Splits")
        if self.duplicates not in DUPLICATES:
            raise unknown("choice", self.duplicates, DUPLICATES, "Splits(duplicates=...)")
        if not (0 <= self.valid < 1 and 0 < self.test < 1 and self.valid + self.test < 1):
            raise InputError(
                f"Splits: valid={self.valid} and test={self.test} must be shares of the rows that leave some for "
                "training. Use for example valid=0.2, test=0.2."
            )
        if self.outer < 1 or (self.scheme == "kfold" and self.outer < 2) or self.least < 0:
            raise InputError(f"Splits: outer={self.outer}, least={self.least}; use outer >= 1 (kfold: 2), least >= 0.")

    def scheme_for(self, tasks: TaskSet) -> Scheme:
        """The scheme that "auto" stands for."""
        if self.scheme != "auto":
            return self.scheme
        return "time" if all(task.time is not None for task in tasks) else "repeated"

    def num_splits(self, tasks: TaskSet) -> int:
        """How many different test parts there are: one for official splits, ``outer`` otherwise."""
        return 1 if self.scheme_for(tasks) == "official" else self.outer

    def too_small(self, tasks: TaskSet) -> dict[str, str]:
        """Tasks that no draw can split, with the reason: too few rows, or too few of a class."""
        parts = self.outer if self.scheme == "kfold" else 3 if self.valid else 2
        reasons = {task.name: _shortage(task, parts, self.least) for task in tasks}
        return {name: reason for name, reason in reasons.items() if reason}

    def assign(self, tasks: Iterable[Task], index: int = 0) -> TaskSet:
        """The tasks with their ``split`` column set; inputs that were shared stay shared.

        "time" and "official" may leave out rows (after the test window; of a group that straddles two parts);
        "repeated" and "kfold" draw over all rows and ignore a split that is already there
        (see :func:`hold_out_official_test`).
        """
        if not _is_whole(index) or index < 0:
            raise InputError(f"Splits.assign: index={index!r}; splits are counted 0, 1, 2, ...")
        tasks = TaskSet.of(tasks)
        make: dict[str, Callable[[_Rows, int, np.random.Generator], list[IntArray]]] = {
            "repeated": self._repeated,
            "kfold": self._kfold,
            "time": self._time,
            "official": self._official,
        }
        scheme = self.scheme_for(tasks)
        if scheme in ("repeated", "kfold") and (small := self.too_small(tasks)):
            raise InputError(f"Splits: these tasks cannot be split: {_listed(small)} Leave them out, or lower least.")
        rows, problems = _Rows(tasks, self.duplicates, self.least), {}
        for attempt in range(_DRAWS):
            rng = np.random.default_rng([int(self.seed) & (2**64 - 1), index, attempt])
            rows.asked = self.least + attempt // _PATIENCE
            parts = make[scheme](rows, index, rng)
            problems = self._problems(tasks, parts)
            if not problems:
                return _with_parts(tasks, parts)
        raise InputError(
            f"Splits: no {scheme} split {index} has what every part needs: {_listed(problems)}{rows.tied} "
            "Leave these tasks out, use fewer parts or larger shares, or lower least."
        )

    def _repeated(self, rows: _Rows, index: int, rng: np.random.Generator) -> list[IntArray]:
        drawn = _draw(rows, np.arange(rows.num_units), self._shares(), rng)
        return rows.spread(drawn)

    def _kfold(self, rows: _Rows, index: int, rng: np.random.Generator) -> list[IntArray]:
        again, fold = divmod(index, self.outer)
        rest = np.flatnonzero(self._folds(rows, again) != fold)
        drawn = np.full(rows.num_units, _TEST)
        drawn[rest] = _draw(rows, rest, np.array([1 - self.valid, self.valid]), rng)
        return rows.spread(drawn)

    def _folds(self, rows: _Rows, again: int) -> IntArray:
        """The fold of each unit: the first of some partitions with ``least`` rows of every class in every fold.

        It must be the same for every fold of a round, so its stream knows neither the fold nor the attempt.
        """
        if again in rows.folds:
            return rows.folds[again]
        asked, everyone = rows.asked, np.arange(rows.num_units)
        classes = rows.counts[:, np.flatnonzero(rows.is_class)]
        for draw in range(_DRAWS):
            rng = np.random.default_rng([int(self.seed) & (2**64 - 1), again, _DRAWS + draw])
            rows.asked = self.least + draw // _PATIENCE
            folds = _draw(rows, everyone, np.full(self.outer, 1 / self.outer), rng)
            if all((classes[folds == fold].sum(axis=0) >= self.least).all() for fold in range(self.outer)):
                break
        rows.asked, rows.folds[again] = asked, folds
        return folds

    def _time(self, rows: _Rows, index: int, rng: np.random.Generator) -> list[IntArray]:
        """Window ``index`` of ``outer`` is test; all before it is train, its last part valid; what comes after is out.

        Cuts lie between distinct times of all tasks together, so one task never trains on another's future.
        """
        times = [_times(task) for task in rows.tasks]
        window = index % self.outer
        ordered = np.sort(np.concatenate(times))
        width = min(self.test, (1 - max(self.test, 0.3)) / self.outer)
        end = 1 - (self.outer - 1 - window) * width
        cut_test, cut_end = (_quantile(ordered, q) for q in (end - width, end))
        cut_valid = _quantile(ordered, (end - width) * (1 - self.valid / (1 - self.test)))
        parts = []
        for time in times:
            part = np.select([time < cut_valid, time < cut_test], [_TRAIN, _VALID], _TEST)
            part[(time >= cut_end) & (window < self.outer - 1)] = _NONE
            parts.append(part)
        return rows.unstraddled(parts)

    def _official(self, rows: _Rows, index: int, rng: np.random.Generator) -> list[IntArray]:
        """Test parts as given. A missing valid part is drawn from train; a task without a split is drawn whole."""
        given = [_official_part(task) for task in rows.tasks]
        if not any((part == _TEST).any() for part in given):
            raise InputError(
                f"Splits: scheme 'official' needs a task with test rows in its split column; none of "
                f"{', '.join(rows.tasks.names[:10])} has any. Use scheme='repeated'."
            )
        claimed = rows.claimed(given)
        with_valid = [bool((part == _VALID).any()) for part in given]
        free = np.flatnonzero(claimed == _NONE)  # units of which no row is officially valid or test
        drawn = claimed.copy()
        drawn[free] = _draw(rows, free, self._shares(), rng)
        from_train = claimed.copy()
        from_train[free] = _draw(rows, free, np.array([1 - self.valid, self.valid]), rng)
        parts = []
        for task, unit, part, has_valid in zip(rows.tasks, rows.units, given, with_valid, strict=True):
            own = drawn[unit] if task.split is None else np.where(part == _TRAIN, from_train[unit], part)
            parts.append(part if task.split is not None and has_valid else own)
        return rows.unstraddled(parts)

    def _shares(self) -> FloatArray:
        return np.array([1 - self.valid - self.test, self.valid, self.test])

    def _problems(self, tasks: TaskSet, parts: list[IntArray]) -> dict[str, str]:
        wanted = [_TRAIN, _VALID, _TEST] if self.valid else [_TRAIN, _TEST]
        found = {t.name: _lack(t, part, wanted, self.least) for t, part in zip(tasks, parts, strict=True)}
        return {name: lack for name, lack in found.items() if lack}


def hold_out_official_test(tasks: TaskSet) -> tuple[TaskSet, TaskSet | None]:
    """The tasks without the rows of their official test parts, and the tasks as they are for one final score.

    The second is None when no task has an official test part. Rows that belong together with a test row (same
    shared input, group or copy, in any task) are left out too.
    """
    if all(task.split is None or not (task.split == "test").any() for task in tasks):
        return tasks, None
    rows = _Rows(tasks, "auto")
    claimed = rows.claimed([_official_part(task) for task in tasks])
    kept = {task.name: np.flatnonzero(claimed[unit] != _TEST) for task, unit in zip(tasks, rows.units, strict=True)}
    for name, left in kept.items():
        if not np.isfinite(tasks[name].y[left]).any():
            raise InputError(f"task {name!r}: every labelled row is in the official test part. It needs train rows.")
    return tasks.take(kept), tasks


def _is_whole(number: object) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool)


def units(tasks: TaskSet, *, duplicates: Literal["auto", "together", "apart"] = "auto") -> list[IntArray]:
    """For each task the unit of every row, ``(m,)``; rows of one unit, in any task, must not be separated."""
    return _Rows(tasks, duplicates).units


class _Rows:
    """The rows of all tasks as units that stay together, and the strata each unit counts for."""

    def __init__(self, tasks: TaskSet, duplicates: str, least: int = 0) -> None:
        self.tasks = tasks
        self.least = least
        self.asked = least  # rows of every class that a draw tries to give every part
        self.folds: dict[int, IntArray] = {}
        self.units = _units(tasks, duplicates)
        self.num_units = 1 + max(int(unit.max()) for unit in self.units)
        self.counts, self.is_class = self._strata()

    def _strata(self) -> tuple[Any, BoolArray]:
        """Sparse ``(units, strata)``: labelled rows of each unit in each class or label quantile of each task.

        Beside it which strata are classes, ``(strata,)``: each part needs ``least`` rows of those.
        """
        from scipy.sparse import csr_array

        unit, stratum, offset = [], [], 0
        is_class: list[bool] = []
        for task, own in zip(self.tasks, self.units, strict=True):
            rows = np.flatnonzero(task.labelled)
            codes = _stratum_codes(task, rows)
            unit.append(own[rows])
            stratum.append(codes + offset)
            is_class += [task.kind != "regression"] * (int(codes.max(initial=0)) + 1)
            offset = len(is_class)
        ones = np.ones(sum(map(len, unit)))
        shape = (self.num_units, offset)
        counts = csr_array((ones, (np.concatenate(unit), np.concatenate(stratum))), shape=shape)
        counts.sum_duplicates()
        return counts, np.array(is_class)

    @property
    def tied(self) -> str:
        """A sentence when so many rows must stay together that hardly any split is possible, otherwise nothing."""
        unit = np.concatenate(self.units)
        largest = int(np.bincount(unit).max())
        if 2 * largest < len(unit):
            return ""
        return f" Groups, copies and shared inputs tie {largest} of all {len(unit)} rows together, in one part."

    def spread(self, drawn: IntArray) -> list[IntArray]:
        """Parts of units to parts of rows."""
        return [drawn[unit] for unit in self.units]

    def claimed(self, parts: list[IntArray]) -> IntArray:
        """The latest of valid / test that any row of a unit is in; -1 where no row is in either."""
        latest = np.full(self.num_units, _NONE)
        for unit, part in zip(self.units, parts, strict=True):
            np.maximum.at(latest, unit, np.where(part == _TRAIN, _NONE, part))
        return latest

    def unstraddled(self, parts: list[IntArray]) -> list[IntArray]:
        """Rows whose unit reaches a later part are left out of the earlier one."""
        latest = np.full(self.num_units, _NONE)
        for unit, part in zip(self.units, parts, strict=True):
            np.maximum.at(latest, unit, part)
        return [np.where(latest[unit] == part, part, _NONE) for unit, part in zip(self.units, parts, strict=True)]


def _units(tasks: TaskSet, duplicates: str) -> list[IntArray]:
    """Connected components of rows linked by a shared input, a group label or being copies."""
    start: dict[int, int] = {}
    total = 0
    for task in tasks:
        if id(task.X) not in start:
            start[id(task.X)] = total
            total += task.num_rows
    nodes = [start[id(task.X)] + np.arange(task.num_rows) for task in tasks]
    links = [(node, task.group) for node, task in zip(nodes, tasks, strict=True) if task.group is not None]
    grouped = _linked([(node, _labels(group)) for node, group in links])
    share = 0.0 if duplicates == "together" else _MOSTLY_DISTINCT
    copied = _linked(_copies(tasks, start, share)) if duplicates != "apart" else []
    if not grouped and not copied:
        return nodes
    return _components(nodes, total, grouped + copied)


def _copies(tasks: TaskSet, start: dict[int, int], share: float) -> list[tuple[IntArray, Array]]:
    inputs: dict[int, Inputs] = {id(task.X): task.X for task in tasks}
    found = []
    for place, X in inputs.items():
        keys = row_keys(X)
        texts = isinstance(X, Table) and "text" in X.kinds.values()
        if texts or len(np.unique(keys)) >= share * len(keys):
            found.append((start[place] + np.arange(len(keys)), keys))
    return found


def _linked(pairs: list[tuple[IntArray, Array]]) -> list[tuple[IntArray, IntArray]]:
    """Nodes beside codes of equal labels, only where at least two nodes have the label."""
    if not pairs:
        return []
    nodes, labels = (np.concatenate(column) for column in zip(*pairs, strict=True))
    _, code, count = np.unique(labels, return_inverse=True, return_counts=True)
    twin = count[code] > 1
    if labels.dtype.kind == "U":
        twin &= labels != ""
    return [(nodes[twin], code[twin])] if twin.any() else []


def _labels(group: Array) -> Array:
    """Group labels as texts that agree between files: 7, 7.0 and "7.0" are one group; missing ones are empty."""
    values, place = np.unique(group, return_inverse=True) if group.dtype.kind in "iufU" else (group, slice(None))
    texts = ["" if is_missing(value) else _WHOLE.sub(r"\1", str(value)) for value in values.tolist()]
    return np.array(texts, dtype=str)[place]


def _components(nodes: list[IntArray], total: int, links: list[tuple[IntArray, IntArray]]) -> list[IntArray]:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    left, right, size = [], [], total
    for node, code in links:
        left.append(node)
        right.append(code + size)
        size += int(code.max()) + 1
    ends = (np.concatenate(left), np.concatenate(right))
    graph = coo_array((np.ones(len(ends[0]), np.int8), ends), shape=(size, size))
    component = connected_components(graph, directed=False)[1][:total]
    _, dense = np.unique(component, return_inverse=True)
    return [dense[node] for node in nodes]


def _stratum_codes(task: Task, rows: IntArray) -> IntArray:
    if task.kind != "regression":
        return task.y[rows].astype(np.int64)
    if len(rows) < _BINS * _BINS:
        return np.zeros(len(rows), np.int64)
    cuts = np.quantile(task.y[rows], np.linspace(0, 1, _BINS + 1)[1:-1])
    return np.searchsorted(cuts, task.y[rows], side="right")


def _draw(rows: _Rows, among: IntArray, shares: FloatArray, rng: np.random.Generator) -> IntArray:
    """Parts for some units: iterative stratification.

    Each stratum keeps an account of how many rows every part still wants. Cost: one pass over the counts.
    """
    counts = rows.counts[among]
    totals, parts = counts.sum(axis=0), np.count_nonzero(shares)
    enough = rows.is_class & (totals >= rows.least * parts)
    wants = _wants(totals, shares, np.where(enough, np.minimum(rows.asked, totals // parts), 0))
    if len(counts.data) and (counts.data > 1).mean() > _MANY_GROUPS:
        part = _draw_groups(counts, wants, rng)
    else:
        part = _draw_strata(counts, wants, shares, rng)
    rest = rng.permutation(np.flatnonzero(part == _NONE))  # units without any label
    part[rest] = _portion(shares, shares, len(rest), rng)
    return part


def _draw_strata(counts: Any, wants: FloatArray, shares: FloatArray, rng: np.random.Generator) -> IntArray:
    """Parts for units of about one row a stratum, a whole stratum at a time, rarest first."""
    by_stratum = counts.tocsc()
    part = np.full(counts.shape[0], _NONE)
    for stratum in np.argsort(np.diff(by_stratum.indptr), kind="stable"):
        span = slice(by_stratum.indptr[stratum], by_stratum.indptr[stratum + 1])
        members = by_stratum.indices[span]
        members = rng.permutation(members[part[members] == _NONE])
        if not len(members):
            continue
        part[members] = _portion(wants[stratum], shares, len(members), rng)
        for p in range(len(shares)):
            wants[:, p] -= counts[members[part[members] == p]].sum(axis=0)
    return part


def _wants(totals: FloatArray, shares: FloatArray, least: IntArray) -> FloatArray:
    """``(strata, parts)`` rows that each part should get: its share, and at least ``least`` of a stratum."""
    wants = np.outer(totals, shares)
    floor = least[:, None] * (shares > 0)
    raised = np.maximum(wants, floor)
    largest = int(np.argmax(shares))
    raised[:, largest] -= (raised - wants).sum(axis=1)
    least_met: FloatArray = np.maximum(raised, floor)
    return least_met


def _portion(wants: FloatArray, shares: FloatArray, count: int, rng: np.random.Generator) -> IntArray:
    """Parts for ``count`` units in random order, as many as each part wants."""
    wish = np.where(shares > 0, np.maximum(wants, 0), 0)
    wish = wish if wish.sum() > 0 else shares
    exact = wish / wish.sum() * count
    quota = np.floor(exact).astype(np.int64)
    tie_break = rng.random(len(exact)) * 1e-9
    quota[np.argsort(quota - exact - tie_break)[: count - quota.sum()]] += 1
    return np.repeat(np.arange(len(shares)), quota)


def _draw_groups(counts: Any, wants: FloatArray, rng: np.random.Generator) -> IntArray:
    """Parts for units of very different sizes, larger ones first (sizes are blurred, so that draws differ).

    The larger half goes to a part with the probability that its wants have; the smaller half fills what is left.
    """
    totals = np.maximum(wants.sum(axis=1), 1)
    sizes = counts.sum(axis=1)
    order = np.argsort(-sizes * rng.uniform(0.5, 1.5, len(sizes)), kind="stable")
    chance = rng.random(len(sizes))
    part = np.full(len(sizes), _NONE)
    for place, unit in enumerate(order):
        span = slice(counts.indptr[unit], counts.indptr[unit + 1])
        strata, rows = counts.indices[span], counts.data[span]
        if not len(strata):
            continue
        wish = rows / totals[strata] @ np.maximum(wants[strata], 0)
        if wish.sum() <= 0:
            wish = rows / totals[strata] @ (wants[strata] - wants[strata].min() + 1)
        share = np.cumsum(wish) / wish.sum()
        drawn = int(np.searchsorted(share, chance[unit], side="right"))
        part[unit] = min(drawn, len(share) - 1) if 2 * place < len(sizes) else int(np.argmax(wish))
        wants[strata, part[unit]] -= rows
    return part


def _times(task: Task) -> FloatArray:
    if task.time is None:
        raise InputError(f"Splits: scheme 'time' needs a time column, and task {task.name!r} has none. Give it one.")
    time = task.time
    try:
        numbers = seconds_of(time) if time.dtype.kind == "M" else time.astype(np.float64)
    except (TypeError, ValueError):
        try:
            numbers = seconds_of(time.astype("datetime64[us]"))
        except (TypeError, ValueError) as error:
            wrong = next((value for value in time.tolist() if not _is_moment(value)), time[0])
            raise InputError(
                f"task {task.name!r}: time holds {str(wrong)!r}, which is neither a number nor an ISO date. Write "
                "dates as 2020-12-31, and give every row one."
            ) from error
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise InputError(f"task {task.name!r}: the time of row {row} is missing. A time split needs every row's time.")
    return numbers


def _is_moment(value: Any) -> bool:
    try:
        return not np.isnat(np.datetime64(value))
    except (TypeError, ValueError):
        return False


def _quantile(ordered: FloatArray, share: float) -> float:
    """The time at which this share of the rows lies before; rows of one moment are never separated."""
    place = int(np.clip(round(share * len(ordered)), 0, len(ordered)))
    return float(ordered[place]) if place < len(ordered) else np.inf


def _official_part(task: Task) -> IntArray:
    if task.split is None:
        return np.full(task.num_rows, _TRAIN)
    return np.select([task.split == "test", task.split == "valid"], [_TEST, _VALID], _TRAIN)


def _with_parts(tasks: TaskSet, parts: list[IntArray]) -> TaskSet:
    names = np.array(PARTS)
    made = [task.replace(split=names[part]) for task, part in zip(tasks, parts, strict=True)]
    kept = {task.name: np.flatnonzero(part != _NONE) for task, part in zip(tasks, parts, strict=True)}
    split_tasks = TaskSet(made, found=tasks.found, settings=tasks.settings)
    return split_tasks if all((part != _NONE).all() for part in parts) else split_tasks.take(kept)


def _shortage(task: Task, parts: int, least: int) -> str | None:
    """Why no draw can give every part of this task what it needs, or None."""
    labelled = int(task.labelled.sum())
    if task.kind == "regression":
        fewest = parts * _FEWEST_ROWS
        return f"{labelled} labelled rows, {parts} parts need at least {fewest}" if labelled < fewest else None
    count = np.bincount(task.y[task.labelled].astype(np.int64), minlength=task.num_classes)
    short = [f"{task.classes[c]!r} has {n}" for c, n in enumerate(count) if n < parts * least]
    return f"of its classes {_first(short)} rows, {parts} parts need at least {parts * least}" if short else None


def _lack(task: Task, part: IntArray, wanted: list[int], least: int) -> str | None:
    """What a drawn split of this task lacks, or None."""
    for p in wanted:
        y = task.y[(part == p) & task.labelled]
        if task.kind == "regression":
            if len(np.unique(y)) < _FEWEST_ROWS:
                return f"{PARTS[p]} has {len(y)} labelled rows with {len(np.unique(y))} different labels, needs two"
            continue
        count = np.bincount(y.astype(np.int64), minlength=task.num_classes)
        short = [f"{n} of class {task.classes[c]!r}" for c, n in enumerate(count) if n < max(least, 1)]
        if short:
            return f"{PARTS[p]} has {_first(short)}, needs {max(least, 1)} of each"
    return None


def _first(items: list[str], count: int = 3) -> str:
    return ", ".join(items[:count]) + (f" and {len(items) - count} more" if len(items) > count else "")


def _listed(reasons: dict[str, str]) -> str:
    shown = [f"{name!r} ({reason})" for name, reason in list(reasons.items())[:5]]
    return "; ".join(shown) + (f"; and {len(reasons) - 5} more tasks." if len(reasons) > 5 else ".")
