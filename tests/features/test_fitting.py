"""One feature space for several tasks."""

from __future__ import annotations

import numpy as np
import pytest

from mtlens.errors import InputError
from mtlens.features import (
    EmbeddingTable,
    Featurizer,
    TokenFeaturizer,
    encode_texts,
    fit_featurizer,
    form_of,
    transform_tasks,
)
from mtlens.tasks import Table, Task, TaskSet


def texts(*values: str) -> np.ndarray:
    return np.array(values, dtype=object)


def test_the_fit_is_on_the_union_of_train_rows() -> None:
    rng = np.random.default_rng(0)
    a = Task("a", rng.normal(size=(6, 2)), rng.normal(size=6), split=["train"] * 4 + ["test"] * 2)
    b = Task("b", rng.normal(5, 3, size=(5, 2)), rng.normal(size=5), split=["valid", *["train"] * 4])
    features = fit_featurizer(TaskSet([a, b]))
    union = np.concatenate([a.X[:4], b.X[1:]])
    np.testing.assert_allclose(features.transform(union).mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(features.transform(union).std(axis=0), 1)
    alone = Featurizer().fit(union)
    np.testing.assert_allclose(features.transform(a), alone.transform(a.X))


def test_shared_inputs_count_once_and_are_transformed_once() -> None:
    X = np.random.default_rng(1).normal(size=(6, 2))
    Y = np.array([[0.5, np.nan], [1.5, 2.5], [2.5, 3.5], [0.1, 0.2], [1.1, 0.3], [0.2, np.nan]])
    tasks = TaskSet.from_arrays(X, Y, split=["train"] * 4 + ["test"] * 2)
    features = fit_featurizer(tasks)
    np.testing.assert_allclose(features.transform(X[:4]).std(axis=0), 1)
    first, second = transform_tasks(features, tasks)
    assert first is second
    np.testing.assert_array_equal(first, features.transform(X))


def test_rows_can_be_given_and_one_task_is_enough() -> None:
    X = np.arange(6.0)[:, None]
    task = Task("t", X, np.arange(6.0) / 2)
    features = fit_featurizer(task, rows={"t": [0, 1]})
    assert features.transform(X)[:2, 0].tolist() == [-1, 1]


def test_columns_are_matched_by_name_in_any_order() -> None:
    a = Task("a", {"x": [1.0, 2.0], "c": ["u", "v"]}, [0.5, 1.5])
    b = Task("b", {"c": ["v", "w"], "x": [3.0, 5.0]}, [0.5, 1.5])
    features = fit_featurizer([a, b])
    assert features.names == ("x", "c=u", "c=v", "c=w")
    np.testing.assert_allclose(features.transform(b)[:, 0], (np.array([3, 5]) - 2.75) / np.std([1, 2, 3, 5]))


def test_named_arrays_are_matched_by_name_too() -> None:
    a = Task("a", [[1.0, 10.0], [2.0, 20.0]], [0.5, 1.5], feature_names=["p", "q"])
    b = Task("b", [[30.0, 3.0], [40.0, 4.0]], [0.5, 1.5], feature_names=["q", "p"])
    features = fit_featurizer([a, b])
    np.testing.assert_allclose(features.transform(b)[:, 0], features.transform(b)[:, 1])


def test_different_columns_are_refused_or_cut_to_the_shared_ones() -> None:
    a = Task("a", {"x": [1.0, 2.0], "only": [3.0, 4.0]}, [0.5, 1.5])
    b = Task("b", {"x": [1.0, 2.0]}, [0.5, 1.5])
    with pytest.raises(
        InputError, match=r"task 'a' has 2 columns, task 'b' has 1 columns; 1 names are shared: 'only' is not"
    ):
        fit_featurizer([a, b])
    features = fit_featurizer([a, b], match="common")
    assert features.names == ("x",)
    assert features.found[0] == "columns not in every task are left out: only"
    with pytest.raises(InputError, match="one feature space"):
        fit_featurizer([a, Task("c", {"z": [1.0, 2.0]}, [0.5, 1.5])], match="common")
    with pytest.raises(InputError, match="task 'i' has rows of"):
        fit_featurizer([a, Task("i", np.ones((2, 1, 2, 2)), [0.5, 1.5])])


def test_a_column_of_numbers_here_and_names_there_is_a_category() -> None:
    a = Task("a", {"x": [1.0, 2.0]}, [0.5, 1.5])
    b = Task("b", {"x": ["2", "many"]}, [0.5, 1.5])
    assert fit_featurizer([a, b]).names == ("x=1", "x=2", "x=many")
    empty = Task("c", {"x": np.array([None, None], dtype=object)}, [0.5, 1.5])
    assert fit_featurizer([a, empty]).names == ("x", "x is missing")


@pytest.mark.parametrize("form", ["dense", "tokens"])
def test_texts_share_a_space_whatever_their_columns_are_called(form: str) -> None:
    single = Task("single", texts("good film", "bad film", "good"), [0, 1, 0])
    pair = Task("pair", {"premise": texts("a good", "a bad"), "claim": texts("film", "film")}, [0, 1])
    pair.X.kinds.update(premise="text", claim="text")
    features = fit_featurizer([single, pair], form=form)  # type: ignore[arg-type]
    if isinstance(features, TokenFeaturizer):
        words = features.vocabulary
        assert features.transform(pair).ids[0].tolist() == [words.code(w) for w in ("a", "good", "<sep>", "film")]
    else:
        assert features.names == ("text: bad", "text: film", "text: good") or features.width == 4
        assert features.transform(pair).shape == (2, features.width)


def test_pairs_are_combined_when_every_task_has_two_texts() -> None:
    columns = {"a": texts("good film", "bad film"), "b": texts("good", "film")}
    pair = Task("pair", columns, [0, 1])
    pair.X.kinds.update(a="text", b="text")
    table = EmbeddingTable(("good", "bad", "film"), np.eye(3, dtype=np.float32))
    features = fit_featurizer(pair, vectors=table, scale=False)
    u, v = np.array([[0.5, 0, 0.5], [0, 0.5, 0.5]]), np.array([[1.0, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(features.transform(pair), np.concatenate([u, v, abs(u - v), u * v], axis=1))
    joined = fit_featurizer(pair, vectors=table, scale=False, pairs="joined")
    np.testing.assert_allclose(joined.transform(pair)[0], [2 / 3, 0, 1 / 3])
    with pytest.raises(InputError, match="pairs='combined' needs two text columns"):
        fit_featurizer([pair, Task("one", texts("x", "y"), [0, 1])], pairs="combined", vectors=table)


def test_the_line_says_where_text_features_come_from() -> None:
    task = Task("t", texts("good film", "good bad", "film"), [0, 1, 1])
    assert fit_featurizer(task).found == ("text: TF-IDF of the 2 most frequent words",)
    assert "learned from scratch, as no word vectors are given" in fit_featurizer(task, form="tokens").found[0]


def test_forms_and_their_refusals() -> None:
    assert [form_of(t) for t in ("lstm", "cnn", "average", "mlp", "linear", object)] == ["tokens"] * 3 + ["dense"] * 3
    numbers = Task("n", np.eye(2), [0.5, 1.5])
    with pytest.raises(InputError, match=r"task 'n' has no text column .*and this trunk reads words"):
        fit_featurizer(numbers, form="tokens")
    with pytest.raises(InputError, match="an encoder gives one vector a text"):
        fit_featurizer(numbers, form="tokens", encoder="somewhere")
    with pytest.raises(InputError, match="form='sparse' is not known"):
        fit_featurizer(numbers, form="sparse")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="match='any' is not known"):
        fit_featurizer(numbers, match="any")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one task"):
        fit_featurizer([])


def test_texts_can_be_replaced_by_numbers_once_and_for_all() -> None:
    table = EmbeddingTable(("good", "bad"), np.array([[1, 0], [0, 1]], dtype=np.float32))
    column = texts("good", "bad", "good bad")
    shared = TaskSet.from_arrays(column, np.array([[0, 0.5], [1, 1.5], [1, 2.5]]), split=["train", "train", "test"])
    encoded = encode_texts(shared, table)
    assert encoded.has_shared_inputs
    np.testing.assert_array_equal(encoded[0].X, [[1, 0], [0, 1], [0.5, 0.5]])
    assert encoded[0].split is shared[0].split and encoded[0].classes == shared[0].classes
    mixed = Task("mixed", Table({"age": np.array([1.0, 2, 3]), "text": column}, {"text": "text"}), [0, 1, 1])
    assert encode_texts([mixed], table)[0].X.names == ("age", "mean[0]", "mean[1]")
    with pytest.raises(InputError, match="task 'n' has no text column"):
        encode_texts([Task("n", np.eye(2), [0.5, 1.5])], table)
