from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from laws import QUICK, random_tasks, seeds
from sklearn.linear_model import Ridge

from mtlens import Gram, MtlensError, covariance_similarity


def labelled(seed: int, rows: int = 40, width: int = 4, labels: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, width)) + 1.0, rng.standard_normal((rows, labels))


@QUICK
@given(seed=seeds())
def test_any_cut_into_batches_gives_the_same_sums(seed: int) -> None:
    X, Y = labelled(seed)
    cuts = np.sort(np.random.default_rng(seed).integers(0, 40, 3))
    whole = Gram().update(X, Y)
    pieces = Gram.from_batches(zip(np.split(X, cuts), np.split(Y, cuts), strict=True))
    halves = Gram().update(X[:13], Y[:13]).merge(Gram().update(X[13:], Y[13:]))
    for gram in (pieces, halves):
        assert gram.rows == 40
        for name in ("matrix", "xy", "yy", "x_sum", "y_sum"):
            np.testing.assert_allclose(getattr(gram, name), getattr(whole, name), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(whole.matrix, X.T @ X, rtol=1e-12)
    np.testing.assert_allclose(whole.xy, X.T @ Y, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(whole.covariance(center=True), 40 * np.cov(X.T, bias=True), rtol=1e-10)


def test_folds_add_up_and_leave_out() -> None:
    X, Y = labelled(1)
    fold = np.random.default_rng(0).integers(0, 4, 40)
    gram = Gram(folds=4).update(X[:25], Y[:25], fold=fold[:25]).update(X[25:], Y[25:], fold=fold[25:])
    for f in range(4):
        np.testing.assert_allclose(gram.fold(f).matrix, X[fold == f].T @ X[fold == f], rtol=1e-12)
        np.testing.assert_allclose(gram.without(f).xy, X[fold != f].T @ Y[fold != f], rtol=1e-12, atol=1e-12)
        assert gram.without(f).rows == (fold != f).sum()
    assert Gram(folds=4).update(X).counts.tolist() == [10, 10, 10, 10]


@pytest.mark.parametrize("center", [False, True])
def test_ridge_equals_scikit_learn(center: bool) -> None:
    X, Y = labelled(2)
    gram = Gram().update(X, Y)
    coef = gram.ridge(0.7, center=center)
    reference = Ridge(alpha=0.7, fit_intercept=center).fit(X, Y)
    np.testing.assert_allclose(coef, reference.coef_.T, rtol=1e-9)
    if not center:
        np.testing.assert_allclose(gram.loss(coef), ((X @ coef - Y) ** 2).sum(axis=0), rtol=1e-10)
    deficient = Gram().update(np.outer(X[:, 0], [1.0, 1.0]), Y)
    np.testing.assert_allclose(deficient.ridge(), np.linalg.pinv(np.outer(X[:, 0], [1.0, 1.0])) @ Y, atol=1e-12)


def test_float32_blocks_agree_with_float64() -> None:
    rng = np.random.default_rng(3)
    X = (rng.standard_normal((20_000, 30)) * np.linspace(0.1, 3, 30)).astype(np.float32)
    other = rng.standard_normal((500, 30)).astype(np.float32)
    gram = Gram().update(X)
    exact = X.astype(np.float64).T @ X.astype(np.float64)
    assert gram.matrix.dtype == np.float64
    assert np.abs(gram.matrix - exact).max() < 1e-6 * np.abs(exact).max()
    np.testing.assert_allclose(
        covariance_similarity(gram, Gram().update(other)), covariance_similarity(X, other), atol=1e-8
    )


def test_float32_out_of_its_square_range_is_multiplied_in_float64() -> None:
    for scale in (1e-30, 1e25):
        X = (np.eye(3) * scale).astype(np.float32)
        np.testing.assert_allclose(Gram().update(X).matrix, np.eye(3) * scale**2, rtol=1e-6)


def test_similarity_from_a_gram_equals_rows() -> None:
    Xs, _ = random_tasks(4, [30, 5], 6)
    grams = [Gram().update(X) for X in Xs]
    for options in ({}, {"center": True}, {"normalised": True}):
        reference = covariance_similarity(*Xs, **options)
        np.testing.assert_allclose(covariance_similarity(*grams, **options), reference, rtol=1e-10)
        np.testing.assert_allclose(covariance_similarity(grams[0], Xs[1], **options), reference, rtol=1e-10)
        mixed = covariance_similarity(grams[0], torch.as_tensor(Xs[1]), **options)
        np.testing.assert_allclose(mixed.item(), reference, rtol=1e-10)


def test_tensors_and_arrays_protocol() -> None:
    gram = Gram(2).update(torch.tensor([[1.0, 2.0]]), torch.tensor([3.0]))
    assert np.asarray(gram).tolist() == [[1.0, 2.0], [2.0, 4.0]] and gram.xy.tolist() == [[3.0], [6.0]]
    assert repr(gram) == "Gram(1 rows, 2 features, 1 label columns, 1 folds)"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Gram().matrix, "seen no rows"),
        (lambda: Gram().update(np.eye(2)).xy, "seen no labels"),
        (lambda: Gram(3).update(np.eye(2)), "holds 3 columns, found rows of 2"),
        (lambda: Gram().update(np.eye(2)).merge(Gram().update(np.eye(3))), "found a Gram of 3"),
        (lambda: Gram(folds=2).merge(Gram(2, folds=3)), "equal folds, found 2 and 3"),
        (lambda: Gram().update(np.eye(2)).update(np.eye(2), [1, 2]), "some without"),
        (lambda: Gram().update(np.eye(2)).merge(Gram().update(np.eye(2), [1, 2])), "Give both labels"),
        (lambda: Gram().update(np.eye(2), [1.0, np.nan]), "label of row 1 is missing"),
        (lambda: Gram().update(np.array([[1.0], [np.inf]])), "first at row 1"),
        (lambda: Gram().update(np.ones(3)), r"found shape \(3,\)"),
        (lambda: Gram().update(np.eye(2), [1.0]), "one label a row"),
        (lambda: Gram(folds=2).update(np.eye(2), fold=2), "folds run from 0 to 1, found 2"),
        (lambda: Gram(folds=2).update(np.eye(2), fold=[0.5, 1]), "one whole fold"),
        (lambda: Gram(folds=0), "at least one fold"),
        (lambda: Gram.from_batches([]), "found no batch"),
        (lambda: Gram.from_batches(None), "batches to go through, found NoneType"),  # type: ignore[arg-type]
        (lambda: Gram.from_batches([[]]), r"rows and columns, found shape \(0,\)"),
        (lambda: Gram(width=-1), "at least one feature, found width=-1"),
        (lambda: Gram(2, folds=2).fold(2), "folds run from 0 to 1, found 2"),
        (lambda: Gram(2, folds=2).without(-1), "folds run from 0 to 1, found -1"),
        (lambda: Gram().update(np.eye(2), [1, 2]).ridge(-1.0), "one finite ridge >= 0, found ridge=-1.0"),
        (lambda: Gram().update(np.eye(2), [1, 2]).loss([1.0, 2.0, 3.0]), r"shape \(2, 1\), found \(3, 1\)"),
        (lambda: covariance_similarity(Gram(2), np.eye(2), center=True), "only zeros"),
        (lambda: Gram().update(np.eye(2), np.eye(2)).update(np.eye(2), [1, 2]), "holds 2 label columns, found 1"),
    ],
)
def test_refusals(call: object, text: str) -> None:
    with pytest.raises(MtlensError, match=text):
        call()


def test_merge_of_nothing_changes_nothing() -> None:
    gram = Gram().update(np.eye(2))
    assert gram.merge(Gram()).matrix.tolist() == np.eye(2).tolist()
    assert Gram().merge(gram).rows == 2


def test_merge_refuses_rows() -> None:
    with pytest.raises(MtlensError, match="needs another Gram, found ndarray"):
        Gram().update(np.eye(2)).merge(np.eye(2))  # type: ignore[arg-type]
