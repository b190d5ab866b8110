"""Scores of rows from any container, as methods of the estimators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import numpy as np
from sklearn.base import ClassifierMixin

from streamgda import engine
from streamgda.engine.fingerprints import fingerprint_method
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.estimators.saving import SavedEstimator
from streamgda.estimators.validation import validate_rows
from streamgda.rows import Rows, as_source
from streamgda.rows.arrays import SKIP_OR_FILL
from streamgda.rows.invalid_rows import (
    CHECK_SUMS,
    SCORING,
    Filled,
    RowRule,
    labels_to_count,
)
from streamgda.rows.labels import encode, find, with_label, without_mask
from streamgda.rows.sources import check_lengths
from streamgda.runtime.parameters import as_numbers, refuse, shown


@dataclass(frozen=True)
class Scorer:
    """A method of a fitted estimator as a function of blocks of rows.

    Attributes
    ----------
    name : str
        Identifies the function among those of the model.
    function : callable
        Called as ``function(rows, first_row)``; rows are numbered from `first_row` in errors.
        Returns one entry for each row.
    model : GaussianModel or BernoulliModel
        The model to which the function belongs.
    labels : ndarray or None
        All values of the result, if these are labels; otherwise it is float64.
    columns : int or None
        Width of the result; None if it is one-dimensional.
    options : dict
        Parameters on which the result depends besides the model.
    method : str
        Name of the method.
    """

    name: str
    function: Callable[..., np.ndarray]
    model: Any
    labels: np.ndarray | None = None
    columns: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    method: str = "predict"

    @property
    def classes(self) -> np.ndarray | None:
        """Classes to which the columns of the result belong; None if there are none."""
        classes: np.ndarray = self.model.classes
        return classes if self.columns == classes.size and self.method != "transform" else None

    @property
    def fill(self) -> Any:
        """Result of invalid rows; None if they are an error."""
        if self.options.get("on_invalid") != "fill":
            return None
        fill = self.options["fill"]
        return fill.item() if fill.dtype.kind in "biuf" else fill[()]  # dates are no integers

    @property
    def dtype(self) -> np.dtype:
        """Data type of the result."""
        return np.dtype(np.float64) if self.labels is None else self.labels.dtype

    @property
    def held(self) -> int:
        """Bytes that the function needs for any number of rows."""
        own = sum(np.asarray(value).nbytes for value in self.options.values())
        return int(self.model.packed_bytes) + own

    def filling(self, rule: RowRule, fill: Any = None) -> Scorer:
        """Return the function with a result for invalid rows, or an error if `rule` raises one.

        Parameters
        ----------
        rule : RowRule
        fill : label or number, optional
            See `RowClassifier.predict`.

        Raises
        ------
        InvalidParameterError
            For a `fill` that cannot be among the results.
        """
        if rule.action == "raise" and fill is not None:
            raise InvalidParameterError(
                f"fill={shown(fill)}, and on_invalid='raise': no row is filled; pass "
                f"on_invalid='fill'"
            )
        if rule is CHECK_SUMS:
            return self
        labels, value = self.labels, np.zeros((), self.dtype)
        options = {**self.options, "on_invalid": rule.action, "nodata": rule.nodata}
        if rule.action == "fill":
            if labels is None:
                value = _fill_number(fill)
            else:
                labels = with_label(labels, "fill", fill, self.model.classes)
                value = labels[-1:].reshape(())
        options["fill"] = value
        function = Filled(self.function, rule, value)
        return replace(self, function=function, labels=labels, options=options)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of the function and its model, as JSON."""
        return fingerprint_method(self.name, self.model, self.options)


class RowClassifier(ClassifierMixin, SavedEstimator):
    """Base of all classifiers, which score rows from any container."""

    n_features_in_: int

    def _scorer(self, method: str, **options: Any) -> Scorer:
        """Return a method, with its options, as a function of blocks of rows.

        Raises
        ------
        InvalidParameterError
            For a method or an option that the estimator does not have.
        """
        raise NotImplementedError

    def _scored(self, method: str, X: Any, out: Any, *reading: Any) -> Any:
        """Score rows by a method; `reading` is features, nodata, on_invalid, fill and keys."""
        return self._score_rows(self._scorer(method), X, out, *reading)

    def _score_rows(
        self,
        scorer: Scorer,
        X: Any,
        out: Any,
        features: str | None,
        nodata: float | None,
        on_invalid: str,
        fill: Any,
        keys: Sequence[str] | str | None,
    ) -> Any:
        counting: Any = {"nodata": nodata, "on_invalid": on_invalid, "actions": SCORING}
        rows = Rows.of(X, features=features, **counting)
        scorer = scorer.filling(rows.rule, fill)
        return engine.score(
            scorer.function,
            validate_rows(self, rows.X),
            out,
            dtype=scorer.dtype,
            columns=scorer.columns,
            labels=scorer.labels,
            name=scorer.method,
            classes=scorer.classes,
            fill=scorer.fill,
            keys=keys,
            fingerprint=None if out is None else scorer.fingerprint,
            held=scorer.held,
        )

    @overload
    def predict(self, X: np.ndarray, *, out: None = ..., **options: Any) -> np.ndarray: ...

    @overload
    def predict(self, X: Any, *, out: Any = ..., **options: Any) -> Any: ...

    def predict(  # type: ignore[misc]  # the overloads name only what distinguishes them
        self,
        X: Any,
        *,
        out: Any = None,
        features: str | None = None,
        nodata: float | None = None,
        on_invalid: str = "raise",
        fill: Any = None,
        keys: Sequence[str] | str | None = None,
    ) -> Any:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
            Rows.
        out : numpy.ndarray, zarr.Array, or path or zarr store to create one in; optional
            Destination of the result, which is written slab by slab; for a dask array, whose
            result is lazy otherwise, block by block. On a cluster each chunk or shard is written
            by one task. Elsewhere an attribute of a zarr array, ``streamgda_scores``, keeps how
            far it has been written: if the process is stopped, the same call resumes there.
            A path named ``.parquet``, ``.arrow`` or ``.csv`` gets a table with a column ``label``,
            or one for each class, such as ``proba_oak``. It is moved into place when it is
            complete; a run that is stopped starts again.
        features : str, optional
            Name of the dimension that holds the features, if `X` is a DataArray.
        nodata : int or float, optional
            Value that marks missing measurements.
        on_invalid : {"raise", "fill"}
            Raise an error for rows with NaN, infinity, masked values or `nodata`, or give them
            `fill` as their result.
        fill : label or number, optional
            Result of invalid rows. For labels, one of the kind of the classes and none of them, by
            default -1, an empty string or NaT; otherwise a number, by default NaN.
        keys : str or sequence of str, optional
            Names of columns of the table that is scored, which are copied to an `out` that is a
            table.

        Returns
        -------
        ndarray, shape (n_rows,); or `out`; or a lazy dask array
            Labels.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For rows, an `out` or a `fill` that cannot be used.

        Examples
        --------
        >>> from streamgda import BernoulliNB
        >>> nb = BernoulliNB().fit([[0, 1], [0, 1], [1, 0], [1, 1]], ["ant", "ant", "bee", "bee"])
        >>> nb.predict([[0, 1], [1, 0]])
        array(['ant', 'bee'], dtype='<U3')
        """
        return self._scored("predict", X, out, features, nodata, on_invalid, fill, keys)

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        features: str | None = None,
        unlabelled: Any = None,
        nodata: float | None = None,
        on_invalid: str = "raise",
    ) -> float:
        """Return the share of rows whose predicted class is right.

        Parameters
        ----------
        X : array-like, zarr.Array or dask.array.Array, shape (n_rows, n_features)
            Rows.
        y : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
            True labels.
        sample_weight : array-like, shape (n_rows,), optional
            Weights of the rows.
        features, unlabelled, nodata, on_invalid : see `fit`
            How rows are read, and which of them count.

        Returns
        -------
        float
            Accuracy.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For rows, labels, weights or options that cannot be used.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> X, y = [[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"]
        >>> GaussianNB().fit(X, y).score([[2.0], [7.0], [8.0]], ["ant", "bee", "ant"])
        0.6666666666666666
        """
        counting: Any = {"nodata": nodata, "unlabelled": unlabelled, "on_invalid": on_invalid}
        given = Rows.of(X, features=features, **counting)
        X, rule = given.X, given.rule
        rows = as_source(X)

        def in_order(values: Any, name: str) -> np.ndarray:
            return as_source(rows.laid_out(values, name), name).whole()

        reading = {}
        if rule is not CHECK_SUMS:  # subclasses may have a `predict` of rows alone
            filling = "fill" if rule.selects else "raise"  # rows that do not count hold anything
            reading = {"nodata": rule.nodata, "on_invalid": filling}
        predicted = in_order(self.predict(X, **reading), "predictions")
        labels = rule.as_labels(in_order(y, "y"))
        check_lengths(as_source(predicted), as_source(labels, "y"))
        weights = None if sample_weight is None else in_order(sample_weight, "sample_weight")
        counts, weights, _ = labels_to_count(labels, weights, rule)
        if rule.selects:
            invalid = counts & (find(predicted, self.classes_) < 0)
            if invalid.any() and on_invalid == "raise":
                row = int(invalid.argmax())
                raise InvalidDataError(
                    f"Input X has an invalid row: row {row}; {SKIP_OR_FILL}", "X", row
                )
            counts &= ~invalid
        if not counts.any():
            raise InvalidDataError(
                "every sample_weight is zero, or every row is unlabelled or invalid: no row is "
                "left to score"
            )
        true = without_mask(labels)[counts]
        classes = encode(true, self.classes_)[1]
        right = find(true, classes) == find(predicted[counts], classes)
        return float(np.average(right, weights=weights[counts] if weights.size else None))


def scorer_of(estimator: RowClassifier, method: str, **options: Any) -> Scorer:
    """Return a method of an estimator as a function of blocks of rows.

    Parameters
    ----------
    estimator : estimator
    method : str
        For example ``"predict_proba"``.
    **options
        Parameters of that method.

    Raises
    ------
    InvalidParameterError
        For a method or an option that the estimator does not have.
    """
    return estimator._scorer(method, **options)


def _fill_number(fill: Any) -> np.ndarray:
    """Return the result of invalid rows, by default NaN."""
    expected = "one number, which may be NaN"
    value = as_numbers("fill", np.nan if fill is None else fill, expected)
    if value.ndim:
        raise refuse("fill", fill, expected)
    return value
