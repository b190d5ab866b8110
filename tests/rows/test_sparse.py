"""Sparse rows: learned and scored as the same rows are when dense, but never made so."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn import naive_bayes

from streamgda import BernoulliNB, ClassMoments
from streamgda.errors import InvalidDataError

pytestmark = pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")

METHODS = ("predict_joint_log_proba", "predict_log_proba", "predict_proba", "score_samples")
FORMATS = ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
DIAGONAL = ("diag", "tied_diag", "spherical", "tied_spherical")


def rows(n=120, d=15, seed=0, dtype=float):
    """Rows of which most entries are zero, of three classes, with weights."""
    random = np.random.default_rng(seed)
    X = random.normal(1, 2, (n, d)) * (random.random((n, d)) < random.random(d))
    X[:, 0] += 3  # This feature is never zero.
    y = np.arange(n) % 3
    X[:, 1] += 5 * y  # Two classes have no zeros here.
    weights = random.choice([0, 0.5, 1, 3.7], n)
    return (X if dtype is float else np.rint(np.abs(X) * 4)).astype(dtype), y, weights


def container(X, form, as_array=True, index=None):
    found = getattr(sp, f"{form}_array" if as_array else f"{form}_matrix")(X)
    if index is not None and hasattr(found, "indptr"):
        found.indptr, found.indices = found.indptr.astype(index), found.indices.astype(index)
    return found


@given(
    st.sampled_from(DIAGONAL),
    st.sampled_from(FORMATS),
    st.booleans(),
    st.sampled_from([np.int32, np.int64, None]),
    st.sampled_from([float, np.float32, np.int64, np.uint8, np.int16, np.uint16, np.bool_]),
    st.booleans(),
    st.lists(st.integers(1, 119), max_size=3),
    st.integers(0, 20),
)
def test_moments_are_those_of_dense_rows(kind, form, as_array, index, dtype, weighted, cuts, seed):
    X, y, weights = rows(seed=seed, dtype=dtype)
    dense, sparse = ClassMoments(kind), ClassMoments(kind)
    for part in np.split(np.arange(len(y)), sorted(set(cuts))):
        w = weights[part] if weighted else None
        dense.update(X[part], y[part], w)
        sparse.update(container(X[part], form, as_array, index), y[part], w)
    assert sparse.exact == dense.exact
    if sparse.exact:
        assert sparse.to_bytes() == dense.to_bytes()
    rtol, a, b = 1e-6 if X.dtype == np.float32 else 1e-12, dense.centred(), sparse.centred()
    np.testing.assert_allclose(b.count, a.count, rtol=1e-14)
    np.testing.assert_allclose(b.mean, a.mean, rtol=rtol, atol=1e-13)
    np.testing.assert_allclose(b.scatter, a.scatter, rtol=rtol, atol=1e-11)


def test_impossible_values_are_scored_as_in_dense_rows():
    """Without smoothing, ones that a class never has are impossible, and zeros cost nothing."""
    X, y, weights = rows()
    sparse = container(X, "coo")
    dense = BernoulliNB(alpha=0, binarize=1.5).fit(X, y, weights)
    found = BernoulliNB(alpha=0, binarize=1.5).fit(sparse, y, weights)
    for method in METHODS:
        wanted = getattr(dense, method)(X)
        np.testing.assert_allclose(getattr(found, method)(sparse), wanted, 1e-10, 1e-11)
    assert found.score(sparse, y, weights) == dense.score(X, y, weights)


def test_a_million_features_take_time_for_the_entries_only():
    random, d = np.random.default_rng(0), 1 << 20
    n = 2000  # Dense rows would need 16 GB.
    indices = np.sort(random.integers(0, d // 50, (n, 50)) + np.arange(50) * (d // 50), axis=1)
    entries = random.normal(size=n * 50), indices.ravel(), np.arange(0, n * 50 + 1, 50)
    X, y = sp.csr_array(entries, shape=(n, d)), np.arange(n) % 2
    theirs = naive_bayes.BernoulliNB().fit(X, y)
    ours = BernoulliNB()
    for part in (slice(0, 1500), slice(1500, n)):
        ours.partial_fit(X[part], y[part])
    np.testing.assert_array_equal(ours.feature_count_, theirs.feature_count_)
    np.testing.assert_allclose(
        ours.predict_joint_log_proba(X), theirs.predict_joint_log_proba(X), rtol=1e-9
    )


def test_explicit_zeros_duplicates_and_any_order():
    entries = np.array([1.0, 2.0, 0.0, 4.0, -1.0]), np.array([2, 0, 1, 2, 2]), np.array([0, 2, 5])
    X = sp.csr_array(entries, shape=(2, 3))  # 4 and -1 are of one entry
    before = [array.copy() for array in (X.data, X.indices)]
    found = ClassMoments("diag").update(X, [0, 1])
    np.testing.assert_array_equal(found.means, [[2, 0, 1], [0, 0, 3]])
    for array, old in zip((X.data, X.indices), before, strict=True):
        np.testing.assert_array_equal(array, old)  # What was given has not changed.


def test_values_and_indices_that_are_no_sparse_rows():
    X, y, _ = rows()
    bits = sp.csr_array(X > 0) * 1
    bits[3, 2] = 7
    for binarize, given_rows, message in (
        (-1, sp.csr_array(X), "with binarize=-1 its zeros would be ones"),
        (None, bits, "row 3 of X holds .*; binarize=None"),
    ):
        with pytest.raises(InvalidDataError, match=message):
            BernoulliNB(binarize=binarize).fit(given_rows, y)
    for bad in (15, -1):
        X = sp.csr_array(X)
        X.indices[40] = bad
        with pytest.raises(InvalidDataError, match="X is not a valid csr matrix"):
            ClassMoments("diag").update(X, y)
