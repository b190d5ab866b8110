"""`BernoulliModel`: zeros and ones, independent given the class."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.models.model import Model, check_classes, check_means, check_priors
from streamgda.models.sampling import codes_to_sample
from streamgda.moments import ClassMoments, held_sums
from streamgda.moments.feature_maps import Lifting
from streamgda.moments.roots import Answers, LinearFunctions
from streamgda.moments.sums import ExactSums
from streamgda.rows.arrays import as_kernel_rows
from streamgda.rows.counting import all_finite, as_matrix, refuse_not_finite
from streamgda.rows.sparse import CompressedRows
from streamgda.storage.format import check_array, check_number

_BYTE, _FLOAT64 = np.dtype(np.uint8), np.dtype(np.float64)


def binarise(X: Any, threshold: float | None, first_row: int = 0) -> Any:
    """Return ones where values are above the threshold and zeros elsewhere, as bytes.

    Parameters
    ----------
    X : array-like or sparse matrix, shape (n_rows, n_features)
    threshold : float or None
        None if the rows hold zeros and ones already.
    first_row : int
        Number of the first row in a larger array, from which errors count.

    Returns
    -------
    ndarray of uint8, or CompressedRows, in the shape of `X`

    Raises
    ------
    InvalidDataError
        For NaN and infinity, without a threshold for anything but zeros and ones, and with a
        negative threshold for sparse rows.

    Examples
    --------
    >>> binarise([[0.2, 3.0], [-1.0, 0.0]], 0.0)
    array([[1, 1],
           [0, 0]], dtype=uint8)
    """
    X = as_matrix(X, first_row, sparse=True)
    sparse = type(X) is CompressedRows
    values = X.values if sparse else X
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        refuse_not_finite(X, first_row)
    if threshold is None:
        ones = values == 1
        other = ~ones & (values != 0)
        if other.any():
            _refuse_other(X, other, first_row)
    else:
        if sparse and threshold < 0:
            raise InvalidDataError(
                f"X is sparse, and with binarize={threshold:g} its zeros would be ones, which "
                f"would make it dense; use a threshold of at least 0, or pass X.toarray()"
            )
        ones = np.greater(values, threshold)
    ones = ones.view(np.uint8)
    return X.with_values(ones) if sparse else ones


def _refuse_other(X: Any, other: np.ndarray, first_row: int) -> NoReturn:
    """Raise `InvalidDataError` for the first value that is neither zero nor one."""
    if type(X) is CompressedRows:
        r = int(X.rows_with(other).argmax())
        row = X.row(r)
        j = int(((row != 0) & (row != 1)).argmax())
    else:
        r, j = (int(i) for i in np.argwhere(other)[0])
        row = X[r]
    raise InvalidDataError(
        f"row {first_row + r}, column {j} of X is {row[j]}; binarize=None expects zeros "
        f"and ones: give the threshold above which a value counts as one",
        *("X", first_row + r, j),
    )


@dataclass(frozen=True)
class BernoulliModel(Model):
    r"""Zeros and ones with a probability for each class and feature.

    .. math:: p(x, y=k) = \pi_k \prod_j p_{kj}^{x_j} (1 - p_{kj})^{1 - x_j}

    Its logarithm is linear in x: a row's scores are one product with a matrix (document 003 of the
    field's lecture notes, last equation).

    Attributes
    ----------
    classes : ndarray, shape (n_classes,)
    priors : ndarray of float64, shape (n_classes,)
    log_one, log_zero : ndarray of float64, shape (n_classes, n_features)
        :math:`\ln p` and :math:`\ln (1-p)`; NaN for a class without rows, whose prior is zero.
    threshold : float or None
        Threshold at which rows are binarised.
    feature_names : tuple of str or None
        Names of the features. Rows with other names are refused; those without names fit any.
    feature_map : Lifting, optional
        Map of rows before they are scored, whose last step may binarise them.
    """

    _kind = "bernoulli"
    _by_feature = "log_one"
    _shown = "priors", "log_one", "log_zero"
    _numbers = ("threshold",)
    _takes_sparse = True

    classes: np.ndarray
    priors: np.ndarray
    log_one: np.ndarray
    log_zero: np.ndarray
    threshold: float | None
    feature_names: tuple[str, ...] | None = None
    feature_map: Lifting | None = field(default=None, kw_only=True)

    @classmethod
    def from_moments(
        cls,
        moments: ClassMoments,
        alpha: float | np.ndarray,
        threshold: float | None,
        priors: Any = None,
    ) -> Self:
        r"""Estimate :math:`p_{kj} = (n_{kj} + \alpha) / (n_k + 2 \alpha)`.

        Parameters
        ----------
        moments : ClassMoments
            Moments of binarised rows, with a variance for each class and feature.
        alpha : float >= 0, or ndarray of them, shape (n_features,)
        threshold : float or None
        priors : array-like, shape (n_classes,), optional
            In the order of the sorted classes; the classes' shares of the rows by default.

        Returns
        -------
        BernoulliModel

        Raises
        ------
        InvalidDataError
            For moments of rows that were not binarised, or if no class has rows.
        InvalidParameterError
            For priors that do not fit.
        """
        count = moments.class_count
        check_classes(moments.classes, count)
        ones = ones_of(moments)
        n = count[:, None].astype(np.float64)
        log_one, log_zero = log_probabilities(ones, n - ones, n, alpha)
        shares = check_priors(priors, moments.classes, count, "class_prior", normalised=False)
        names = moments.feature_names
        return cls(moments.classes, shares, log_one, log_zero, threshold, names)

    @classmethod
    def of(
        cls,
        classes: np.ndarray,
        log_one: np.ndarray,
        log_priors: np.ndarray,
        threshold: float | None,
    ) -> Self:
        """Return the model of given log-probabilities of ones, and log-priors.

        Parameters
        ----------
        classes : ndarray, shape (n_classes,)
        log_one : ndarray, shape (n_classes, n_features)
            NaN for a class without rows.
        log_priors : ndarray, shape (n_classes,)
        threshold : float or None

        Raises
        ------
        InvalidParameterError
            For anything but logarithms of probabilities.
        """
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            priors, log_zero = np.exp(log_priors), np.log(-np.expm1(log_one))
        model = cls(classes, priors, log_one, log_zero, threshold)
        try:
            if log_one.ndim != 2:
                raise ValueError(f"feature_log_prob has shape {log_one.shape}")
            model._check()
        except ValueError as error:
            raise InvalidParameterError(
                f"feature_log_prob and class_log_prior are no logarithms of probabilities: {error}"
            ) from None
        return model

    # --- derived attributes -------------------------------------------------------------------

    @property
    def _used_features(self) -> np.ndarray:
        """Features of the density; rows without any of them have none."""
        return np.arange(self.n_features)

    def marginal(self, observed: Any) -> Self:
        """Return the model of some of the features, the others summed out."""
        at, names = np.asarray(observed), self.feature_names
        return replace(
            self,
            log_one=self.log_one[:, at],
            log_zero=self.log_zero[:, at],
            feature_names=None if names is None else tuple(names[j] for j in at),
        )

    @property
    def packed_bytes(self) -> int:
        """Bytes that scoring packs of the model, at most."""
        return 2 * self.log_one.nbytes

    def _description(self) -> dict[str, Any]:
        return super()._description() | {"kind": "Bernoulli model", "threshold": self.threshold}

    @cached_property
    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients and intercepts of the scores, without probabilities of zero."""
        one, zero = (
            values if all_finite(values) else np.where(np.isfinite(values), values, 0.0)
            for values in (self.log_one, self.log_zero)
        )
        return one - zero, zero.sum(axis=1) + self.log_priors

    @cached_property
    def _impossible(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Coefficients and intercepts of the number of a row's values that a class cannot have.

        None if all classes can have all values, as with smoothing.
        """
        never, always = self.log_one == -np.inf, self.log_zero == -np.inf
        if not (never.any() or always.any()):
            return None
        return never.astype(np.float64) - always, always.sum(axis=1).astype(np.float64)

    @cached_property
    def _functions(self) -> list[LinearFunctions]:
        both = [self._linear] if self._impossible is None else [self._linear, self._impossible]
        return [LinearFunctions(*each, np.arange(self.n_features)) for each in both]

    # --- scores of a chunk of rows ------------------------------------------------------------

    def _read(self, X: Any, first_row: int) -> Any:
        ones = binarise(X, self.threshold, first_row)
        return as_kernel_rows(ones, _FLOAT64 if type(ones) is CompressedRows else _BYTE)

    def _refuse_invalid(self, rows: Any, first_row: int) -> bool:
        """Return False, as all are zeros and ones."""
        return False

    def _joint(self, X: Any) -> np.ndarray:
        scores, *impossible = (functions(X) for functions in self._functions)
        for number in impossible:
            scores[number > 0] = -np.inf
        return scores

    def _relative_scores(self, X: Any, margin: float = np.inf) -> np.ndarray:
        return self._joint(X)

    def _write(self, X: Any, out: Answers, temperature: float = 1.0) -> bool | None:
        return None if self._impossible else self._functions[0].write(X, out, temperature)

    def sample(self, labels: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        """Draw one row of zeros and ones for each label: float64, shape (n_rows, n_features)."""
        codes = codes_to_sample(labels, self.classes, self.log_one)
        return (
            random.random_sample((codes.size, self.n_features)) < np.exp(self.log_one)[codes]
        ) * 1.0

    # --- saving -------------------------------------------------------------------------------

    def _check(self) -> None:
        """Raise ValueError unless the attributes fit each other and are probabilities."""
        shape = k, d = self.classes.size, self.n_features
        if not k or not d:
            raise ValueError("it has no classes, or no features")
        if self.threshold is not None:
            check_number("threshold", self.threshold)
        logarithms = {"log_one": self.log_one, "log_zero": self.log_zero}
        seen = [
            check_means(name, np.where(values == -np.inf, values.dtype.type(0), values), shape)
            for name, values in logarithms.items()
        ]
        check_array("priors", self.priors, (k,), "f8")
        check_priors(self.priors, self.classes, seen[0], normalised=False)
        one, zero = self.log_one[seen[0]], self.log_zero[seen[0]]
        if (seen[0] != seen[1]).any() or max(one.max(), zero.max()) > 0:
            raise ValueError("its probabilities are above one, or missing")
        if not np.allclose(np.exp(one) + np.exp(zero), 1):
            raise ValueError("its probabilities of ones and zeros do not sum to one")


def log_probabilities(
    ones: np.ndarray, zeros: np.ndarray, count: np.ndarray, alpha: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the logarithms of the smoothed probabilities of ones and of zeros.

    Parameters
    ----------
    ones, zeros : ndarray of float64, shape (n_classes, n_features)
        Weights of the rows with a one and with a zero, which the logarithms replace.
    count : ndarray of float64, shape (n_classes, 1)
        Weights of the classes.
    alpha : float or ndarray, shape (n_features,)
        Smoothing.

    Returns
    -------
    log_one, log_zero : ndarray, shape (n_classes, n_features)
        Logarithms; NaN for a class without rows.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        total = np.log(np.where(count > 0, count + 2 * alpha, np.nan))
        for values in (ones, zeros):  # in place: there may be millions of features
            np.add(values, alpha, out=values)
            np.log(values, out=values)
            np.subtract(values, total, out=values)
    return ones, zeros


def ones_of(moments: ClassMoments) -> np.ndarray:
    """Return the number of ones, or their weight, of each class in each feature.

    Parameters
    ----------
    moments : ClassMoments
        Moments of binarised rows.

    Returns
    -------
    ndarray, shape (n_classes, n_features)

    Raises
    ------
    InvalidDataError
        If the variances are not those of zeros and ones.
    """
    exact = moments._sums
    if isinstance(exact, ExactSums):
        # The square of a whole number is larger than the number itself, except for these two.
        if (exact.structure.squares(exact.packed) != exact.total).any():
            _refuse_moments()
        return exact.total.astype(np.float64)
    sums = held_sums(moments).centred()
    n, p = sums.count[:, None], sums.mean + sums.mean_low
    # The sums of squares about the mean of zeros and ones follow from the mean.
    gap = np.abs(sums.structure.squares(sums.packed) - n * p * (1 - p))
    if ((gap > 1e-6 * n) | (np.abs(p - 0.5) > 0.5 + 1e-6)).any():
        _refuse_moments()
    return np.clip(np.rint(n * p) if sums.squares is None else n * p, 0, n)


def _refuse_moments() -> NoReturn:
    raise InvalidDataError(
        "these moments are not of zeros and ones; binarise the rows first: "
        "accumulate(X > threshold, y, covariance_type='diag')"
    )
