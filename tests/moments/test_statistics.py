"""Statistics from elsewhere and to elsewhere: round trips, shapes, offsets, impossible ones."""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moment_checks import assert_close, sample

from streamgda import ClassMoments, QuadraticDiscriminantAnalysis, accumulate
from streamgda.errors import InvalidDataError, InvalidParameterError, PrecisionWarning


@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_there_and_back(covariance_type, weighted):
    X, y = sample(90, 3)  # There are as many classes as features.
    weights = np.random.default_rng(1).uniform(0.5, 2, 90) if weighted else None
    whole = accumulate(X, y, covariance_type=covariance_type, sample_weight=weights)
    found = ClassMoments.from_statistics(**whole.to_statistics())
    assert_close(found, whole, 1e-14)
    assert found.class_count.dtype == whole.class_count.dtype
    given = whole.classes, whole.class_count, whole.means
    options = {"covariances": whole.covariance(), "covariance_type": covariance_type}
    assert_close(ClassMoments.from_statistics(*given, **options), whole, 1e-14)
    some, others = (
        ClassMoments(covariance_type).update(X[at], y[at], weights[at] if weighted else None)
        for at in (slice(40), slice(40, None))
    )
    merged = ClassMoments.from_statistics(**some.to_statistics()) + others
    assert_close(merged, whole, 1e-12)
    assert_close(merged - others, some, 1e-9)


def test_names_and_classes_without_rows():
    pd = pytest.importorskip("pandas")
    X, y = sample(90, 2)
    moments = accumulate(pd.DataFrame(X, columns=["length", "width"]), y, classes=[0, 1, 2, 7])
    statistics = moments.to_statistics()
    assert statistics["feature_names"] == ["length", "width"]
    assert np.isnan(statistics["means"][3]).all()
    found = ClassMoments.from_statistics(**statistics)
    assert found.feature_names == moments.feature_names
    assert_close(found, moments, 1e-14)


@pytest.mark.filterwarnings("ignore::streamgda.errors.PrecisionWarning")  # Two rows may be close.
@given(st.integers(0, 2**31), st.sampled_from(["full", "tied", "diag", "tied_diag"]))
@settings(max_examples=20, deadline=None)
def test_every_form_has_the_same_moments(seed, covariance_type):
    rng = np.random.default_rng(seed)
    # Of a class of one row there is no covariance with ddof=1: it is NaN.
    X, y = rng.normal(size=(12, 3)), np.r_[np.arange(4), rng.integers(0, 4, 8)]
    expected = accumulate(X, y, covariance_type=covariance_type)
    m = naive.moments(X, y)
    shuffled = rng.permutation(4)  # Classes may come in any order.
    products = np.array([X[y == k].T @ X[y == k] for k in range(4)])

    def of_type(matrices):
        matrices = matrices.sum(axis=0) if naive.is_tied(covariance_type) else matrices[shuffled]
        matrix = naive.is_matrix(covariance_type)
        return matrices if matrix else np.diagonal(matrices, axis1=-2, axis2=-1)

    given = m.classes[shuffled], m.count[shuffled], m.means[shuffled]
    covariances = expected.covariance(ddof=1)
    covariances = covariances if naive.is_tied(covariance_type) else covariances[shuffled]
    for form in (
        {"scatters": of_type(m.scatter)},
        {"covariances": covariances, "ddof": 1},
        {"second_moments": of_type(products)},
    ):
        found = ClassMoments.from_statistics(*given, **form, covariance_type=covariance_type)
        assert_close(found, expected)


@pytest.mark.parametrize(("exponent", "digits"), [(0, None), (2, 4), (4, 8), (6, 12), (9, 16)])
def test_offsets_of_uncentred_sums_are_told(exponent, digits, recwarn):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)) + (10.0**exponent if exponent else 0)
    X[:, 2] = 3.0  # A constant costs nothing.
    given = [0], [500], [X.mean(axis=0)]
    found = ClassMoments.from_statistics(*given, second_moments=[X.T @ X])
    told = [w for w in recwarn if w.category is PrecisionWarning]
    if digits is None:
        assert not told
    else:
        assert f"cost {digits} of the 16 digits" in str(told[0].message)
        assert told[0].filename == __file__
    expected = accumulate(X, np.zeros(500, int)).covariance()
    error = 10.0 ** ((digits or 0) - 14)
    np.testing.assert_allclose(found.covariance(), expected, atol=max(error, 1e-13))
    assert (found.covariance()[0, 2] == 0).all()


GOOD = {
    "classes": ["a", "b"],
    "counts": [3, 4],
    "means": [[0.0, 1.0], [1.0, 2.0]],
    "scatters": np.array([[[2.0, 1.0], [1.0, 3.0]]] * 2),
}


def changed(at, value):
    scatters = GOOD["scatters"].copy()
    scatters[at] = value
    return {"scatters": scatters}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"classes": ["a", "a"]}, "each label once"),
        ({"counts": [3, -1]}, "a number >= 0 for each of the 2 classes"),
        ({"counts": [3]}, "counts="),
        ({"means": [0.0, 1.0]}, "means have shape"),
        ({"scatters": np.eye(2)}, r"have shape \(2, 2\); expected \(2, 2, 2\) for"),
        (
            {"scatters": None, "covariances": 1.0, "covariance_type": "spherical"},
            r"expected \(2,\)",
        ),
        ({"covariances": GOOD["scatters"]}, "covariances, scatters is given; expected one of"),
        ({"scatters": None}, "nothing is given"),
        ({"squared_weights": [1.0, -1.0]}, "squared_weights"),
        ({"feature_names": ["x"]}, "2 texts"),
        ({"covariance_type": "round"}, "covariance_type"),
    ],
)
def test_statistics_that_do_not_fit(change, match):
    with pytest.raises(InvalidParameterError, match=match):
        ClassMoments.from_statistics(**{**GOOD, **change})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"means": [[0.0, np.nan], [1.0, 2.0]]}, "means of classes with rows"),
        (changed((1, 0, 0), np.inf), "of class 'b' are not finite numbers in feature 0 and 0"),
        (changed((1, 0, 1), 1.1), "of class 'b' are not symmetric in feature 0 and 1"),
        (changed((0, 1, 1), -1.0), "of class 'a' hold negative sums of squares in feature 1"),
        ({"scatters": None, "second_moments": [np.eye(2) - 2] * 2}, "negative sums of squares"),
    ],
)
def test_statistics_that_no_rows_have(change, match):
    with pytest.raises(InvalidDataError, match=match):
        ClassMoments.from_statistics(**{**GOOD, **change})


def test_sums_in_float32():
    X, y = sample(3000, 20)
    X = X.astype(np.float32)
    count = np.bincount(y)
    means = np.array([X[y == k].mean(axis=0) for k in range(3)])
    scatters = np.array([(X[y == k] - means[k]).T @ (X[y == k] - means[k]) for k in range(3)])
    moments = ClassMoments.from_statistics(range(3), count, means, scatters=scatters)
    qda = QuadraticDiscriminantAnalysis.from_moments(moments)
    expected = QuadraticDiscriminantAnalysis().fit(X, y)
    np.testing.assert_allclose(qda.predict_proba(X), expected.predict_proba(X), atol=1e-3)


def test_rows_that_weigh_one_together_vary():
    moments = ClassMoments().update([[0.0, 1.0], [2.0, 5.0]], [0, 0]) * 0.5
    found = ClassMoments.from_statistics(**moments.to_statistics())
    assert found.class_count == [1]
    assert (found.covariance() == moments.covariance()).all()
