"""Temperatures of posteriors: sums over rows against minimisation over all of them."""

import naive
import numpy as np
import pytest
from scipy.special import softmax

from streamgda.models.calibration import (
    SHARPNESS,
    best_temperature,
    likelihood_at,
    likelihoods,
)


def rows_of(temperature, n_rows=400, n_classes=4, seed=0):
    """Scores of rows, whose classes are drawn from posteriors of a temperature, and weights."""
    rng = np.random.default_rng(seed)
    scores = 3 * temperature * rng.normal(size=(n_classes, n_rows))
    shares = softmax(scores / temperature, axis=0).cumsum(axis=0)
    truth = (rng.random(n_rows) > shares).sum(axis=0)
    return scores, np.minimum(truth, n_classes - 1), rng.random(n_rows)


@pytest.mark.parametrize("temperature", [0.2, 1.0, 7.0, 600.0])
def test_the_temperature_is_that_of_the_largest_likelihood(temperature):
    scores, truth, weights = rows_of(temperature)
    sums = likelihoods(scores, truth, weights)
    found = best_temperature(sums)
    assert found == pytest.approx(naive.temperature(scores.T, truth, weights), rel=1e-5)
    assert found == pytest.approx(temperature, rel=0.2)
    expected = naive.tempered_log_likelihood(scores.T, truth, weights, found)
    assert likelihood_at(sums, found) == pytest.approx(expected, rel=1e-7)


def test_sums_of_parts_are_sums_of_all_rows_and_do_not_depend_on_terms_of_a_row():
    scores, truth, weights = rows_of(3.0)
    whole = likelihoods(scores, truth, weights)
    parts = [
        likelihoods(scores[:, part] + 1e3, truth[part], weights[part])
        for part in (slice(0, 7), slice(7, None))
    ]
    np.testing.assert_allclose(sum(parts), whole, rtol=1e-9)


def test_sums_are_the_likelihood_and_its_derivatives_at_each_sharpness():
    scores, truth, weights = rows_of(1.0)
    steps = SHARPNESS[:, None] * (1 + 1e-2 * np.arange(-1, 2))
    likelihood = np.array(
        [
            [naive.tempered_log_likelihood(scores.T, truth, weights, 1 / b) for b in at]
            for at in steps
        ]
    )
    sums = likelihoods(scores, truth, weights)
    np.testing.assert_allclose(sums[0], likelihood[:, 1], rtol=1e-10)
    width = np.diff(steps, axis=1)[:, 0]
    slopes = np.diff(likelihood, axis=1) / width[:, None]
    np.testing.assert_allclose(sums[1], slopes.mean(axis=1), rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(sums[2], np.diff(slopes)[:, 0] / width, rtol=1e-2, atol=0.1)
    np.testing.assert_allclose(
        np.gradient(sums[2], SHARPNESS)[10:14], sums[3][10:14], rtol=0.1, atol=0.1
    )


def test_rows_without_a_possible_class_do_not_count():
    scores, truth, weights = rows_of(2.0)
    expected = likelihoods(scores, truth, weights)
    scores, truth = np.hstack([scores, scores[:, :1]]), np.append(truth, 1)
    scores[1, -1] = -np.inf
    np.testing.assert_allclose(likelihoods(scores, truth, np.append(weights, 1.0)), expected)
    scores[1, :] = -np.inf  # nor does a class that no row can have
    others = truth != 1
    few = likelihoods(
        np.delete(scores, 1, axis=0)[:, others],
        np.searchsorted([0, 2, 3], truth[others]),
        weights[others[:-1]],
    )
    np.testing.assert_allclose(likelihoods(scores, truth, np.append(weights, 1.0)), few)


@pytest.mark.parametrize(("right", "bound"), [(True, SHARPNESS[-1]), (False, SHARPNESS[0])])
def test_temperatures_stay_within_bounds(right, bound):
    scores = np.array([[9.0], [0.0]])
    sums = likelihoods(scores, np.array([0 if right else 1]), np.ones(1))
    assert best_temperature(sums) == 1 / bound
