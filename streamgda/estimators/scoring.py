"""Scores of rows from any container, as methods of the estimators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from streamgda import engine
from streamgda.engine.fingerprints import fingerprint_method
from streamgda.errors import InvalidDataError
from streamgda.estimators.saving import SavedEstimator
from streamgda.estimators.validation import validate_rows
from streamgda.rows import as_source
from streamgda.rows.labels import as_labels, find, join_labels
from streamgda.rows.sources import check_lengths
from streamgda.rows.validity import as_weights


@dataclass(frozen=True)
class Scorer:
    """A method of a fitted estimator as a function of blocks of rows.

    Attributes
    ----------
    name : str
        Identifies the function among those of the model.
    function : callable
        Called as ``function(rows, first_row)``; rows are numbered from `first_row` in errors.
        Returns one entry for each row.
    model : GaussianModel or BernoulliModel
        The model to which the function belongs.
    labels : ndarray or None
        All values of the result, if these are labels; otherwise it is float64.
    columns : int or None
        Width of the result; None if it is one-dimensional.
    options : dict
        Parameters on which the result depends besides the model.
    """

    name: str
    function: Callable[..., np.ndarray]
    model: Any
    labels: np.ndarray | None = None
    columns: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dtype(self) -> np.dtype:
        """Data type of the result."""
        return np.dtype(np.float64) if self.labels is None else self.labels.dtype

    @property
    def held(self) -> int:
        """Bytes that the function needs for any number of rows."""
        return int(self.model.packed_bytes)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of the function and its model, as JSON."""
        return fingerprint_method(self.name, self.model, self.options)


class RowClassifier(ClassifierMixin, SavedEstimator):
    """Base of all classifiers, which score rows from any container."""

    n_features_in_: int

    def _scorer(self, method: str, **options: Any) -> Scorer:
        """Return a method, with its options, as a function of blocks of rows.

        Raises
        ------
        InvalidParameterError
            For a method or an option that the estimator does not have.
        """
        raise NotImplementedError

    def _score_rows(self, scorer: Scorer, X: Any, out: Any = None) -> Any:
        return engine.score(
            scorer.function,
            validate_rows(self, X),
            out,
            dtype=scorer.dtype,
            columns=scorer.columns,
            labels=scorer.labels,
            fingerprint=None if out is None else scorer.fingerprint,
            held=scorer.held,
        )

    def predict(self, X: Any, *, out: Any = None) -> Any:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
            Rows.
        out : numpy.ndarray, zarr.Array, or path or zarr store to create one in; optional
            Destination of the result, which is written slab by slab; for a dask array, whose
            result is lazy otherwise, block by block. On a cluster each chunk or shard is written
            by one task. Elsewhere an attribute of a zarr array, ``streamgda_scores``, keeps how
            far it has been written: if the process is stopped, the same call resumes there.

        Returns
        -------
        ndarray, shape (n_rows,); or `out`; or a lazy dask array
            Labels.
        """
        return self._score_rows(self._scorer("predict"), X, out)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose predicted class is right.

        Parameters
        ----------
        X : array-like, zarr.Array or dask.array.Array, shape (n_rows, n_features)
            Rows.
        y : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
            True labels.
        sample_weight : array-like, shape (n_rows,), optional
            Weights of the rows.

        Returns
        -------
        float
            Accuracy.

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used.
        """
        predicted = np.asarray(self.predict(X))
        true = as_labels(as_source(y, "y").whole())
        check_lengths(as_source(predicted), as_source(true, "y"))
        classes = join_labels(self.classes_, np.unique(true))
        right = find(true, classes) == find(predicted, classes)
        if sample_weight is None:
            return float(right.mean())
        weights = as_weights(as_source(sample_weight, "sample_weight").whole(), true.size)
        if not weights.any():
            raise InvalidDataError("every sample_weight is zero: no row is left to score")
        return float(np.average(right, weights=weights))


class DiscriminantMixin(RowClassifier):
    """Base of the classifiers with discriminants; naive Bayes has none, as in scikit-learn.

    scikit-learn prefers a `decision_function` to probabilities, for example to calibrate them.
    """

    def decision_function(self, X: Any, *, out: Any = None) -> Any:
        """Return the discriminants of the classes, or the log-odds of the second of two.

        Parameters
        ----------
        X, out : see `predict`
            Rows, and the destination of the result.

        Returns
        -------
        ndarray, shape (n_rows, n_classes), or (n_rows,) for one or two; or as for `predict`
            Discriminants.
        """
        return self._score_rows(self._scorer("decision_function"), X, out)


def scorer_of(estimator: RowClassifier, method: str, **options: Any) -> Scorer:
    """Return a method of an estimator as a function of blocks of rows.

    Parameters
    ----------
    estimator : estimator
    method : str
        For example ``"predict_proba"``.
    **options
        Parameters of that method.

    Raises
    ------
    InvalidParameterError
        For a method or an option that the estimator does not have.
    """
    return estimator._scorer(method, **options)
