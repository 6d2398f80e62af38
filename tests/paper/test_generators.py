"""The synthetic tasks obey the laws that their docstrings state."""

from __future__ import annotations

import numpy as np
import pytest

from mtlens.errors import InputError
from mtlens.paper.generators import (
    Inputs,
    cosine_of_mix,
    draw_task,
    labels,
    mixed_frame,
    models_at,
    orthogonal_frames,
    rotation,
    signal_sd,
    stream,
    stretched,
)


def test_rotations_are_orthonormal_and_uniform() -> None:
    q = rotation(stream(0, "q"), 30)
    np.testing.assert_allclose(q.T @ q, np.eye(30), atol=1e-12)
    many = np.array([rotation(stream(i, "q"), 3)[0, 0] for i in range(2000)])
    assert abs(many.mean()) < 0.06 and abs(np.mean(many**2) - 1 / 3) < 0.03


@pytest.mark.parametrize("cosine", [-1.0, 0.0, 0.5, 0.96, 1.0])
def test_models_have_exactly_the_cosine(cosine: float) -> None:
    a, b = models_at(stream(1, "m"), 20, cosine)
    assert a @ b == pytest.approx(cosine, abs=1e-12)
    assert (a @ a, b @ b) == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize("form", ["R D Q^T", "R Q D"])
def test_rows_have_the_stated_covariance(form: str) -> None:
    inputs = stretched(stream(2, "c"), 6, kappa=5.0, strong=2, block=1, form=form)  # type: ignore[arg-type]
    X = inputs.rows(stream(2, "x"), 200_000)
    np.testing.assert_allclose(X.T @ X / len(X), inputs.covariance, atol=0.35)
    eigenvalues = np.linalg.eigvalsh(inputs.covariance)
    np.testing.assert_allclose(eigenvalues, [1, 1, 1, 1, 25, 25])


def test_as_printed_the_rotation_does_nothing() -> None:
    first, second = (Inputs(np.arange(1.0, 5.0), rotation(stream(i, "r"), 4), "R Q D") for i in range(2))
    np.testing.assert_array_equal(first.covariance, second.covariance)
    turned = [Inputs(np.arange(1.0, 5.0), rotation(stream(i, "r"), 4)).covariance for i in range(2)]
    assert np.abs(turned[0] - turned[1]).max() > 0.5


def test_blocks_are_disjoint_and_must_fit() -> None:
    scales = [stretched(stream(0, "b"), 10, kappa=9.0, strong=3, block=b).scales > 1 for b in range(3)]
    assert (np.sum(scales, axis=0) <= 1).all() and np.sum(scales) == 9
    with pytest.raises(InputError, match="block 3 of 3 coordinates does not fit into d = 10"):
        stretched(stream(0, "b"), 10, kappa=9.0, strong=3, block=3)


def test_fewer_rows_are_the_first_rows() -> None:
    inputs = stretched(stream(3, "n"), 5, kappa=2.0, strong=1, block=0)
    theta = models_at(stream(3, "m"), 5, 0.0)[0]
    long, short = (draw_task(3, "t", inputs, theta, rows, noise=1.0) for rows in (50, 7))
    for a, b in zip(long, short, strict=True):
        np.testing.assert_array_equal(a[:7], b)


def test_streams_depend_on_names_only() -> None:
    assert stream(0, "a", 1).random() == stream(0, "a", 1).random()
    assert len({stream(s, n).random() for s in range(3) for n in ("a", "b")}) == 6


@pytest.mark.parametrize("link", ["linear", "relu"])
def test_noise_is_in_sd_of_the_signal(link: str) -> None:
    inputs = stretched(stream(4, "q"), 8, kappa=10.0, strong=2, block=0)
    theta = models_at(stream(4, "m"), 8, 0.0)[0]
    _, y, signal = draw_task(4, "t", inputs, theta, 100_000, noise=2.0, link=link)  # type: ignore[arg-type]
    assert signal.std() == pytest.approx(signal_sd(inputs, theta, link), rel=0.02)  # type: ignore[arg-type]
    assert (y - signal).std() == pytest.approx(2 * signal.std(), rel=0.02)


def test_logistic_labels_threshold_the_noisy_signal() -> None:
    assert labels(np.array([1.0, 1.0, -1.0]), np.array([0.0, -2.0, 0.5]), "logistic").tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8, 1.0])
def test_mixed_frames_have_the_corrected_cosine(alpha: float) -> None:
    frame, other = orthogonal_frames(stream(5, "f"), 40, 6)
    mixed = mixed_frame(frame, other, alpha)
    np.testing.assert_allclose(mixed.T @ mixed, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(frame.T @ mixed, cosine_of_mix(alpha) * np.eye(6), atol=1e-12)


def test_frames_need_room() -> None:
    with pytest.raises(InputError, match="two orthogonal frames of rank 6 need d >= 12, found d = 10"):
        orthogonal_frames(stream(0, "f"), 10, 6)
