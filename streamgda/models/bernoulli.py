"""`BernoulliModel`: zeros and ones, independent given the class, and what they say of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np

from streamgda import storage
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.kernels import scoring
from streamgda.kernels.tiles import panel_width
from streamgda.models.gaussian import check_priors
from streamgda.models.scores import (
    Strips,
    by_chunks,
    check_width,
    copied,
    difference,
    log_posterior,
    log_sum_exp,
    most_probable,
    posterior,
)
from streamgda.moments import ClassMoments
from streamgda.moments.variances import diagonals
from streamgda.rows.blocks import as_rows
from streamgda.rows.validity import as_matrix, refuse_not_finite
from streamgda.storage.saved import Saved, State

_BYTE, _FLOAT64 = np.dtype(np.uint8), np.dtype(np.float64)


def binarise(X: Any, threshold: float | None, first_row: int = 0) -> np.ndarray:
    """Ones where values are above the threshold, zeros elsewhere: bytes, in the shape of `X`.

    Parameters
    ----------
    X : array-like, shape (n_rows, n_features)
    threshold : float or None
        None where the rows hold zeros and ones already.
    first_row : int
        Where the rows stand in a larger array: errors name rows by it.

    Raises
    ------
    InvalidDataError
        For NaN and infinities, and without a threshold for anything else than zeros and ones.

    Examples
    --------
    >>> binarise([[0.2, 3.0], [-1.0, 0.0]], 0.0)
    array([[1, 1],
           [0, 0]], dtype=uint8)
    """
    X = as_matrix(X)
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        refuse_not_finite(X, first_row)
    if threshold is not None:
        return np.greater(X, threshold).view(np.uint8)
    ones = X == 1
    other = np.argwhere(~ones & (X != 0))
    if other.size:
        r, j = other[0]
        raise InvalidDataError(
            f"row {first_row + r}, column {j} of X is {X[r, j]}; with binarize=None zeros and "
            f"ones are expected: give the threshold above which a value counts as one",
            *("X", first_row + int(r), int(j)),
        )
    return ones.view(np.uint8)


class BinaryRows:
    """Rows that are binarised as they are read: to whoever slices them, an array in a store.

    Parameters
    ----------
    X : array that is read by slicing, shape (n_rows, n_features)
    threshold : float or None
        As of `binarise`.

    Attributes
    ----------
    shape, dtype, chunks, shards, store_path
        Of what is read, as that is what reading costs, and what errors name.
    """

    def __init__(self, X: Any, threshold: float | None) -> None:
        self._values = X
        self._threshold = threshold
        self.shape, self.dtype = X.shape, X.dtype
        self.chunks, self.shards = getattr(X, "chunks", None), getattr(X, "shards", None)
        self.store_path = getattr(X, "store_path", type(X).__name__)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return binarise(self._values[rows], self._threshold, rows.start or 0)


@dataclass(frozen=True)
class BernoulliModel(Saved):
    r"""Zeros and ones with a probability for each class and feature.

    .. math:: p(x, y=k) = \pi_k \prod_j p_{kj}^{x_j} (1 - p_{kj})^{1 - x_j}

    In logarithms that is linear in x: a row's scores are one product with a matrix (document 003
    of the field's lecture notes, its last equation).

    Attributes
    ----------
    classes : ndarray, shape (n_classes,)
    priors : ndarray of float64, shape (n_classes,)
    log_one, log_zero : ndarray of float64, shape (n_classes, n_features)
        :math:`\ln p` and :math:`\ln (1-p)`; NaN for a class without rows, whose prior is zero.
    threshold : float or None
        Rows are binarised at it.
    """

    _kind = "bernoulli"

    classes: np.ndarray
    priors: np.ndarray
    log_one: np.ndarray
    log_zero: np.ndarray
    threshold: float | None

    @classmethod
    def from_moments(
        cls,
        moments: ClassMoments,
        alpha: float,
        threshold: float | None,
        priors: Any = None,
    ) -> Self:
        r"""Estimate :math:`p_{kj} = (n_{kj} + \alpha) / (n_k + 2 \alpha)`.

        Parameters
        ----------
        moments : ClassMoments
            Of binarised rows: with a variance for each class and feature.
        alpha : float >= 0
        threshold : float or None
        priors : array-like, shape (n_classes,), optional
            In the order of the sorted classes; the classes' shares of the rows by default.

        Raises
        ------
        InvalidDataError
            For moments of rows that were not binarised, or where fewer than two classes have rows.
        InvalidParameterError
            For priors that do not fit.
        """
        count = moments.class_count
        if (count > 0).sum() < 2:
            raise InvalidDataError(
                f"The number of classes has to be greater than one; got {(count > 0).sum()} class "
                f"({', '.join(map(str, moments.classes[count > 0]))}) with rows. Give rows of at "
                f"least one other class"
            )
        ones = ones_of(moments)
        n = count[:, None].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            total = np.log(np.where(n > 0, n + 2 * alpha, np.nan))
            log_one, log_zero = np.log(ones + alpha) - total, np.log(n - ones + alpha) - total
        shares = check_priors(priors, moments.classes, count)
        return cls(moments.classes, shares, log_one, log_zero, threshold)

    def __getstate__(self) -> dict[str, Any]:
        """The attributes, without what is derived from them: a pickle is as small as it can be."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    # --- derived once -------------------------------------------------------------------------

    @property
    def packed_bytes(self) -> int:
        """Bytes that scoring packs of the model, at most."""
        return 2 * self.log_one.nbytes

    @cached_property
    def n_features(self) -> int:
        """Width of the rows that are scored."""
        return int(self.log_one.shape[1])

    @cached_property
    def log_priors(self) -> np.ndarray:
        """Logarithms of the priors, minus infinity where zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.priors)

    @cached_property
    def _linear(self) -> tuple[Strips, np.ndarray]:
        """Coefficients and intercepts of the joint log-likelihood, without what is certain."""
        open_ = np.isfinite(self.log_one) & np.isfinite(self.log_zero)
        one, zero = np.where(open_, self.log_one, 0.0), np.where(open_, self.log_zero, 0.0)
        return Strips(one - zero), zero.sum(axis=1) + self.log_priors

    @cached_property
    def _certain(self) -> tuple[Strips, np.ndarray] | None:
        """What counts the values of a row that a class cannot have; without smoothing there are."""
        never, always = self.log_one == -np.inf, self.log_zero == -np.inf
        if not (never.any() or always.any()):
            return None
        return Strips(never.astype(np.float64) - always), always.sum(axis=1).astype(np.float64)

    # --- scores of rows -----------------------------------------------------------------------

    def _joint(self, X: np.ndarray, first_row: int) -> np.ndarray:
        """Joint log-likelihoods of a chunk of rows, class by class: shape (n_classes, n_rows)."""
        bits = as_rows(binarise(X, self.threshold, first_row), _BYTE)
        width = panel_width(_FLOAT64)
        panels = np.empty((-(-len(bits) // width), self.n_features, width))
        scoring.pack_panels(bits, np.arange(self.n_features), panels)

        def products(vectors: Strips, offsets: np.ndarray) -> np.ndarray:
            out, centre = np.empty((self.classes.size, len(bits))), np.zeros(self.n_features)
            scoring.linear_scores(panels, centre, vectors[_FLOAT64], 1.0, offsets, out)
            return out

        scores = products(*self._linear)
        if self._certain is not None:
            scores[products(*self._certain) > 0] = -np.inf
        return scores

    def _score(
        self,
        X: Any,
        finish: Callable[[np.ndarray, np.ndarray], None],
        out: np.ndarray,
        first_row: int,
    ) -> np.ndarray:
        """Run chunk by chunk, on all threads, into `out`."""
        X = as_matrix(X)
        check_width(X, self.n_features)
        return by_chunks(self._joint, finish, X, self.classes.size, out, first_row)

    def _by_class(
        self, X: Any, finish: Callable[[np.ndarray, np.ndarray], None], first_row: int
    ) -> np.ndarray:
        return self._score(X, finish, np.empty((len(X), self.classes.size)), first_row)

    def predict(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Each row's most probable class, shape (n_rows,).

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
        first_row : int
            Where the rows stand in a larger array: errors name rows by it.
        """

        return self._score(
            X, most_probable(self.classes), np.empty(len(X), self.classes.dtype), first_row
        )

    def posterior(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Probability of each class given the row, shape (n_rows, n_classes)."""
        return self._by_class(X, posterior, first_row)

    def log_posterior(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Logarithm of `posterior`, exact also where that is rounded to zero."""
        return self._by_class(X, log_posterior, first_row)

    def joint_log_likelihood(self, X: Any, first_row: int = 0) -> np.ndarray:
        r""":math:`\ln p(x, y=k)`, shape (n_rows, n_classes)."""
        return self._by_class(X, copied, first_row)

    relative_scores = joint_log_likelihood

    def log_odds(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Log-odds of the second of two classes, shape (n_rows,)."""
        return self._score(X, difference, np.empty(len(X)), first_row)

    def log_density(self, X: Any, first_row: int = 0) -> np.ndarray:
        r""":math:`\ln p(x) = \ln \sum_k p(x, y=k)`, shape (n_rows,)."""
        return self._score(X, log_sum_exp, np.empty(len(X)), first_row)

    def sample(self, labels: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        """Draw one row of zeros and ones for each label: float64, shape (n_rows, n_features)."""
        codes = np.searchsorted(self.classes, labels)
        codes[codes == self.classes.size] = 0
        seen = ~np.isnan(self.log_one[:, 0])
        wrong = (self.classes[codes] != labels) | ~seen[codes]
        if wrong.any():
            raise InvalidParameterError(
                f"cannot sample class {labels[wrong][0]!s}; the classes with rows are "
                f"{self.classes[seen].tolist()}"
            )
        return (
            random.random_sample((codes.size, self.n_features)) < np.exp(self.log_one)[codes]
        ) * 1.0

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        attributes = {"classes": storage.pack_labels(self.classes), "threshold": self.threshold}
        return attributes, {
            "priors": self.priors,
            "log_one": self.log_one,
            "log_zero": self.log_zero,
        }

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        classes = storage.unpack_labels(attributes["classes"])
        model = cls(classes=classes, threshold=attributes["threshold"], **arrays)
        if not (model.threshold is None or isinstance(model.threshold, int | float)):
            raise TypeError(f"its threshold is {model.threshold!r}")
        k, d = classes.size, model.n_features
        for name, shape in (("priors", (k,)), ("log_one", (k, d)), ("log_zero", (k, d))):
            array = arrays[name]
            if not array.size or array.shape != shape or array.dtype != np.float64:
                raise ValueError(
                    f"its arrays do not fit each other: {name} has shape {array.shape}"
                )
        if (model.log_one > 0).any() or (model.log_zero > 0).any():
            raise ValueError("its probabilities are above one")
        check_priors(model.priors, classes, ~np.isnan(model.log_one[:, 0]))
        return model


def ones_of(moments: ClassMoments) -> np.ndarray:
    """How many ones, or what weight of them, each class has in each feature: (n_classes, d).

    Parameters
    ----------
    moments : ClassMoments
        Of binarised rows.

    Raises
    ------
    InvalidDataError
        Where the variances are not those of zeros and ones.
    """
    sums = moments.centred()
    n, p = sums.count[:, None], sums.mean + sums.mean_low
    # The squares about the mean of zeros and ones follow from their mean.
    gap = np.abs(diagonals(sums.scatter) - n * p * (1 - p))
    if ((gap > 1e-6 * n) | (np.abs(p - 0.5) > 0.5 + 1e-6)).any():
        raise InvalidDataError(
            "these moments are not of zeros and ones; binarise the rows before: "
            "accumulate(X > threshold, y, covariance_type='diag')"
        )
    return np.clip(np.rint(n * p) if sums.count.dtype.kind == "i" else n * p, 0, n)
