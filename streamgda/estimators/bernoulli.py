"""Naive Bayes for zeros and ones."""

from __future__ import annotations

import math
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.estimators.base import MomentClassifier
from streamgda.models.bernoulli import BernoulliModel, BinaryRows, binarise, ones_of
from streamgda.rows.sources import is_dask

_LEAST_ALPHA = 1e-10
_LARGE = 1 << 25  # bytes of an array that is binarised slab by slab


class BernoulliNB(MomentClassifier):
    r"""Bernoulli naive Bayes: a probability of a one for each class and feature.

    As `sklearn.naive_bayes.BernoulliNB`, from one pass over rows that may be larger than memory:
    :math:`p_{kj} = (n_{kj} + \alpha) / (n_k + 2\alpha)`. What is kept are the moments of the
    binarised rows, whole numbers unless there are weights.

    Parameters
    ----------
    alpha : float >= 0
        Smoothing (Laplace's is 1). With 0 a value that a class never had rules the class out.
    force_alpha : bool
        False raises an `alpha` below 1e-10 to that.
    binarize : float or None
        Values above it are ones. None where the rows hold zeros and ones already, as what `sample`
        draws; others are then refused.
    fit_prior : bool
        False gives all classes that have rows the same prior.
    class_prior : array-like, shape (n_classes,), optional
        Of the sorted classes; by default their shares of the rows.

    Attributes
    ----------
    classes_, class_count_, class_log_prior_, feature_count_, feature_log_prob_
    moments_ : ClassMoments
        Of the binarised rows.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from streamgda import BernoulliNB
    >>> X, y = [[1, 0, 1], [1, 1, 1], [0, 1, 0], [0, 0, 0]], ["a", "a", "b", "b"]
    >>> nb = BernoulliNB().partial_fit(X[:2], y[:2]).partial_fit(X[2:], y[2:])
    >>> nb.predict([[1, 0, 1]]), nb.feature_count_
    (array(['a'], dtype='<U1'), array([[2., 1., 2.],
           [0., 1., 0.]]))
    """

    _model_type = BernoulliModel

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        force_alpha: bool = True,
        binarize: float | None = 0.0,
        fit_prior: bool = True,
        class_prior: Any = None,
    ) -> None:
        self.alpha = alpha
        self.force_alpha = force_alpha
        self.binarize = binarize
        self.fit_prior = fit_prior
        self.class_prior = class_prior

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # of rows that are not zeros and ones at heart
        return tags

    def _covariance_type(self) -> str:
        return "diag"

    def _check_parameters(self) -> None:
        if not _is_number(self.alpha) or self.alpha < 0:
            raise InvalidParameterError(f"alpha={self.alpha!r}; expected a number >= 0")
        if self.binarize is not None and not _is_number(self.binarize):
            raise InvalidParameterError(
                f"binarize={self.binarize!r}; expected a number, or None for zeros and ones"
            )

    @property
    def _threshold(self) -> float | None:
        return None if self.binarize is None else float(self.binarize)

    def _make_model(self) -> BernoulliModel:
        alpha = self.alpha if self.force_alpha else max(self.alpha, _LEAST_ALPHA)
        priors = self.class_prior
        if priors is None and not self.fit_prior:
            seen = self.class_count_ > 0
            priors = seen / max(1, seen.sum())
        return BernoulliModel.from_moments(self.moments_, alpha, self._threshold, priors)

    def _is_stored(self, X: Any) -> bool:
        large = isinstance(X, np.ndarray) and X.ndim == 2 and X.nbytes > _LARGE
        return large or super()._is_stored(X)

    def summed(self, X: Any) -> Any:
        """The rows binarised, as they are read."""
        if is_dask(X):
            from streamgda.engine import dask as distributed  # noqa: PLC0415

            function = partial(_binarised, threshold=self._threshold)
            return distributed.score(function, X, np.uint8, X.shape[1])
        if self._is_stored(X):
            return BinaryRows(X, self._threshold)
        return binarise(X, self._threshold)

    @property
    def class_log_prior_(self) -> np.ndarray:
        """Logarithms of the class priors, shape (n_classes,)."""
        return self.model_.log_priors

    @property
    def feature_log_prob_(self) -> np.ndarray:
        """Log-probability of a one, (n_classes, n_features); NaN for a class without rows."""
        return self.model_.log_one

    @property
    def feature_count_(self) -> np.ndarray:
        """Ones of each class in each feature, or their weight, shape (n_classes, n_features)."""
        self.class_count_  # noqa: B018  (says what is wrong before fit)
        return ones_of(self.moments_)


def _binarised(X: np.ndarray, first_row: int, threshold: float | None) -> np.ndarray:
    return binarise(X, threshold, first_row)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
