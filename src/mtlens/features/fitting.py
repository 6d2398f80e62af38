"""One feature space for all tasks that share a trunk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from mtlens.arrays import Array
from mtlens.errors import InputError, MtlensError, unknown
from mtlens.features.average import WordAverage
from mtlens.features.cache import cache_folder
from mtlens.features.encoder import FrozenEncoder
from mtlens.features.featurizer import Featurizer
from mtlens.features.sequences import TokenFeaturizer, Tokens
from mtlens.features.state import State
from mtlens.features.texts import TextEncoder
from mtlens.features.tfidf import TfIdf
from mtlens.features.vectors import EmbeddingTable, vectors_from
from mtlens.features.views import Match, View
from mtlens.tasks import Table, Task, TaskSet
from mtlens.tasks.table import row_indices

Form: TypeAlias = Literal["dense", "tokens"]
TEXT_TRUNKS = ("lstm", "cnn", "average")  # trunks that read words one by one; every other one reads a float matrix


def form_of(trunk: object) -> Form:
    """What a trunk reads: ``tokens`` for the text trunks by name, ``dense`` for any other and for modules."""
    return "tokens" if isinstance(trunk, str) and trunk in TEXT_TRUNKS else "dense"


def fit_featurizer(
    tasks: Task | Iterable[Task],
    *,
    form: Form = "dense",
    rows: Mapping[str, Array] | None = None,
    vectors: EmbeddingTable | str | Path | None = None,
    encoder: FrozenEncoder | str | Path | None = None,
    match: Match = "same",
    **options: Any,
) -> Featurizer | TokenFeaturizer:
    """One featurizer for all the tasks, fitted on the union of their train rows and on nothing else.

    A shared trunk needs one feature space. Columns are matched by name, in any order; tasks whose columns differ are
    refused with the names, or with ``match="common"`` cut down to what they share. Inputs that several tasks share are
    counted once, over the union of those tasks' train rows.

    Args:
        tasks: a TaskSet, some tasks, or one.
        form: ``dense`` for a float matrix, ``tokens`` for padded word codes; see :func:`form_of`.
        rows: train rows of each task by name; by default its labelled rows in the split ``train``.
        vectors: pretrained word vectors, or their file. Dense: texts become the mean of their words' vectors.
        encoder: a frozen encoder, its folder or its package; dense only. With neither, dense texts become TF-IDF and
            token trunks learn their embeddings from scratch; ``found`` says which.
        options: of :class:`Featurizer` or :class:`TokenFeaturizer`.

    Example:
        >>> a = Task("a", {"x": [1.0, 3.0, 9.0], "z": [0.0, 1.0, 5.0]}, [1, 2, 4], kind="regression")
        >>> b = Task("b", {"z": [2.0, 1.0], "x": [5.0, 7.0]}, [0, 1])
        >>> features = fit_featurizer([a, b], rows={"a": [0, 1], "b": [0, 1]})
        >>> features.names, features.transform(b).round(2).tolist()
        (('x', 'z'), [[0.45, 1.41], [1.34, 0.0]])
    """
    views = train_views([tasks] if isinstance(tasks, Task) else list(tasks), rows)
    if form == "tokens":
        if encoder is not None:
            raise InputError(
                "an encoder gives one vector a text, but this trunk reads words one by one. "
                'Use trunk="mlp" or "linear" with the encoder, or vectors= with this trunk.'
            )
        return TokenFeaturizer(vectors=vectors_from(vectors), **options).fit_views(views)
    if form != "dense":
        raise InputError(f"form={form!r} is not known. Use 'dense' or 'tokens'.")
    has_text = any("text" in view.kinds.values() for view in views)
    if has_text and "text" not in options:
        options["text"] = text_encoder(vectors, encoder)
    return Featurizer(**options).fit_views(views, match=match)


def text_identity(
    vectors: EmbeddingTable | str | Path | None = None, encoder: FrozenEncoder | str | Path | None = None
) -> dict[str, str]:
    """What word vectors and encoder hold, as hashes: a file that changed in its place is another one."""
    table = vectors_from(vectors)
    found = {} if table is None else {"vectors": table.identity}
    if encoder is not None:
        frozen = encoder if isinstance(encoder, FrozenEncoder) else shared_encoder(str(encoder))
        found["encoder"] = frozen.identity
    return found


def text_encoder(
    vectors: EmbeddingTable | str | Path | None = None, encoder: FrozenEncoder | str | Path | None = None
) -> TextEncoder:
    """What dense text features come from: the encoder, else the word vectors, else TF-IDF."""
    if encoder is not None:
        return encoder if isinstance(encoder, FrozenEncoder) else shared_encoder(str(encoder))
    table = vectors_from(vectors)
    return TfIdf() if table is None else WordAverage(table)


@lru_cache(maxsize=2)
def shared_encoder(source: str) -> FrozenEncoder:
    """The encoder of that name, loaded once: every split and task that names it shares its texts' vectors.

    They are kept on disk too, see :func:`cache_folder`, for the next command on the same texts.
    """
    return FrozenEncoder(source, cache=cache_folder())


def train_views(tasks: list[Task], rows: Mapping[str, Array] | None = None) -> list[View]:
    """Every distinct input once, with the train rows of all tasks that share it."""
    chosen: dict[int, tuple[Task, list[Array]]] = {}
    for task in tasks:
        if rows is not None and task.name not in rows:
            raise unknown("task", task.name, rows, "the train rows given")
        where = f"task {task.name!r}"
        own = task.rows_of("train") if rows is None else row_indices(rows[task.name], task.num_rows, where)
        chosen.setdefault(id(task.X), (task, []))[1].append(own)
    if not chosen:
        raise InputError("fit_featurizer needs at least one task, found none.")
    return [View.of(task, np.unique(np.concatenate(parts))) for task, parts in chosen.values()]


def transform_tasks(
    featurizer: Featurizer | TokenFeaturizer, tasks: Iterable[Task], **options: Any
) -> list[Array | Tokens]:
    """Each task's features; inputs that tasks share are transformed once and come back as one object."""
    done: dict[int, Array | Tokens] = {}
    out = []
    for task in tasks:
        key = id(task.X)
        if key not in done:
            done[key] = featurizer.transform(task, **options)
        out.append(done[key])
    return out


def encode_texts(tasks: Iterable[Task], encoder: FrozenEncoder | EmbeddingTable | str | Path) -> TaskSet:
    """The tasks with their texts replaced by the numbers of an encoder that is not fitted, so nothing can leak.

    Every text is encoded once, whatever is trained on it later; inputs that tasks share stay shared. Columns beside
    the texts are kept. Two text columns are encoded as one pair.

    Args:
        encoder: a frozen encoder, its folder or package; or word vectors, whose mean is taken.
    """
    texts = text_encoder(encoder) if isinstance(encoder, EmbeddingTable) else text_encoder(None, encoder)
    tasks, done = list(tasks), dict[int, Array | Table]()
    for task in tasks:
        if id(task.X) not in done:
            done[id(task.X)] = _with_numbers(View.of(task), texts)
    return TaskSet([task.replace(X=done[id(task.X)]) for task in tasks])


def _with_numbers(view: View, texts: TextEncoder) -> Array | Table:
    """An array when there is nothing but texts, otherwise a table of the other columns and the encoder's."""
    numbers = texts.encode(view.texts(()))
    others = {name: kind for name, kind in view.kinds.items() if kind != "text"}
    if not others:
        return numbers
    columns = {name: view.column(name) for name in others}
    columns.update(zip(texts.names, numbers.T, strict=True))
    return Table(columns, others)


def restore(state: State, **options: Any) -> Featurizer | TokenFeaturizer:
    """The featurizer that a state belongs to."""
    classes: dict[str, Any] = {"Featurizer": Featurizer, "TokenFeaturizer": TokenFeaturizer}
    name = state.meta.get("class")
    if name not in classes:
        raise InputError(f"saved features are of class {name!r}; this version knows {', '.join(classes)}.")
    try:
        restored: Featurizer | TokenFeaturizer = classes[name].from_state(state, **options)
    except (KeyError, TypeError, AttributeError) as error:
        if isinstance(error, MtlensError):
            raise
        raise InputError(f"saved features are incomplete ({error!r:.200}). Save the model again.") from error
    return restored
