"""Should these tasks be trained together? The answer that data and linear algebra give, before any training."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.diagnosis.facts import balance, missing_features, spectrum_facts, warnings_about, width
from mtlens.diagnosis.result import Capacity, Diagnosis, Pair, TaskFacts, Weights
from mtlens.diagnosis.spaces import Space, linear_spaces
from mtlens.errors import InputError
from mtlens.tasks import Task, TaskSet
from mtlens.tasks.duplicates import Overlap, find_duplicates
from mtlens.theory.inputs import whole_seed
from mtlens.theory.linear_problem import LinearProblem
from mtlens.theory.rank_curve import RankCurve, rank_curve
from mtlens.theory.spectral import checked_energy, descending_eigh, leading_directions, num_kept
from mtlens.theory.standardised import View
from mtlens.theory.transfer import LinearTransfer
from mtlens.theory.transfer_records import PairTable
from mtlens.theory.weights import svd_weights

FOLDS = 5
# On 200 random configurations (docs/results/prediction.md) joint models that weigh all rows alike told most about the
# true transfer; a source weight chosen on twenty rows is mostly noise. Three repeats of the folds add as much again.
WEIGHTS = (1.0,)
REPEATS = 3
MANY_ROWS = 2000  # of the smallest task, from which one repeat is enough
FEWEST = 8  # labelled rows below which cross-validation says nothing
PEAK = 1.2  # rows of two tasks over columns, up to which their joint optimum is at the interpolation peak


def diagnose(
    tasks: TaskSet | Sequence[Task],
    *,
    folds: int = FOLDS,
    seed: int = 0,
    energy: float = 0.99,
    progress: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Predict transfer between all ordered pairs of tasks, and say what the data allow, in seconds.

    The prediction is the cross-validated gain of a *linear* joint model, all rows weighing alike, over the target's own
    tuned ridge, with one grid of ridges for both (:class:`~mtlens.theory.transfer.LinearTransfer`). Rows whose split is
    "test" are not read. Inputs that are numbers are used as they are; tables, texts and images go through one
    featurizer fitted, without labels, on all development rows. Tasks without a common input space get no prediction for
    each other.

    Args:
        tasks: a TaskSet or tasks.
        folds: of the cross-validation; fewer where a task has fewer rows.
        seed: of the folds.
        energy: share of the spectrum that the covariance score keeps.
        progress: called with what is being done.

    Example:
        >>> import numpy as np
        >>> from mtlens.tasks import TaskSet
        >>> X = np.random.default_rng(0).standard_normal((40, 3))
        >>> found = diagnose(TaskSet.from_arrays(X, X @ np.ones((3, 2)), names=["a", "b"]))
        >>> found.pair("a", "b").verdict, round(found.pair("a", "b").cosine, 3)
        ('unsure', 1.0)
    """
    start = time.perf_counter()
    energy = checked_energy(energy, "diagnose")
    if isinstance(folds, bool) or not isinstance(folds, (int, np.integer)) or folds < 2:
        raise InputError(f"diagnose needs a whole number of at least 2 folds, found folds={folds!r}.")
    folds, seed = int(folds), whole_seed(seed, "diagnose")
    if isinstance(tasks, Task):
        tasks = [tasks]
    tasks = TaskSet.of(tasks)
    say = progress or (lambda _: None)
    say("reading rows")
    duplicates = find_duplicates(tasks)
    warnings = warnings_about(tasks, duplicates)
    spaces = linear_spaces(tasks)
    if len(spaces) > 1:
        sizes = "; ".join(", ".join(p.name for p in space.problems[:4]) for space in spaces[:6])
        warnings.append(f"{len(spaces)} different input spaces ({sizes}): no prediction across them.")
    examined = []
    for space in spaces:
        say(f"linear models of {len(space.problems)} tasks")
        examined.append(_examine(space, folds=folds, seed=seed, energy=energy))
    facts = [
        _facts(task, examined, duplicates.within[task.name].extra, _leaks(task, duplicates.across)) for task in tasks
    ]
    main = max(examined, key=lambda e: len(e.names))
    warnings += [line for e in examined for line in e.warnings]
    return Diagnosis(
        tasks=tuple(facts),
        pairs=tuple(_pair(t, s, examined) for t in tasks.names for s in tasks.names if t != s),
        capacity=main.capacity,
        weights=main.weights,
        warnings=tuple(warnings),
        found=(*tasks.found, *(line for space in spaces for line in space.found)),
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True, eq=False)
class _Examined:
    """What the closed forms say about one input space; matrices are (k, k) over ``names``."""

    names: tuple[str, ...]
    scores: dict[str, FloatArray]
    cosine: FloatArray | None
    table: PairTable | None
    spectra: dict[str, tuple[float, float]]
    alone: dict[str, tuple[float, float]]
    capacity: Capacity | None
    weights: Weights | None
    warnings: tuple[str, ...]


def _examine(space: Space, *, folds: int, seed: int, energy: float) -> _Examined:
    few = [p.name for p in space.problems if p.labelled.sum() < FEWEST]
    whole = [p.name for p in space.problems if p.name not in few and not _can_be_divided(p)]
    enough = [p for p in space.problems if p.name not in (*few, *whole)]
    warnings = [f"{name}: fewer than {FEWEST} labelled rows; nothing is predicted for it." for name in few]
    warnings += [f"{name}: all labelled rows are of one group; nothing is predicted for it." for name in whole]
    if not enough:
        return _Examined((), {}, None, None, {}, {}, None, None, tuple(warnings))
    rows = [int(p.labelled.sum()) for p in enough]
    repeats = REPEATS if min(rows) < MANY_ROWS else 1
    core = LinearTransfer(enough, folds=min(folds, *rows), repeats=repeats, seed=seed, weights=WEIGHTS)
    scores, spectra = _spectra(core, energy)
    alone = {name: core.alone(name) for name in core.names}
    several = len(enough) > 1
    curve = rank_curve(core) if several else None
    return _Examined(
        names=core.names,
        scores=scores,
        cosine=_cosines(core),
        table=core.pairs() if several else None,
        spectra=spectra,
        alone={name: (found.score, found.ridge) for name, found in alone.items()},
        capacity=None if curve is None else _capacity(curve, core.names),
        weights=None if curve is None else _weights(core, curve),
        warnings=(*warnings, *_peaks(core)),
    )


def _can_be_divided(problem: LinearProblem) -> bool:
    """Whether some labelled rows can be held out while others stay: rows of one group are never parted."""
    if problem.group is None:
        return True
    return len(np.unique(np.asarray(problem.group)[problem.labelled].astype(str))) > 1


def _spectra(core: LinearTransfer, energy: float) -> tuple[dict[str, FloatArray], dict[str, tuple[float, float]]]:
    """The four covariance scores between all tasks, and condition number and effective rank of each.

    One decomposition a covariance; tasks that share inputs are decomposed once. The scores are those of
    :func:`~mtlens.theory.covariance.covariance_similarity`, NaN for inputs that do not vary.
    """
    distinct = list(dict.fromkeys(core.sharing))
    spread = np.array([distinct.index(number) for number in core.sharing])
    members = [core.problems[core.sharing.index(number)] for number in distinct]
    scores: dict[str, FloatArray] = {}
    eigenvalues: list[list[FloatArray]] = []
    for center in (False, True):
        parts = [descending_eigh(core.second_moment(problem.name, center=center)) for problem in members]
        eigenvalues.append([values for values, _ in parts])
        plain, normalised = _scores(parts, energy)
        suffix = "_centred" if center else ""
        scores[f"score{suffix}"] = plain[np.ix_(spread, spread)]
        scores[f"score_normalised{suffix}"] = normalised[np.ix_(spread, spread)]
    facts = []
    for problem, values, variances in zip(members, *eigenvalues, strict=True):
        rows = problem.X if problem.labelled.all() else problem.X[problem.labelled]
        facts.append(spectrum_facts(rows, values, variances))
    return scores, {name: facts[place] for name, place in zip(core.names, spread, strict=True)}


def _scores(parts: Sequence[tuple[FloatArray, FloatArray]], energy: float) -> tuple[FloatArray, FloatArray]:
    """The score and its normalised companion for all pairs, from descending eigenpairs of each covariance."""
    truncated, traces = [], []
    for values, vectors in parts:
        total = float(np.maximum(values, 0.0).sum())
        if total <= 0.0:
            truncated.append(np.full(vectors.size, np.nan))
            traces.append(np.nan)
            continue
        r = num_kept(values / total, energy)
        kept = values[:r] / total  # a common scale keeps tiny and huge inputs in range
        truncated.append(((vectors[:, :r] * kept) @ vectors[:, :r].T).ravel())
        traces.append(float(kept.sum()))
    flat = np.stack(truncated)
    inner = np.maximum(flat @ flat.T, 0.0)
    norms = np.sqrt(np.diagonal(inner))
    return np.sqrt(inner / np.outer(traces, traces)), inner / np.outer(norms, norms)


def _cosines(core: LinearTransfer) -> FloatArray:
    """Cosine between tuned ridge models in standardised units; several outputs are matched as well as they can be."""
    view = core.view(None)
    models = [core.tuned(i, view) for i in range(len(core.names))]
    units = [_unit(W) for W in models]
    found = np.empty((len(units), len(units)))
    for i, first in enumerate(units):
        for j, second in enumerate(units):
            product = first.T @ second
            found[i, j] = product[0, 0] if product.size == 1 else np.linalg.svd(product, compute_uv=False).sum()
    return np.clip(found, -1.0, 1.0)  # outside by rounding only


def _unit(W: FloatArray) -> FloatArray:
    """``W`` of length one, zero where it is zero."""
    peak = float(np.abs(W).max())
    if peak == 0.0:
        return W
    W = W / peak  # squares of 1e-200 would vanish
    return np.asarray(W / np.linalg.norm(W))


def _capacity(curve: RankCurve, names: tuple[str, ...]) -> Capacity:
    numbers = tuple(float(v) for v in curve.scores), tuple(float(v) for v in curve.errors)
    return Capacity(curve.suggested, curve.best, curve.flat, curve.ranks, *numbers, tasks=names)


def _weights(core: LinearTransfer, curve: RankCurve) -> Weights | None:
    """Algorithm 2 as it should be: printed form with normalised labels on shared inputs, whitened otherwise."""
    rank = min(curve.suggested, len(core.names))
    problems = core.problems
    shared = len(set(core.sharing)) == 1 and all(p.outputs.shape[1] == 1 for p in problems)
    if shared and all(p.weight is None for p in problems):
        rows = problems[0].labelled
        X, Y = problems[0].X[rows], np.stack([p.y[rows] for p in problems], axis=1)
        if (X.std(axis=0) > 0).any() and (Y.std(axis=0) > 0).all():
            lengths = np.asarray(svd_weights(X, Y, rank=rank))
            return Weights(rank, "svd_weights", {n: float(a) for n, a in zip(core.names, lengths, strict=True)})
    view = core.view(None)
    columns = [_whitened(view, core.alone(name).ridge, i) for i, name in enumerate(core.names)]
    leading = leading_directions(np.concatenate(columns, axis=1), rank)
    lengths = np.array([np.linalg.norm(leading.T @ column) for column in columns])
    if not lengths.any():
        return None
    lengths = lengths / lengths.mean()
    return Weights(rank, "svd_weights_separate", {n: float(a) for n, a in zip(core.names, lengths, strict=True)})


def _whitened(view: View, ridge: float, i: int) -> FloatArray:
    """``(G + ridge)^(-1/2) c`` with labels of unit length: the task's solution in its whitened space."""
    task = view.tasks[i]
    values, vectors = np.linalg.eigh(task.G)
    c = task.c / np.sqrt(task.rows)
    whitened: FloatArray = (vectors.T @ c) / np.sqrt(np.maximum(values, 0.0) + ridge)[:, None]
    return vectors @ whitened


def _peaks(core: LinearTransfer) -> list[str]:
    """Pairs at the interpolation peak, where an unregularised joint optimum explodes."""
    rows = [int(p.labelled.sum()) for p in core.problems]
    near = [
        (a, b)
        for i, a in enumerate(core.names)
        for j, b in enumerate(core.names)
        if i < j and core.sharing[i] != core.sharing[j] and core.width <= rows[i] + rows[j] <= PEAK * core.width
    ]
    if not near:
        return []
    a, b = near[0]
    more = f" and {len(near) - 1} more pairs" if len(near) > 1 else ""
    return [
        f"{a} and {b}{more} have together about as many rows as columns ({core.width}): an unregularised joint optimum "
        "explodes there. Use a ridge."
    ]


def _leaks(task: Task, across: Sequence[Overlap]) -> int:
    return sum(overlap.leaks for overlap in across if overlap.task == task.name)


def _facts(task: Task, examined: Sequence[_Examined], repeated: int, leaks: int) -> TaskFacts:
    home = next((e for e in examined if task.name in e.names), None)
    condition, effective = home.spectra[task.name] if home else (float("nan"), float("nan"))
    alone, ridge = home.alone[task.name] if home else (None, None)
    known = int(task.labelled.sum())
    return TaskFacts(
        task=task.name,
        kind=task.kind,
        rows=task.num_rows,
        labelled=known,
        width=width(task),
        balance=balance(task),
        missing_labels=1.0 - known / task.num_rows,
        missing_features=missing_features(task),
        duplicates=repeated,
        leaks=leaks,
        condition_number=condition,
        effective_rank=effective,
        alone=alone,
        ridge=ridge,
    )


def _pair(target: str, source: str, examined: Sequence[_Examined]) -> Pair:
    home = next((e for e in examined if target in e.names and source in e.names), None)
    if home is None or home.table is None or home.cosine is None:
        return Pair(target, source, None, None, None, None, None, None, None, None, None, None, "unsure")
    t, s = home.names.index(target), home.names.index(source)
    cell = home.table.get(target, source)
    scores = {name: float(matrix[t, s]) for name, matrix in home.scores.items()}
    numbers = {k: float(getattr(cell, k)) for k in ("low", "high", "p_helps", "p_hurts")}
    cosine = float(home.cosine[t, s])
    return Pair(target, source, **scores, cosine=cosine, predicted=cell.difference, **numbers, verdict=cell.verdict)
