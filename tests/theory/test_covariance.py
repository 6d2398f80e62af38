from __future__ import annotations

import laws
import numpy as np
import pytest
import torch
import twins
from hypothesis import given
from laws import QUICK, SCALES, random_tasks, seeds, shapes

from mtlens import Gram, MtlensError, Task, TaskSet, condition_number, covariance_similarity, similarity_matrix
from mtlens.theory import covariance

SCORES = {
    "raw": covariance_similarity,
    "normalised": lambda a, b: covariance_similarity(a, b, normalised=True),
    "half": lambda a, b: covariance_similarity(a, b, energy=0.5),
}


@pytest.mark.parametrize("name", SCORES)
@QUICK
@given(shape=shapes(tasks=2), seed=seeds())
def test_laws_of_the_score(name: str, shape: tuple[list[int], int], seed: int) -> None:
    (X1, X2), _ = random_tasks(seed, *shape)
    score = SCORES[name]
    laws.assert_symmetric(score, X1, X2)
    laws.assert_scale_invariant(score, X1, X2, SCALES)
    laws.assert_row_rotation_invariant(score, X1, X2, seed)
    laws.assert_common_rotation_invariant(score, X1, X2, seed)
    assert 0 <= score(X1, X2) <= 1 + 1e-12


@QUICK
@given(shape=shapes(tasks=2), seed=seeds())
def test_equals_the_slow_twin(shape: tuple[list[int], int], seed: int) -> None:
    (X1, X2), _ = random_tasks(seed, *shape, spread=1.0)
    for options in ({}, {"energy": 0.6}, {"normalised": True}, {"energy": 1.0}):
        np.testing.assert_allclose(covariance_similarity(X1, X2, **options), twins.score(X1, X2, **options), atol=1e-10)


def test_centred_equals_the_slow_twin() -> None:
    (X1, X2), _ = random_tasks(3, [20, 30], 5)
    X1, X2 = X1 + 7.0, X2 + 7.0
    centred = covariance_similarity(X1, X2, center=True)
    np.testing.assert_allclose(centred, twins.score(X1, X2, center=True), rtol=1e-10)
    assert covariance_similarity(X1, X2) > 0.95 > centred  # a shared mean dominates the printed score


def test_score_of_a_task_with_itself_is_not_one() -> None:
    X = np.diag([3.0, 2.0, 1.0])
    spectrum = np.array([9.0, 4.0, 1.0])
    np.testing.assert_allclose(covariance_similarity(X, X), np.linalg.norm(spectrum) / spectrum.sum(), rtol=1e-14)
    np.testing.assert_allclose(covariance_similarity(X, X, normalised=True), 1.0, rtol=1e-14)
    concentrated = np.diag([3.0, 0.1, 0.1])
    assert covariance_similarity(X, concentrated) > covariance_similarity(X, X)


def test_separate_column_rotations_change_the_score() -> None:
    X = np.diag([3.0, 1.0])
    assert abs(covariance_similarity(X, X @ laws.rotation(0, 2)) - covariance_similarity(X, X)) > 0.01


def test_energy_is_counted_on_eigenvalues_with_slack() -> None:
    X = np.diag(np.sqrt([99.0, 1.0]))  # the first eigenvalue is exactly 99 %: it alone is kept
    other = np.diag([0.0, 1.0])
    assert covariance_similarity(X, other) == 0.0
    assert covariance_similarity(X, other, energy=0.991) > 0


def test_disjoint_subspaces_score_zero_to_rounding() -> None:
    R = laws.rotation(1, 8)
    X1, X2 = (np.random.default_rng(i).standard_normal((30, 4)) for i in range(2))
    pair = [np.hstack([X1, 0 * X1]) @ R, np.hstack([0 * X2, X2]) @ R]
    assert covariance_similarity(*pair) < 1e-14
    assert similarity_matrix(pair)[0, 1] < 1e-14


def test_rank_deficient_and_one_row() -> None:
    X = np.outer(np.arange(1.0, 6.0), [1.0, 2.0, 0.0])
    np.testing.assert_allclose(covariance_similarity(X, X[:1]), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("X1", "X2", "options", "text"),
    [
        (np.zeros((3, 2)), np.eye(2), {}, "X1 has only zeros.*0/0"),
        (np.eye(2), np.ones((4, 2)), {"center": True}, "X2 has only zeros.*centring"),
        (np.ones((3, 2)), np.ones((3, 4)), {}, "'X1' has 2 columns, task 'X2' has 4"),
        (np.array([[1.0], [np.nan]]), np.eye(1), {}, "1 of 2 rows of X are not finite .first at row 1"),
        (np.ones(3), np.eye(2), {}, r"found shape \(3,\)"),
        (np.eye(2), np.eye(2), {"energy": 0.0}, "0 < energy <= 1, found energy=0.0"),
        (np.eye(2), np.eye(2), {"energy": 99}, "found energy=99"),
    ],
)
def test_refusals(X1: object, X2: object, options: dict[str, object], text: str) -> None:
    with pytest.raises(MtlensError, match=text):
        covariance_similarity(X1, X2, **options)
    with pytest.raises(ValueError, match=text):
        covariance_similarity(torch.as_tensor(X1), torch.as_tensor(X2), **options)


@pytest.mark.parametrize("options", [{}, {"normalised": True}, {"center": True}, {"energy": 0.7}])
@pytest.mark.parametrize("rows", [(9, 12), (3, 12)])
def test_gradients(options: dict[str, object], rows: tuple[int, int]) -> None:
    (X1, X2), _ = random_tasks(5, list(rows), 5)
    first, second = (torch.tensor(X, requires_grad=True) for X in (X1, X2))
    value = covariance_similarity(first, second, **options)
    assert value.dtype == torch.float64 and value.ndim == 0
    np.testing.assert_allclose(value.item(), covariance_similarity(X1, X2, **options), rtol=1e-10)
    assert torch.autograd.gradcheck(lambda a, b: covariance_similarity(a, b, **options), (first, second))


def test_gradient_survives_equal_eigenvalues_and_no_overlap() -> None:
    X = torch.eye(3, dtype=torch.float64, requires_grad=True)
    covariance_similarity(X, torch.diag(torch.tensor([1.0, 2.0, 3.0]))).backward()
    assert torch.isfinite(X.grad).all() and X.grad.abs().max() > 0
    left = torch.tensor([[1.0, 0.0]], requires_grad=True)
    covariance_similarity(left, torch.tensor([[0.0, 1.0]])).backward()
    assert torch.equal(left.grad, torch.zeros_like(left))


def test_float32_tensors_become_float64() -> None:
    X = torch.arange(6.0).reshape(3, 2)
    np.testing.assert_allclose(
        covariance_similarity(X, X).item(), covariance_similarity(X.double().numpy(), X.double().numpy()), rtol=1e-12
    )


@pytest.mark.parametrize("options", [{}, {"normalised": True}, {"center": True}])
def test_matrix_equals_pairs(options: dict[str, object]) -> None:
    Xs, _ = random_tasks(7, [3, 9, 20, 12], 6, spread=1.0)
    scores = similarity_matrix(Xs, **options)
    pairs = [[covariance_similarity(a, b, **options) for b in Xs] for a in Xs]
    np.testing.assert_allclose(scores, pairs, rtol=1e-12)
    from_grams = similarity_matrix([Gram().update(X) for X in Xs], **options)
    np.testing.assert_allclose(from_grams, pairs, rtol=1e-9)
    tensors = similarity_matrix([torch.as_tensor(X) for X in Xs], **options)
    assert isinstance(tensors, torch.Tensor)
    np.testing.assert_allclose(tensors.numpy(), pairs, rtol=1e-12)


def test_matrix_of_a_task_set_uses_labelled_rows_and_names() -> None:
    (X1, X2), _ = random_tasks(8, [6, 7], 3)
    labels = np.array([0.5, np.nan, 1.5, 2.5, 3.5, 4.5])
    tasks = TaskSet([Task("a", X1, labels), Task("b", X2, np.arange(7.0) / 3)])
    expected = covariance_similarity(X1[~np.isnan(labels)], X2)
    np.testing.assert_allclose(similarity_matrix(tasks)[0, 1], expected, rtol=1e-12)
    with pytest.raises(MtlensError, match="task 'wide' has 4"):
        similarity_matrix([*tasks, Task("wide", np.ones((2, 4)), [0.5, 1.5])])
    with pytest.raises(MtlensError, match="task 'words' has raw inputs"):
        similarity_matrix([Task("words", ["a", "b"], [0.5, 1.5])])
    with pytest.raises(MtlensError, match="found none"):
        similarity_matrix([])
    assert similarity_matrix([X1]).shape == (1, 1)


def test_condition_number() -> None:
    with pytest.raises(MtlensError, match="a Gram holds the square"):
        condition_number(Gram().update(np.eye(2)))
    X, _ = random_tasks(9, [5], 3)
    np.testing.assert_allclose(condition_number(X[0]), np.linalg.cond(X[0]), rtol=1e-12)
    np.testing.assert_allclose(condition_number(X[0].T), np.linalg.cond(X[0]), rtol=1e-12)  # min(m, d)-th value
    assert condition_number(np.diag([1.0, 0.0])) == np.inf
    X_t = torch.tensor(X[0], requires_grad=True)
    assert torch.autograd.gradcheck(condition_number, (X_t,))
    with pytest.raises(MtlensError, match="every entry of X is zero"):
        condition_number(np.zeros((2, 2)))


def test_wide_inputs_never_build_the_square_matrix() -> None:
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((5, 400))
    spectrum = covariance._spectrum(wide, 0.99, False, "here")
    assert spectrum.factor.shape == (400, 5)
    np.testing.assert_allclose(covariance_similarity(wide, wide[:3]), twins.score(wide, wide[:3]), rtol=1e-10)
