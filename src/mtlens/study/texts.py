"""Texts in a study: what they are read as, and test rows of clear verdicts that joint training fixed or broke."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mtlens.arrays import Array, FloatArray
from mtlens.errors import InputError
from mtlens.study.cells import Cell
from mtlens.study.evidence import Choice
from mtlens.study.linear import LinearSplit
from mtlens.study.plan import Unit
from mtlens.study.settings import Settings
from mtlens.study.trunk import reads_tokens, training_of
from mtlens.tasks import Table, Task, TaskSet

if TYPE_CHECKING:
    from mtlens.study.run import Run

SPLIT = 0  # examples come from the first split
MOST_CELLS = 6
MOST_TEXTS = 3  # of each sort
MOST_LETTERS = 300


def read_as(tasks: TaskSet, settings: Settings, options: Mapping[str, Any]) -> list[str]:
    """One line on what each family reads texts as; none where there are no texts.

    ``options``: what the study was given of ``vectors`` and ``encoder``.
    """
    if not any(_has_text(tasks, name) for name in tasks.names):
        return []
    words = "trunk" in settings.families and reads_tokens(settings.trunk)
    dense = ["the linear family"] if "linear" in settings.families else []
    dense += [f"the {settings.trunk} trunk"] if "trunk" in settings.families and not words else []
    vectors, encoder = options.get("vectors"), options.get("encoder")
    table = f"the word vectors of {vectors}" if isinstance(vectors, (str, Path)) else "the word vectors given"
    said = []
    if dense and encoder is not None:
        said.append(f"for {' and '.join(dense)} by the frozen encoder {getattr(encoder, 'source', encoder)}")
    elif dense:
        said.append(f"for {' and '.join(dense)} by {'TF-IDF' if vectors is None else f'the mean of {table}'}")
    if words:
        embedded = "embeddings learned from scratch" if vectors is None else table
        said.append(f"for the {settings.trunk} trunk word by word with {embedded}")
    bare = encoder is None and vectors is None
    why = " (neither vectors nor an encoder are given; a SPEC may name them)" if bare else ""
    return [f"texts are read {', '.join(said)}{why}."]


def refuse_without_texts(tasks: TaskSet, settings: Settings) -> None:
    """A trunk that reads words needs some in every task: said before anything is planned."""
    if "trunk" not in settings.families or not reads_tokens(settings.trunk):
        return
    for name in tasks.names:
        if not _has_text(tasks, name):
            raise InputError(
                f"task {name!r} has no text column, and the {settings.trunk} trunk reads words. Name one with "
                'text = "..." in a SPEC, leave the task out, or use another trunk, such as mlp.'
            )


def changed_texts(run: Run) -> list[dict[str, Any]]:
    """For the clearest pairs whose target has texts: test rows that the joint model gets right and the lone one wrong
    (``fixed``), and the other way round (``broken``).

    Examples, not evidence: the models that the first split's validation rows chose, fitted once more with the same
    settings, so that nothing new is tried. Rows with the largest change come first. For a regression label a row is
    fixed when the joint prediction is nearer.
    """
    clear = [
        cell for cell in run.tables.pairs if cell.verdict in ("helps", "hurts") and _has_text(run.tasks, cell.target)
    ]
    clear.sort(key=lambda cell: cell.p_adjusted)
    found = [_examples(run, cell) for cell in clear[:MOST_CELLS]]
    return [one for one in found if one is not None]


def _has_text(tasks: TaskSet, name: str) -> bool:
    X = tasks[name].X
    return isinstance(X, Table) and "text" in X.kinds.values()


def _examples(run: Run, cell: Cell) -> dict[str, Any] | None:
    evidence, members = run.evidence, (cell.target, cell.source)
    family = evidence.family(cell.target, SPLIT, run.families)
    if family is None:
        return None
    alone = evidence.alone(family, cell.target, SPLIT)
    joint = evidence.joint(family, members, cell.target, SPLIT)
    if alone is None or joint is None:
        return None
    task = run.splitter.split(SPLIT)[cell.target]
    rows = task.rows_of("test")
    predict = _linear if family == "linear" else _network
    before, after = predict(run, cell, (cell.target,), alone), predict(run, cell, members, joint)
    if before is None or after is None:
        return None
    fixed, broken = _changed(task, rows, before, after)
    described = {"target": cell.target, "source": cell.source, "verdict": cell.verdict, "family": family}
    return described | {
        "rows": len(rows), "fixed_rows": len(fixed), "broken_rows": len(broken),
        "fixed": [_row(task, rows, i, before, after) for i in fixed[:MOST_TEXTS]],
        "broken": [_row(task, rows, i, before, after) for i in broken[:MOST_TEXTS]],
    }  # fmt: skip


def _linear(run: Run, cell: Cell, members: Sequence[str], choice: Choice) -> FloatArray:
    del choice  # the core chooses inside, from the same rows
    split = LinearSplit(run.splitter.prepared(SPLIT).dense, seed=run.settings.seed)
    sources = tuple(members[1:])
    model = (split.joint if sources else split.alone).fit(cell.target, sources)
    task = split.tasks[cell.target]
    predicted: FloatArray = model.predict(np.asarray(task.X)[task.rows_of("test")])
    return predicted


def _network(run: Run, cell: Cell, members: Sequence[str], choice: Choice) -> FloatArray | None:
    from mtlens.engine import train

    ordered = tuple(name for name in run.names if name in members)
    unit = Unit("trunk", "plain", ordered, SPLIT, run.settings.seed, tuple(sorted(choice.config.items())))
    training = training_of(unit, run.splitter.prepared(SPLIT), tokens=reads_tokens(choice.config["trunk"]))
    (trained,) = train([training], keep="predictions", workers=1, progress=False)
    return trained.predictions["test"][cell.target] if trained.ok and trained.predictions else None


def _changed(task: Task, rows: Array, before: FloatArray, after: FloatArray) -> tuple[list[int], list[int]]:
    """Places among ``rows`` that were fixed and broken, the largest change first."""
    gain = _quality(task, rows, after) - _quality(task, rows, before)
    right = [_is_right(task, rows, p) for p in (before, after)]
    better = (~right[0] & right[1]) if task.kind != "regression" else gain > 0
    worse = (right[0] & ~right[1]) if task.kind != "regression" else gain < 0
    order = np.argsort(-np.abs(gain), kind="stable")
    return [int(i) for i in order if better[i]], [int(i) for i in order if worse[i]]


def _quality(task: Task, rows: Array, p: FloatArray) -> FloatArray:
    """Probability of the label, or minus the absolute error."""
    y = task.y[rows]
    if task.kind == "regression":
        return -np.abs(p - y)
    if p.ndim == 2:
        own: FloatArray = np.take_along_axis(p, y.astype(np.int64)[:, None], axis=1)[:, 0]
        return own
    return np.where(y == 1, p, 1 - p)


def _is_right(task: Task, rows: Array, p: FloatArray) -> Any:
    decided = p.argmax(axis=1) if p.ndim == 2 else p > 0.5
    return decided == task.y[rows]


def _row(task: Task, rows: Array, place: int, before: FloatArray, after: FloatArray) -> dict[str, Any]:
    X = task.X
    assert isinstance(X, Table)
    row = int(rows[place])
    parts = [str(X[name][row] or "") for name, kind in X.kinds.items() if kind == "text"]
    text = " / ".join(parts)
    label = task.y[row]
    shown = text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}..."
    return {
        "text": shown,
        "label": float(label) if task.kind == "regression" else str(task.classes[int(label)]),
        "alone": _said(task, before[place]),
        "joint": _said(task, after[place]),
    }


def _said(task: Task, p: Any) -> float | str:
    """A prediction as a person reads it: a number, or the class and its probability."""
    if task.kind == "regression":
        return float(p)
    each = np.array([1 - p, p]) if np.ndim(p) == 0 else np.asarray(p)
    best = int(each.argmax())
    return f"{task.classes[best]} ({each[best]:.2f})"
