"""Selection of features by held-out likelihood: the same as from the rows of the folds."""

from itertools import combinations

import dask.array as da
import naive
import numpy as np
import pandas as pd
import pytest
import zarr
from samples import blobs

from streamgda import ClassMoments, SeparabilitySelector, accumulate, select_features
from streamgda.errors import InvalidDataError, InvalidParameterError, SingularCovarianceError

HELD_OUT = "held_out_likelihood"


def folded(X, y, covariance_type="full", n=3):
    folds = np.arange(len(y)) % n
    parts = [folds == f for f in range(n)]
    return folds, [accumulate(X[p], y[p], covariance_type=covariance_type) for p in parts]


@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES[:4])
@pytest.mark.parametrize("direction", ["forward", "backward", "floating"])
@pytest.mark.parametrize("how", [{}, {"ddof": 1, "reg_param": 0.1}], ids=str)
def test_values_are_those_of_the_rows(covariance_type, direction, how):
    X, y = blobs(200, 5)
    folds, parts = folded(X, y, covariance_type)
    features, values = select_features(parts, 4, HELD_OUT, direction=direction, **how)
    expected = [
        naive.held_out_ratio(X[:, features[: n + 1]], y, folds, covariance_type, **how)
        for n in range(4)
    ]
    np.testing.assert_allclose(values, expected, rtol=1e-9)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_each_step_is_the_best(covariance_type):
    X, y = blobs(200, 5)
    folds, parts = folded(X, y, covariance_type)

    def ratio(chosen):
        return naive.held_out_ratio(X[:, list(chosen)], y, folds, covariance_type)

    first, second = select_features(parts, 2, HELD_OUT)[0]
    assert first == max(range(5), key=lambda j: ratio([j]))
    assert second == max(set(range(5)) - {first}, key=lambda j: ratio([first, j]))
    backward = select_features(parts, 4, HELD_OUT, direction="backward")[0]
    assert {*backward} == {*max(combinations(range(5), 4), key=ratio)}


def test_scales_and_types_of_moments_make_no_difference():
    X, y = blobs(200, 5)
    features, values = select_features(folded(X, y)[1], 3, HELD_OUT)
    scaled = select_features(folded(X * 10.0 ** np.arange(-2, 3), y)[1], 3, HELD_OUT)
    np.testing.assert_array_equal(scaled[0], features)
    np.testing.assert_allclose(scaled[1], values, rtol=1e-9)
    tied = select_features(folded(X, y, "tied")[1], 3, HELD_OUT)
    from_full = select_features(folded(X, y)[1], 3, HELD_OUT, covariance_type="tied")
    np.testing.assert_allclose(tied[1], from_full[1], rtol=1e-9)
    named = accumulate(X, y, groups=folded(X, y)[0])
    np.testing.assert_array_equal(select_features(named, 3, HELD_OUT)[0], features)


def test_noise_makes_the_likelihood_smaller():
    rng = np.random.default_rng(0)
    X, y = blobs(300, 3)
    X = np.hstack([rng.normal(size=(300, 12)), X])
    features, values = select_features(folded(X, y)[1], 15, HELD_OUT)
    assert {*features[:2]} < {12, 13, 14}
    assert values[-1] < values.max()
    separable = select_features(accumulate(X, y), 15, "bhattacharyya")[1]
    assert (np.diff(separable) > 0).all()


def test_classes_that_one_fold_alone_has():
    X, y = blobs(200, 4)
    folds, parts = folded(X, y)
    other = accumulate(X[:10] + 5, np.full(10, 7))
    values = select_features([parts[0] + other, *parts[1:]], 2, HELD_OUT)[1]
    assert np.isfinite(values).all()
    tied = [part.reduce("tied") for part in (parts[0] + other, *parts[1:])]
    with pytest.raises(InvalidDataError, match="class 7, which no other fold has"):
        select_features(tied, 2, HELD_OUT)
    assert folds.max() == 2


def test_refusals():
    X, y = blobs(100, 4)
    with pytest.raises(InvalidParameterError, match="ClassMoments with 0 of them"):
        select_features(accumulate(X, y), 2, HELD_OUT)
    with pytest.raises(InvalidParameterError, match="list with 1 of them"):
        select_features([accumulate(X, y)], 2, HELD_OUT)
    with pytest.raises(InvalidParameterError, match="of them"):
        SeparabilitySelector(2, criterion=HELD_OUT).fit(X, y)
    with pytest.raises(TypeError, match="fold of moments"):
        select_features([accumulate(X, y), X], 2, HELD_OUT)
    with pytest.raises(TypeError):
        select_features(folded(X, y)[1], 2)
    with pytest.raises(InvalidParameterError, match="1 to 4"):
        select_features(folded(X, y)[1], 5, HELD_OUT)
    apart = [ClassMoments().update(X[y == k], y[y == k]) for k in (0, 1)]
    with pytest.raises(InvalidDataError):
        select_features(apart, 2, HELD_OUT)
    X[:, 3] = X[:, 0]
    with pytest.raises(SingularCovarianceError):
        select_features(folded(X, y)[1], 2, HELD_OUT, direction="backward")
    with pytest.raises(SingularCovarianceError):
        select_features(folded(X, y)[1], 4, HELD_OUT)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_selected_columns_of_every_container(dtype, tmp_path):
    X, y = blobs(100, 5)
    X = (X - X.min()).astype(dtype)
    selector = SeparabilitySelector(2).fit(X, y)
    expected = X[:, np.sort(selector.ranking_)]
    stored = zarr.create_array(tmp_path / "X.zarr", data=X, chunks=(30, 2))
    lazy = selector.transform(da.from_array(X, chunks=(30, 3)))
    assert isinstance(lazy, da.Array)
    out = selector.transform(stored, out=tmp_path / "out.zarr")
    assert isinstance(out, zarr.Array)
    for found in (selector.transform(X), lazy.compute(), selector.transform(stored), out[:]):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == dtype
    frame = pd.DataFrame(X, columns=list("abcde"))
    framed = SeparabilitySelector(2).fit(frame, y).set_output(transform="pandas")
    assert framed.transform(frame).columns.tolist() == framed.get_feature_names_out().tolist()
    with pytest.raises(InvalidDataError, match="4 features"):
        selector.transform(da.from_array(X[:, :4]))
