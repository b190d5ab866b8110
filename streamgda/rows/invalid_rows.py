"""Rows that are valid and count: NaN, nodata, missing labels, weights; and fill values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError, SparseDataError
from streamgda.kernels.sums import all_below
from streamgda.rows.arrays import (
    NO_WEIGHTS,
    SKIP_OR_FILL,
    as_kernel_rows,
    blocks,
    is_masked,
    row_type,
    unmasked,
)
from streamgda.rows.in_memory import SparseRows, as_array
from streamgda.rows.labels import (
    Labels,
    are_missing,
    as_labels,
    check_comparable,
    coded_labels,
    find,
    without_mask,
)
from streamgda.rows.sources import Slab, refuse_shape
from streamgda.rows.sparse import CompressedRows, refuse_type
from streamgda.runtime.parameters import as_numbers, refuse, shown

UNMASKED = np.ndarray, CompressedRows  # exactly these have no mask


def as_matrix(X: Any, first_row: int = 0, sparse: bool = False) -> Any:
    """Return rows as a two-dimensional array of real numbers, without copying such an array.

    Parameters
    ----------
    X : array-like, shape (n_rows, n_features)
    first_row : int
        Number of the first row in a larger array, from which errors count.
    sparse : bool
        Return sparse matrices and arrays as `CompressedRows`; otherwise they are refused.

    Raises
    ------
    InvalidDataError
        For sparse matrices, objects that are not numbers, complex numbers and other shapes, and
        for masked values.
    """
    X = as_maskable_matrix(X, sparse)
    return X if type(X) in UNMASKED else unmasked(X, "X", first_row)


def as_maskable_matrix(X: Any, sparse: bool = False) -> Any:
    """Return rows as `as_matrix` does; as a masked array if, and only if, values are masked."""
    if type(X) is not np.ndarray:
        if SparseRows.accepts(X):
            if not sparse:
                refuse_sparse(X)
            return X if type(X) is CompressedRows else CompressedRows.of(X)
        X = as_array(X, "X")
    if X.dtype.kind == "O":
        try:
            X = X.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidDataError(f"X holds objects that are not numbers: {error}") from None
    if X.dtype.kind == "b":
        X = X.view(np.uint8)
    if X.dtype.kind not in "iuf":
        refuse_type(X.dtype)
    if X.ndim != 2:
        refuse_shape(X.shape)
    return X


def refuse_sparse(X: Any) -> NoReturn:
    """Raise `SparseDataError` for rows of which covariances or lifted rows would be dense."""
    raise SparseDataError(
        f"X is a sparse {getattr(X, 'format', 'csr')} matrix; dense rows are needed (covariances "
        f"between features, and feature maps, fill in the zeros): pass row blocks of X.toarray(), "
        f"or use GaussianNB, BernoulliNB or covariance_type='diag' without a feature_map"
    )


FORGOTTEN = 1e-150  # weight of a class or row whose square is not yet rounded to nothing


def as_weights(sample_weight: Any, n_rows: int, first_row: int = 0) -> np.ndarray:
    """Return weights as float64, shape (n_rows,), finite and not negative.

    Raises
    ------
    InvalidDataError
        For any other weights; it counts rows from `first_row`.
    """
    weights = unmasked(_held_weights(sample_weight), "sample_weight", first_row)
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
    bad = np.flatnonzero(~((weights >= 0) & np.isfinite(weights)))
    if bad.size:
        row = first_row + int(bad[0])
        raise InvalidDataError(
            f"sample_weight[{row}] is {weights[bad[0]]}; weights are finite and >= 0",
            *("sample_weight", row),
        )
    with np.errstate(over="ignore"):
        if not np.isfinite(weights.sum()):
            raise InvalidDataError("sample_weight sums to infinity; scale the weights down")
    return weights


def _held_weights(sample_weight: Any) -> np.ndarray:
    """Return weights as an array, in which missing ones are masked or NaN."""
    weights = sample_weight
    if type(weights) is not np.ndarray:
        weights = as_array(weights, "sample_weight")
    if weights.dtype == object and weights.ndim == 1:  # such as integers with nulls
        missing = are_missing(weights).tolist()
        pairs = zip(np.ma.getdata(weights).tolist(), missing, strict=True)
        weights = np.array([np.nan if gone else weight for weight, gone in pairs])
    return weights


_COMPILED = np.dtype(np.float64), np.dtype(np.float32)  # types that a kernel reads


def all_finite(values: np.ndarray, bound: float = np.inf) -> bool:
    """Return True if all floating-point values are finite, and below a bound in size."""
    if values.dtype in _COMPILED and values.flags.forc:
        return bool(all_below(values.reshape(-1, order="A"), bound))
    if bound < np.inf:
        return bool((np.abs(values) < bound).all())
    # The sum, which takes less time and no memory, leaves a doubt if it is not finite.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum())) or bool(np.isfinite(values).all())


# --- rules ----------------------------------------------------------------------------------------


# Actions on invalid rows that a function takes.
LEARNING = ("raise", "skip")
ACCUMULATING = (*LEARNING, "pairwise")
SCORING = ("raise", "fill")
_WIDE = 64  # features


@dataclass(frozen=True, eq=False)
class RowRule:
    """Rule that determines which rows count.

    A row is invalid if it holds NaN, infinity, a masked value, or `nodata`, the number that marks
    missing measurements; or if its label or its weight is missing. Rows of weight zero
    and unlabelled rows do not count, whatever they hold.

    Attributes
    ----------
    action : {"raise", "skip", "pairwise", "fill"}
        Invalid rows are an error, are left out, have missing values (all of these but infinity,
        which is an error), or get a fill value as their score.
    nodata : int or float, optional
    unlabelled : ndarray, sorted, optional
        Labels of rows that do not count, given as one label or a sequence of them.

    Raises
    ------
    InvalidParameterError
        For other values.

    Examples
    --------
    >>> RowRule("skip", nodata=-1).rows(np.array([[1, 2], [-1, 2], [3, 4]]))
    array([1])
    >>> RowRule("skip").rows(np.array([[1.0], [np.nan]]))
    array([1])
    """

    action: str = "raise"
    nodata: float | None = None
    unlabelled: Any = None

    def __post_init__(self) -> None:
        if self.nodata is not None:
            expected = "one number of at most 64 bits"
            as_numbers("nodata", self.nodata, expected)
            value = np.asarray(self.nodata)
            if value.ndim or value.dtype.kind not in "iuf":
                raise refuse("nodata", self.nodata, expected)
            # A plain number is compared in the type of the rows: 0.1 equals its float32 value.
            object.__setattr__(self, "nodata", value.item())
        if self.unlabelled is not None:
            object.__setattr__(self, "unlabelled", _as_unlabelled(self.unlabelled))

    @property
    def selects(self) -> bool:
        """True if rows may be left out, and those that count are copied."""
        return self.action == "skip" or self.may_be_unlabelled

    @property
    def may_be_unlabelled(self) -> bool:
        """True if rows may be unlabelled."""
        return self.unlabelled is not None

    def as_labels(self, y: Any, first_row: int = 0) -> Labels:
        """Return labels, as a masked array if some are missing and that is no error."""
        return coded_labels(y, "y", first_row, maskable=self.action == "skip")

    def class_labels(self, y: Any, first_row: int = 0) -> Labels:
        """Return the labels that are of classes: neither missing nor those of unlabelled rows."""
        labels = self.as_labels(y, first_row)
        if not self.selects:
            return labels
        return without_mask(labels)[self.labelled(labels) & ~np.ma.getmaskarray(labels)]

    def any_labelled(self, first_row: int, y: Any, *_: Any) -> bool:
        """Return whether any of these rows has a label."""
        return bool(self.labelled(self.as_labels(y, first_row)).any())

    def needs_search(self, X: Any) -> bool:
        """Return True if rows are searched before they are summed; otherwise sums are checked."""
        plain = type(X) in UNMASKED
        return self.action == "skip" or self.nodata is not None or not plain

    def counted(
        self, slab: Slab, sparse: bool = False
    ) -> tuple[Any, Labels, np.ndarray, np.ndarray | None, int]:
        """Return the rows of a slab that count, as `rows_to_count` does."""
        X, start = as_maskable_matrix(slab.X, sparse), slab.first_row
        return rows_to_count(X, self.as_labels(slab.y, start), slab.weight, self, start)

    def labelled(self, y: Labels) -> np.ndarray:
        """Return a boolean array that is False for the unlabelled rows.

        Raises
        ------
        InvalidParameterError
            If no label of this type is one of unlabelled rows.
        """
        missing = np.ma.getmaskarray(y)
        if self.unlabelled is None or missing.all():
            labelled = np.ones(y.shape, bool)
        else:
            labels = without_mask(y)
            check_comparable(self.unlabelled, labels)
            labelled = find(labels, self.unlabelled) < 0
        return labelled | missing

    def missing(self, X: np.ndarray) -> np.ndarray:
        """Return a boolean array that is True for the entries that are masked or `nodata`."""
        masked = np.ma.getmaskarray(X)
        if self.nodata is None:
            return masked
        with np.errstate(over="ignore"):  # beyond float32, which then holds no such value
            return masked | np.equal(np.asarray(X), self.nodata)

    def valid_rows(self, X: Any, valid: np.ndarray) -> Any:
        """Return the rows for which a mask is True, none of which is invalid."""
        return np.asarray(X[valid])

    def rows(self, X: Any) -> np.ndarray:
        """Return the numbers of the invalid rows, in order."""
        if type(X) is CompressedRows:
            return np.flatnonzero(self._sparse_rows(X))
        found = [np.empty(0, np.intp)]
        for part, block in blocks(X, row_type(X.dtype).dtype, 2 * X.shape[1]):  # two masks
            bad = np.zeros(len(block), bool)
            if X.dtype.kind == "f" and not all_finite(block):
                _mark_rows(~np.isfinite(block), bad)
            if self.nodata is not None or is_masked(X):
                _mark_rows(self.missing(X[part]), bad)
            found.append(np.flatnonzero(bad) + part.start)
        return np.concatenate(found)

    def _sparse_rows(self, X: CompressedRows) -> np.ndarray:
        """Return a boolean array that is True for the invalid rows."""
        hit = ~np.isfinite(X.values)
        if self.nodata is None:
            return X.rows_with(hit)
        bad = X.rows_with(hit | self.missing(X.values))
        return bad | (X.last - X.first < X.n_features) if self.nodata == 0 else bad

    def refuse(self, X: Any, at: int, row: int) -> None:
        """Raise `InvalidDataError` for the invalid row ``X[at]``, naming its number `row`."""
        values = X[at] if isinstance(X, np.ndarray) else X.row(at)
        unmasked(values[None], "X", row)
        bad = values == self.nodata
        if values.dtype.kind == "f":
            bad = bad | ~np.isfinite(values)
        column = int(bad.argmax())
        raise InvalidDataError(
            f"Input X has an invalid row: row {row} holds NaN, infinity or nodata={self.nodata}, "
            f"first in column {column}; {SKIP_OR_FILL}",
            *("X", row, column),
        )


@dataclass(frozen=True, eq=False)
class GapRule(RowRule):
    """Rule for rows that may lack features: NaN, masked values and `nodata` are gaps.

    A row is invalid if it holds infinity, or none of the features that are used.

    Attributes
    ----------
    used : ndarray of int
        Numbers of these features.
    """

    used: Any = None

    def needs_search(self, X: Any) -> bool:
        """Return True: rows have other results with gaps than without."""
        if type(X) is CompressedRows:
            refuse_sparse(X)
        return True

    def missing(self, X: np.ndarray) -> np.ndarray:
        """Return a boolean array that is True for the gaps."""
        return super().missing(X) | np.isnan(np.ma.getdata(X))

    def valid_rows(self, X: Any, valid: np.ndarray) -> Any:
        """Return the rows for which a mask is True, with their gaps."""
        return X[valid]

    def rows(self, X: Any) -> np.ndarray:
        """Return the numbers of the invalid rows, in order."""
        gaps = self.missing(X)
        infinite = (np.isinf(np.ma.getdata(X)) & ~gaps).any(axis=1)
        return np.flatnonzero(infinite | gaps[:, self.used].all(axis=1))

    def refuse(self, X: Any, at: int, row: int) -> None:
        """Raise `InvalidDataError` for the invalid row ``X[at]``, naming its number `row`."""
        infinite = np.isinf(np.ma.getdata(X[at])) & ~self.missing(X[at])
        if infinite.any():
            column = int(infinite.argmax())
            raise InvalidDataError(
                f"Input X contains infinity: row {row}, column {column}; gaps are NaN, masked "
                f"values or nodata",
                *("X", row, column),
            )
        raise InvalidDataError(
            f"row {row} of X has no feature that the model uses; on_invalid='fill' gives such rows "
            f"a result of your own",
            *("X", row),
        )


def _mark_rows(hit: np.ndarray, rows: np.ndarray) -> None:
    """Mark each row in which any entry is True."""
    d = hit.shape[1]
    if d > _WIDE:
        rows |= hit.any(axis=1)
    else:  # numpy has a large overhead for each row
        rows[np.flatnonzero(hit) // d] = True


def _as_unlabelled(given: Any) -> np.ndarray:
    """Return labels of rows that do not count, sorted."""
    try:
        return np.unique(as_labels([given] if np.ndim(given) == 0 else given, "unlabelled"))
    except ValueError as error:
        raise InvalidParameterError(f"unlabelled={shown(given)}: {error}") from None


CHECK_SUMS = RowRule()  # rows are not searched: a sum that is not finite is an error


def refuse_not_finite(X: Any, first_row: int = 0, numbers: np.ndarray | None = None) -> None:
    """Raise an error that names the first value of `X` that is NaN or infinite.

    Rows are numbered from `first_row`, with the offsets in `numbers` if given.

    Raises
    ------
    InvalidDataError
        Always: if all values are finite, their sums overflow.
    """
    bad = CHECK_SUMS.rows(X)
    if not bad.size:
        raise InvalidDataError(
            "Input X contains values whose sums or squares overflow float64 (infinity or a value "
            "too large for dtype('float64')); scale the data down, or the weights"
        )
    values = X[bad[0]] if isinstance(X, np.ndarray) else X.row(bad[0])
    column = int(np.isfinite(values).argmin())
    name = "NaN" if np.isnan(values[column]) else "infinity"
    row = first_row + int(bad[0] if numbers is None else numbers[bad[0]])
    raise InvalidDataError(
        f"Input X contains {name}: row {row}, column {column} is {values[column]}. Every value "
        f"must be finite; {SKIP_OR_FILL}",
        *("X", row, column),
    )


def row_rule(
    on_invalid: Any,
    nodata: Any = None,
    unlabelled: Any = None,
    actions: tuple[str, ...] = LEARNING,
) -> RowRule:
    """Return the rule that the keywords of a function describe.

    Parameters
    ----------
    on_invalid, nodata, unlabelled
        See `RowRule`.
    actions : tuple of str
        What `on_invalid` may be.

    Raises
    ------
    InvalidParameterError
        For other values.
    """
    if not isinstance(on_invalid, str) or on_invalid not in actions:
        raise refuse("on_invalid", on_invalid, " or ".join(map(repr, actions)))
    if nodata is None and unlabelled is None and on_invalid == "raise":
        return CHECK_SUMS
    return RowRule(on_invalid, nodata, unlabelled)


def labels_to_count(
    y: Labels, sample_weight: Any, rule: RowRule, first_row: int = 0
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return which rows count, as far as labels and weights determine it.

    Returns
    -------
    counts : ndarray of bool, shape (n_rows,)
        False for rows of weight zero (below `FORGOTTEN`), unlabelled ones, and those whose label
        or weight is missing.
    weights : ndarray of float64
        Weights of all rows; empty without weights.
    n_skipped : int
        Rows that would count if their label and their weight were not missing.
    """
    weights, missing = NO_WEIGHTS, np.ma.getmask(y)
    if sample_weight is not None:
        if rule.action == "skip":
            sample_weight, without = _present_weights(sample_weight)
            missing = missing | without
        weights = as_weights(sample_weight, y.size, first_row)
    counts = rule.labelled(y)
    if weights.size:
        counts &= weights >= FORGOTTEN
    if not np.any(missing):
        return counts, weights, 0
    n_skipped = int(np.count_nonzero(counts & missing))
    return counts & ~missing, weights, n_skipped


def _present_weights(sample_weight: Any) -> tuple[Any, Any]:
    """Return weights with ones in place of those that are masked or NaN, and which these are."""
    weights = _held_weights(sample_weight)
    if weights.dtype.names:  # a mask has these fields, too
        return weights, False
    missing = np.ma.getmaskarray(weights)
    if weights.dtype.kind == "f":
        missing = missing | np.isnan(np.ma.getdata(weights))
    if not missing.any():
        return weights, False
    return np.where(missing, weights.dtype.type(1), np.ma.getdata(weights)), missing


def rows_to_count(
    X: Any, y: Labels, sample_weight: Any, rule: RowRule, first_row: int = 0
) -> tuple[Any, Labels, np.ndarray, np.ndarray | None, int]:
    """Separate the rows that count from rows of weight zero, unlabelled rows and invalid rows.

    Parameters
    ----------
    X, y : ndarray or CompressedRows, and ndarray
        Rows, and labels as `RowRule.as_labels` returns them.
    sample_weight : array-like, optional
    rule : RowRule
    first_row : int
        Number of the first row in a larger array, from which errors count.

    Returns
    -------
    X, y : ndarray or CompressedRows, and ndarray
        Rows that count, and their labels.
    weights : ndarray of float64
        Weights of the rows that count; empty without weights.
    numbers : ndarray of int or None
        Numbers of the rows that count; None if all do.
    n_skipped : int
        Rows left out as invalid; rows of weight zero and unlabelled ones are not included.

    Raises
    ------
    InvalidDataError
        For weights that cannot be used, or an invalid row if that is an error.
    """
    n = X.shape[0]
    counts, weights, n_skipped = labels_to_count(y, sample_weight, rule, first_row)
    y = without_mask(y)
    numbers = None if counts.all() else np.flatnonzero(counts)
    if numbers is not None and 2 * numbers.size <= n:  # copies are of half the rows at most
        X, counts = X[numbers], np.ones(numbers.size, bool)
        selected = numbers
    else:
        selected = None
    if rule.needs_search(X):
        bad = rule.rows(X)
        bad = bad[counts[bad]]
        if bad.size and rule.action == "raise":
            at = int(bad[0])
            rule.refuse(X, at, first_row + int(at if selected is None else selected[at]))
        counts[bad] = False
        n_skipped += bad.size
    kept = None if counts.all() else np.flatnonzero(counts)
    if kept is not None:
        X = X[kept]
        numbers = kept if selected is None else selected[kept]
    if numbers is not None:
        y = y[numbers]
    if weights.size:
        weights = as_kernel_rows(weights if numbers is None else weights[numbers], weights.dtype)
    return X if type(X) in UNMASKED else np.asarray(X), y, weights, numbers, n_skipped


# --- fill values ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Filled:
    """A function of rows whose invalid rows get a fill value, or are an error.

    Attributes
    ----------
    function : callable
        Called as ``function(rows, first_row)`` with valid rows; returns an array with one entry
        for each row. It raises `InvalidDataError` for rows with NaN or infinity.
    rule : RowRule
        Which rows are invalid. If its action is ``"raise"``, they are an error.
    value : ndarray, shape ()
        The fill value, in the type of the result.
    of_rows : dict of str to ndarray
        Keywords of the function with an entry for each row of the whole array.
    """

    function: Callable[..., np.ndarray]
    rule: RowRule
    value: np.ndarray
    of_rows: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __call__(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the results of all rows."""
        X = as_maskable_matrix(X, sparse=True)
        if self.rule.needs_search(X):
            return self._filled(X, first_row)
        try:  # the function finds invalid rows itself, while it reads them
            return self._of(X, first_row)
        except InvalidDataError:
            if self.rule.action == "fill" and self.rule.rows(X).size:
                return self._filled(X, first_row)
            raise

    def _of(self, X: Any, first_row: int, valid: Any = slice(None)) -> np.ndarray:
        """Return the results of rows; of the valid ones alone, whose mask is given."""
        all_rows = slice(first_row, first_row + (len(valid) if np.ndim(valid) else X.shape[0]))
        given = {name: values[all_rows][valid] for name, values in self.of_rows.items()}
        first_row = 0 if np.ndim(valid) else first_row
        return self.function(X, first_row, **given).astype(self.value.dtype, copy=False)

    def _filled(self, X: Any, first_row: int) -> np.ndarray:
        invalid = self.rule.rows(X)
        if not invalid.size:
            return self._of(X, first_row)
        if self.rule.action == "raise":
            self.rule.refuse(X, int(invalid[0]), first_row + int(invalid[0]))
        valid = np.ones(X.shape[0], bool)
        valid[invalid] = False
        if isinstance(X, CompressedRows):  # some of which share their entries with all others
            result = self._of(X.without(~valid), first_row)
            result[invalid] = self.value
            return result
        try:
            scores = self._of(self.rule.valid_rows(X, valid), first_row, valid)
        except InvalidDataError:  # of another kind: the same among all rows names it by its number
            self._of(np.where(valid[:, None], np.ma.getdata(X), X.dtype.type(0)), first_row)
            raise
        result = np.full((valid.size, *scores.shape[1:]), self.value, self.value.dtype)
        result[valid] = scores
        return result
