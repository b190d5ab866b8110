"""`SeparabilitySelector`: selection of features as a step of a scikit-learn pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Self, Unpack

import numpy as np
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from streamgda import engine
from streamgda.errors import InvalidDataError
from streamgda.estimators.moment_classifier import NO_ROWS
from streamgda.estimators.row_estimator import Reading, RowEstimator, names_in, takes, validate_rows
from streamgda.models.feature_selection import select_features
from streamgda.moments import ClassMoments
from streamgda.rows import Rows, as_source
from streamgda.rows.sources import RowSource
from streamgda.rows.tables import FrameRows
from streamgda.runtime.parameters import as_integer, check_type
from streamgda.storage.format import check_array, check_whole
from streamgda.storage.saved import (
    State,
    arrays_within,
    build,
    describe,
    nested,
    restore,
    synchronized,
)


class SeparabilitySelector(SelectorMixin, RowEstimator):
    """Select the features in which classes are easiest to separate, in one pass over the rows.

    Parameters
    ----------
    n_features_to_select : int, optional
        Number of features; by default half of them.
    criterion, over, direction : str
        Criterion and search; see `select_features`.
    covariance_type : {"full", "tied", "diag", "tied_diag", "spherical", "tied_spherical"}
        Type of the covariances.
    ddof, pooling, shrinkage, reg_param, var_smoothing, tol : see `GaussianDiscriminantAnalysis`
        Regularisation of the covariances; `shrinkage` is a number or None.

    Attributes
    ----------
    ranking_ : ndarray of int64, shape (n_features_to_select,)
        Numbers of the selected features, in the order in which they were selected.
    criterion_ : ndarray of float64, shape (n_features_to_select,)
        The criterion for the first of these features, the first two, and so on.
    moments_ : ClassMoments
        Moments of the rows.
    n_features_in_, feature_names_in_

    See Also
    --------
    select_features : The same from moments.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from streamgda import QuadraticDiscriminantAnalysis, SeparabilitySelector
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = SeparabilitySelector(2)
    >>> pipeline = make_pipeline(selector, QuadraticDiscriminantAnalysis()).fit(X, y)
    >>> selector.ranking_
    array([3, 2])
    >>> round(pipeline.score(X, y), 3)
    0.98
    """

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        criterion: str = "jeffries_matusita",
        over: str = "least",
        direction: str = "forward",
        covariance_type: str = "full",
        ddof: int = 0,
        pooling: float = 0.0,
        shrinkage: float | None = None,
        reg_param: float = 0.0,
        var_smoothing: float = 0.0,
        tol: float = 1e-4,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.criterion = criterion
        self.over = over
        self.direction = direction
        self.covariance_type = covariance_type
        self.ddof = ddof
        self.pooling = pooling
        self.shrinkage = shrinkage
        self.reg_param = reg_param
        self.var_smoothing = var_smoothing
        self.tol = tol

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    @takes(Reading)
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **reading: Unpack[Reading]) -> Self:
        """Select features.

        Parameters
        ----------
        X, y, sample_weight : see `GaussianDiscriminantAnalysis.fit`
            Rows, labels and weights, in any container.
        features, unlabelled, nodata, on_invalid : see `GaussianDiscriminantAnalysis.fit`
            How rows are read, and which of them count.

        Returns
        -------
        SeparabilitySelector
            The fitted selector.

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used, and fewer than two classes.
        InvalidParameterError
            For parameters out of range.
        SingularCovarianceError
            If fewer than `n_features_to_select` features are linearly independent.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import SeparabilitySelector
        >>> selector = SeparabilitySelector(2).fit(*load_iris(return_X_y=True))
        >>> selector.get_support()
        array([False, False,  True,  True])
        """
        rows = self._validated(self._read("fit", X, y, sample_weight, reading), reset=True)
        moments = engine.accumulate_into(ClassMoments(self.covariance_type), rows)
        moments._name_features(names_in(self))
        return self._select(moments)

    @classmethod
    @synchronized
    def from_moments(cls, moments: ClassMoments, **params: Any) -> Self:
        """Select features from moments, without reading rows.

        Parameters
        ----------
        moments : ClassMoments
            Moments that determine the covariance type.
        **params
            Parameters of the selector; `covariance_type` is by default that of the moments.

        Returns
        -------
        SeparabilitySelector
            The fitted selector.

        Raises
        ------
        TypeError
            For anything but `ClassMoments`.
        InvalidDataError, InvalidParameterError, MergeError, SingularCovarianceError
            As for `fit`, and for moments that do not determine the covariance type.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import SeparabilitySelector, accumulate
        >>> moments = accumulate(*load_iris(return_X_y=True))
        >>> SeparabilitySelector.from_moments(moments, n_features_to_select=2).get_support()
        array([False, False,  True,  True])
        """
        check_type("moments", moments, ClassMoments, "ClassMoments")
        selector = cls(**{"covariance_type": moments.covariance_type, **params})
        return selector._select(moments)

    def _select(self, moments: ClassMoments) -> Self:
        if moments.n_features is None:
            raise InvalidDataError(NO_ROWS)
        if moments.feature_map is not None:
            raise InvalidDataError(
                "these moments are of rows behind a feature_map, whose features are no columns of "
                "the rows; use select_features(moments, n)"
            )
        n, width = self.n_features_to_select, moments.n_features
        if n is None:
            n = max(1, width // 2)
        n = as_integer("n_features_to_select", n, f"1 to {width}, or None", 1, width)
        params = self.get_params(deep=False)
        del params["n_features_to_select"]
        return self._with(moments, *select_features(moments, n, **params))

    def _with(self, moments: ClassMoments, ranking: np.ndarray, criterion: np.ndarray) -> Self:
        self.ranking_, self.criterion_ = ranking, criterion
        self.moments_ = moments
        self.n_features_in_ = int(moments.n_features or 0)
        if moments.feature_names is not None:
            self.feature_names_in_ = np.array(moments.feature_names, object)
        return self

    def _state(self) -> State:
        check_is_fitted(self)
        fitted, arrays = nested({"moments": self.moments_})
        selected = {"ranking": self.ranking_, "criterion": self.criterion_}
        return {**describe(self), **fitted}, {**selected, **arrays}

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        selector = build(cls, **attributes["params"])
        moments = restore(ClassMoments, attributes["moments"], arrays_within(arrays, "moments"))
        ranking, criterion = arrays["ranking"], arrays["criterion"]
        most = moments.n_features or 0
        n = check_whole("the number of selected features", ranking.size, 1, most)
        check_array("ranking", ranking, (n,), "i8", least=0, most=most - 1)
        check_array("criterion", criterion, (n,), "f8")
        if np.unique(ranking).size < n:
            raise ValueError(f"it selects a feature twice: {ranking}")
        return selector._with(moments, ranking, criterion)

    def transform(
        self,
        X: Any,
        *,
        out: Any = None,
        features: str | None = None,
        max_memory: int | str | None = None,
    ) -> Any:
        """Return the selected features of rows.

        Parameters
        ----------
        X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
            Rows.
        out : numpy.ndarray, zarr.Array, or path or zarr store to create one in; optional
            Destination of the result; see `GaussianDiscriminantAnalysis.predict`.
        features : str, optional
            Name of the dimension that holds the features, if `X` is a DataArray.
        max_memory : int or str, optional
            Memory for rows in flight and selected features; see `accumulate`.

        Returns
        -------
        ndarray, shape (n_rows, n_features_to_select); or `out`; or a lazy dask array
            The selected features, in the order in which they are in `X`.

        Raises
        ------
        InvalidDataError
            If the rows have another number of features, or are not numbers.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import SeparabilitySelector
        >>> X, y = load_iris(return_X_y=True)
        >>> SeparabilitySelector(2).fit(X, y).transform(X[:2])
        array([[1.4, 0.2],
               [1.4, 0.2]])
        """
        kept = self.get_support(indices=True)
        rows = Rows.of(X, features=features).X
        in_memory = not isinstance(rows, RowSource) or isinstance(rows, FrameRows)
        if out is features is max_memory is None and in_memory:
            return super().transform(X)
        rows = validate_rows(self, rows)
        dtype = np.dtype(as_source(rows).dtype or np.float64)
        function = partial(_columns, kept=kept, dtype=dtype)
        return engine.score(
            function,
            rows,
            out,
            dtype=dtype,
            columns=kept.size,
            name="transform",
            held=kept.nbytes,
            max_memory=max_memory,
        )

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self, "ranking_")
        mask = np.zeros(self.n_features_in_, bool)
        mask[self.ranking_] = True
        return mask


def _columns(X: np.ndarray, first_row: int, kept: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return some columns of rows."""
    return np.ascontiguousarray(np.asarray(X)[:, kept], dtype)
