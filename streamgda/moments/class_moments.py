"""`ClassMoments`: what is kept of the data; everything else is a function of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, Self

import numpy as np
from scipy import linalg

from streamgda import storage
from streamgda.errors import InvalidDataError, InvalidParameterError, MergeError
from streamgda.moments.base import Moments
from streamgda.moments.centred import CentredSums, NotFinite
from streamgda.moments.exact import ORIGINS, ExactSums
from streamgda.moments.norms import merge_norms, norms_of_rows
from streamgda.moments.structure import check_covers, structure_of
from streamgda.moments.sums import check_array
from streamgda.moments.variances import symmetric, total_scatter
from streamgda.rows import labels as label_codes
from streamgda.rows.blocks import NO_WEIGHTS, read_dtype
from streamgda.rows.validity import CHECK_SUMS, Invalid, as_matrix, refuse_not_finite, rows_to_count
from streamgda.runtime import threads
from streamgda.storage.saved import State

_MOST_REACH = 1 << 17  # of 16-bit integers about the origin of others
_NO_CLASSES = np.empty(0, np.int64)
FORGOTTEN = 1e-250  # weight of a class at which squares are not yet rounded to nothing


class ClassMoments(Moments):
    r"""Count, mean and scatter of the rows of each class, in one pass and mergeable.

    For the rows :math:`x_i` of class k with weights :math:`w_i`

    .. math:: n_k = \sum w_i, \quad m_k = \sum w_i x_i / n_k, \quad
              S_k = \sum w_i (x_i - m_k)(x_i - m_k)^T

    merged by Chan, Golub and LeVeque's formula. Rows of uint8, int8, uint16 and int16 without
    weights are summed in integers: then nothing depends on the order or the chunks of the rows
    by a single bit.

    All else is float64, but for one thing: where the moments take more than 1 MiB, float32 rows
    are multiplied in float32, centred at their means and 256 of them at a time, and these products
    summed in float64. An element of the scatter is then right to :math:`260 \cdot 2^{-24} \sum
    |x_i - m_i| |x_j - m_j|`; pass ``X.astype(float)`` where that is too little.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "tied_diag", "spherical", "tied_spherical"}
        What is kept of the scatter. ``"full"`` is a matrix per class and can become any other
        (`reduce`); ``"tied"`` is one matrix, pooled within classes; ``"diag"`` holds variances.
    norms : bool
        Keep the norms of the rows about their class means too, :math:`\sum w_i |t_i|^2 t_i` and
        :math:`\sum w_i |t_i|^4`, of which Ledoit and Wolf's shrinkage is made; of ``"full"``
        moments alone. They are float64 whatever the rows are, and every `update` makes moments of
        its rows first and adds these: batches should have more rows than features.

    Raises
    ------
    InvalidParameterError
        For another covariance type, or `norms` with another than ``"full"``.

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

    _kind = "moments"

    def __init__(self, covariance_type: str = "full", *, norms: bool = False) -> None:
        self._structure = structure_of(covariance_type)
        if norms and not (self._structure.per_class and self._structure.matrix):
            raise InvalidParameterError(
                f"norms=True needs a matrix per class to merge them, which covariance_type="
                f"{covariance_type!r} does not keep; use 'full', which can be reduced later"
            )
        self._classes = _NO_CLASSES
        self._sums: CentredSums | ExactSums | None = None
        self._n_skipped = 0
        self._norms = np.empty((0, 0)) if norms else None

    @classmethod
    def _of(
        cls,
        covariance_type: str,
        classes: np.ndarray,
        sums: Any,
        norms: np.ndarray | None = None,
        n_skipped: int = 0,
    ) -> Self:
        moments = cls(covariance_type)
        moments._classes, moments._sums = classes, sums
        moments._norms, moments._n_skipped = norms, n_skipped
        if sums is not None:
            sums.structure = moments._structure
        return moments

    def _like(
        self,
        classes: np.ndarray,
        sums: Any,
        norms: np.ndarray | None = None,
        covariance_type: str | None = None,
    ) -> Self:
        """Other sums of the same rows."""
        covariance_type = covariance_type or self.covariance_type
        return self._of(covariance_type, classes, sums, norms, self._n_skipped)

    # --- what is held -------------------------------------------------------------------------

    @property
    def covariance_type(self) -> str:
        """The covariance type that these moments are kept for."""
        return self._structure.name

    @property
    def classes(self) -> np.ndarray:
        """Class labels, sorted, shape (n_classes,)."""
        return self._classes

    @property
    def class_count(self) -> np.ndarray:
        """Rows of each class (int64), or their total weight (float64), shape (n_classes,)."""
        return self._sums.count.copy() if self._sums is not None else np.zeros(0, np.int64)

    @property
    def means(self) -> np.ndarray:
        """Class means, shape (n_classes, n_features); NaN for a class without rows."""
        return self._sums.class_means() if self._sums is not None else np.empty((0, 0))

    @property
    def n_features(self) -> int | None:
        """Number of features; None before the first row."""
        return self._sums.n_features if self._sums is not None else None

    @property
    def n_skipped(self) -> int:
        """Rows that were left out as invalid (`accumulate` with ``on_invalid="skip"``)."""
        return self._n_skipped

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that hold the moments."""
        if self._sums is None:
            return 0
        held = sum(array.nbytes for array in self._sums.arrays().values())
        return held + (self._norms.nbytes if self._norms is not None else 0)

    @property
    def norms(self) -> bool:
        """Whether the norms of the rows are kept."""
        return self._norms is not None

    @property
    def fourth(self) -> np.ndarray:
        r""":math:`\sum w_i |x_i - m_k|^4` of each class, shape (n_classes,).

        Raises
        ------
        InvalidDataError
            Where norms are not kept.
        """
        if self._norms is None:
            raise InvalidDataError(
                "these moments hold no norms of the rows; make them with ClassMoments('full', "
                "norms=True) or accumulate(..., norms=True). Selecting features, projecting and "
                "reducing to another covariance type lose them"
            )
        return self._norms[:, -1].copy() if self._sums is not None else np.zeros(0)

    @property
    def exact(self) -> bool:
        """Whether the moments are integer sums without any rounding."""
        return isinstance(self._sums, ExactSums)

    def centred(self) -> CentredSums:
        """Counts, means and scatter about the means, in float64.

        Raises
        ------
        InvalidDataError
            Where no rows have been seen.
        """
        if self._sums is None or not self._sums.count.any():
            self._refuse_empty()
        return self._sums.centred()

    def covariance(self, ddof: int = 0) -> np.ndarray:
        r"""Covariances, :math:`S_k / (n_k - ddof)`, or variances.

        Pooled ones are :math:`\sum_k S_k / \sum_k (n_k - ddof)`, over the classes with rows.

        Parameters
        ----------
        ddof : int
            Taken off the count of each class.

        Returns
        -------
        ndarray of float64
            Shape (K, d, d) for ``"full"``, (d, d) for ``"tied"``, (K, d) for ``"diag"``, (d,) for
            ``"tied_diag"``, (K,) for ``"spherical"`` and () for ``"tied_spherical"``. NaN where
            a class has no more than `ddof` rows.
        """
        sums = self.centred()
        weight = sums.count - float(ddof)
        if not self._structure.per_class:
            weight = weight[sums.count > 0].sum(keepdims=True)
        weight = np.where(weight > 0, weight, np.nan)
        scatter = symmetric(sums.scatter) if self._structure.matrix else sums.scatter
        covariance = scatter / weight.reshape(-1, *[1] * (scatter.ndim - 1))
        if self._structure.isotropic:
            covariance = covariance.mean(axis=1)
        return covariance if self._structure.per_class else covariance[0]

    def __repr__(self) -> str:
        if self._sums is None:
            return f"ClassMoments({self.covariance_type!r}): empty"
        skipped = f", {self._n_skipped} invalid rows left out" if self._n_skipped else ""
        return (
            f"ClassMoments({self.covariance_type!r}): {self._sums.count.sum():g} rows x "
            f"{self._sums.n_features} features in {self._classes.size} classes, "
            f"{self.nbytes / 2**20:.3g} MiB{', exact' if self.exact else ''}{skipped}"
        )

    # --- taking rows in -----------------------------------------------------------------------

    def _bytes(self, n_classes: int, n_features: int) -> tuple[int, int]:
        # A state is there twice while classes are added to it, and every thread has sums of its
        # own; with norms, the moments of the rows are made beside those that they are added to.
        state = self._structure.state_bytes(n_classes, n_features)
        taking = 2 * state + (threads.n_threads() + 1) * 8 * n_classes * n_features
        return state, taking * (1 + self.norms)

    def _update(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        first_row: int = 0,
        invalid: Invalid = CHECK_SUMS,
        expected: np.ndarray | None = None,
    ) -> Self:
        X = as_matrix(X)
        y = label_codes.as_labels(y, first_row=first_row)
        self._check_shapes(X, y)
        if self._norms is not None and self._sums is not None:
            fresh = ClassMoments(self.covariance_type, norms=True)
            return self.__iadd__(fresh._update(X, y, sample_weight, first_row, invalid, expected))
        weights, numbers, n_skipped = NO_WEIGHTS, None, 0
        if sample_weight is not None or invalid.looked_for:
            weights, numbers, n_skipped = rows_to_count(X, sample_weight, invalid, first_row)
            if numbers is not None:
                X, y = X[numbers], y[numbers]
                if not y.size:
                    self._n_skipped += n_skipped
                    return self
        codes, classes = label_codes.encode(y, self._classes)
        if expected is not None and classes is not self._classes:
            label_codes.check_expected(y, codes, classes, expected, first_row, numbers)
        sums = self._with_classes(classes)
        dtype = read_dtype(X.dtype)
        exact_rows = not weights.size and dtype in ORIGINS
        if sums is None:
            kind = ExactSums if exact_rows else CentredSums
            sums = kind.zeros(self._structure, classes.size, X.shape[1], dtype)
        if isinstance(sums, ExactSums) and not (exact_rows and sums.has_room(X.shape[0], dtype)):
            sums = sums.centred()
        try:
            sums.update(X, codes, weights)
        except NotFinite:
            refuse_not_finite(X, first_row, numbers)
        if self._norms is not None:
            self._norms = norms_of_rows(X, codes, weights, sums.centred())
        self._classes, self._sums = classes, sums
        self._n_skipped += n_skipped
        return self

    def _with_classes(self, classes: np.ndarray) -> CentredSums | ExactSums | None:
        """The sums, with room for those classes: a copy where there are more than before."""
        if self._sums is None or classes.size == self._classes.size:
            return self._sums
        return self._sums.moved(np.searchsorted(classes, self._classes), classes.size)

    def declare(self, classes: Any) -> Self:
        """Make labels classes before any row of theirs is seen; needs at least one other row.

        Parameters
        ----------
        classes : array-like, shape (n_labels,)

        Returns
        -------
        ClassMoments
            Itself.
        """
        if self._sums is None:
            self._refuse_empty()
        joined = label_codes.join_labels(
            self._classes, np.unique(label_codes.as_labels(classes, "classes"))
        )
        if self._norms is not None:
            norms = np.zeros((joined.size, self._norms.shape[1]))
            norms[np.searchsorted(joined, self._classes)] = self._norms
            self._norms = norms
        self._sums, self._classes = self._with_classes(joined), joined
        return self

    # --- algebra ------------------------------------------------------------------------------

    def __iadd__(self, other: ClassMoments) -> Self:
        if not isinstance(other, ClassMoments):
            return NotImplemented
        self._check_mergeable(other)
        if other._sums is None:
            self._n_skipped += other._n_skipped
            return self
        classes = label_codes.join_labels(self._classes, other._classes)
        at = np.searchsorted(classes, other._classes)
        norms = self._norms
        if other._norms is not None:
            own = np.searchsorted(classes, self._classes)
            norms = merge_norms(
                [*self._with_norms(1, own), *other._with_norms(1, at)], classes.size
            )
        mine: Any = self._with_classes(classes)
        theirs: Any = other._sums
        if mine is None:
            mine = theirs.moved(at, classes.size)
        else:
            if not _both_exact(mine, theirs) or not mine.can_add(theirs):
                mine, theirs = mine.centred(), theirs.centred()
            mine.add(theirs, at)
        self._classes, self._sums, self._norms = classes, mine, norms
        self._n_skipped += other._n_skipped
        return self

    def __sub__(self, other: ClassMoments) -> ClassMoments:
        """The moments without the rows of `other`: as if they had never been seen.

        To rounding; to the bit where both are exact. Classes left without rows are dropped.

        Raises
        ------
        MergeError
            Where the widths or the covariance types differ, or `other` holds rows that these
            moments do not.
        """
        if not isinstance(other, ClassMoments):
            return NotImplemented
        self._check_mergeable(other)
        if other._sums is None or not other._sums.count.any():
            return self.copy()
        at = self._check_contains(other)
        if (at < 0).any():  # classes without rows
            other, at = other._keep(at >= 0), at[at >= 0]
        norms = None
        if self._norms is not None:
            everyone = np.arange(self._classes.size)
            parts = [*self._with_norms(1, everyone), *other._with_norms(-1, at)]
            norms = merge_norms(parts, everyone.size)
        theirs: Any = other._sums
        left: Any = self.copy()._sums
        if not _both_exact(left, theirs):
            left, theirs = left.centred(), theirs.centred()
        left.subtract(theirs, at)
        result = self._like(self._classes, left, norms)
        result._n_skipped = max(0, self._n_skipped - other._n_skipped)
        emptied = np.zeros(self._classes.size, bool)
        emptied[at] = (left.count[at] == 0) & (other.class_count > 0)
        return result._keep(~emptied) if emptied.any() else result

    def __mul__(self, gamma: float) -> ClassMoments:
        """The moments with every row weighing `gamma` times as much: forgetting.

        A class that weighs next to nothing (1e-250) becomes one without rows.

        Raises
        ------
        InvalidParameterError
            Where `gamma` is negative or not finite.
        """
        return self.copy().__imul__(gamma)

    __rmul__ = __mul__

    def __imul__(self, gamma: float) -> Self:
        if not isinstance(gamma, Real):
            return NotImplemented
        if not (math.isfinite(gamma) and gamma >= 0):
            raise InvalidParameterError(f"gamma={gamma!r}; expected a finite number >= 0")
        if self._sums is None:
            return self
        sums = self._sums.centred()
        sums.count = sums.count * float(gamma)
        weighed = [sums.scatter, *([] if self._norms is None else [self._norms])]
        for array in weighed:
            np.multiply(array, float(gamma), out=array)
        of_classes = [sums.count, sums.mean, sums.mean_low]
        if self._structure.per_class:
            of_classes += weighed
        gone = sums.count < FORGOTTEN
        for array in of_classes:
            array[gone] = 0
        self._sums = sums
        return self

    def copy(self) -> ClassMoments:
        """Moments of their own with the same values."""
        sums = self._sums
        if sums is not None:
            sums = sums.moved(np.arange(self._classes.size), self._classes.size)
        norms = self._norms.copy() if self._norms is not None else None
        return self._like(self._classes, sums, norms)

    def _with_norms(
        self, sign: int, at: np.ndarray
    ) -> list[tuple[int, np.ndarray, CentredSums, np.ndarray]]:
        """These moments as one of the parts of `merge_norms`; none without rows."""
        if self._sums is None or self._norms is None:
            return []
        return [(sign, self._norms, self._sums.centred(), at)]

    def _check_mergeable(self, other: ClassMoments) -> None:
        if self.covariance_type != other.covariance_type:
            raise MergeError(
                f"moments of covariance_type={self.covariance_type!r} and "
                f"{other.covariance_type!r} do not combine; bring both to one with reduce()"
            )
        if self.norms != other.norms:
            raise MergeError(
                f"moments {'with' if self.norms else 'without'} norms and moments "
                f"{'with' if other.norms else 'without'} do not combine; make both with "
                f"norms=True, or both without"
            )
        self._check_width(other)

    def _check_contains(self, other: ClassMoments) -> np.ndarray:
        """The numbers here of the other's classes; refuse to take out rows that are not in."""
        at = label_codes.find(other._classes, self._classes)
        held = np.where(at >= 0, np.append(self.class_count, 0)[at], 0)
        for label, count, here in zip(
            other._classes.tolist(), other.class_count, held, strict=True
        ):
            if count > here * (1 + 1e-9):
                raise MergeError(
                    f"subtracting {count:g} rows of class {label!r} from moments that hold "
                    f"{here:g} of them: only what was added can be taken out"
                )
        return at

    # --- views of the same data ---------------------------------------------------------------

    def reduce(self, covariance_type: str) -> ClassMoments:
        """The moments of a simpler covariance type.

        Parameters
        ----------
        covariance_type : str
            ``"full"`` determines all others, ``"tied"`` and ``"diag"`` those without matrices or
            without a covariance per class, and so on. Norms are kept where it is their own.

        Raises
        ------
        MergeError
            Where these moments do not determine it.
        """
        wanted = structure_of(covariance_type)
        check_covers(self._structure, wanted)
        if covariance_type == self.covariance_type:
            return self.copy()
        if self._sums is None:
            return self._like(self._classes, None, covariance_type=covariance_type)
        sums = self._sums.with_scatter(self._reduced_scatter(wanted))
        return self._like(self._classes, sums, covariance_type=covariance_type)

    def _reduced_scatter(self, wanted: Any) -> np.ndarray:
        assert self._sums is not None
        scatter = self._sums.scatter
        if self._structure.matrix and not wanted.matrix:
            scatter = scatter.diagonal(axis1=1, axis2=2)
        if self._structure.per_class and not wanted.per_class:
            scatter = scatter.sum(axis=0, keepdims=True)
        return scatter.copy()

    def select_features(self, index: Any) -> ClassMoments:
        """The moments of some of the features, in the order of `index`.

        Parameters
        ----------
        index : array-like of int or of bool, or slice
        """
        if self._sums is None:
            self._refuse_empty()
        d = self._sums.n_features
        try:
            index = np.arange(d)[index if isinstance(index, slice) else np.asarray(index)]
        except IndexError as error:
            raise InvalidParameterError(f"index does not fit {d} features: {error}") from None
        index = np.atleast_1d(index)
        if index.ndim != 1 or not index.size:
            raise InvalidParameterError(
                f"index has shape {index.shape}; expected one feature or more"
            )
        scatter = self._sums.scatter
        if self._structure.matrix:
            scatter = np.tril(symmetric(scatter)[:, index[:, None], index])
        else:
            scatter = scatter[:, index]
        sums = self._sums.with_features(index, np.ascontiguousarray(scatter))
        return self._like(self._classes, sums)

    def select_classes(self, labels: Any) -> ClassMoments:
        """The moments of some of the classes.

        Parameters
        ----------
        labels : array-like
            Labels to keep.

        Raises
        ------
        InvalidParameterError
            For labels that are not here.
        MergeError
            Where the scatter is pooled over all classes.
        """
        kept = np.zeros(self._classes.size, bool)
        kept[self._numbers(labels, "labels")] = True
        return self._keep(kept)

    def drop_classes(self, labels: Any) -> ClassMoments:
        """The moments of all classes but some; otherwise as `select_classes`."""
        kept = np.ones(self._classes.size, bool)
        kept[self._numbers(labels, "labels")] = False
        return self._keep(kept) if self._sums is not None else self.copy()

    def _numbers(self, labels: Any, what: str) -> np.ndarray:
        wanted = label_codes.as_labels(labels, what)
        at = label_codes.find(wanted, self._classes)
        if (at < 0).any():
            raise InvalidParameterError(
                f"{what} {wanted[at < 0].tolist()} are not among the classes "
                f"{self._classes.tolist()}"
            )
        return at

    def _keep(self, kept: np.ndarray) -> ClassMoments:
        assert self._sums is not None
        dropped = ~kept & (self._sums.count > 0)
        if dropped.any() and not self._structure.per_class:
            raise MergeError(
                f"moments of covariance_type={self.covariance_type!r} have one scatter for all "
                f"classes, from which no class can be left out; accumulate "
                f"{'full' if self._structure.matrix else 'diag'!r} moments, select, then reduce()"
            )
        scatter = self._sums.scatter[kept] if self._structure.per_class else self._sums.scatter
        sums = self._sums.with_classes(kept, scatter.copy())
        norms = self._norms[kept] if self._norms is not None else None
        return self._like(self._classes[kept], sums, norms)

    def relabel(self, mapping: Mapping[Any, Any]) -> ClassMoments:
        """The moments under other labels; classes that get one label become one class.

        Parameters
        ----------
        mapping : dict
            Old label to new label; classes not named keep theirs.
        """
        if not mapping:
            return self.copy()
        renamed = self._numbers([*mapping], "labels")
        new = label_codes.as_labels([*mapping.values()], "new labels")
        kept = np.delete(np.arange(self._classes.size), renamed)
        classes = label_codes.join_labels(self._classes[kept], np.unique(new))
        at = np.empty(self._classes.size, np.int64)
        at[kept] = label_codes.find(self._classes[kept], classes)
        at[renamed] = label_codes.find(new, classes)
        assert self._sums is not None  # there are classes
        sums = self._sums.moved(at, classes.size)
        norms = None
        if self._norms is not None:
            norms = merge_norms(self._with_norms(1, at), classes.size)
        return self._like(classes, sums, norms)

    def pca(self, n_components: int) -> np.ndarray:
        """Principal components of all rows together, from within- and between-class scatter.

        Parameters
        ----------
        n_components : int
            At most the number of features.

        Returns
        -------
        ndarray, shape (n_components, n_features)
            Orthonormal rows, by falling variance; the largest entry of each is positive.
        """
        self._check_matrix("pca")
        sums = self.centred()
        d = sums.n_features
        if not 1 <= n_components <= d:
            raise InvalidParameterError(f"n_components={n_components}; expected 1 to {d}")
        total = total_scatter(sums)
        _, vectors = linalg.eigh(total, subset_by_index=(d - n_components, d - 1), lower=True)
        components = vectors[:, ::-1].T
        largest = np.abs(components).argmax(axis=1)
        signs = np.sign(components[np.arange(n_components), largest])
        return components * signs[:, None]

    def project(self, components: Any, offset: Any = None) -> ClassMoments:
        """The moments of ``(x - offset) @ components.T``, without looking at the rows again.

        Parameters
        ----------
        components : array-like, shape (n_components, n_features)
        offset : array-like, shape (n_features,), optional

        Returns
        -------
        ClassMoments
            With n_components features.
        """
        self._check_matrix("project")
        sums = self.centred()
        components = np.asarray(components, np.float64)
        if components.ndim != 2 or components.shape[1] != sums.n_features:
            raise InvalidParameterError(
                f"components has shape {components.shape}, expected "
                f"(n_components, {sums.n_features})"
            )
        shift = np.zeros(sums.n_features) if offset is None else np.asarray(offset, np.float64)
        if shift.shape != (sums.n_features,):
            raise InvalidParameterError(
                f"offset has shape {shift.shape}, expected ({sums.n_features},)"
            )
        mean = ((sums.mean - shift) + sums.mean_low) @ components.T
        scatter = np.tril(components @ symmetric(sums.scatter) @ components.T)
        projected = CentredSums(
            self._structure, sums.count.copy(), mean, np.zeros_like(mean), scatter
        )
        return self._like(self._classes, projected)

    def _check_matrix(self, method: str) -> None:
        if not self._structure.matrix:
            raise MergeError(
                f"{method}() needs covariances between features, which "
                f"covariance_type={self.covariance_type!r} does not keep; use 'full' or 'tied'"
            )

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        attributes: dict[str, Any] = {
            "covariance_type": self.covariance_type,
            "classes": storage.pack_labels(self._classes),
            "n_skipped": self._n_skipped,
        }
        if self.norms:
            attributes["norms"] = True
        if self._sums is None:
            return attributes, {}
        if isinstance(self._sums, ExactSums):
            attributes |= {"origin": self._sums.origin, "reach": self._sums.reach}
        arrays = dict(self._sums.arrays())
        if self._structure.matrix:
            arrays["scatter"] = storage.pack_triangles(arrays["scatter"])
        return attributes, arrays if self._norms is None else {**arrays, "norms": self._norms}

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        structure = structure_of(attributes["covariance_type"])
        classes = storage.unpack_labels(attributes["classes"])
        n_skipped = attributes.get("n_skipped", 0)
        if type(n_skipped) is not int or n_skipped < 0:
            raise ValueError(f"n_skipped={n_skipped!r}")
        moments = cls(structure.name, norms=bool(attributes.get("norms")))
        moments._n_skipped = n_skipped
        if not arrays and not classes.size:
            return moments
        arrays = dict(arrays)
        norms = arrays.pop("norms") if moments.norms else None
        if structure.matrix:
            arrays["scatter"] = storage.unpack_triangles(arrays["scatter"])
        if "origin" in attributes:
            origin, reach = attributes["origin"], attributes["reach"]
            if not (type(origin) is type(reach) is int and _is_origin(origin, reach)):
                raise ValueError(f"integers are never summed about {origin!r} within {reach!r}")
            sums: CentredSums | ExactSums = ExactSums(structure, origin, reach, **arrays)
        else:
            sums = CentredSums(structure, **arrays)
        sums.check(classes.size)
        if not sums.n_features:
            raise ValueError("there are no features")
        if norms is not None:
            check_array("norms", norms, (classes.size, sums.n_features + 1), "f8")
        return cls._of(structure.name, classes, sums, norms, n_skipped)


def _is_origin(origin: int, reach: int) -> bool:
    return origin in ORIGINS.values() and 0 <= reach <= _MOST_REACH


def _both_exact(a: Any, b: Any) -> bool:
    return isinstance(a, ExactSums) and isinstance(b, ExactSums)
