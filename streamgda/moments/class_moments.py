"""`ClassMoments`: the state that is kept of the rows; everything else is a function of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from streamgda import storage
from streamgda.errors import InvalidDataError, MergeError
from streamgda.kernels.products import LEAST_ROWS
from streamgda.moments.base import name_features
from streamgda.moments.centred import CentredSums, NotFinite, scratch_bytes
from streamgda.moments.class_state import from_sums, keep_fourth
from streamgda.moments.exact import ExactSums
from streamgda.moments.few_rows import FewRows
from streamgda.moments.fourth import norms_of_rows
from streamgda.moments.structures import Structure, structure_of
from streamgda.moments.views import Views
from streamgda.rows import labels as label_codes
from streamgda.rows import named_rows
from streamgda.rows.arrays import NO_WEIGHTS, row_type
from streamgda.rows.invalid_rows import (
    CHECK_SUMS,
    RowRule,
    as_maskable_matrix,
    refuse_not_finite,
    rows_to_count,
)
from streamgda.rows.names import restored_names, saved_names
from streamgda.runtime import threads
from streamgda.storage.checks import check_array, check_flag, check_squares, check_whole
from streamgda.storage.saved import State

_INT64 = np.dtype(np.int64)


class ClassMoments(Views):
    r"""Count, mean and scatter of the rows of each class, computed in one pass and mergeable.

    For the rows :math:`x_i` of class k with weights :math:`w_i`

    .. math:: n_k = \sum w_i, \quad m_k = \sum w_i x_i / n_k, \quad
              S_k = \sum w_i (x_i - m_k)(x_i - m_k)^T

    merged by Chan, Golub and LeVeque's formula. Rows of uint8, int8, uint16 and int16 without
    weights are summed in integers: not a bit then depends on the order or the chunks of the rows,
    except in their norms. Covariances are rounded twice: the scatter, and its division by the
    number of rows.

    Everything else is float64, with one exception: if the moments take more than 1 MiB, float32
    rows are centred and multiplied in float32, 248 rows at a time; four of these products are
    summed in float32, and their sums in float64. The error of an element of the scatter is then at
    most :math:`260 \cdot 2^{-24} \sum |x_i - m_i| |x_j - m_j|`; pass ``X.astype(float)`` for more
    accuracy.

    Several threads may change the same moments: they take turns, and `copy` and ``+`` wait for
    them. Whatever exception arrives, such as that of Ctrl-C, a change is complete or not made.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "tied_diag", "spherical", "tied_spherical"}
        The part of the scatter to keep. ``"full"`` is a matrix per class and can become any other
        (`reduce`); ``"tied"`` is one matrix, pooled within classes; ``"diag"`` holds variances.
    norms : bool
        Also keep the norms of the rows about their class means, :math:`\sum w_i |t_i|^2 t_i` and
        :math:`\sum w_i |t_i|^4`, from which Ledoit and Wolf's shrinkage is computed; ``"full"``
        moments only. They are float64 for rows of any type, and every `update` computes the
        moments of its rows first and adds these: batches should have more rows than features.

    Raises
    ------
    InvalidParameterError
        For an unknown covariance type, or `norms` with a type other than ``"full"``.

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

    def __repr__(self) -> str:
        if self._sums is None:
            return f"ClassMoments({self.covariance_type!r}): empty"
        skipped = f", {self._n_skipped} invalid rows left out" if self._n_skipped else ""
        return (
            f"ClassMoments({self.covariance_type!r}): {self._sums.count.sum():g} rows x "
            f"{self._sums.n_features} features in {self._classes.size} classes, "
            f"{self.nbytes / 2**20:.3g} MiB{', exact' if self.exact else ''}{skipped}"
        )

    # --- adding rows --------------------------------------------------------------------------

    def _bytes(self, n_classes: int, n_features: int) -> tuple[int, int]:
        # There are two states while classes are added, and every thread has its own sums; with
        # norms, the moments of the new rows are computed beside those that they are added to.
        state = self._structure.state_bytes(n_classes, n_features)
        adding = 2 * state + (threads.n_threads() + 1) * 8 * n_classes * n_features
        return state, adding * (1 + self.norms)

    def _scratch_bytes(self, n_features: int) -> int:
        return scratch_bytes(self._structure, n_features)

    def _update(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        first_row: int = 0,
        rule: RowRule = CHECK_SUMS,
        expected: np.ndarray | None = None,
        decay: float | None = None,
    ) -> Self:
        usual = rule is CHECK_SUMS and sample_weight is None and decay is None
        if usual and type(X) is np.ndarray and type(y) is np.ndarray and self._add_at_once(X, y):
            return self
        X, named = (X, None) if type(X) is np.ndarray else named_rows(X)
        X = as_maskable_matrix(X, sparse=not self._structure.matrix)
        y = rule.as_labels(y, first_row)
        with self._lock:
            self._check_shapes(X, y)
            names = self._feature_names if named is None else self._names_with_rows(named)
            if not y.size:
                return self
            if self._norms is not None and self._sums is not None:
                added = type(self)(self.covariance_type, norms=True)
                added._update(X, y, sample_weight, first_row, rule, expected)
                name_features(added, named)
                try:
                    return self._add(added, decay)
                except MergeError as error:  # an overflow: widths and names have been checked
                    raise InvalidDataError(f"Input X: {error}") from None
            weights, numbers, n_skipped = NO_WEIGHTS, None, self._n_skipped
            plain = rule is CHECK_SUMS and type(X) is np.ndarray  # the common case, at once
            if sample_weight is not None or not (plain or rule.counts_all(X)):
                kept = rows_to_count(X, y, sample_weight, rule, first_row)
                X, y, weights, numbers, new = kept
                n_skipped += new
                if not y.size:
                    self._n_skipped = n_skipped
                    return self if decay is None else self.__imul__(decay)
            codes, classes = self._encoded(y)
            if expected is not None and classes is not self._classes:
                label_codes.check_expected(y, codes, classes, expected, first_row, numbers)
            sums: Any = self._sums if classes is self._classes else self._with_classes(classes)
            if type(sums) is not CentredSums:  # not isinstance, slow for abstract classes
                sums = self._summable(sums, X, weights, classes.size)
            self.changes += 1
            try:
                sums = sums.updated(X, codes, weights, sums is self._sums, decay)
            except NotFinite:
                self.changes -= 1
                refuse_not_finite(X, first_row, numbers)
            norms = self._norms
            if norms is not None:
                centred = sums.centred()
                norms = norms_of_rows(X, codes, weights, centred.mean, centred.mean_low)
            self._classes, self._sums, self._norms = classes, sums, norms
            self._n_skipped, self._feature_names = n_skipped, names
        return self

    def _encoded(self, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the codes of labels, and the classes that these number."""
        return label_codes.encode(y, self._classes)

    def _add_at_once(self, X: np.ndarray, y: np.ndarray) -> bool:
        """Add a few rows that need no conversion, with labels that are classes already.

        Returns False, with nothing changed, for all other rows and if a sum is not finite.
        """
        if X.ndim != 2 or len(X) > LEAST_ROWS or y.dtype != _INT64:
            return False
        with self._lock:
            few = self._few
            if few is None or few.changes != self.changes or few.sums is not self._sums:
                if self._sums is None or self._norms is not None:
                    return False
                self._few = few = FewRows(self._sums, self._classes, self.changes)
            codes = few.codes(X, y)
            if codes is None:
                return False
            self.changes += 1
            try:
                few.add(X, codes)
            except NotFinite:
                self.changes -= 1
                return False
        return True

    def _summable(
        self, sums: ExactSums | None, X: np.ndarray, weights: np.ndarray, n_classes: int
    ) -> CentredSums | ExactSums:
        """Return sums, new ones if there are none, of a kind to which rows can be added."""
        kind = row_type(X.dtype)
        origin = None if weights.size else kind.origin
        if sums is None:
            shape = n_classes, X.shape[1]
            if origin is None:
                return CentredSums.zeros(self._structure, *shape)
            sums = ExactSums.zeros(self._structure, *shape, origin)
        exact = origin is not None and sums.fits(X.shape[0], kind)
        return sums if exact else sums.centred()

    def declare(self, classes: Any) -> Self:
        """Add classes that have no rows yet; there must be rows of at least one other class.

        Parameters
        ----------
        classes : array-like, shape (n_labels,)
            Labels; those that are classes already stay as they are.

        Returns
        -------
        ClassMoments
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
        labels = np.unique(label_codes.as_labels(classes, "classes"))
        with self._lock:
            if self._sums is None:
                self._refuse_empty()
            joined = label_codes.join_labels(self._classes, labels)
            sums, norms = self._with_classes(joined), self._norms
            if norms is not None:
                norms = np.zeros((joined.size, norms.shape[1]))
                norms[np.searchsorted(joined, self._classes)] = self._norms
            self.changes += 1
            self._classes, self._sums, self._norms = joined, sums, norms
        return self

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        attributes: dict[str, Any] = {
            "covariance_type": self.covariance_type,
            "classes": storage.pack_labels(self._classes),
            "n_skipped": self._n_skipped,
        }
        attributes |= saved_names(self._feature_names)
        if self.norms:
            attributes["norms"] = True
        if self._sums is None:
            return attributes, {}
        if isinstance(self._sums, ExactSums):
            attributes |= {"origin": self._sums.origin, "reach": self._sums.reach}
        arrays = self._sums.arrays()
        arrays["scatter"] = self._structure.pack(arrays["scatter"])
        if self._norms is not None:
            arrays["norms"] = self._norms
        scaled = self._scaled_fourth()
        if scaled:
            attributes["scaled_fourth"] = [*scaled]
        return attributes, arrays | {f"fourth_{name}": array for name, array in scaled.items()}

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        structure = cls._saved_structure(attributes)
        classes = storage.unpack_labels(attributes["classes"])
        norms = check_flag("norms", attributes.get("norms", False))
        moments = cls(structure.name, norms=norms)
        moments._n_skipped = check_whole("n_skipped", attributes.get("n_skipped", 0), 0)
        if not arrays and not classes.size:
            return moments
        arrays = dict(arrays)
        held = arrays.pop("norms") if norms else None
        names = attributes.get("scaled_fourth", [])
        scaled = {name: arrays.pop(f"fourth_{name}") for name in names}
        arrays["scatter"] = structure.unpack(arrays["scatter"])
        sums: CentredSums | ExactSums
        if "origin" in attributes:
            origin, reach = check_whole("origin", attributes["origin"], 0), attributes["reach"]
            sums = ExactSums(structure, origin, reach, **arrays)
        else:
            sums = CentredSums(structure, **arrays)
        sums.check(classes.size)
        if not sums.n_features:
            raise ValueError("there are no features")
        if held is not None:
            check_array("norms", held, (classes.size, sums.n_features + 1), "f8")
            check_squares("norms", held[:, -1])
        for name, array in scaled.items():
            check_array(f"fourth_{name}", array, (classes.size,), "f8", least=0)
        named = restored_names(attributes, sums.n_features)
        moments = from_sums(cls, structure.name, classes, sums, held, moments._n_skipped, named)
        keep_fourth(moments, scaled)
        return moments

    @classmethod
    def _saved_structure(cls, attributes: Mapping[str, Any]) -> Structure:
        return structure_of(attributes["covariance_type"])


def add_at_once(moments: ClassMoments, X: np.ndarray, y: np.ndarray) -> bool:
    """Add a few rows that need no conversion, with labels that are classes already.

    Returns False, with nothing changed, for all other rows and if a sum is not finite.
    """
    return moments._add_at_once(X, y)


def add_and_decay(
    moments: ClassMoments,
    X: Any,
    y: Any,
    sample_weight: Any,
    rule: RowRule,
    decay: float | None,
    expected: np.ndarray | None = None,
) -> ClassMoments:
    """Add rows to moments, and multiply all weights by `decay`; return the moments.

    Both are done, or neither if there is an error or an interruption. Parameters and errors are
    those of `ClassMoments.update`; labels other than `expected` are an error, too.
    """
    return moments._update(X, y, sample_weight, rule=rule, expected=expected, decay=decay)
