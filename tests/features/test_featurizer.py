"""Tables to floats: every column kind, no leaks, exact save and load."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from mtlens.errors import FileError, InputError, UnknownNameError
from mtlens.features import Featurizer, State, TfIdf, fit_featurizer, load_state, restore, save_state
from mtlens.tasks import Table, Task


def random_table(rng: np.random.Generator, rows: int) -> Table:
    """Numbers with gaps and constants, categories with rare and missing values, texts with empty ones."""

    def objects(choices: list[Any], p: list[float] | None = None) -> np.ndarray:
        return np.array([choices[i] for i in rng.choice(len(choices), rows, p=p)], dtype=object)

    columns = {
        "plain": rng.normal(3, 10, rows),
        "holed": np.where(rng.random(rows) < 0.3, np.nan, rng.exponential(size=rows)),
        "still": np.full(rows, 7.0),
        "void": np.full(rows, np.nan),
        "city": objects(["Rome", "Oslo", None, "Bern"], [0.5, 0.3, 0.1, 0.1]),
        "text": objects(["a good film", "a bad film", "", "good", None]),
    }
    return Table(columns, {"text": "text"})


def test_numbers_equal_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(5, 3, (200, 90)).astype(np.float32).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    train = np.arange(0, 200, 2)
    features = Featurizer().fit(X, rows=train)
    got = features.transform(X)
    filled = SimpleImputer(strategy="median").fit(X[train])
    wanted = StandardScaler().fit(filled.transform(X[train])).transform(filled.transform(X))
    np.testing.assert_allclose(got[:, :90], wanted, atol=1e-12)
    marks = np.isnan(X)[:, np.isnan(X[train]).any(axis=0)]
    np.testing.assert_allclose(got[:, 90:], marks - marks[train].mean(axis=0), atol=1e-12)
    assert features.names[90] == "x0 is missing"
    assert "missing values become the train median, with an indicator column each: x0 (" in features.found[0]


def test_a_gap_in_a_column_without_gaps_in_training_becomes_the_train_median() -> None:
    X = np.array([[10.0, 5.0], [12.0, 1.0], [11.0, 2.0], [19.0, 4.0], [np.nan, np.nan]])
    got = Featurizer(scale=False).fit(X, rows=np.arange(4)).transform(X)
    np.testing.assert_array_equal(got[4], np.median(X[:4], axis=0))


def test_train_rows_are_indices_or_a_mask() -> None:
    X = np.random.default_rng(2).normal(size=(20, 3))
    mask = np.arange(20) % 3 == 1
    by_mask, by_index = (Featurizer().fit(X, rows=rows).state().digest() for rows in (mask, np.flatnonzero(mask)))
    assert by_mask == by_index
    for wrong in ([0, 20], [True, False], [[0], [1]], ["a"], [0.5]):
        with pytest.raises(InputError, match="this input has 20 rows, but the rows asked for are"):
            Featurizer().fit(X, rows=wrong)
    with pytest.raises(UnknownNameError, match="no task named 'b' in the train rows given"):
        fit_featurizer(Task("b", X, X[:, 0]), rows={"a": [0, 1]})


def test_categories_equal_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    column = np.array([f"c{i}" for i in rng.integers(12, size=300)], dtype=object)
    features = Featurizer(scale=False).fit({"c": column[:100]})
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(column[:100, None])
    unseen = np.array([*column[:50], "never", None], dtype=object)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # scikit-learn says that it met unseen categories
        wanted = encoder.transform(unseen[:, None])
    np.testing.assert_array_equal(features.transform({"c": unseen}), wanted)
    assert features.names == tuple(f"c={c}" for c in encoder.categories_[0])


def test_rare_categories_share_a_column_and_the_unseen_join_them() -> None:
    column = np.array(["a"] * 5 + ["b"] * 3 + ["c", "d"], dtype=object)
    features = Featurizer(scale=False, max_categories=2).fit({"c": column})
    assert features.names == ("c=a", "c=b", "c=(other)")
    got = features.transform({"c": np.array(["a", "d", "never"], dtype=object)})
    assert got.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1]]
    assert features.found == ("c: its 2 rarest of 4 categories share one column",)


def test_a_mixed_table() -> None:
    table = random_table(np.random.default_rng(2), 60)
    features = Featurizer().fit(table)
    X = features.transform(table)
    assert X.shape == (60, features.width) == (60, len(features.names))
    assert features.names[:3] == ("plain", "holed", "holed is missing")
    assert "dropped, as they never vary on train rows: still, void" in features.found
    assert any(line.startswith("text: TF-IDF of the ") for line in features.found)
    assert np.isfinite(X).all()
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-12)
    assert features.transform(table, dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames_and_extra_columns(frame: Any) -> None:
    features = Featurizer().fit(frame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", None]}))
    got = features.transform(frame({"b": ["x"], "extra": ["?"], "a": [2]}))
    assert got.round(3).tolist() == [[0.0, -0.333, 0.667, -0.333]]


def test_whole_numbers_and_texts_that_mean_the_same_category_agree() -> None:
    features = Featurizer(scale=False).fit({"c": np.array(["1", "2", "L"], dtype=object)})
    assert features.transform({"c": np.array([2.0, 1.0])}).tolist() == [[0, 1, 0], [1, 0, 0]]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(4, 40))
def test_changing_test_rows_never_changes_what_train_rows_become(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    table, other = random_table(rng, rows), random_table(rng, rows)
    train = np.sort(rng.choice(rows, rows // 2, replace=False))
    changed = Table(
        {n: np.where(np.isin(np.arange(rows), train), table[n], other[n]) for n in table.names}, table.kinds
    )
    try:
        first = Featurizer(text=TfIdf(min_texts=1)).fit(table, rows=train)
    except InputError as error:  # no train text holds a word, whatever the test rows hold
        assert "TF-IDF" in str(error)
        return
    second = Featurizer(text=TfIdf(min_texts=1)).fit(changed, rows=train)
    assert first.names == second.names
    np.testing.assert_array_equal(first.transform(table)[train], second.transform(changed)[train])
    assert first.state().digest() == second.state().digest()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_saved_featurizer_does_the_same(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = np.random.default_rng(seed)
    table = random_table(rng, 20)
    features = Featurizer(max_categories=2, text=TfIdf(min_texts=1)).fit(table, rows=np.arange(15))
    folder = tmp_path_factory.mktemp("state") / "inner"
    save_state(folder, features.state())
    again = restore(load_state(folder))
    np.testing.assert_array_equal(again.transform(table), features.transform(table))
    assert (again.names, again.found) == (features.names, features.found)
    assert again.state().digest() == features.state().digest()
    assert sorted(p.name for p in folder.iterdir()) == ["features.json", "features.safetensors"]


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1e8, 1e200, 1e300])
def test_numbers_of_any_size_become_standard(scale: float) -> None:
    x = np.random.default_rng(3).normal(size=(50, 1)) * scale
    got = Featurizer().fit(x).transform(x)
    np.testing.assert_allclose([got.mean(), got.std()], [0, 1], atol=1e-9)


def test_nearly_constant_columns_are_dropped_and_offsets_are_not() -> None:
    x = np.full(10, 0.1)
    x[3] = np.nextafter(0.1, 1)
    shifted = 1e6 + np.arange(10.0)
    features = Featurizer().fit({"rounded": x, "shifted": shifted})
    assert features.names == ("shifted",)


def test_images_pass_through_and_arrays_can_keep_their_width() -> None:
    images = np.random.default_rng(4).random((5, 3, 8, 8)).astype(np.float32)
    features = Featurizer().fit(images)
    assert features.transform(images) is images or np.shares_memory(
        features.transform(images, dtype=np.float32), images
    )
    assert features.width == 3 * 8 * 8
    again = Featurizer.from_state(features.state())
    np.testing.assert_array_equal(again.transform(images), images)
    with pytest.raises(InputError, match=r"rows have shape \(3, 8, 9\), these features were fitted on \(3, 8, 8\)"):
        features.transform(np.zeros((2, 3, 8, 9)))
    with pytest.raises(InputError, match="rank 4 pass through and must not hold NaN"):
        features.transform(np.full((2, 3, 8, 8), np.nan))
    X = np.array([[1.0, 2.0, np.nan], [1.0, 3.0, np.nan]])
    kept = Featurizer(drop_constant=False, indicators=False).fit(X)
    assert kept.transform(X).tolist() == [[0, -1, 0], [0, 1, 0]]


def test_infinity_is_refused_wherever_it_is() -> None:
    good = np.array([[1.0, 2.0], [3.0, 5.0]])
    features = Featurizer().fit(good)
    for X in (np.array([[1.0, np.inf]]), {"x0": [1.0], "x1": [-np.inf]}):
        with pytest.raises(InputError, match="infin"):
            features.transform(X)
    hidden = Task("t", good, [0.0, 1.5])
    hidden.X = np.array([[1.0, np.nan], [np.inf, -np.inf]])
    with pytest.raises(InputError, match="task 't', column 'x0': row 1 holds infinity"):
        Featurizer().fit(hidden)


def test_bad_input_is_refused() -> None:
    features = Featurizer().fit({"a": [1.0, 2.0], "b": [1.0, 3.0]})
    with pytest.raises(InputError, match=r"lacks 1 of the 2 columns these features were fitted on: b. It has: a, c"):
        features.transform({"a": [1.0], "c": [1.0]})
    with pytest.raises(InputError, match="column 'a' holds 'x', but the features were fitted on numbers"):
        features.transform({"a": ["x"], "b": [1.0]})
    with pytest.raises(InputError, match=r"lacks 2 of the 2 columns .*: a, b. It has: x0"):
        features.transform(np.ones((2, 1)))
    with pytest.raises(InputError, match="none of its 2 columns varies on train rows"):
        Featurizer().fit({"a": [1.0, 1.0], "b": ["x", "x"]})
    with pytest.raises(InputError, match="no train rows"):
        Featurizer().fit({"a": [1.0, 2.0]}, rows=[])
    with pytest.raises(InputError, match="not fitted"):
        Featurizer().transform({"a": [1.0]})
    with pytest.raises(InputError, match="max_categories must be at least 1"):
        Featurizer(max_categories=0)


def test_a_missing_or_damaged_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="holds no readable features"):
        load_state(tmp_path)
    save_state(tmp_path, Featurizer().fit(np.eye(2)).state())
    (tmp_path / "features.safetensors").write_bytes(b"rubbish")
    with pytest.raises(FileError, match="holds no readable features"):
        load_state(tmp_path)
    state = Featurizer().fit(np.eye(2)).state()
    state.meta["class"] = "os.system"
    with pytest.raises(InputError, match=r"saved features are of class 'os.system'"):
        restore(state)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write features"):
        save_state(tmp_path / "file", state)


def test_nameless_arrays_of_another_width_are_refused() -> None:
    X = np.random.default_rng(3).normal(size=(20, 3))
    features = Featurizer().fit(X)
    with pytest.raises(InputError, match="4 columns without names, but these features were fitted on 3"):
        features.transform(np.zeros((2, 4)))
    named = {"x0": X[:, 0], "x1": X[:, 1], "x2": X[:, 2], "more": X[:, 0]}
    np.testing.assert_array_equal(features.transform(named), features.transform(X))
    wide = Task("wide", np.c_[X, X[:, 0]], X[:, 0])
    common = fit_featurizer([Task("narrow", X, X[:, 0]), wide], match="common")
    assert common.transform(wide).shape == (20, 3)


def test_a_damaged_state_is_refused() -> None:
    whole = Featurizer().fit(np.eye(3)).state()
    for lost in ("settings", "blocks", "block_0"):
        meta = {name: value for name, value in whole.meta.items() if name != lost}
        with pytest.raises(InputError, match="saved features are incomplete"):
            restore(State(whole.arrays, meta))
    with pytest.raises(InputError, match="saved features are incomplete"):
        restore(State({}, whole.meta))
