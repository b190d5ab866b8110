"""Optional peers: each function returns a call to time.

The call itself imports the peer. If the peer is not installed, or does not work with the installed
versions, its row shows the error.
"""

from __future__ import annotations

import numpy as np

from bench.measure import Call
from streamgda.runtime import threads

PACKAGES = ("scikit-learn-intelex", "dask-ml", "river")
ONE_DAL, DASK_ML, RIVER = "oneDAL incremental covariance", "dask-ml GaussianNB", "river GaussianNB"


def one_dal(X: np.ndarray) -> dict[str, Call]:
    """Return the covariance of all rows by scikit-learn-intelex, without patching scikit-learn."""

    def covariance() -> object:
        from sklearnex.covariance import IncrementalEmpiricalCovariance

        return IncrementalEmpiricalCovariance(copy=False).partial_fit(X).covariance_

    return {ONE_DAL: covariance}


def dask_ml(X: np.ndarray, y: np.ndarray) -> dict[str, Call]:
    """Return naive Bayes of dask arrays over the same memory, with the same threads."""
    import dask
    import dask.array as da

    # A few chunks per thread; more would cost dask more than they gain.
    n_rows = max(1, -(-len(y) // (4 * threads.n_threads())))
    rows = da.from_array(X, chunks=(n_rows, X.shape[1]))
    labels = da.from_array(y, chunks=n_rows)

    def fit() -> object:
        from dask_ml.naive_bayes import GaussianNB

        model = GaussianNB().fit(rows, labels)
        with dask.config.set(scheduler="threads", num_workers=threads.n_threads()):
            return dask.compute(model.theta_, model.sigma_, model.class_prior_)

    return {DASK_ML: fit}


def river(X: np.ndarray, y: np.ndarray, *, predicts: bool = False) -> dict[str, Call]:
    """Return naive Bayes of one row at a time, which may predict the class of each row it learnt.

    Rows are converted to dicts beforehand.
    """
    stream = list(zip([dict(enumerate(row)) for row in X.tolist()], y.tolist(), strict=True))

    def learn() -> object:
        from river.naive_bayes import GaussianNB

        model = GaussianNB()
        for row, label in stream:
            model.learn_one(row, label)
            if predicts:
                model.predict_one(row)
        return model

    return {f"{RIVER}.learn_one{' and predict_one' if predicts else ''}": learn}
