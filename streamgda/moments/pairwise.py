"""`PairwiseMoments`: moments of rows with missing values, each from all rows that have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import linalg

from streamgda.errors import InvalidDataError, MergeError
from streamgda.moments.base import Moments, held_sums
from streamgda.moments.class_moments import ClassMoments
from streamgda.moments.covariance_types import STRUCTURES
from streamgda.moments.sums import OVERFLOW, InPlace, Sums
from streamgda.rows import labels as label_codes
from streamgda.rows.counting import RowRule, Slab
from streamgda.rows.names import named_rows, restored_names, saved_names
from streamgda.runtime import threads
from streamgda.runtime.parameters import BELOW_ONE, LEAST, as_number
from streamgda.storage.format import State, check_array, pack_labels, unpack_labels
from streamgda.storage.saved import synchronized


def means_of_existing(X: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the means of the existing values, zero where there are none, shape (d,)."""
    exists = ~np.isnan(X)
    n = weights @ exists
    with np.errstate(over="ignore"):
        return np.asarray(weights @ np.where(exists, X, 0.0) / np.where(n > 0, n, 1.0))


def centred_pair_sums(
    X: np.ndarray, weights: np.ndarray, origin: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Return the weight of a class's rows, and the weights, means and products of its pairs.

    The means are relative to the origin. The rows are overwritten.
    """
    exists = ~np.isnan(X)
    with np.errstate(over="ignore", invalid="ignore"):
        X -= origin
        shift = means_of_existing(X, weights)
        X -= shift
        X[~exists] = 0
        M = exists.astype(np.float64)
        pairs = (weights[:, None] * M).T @ M
        weighted = weights[:, None] * X
        sums, products = weighted.T @ M, weighted.T @ X
        means = sums / np.where(pairs > 0, pairs, 1.0)
        products -= means * sums.T
        # Equal values may leave less than 0.
        np.fill_diagonal(products, np.maximum(products.diagonal(), 0))
        means += shift[:, None]
    return weights.sum(), pairs, means, products


def positive_definite(covariance: np.ndarray, least: float) -> np.ndarray:
    """Return a positive definite covariance with the same variances."""
    deviations = np.sqrt(np.maximum(covariance.diagonal(), 0))  # Rounding may leave less than 0.
    scale = np.where(deviations > 0, deviations, 1.0)
    correlation = covariance / np.outer(scale, scale)
    np.fill_diagonal(correlation, 1.0)  # Constant features have 1, too.
    values, vectors = linalg.eigh(correlation)
    if values[0] >= least:
        return covariance
    raised = (vectors * np.maximum(values, max(least, -values[0]))) @ vectors.T
    unit = np.sqrt(raised.diagonal())
    return raised / np.outer(unit, unit) * np.outer(deviations, deviations)


_BLOCK_ELEMENTS = 1 << 20  # There are four copies of so many elements at a time.
_MATRICES = 8  # So many matrices are held while a class's part of a block is added.
_MISSING = RowRule("pairwise")


@dataclass(eq=False)
class PairSums(InPlace):
    """Weights, means and centred products of all pairs of features.

    Attributes
    ----------
    origin : ndarray, shape (n_features,)
        Point that means are relative to.
    count : ndarray, shape (n_classes,)
    pairs, means, products : ndarray, shape (n_classes, n_features, n_features)
    """

    weighted = True

    origin: np.ndarray
    count: np.ndarray
    pairs: np.ndarray
    means: np.ndarray
    products: np.ndarray

    @classmethod
    def zeros(cls, n_classes: int, origin: np.ndarray) -> Self:
        """Return sums of no rows."""
        shape = n_classes, origin.size, origin.size
        return cls(origin, np.zeros(n_classes), *(np.zeros(shape) for _ in range(3)))

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.origin.size

    @property
    def finite(self) -> bool:
        """True if no sum has overflowed."""
        return all(np.isfinite(array.sum()) for array in vars(self).values())

    def placed(self, at: np.ndarray, n_classes: int) -> Self:
        """Return a copy in which class k is class ``at[k]`` of `n_classes`."""
        sums = self.zeros(n_classes, self.origin)
        sums.add(self, at)
        return sums

    def add(self, other: PairSums, at: np.ndarray) -> None:
        """Add `other`, whose class k is class ``at[k]`` here."""
        moved = (other.origin - self.origin)[:, None]
        for k, own in enumerate(at):
            parts = other.pairs[k], other.means[k] + moved, other.products[k]
            self._add_class(own, other.count[k], *parts)

    def add_rows(self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> None:
        """Add rows of classes."""
        if not self.count.any():
            self.origin = means_of_existing(X, np.ones(len(X)))

        def add_class(k: int) -> None:
            own = codes == k
            self._add_class(k, *centred_pair_sums(X[own], weights[own], self.origin))

        # A thread for each class is enough.
        threads.run_serial_blas(add_class, ((k,) for k in np.unique(codes)))

    def _add_class(
        self, k: int, count: float, m: np.ndarray, means: np.ndarray, products: np.ndarray
    ) -> None:
        """Add rows of a class, by their weight and the weights, means and products of pairs."""
        n = self.pairs[k]
        share = m / np.where(n + m > 0, n + m, 1.0)
        gap = means - self.means[k]
        with np.errstate(over="ignore", invalid="ignore"):
            self.products[k] += products + gap * gap.T * (n * share)
            self.means[k] += gap * share
        self.count[k] += count
        n += m

    def check(self, n_classes: int) -> None:
        """Raise ValueError unless these could be sums of rows of that many classes."""
        d = self.n_features
        if not d:
            raise ValueError("there are no features")
        check_array("origin", self.origin, (d,), "f8")
        check_array("count", self.count, (n_classes,), "f8", least=0)
        for name, least in {"pairs": 0.0, "means": -np.inf, "products": -np.inf}.items():
            check_array(name, getattr(self, name), (n_classes, d, d), "f8", least=least)
        if (self.pairs > self.count[:, None, None] * (1 + 1e-9)).any():
            raise ValueError("there are more pairs than rows")


class PairwiseMoments(Moments):
    r"""Moments of rows with missing values (NaN), from all rows that have both of two features.

    For the rows of class k that have both features i and j, with weights :math:`w`

    .. math:: n_{ij} = \sum w, \quad m_{ij} = \sum w x_i / n_{ij}, \quad
              S_{ij} = \sum w (x_i - m_{ij}) (x_j - m_{ji})

    always centred, and merged like `ClassMoments`, pair by pair. ``accumulate(X, y,
    on_invalid="pairwise")`` computes them from rows of any source. Values should be missing at
    random: whether a value is missing must not depend on the value.

    Such a covariance need not be positive definite, because its entries come from different rows;
    `to_moments` corrects it. Leaving out rows with missing values instead needs no correction, but
    wastes the values that these rows have.

    Examples
    --------
    >>> import numpy as np
    >>> from streamgda import PairwiseMoments, QuadraticDiscriminantAnalysis
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = np.arange(200) % 2
    >>> X[y == 1] += 2
    >>> X[::3, 0] = X[1::5, 1] = np.nan
    >>> pairs = PairwiseMoments().update(X[:100], y[:100]) + PairwiseMoments().update(
    ...     X[100:], y[100:]
    ... )
    >>> pairs.pair_count[0]
    array([[ 66.,  53.,  66.],
           [ 53.,  80.,  80.],
           [ 66.,  80., 100.]])
    >>> qda = QuadraticDiscriminantAnalysis.from_moments(pairs.to_moments())
    >>> qda.predict([[0.0, 0.0, 0.0], [2.0, 2.0, 2.0]])
    array([0, 1])
    """

    _sums: PairSums | None = None

    @property
    @synchronized
    def pair_count(self) -> np.ndarray:
        """Rows that have both of two features, shape (n_classes, d, d); the diagonal has one."""
        return held_sums(self).pairs.copy()

    @property
    @synchronized
    def means(self) -> np.ndarray:
        """Means of the existing values, shape (n_classes, d); NaN where there are none."""
        held = held_sums(self)
        means = held.origin + held.means.diagonal(axis1=1, axis2=2)
        return np.where(held.pairs.diagonal(axis1=1, axis2=2) > 0, means, np.nan)

    @synchronized
    def covariance(self, ddof: int = 0) -> np.ndarray:
        r"""Return the covariances :math:`S_{ij} / (n_{ij} - ddof)`, without correction.

        Parameters
        ----------
        ddof : int
            Subtracted from each count.

        Returns
        -------
        ndarray, shape (n_classes, d, d)
            NaN where at most `ddof` rows have both features.

        Raises
        ------
        InvalidDataError
            If there are no rows.

        Examples
        --------
        >>> from math import nan
        >>> from streamgda import PairwiseMoments
        >>> moments = PairwiseMoments().update([[1.0, 2.0], [3.0, nan], [5.0, 4.0]], [0, 0, 0])
        >>> moments.covariance()[0].round(3)
        array([[2.667, 2.   ],
               [2.   , 1.   ]])
        """
        held = held_sums(self)
        weight = held.pairs - as_number("ddof", ddof, "a number >= 0", 0)
        symmetric = (held.products + held.products.transpose(0, 2, 1)) / 2
        return symmetric / np.where(weight > 0, weight, np.nan)

    # --- adding rows --------------------------------------------------------------------------

    def _update(
        self, slab: Slab, rule: RowRule = _MISSING, expected: np.ndarray | None = None
    ) -> Self:
        X, named = named_rows(slab.X)
        X, y, weights, numbers, _ = rule.counted(slab._replace(X=X))
        first_row, weights = slab.first_row, weights if weights.size else np.ones(len(y))
        self._check_features(X.shape[1])
        self._names_with(named, InvalidDataError)
        if expected is not None:
            label_codes.check_expected(y, expected, first_row, numbers)
        classes, d = y.values, X.shape[1]
        sums = PairSums.zeros(classes.size, np.zeros(d))
        step = max(1, _BLOCK_ELEMENTS // d)
        for start in range(0, len(y), step):
            some = slice(start, start + step)
            rows = X[some]
            block = np.where(rule.missing(rows), np.nan, rows).astype(np.float64)
            infinite = np.argwhere(np.isinf(block))
            if infinite.size:
                r, j = infinite[0].tolist()
                row = first_row + (start + r if numbers is None else int(numbers[start + r]))
                raise InvalidDataError(
                    f"Input X contains infinity: row {row}, column {j}. NaN is a missing value, "
                    f"every other must be finite",
                    *("X", row, j),
                )
            sums.add_rows(block, y.codes[some], weights[some])
        if classes.size:
            added = self._with_sums(classes, sums)
            added._feature_names = named
            try:
                with self._lock:
                    self._add(added)
            except MergeError as error:  # Only an overflow is left to go wrong.
                raise InvalidDataError(f"Input X: {error}") from None
        return self

    def _bytes(self, n_classes: int, n_features: int, n_groups: int = 0) -> tuple[int, int]:
        # There are three states while classes are added: with them, without them, and that of the
        # new rows.
        matrix = 8 * n_features**2
        state = n_classes * (8 + 3 * matrix) + 8 * n_features
        return state, 3 * state + min(threads.n_threads(), n_classes) * _MATRICES * matrix

    # --- algebra ------------------------------------------------------------------------------

    def _add(self, other: PairwiseMoments) -> None:
        if other._sums is None:
            return
        names, _ = self._joined(other)
        classes = label_codes.join_labels(self._classes, other._classes)
        if self._sums is None:
            sums = PairSums.zeros(classes.size, other._sums.origin)
        else:
            sums = self._sums.placed(label_codes.find(self._classes, classes), classes.size)
        sums.add(other._sums, label_codes.find(other._classes, classes))
        if not sums.finite:
            raise MergeError(OVERFLOW)
        self._classes, self._sums, self._feature_names = classes, sums, names

    def _with_sums(self, classes: np.ndarray, sums: PairSums | None) -> Self:
        """Return other moments of the same features."""
        made = type(self)()
        made._classes, made._sums, made._feature_names = classes, sums, self._feature_names
        return made

    @synchronized
    def copy(self) -> Self:
        """Return independent moments with the same values.

        Returns
        -------
        PairwiseMoments
            The copy.

        Examples
        --------
        >>> from streamgda import PairwiseMoments
        >>> moments = PairwiseMoments().update([[1.0], [3.0]], [0, 0])
        >>> before = moments.copy()
        >>> _ = moments.update([[8.0]], [1])
        >>> before.class_count, moments.class_count
        (array([2.]), array([2., 1.]))
        """
        return self._with_sums(self._classes, None if self._sums is None else self._sums.copy())

    # --- Gaussians without missing values -----------------------------------------------------

    @synchronized
    def to_moments(
        self, covariance_type: str = "full", *, least_eigenvalue: float = 1e-4
    ) -> ClassMoments:
        """Return class moments with these means and variances, and positive definite covariances.

        Eigenvalues of a correlation matrix below `least_eigenvalue` are raised to it, and the
        result is scaled to be a correlation matrix again (Rousseeuw and Molenberghs,
        "Transformation of non positive semidefinite correlation matrices", 1993). If there are
        negative eigenvalues, all are raised to the absolute value of the most negative one: values
        smaller than the disagreement of the entries are unknown, and a direction in which a class
        seems to have almost no variance would decide everything. Matrices without such eigenvalues
        stay unchanged. Features that no row has both of are treated as uncorrelated.

        Parameters
        ----------
        covariance_type : str
            Covariance type of the result.
        least_eigenvalue : float > 0
            Smallest eigenvalue of the correlation matrices.

        Returns
        -------
        ClassMoments
            Moments as of complete rows, with the number of all rows of each class.

        Raises
        ------
        InvalidDataError
            If a class has no value at all of a feature.
        InvalidParameterError
            For an eigenvalue that is not between 0 and 1.

        Examples
        --------
        >>> from math import nan
        >>> from streamgda import PairwiseMoments, QuadraticDiscriminantAnalysis
        >>> X = [[1.0, 2.0], [3.0, nan], [5.0, 3.0], [6.0, 9.0], [nan, 8.0], [9.0, 6.0]]
        >>> moments = PairwiseMoments().update(X, [0, 0, 0, 1, 1, 1]).to_moments()
        >>> QuadraticDiscriminantAnalysis.from_moments(moments).predict([[2.0, 3.0], [7.0, 8.0]])
        array([0, 1])
        """
        expected = "a number between 0 and 1"
        least = as_number("least_eigenvalue", least_eigenvalue, expected, LEAST, BELOW_ONE)
        held = held_sums(self)
        none = np.argwhere(held.pairs.diagonal(axis1=1, axis2=2) == 0)
        if none.size:
            k, j = none[0]
            name = (self._feature_names or range(held.n_features))[j]
            raise InvalidDataError(
                f"class {self._classes[k]!s} has no value of feature {name}: leave out the "
                f"feature, or the rows of the class"
            )
        covariances = np.nan_to_num(self.covariance())
        scatter = np.array([positive_definite(S, least) for S in covariances])
        scatter *= held.count[:, None, None]
        gaps = held.means.diagonal(axis1=1, axis2=2).copy()
        full, origin = STRUCTURES["full"], np.tile(held.origin, (len(gaps), 1))
        count = held.count.copy()
        sums = Sums(full, count, count.copy(), origin, gaps, full.pack(scatter))
        names = self._feature_names
        moments = ClassMoments()._with_sums(self._classes, sums)
        moments._feature_names = names
        return moments.reduce(covariance_type)

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        sums = {} if self._sums is None else {"sums": vars(self._sums)}
        return {"classes": pack_labels(self._classes), **saved_names(self._feature_names), **sums}

    @classmethod
    def _from_state(cls, state: Mapping[str, Any]) -> Self:
        moments = cls()
        classes = unpack_labels(state["classes"])
        if "sums" in state or classes.size:
            sums = PairSums(**state["sums"])
            sums.check(classes.size)
            moments._classes, moments._sums = classes, sums
            moments._feature_names = restored_names(state, sums.n_features)
        return moments
