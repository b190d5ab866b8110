"""Probabilities of classes from their scores."""

import naive
import numpy as np
import pytest

from streamgda.models.scoring import log_sums, posteriors

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


def found(scores, logs=False):
    out = np.full(scores.shape, np.nan)
    posteriors(scores.T.copy(), logs, out)
    return out


def test_posteriors():
    """Also where a class, or every class, is impossible."""
    out = np.full(6, np.nan)
    log_sums(SCORES.T.copy(), out)
    np.testing.assert_allclose(out[:5], naive.log_density(SCORES[:5]), rtol=1e-14)
    assert out[5] == -np.inf
    out = found(SCORES, logs=True)
    np.testing.assert_allclose(out[:5], naive.log_posterior(SCORES[:5]), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(out[5], -np.log(3))
    out = found(SCORES)
    np.testing.assert_allclose(out[:5], naive.posterior(SCORES[:5]), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(out[5], 1 / 3)


@pytest.mark.parametrize("n_classes", [1, 4, 8, 11, 100])
def test_posteriors_of_a_row_do_not_depend_on_the_others(n_classes):
    joint = np.random.default_rng(2).normal(scale=9, size=(200, n_classes))
    for logs in (False, True):
        out = found(joint, logs)
        for n in (1, 2, 7):
            assert all((found(joint[r : r + n], logs) == out[r : r + n]).all() for r in range(99))
