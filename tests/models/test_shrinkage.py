"""Shrinkage from moments: against the naive oracle, scikit-learn, and any chunking."""

from itertools import pairwise

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import KINDS, blobs, bytes_of, held, snapshot
from sklearn import covariance as sklearn

import streamgda
from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    accumulate,
)
from streamgda.errors import (
    FormatError,
    InvalidDataError,
    InvalidParameterError,
    MemoryBudgetError,
    MergeError,
)
from streamgda.models.shrinkage import shrinkage_of
from streamgda.moments.covariance_types import structure_of
from streamgda.storage.saved import restore, state_of

RULES = ["ledoit_wolf", "oas"]
EVERY_RULE = pytest.mark.parametrize("rule", RULES)


def centred(X, y, weights=None):
    """Rows minus their class means."""
    m = naive.moments(X, y, weights)
    return np.asarray(X, float) - m.means[np.searchsorted(m.classes, y)]


def expected(rule, X, y, per_class, weights=None):
    rows = centred(X, y, weights)
    w = np.ones(len(y)) if weights is None else weights
    parts = [y == k for k in np.unique(y)] if per_class else [slice(None)]
    return [getattr(naive, rule)(rows[part], w[part]) for part in parts]


def qda(shrinkage, **params):
    return QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=shrinkage, **params)


def lda(shrinkage):
    return LinearDiscriminantAnalysis("lsqr", shrinkage=shrinkage)


def norm_moments(X, y, weights=None):
    return ClassMoments("full", fourth_moments=True).update(X, y, weights)


def assert_norms(moments, X, y, weights=None, rtol=1e-11):
    """Check that they are those of the rows."""
    rows, w = centred(X, y, weights), np.ones(len(y)) if weights is None else weights
    squares = (rows**2).sum(axis=1)
    classes = np.unique(y[w > 0])
    fourth = [(w * squares**2)[y == k].sum() for k in classes]
    cubes = np.array([((w * squares)[:, None] * rows)[y == k].sum(axis=0) for k in classes])
    assert moments.classes.tolist() == classes.tolist()
    np.testing.assert_allclose(moments.fourth, fourth, rtol=rtol)
    scale = np.array(fourth).max() ** 0.75 * len(y) ** 0.25
    np.testing.assert_allclose(state_of(moments)[1]["norms"][:, :-1], cubes, atol=rtol * scale)


# --- the amounts ------------------------------------------------------------------------------


@EVERY_RULE
@pytest.mark.parametrize("offset", [0, 1e6, 1e8])
@pytest.mark.parametrize("shape", [(300, 4), (60, 25), (400, 2)])
def test_amounts_are_those_of_scikit_learn(rule, offset, shape):
    X, y = blobs(*shape)
    shifted = X + offset
    if offset:
        X = shifted - offset  # the rows as they are after the rounding
    theirs = getattr(sklearn, rule)
    of_classes = [theirs(X[y == k]) for k in range(3)]
    of_all = [theirs(centred(X, y), assume_centered=True)]
    for estimator, known in ((qda(rule, store_covariance=True), of_classes), (lda(rule), of_all)):
        covariances, amounts = zip(*known, strict=True)
        fitted = estimator.fit(shifted, y)
        np.testing.assert_allclose(fitted.shrinkage_, amounts, rtol=1e-9)
        found = fitted.covariance_ if len(known) > 1 else [fitted.covariance_]
        np.testing.assert_allclose(found, covariances, rtol=1e-9, atol=1e-9)


@EVERY_RULE
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_amounts_are_those_of_the_oracle(rule, dtype, weighted):
    X, y = blobs(120, 3)
    X = bytes_of(X).astype(dtype)
    weights = np.random.default_rng(0).uniform(0.2, 3, len(y)) if weighted else None
    moments = norm_moments(X, y, weights)
    for per_class, name in ((True, "full"), (False, "tied")):
        found = shrinkage_of(moments, rule, structure_of(name))
        np.testing.assert_allclose(found, expected(rule, X, y, per_class, weights), rtol=1e-10)


def test_edges():
    X, y = blobs(50, 3)
    for rule in RULES:
        assert qda(rule).fit(X[:, :1], y).shrinkage_.max() == 0
        assert lda(rule).fit(*blobs(40, 30)).score(*blobs(40, 30)) > 0.9  # few rows
    # A class of one row, which has no spread; one of two rows, which is only noise.
    few = norm_moments([[0.0, 1.0], [2.0, 2.0], [3.0, 5.0]], [0, 1, 1])
    assert shrinkage_of(few, "ledoit_wolf", structure_of("full")).tolist() == [0, 0]
    assert shrinkage_of(few, "oas", structure_of("full")).tolist() == [1, 1]
    # Classes without rows.
    declared = norm_moments(X, y).declare([9])
    assert shrinkage_of(declared, "ledoit_wolf", structure_of("full"))[3] == 0
    # Fourth moments cost nothing unless asked for.
    assert "norms" not in state_of(ClassMoments("full").update(X, y))[1]
    assert not qda("oas").fit(X, y).moments_.fourth_moments
    assert lda("oas").fit(X, y).moments_.covariance_type == "tied"


def test_units_do_not_matter_as_far_as_fourth_powers_are_numbers():
    X, y = blobs(200, 4)
    for rule, scale in (("ledoit_wolf", 2.0**-240), ("oas", 2.0**-400), ("oas", 2.0**400)):
        expected = qda(rule).fit(X, y).shrinkage_
        np.testing.assert_array_equal(qda(rule).fit(X * scale, y).shrinkage_, expected)
    with pytest.raises(InvalidDataError, match="fourth powers of the rows, which underflow"):
        qda("ledoit_wolf").fit(X * 2.0**-300, y)


def test_amounts_do_not_depend_on_ddof_and_go_with_other_regularisation():
    X, y = blobs(80, 4)
    how = {"reg_param": 0.1, "var_smoothing": 0.01, "ddof": 1}
    gda = GaussianDiscriminantAnalysis(shrinkage="ledoit_wolf", **how).fit(X, y)
    amounts = expected("ledoit_wolf", X, y, True)
    np.testing.assert_allclose(gda.shrinkage_, amounts, rtol=1e-10)
    for k, amount in enumerate(amounts):
        S = naive.regularised_covariances(X, y, shrinkage=amount, **how)[k]
        np.testing.assert_allclose(gda.covariance_[k], S, rtol=1e-10, atol=1e-12)


# --- norms merge ------------------------------------------------------------------------------


@st.composite
def cut_rows(draw):
    """Rows, labels and weights, and the positions of the cuts."""
    n = draw(st.integers(6, 60))
    d = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    offset = draw(st.sampled_from([0.0, 1e3, 1e6]))
    X = rng.normal(size=(n, d)) * draw(st.sampled_from([1.0, 100.0]))
    whole = np.clip(np.round(40 * X), -128, 127).astype(np.int8)
    X = whole if draw(st.booleans()) else X + offset
    y = rng.integers(0, draw(st.integers(1, 4)), n)
    weights = rng.uniform(0.1, 3, n) if draw(st.booleans()) else None
    cuts = sorted(draw(st.lists(st.integers(1, n - 1), max_size=4, unique=True)))
    return X, y, weights, [0, *cuts, n]


@given(cut_rows())
def test_any_chunks_give_the_norms_of_all_rows_and_can_be_taken_out(data):
    X, y, weights, cuts = data
    slices = [slice(a, b) for a, b in pairwise(cuts)]
    w = [None if weights is None else weights[s] for s in slices]
    updated = ClassMoments("full", fourth_moments=True)
    for s, part in zip(slices, w, strict=True):
        updated.update(X[s], y[s], part)
    parts = [norm_moments(X[s], y[s], part) for s, part in zip(slices, w, strict=True)]
    merged = ClassMoments("full", fourth_moments=True)
    for part in reversed(parts):
        merged = part + merged
    for moments in (updated, merged):
        assert_norms(moments, X, y, weights, rtol=1e-9)
    half, w = 0.5 * merged, np.ones(len(y)) if weights is None else weights
    assert_norms(half + updated, X, y, 1.5 * w, rtol=1e-9)
    assert_norms(0.0 * merged + half, X, y, 0.5 * w, rtol=1e-9)
    left, alone = updated - parts[0], sum(parts[1:], ClassMoments("full", fourth_moments=True))
    assert left.classes.tolist() == alone.classes.tolist()
    whole = updated.fourth.max()
    np.testing.assert_allclose(left.fourth, alone.fourth, rtol=1e-8, atol=1e-8 * whole)


@pytest.mark.parametrize("kind", [np.float64, np.uint8])
def test_classes_are_selected_joined_renamed_and_declared(kind):
    X, y = blobs(90, 3, n_classes=4)
    X = bytes_of(X) if kind == np.uint8 else X
    moments = norm_moments(X, y)
    two = np.isin(y, [1, 3])
    assert_norms(moments.select_classes([1, 3]), X[two], y[two])
    assert_norms(moments.relabel({0: 2, 1: 3}), X, 2 + y % 2)
    assert_norms(moments.relabel({0: 5, 3: 0}), X, np.array([5, 1, 2, 0])[y])
    assert moments.copy().declare([-1, 7]).fourth.tolist() == [0, *moments.fourth, 0]
    assert moments.exact == (kind == np.uint8)


def test_other_views_lose_norms_and_say_so():
    moments = norm_moments(*blobs(60, 3))
    assert moments.reduce("full").fourth_moments
    tied, few = moments.reduce("tied"), moments.select_features([0, 1])
    for view in (tied, few, moments.project(moments.pca(2))):
        assert not view.fourth_moments
        with pytest.raises(InvalidDataError, match="hold no fourth moments of the rows; make them"):
            view.fourth  # noqa: B018
        with pytest.raises(InvalidDataError, match="fourth_moments=True"):
            LinearDiscriminantAnalysis.from_moments(view, solver="eigen", shrinkage="ledoit_wolf")
    oas = LinearDiscriminantAnalysis.from_moments(tied, solver="eigen", shrinkage="oas")
    assert oas.shrinkage_.size == 1


def test_saved_and_loaded(tmp_path):
    X, y = blobs(60, 3)
    moments = norm_moments(X, y)
    moments.save(tmp_path / "moments.zip")
    loaded = ClassMoments.load(tmp_path / "moments.zip")
    assert loaded.fourth_moments
    assert loaded.nbytes == moments.nbytes
    np.testing.assert_array_equal(state_of(loaded)[1]["norms"], state_of(moments)[1]["norms"])
    assert_norms(loaded.update(X[:9], y[:9]), np.vstack([X, X[:9]]), np.append(y, y[:9]))
    empty = ClassMoments("full", fourth_moments=True)
    assert restore(ClassMoments, *state_of(empty)).fourth_moments
    attributes, arrays = state_of(moments)
    for damaged in (arrays["norms"][:, :-1], arrays["norms"] * np.nan):
        with pytest.raises(FormatError, match=r"damaged: .*norms"):
            restore(ClassMoments, attributes, {**arrays, "norms": damaged})
    with pytest.raises(FormatError, match="damaged"):
        restore(ClassMoments, attributes, {k: a for k, a in arrays.items() if k != "norms"})


# --- wherever rows are ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [qda, lda])
def test_every_kind_of_array_gives_the_same(kind, make, tmp_path):
    X, y = blobs(300, 4)
    whole = make("ledoit_wolf").fit(X, y)
    found = make("ledoit_wolf").fit(held(X, kind), held(y, kind))
    np.testing.assert_allclose(found.shrinkage_, whole.shrinkage_, rtol=1e-12)
    found.save(tmp_path / "estimator")
    loaded = streamgda.load(tmp_path / "estimator")
    np.testing.assert_array_equal(loaded.predict_proba(X), found.predict_proba(X))
    loaded.partial_fit(held(X + 1, kind), held(y, kind))
    whole.partial_fit(X + 1, y)
    np.testing.assert_allclose(loaded.shrinkage_, whole.shrinkage_, rtol=1e-12)
    assert_norms(loaded.moments_, np.vstack([X, X + 1]), np.tile(y, 2))


def test_the_number_of_threads_changes_no_bit(use_threads):
    X, y = blobs(9000, 250)  # several parts
    found = []
    for n in (1, 3):
        use_threads(n)
        found.append(state_of(norm_moments(X, y))[1]["norms"].tobytes())
    assert found[0] == found[1]


def test_the_memory_of_norms_is_planned():
    X, y = held(np.zeros((10, 800)), "zarr"), held(np.repeat([0, 1], 5), "zarr")
    state = 2 * 800 * 801 // 2 * 8
    accumulate(X, y, max_memory=3 * state)
    with pytest.raises(MemoryBudgetError, match="for the moments"):
        accumulate(X, y, fourth_moments=True, max_memory=3 * state)


# --- refusals ---------------------------------------------------------------------------------


def test_covariances_and_names_that_do_not_fit_are_refused():
    for rule in RULES:
        for covariance_type in ("diag", "tied_diag", "spherical", "tied_spherical"):
            gda = GaussianDiscriminantAnalysis(covariance_type, shrinkage=rule)
            with pytest.raises(InvalidParameterError, match="use 'full' or 'tied', or a number"):
                gda.fit(*blobs())
            assert not hasattr(gda, "moments_")
            with pytest.raises(InvalidParameterError, match="=True needs a matrix per class"):
                ClassMoments(covariance_type, fourth_moments=True)
        with pytest.raises(InvalidParameterError, match=r"pooling=0\.5 mixes it"):
            GaussianDiscriminantAnalysis(shrinkage=rule, pooling=0.5).fit(*blobs())
        GaussianDiscriminantAnalysis("tied", shrinkage=rule, pooling=0.5).fit(*blobs())
    with pytest.raises(InvalidParameterError, match="or one of auto, ledoit_wolf, oas"):
        qda("lw").fit(*blobs())


def test_rows_seen_without_norms_are_refused():
    X, y = blobs(60, 3)
    seen = QuadraticDiscriminantAnalysis().fit(X, y)
    seen.set_params(solver="eigen", shrinkage="ledoit_wolf")
    before = snapshot(seen)
    with pytest.raises(InvalidParameterError, match="kept without their fourth moments; call fit"):
        seen.partial_fit(X, y)
    assert snapshot(seen) == before


def test_moments_with_and_without_norms_do_not_combine():
    X, y = blobs(60, 3)
    without, with_norms = ClassMoments().update(X, y), norm_moments(X, y)
    for combine in (
        lambda: without + with_norms,
        lambda: with_norms + without,
        lambda: with_norms - without,
    ):
        with pytest.raises(MergeError, match="make both with fourth_moments=True, or both without"):
            combine()
    assert_norms(with_norms, X, y)


def test_rows_that_cannot_be_summed_leave_no_trace():
    X, y = blobs(60, 3)
    moments = norm_moments(X, y)
    before = snapshot(QuadraticDiscriminantAnalysis.from_moments(moments))["state"]
    for bad, match in ((np.nan, "row 0, column 0 is nan"), (1e120, "fourth powers overflow")):
        rows = X.copy()
        rows[0, 0] = bad
        for held_so_far in (moments, ClassMoments("full", fourth_moments=True)):
            with pytest.raises(InvalidDataError, match=match):
                held_so_far.update(rows, y)
    with pytest.raises(InvalidDataError, match="2 features, but these moments have 3"):
        moments.update(X[:, :2], y)
    after = snapshot(QuadraticDiscriminantAnalysis.from_moments(moments))["state"]
    assert after == before
