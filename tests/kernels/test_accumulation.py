"""Every way to sum rows, against the naive oracle."""

import numpy as np
import pytest
from grids import pairs
from moment_checks import TYPES, assert_moments, sample, take_path

from streamgda.kernels.narrow import BUCKET_FEATURES
from streamgda.moments import ClassMoments, covariance_types, parallel

KERNELS = ["add_centred", "add_centred_narrow", "add_centred_squares"]
KERNELS += ["add_exact_narrow", "add_integers", "add_exact_squares"]

# Numbers of rows and features, and the path that they take; what sums floats and exact integers to
# matrices, and to variances.
WIDE = BUCKET_FEATURES + 1
SQUARES = "add_centred_squares", "add_exact_squares"
ROWS = {
    "few": (7, 3, "whole", "add_centred", "add_exact_narrow", *SQUARES),
    "narrow": (60, 5, "whole", "add_centred_narrow", "add_exact_narrow", *SQUARES),
    "narrow blocks": (600, 5, "segments", "add_centred_narrow", "add_exact_narrow", *SQUARES),
    "wide": (40, WIDE, "whole", "add_centred", "add_integers", *SQUARES),
    "wide blocks": (300, WIDE, "segments", "add_centred", "add_integers", *SQUARES),
    "large": (600, 5, "ranges of classes", "add_centred_narrow", "add_exact_narrow", *SQUARES),
    "large and wide": (600, 5, "large", "add_scatter", "add_integers", *SQUARES),
}


@pytest.fixture
def called(monkeypatch):
    """The names of the functions that are called from now on to sum rows."""
    names = set()
    for owner, name in [*((covariance_types, name) for name in KERNELS), (parallel, "add_scatter")]:
        function = getattr(owner, name)

        def noting(*arguments, function=function, name=name):
            names.add(name)
            return function(*arguments)

        monkeypatch.setattr(owner, name, noting)
    return names


@pairs(
    "covariance_type, rows, kind",
    TYPES,
    ROWS,
    ["float64", "float32", "weighted float64", "weighted uint8", "uint8", "int16"],
)
def test_rows_are_summed(covariance_type, rows, kind, called, monkeypatch, use_threads):
    """Twice, so that the second rows meet the means of the first ones."""
    n, d, path, *summed = ROWS[rows]
    *weighted, dtype = kind.split()
    exact = not weighted and dtype in ("uint8", "int16")
    matrix = covariance_type in ("full", "tied")
    use_threads(2)
    take_path(path, monkeypatch)
    X, y = sample(2 * n, d, dtype=dtype)
    weights = np.random.default_rng(1).gamma(1, size=2 * n) if weighted else None
    moments = ClassMoments(covariance_type)
    for part in (slice(0, n), slice(n, 2 * n)):
        moments.update(X[part], y[part], None if weights is None else weights[part])
    assert called == {summed[exact if matrix else 2 + exact]}
    in_float32 = matrix and dtype == "float32" and path == "large"
    assert_moments(moments, X, y, weights, rtol=1e-6 if in_float32 else 1e-12)
    assert moments.exact == exact
