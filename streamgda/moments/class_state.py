"""`ClassState`: what class moments hold, and the properties that read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.moments.base import Moments
from streamgda.moments.centred import CentredSums
from streamgda.moments.exact import ExactSums
from streamgda.moments.few_rows import FewRows
from streamgda.moments.structures import structure_of
from streamgda.rows.names import Names
from streamgda.runtime.interruption import uninterrupted
from streamgda.runtime.parameters import as_number

_NO_CLASSES = np.empty(0, np.int64)
_State = TypeVar("_State", bound="ClassState")


class ClassState(Moments):
    """Base of `ClassMoments`: classes, sums and norms of the rows.

    Methods that change the moments hold their lock. Whatever exception arrives, the change is
    complete or has not been made: the state is replaced by assignments without calls between them,
    which no exception separates (see `runtime.interruption`).

    Attributes
    ----------
    changes : int
        Number of changes so far, including one that has started.
    """

    def __init__(self, covariance_type: str = "full", *, norms: bool = False) -> None:
        super().__init__()
        self._structure = structure_of(covariance_type)
        if norms and covariance_type != "full":
            raise InvalidParameterError(
                f"norms=True needs a matrix per class to merge them, which covariance_type="
                f"{covariance_type!r} does not keep; use 'full', which can be reduced later"
            )
        self._classes = _NO_CLASSES
        self._sums: CentredSums | ExactSums | None = None
        self._n_skipped = 0
        self.changes = 0
        self._norms = np.empty((0, 0)) if norms else None
        self._few: FewRows | None = None
        # What a second pass over the rows yielded, and the number of changes at that time.
        self._scaled: tuple[int, Mapping[str, np.ndarray]] = 0, {}

    def _with_sums(
        self,
        classes: np.ndarray,
        sums: Any,
        norms: np.ndarray | None = None,
        covariance_type: str | None = None,
    ) -> Self:
        """Return other moments of the same rows."""
        covariance_type = covariance_type or self.covariance_type
        skipped, names = self._n_skipped, self._feature_names
        return from_sums(type(self), covariance_type, classes, sums, norms, skipped, names)

    @property
    def covariance_type(self) -> str:
        """Covariance type of the moments."""
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
        """True if the norms of the rows are kept."""
        return self._norms is not None

    @property
    def fourth(self) -> np.ndarray:
        r"""Sums :math:`\sum w_i |x_i - m_k|^4` of each class, shape (n_classes,).

        Raises
        ------
        InvalidDataError
            If norms are not kept.
        """
        if self._norms is None:
            raise InvalidDataError(
                "these moments hold no norms of the rows; make them with ClassMoments('full', "
                "norms=True) or accumulate(..., norms=True). Selecting features, projecting and "
                "reducing to another covariance type lose them"
            )
        return self._norms[:, -1].copy() if self._sums is not None else np.zeros(0)

    def _scaled_fourth(self) -> Mapping[str, np.ndarray]:
        """Return sums of fourth powers of scaled rows by scaling; none once the moments changed."""
        changes, held = self._scaled
        return held if changes == self.changes else {}

    @property
    def exact(self) -> bool:
        """True if the moments are integer sums without any rounding."""
        return isinstance(self._sums, ExactSums)

    def centred(self) -> CentredSums:
        """Return counts, means and scatter about the means, in float64.

        Returns
        -------
        CentredSums
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
        (array([2]), array([[2.]]), array([[[2.]]]))
        """
        return self._held_sums().centred()

    def _held_sums(self) -> CentredSums | ExactSums:
        if self._sums is None or not self._sums.count.any():
            self._refuse_empty()
        return self._sums

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
        sums = self.centred()
        ddof = as_number("ddof", ddof, "a number >= 0", 0)
        weight = self._structure.group_weights(sums.count, ddof)
        weight = np.where(weight > 0, weight, np.nan)
        return self._structure.ungroup(self._structure.covariance(sums.scatter, weight))

    def _change_sums(self, sums: Any, change: Callable[[Any], None]) -> None:
        """Change sums, a copy of them if they are held here and small, and store what changes.

        `change` is called with the sums. At its end it stores them and all that belongs to them.
        """
        held = sums is self._sums
        self.changes += 1
        if held and not sums.small:
            uninterrupted(change, sums)
        else:
            change(sums.copy() if held else sums)

    def _with_classes(self, classes: np.ndarray) -> CentredSums | ExactSums | None:
        """Return the sums for those classes: a copy if there are more than before."""
        if self._sums is None or classes.size == self._classes.size:
            return self._sums
        return self._sums.placed(np.searchsorted(classes, self._classes), classes.size)


def from_sums(
    kind: type[_State],
    covariance_type: str,
    classes: np.ndarray,
    sums: CentredSums | ExactSums | None,
    norms: np.ndarray | None = None,
    n_skipped: int = 0,
    feature_names: Names | None = None,
) -> _State:
    """Return class moments that hold these sums, with one entry a class."""
    moments = kind(covariance_type)
    moments._classes, moments._sums = classes, sums
    moments._norms, moments._n_skipped, moments._feature_names = norms, n_skipped, feature_names
    if sums is not None:
        sums.structure = moments._structure
    return moments


def keep_fourth(moments: ClassState, fourth: Mapping[str, np.ndarray]) -> None:
    """Keep sums of fourth powers of scaled rows, by scaling, until the moments change."""
    moments._scaled = moments.changes, fourth


def read_twice(moments: ClassState) -> bool:
    """Return True if the moments keep sums that a second pass over their rows yielded."""
    return bool(moments._scaled_fourth())


def scaled_fourth(moments: ClassState, scaling: str) -> np.ndarray | None:
    """Return the sums of fourth powers of scaled rows, shape (n_classes,); None if unknown."""
    return moments._scaled_fourth().get(scaling)


def held_sums(moments: ClassState) -> CentredSums | ExactSums:
    """Return the sums of moments as they are kept, which must not be modified.

    Raises
    ------
    InvalidDataError
        If there are no rows.
    """
    return moments._held_sums()


def exact_sums(moments: ClassState) -> ExactSums | None:
    """Return the integer sums of exact moments, None for others."""
    return moments._sums if isinstance(moments._sums, ExactSums) else None
