"""The scikit-learn estimators: scikit-learn's own checks, missing labels, several tasks, warm starts."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from mtlens.errors import InputError, UnknownNameError
from mtlens.models import SharedNetClassifier, SharedNetRegressor


@pytest.mark.medium
@parametrize_with_checks([SharedNetRegressor(), SharedNetClassifier()])
def test_scikit_learns_checks(estimator, check) -> None:
    check(estimator)


def data(rows: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(seed)
    X = draws.normal(size=(rows, 4))
    return X, np.stack([X.sum(1), X[:, 0] - X[:, 1]], 1) + 0.05 * draws.normal(size=(rows, 2))


def test_missing_labels_are_left_out_and_columns_are_tasks() -> None:
    X, Y = data()
    Y[::2, 1] = np.nan
    model = SharedNetRegressor(random_state=0).fit(X, Y)
    assert model.predict(X).shape == (240, 2)
    assert model.score(X, Y) > 0.95
    assert model.n_outputs_ == 2
    assert model.task_names_ == ["task_0", "task_1"]


def test_a_missing_label_has_no_influence() -> None:
    X, Y = data(80)
    settings = {"random_state": 0, "validation": 0.0, "epochs": 5}
    Y[:40, 1] = np.nan
    one = SharedNetRegressor(**settings).fit(X, Y).predict(X)
    other = SharedNetRegressor(**settings).fit(X, Y.astype(object)).predict(X)
    assert np.array_equal(one, other)
    assert np.isfinite(one).all()


def test_classifier_of_several_tasks_with_texts_and_gaps_as_labels() -> None:
    X, Y = data()
    labels = np.empty((240, 2), dtype=object)
    labels[:, 0] = np.where(Y[:, 0] > 0, "up", "down")
    labels[:, 1] = np.digitize(Y[:, 1], [-1, 1])
    labels[:30, 1] = None
    model = SharedNetClassifier(random_state=0).fit(X, labels)
    two, three = model.predict_proba(X)
    assert two.shape == (240, 2)
    assert three.shape == (240, 3)
    assert np.allclose(three.sum(1), 1)
    assert [own.tolist() for own in model.classes_] == [["down", "up"], [0, 1, 2]]
    assert model.predict(X).shape == (240, 2)
    assert model.score(X, labels) > 0.85


def test_missing_labels_of_one_task() -> None:
    X, Y = data()
    y = (Y[:, 0] > 0).astype(float)
    y[:50] = np.nan
    model = SharedNetClassifier(random_state=0).fit(X, y)
    assert model.classes_.tolist() == [0, 1]
    assert set(model.predict(X)) <= {0, 1}


def test_warm_start_goes_on_and_cold_start_does_not() -> None:
    X, Y = data()
    model = SharedNetRegressor(epochs=3, lr=1e-3, warm_start=True, random_state=0)
    first = model.fit(X, Y).score(X, Y)
    second = model.fit(X, Y).score(X, Y)
    cold = clone(model).set_params(warm_start=False).fit(X, Y)
    again = cold.fit(X, Y).score(X, Y)
    assert second > first == again


def test_random_state_settles_everything() -> None:
    X, Y = data(60)
    settings = {"epochs": 3}
    one = SharedNetRegressor(random_state=3, **settings).fit(X, Y).predict(X)
    assert np.array_equal(one, SharedNetRegressor(random_state=3, **settings).fit(X, Y).predict(X))
    assert not np.array_equal(one, SharedNetRegressor(random_state=4, **settings).fit(X, Y).predict(X))
    drawn = SharedNetRegressor(random_state=np.random.RandomState(3), **settings).fit(X, Y)
    assert np.isfinite(drawn.predict(X)).all()


def test_copies_and_searches_work_and_carry_no_data() -> None:
    X, Y = data(60)
    model = SharedNetRegressor(epochs=3, random_state=0).fit(X, Y)
    body = pickle.dumps(model)
    assert np.array_equal(pickle.loads(body).predict(X), model.predict(X))
    larger = SharedNetRegressor(epochs=3, random_state=0).fit(np.tile(X, (50, 1)), np.tile(Y, (50, 1)))
    assert len(pickle.dumps(larger)) < len(body) + 2000
    search = GridSearchCV(SharedNetRegressor(epochs=3, random_state=0), {"capacity": [2, 8]}, cv=2).fit(X, Y)
    assert search.best_params_["capacity"] in (2, 8)


def test_texts_go_to_text_trunks() -> None:
    texts = ["good film", "bad film", "", "very good", "very bad", "good"] * 10
    y = np.array([1, 0, 0, 1, 0, 1] * 10)
    model = SharedNetClassifier(trunk="average", capacity=8, epochs=20, validation=0, random_state=0).fit(texts, y)
    assert model.predict(["good", "bad"]).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"validation": 1.0}, np.zeros(10), "0 <= validation < 1"),
        ({}, np.full(10, np.nan), "no row has a label"),
        ({}, np.zeros((10, 0)), "rows, tasks"),
        ({"lr": -1.0}, np.arange(10.0), "lr=-1.0"),
        ({"random_state": -1}, np.arange(10.0), "random_state=-1"),
        ({"align": "sometimes"}, np.arange(10.0), "no align named 'sometimes'"),
    ],
)
def test_bad_settings_and_labels_are_refused(settings: dict[str, object], y: np.ndarray, message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        SharedNetRegressor(**settings).fit(np.random.default_rng(0).normal(size=(10, 2)), y)


def test_one_class_and_numbers_are_no_classes() -> None:
    X = np.random.default_rng(0).normal(size=(10, 2))
    with pytest.raises(InputError, match="one class, 3"):
        SharedNetClassifier().fit(X, np.full(10, 3))
    with pytest.raises(InputError, match="Unknown label type: continuous"):
        SharedNetClassifier().fit(X, np.linspace(0, 1, 10))
