"""Weights have the same effect in every container of rows and weights."""

import numpy as np
import pytest
from samples import KINDS, assert_equal_to_rounding, blobs, held, make

from streamgda import ClassMoments, accumulate

SOME = pytest.mark.parametrize("name", ["full", "tied", "GaussianNB", "BernoulliNB"])


def rows():
    X, y = blobs()
    weights = np.random.default_rng(1).uniform(0, 2, 300)
    weights[::7] = 0
    return X, y, weights


@SOME
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights_kind", ["numpy", "list", "same as the rows"])
def test_fit_and_partial_fit(name, kind, weights_kind):
    X, y, weights = rows()
    expected = make(name).fit(X, y, weights)

    def given(part):
        w = weights[part]
        w = w.tolist() if weights_kind == "list" else w
        w = held(w, kind) if weights_kind == "same as the rows" else w
        return held(X[part], kind), held(y[part], kind), w

    whole, first, second = (given(part) for part in (slice(None), slice(0, 170), slice(170, 300)))
    fitted = make(name).fit(*whole)
    assert_equal_to_rounding(fitted, expected, whole[0])
    parts = make(name)
    for X_part, y_part, w_part in (first, second):
        parts.partial_fit(X_part, y_part, sample_weight=w_part)
    assert_equal_to_rounding(parts, expected, whole[0])
    assert fitted.score(*whole) == pytest.approx(expected.score(X, y, weights))


@pytest.mark.parametrize("kind", [*KINDS, "batches"])
def test_accumulate(kind):
    X, y, weights = rows()
    expected = ClassMoments().update(X, y, weights)
    if kind == "batches":
        parts = np.array_split(np.arange(300), 7)
        found = accumulate((X[part], y[part], weights[part]) for part in parts)
    else:
        found = accumulate(held(X, kind), held(y, kind), sample_weight=held(weights, kind))
    np.testing.assert_allclose(found.class_count, expected.class_count, rtol=1e-13)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-12)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-10)
