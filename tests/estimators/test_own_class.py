"""Distances of rows to given classes, against those to all classes."""

from functools import partial

import dask.array as da
import numpy as np
import pytest
import zarr
from samples import EVERY_GAUSSIAN, blobs, make

from streamgda import QuadraticDiscriminantAnalysis
from streamgda.errors import InvalidDataError

X, Y = blobs(300, 5, seed=4)
ROWS = np.arange(300)
NAMES = np.array(["ash", "elm", "oak"])


@EVERY_GAUSSIAN
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_distances_are_those_to_the_given_classes(name, offset):
    estimator = make(name).fit(X + offset, NAMES[Y])
    expected = estimator.mahalanobis(X + offset)[ROWS, Y]
    np.testing.assert_allclose(estimator.mahalanobis(X + offset, NAMES[Y]), expected, rtol=1e-9)


@pytest.mark.parametrize("container", ["zarr", "dask", "list"])
def test_rows_lie_anywhere_and_results_go_anywhere(container, tmp_path):
    qda = QuadraticDiscriminantAnalysis().fit(X, Y)
    expected = qda.mahalanobis(X, Y)
    held = {
        "zarr": lambda values: zarr.create_array({}, data=values, chunks=(17, 5)[: values.ndim]),
        "dask": lambda values: da.from_array(values, chunks=17),
        "list": lambda values: values.tolist(),
    }[container]
    found = qda.mahalanobis(held(X), held(Y))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)
    out = qda.mahalanobis(held(X), held(Y), out=tmp_path / "d.zarr")
    np.testing.assert_allclose(out[:], expected, rtol=1e-12)


def test_labels_that_do_not_fit():
    qda = QuadraticDiscriminantAnalysis().fit(X, Y)
    with pytest.raises(InvalidDataError, match=r"y\[3\] is 7, which is not one of the classes"):
        qda.mahalanobis(X, np.where(ROWS == 3, 7, Y))
    with pytest.raises(ValueError, match="299"):
        qda.mahalanobis(X, Y[:-1])


@pytest.mark.parametrize("container", [np.asarray, partial(da.from_array, chunks=17)])
@pytest.mark.parametrize("how", [{"on_invalid": "fill"}, {"on_missing": "marginal"}])
def test_rows_with_gaps_keep_their_classes(how, container):
    qda = QuadraticDiscriminantAnalysis().fit(X, Y)
    rows = X.copy()
    rows[[20, 40, 220], 1] = np.nan
    found, whole = np.asarray(qda.mahalanobis(container(rows), Y, **how)), qda.mahalanobis(X, Y)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rows[:, 1]) & ("on_invalid" in how))
    np.testing.assert_allclose(*(np.delete(a, [20, 40, 220]) for a in (found, whole)))
    if "on_missing" in how:
        every = qda.mahalanobis(rows, **how)
        np.testing.assert_allclose(qda.mahalanobis(rows, Y, **how), every[ROWS, Y], rtol=1e-9)
