"""Rows that count: valid ones, with a label, and with a weight above zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from scipy.sparse import issparse

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.rows.labels import (
    NONE,
    CodedLabels,
    as_labels,
    check_not_missing,
    code,
    family,
    find,
)
from streamgda.rows.source import as_array, raise_for_shape, raise_for_type
from streamgda.rows.sparse import as_csr, rows_with
from streamgda.runtime.parameters import as_numbers, shown, unexpected

# Actions on invalid rows that functions take.
LEARNING = ("raise", "skip")
ACCUMULATING = (*LEARNING, "pairwise")
SCORING = ("raise", "fill")

FORGOTTEN = 1e-150  # The square of smaller weights would be rounded to zero.
SKIP_OR_FILL = (
    "leave such rows out or fill them in (on_invalid='skip' when learning, on_invalid='fill' when "
    "predicting)"
)


class Slab(NamedTuple):
    """Some of the rows, with the labels, groups and weights of each, and the number of the first.

    They are arrays, or None if there are none.
    """

    X: Any
    y: Any = None
    groups: Any = None
    weight: Any = None
    first_row: int = 0


def read_only(values: np.ndarray) -> np.ndarray:
    """Return a view of an array that cannot be written to."""
    view = values.view()
    view.flags.writeable = False
    return view


# --- data types -----------------------------------------------------------------------------------


_READ = [np.dtype(kind) for kind in ("u1", "i1", "u2", "i2", "f4", "f8")]


def kernel_type(dtype: np.dtype) -> np.dtype:
    """Return the data type in which rows of a data type, in any byte order, are read by kernels.

    Integers of up to 16 bits stay as they are, so that their sums are exact. float32 does, too, and
    is only used where its accuracy is enough. All others become float64.

    Examples
    --------
    >>> kernel_type(np.dtype(">f4")), kernel_type(np.dtype("int64"))
    (dtype('float32'), dtype('float64'))
    """
    dtype = np.dtype(np.float32) if dtype == np.float16 else dtype.newbyteorder("=")
    return dtype if dtype in _READ else np.dtype(np.float64)


# --- blocks of rows -------------------------------------------------------------------------------


def is_plain(X: Any) -> bool:
    """Return whether `X` is exactly a numpy array whose values are in memory."""
    return type(X) is np.ndarray and not isinstance(X.base, np.memmap)


NO_WEIGHTS = np.empty(0)
WINDOW_BYTES = 1 << 26  # So many bytes of rows are grouped by class at a time.


def as_kernel_rows(X: Any, dtype: np.dtype) -> Any:
    """Return `X`, or a copy of it, as a C-contiguous array of a data type, for reading.

    Sparse rows stay sparse.
    """
    return X.astype(dtype, copy=False) if issparse(X) else np.ascontiguousarray(X, dtype)


# --- rows and weights as arrays -------------------------------------------------------------------


def as_matrix(X: Any, first_row: int = 0, sparse: bool = False) -> Any:
    """Return rows as a two-dimensional array of real numbers, without copying such an array.

    Parameters
    ----------
    X : array-like, shape (n_rows, n_features)
    first_row : int
        Number of the first row in a larger array, from which errors count.
    sparse : bool
        Sparse matrices and arrays stay sparse; see `as_csr`. Otherwise they become dense.

    Raises
    ------
    InvalidDataError
        For objects that are not numbers, complex numbers and other shapes.
    """
    if type(X) is not np.ndarray:
        X = X if issparse(X) else as_array(X, "X")
        if issparse(X):
            return as_csr(X) if sparse else as_csr(X).toarray()
    if X.dtype.kind == "O":
        try:
            X = X.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidDataError(f"X holds objects that are not numbers: {error}") from None
    if X.dtype.kind == "b":
        X = X.view(np.uint8)
    if X.dtype.kind not in "iuf":
        raise_for_type(X.dtype)
    if X.ndim != 2:
        raise_for_shape(X.shape)
    return X


def check_lengths(X: Any, y: CodedLabels) -> None:
    """Raise `InvalidDataError` unless rows have features, and one label each."""
    if X.shape[0] != len(y):
        raise InvalidDataError(
            f"X has {X.shape[0]} rows but y has {len(y)} labels (inconsistent numbers of "
            f"samples); give one label a row"
        )
    if not X.shape[1]:
        raise InvalidDataError("X has 0 features (0 feature(s)); at least one is needed")


def as_weights(
    sample_weight: Any, n_rows: int, first_row: int = 0, may_be_missing: bool = False
) -> np.ndarray:
    """Return weights as float64, shape (n_rows,), finite and not negative; missing ones are NaN.

    Raises
    ------
    InvalidDataError
        For any other weights; it counts rows from `first_row`.
    """
    weights: Any = sample_weight
    if type(weights) is not np.ndarray:
        weights = as_array(weights, "sample_weight")
    if weights.dtype == object and weights.ndim == 1:  # Integers with nulls are such objects.
        nulls = ("NoneType", "NAType")
        given = [np.nan if type(w).__name__ in nulls else w for w in weights.tolist()]
        weights = np.array(given)
    if weights.dtype.kind not in "biuf":
        raise InvalidDataError(
            f"sample_weight has dtype {weights.dtype}; numbers are expected (cast decimals to "
            f"floats)"
        )
    if weights.ndim == 0:
        weights = np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise InvalidDataError(
            f"sample_weight has shape {weights.shape}, expected one weight a row: ({n_rows},)"
        )
    weights = np.ascontiguousarray(weights, np.float64)
    good = (weights >= 0) & (weights < np.inf)
    if may_be_missing:
        good |= np.isnan(weights)
    if not good.all():
        at = int(good.argmin())
        raise InvalidDataError(
            f"sample_weight[{first_row + at}] is {weights[at]}; weights are finite and >= 0",
            *("sample_weight", first_row + at),
        )
    with np.errstate(over="ignore"):
        if np.isinf(np.nansum(weights)):
            raise InvalidDataError("sample_weight sums to infinity; scale the weights down")
    return weights


def raise_not_finite(
    X: Any, first_row: int = 0, numbers: np.ndarray | None = None, nodata: float | None = None
) -> NoReturn:
    """Raise an error that names the first value of `X` that is NaN, infinite or `nodata`.

    Rows are numbered from `first_row`, with the offsets in `numbers` if given.

    Raises
    ------
    InvalidDataError
        Always: if all values are finite, their sums overflow.
    """
    rule = RowRule(nodata=nodata)
    bad = rule.rows(X)
    if not bad.size:
        raise InvalidDataError(
            "Input X contains values whose sums or squares overflow float64 (infinity or a value "
            "too large for dtype('float64')); scale the data down, or the weights"
        )
    at = int(bad[0])
    values = X[[at]].toarray()[0] if issparse(X) else np.asarray(X[at])
    column = int((~np.isfinite(values) | rule.missing(values)).argmax())
    finite = "nodata" if np.isfinite(values[column]) else "infinity"
    name = "NaN" if np.isnan(values[column]) else finite
    row = first_row + (at if numbers is None else int(numbers[at]))
    raise InvalidDataError(
        f"Input X contains {name}: row {row}, column {column} is {values[column]}. Every value "
        f"must be finite; {SKIP_OR_FILL}",
        *("X", row, column),
    )


# --- rows that count ------------------------------------------------------------------------------


class Counted(NamedTuple):
    """Rows that count.

    Attributes
    ----------
    X : ndarray or csr_array
    y : CodedLabels
    weights : ndarray of float64
        Empty without weights.
    numbers : ndarray of int or None
        Indices of the rows among all; None if all count.
    n_skipped : int
        Rows left out as invalid; rows of weight zero and unlabelled ones are not included.
    """

    X: Any
    y: CodedLabels
    weights: np.ndarray = NO_WEIGHTS
    numbers: np.ndarray | None = None
    n_skipped: int = 0


@dataclass(frozen=True, eq=False)
class RowRule:
    """Rule that determines which rows count.

    A row is invalid if it holds NaN, infinity, or `nodata`, the number that marks missing
    measurements; or if its label or its weight is missing. Rows of weight zero and unlabelled rows
    do not count, whatever they hold.

    Attributes
    ----------
    action : {"raise", "skip", "pairwise", "fill"}
        Invalid rows are an error, are left out, have missing values (all of these but infinity,
        which is an error), or get a fill value as their score.
    nodata : int or float, optional
    unlabelled : ndarray, sorted, optional
        Labels of rows that do not count.

    Examples
    --------
    >>> RowRule("skip", nodata=-1).rows(np.array([[1, 2], [-1, 2], [3, 4]]))
    array([1])
    >>> RowRule("skip").rows(np.array([[1.0], [np.nan]]))
    array([1])
    """

    action: str = "raise"
    nodata: float | None = None
    unlabelled: np.ndarray | None = None

    @property
    def checks_sums(self) -> bool:
        """True if rows are not searched: a sum that is not finite is an error."""
        return self.action == "raise" and self.nodata is None and self.unlabelled is None

    @property
    def selects(self) -> bool:
        """True if rows may be left out, and those that count are copied."""
        return self.action == "skip" or self.unlabelled is not None

    def labels(self, y: Any, known: np.ndarray = NONE, first_row: int = 0) -> CodedLabels:
        """Return labels by their codes; missing ones are an error unless such rows are skipped."""
        labels = code(y, known, "y", first_row)
        if self.action != "skip":
            check_not_missing(labels, "y", first_row)
        return labels

    def class_labels(self, y: Any, known: np.ndarray = NONE, first_row: int = 0) -> np.ndarray:
        """Return the labels of classes, sorted: `known`, and others that are not unlabelled."""
        labels = self.labels(y, known, first_row).used(known)
        values = labels.values
        return values if self.unlabelled is None else values[find(values, self.unlabelled) < 0]

    def labelled(self, y: CodedLabels) -> np.ndarray:
        """Return a boolean array that is False for the unlabelled rows.

        Raises
        ------
        InvalidParameterError
            If labels of unlabelled rows are of another kind than all others.
        """
        if self.unlabelled is None or not y.values.size:
            return np.ones(y.shape, bool)
        if family(self.unlabelled.dtype) != family(y.dtype):
            raise InvalidParameterError(
                f"unlabelled={shown(self.unlabelled.tolist())} is compared with labels of dtype "
                f"{y.dtype}, such as {y.values[0]!r}; give labels of their kind"
            )
        return np.append(find(y.values, self.unlabelled) < 0, True)[y.codes]

    def missing(self, X: np.ndarray) -> np.ndarray:
        """Return a boolean array that is True for values that are `nodata`."""
        if self.nodata is None:
            return np.zeros(X.shape, bool)
        with np.errstate(over="ignore"):  # float32 holds no value beyond its range.
            return np.equal(X, self.nodata)

    def rows(self, X: Any) -> np.ndarray:
        """Return the indices of the invalid rows, in order."""
        if issparse(X):
            bad = rows_with(X, ~np.isfinite(X.data) | self.missing(X.data))
            absent = self.nodata == 0 and np.diff(X.indptr) < X.shape[1]
            return np.flatnonzero(bad | absent)
        found, n_rows = [np.empty(0, np.intp)], max(1024, WINDOW_BYTES // (2 * X.shape[1] + 1))
        for start in range(0, len(X), n_rows):  # Masks of all rows would take memory.
            block = X[start : start + n_rows]
            bad = np.zeros(len(block), bool)
            if X.dtype.kind == "f":
                bad |= ~np.isfinite(block).all(axis=1)
            if self.nodata is not None:
                bad |= self.missing(block).any(axis=1)
            found.append(np.flatnonzero(bad) + start)
        return np.concatenate(found)

    def labels_to_count(
        self, y: CodedLabels, sample_weight: Any, first_row: int = 0
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Return which rows count, as far as labels and weights determine it.

        Returns
        -------
        counts : ndarray of bool, shape (n_rows,)
            False for rows of weight zero (below `FORGOTTEN`), unlabelled ones, and those whose
            label or weight is missing.
        weights : ndarray of float64
            Weights of all rows; empty without weights.
        n_skipped : int
            Rows that would count if their label and their weight were not missing.
        """
        weights, missing = NO_WEIGHTS, y.missing
        if sample_weight is not None:
            weights = as_weights(sample_weight, len(y), first_row, self.action == "skip")
            if self.action == "skip":
                missing = missing | np.isnan(weights)
                weights = np.where(np.isnan(weights), 1.0, weights)
        counts = self.labelled(y)
        if weights.size:
            counts &= weights >= FORGOTTEN
        if not missing.any():
            return counts, weights, 0
        return counts & ~missing, weights, int(np.count_nonzero(counts & missing))

    def counted(self, slab: Slab, known: np.ndarray = NONE, sparse: bool = False) -> Counted:
        """Return the rows of a slab that count.

        Parameters
        ----------
        slab : Slab
        known : ndarray, sorted
            Classes so far; see `code`.
        sparse : bool
            See `as_matrix`.

        Raises
        ------
        InvalidDataError
            For labels or weights that cannot be used, or an invalid row if that is an error.
        """
        start = slab.first_row
        X, y = as_matrix(slab.X, start, sparse), self.labels(slab.y, known, start)
        check_lengths(X, y)
        missing = self.nodata is not None and self.action != "pairwise"
        searched = self.action == "skip" or missing
        if slab.weight is None and not searched and self.unlabelled is None:
            return Counted(X, y)  # A sum that is not finite raises an error.
        counts, weights, n_skipped = self.labels_to_count(y, slab.weight, start)
        numbers = np.flatnonzero(counts)
        if searched:
            rows = X if 2 * numbers.size > counts.size else X[numbers]
            bad = self.rows(rows)
            bad = bad if rows is X else numbers[bad]
            bad = bad[counts[bad]]
            if bad.size and self.action == "raise":
                raise_not_finite(X[bad[:1]], start, bad[:1], self.nodata)
            counts[bad] = False
            n_skipped += bad.size
            numbers = np.flatnonzero(counts)
        if numbers.size == counts.size:
            return Counted(X, y, weights, None, n_skipped)
        weights = as_kernel_rows(weights[numbers], weights.dtype) if weights.size else weights
        return Counted(X[numbers], y[numbers].used(known), weights, numbers, n_skipped)


CHECK_SUMS = RowRule()


def row_rule(
    on_invalid: Any, nodata: Any = None, unlabelled: Any = None, actions: Any = LEARNING
) -> RowRule:
    """Return the rule that the keywords of a function describe.

    Parameters
    ----------
    on_invalid, nodata, unlabelled
        See `RowRule`; `unlabelled` is one label or a sequence of them.
    actions : tuple of str
        What `on_invalid` may be.

    Raises
    ------
    InvalidParameterError
        For other values.
    """
    if not isinstance(on_invalid, str) or on_invalid not in actions:
        raise unexpected("on_invalid", on_invalid, " or ".join(map(repr, actions)))
    if nodata is None and unlabelled is None and on_invalid == "raise":
        return CHECK_SUMS
    if nodata is not None:
        expected = "one number of at most 64 bits"
        as_numbers("nodata", nodata, expected)
        value = np.asarray(nodata)
        if value.ndim or value.dtype.kind not in "iuf":
            raise unexpected("nodata", nodata, expected)
        nodata = value.item()  # Rows compare it in their own type.
    if unlabelled is not None:
        try:
            given = [unlabelled] if np.ndim(unlabelled) == 0 else unlabelled
            unlabelled = np.unique(as_labels(given, "unlabelled"))
        except ValueError as error:
            raise InvalidParameterError(f"unlabelled={shown(unlabelled)}: {error}") from None
    return RowRule(on_invalid, nodata, unlabelled)
