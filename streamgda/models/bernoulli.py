"""`Bernoullis`: zeros and ones, independent given the class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.sparse import issparse

from streamgda.errors import InvalidDataError
from streamgda.models.covariance import check_priors
from streamgda.models.scoring import ClassModel
from streamgda.moments import ClassMoments
from streamgda.rows.counting import as_matrix, raise_not_finite
from streamgda.rows.sparse import rows_with, with_values


def binarise(X: Any, first_row: int, threshold: float | None, marked: Any = None) -> Any:
    """Return ones where values are above the threshold and zeros elsewhere.

    Parameters
    ----------
    X : ndarray or csr_array, shape (n_rows, n_features)
    first_row : int
        Number of the first row in a larger array, from which errors count.
    threshold : float or None
        None if the rows hold zeros and ones already.
    marked : number, optional
        Value of missing measurements: these, NaN and infinity become NaN instead of an error.

    Returns
    -------
    ndarray or csr_array, of uint8, or of float32 with NaN

    Raises
    ------
    InvalidDataError
        For NaN and infinity, without a threshold for anything but zeros and ones, and with a
        negative threshold for sparse rows.
    """
    X = as_matrix(X, sparse=True)
    is_sparse, found = issparse(X), None
    values = X.data if is_sparse else X
    bad = ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros((), bool)
    if marked is not None:
        bad = bad | np.equal(values, marked)
    elif bad.any():
        raise_not_finite(X, first_row)
    if is_sparse and threshold is not None and threshold < 0:
        raise InvalidDataError(
            f"X is sparse, and with binarize={threshold:g} its zeros would be ones, which would "
            f"make it dense; use a threshold of at least 0, or pass X.toarray()"
        )
    if threshold is None:
        ones = values == 1
        other = ~(ones | (values == 0) | bad)
        if other.any():
            row = int((rows_with(X, other) if is_sparse else other.any(axis=1)).argmax())
            raise InvalidDataError(
                f"row {first_row + row} of X holds other values than zeros and ones; binarize=None "
                f"expects these: give the threshold above which a value counts as one",
                *("X", first_row + row),
            )
    else:
        ones = np.greater(values, threshold)
    found = ones.view(np.uint8)
    if bad.any():
        found = np.where(bad, np.float32(np.nan), found.astype(np.float32))
    return with_values(X, found) if is_sparse else found


@dataclass(frozen=True, eq=False)
class Bernoullis(ClassModel):
    r"""Zeros and ones with a probability for each class and feature.

    .. math:: p(x, y=k) = \pi_k \prod_j p_{kj}^{x_j} (1 - p_{kj})^{1 - x_j}

    Its logarithm is linear in x: scores are one product with a matrix.

    Attributes
    ----------
    classes, priors : ndarray, shape (n_classes,)
    log_one, log_zero : ndarray, shape (n_classes, n_features)
        :math:`\ln p` and :math:`\ln (1-p)`; NaN for a class without rows.
    threshold : float or None
        Threshold at which rows are binarised.
    features : ndarray of int
        Features that count.
    n_features : int
        Width of the rows.
    """

    classes: np.ndarray
    priors: np.ndarray
    log_one: np.ndarray
    log_zero: np.ndarray
    threshold: float | None
    features: np.ndarray
    n_features: int
    takes_sparse = True

    @classmethod
    def of(
        cls, moments: ClassMoments, alpha: Any, threshold: float | None, priors: Any = None
    ) -> Self:
        r"""Estimate :math:`p_{kj} = (n_{kj} + \alpha) / (n_k + 2 \alpha)` of binarised rows.

        Raises
        ------
        InvalidDataError
            For moments of rows that were not binarised.
        InvalidParameterError
            For priors that do not fit.
        """
        count = moments.class_count.astype(np.float64)
        ones, n = ones_of(moments), count[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            total = np.log(np.where(n > 0, n + 2 * alpha, np.nan))
            log_one, log_zero = np.log(ones + alpha) - total, np.log(n - ones + alpha) - total
        shares = check_priors(priors, moments.classes, count, "class_prior", normalised=False)
        d = log_one.shape[1]
        classes = moments.classes
        return cls(classes, shares, log_one, log_zero, threshold, np.arange(d), d)

    @property
    def alive(self) -> np.ndarray:
        """Indices of the classes that have rows."""
        return np.flatnonzero(~np.isnan(self.log_one[:, 0]))

    @property
    def log_priors(self) -> np.ndarray:
        """Logarithms of the priors."""
        with np.errstate(divide="ignore"):
            return np.log(self.priors)

    @cached_property
    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights and intercepts of the scores, without probabilities of zero."""
        one, zero = (np.where(np.isfinite(v), v, 0.0) for v in (self.log_one, self.log_zero))
        seen = ~np.isnan(self.log_one[:, 0])
        return one - zero, np.where(seen, zero.sum(axis=1) + self.log_priors, -np.inf)

    @cached_property
    def _impossible(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Weights and intercepts of the number of a row's values that a class cannot have."""
        never, always = self.log_one == -np.inf, self.log_zero == -np.inf
        if not (never.any() or always.any()):
            return None
        return never.astype(np.float64) - always, always.sum(axis=1).astype(np.float64)

    def _rows(self, block: Any, first_row: int) -> Any:
        return binarise(block, first_row, self.threshold)

    def _joint(self, X: Any) -> np.ndarray:
        X = X.astype(np.float64)
        if isinstance(X, np.ndarray) and self.features.size < self.n_features:
            X = X[:, self.features]
        weights, intercepts = self._linear
        scores = np.ascontiguousarray((X @ weights.T + intercepts).T)
        if self._impossible is not None:
            weights, intercepts = self._impossible
            scores[(X @ weights.T + intercepts).T > 0] = -np.inf
        return scores

    def marginal(self, observed: np.ndarray) -> Self:
        """Return the model of rows of which only some features count, given by their indices."""
        at = np.flatnonzero(np.isin(self.features, observed))
        ones, zeros = self.log_one[:, at], self.log_zero[:, at]
        return replace(self, log_one=ones, log_zero=zeros, features=self.features[at])


def ones_of(moments: ClassMoments) -> np.ndarray:
    """Return the number of ones, or their weight, of each class in each feature.

    Raises
    ------
    InvalidDataError
        If the variances are not those of zeros and ones.
    """
    sums = moments.centred()
    n, p = sums.count[:, None], sums.mean
    # The sums of squares about the mean of zeros and ones follow from the mean.
    gap = np.abs(sums.scatter - n * p * (1 - p))
    if ((gap > 1e-6 * n) | ((np.abs(p - 0.5) > 0.5 + 1e-6) & (n > 0))).any():
        raise InvalidDataError(
            "these moments are not of zeros and ones; binarise the rows first: "
            "accumulate(X > threshold, y, covariance_type='diag')"
        )
    ones = n * p if sums.weighted else np.rint(n * p)
    return np.asarray(np.clip(ones, 0, n), np.float64)
