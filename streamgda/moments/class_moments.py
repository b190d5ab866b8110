"""`ClassMoments`: the state that is kept of the rows; everything else is a function of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np
from scipy import linalg

from streamgda.errors import InvalidDataError, InvalidParameterError, MergeError, PrecisionWarning
from streamgda.kernels.blocks import LARGE
from streamgda.kernels.sums import all_below
from streamgda.moments.adding import Rows, adding_of, scratch_bytes, sums_of
from streamgda.moments.base import Moments, held_sums
from streamgda.moments.covariance_types import Structure, check_covers, structure_of, symmetric
from streamgda.moments.feature_maps import Lifting, lifted
from streamgda.moments.statistics import statistics_of
from streamgda.moments.sums import OVERFLOW, ExactSums, Sums
from streamgda.rows import labels as label_codes
from streamgda.rows.counting import (
    CHECK_SUMS,
    NO_WEIGHTS,
    Counted,
    RowRule,
    Slab,
    kernel_type,
    raise_not_finite,
)
from streamgda.rows.names import (
    Names,
    as_names,
    feature_numbers,
    named_rows,
    restored_names,
    saved_names,
)
from streamgda.runtime import threads
from streamgda.runtime.interruption import deferred_interrupts
from streamgda.runtime.parameters import as_integer, as_number, as_numbers, check_type, unexpected
from streamgda.storage.format import State, check_whole, pack_labels, unpack_labels
from streamgda.storage.saved import synchronized

_INT64 = np.dtype(np.int64)
_MOST_WEIGHT = 1e20  # Rows of larger weights are not added in place.
_WHOLE = 1 << 53  # float64 holds every integer up to this magnitude.


class ClassMoments(Moments):
    r"""Count, mean and scatter of the rows of each class, computed in one pass and mergeable.

    For the rows :math:`x_i` of class k with weights :math:`w_i`

    .. math:: n_k = \sum w_i, \quad m_k = \sum w_i x_i / n_k, \quad
              S_k = \sum w_i (x_i - m_k)(x_i - m_k)^T

    merged by Chan, Golub and LeVeque's formula. Rows of uint8, int8, uint16 and int16 without
    weights are summed in integers, and no bit then depends on the order or the chunks of the rows.
    Covariances are rounded twice: the scatter, and its division by the number of rows. A mean is
    ``origin + offset``, where the origin is a row of the class: the distance of rows from zero
    costs no digits.

    Everything else is float64, with one exception: if the moments take more than 1 MiB, float32
    and float16 rows of more than 64 features are centred and multiplied in float32, up to 1,000
    rows at a time, and their products are summed in float64. The error of an element of the scatter
    is then at most :math:`1010 \cdot 2^{-24} \sum |x_i - m_i| |x_j - m_j|`, and about a hundredth
    of that for most data; pass ``X.astype(float)`` for more accuracy.

    Several threads may change the same moments: they take turns, and whatever reads the moments,
    such as `covariance`, ``a - b``, `save` or a pickle, waits for them. Whatever exception arrives,
    such as that of Ctrl-C, a change is complete or not made.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "tied_diag", "spherical", "tied_spherical"}
        The part of the scatter to keep. ``"full"`` is a matrix per class and can become any other
        (`reduce`); ``"tied"`` is one matrix, pooled within classes; ``"diag"`` holds variances.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map that is applied to rows before they are added; see `RandomFeatures`.

    Attributes
    ----------
    changes : int
        Number of changes so far, including one that has started.

    Raises
    ------
    InvalidParameterError
        For an unknown covariance type.

    Examples
    --------
    >>> import numpy as np
    >>> from streamgda import ClassMoments
    >>> a = ClassMoments().update(np.array([[1.0, 2.0], [3.0, 5.0]]), ["cat", "cat"])
    >>> b = ClassMoments().update(np.array([[5.0, 2.0], [0.0, 1.0]]), ["cat", "dog"])
    >>> both = a + b
    >>> both.classes, both.class_count
    (array(['cat', 'dog'], dtype='<U3'), array([3, 1]))
    >>> both.means
    array([[3., 3.],
           [0., 1.]])
    >>> (both - b).covariance()
    array([[[1.  , 1.5 ],
            [1.5 , 2.25]]])
    """

    # Methods that change the moments hold their lock. Whatever exception arrives, the change is
    # complete or has not been made: the state is replaced by assignments without calls between
    # them, which no exception separates (see `runtime.interruption`).

    def __init__(self, covariance_type: str = "full", *, feature_map: Any = None) -> None:
        super().__init__()
        self._lifting = Lifting.of(feature_map)
        self._structure = structure_of(covariance_type)
        self._sums: Any = None  # `Sums` or `ExactSums`
        self._n_skipped = 0

    def _with_sums(
        self, classes: np.ndarray, sums: Any, structure: Structure | None = None
    ) -> Self:
        """Return other moments of the same rows."""
        made = type(self)((structure or self._structure).name)
        made._classes, made._sums, made._feature_names = classes, sums, self._feature_names
        made._n_skipped, made._lifting = self._n_skipped, self._lifting
        return made

    @classmethod
    def from_statistics(
        cls,
        classes: Any,
        counts: Any,
        means: Any,
        *,
        covariances: Any = None,
        scatters: Any = None,
        second_moments: Any = None,
        ddof: float = 0,
        squared_weights: Any = None,
        covariance_type: str = "full",
        feature_names: Any = None,
    ) -> Self:
        r"""Return the moments of rows that were summed elsewhere: in a database, on a GPU.

        Exactly one of `covariances`, `scatters` and `second_moments` is given, for each class, or
        pooled over all of them for a tied `covariance_type`.

        Parameters
        ----------
        classes : array-like, shape (n_classes,)
            Class labels, each once, in any order.
        counts : array-like, shape (n_classes,)
            Rows of each class, or the sum of their weights.
        means : array-like, shape (n_classes, n_features)
            Class means; those of a class without rows are ignored.
        covariances : array-like, optional
            As `covariance` returns them with this `ddof`.
        scatters : array-like, optional
            Sums :math:`\sum w_i (x_i - m_k)(x_i - m_k)^T`, or their diagonals.
        second_moments : array-like, optional
            Sums :math:`\sum w_i x_i x_i^T`, or their diagonals. If the rows are far from zero,
            digits have been lost, and a warning says how many.
        ddof : int
            Subtracted from the count of each class to divide `covariances`.
        squared_weights : array-like, shape (n_classes,), optional
            Sums of the squared weights of rows; by default the counts, as if all weights were one.
        covariance_type : str
            Covariance type of the statistics and of the moments.
        feature_names : sequence of str, optional
            Names of the features.

        Returns
        -------
        ClassMoments
            Moments that merge with others, and that estimators take by ``from_moments``.

        Raises
        ------
        InvalidParameterError
            For shapes that do not fit each other.
        InvalidDataError
            For numbers that are not finite, matrices that are not symmetric, and negative counts or
            squares.

        Warns
        -----
        PrecisionWarning
            If `second_moments` have lost two digits or more; the message says how many.

        See Also
        --------
        to_statistics : The statistics of moments.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments.from_statistics(
        ...     ["bee", "ant"], [3, 2], [[2.0], [7.0]], covariances=[[[1.0]], [[2.0]]], ddof=1
        ... )
        >>> moments.classes, moments.covariance(ddof=1).ravel()
        (array(['ant', 'bee'], dtype='<U3'), array([2., 1.]))
        """
        labels = label_codes.as_labels(classes, "classes")
        found, at = np.unique(labels, return_inverse=True)
        if not found.size or found.size < labels.size:
            raise unexpected("classes", labels.tolist(), "each label once")
        given = {
            "covariances": covariances,
            "scatters": scatters,
            "second_moments": second_moments,
        }
        sums = statistics_of(labels, counts, means, given, ddof, squared_weights, covariance_type)
        made = cls(covariance_type)._with_sums(found, sums.placed(at, found.size))
        if feature_names is not None:
            made._feature_names = as_names(feature_names)
            if made._feature_names is None or len(made._feature_names) != sums.n_features:
                raise unexpected("feature_names", feature_names, f"{sums.n_features} texts")
        return made

    @synchronized
    def to_statistics(self) -> dict[str, Any]:
        """Return counts, means and scatters as arrays, for other programs.

        They are the arguments of `from_statistics`. `to_bytes` keeps more: exact sums, and means
        that are not rounded.

        Returns
        -------
        dict
            ``classes``, ``counts``, ``means`` (NaN for a class without rows), ``scatters``, whole
            matrices for ``"full"`` and ``"tied"``, ``covariance_type``; with weights
            ``squared_weights``, and with names ``feature_names``.

        Raises
        ------
        InvalidDataError
            If there are no rows.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> statistics = ClassMoments("diag").update([[1.0], [3.0]], ["ant", "ant"]).to_statistics()
        >>> statistics["scatters"], ClassMoments.from_statistics(**statistics).means
        (array([[2.]]), array([[2.]]))
        """
        sums, structure = held_sums(self).centred(), self._structure
        found = {
            "classes": self._classes.copy(),
            "counts": self.class_count,
            "means": sums.class_means(),
            "scatters": structure.ungroup(structure.whole(sums.packed)),
            "covariance_type": structure.name,
        }
        if sums.weighted:
            found["squared_weights"] = sums.weight_squares.copy()
        return found | saved_names(self._feature_names)

    @property
    def covariance_type(self) -> str:
        """Covariance type of the moments."""
        return self._structure.name

    @property
    @synchronized
    def means(self) -> np.ndarray:
        """Class means, shape (n_classes, n_features); NaN for a class without rows."""
        return self._sums.class_means() if self._sums is not None else np.empty((0, 0))

    @property
    def n_skipped(self) -> int:
        """Rows that were left out as invalid (`accumulate` with ``on_invalid="skip"``)."""
        return self._n_skipped

    @synchronized
    def total(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the weight, the mean and the scatter of all rows about their common mean.

        Returns
        -------
        weight : float
            Number of rows, or their weight.
        mean : ndarray, shape (n_features,)
            Mean of each feature.
        scatter : ndarray, shape (n_features, n_features), or (n_features,) without covariances
            Sums of squares and products of differences from the mean.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> ClassMoments().update([[1.0], [3.0], [5.0]], [0, 0, 1]).total()
        (3.0, array([3.]), array([[8.]]))
        """
        sums: Any = self._in_one_class().centred()
        scatter = sums.structure.whole(sums.packed)[0]
        return float(sums.count[0]), sums.mean[0], scatter

    @property
    def exact(self) -> bool:
        """True if the moments are integer sums without any rounding."""
        return isinstance(self._sums, ExactSums)

    @synchronized
    def centred(self) -> Sums:
        """Return a copy of counts, means and scatter about the means, in float64.

        Returns
        -------
        Sums
            Count, mean and scatter of each class, or the pooled scatter.

        Raises
        ------
        InvalidDataError
            If there are no rows.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> sums = ClassMoments().update([[1.0], [3.0]], ["ant", "ant"]).centred()
        >>> sums.count, sums.mean, sums.scatter
        (array([2.]), array([[2.]]), array([[[2.]]]))
        """
        held = held_sums(self)
        centred: Sums = held.centred()
        return centred.copy() if centred is held else centred

    @synchronized
    def covariance(self, ddof: float = 0) -> np.ndarray:
        r"""Return the covariances :math:`S_k / (n_k - ddof)`, or the variances.

        Pooled ones are :math:`\sum_k S_k / \sum_k (n_k - ddof)`, over the classes with rows.

        Parameters
        ----------
        ddof : int
            Subtracted from the count of each class.

        Returns
        -------
        ndarray of float64
            Shape (K, d, d) for ``"full"``, (d, d) for ``"tied"``, (K, d) for ``"diag"``, (d,) for
            ``"tied_diag"``, (K,) for ``"spherical"`` and () for ``"tied_spherical"``. NaN where
            a class has no more than `ddof` rows.

        Raises
        ------
        InvalidDataError
            If there are no rows.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments().update([[1.0], [3.0], [6.0], [9.0]], [0, 0, 1, 1])
        >>> moments.covariance().ravel(), moments.covariance(ddof=1).ravel()
        (array([1.  , 2.25]), array([2. , 4.5]))
        """
        sums = held_sums(self).centred()
        ddof = as_number("ddof", ddof, "a number >= 0", 0)
        weight = self._structure.group_weights(sums.count, ddof)
        weight = np.where(weight > 0, weight, np.nan)
        return self._structure.ungroup(self._structure.covariance(sums.packed, weight))

    # --- adding rows --------------------------------------------------------------------------

    def _bytes(self, n_classes: int, n_features: int, n_groups: int = 0) -> tuple[int, int]:
        # Rows become sums of their own, which are added to those before.
        state = self._structure.state_bytes(n_classes, n_features)
        return state, 2 * state

    def _scratch_bytes(self, n_features: int) -> int:
        return scratch_bytes(self._structure, n_features)

    def _update(
        self,
        slab: Slab,
        rule: RowRule = CHECK_SUMS,
        expected: np.ndarray | None = None,
    ) -> Self:
        X, y = slab.X, slab.y
        plain = self._sums is not None and slab.weight is None
        plain = plain and type(X) is np.ndarray and type(y) is np.ndarray
        if not (plain and rule.checks_sums and self._add_at_once(X, y)):
            counted, names = self._counted(slab, rule, self._classes)
            with self._lock:
                self._add_rows(counted, slab.first_row, names, expected)
        return self

    @property
    def _takes_sparse(self) -> bool:
        return self._lifting is None and not self._structure.matrix

    def _counted(
        self, slab: Slab, rule: RowRule, known: np.ndarray
    ) -> tuple[Counted, Names | None]:
        """Return the rows that count, labelled among the known classes, and names of features."""
        X, names = named_rows(slab.X)
        return rule.counted(slab._replace(X=X), known, self._takes_sparse), names

    def _add_rows(
        self,
        counted: Counted,
        first_row: int,
        names: Names | None,
        expected: np.ndarray | None = None,
    ) -> None:
        """Add rows that count; the lock is held."""
        X, y, weights, numbers, n_skipped = counted
        self._check_features(X.shape[1])
        names = self._names_with(names, InvalidDataError)
        if not len(y):
            self._n_skipped += n_skipped
            return
        lifting = self._lifting
        if lifting is not None:
            lifting = lifting.bound(X.shape[1])
            X = lifted(X, lifting, first_row, numbers)
        if X.dtype.kind in "iu" and X.dtype.itemsize == 8:
            _warn_of_large_integers(X)
        if y.values is not self._classes:
            y = label_codes.code(y, self._classes)
            if expected is not None:
                label_codes.check_expected(y, expected, first_row, numbers)
        rows = Rows(X, y.codes, weights)
        if (
            y.values is self._classes
            and names == self._feature_names
            and not n_skipped
            and self._add_in_place(rows)
        ):
            return
        added = self._with_sums(y.values, sums_of(self._structure, rows, y.values.size))
        added._feature_names, added._n_skipped, added._lifting = names, n_skipped, lifting
        try:
            self._add(added, owned=True)
        except MergeError:  # It is an overflow: widths and names have been checked.
            raise_not_finite(X if lifting is None else X.values, first_row, numbers)

    def _add_at_once(self, X: np.ndarray, y: np.ndarray) -> bool:
        """Add a few rows that need no conversion, with labels that are classes already.

        Return False, with nothing changed, for all other rows.
        """
        with self._lock:
            plain = X.dtype == kernel_type(X.dtype) and y.dtype == _INT64 and y.ndim == 1
            if self._lifting is not None or not plain:
                return False
            codes = label_codes.find(y, self._classes)
            if X.shape != (y.size, self.n_features) or codes.min(initial=0) < 0:
                return False
            return self._add_in_place(Rows(X, codes, NO_WEIGHTS))

    def _add_in_place(self, rows: Rows) -> bool:
        """Add rows of the classes to the sums themselves if these take longer to merge.

        Return False, with nothing changed, if the sums would have to be of another kind, or if one
        may overflow or become NaN.
        """
        X, _, weights = rows
        sums, exact = self._sums, self.exact
        if sums is None or type(X) is not np.ndarray or not X.size:
            return False
        if exact and (weights.size or kernel_type(X.dtype).kind == "f"):
            return False
        adding = adding_of(self._structure, sums.count.size, sums.n_features, X.dtype, exact)
        if not adding.in_place(len(X)):
            return False
        X = np.ascontiguousarray(X, adding.dtype)
        if exact:
            safe = sums.fits(len(X))
        else:
            safe = not weights.size or weights.max() < _MOST_WEIGHT
            held = X, sums.origin, sums.offset
            safe = safe and all(all_below(values.reshape(-1), LARGE) for values in held)
        if not safe:
            return False
        self.changes += 1
        if len(X) <= adding.most_few:  # One kernel call adds them.
            adding.add_at_once(rows._replace(X=X), sums.state)
        else:
            with deferred_interrupts():
                adding.add(rows._replace(X=X), sums)
        return True

    # --- algebra ------------------------------------------------------------------------------

    def _add(self, other: ClassMoments, owned: bool = False) -> None:
        """Add other moments; sums without another owner, which are those of rows, may change.

        Raises
        ------
        MergeError
            If the moments do not combine, or a sum overflows; nothing has changed.
        """
        names, lifting = self._joined(other)
        classes = label_codes.join_labels(self._classes, other._classes)
        mine, theirs, others = self._sums, other._sums, other._classes
        if mine is None or theirs is None:
            mine, theirs = mine or (theirs if owned or theirs is None else theirs.copy()), None
        elif owned and classes.size > self._classes.size:  # Sums of rows have all the classes.
            mine, theirs, others = theirs, mine, self._classes
        else:
            mine = self._with_classes(classes)
        at = np.searchsorted(classes, others)
        if theirs is not None:
            exact = isinstance(mine, ExactSums) and isinstance(theirs, ExactSums)
            if not (exact and mine.fits(int(theirs.count.sum()))):
                mine, theirs = mine.centred(), theirs.centred()
                if not mine.has_room_for(theirs, at):
                    raise MergeError(OVERFLOW)
        elif owned:
            mine.checked()
        with deferred_interrupts():
            self.changes += 1
            if theirs is not None:
                mine.add(theirs, at)
            self._classes, self._sums = classes, mine
            self._feature_names, self._lifting = names, lifting
            self._n_skipped += other._n_skipped

    @synchronized
    def __sub__(self, other: Self) -> Self:
        """Return the moments without the rows of `other`, as if these had never been added.

        The result is exact to rounding, or to the bit if both are exact. Classes left without rows
        are dropped.

        Raises
        ------
        MergeError
            If the features or the covariance types differ, or `other` holds rows that these
            moments do not: more of a class, or such that a sum of squares would be left that no
            rows have, by more than rounding.
        """
        if not isinstance(other, ClassMoments):
            return NotImplemented
        return self._less(other, self._classes if self._structure.per_class else None)

    def _less(self, other: ClassMoments, labels: np.ndarray | None) -> Self:
        """Subtract other moments; errors name the labels of the groups of the scatter, if any."""
        names, _ = self._joined(other)
        if other._sums is None or not other._sums.count.any():
            return self.copy()
        at = self._check_contains(other)
        if (at < 0).any():  # Some classes have no rows.
            other, at = other._keep(at >= 0), at[at >= 0]
        theirs = other._sums
        left = self.copy()._sums
        if not (isinstance(left, ExactSums) and isinstance(theirs, ExactSums)):
            left, theirs = left.centred(), theirs.centred()
        with np.errstate(over="ignore", invalid="ignore"):
            impossible = np.argwhere(left.subtract(theirs, at))
        if impossible.size:
            group, feature = impossible[0].tolist()
            of = "" if labels is None else f"class {labels[group]!s}, "
            named = None if self._lifting is not None else names
            raise MergeError(
                f"cannot subtract: {of}feature {feature if named is None else named[feature]} "
                f"would have a negative sum of squares, so these rows were never added"
            )
        result = self._with_sums(self._classes, left)
        result._feature_names = names
        result._n_skipped = max(0, self._n_skipped - other._n_skipped)
        emptied = np.zeros(self._classes.size, bool)
        emptied[at] = (left.count[at] == 0) & (other.class_count > 0)
        return result._keep(~emptied) if emptied.any() else result

    def __mul__(self, gamma: float) -> Self:
        """Return the moments with every weight multiplied by `gamma`, to forget old rows.

        A class whose weight falls below 1e-150 becomes one without rows.

        Raises
        ------
        InvalidParameterError
            If `gamma` is negative or not finite, or so large that sums overflow.
        """
        return self.copy().__imul__(gamma)

    __rmul__ = __mul__

    def __imul__(self, gamma: float) -> Self:
        if not isinstance(gamma, Real):
            return NotImplemented
        gamma = as_number("gamma", gamma, "a finite number >= 0", 0)
        with self._lock:
            if self._sums is not None:
                centred = self._sums.centred()
                held = centred.square_sums.max(initial=0), centred.weight_squares.sum() * gamma
                with np.errstate(over="ignore"):
                    if not all(np.isfinite(value * gamma) for value in held):
                        raise InvalidParameterError(f"gamma={gamma:g}: {OVERFLOW}")
                with deferred_interrupts():
                    self.changes += 1
                    centred.scale(gamma)
                    self._sums = centred
        return self

    @synchronized
    def copy(self) -> Self:
        """Return independent moments with the same values.

        Returns
        -------
        ClassMoments
            The copy.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments().update([[1.0], [3.0]], ["ant", "ant"])
        >>> before = moments.copy()
        >>> _ = moments.update([[8.0]], ["bee"])
        >>> before.class_count, moments.class_count
        (array([2]), array([2, 1]))
        """
        sums = self._sums.copy() if self._sums is not None else None
        copied = self._with_sums(self._classes, sums)
        copied.changes = self.changes
        return copied

    def _keep(self, kept: np.ndarray) -> Self:
        """Return the moments of some classes."""
        assert self._sums is not None
        dropped = ~kept & (self._sums.count > 0)
        if dropped.any() and not self._structure.per_class:
            raise MergeError(
                f"moments of covariance_type={self.covariance_type!r} have one scatter for all "
                f"classes, from which no class can be left out; accumulate "
                f"{self._structure.kind!r} moments, select, then reduce()"
            )
        sums = self._sums.with_classes(kept)
        return self._with_sums(self._classes[kept], sums)

    def _joined(self, other: Any) -> tuple[Names | None, Lifting | None]:
        if self.covariance_type != other.covariance_type:
            raise MergeError(
                f"moments of covariance_type={self.covariance_type!r} and "
                f"{other.covariance_type!r} do not combine; bring both to one with reduce()"
            )
        return super()._joined(other)

    def _check_contains(self, other: ClassMoments) -> np.ndarray:
        """Return the indices here of the other's classes; rows that are missing are an error."""
        at = label_codes.find(other._classes, self._classes)
        held = np.where(at >= 0, np.append(self.class_count, 0)[at], 0)
        labels = other._classes
        check_holds(held, other.class_count, lambda k: f"class {labels[k].item()!r}")
        return at

    # --- moments of other features, classes, labels or projections ------------------------------

    @synchronized
    def reduce(self, covariance_type: str) -> Self:
        """Return the moments of a simpler covariance type.

        Parameters
        ----------
        covariance_type : str
            ``"full"`` determines all others, ``"tied"`` and ``"diag"`` those without matrices or
            without a covariance per class, and so on.

        Returns
        -------
        ClassMoments
            Moments of that type.

        Raises
        ------
        MergeError
            If these moments do not determine it.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments().update([[1.0], [3.0], [6.0], [9.0]], [0, 0, 1, 1])
        >>> moments.reduce("tied").covariance(), moments.reduce("tied_diag").covariance()
        (array([[1.625]]), array([1.625]))
        """
        wanted = structure_of(covariance_type)
        check_covers(self._structure, wanted)
        if covariance_type == self.covariance_type:
            return self.copy()
        sums = None if self._sums is None else self._sums.with_structure(wanted).checked()
        return self._with_sums(self._classes, sums, wanted)

    @synchronized
    def select_features(self, index: Any) -> Self:
        """Return the moments of some of the features, in the order of `index`.

        Parameters
        ----------
        index : str, array-like of str, int or bool, or slice
            Features to keep, by name or by index.

        Returns
        -------
        ClassMoments
            Moments of these features.

        Raises
        ------
        InvalidParameterError
            For features that the moments do not have.

        Examples
        --------
        >>> import pandas as pd
        >>> from streamgda import ClassMoments
        >>> frame = pd.DataFrame({"length": [1.0, 3.0], "width": [0.5, 0.7], "mass": [2.0, 4.0]})
        >>> moments = ClassMoments().update(frame, ["ant", "ant"])
        >>> moments.select_features(["mass", "length"]).means
        array([[3., 2.]])
        """
        if self._sums is None:
            self._raise_empty()
        d, names = self._sums.n_features, self._feature_names if self._lifting is None else None
        index = feature_numbers(index, names, d, "index")
        try:
            index = np.arange(d)[index if isinstance(index, slice) else np.asarray(index)]
        except (IndexError, ValueError) as error:
            raise InvalidParameterError(f"index does not fit {d} features: {error}") from None
        index = np.atleast_1d(index)
        if index.ndim != 1 or not index.size:
            raise InvalidParameterError(
                f"index has shape {index.shape}; expected one feature or more"
            )
        selected = self._with_sums(self._classes, self._sums.with_features(index))
        selected._feature_names = None if names is None else tuple(names[i] for i in index)
        selected._lifting = None  # They are features of mapped rows.
        return selected

    @synchronized
    def select_classes(self, labels: Any) -> Self:
        """Return the moments of some of the classes.

        Parameters
        ----------
        labels : array-like
            Labels to keep.

        Returns
        -------
        ClassMoments
            Moments of these classes.

        Raises
        ------
        InvalidParameterError
            For labels that are not among the classes.
        MergeError
            If the scatter is pooled over all classes.

        See Also
        --------
        drop_classes : All classes but some.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments().update([[1.0], [3.0], [6.0]], ["ant", "bee", "cat"])
        >>> moments.select_classes(["ant", "cat"]).means
        array([[1.],
               [6.]])
        """
        kept = np.zeros(self._classes.size, bool)
        kept[self._numbers(labels, "labels")] = True
        return self._keep(kept)

    @synchronized
    def drop_classes(self, labels: Any) -> Self:
        """Return the moments of all classes but some.

        They are the moments of the other rows, to the bit: a model without these classes needs no
        second pass.

        Parameters
        ----------
        labels : array-like
            Labels to drop.

        Returns
        -------
        ClassMoments
            Moments of the other classes.

        Raises
        ------
        InvalidParameterError
            For labels that are not among the classes.
        MergeError
            If the scatter is pooled over all classes.

        See Also
        --------
        select_classes : Some of the classes.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments().update([[1.0], [3.0], [9.0]], ["ant", "ant", "clouds"])
        >>> moments.drop_classes(["clouds"]).classes
        array(['ant'], dtype='<U6')
        """
        kept = np.ones(self._classes.size, bool)
        kept[self._numbers(labels, "labels")] = False
        return self._keep(kept) if self._sums is not None else self.copy()

    def _numbers(self, labels: Any, what: str) -> np.ndarray:
        """Return the indices of the classes with these labels; `what` names them in errors."""
        wanted = label_codes.as_labels(labels, what)
        if wanted.dtype.kind == "b" != self._classes.dtype.kind:  # 0 and 1 are equal to them
            raise InvalidParameterError(
                f"{what} are booleans, but the classes are of dtype {self._classes.dtype}; for a "
                f"mask, pass classes[mask]"
            )
        at = label_codes.find(wanted, self._classes)
        if (at < 0).any():
            raise InvalidParameterError(
                f"{what} {label_codes.as_objects(wanted[at < 0])} are not among the "
                f"classes {label_codes.as_objects(self._classes)}"
            )
        return at

    @synchronized
    def relabel(self, mapping: Mapping[Any, Any]) -> Self:
        """Return the moments under other labels; classes that get one label become one class.

        Parameters
        ----------
        mapping : dict
            Old label to new label; classes not named keep theirs.

        Returns
        -------
        ClassMoments
            Moments of the renamed classes.

        Raises
        ------
        InvalidParameterError
            For labels that are not among the classes.
        InvalidDataError
            For new labels of another kind than those that stay.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments().update([[1.0], [3.0], [6.0]], ["ant", "bee", "cat"])
        >>> merged = moments.relabel({"ant": "insect", "bee": "insect"})
        >>> merged.classes, merged.class_count
        (array(['cat', 'insect'], dtype='<U6'), array([1, 2]))
        """
        check_type("mapping", mapping, Mapping, "a dict of old labels to new ones")
        if not mapping:
            return self.copy()
        renamed = self._numbers([*mapping], "labels")
        new = label_codes.as_labels([*mapping.values()], "new labels")
        kept = np.delete(np.arange(self._classes.size), renamed)
        classes = label_codes.join_labels(self._classes[kept], np.unique(new))
        at = np.empty(self._classes.size, np.int64)
        at[kept] = label_codes.find(self._classes[kept], classes)
        at[renamed] = label_codes.find(new, classes)
        assert self._sums is not None  # There are classes.
        return self._with_sums(classes, self._sums.placed(at, classes.size))

    def _in_one_class(self, label: Any = 0) -> Self:
        """Return the moments of all rows as those of one class."""
        sums = held_sums(self).placed(np.zeros(self._classes.size, np.int64), 1)
        sums.structure = structure_of(self._structure.kind)
        return self._with_sums(np.array([label]), sums, sums.structure)

    @synchronized
    def pca(self, n_components: int) -> np.ndarray:
        """Return the principal components of all rows, from the scatter within and between classes.

        Parameters
        ----------
        n_components : int
            At most the number of features.

        Returns
        -------
        ndarray, shape (n_components, n_features)
            Orthonormal rows, by falling variance; the largest entry of each is positive.

        Raises
        ------
        InvalidParameterError
            For more components than features.
        MergeError
            If these moments have no covariances between features.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import ClassMoments
        >>> ClassMoments().update(*load_iris(return_X_y=True)).pca(2).round(3)
        array([[ 0.361, -0.085,  0.857,  0.358],
               [ 0.657,  0.73 , -0.173, -0.075]])
        """
        self._structure.check_covariances("pca")
        with np.errstate(over="ignore", invalid="ignore"):
            scatter = self.total()[2]
        d = len(scatter)
        n_components = as_integer("n_components", n_components, f"1 to {d}", 1, d)
        largest = {"subset_by_index": (d - n_components, d - 1)}
        axes = threads.call_blas(d, partial(linalg.eigh, lower=True, **largest), scatter)[1]
        axes = axes[:, ::-1].T
        at = np.abs(axes).argmax(axis=1)
        return np.asarray(axes * np.sign(axes[np.arange(n_components), at])[:, None])

    @synchronized
    def project(self, components: Any, offset: Any = None) -> Self:
        """Return the moments of ``(x - offset) @ components.T``, without reading the rows again.

        Parameters
        ----------
        components : array-like, shape (n_components, n_features)
            Directions, one per row.
        offset : array-like, shape (n_features,), optional
            Point that is subtracted from rows; zero by default.

        Returns
        -------
        ClassMoments
            Moments of n_components features.

        Raises
        ------
        InvalidParameterError
            For components of another number of features, or that are not finite numbers.
        MergeError
            If these moments have no covariances between features.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import ClassMoments, QuadraticDiscriminantAnalysis
        >>> X, y = load_iris(return_X_y=True)
        >>> moments = ClassMoments().update(X, y)
        >>> components = moments.pca(2)
        >>> qda = QuadraticDiscriminantAnalysis.from_moments(moments.project(components))
        >>> qda.score(X @ components.T, y)
        0.9733333333333334
        """
        self._structure.check_covariances("project")
        sums = held_sums(self).centred()
        d = sums.n_features
        components = as_numbers("components", components, f"directions of {d} numbers", finite=True)
        if components.ndim != 2 or components.shape[1] != d or not components.size:
            raise InvalidParameterError(
                f"components has shape {components.shape}, expected (n_components, {d})"
            )
        offset = np.zeros(d) if offset is None else offset
        shift = as_numbers("offset", offset, f"{d} numbers", finite=True)
        if shift.shape != (d,):
            raise InvalidParameterError(f"offset has shape {shift.shape}, expected ({d},)")
        with np.errstate(over="ignore", invalid="ignore"):
            origin = ((sums.origin - shift) @ components.T, sums.offset @ components.T)
            images = [components @ symmetric(own) @ components.T for own in sums.packed]
            scatter = self._structure.pack(np.array(images))
        # Rounding, along directions without variance, may leave less than nothing.
        self._structure.clip_squares(scatter)
        held = sums.count.copy(), sums.weight_squares.copy()
        projected = Sums(self._structure, *held, *origin, scatter).checked()
        result = self._with_sums(self._classes, projected)
        result._feature_names = result._lifting = None  # A component is not a column.
        return result

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        state: State = {
            "covariance_type": self.covariance_type,
            "classes": pack_labels(self._classes),
            "n_skipped": self._n_skipped,
        }
        state |= saved_names(self._feature_names)
        if self._lifting is not None:
            state["feature_map"] = self._lifting.as_json()
        if self._sums is not None:
            state |= self._sums.arrays()
            state["scatter"] = state.pop("packed")
        return state

    @classmethod
    def _from_state(cls, state: Mapping[str, Any]) -> Self:
        structure = structure_of(state["covariance_type"])
        classes = unpack_labels(state["classes"])
        moments = cls(structure.name, feature_map=Lifting.from_json(state.get("feature_map")))
        moments._n_skipped = check_whole("n_skipped", state.get("n_skipped", 0), 0)
        if "scatter" not in state and not classes.size:
            return moments
        kind = ExactSums if "total" in state else Sums
        own = {field.name for field in fields(kind)} & state.keys()
        sums = kind(structure, packed=state["scatter"], **{name: state[name] for name in own})
        sums.check(classes.size)
        if not sums.n_features:
            raise ValueError("there are no features")
        lifting, width = moments._lifting, sums.n_features
        if lifting is not None:
            if lifting.n_in is None or lifting.n_out != width:
                raise ValueError(f"they have {width} features, and a feature map of others")
            width = lifting.n_in
        loaded = moments._with_sums(classes, sums)
        loaded._feature_names = restored_names(state, width)
        return loaded


def check_holds(held: np.ndarray, count: np.ndarray, name_of: Callable[..., str]) -> None:
    """Raise `MergeError` if fewer rows are held than are subtracted, by more than rounding.

    Its message has the result of ``name_of(*numbers)``, for the first place where that is so.
    """
    whole = count.dtype.kind == held.dtype.kind == "i"
    lacking = np.argwhere(count > (held if whole else held * (1 + 1e-9)))
    if lacking.size:
        at = tuple(lacking[0])
        raise MergeError(
            f"subtracting {count[at]:g} rows of {name_of(*at)} from moments that hold "
            f"{held[at]:g} of them: only rows that were added can be subtracted"
        )


def _warn_of_large_integers(X: Any) -> None:
    """Warn of integers of 64 bits that float64 rounds."""
    if not isinstance(X, np.ndarray) or not X.size:
        return
    if int(X.max()) > _WHOLE or int(X.min()) < -_WHOLE:
        warnings.warn(
            "X holds integers beyond 2**53, which float64 rounds, so that small differences are "
            "lost; subtract a whole number near them before",
            PrecisionWarning,
            stacklevel=2,
        )
