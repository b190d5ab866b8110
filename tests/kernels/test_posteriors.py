"""Probabilities of classes from their scores."""

import naive
import numpy as np
import pytest

from streamgda.kernels.posteriors import log_sums, posteriors

# Far apart, equal, beyond the range of exp(), impossible for one class, impossible for all.
SCORES = np.array(
    [
        [0.0, -1.0, 2.0],
        [3.0, 3.0, 3.0],
        [-1e5, -1e5 - 1, -2e5],
        [800.0, 0.0, 801.0],
        [-np.inf, 0.0, -1.0],
        [-np.inf, -np.inf, -np.inf],
    ]
)


def found(scores, scale=1.0, logarithmic=False):
    out = np.full(scores.shape, np.nan)
    posteriors(np.ascontiguousarray(scores.T), scale, logarithmic, out)
    return out


def test_posteriors():
    """Also where a class, or every class, is impossible."""
    out = np.full(6, np.nan)
    log_sums(np.ascontiguousarray(SCORES.T), out)
    np.testing.assert_allclose(out[:5], naive.log_density(SCORES[:5]), rtol=1e-14)
    assert out[5] == -np.inf
    out = found(SCORES, logarithmic=True)
    np.testing.assert_allclose(out[:5], naive.log_posterior(SCORES[:5]), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(out[5], -np.log(3))
    out = found(SCORES)
    np.testing.assert_allclose(out[:5], naive.posterior(SCORES[:5]), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(out[5], 1 / 3)
    np.testing.assert_array_equal(found(SCORES, 0.5), found(SCORES / 2))


def test_exponentials():
    """Of the second class: the first has the largest score."""
    grid = np.concatenate([-np.geomspace(1e-300, 700, 1200), [0, -0.0, -np.inf, -1e300]])
    out = found(np.column_stack([np.zeros(grid.size), grid]))
    rtol = 3 * np.finfo(float).eps
    np.testing.assert_allclose(out[:, 1] / out[:, 0], np.exp(grid), rtol=rtol, atol=0)
    assert (out[np.exp(grid) == 1] == 0.5).all()


@pytest.mark.parametrize("n_classes", [1, 4, 8, 11])
def test_posteriors_of_more_rows_than_a_block(n_classes):
    """Each like a single row."""
    joint = np.random.default_rng(2).normal(scale=9, size=(2 * 8192 // n_classes + 3, n_classes))
    out = found(joint)
    np.testing.assert_allclose(out, naive.posterior(joint), rtol=1e-9, atol=1e-300)
    for r in range(0, len(out), 500):
        assert (found(joint[r : r + 1])[0] == out[r]).all()
