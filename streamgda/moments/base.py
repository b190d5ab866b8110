"""`Moments`: base of all moments, to which rows and other moments are added."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NoReturn, Self

import numpy as np

from streamgda.errors import InvalidDataError, MergeError
from streamgda.moments.feature_maps import Lifting
from streamgda.rows.counting import CHECK_SUMS, RowRule, Slab, read_only
from streamgda.rows.labels import as_labels, as_objects, join_labels
from streamgda.rows.names import Names, join_names
from streamgda.runtime.interruption import Lock
from streamgda.runtime.memory import readable
from streamgda.storage.saved import Saved, synchronized


class Moments(Saved):
    """Moments of the rows of each class: the interface that a pass over rows uses."""

    _classes = np.empty(0, np.int64)
    _sums: Any = None  # The sums of each class; None before the first row.
    _feature_names: Names | None = None
    _lifting: Lifting | None = None
    __array_ufunc__ = None  # NumPy would take moments for an item of an array.

    def __init__(self) -> None:
        self._lock = Lock()  # It is held while the moments change or are copied.
        self.changes = 0

    def __getstate__(self) -> Any:
        """Return the attributes of a copy, which does not change while it is pickled."""
        return vars(self) | vars(self.copy())

    @property
    def classes(self) -> np.ndarray:
        """Class labels, sorted, shape (n_classes,)."""
        return read_only(self._classes)

    @property
    @synchronized
    def class_count(self) -> np.ndarray:
        """Rows of each class (int64), or their total weight (float64), shape (n_classes,)."""
        if self._sums is None:
            return np.zeros(0, np.int64)
        return self._sums.count.astype(np.float64 if self._sums.weighted else np.int64)

    @property
    def n_features(self) -> int | None:
        """Number of features; None before the first row."""
        return self._sums.n_features if self._sums is not None else None

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features; None if no rows had any.

        They are those of the columns of data frames and of other containers whose columns have
        names. Rows and moments of other names, or of the same names in another order, raise an
        error; those without names fit any.

        Examples
        --------
        >>> import pandas as pd
        >>> from streamgda import accumulate
        >>> frame = pd.DataFrame({"length": [1.0, 3.0, 2.0], "width": [0.5, 0.7, 0.9]})
        >>> moments = accumulate(frame, ["ant", "ant", "bee"])
        >>> moments.feature_names
        ('length', 'width')
        """
        return self._feature_names

    @property
    def feature_map(self) -> Any:
        """Map of the rows before they were added, see `RandomFeatures`; None without one.

        Moments of rows behind one map combine, and those of other maps raise an error. The features
        are those behind the map; names are those of the rows before it.
        """
        return None if self._lifting is None else self._lifting.parameter

    @property
    def _n_features_in(self) -> int | None:
        """Number of features of the rows that are added, before any map; None before the first."""
        return self.n_features if self._lifting is None else self._lifting.n_in

    @property
    @synchronized
    def nbytes(self) -> int:
        """Bytes of the arrays that hold the moments: of d features about 4 d² for each matrix."""
        held = {} if self._sums is None else self._sums.arrays()
        return sum(array.nbytes for array in held.values())

    def update(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add rows.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Numbers of any real type in any memory order; not copied as a whole. Sparse matrices
            become dense, except for covariance types without covariances between features.
        y : array-like, shape (n_rows,)
            Class labels; new labels become classes.
        sample_weight : array-like of float, shape (n_rows,), optional
            Weights, not negative; rows of weight zero, or below 1e-150, are ignored.

        Returns
        -------
        Moments
            The object itself.

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used. The moments stay as they were.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments("diag").update([[1.0], [3.0]], ["ant", "ant"])
        >>> moments.update([[8.0]], ["bee"]).means
        array([[2.],
               [8.]])
        """
        return self._update(Slab(X, y, None, sample_weight))

    @abstractmethod
    def _update(
        self, slab: Slab, rule: RowRule = CHECK_SUMS, expected: np.ndarray | None = None
    ) -> Self:
        """Add rows of a larger array; a class documents its `update`.

        Parameters
        ----------
        slab : Slab
        rule : RowRule
            Which rows count.
        expected : ndarray, sorted, optional
            Labels that may occur; any other is an error.
        """

    @property
    def n_skipped(self) -> int:
        """Rows that were left out as invalid."""
        return 0

    @property
    def _takes_sparse(self) -> bool:
        """True if sparse rows are summed as they are; otherwise they become dense."""
        return False

    @synchronized
    def _description(self) -> dict[str, Any]:
        counts = zip(as_objects(self.classes), self.class_count.tolist(), strict=True)
        mapped = {} if self._lifting is None else {"feature_map": str(self._lifting)}
        return {
            **super()._description(),
            "covariance_type": getattr(self, "covariance_type", None),
            **mapped,
            "features": self.n_features,
            "feature_names": self.feature_names,
            "rows": self.class_count.sum().item(),
            "skipped": self.n_skipped,
            "bytes": self.nbytes,
            "exact": getattr(self, "exact", False),
            "classes": [{"label": label, "rows": rows} for label, rows in counts],
        }

    def __repr__(self) -> str:
        of = self._description()
        kind = "" if of["covariance_type"] is None else f"({of['covariance_type']!r})"
        title = f"{type(self).__name__}{kind}"
        if of["features"] is None:
            return f"{title}: empty"
        groups = f"{len(of['rows_by_group'])} groups and " if "rows_by_group" in of else ""
        skipped = f", {of['skipped']} invalid rows left out" if of["skipped"] else ""
        mapped = f", {of['feature_map']}" if "feature_map" in of else ""
        return (
            f"{title}: {of['rows']:g} rows x {of['features']} features in {groups}"
            f"{len(of['classes'])} classes, {readable(of['bytes'])}"
            f"{', exact' if of['exact'] else ''}{skipped}{mapped}"
        )

    def declare(self, classes: Any) -> Self:
        """Add classes that have no rows yet; there must be rows of at least one other class.

        Parameters
        ----------
        classes : array-like, shape (n_labels,)
            Labels; those that are classes already stay as they are.

        Returns
        -------
        Moments
            The object itself.

        Raises
        ------
        InvalidDataError
            If there are no rows, or the labels are of another kind than the classes.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments().update([[1.0], [3.0]], ["ant", "ant"]).declare(["bee", "cat"])
        >>> moments.classes, moments.class_count
        (array(['ant', 'bee', 'cat'], dtype='<U3'), array([2, 0, 0]))
        """
        labels = np.unique(as_labels(classes, "classes"))
        with self._lock:
            if self.n_features is None:
                self._raise_empty()
            self._declare(labels)
        return self

    def _declare(self, labels: np.ndarray) -> None:
        """Add classes with these labels, which are sorted; some may be there."""
        joined = join_labels(self._classes, labels)
        sums = self._with_classes(joined)
        self.changes += 1
        self._classes, self._sums = joined, sums

    def _with_classes(self, classes: np.ndarray) -> Any:
        """Return the sums for those classes: a copy if there are more than before."""
        if self._sums is None or classes.size == self._classes.size:
            return self._sums
        return self._sums.placed(np.searchsorted(classes, self._classes), classes.size)

    @abstractmethod
    def _bytes(self, n_classes: int, n_features: int, n_groups: int = 0) -> tuple[int, int]:
        """Return the bytes of such moments, and of all that is held while rows are added.

        The number of groups is that of `GroupedMoments`.
        """

    def _scratch_bytes(self, n_features: int) -> int:
        """Return the most bytes of scratch space while rows are added, however many these are."""
        return 0

    def __add__(self, other: Self) -> Self:
        """Return the moments of both sets of rows; neither operand changes.

        Raises
        ------
        MergeError
            If the widths or the kinds of moments differ.
        """
        if not isinstance(other, type(self)):
            return NotImplemented
        return self.copy().__iadd__(other)

    def __radd__(self, other: int) -> Self:
        """Return a copy if `other` is 0, which ``sum(list_of_moments)`` starts from.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> parts = [ClassMoments().update([[x]], ["ant"]) for x in (1.0, 2.0, 6.0)]
        >>> sum(parts).means, sum([], ClassMoments())
        (array([[3.]]), ClassMoments('full'): empty)
        """
        return self.copy() if isinstance(other, int) and other == 0 else NotImplemented

    @synchronized
    def __iadd__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        self._add(other)
        return self

    @abstractmethod
    def _add(self, other: Any) -> Any:
        """Add other moments of this kind; the lock is held."""

    @abstractmethod
    def copy(self) -> Self:
        """Return independent moments with the same values."""

    def _emptied(self) -> Any:
        """Return moments of this kind without rows."""
        kind: Any = type(self)
        return kind(getattr(self, "covariance_type", "full"), feature_map=self._lifting)

    def _check_features(self, width: int) -> None:
        """Raise `InvalidDataError` for rows of another width than those before."""
        held = self._n_features_in
        if held is not None and width != held:
            raise InvalidDataError(
                f"X has {width} features, but these moments have {held} features"
            )

    def _joined(self, other: Moments) -> tuple[Names | None, Lifting | None]:
        """Return the names of the features and the map of these moments and others.

        Raises
        ------
        MergeError
            If the moments do not describe the same columns.
        """
        mine, theirs = self._lifting, other._lifting
        empty, others_empty = self.n_features is None, other.n_features is None
        lifting = theirs if mine is None else mine
        if not ((mine is None and (theirs is None or empty)) or (theirs is None and others_empty)):
            lifting = None if mine is None else mine.joined(theirs)
            if lifting is None:
                maps = " and ".join("no map" if m is None else str(m) for m in (mine, theirs))
                raise MergeError(
                    f"moments of rows behind {maps} do not combine; pass the same feature_map to "
                    f"both"
                )
        if not (empty or others_empty) and self.n_features != other.n_features:
            raise MergeError(
                f"moments of {self.n_features} features and of {other.n_features} features do not "
                f"combine; both must describe the same columns"
            )
        return self._names_with(other._feature_names), lifting

    def _names_with(self, found: Names | None, error: type[Exception] = MergeError) -> Names | None:
        """Return the names of the features once rows or moments with these names are added."""
        return join_names(self._feature_names, found, "these moments", error)

    def _name_features(self, names: Names | None) -> None:
        """Give the features names, if these are known and there are rows.

        Raises
        ------
        MergeError
            If the features have other names.
        """
        if names is not None and self.n_features is not None:
            self._feature_names = self._names_with(names)

    def _raise_empty(self) -> NoReturn:
        raise InvalidDataError("these moments hold no rows; call update(X, y) first")


def held_sums(moments: Moments) -> Any:
    """Return the sums that moments keep, which must not be modified; raise an error without rows.

    Other modules ask for them where `ClassMoments.centred` would copy.
    """
    if moments._sums is None or not np.count_nonzero(moments._sums.count):
        moments._raise_empty()
    return moments._sums
