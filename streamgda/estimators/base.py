"""`MomentEstimator`: parameters, the moments of rows, and a model that follows from both."""

from __future__ import annotations

import contextlib
import inspect
import pickle
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, NamedTuple, Self, TypedDict, TypeVar, Unpack

import numpy as np
from joblib import hash as hashed  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from streamgda import engine
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MergeError,
    StreamGDAError,
    UnsupportedError,
    as_attribute_error,
)
from streamgda.models.covariance import NO_ROWS
from streamgda.moments import ClassMoments
from streamgda.moments.feature_maps import Lifting, Transformer
from streamgda.moments.lifted import lifted
from streamgda.rows import Rows
from streamgda.rows.counting import CHECK_SUMS, SCORING, RowRule, as_matrix, as_weights
from streamgda.rows.labels import (
    as_labels,
    find,
    with_label,
)
from streamgda.rows.names import restored_names
from streamgda.rows.source import RowSource, as_source, how_to_count, refuse_shape
from streamgda.rows.sparse import CompressedRows, SparseRows
from streamgda.runtime.interruption import Lock
from streamgda.runtime.parameters import LEAST, as_number, as_numbers, check_type, refuse, shown
from streamgda.storage.format import check_whole, pack_labels, unpack_labels
from streamgda.storage.saved import Saved, State, arrays_within, class_named, nested, restore

_STATE = (
    "moments_",
    "n_features_in_",
    "feature_names_in_",
    "_declared",
    "_found",
    "_model",
    "_reported",
)
_PLANNED = ("keys", "max_memory")
_LEARNING = ("features", "nodata", "unlabelled", "on_invalid")


class Reading(TypedDict, total=False):
    """Options of methods that read rows; each method takes those that make sense for it.

    Attributes
    ----------
    features : str
        Name of the dimension that holds the features, if `X` is a DataArray.
    nodata : int or float
        Value that marks missing measurements.
    on_invalid : {"raise", "skip", "fill"}
        Raise an error for rows with NaN, infinity, masked values, `nodata` or a missing label. Or
        skip them, in methods that learn (``moments_.n_skipped`` counts them) or compare labels; or
        give them `fill` as their result, in methods that predict.
    fill : label or number
        Result for invalid rows. Among labels, it has the type of the class labels and is not one of
        them, by default -1, an empty string or NaT; otherwise it is a number, by default NaN.
    on_missing : {"raise", "marginal"}
        Treat rows with NaN, masked values or `nodata` as invalid, or predict by the distribution of
        the features that they have; the others are integrated out, which is exact.
    unlabelled : label or sequence of labels
        Labels of rows that do not count, whatever they hold.
    out : numpy.ndarray, zarr.Array, or path or zarr store to create one in
        Destination of predictions, which are written slab by slab. For a dask array, whose
        predictions are lazy otherwise, they are computed.
    keys : str or sequence of str
        Names of columns of the table that is scored, which are copied to an `out` that is a table.
    max_memory : int or str
        Bytes, or a text such as ``"512MB"``, for rows in flight, results, moments and the model;
        by default half of the available memory.
    """

    features: str | None
    nodata: float | None
    on_invalid: str
    fill: Any
    on_missing: str
    unlabelled: Any
    out: Any
    keys: Any
    max_memory: int | str | None


class Scored(NamedTuple):
    """What a prediction is made of, taken once: other threads may add rows meanwhile."""

    model: Any
    feature_map: Lifting | None


_MAPPED_BYTES = 1 << 24  # rows behind a feature map that are scored at a time


@dataclass(frozen=True)
class Answer:
    """A method of a model as a function of blocks of rows: what is sent to threads and workers.

    Attributes
    ----------
    model : object
        Frozen, with methods that are called as ``method(rows, first_row, **options)``.
    method : str
    options : dict
    feature_map : Lifting, optional
        Applied to rows before the method. Models do not know it.
    rule : RowRule
        Rows that are invalid: an error, or rows with a value of their own.
    value : ndarray, shape ()
        That value, in the type of the results.
    marginal : bool
        Rows with gaps are scored by ``model.marginal(features)`` of the features that they have.
    codes : ndarray of int, optional
        An option of the method with an entry for each row.
    """

    model: Any
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    feature_map: Lifting | None = None
    rule: RowRule = CHECK_SUMS
    value: Any = None
    marginal: bool = False
    codes: np.ndarray | None = None

    def __call__(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the results of rows; errors number them from `first_row`."""
        if self.marginal:
            return self._with_gaps(X, first_row)
        if self.rule.checks_sums:
            return self._of(self.model, X, first_row, slice(None), X.shape[0])
        X = as_matrix(X, sparse=True)
        bad, n_rows = self.rule.rows(X), X.shape[0]
        if bad.size and self.rule.action == "raise":
            self.rule.refuse(X, int(bad[0]), first_row + int(bad[0]))
        if bad.size:  # Zeros take their place, so that all rows keep their numbers.
            invalid = np.zeros(n_rows, bool)
            invalid[bad] = True
            dense = type(X) is not CompressedRows
            X = np.where(invalid[:, None], X.dtype.type(0), X) if dense else X.without(invalid)
        results = self._of(self.model, X, first_row, slice(None), n_rows)
        results = results.astype(self.value.dtype, copy=False)
        results[bad] = self.value
        return results

    def _of(self, model: Any, X: Any, first_row: int, at: Any, n_rows: int) -> np.ndarray:
        """Return the results of rows, which are `at` some places of `n_rows` from `first_row`."""
        method, options = getattr(model, self.method), dict(self.options)
        codes = None if self.codes is None else self.codes[first_row : first_row + n_rows][at]
        if self.feature_map is None:
            options |= {} if codes is None else {"codes": codes}
            return np.asarray(method(X, first_row, **options))
        # Mapped rows may be much wider than rows, so that few of them are held at a time.
        X, found = as_matrix(X, sparse=True), []
        step = max(1, _MAPPED_BYTES // (8 * self.feature_map.bound(X.shape[1]).n_out))
        for start in range(0, max(1, X.shape[0]), step):
            part = slice(start, start + step)
            options |= {} if codes is None else {"codes": codes[part]}
            rows = mapped(X[part], self.feature_map, first_row + start)
            found.append(np.asarray(method(rows, first_row + start, **options)))
        return np.concatenate(found)

    def _with_gaps(self, X: Any, first_row: int) -> np.ndarray:
        """Return the results of rows, pattern of gaps by pattern of gaps."""
        X = as_matrix(X)
        gaps, values = self.rule.missing(X) | np.isnan(X), X
        infinite = (np.isinf(values) & ~gaps).any(axis=1)
        bad = infinite | gaps[:, self.model.features].all(axis=1)
        if bad.any() and self.rule.action == "raise":
            row = int(bad.argmax())
            why = (
                f"Input X contains infinity: row {first_row + row}; gaps are NaN or nodata"
                if infinite[row]
                else f"row {first_row + row} of X has no feature that the model uses; "
                f"on_invalid='fill' gives such rows a result of your own"
            )
            raise InvalidDataError(why, *("X", first_row + row))
        patterns, which = np.unique(gaps[~bad], axis=0, return_inverse=True)
        rows, out = np.flatnonzero(~bad), None
        for number, pattern in enumerate(patterns):
            at = rows[which.ravel() == number]
            model = self.model.marginal(np.flatnonzero(~pattern)) if pattern.any() else self.model
            found = self._of(model, np.where(pattern, 0, values[at]), first_row, at, len(X))
            if out is None:
                out = np.full((len(X), *found.shape[1:]), self.value, self.value.dtype)
            out[at] = found
        if out is None:  # All rows are invalid: the shape is that of the results of one row.
            one = self._of(self.model, np.zeros((1, X.shape[1])), first_row, slice(0, 1), 1)
            out = np.full((len(X), *one.shape[1:]), self.value, self.value.dtype)
        return out

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Identity of the method, its model and options, as JSON."""
        rule = self.rule.action, self.rule.nodata, self.marginal, str(self.value)
        of_map = None if self.feature_map is None else self.feature_map.as_json()
        contents = self.model.__getstate__(), dict(self.options), rule, of_map, self.codes
        return {"model": f"checksum {hashed(contents)}"}


def mapped(X: Any, feature_map: Lifting, first_row: int = 0) -> np.ndarray:
    """Return rows behind a feature map."""
    rows = as_matrix(X)
    return np.asarray(lifted(rows, feature_map.bound(rows.shape[1]), first_row)[:])


def as_map(feature_map: Any) -> Lifting | None:
    """Return the maps of a parameter `feature_map`; raise an error for those without a pickle."""
    found = Lifting.of(feature_map)
    for each in () if found is None else found.maps:
        try:
            pickle.dumps(each)
        except Exception as error:
            raise InvalidParameterError(
                f"feature_map has a {each!r} that cannot be pickled, as copies, workers and files "
                f"need; define its functions in a module: {error}"
            ) from None
    return found


Function = TypeVar("Function", bound=Callable[..., Any])


def in_turn(method: Function) -> Function:
    """Let threads that call such methods of one estimator take turns."""

    @wraps(method)
    def call(self: MomentEstimator, *arguments: Any, **options: Any) -> Any:
        with self._lock:
            return method(self, *arguments, **options)

    return call  # type: ignore[return-value]


class MomentEstimator(Saved, BaseEstimator):
    """Base of the estimators: parameters, the moments of rows, and a model that follows from both.

    Its state are the parameters, `moments_`, the width and the names of the rows, the declared
    classes, what `fit` found of all rows at once, and one model, which is computed when it is first
    used after a change of the moments or of a parameter. `fit` works on an unfitted copy and ends
    in one assignment, so that an interruption leaves the old estimator or the new one.
    `partial_fit` and `forget` change nothing but the moments, which are whole by themselves.
    Threads that call methods that change the estimator take turns.

    A subclass defines

    - ``_covariance_type()``: the kind of moments that it keeps;
    - ``_make_model(moments, found)``: the model, a frozen object with methods of rows that are
      called as ``method(rows, first_row, **options)``; it raises errors, and its attributes are
      what the fitted attributes, which are properties, return;

    and, where it needs them,

    - ``_check_parameters()``: raises `InvalidParameterError` for parameters that do not work;
    - ``_summed(rows)``: what is summed of rows, such as targets beside features;
    - ``_find(rows)``: what needs all rows at once in `fit` (kept as `_found`, dropped by
      `partial_fit`, `forget` and `set_params`); ``_needs_all_rows()`` names the parameter;
    - ``_check_fit(model)``: raises errors that `fit` and `from_moments` have, and predictions of a
      stream do not.

    Methods that predict are one line: ``return self._map(name, method, X, reading, ...)``.

    Attributes
    ----------
    moments_ : ClassMoments
        All that was kept of the rows; the model follows changes of it.
    """

    moments_: ClassMoments
    n_features_in_: int
    feature_map: Any = None
    _n_targets = 0  # last columns of the moments, beside those of the features
    _declared: np.ndarray | None = None
    _model: tuple[int, Scored]  # changes of the moments, and the model of them
    _found: Any = None
    _reported = False  # constant features, before this was loaded from a file
    _repr_html_ = BaseEstimator._repr_html_  # the diagram of scikit-learn

    # --- what subclasses define ---------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # which become dense slab by slab where zeros count
        return tags

    def _covariance_type(self) -> str:
        raise NotImplementedError

    def _make_model(self, moments: ClassMoments, found: Any) -> Any:
        raise NotImplementedError

    def _check_parameters(self) -> None:
        """Raise `InvalidParameterError` for parameters that do not work."""

    def _summed(self, rows: Rows) -> Rows:
        """Return what is summed of rows."""
        return rows

    def _find(self, rows: Rows) -> Any:
        """Return what the model needs of all rows at once; None for nothing."""

    def _needs_all_rows(self) -> str | None:
        """Return the name of the parameter for which `_find` finds anything."""
        return None

    def _check_fit(self, model: Any) -> None:
        """Raise an error for a model that `fit` does not accept."""

    def _maps(self) -> Lifting | None:
        """Return the feature map of the moments."""
        return as_map(self.feature_map)

    # --- learning -----------------------------------------------------------------------------

    @in_turn
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, **reading: Unpack[Reading]
    ) -> Self:
        """Fit the model to rows, in one pass over them.

        Parameters
        ----------
        X : array-like, memmap, zarr.Array, dask.array.Array, data frame or table of `open_store`
            Rows, shape (n_rows, n_features), of any real type. Naive Bayes and other covariance
            types without covariances between features also take sparse matrices of scipy.
        y : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
            Class labels.
        sample_weight : array-like, shape (n_rows,), optional
            Non-negative weights; a row of weight zero is ignored.
        **reading
            How rows are read: `features`, `nodata`, `on_invalid`, `unlabelled`, `max_memory`; see
            `streamgda.estimators.base.Reading`.

        Returns
        -------
        estimator
            The estimator itself.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For rows, labels, weights or parameters that cannot be used.
        SingularCovarianceError
            If a covariance has no inverse.

        Examples
        --------
        >>> from streamgda import LinearDiscriminantAnalysis
        >>> X, y = [[1.0], [3.0], [6.0], [8.0], [-999.0]], ["ant", "ant", "bee", "bee", "bee"]
        >>> lda = LinearDiscriminantAnalysis().fit(X, y, nodata=-999, on_invalid="skip")
        >>> lda.means_.ravel(), lda.moments_.n_skipped
        (array([2., 7.]), 1)
        """
        new = self._unfitted()
        new._check_parameters()
        rows = new._read(X, y, sample_weight, reading, reset=True)
        new.moments_ = new._added(new._empty(), rows, max_memory=reading.get("max_memory"))
        if new.moments_.n_features is None:
            raise InvalidDataError(NO_ROWS)
        new._found = new._find(rows)
        new._check_fit(new.model_)
        self.__dict__ = new.__dict__
        return self

    @in_turn
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        half_life: float | None = None,
        **reading: Unpack[Reading],
    ) -> Self:
        """Add rows: the result is that of `fit` on all of them, to rounding, in any batches.

        Parameters
        ----------
        X, y : see `fit`
            Rows and labels.
        classes : array-like, shape (n_classes,), optional
            All labels that may occur. They are classes even before they have rows, and any other
            label is an error from then on. Later calls may leave it out, or pass the same ones.
            Without it, new labels may appear at any time.
        sample_weight : array-like, shape (n_rows,), optional
            Non-negative weights; a row of weight zero is ignored.
        half_life : float, optional
            Number of rows after which a row counts half as much. Every row that is added with a
            half-life reduces the weight of all rows before it. Rows are in the order of their age,
            the oldest first.
        **reading
            How rows are read; see `fit`.

        Returns
        -------
        estimator
            The estimator itself.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            See `fit`; the estimator is then unchanged. A class whose covariance is singular is no
            error: predictions leave it out, with a warning.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB()
        >>> for X, y in ([[1.0], [3.0]], ["ant", "ant"]), ([[6.0], [8.0]], ["bee", "bee"]):
        ...     _ = nb.partial_fit(X, y)
        >>> nb.theta_.ravel(), nb.predict([[2.0], [5.0]])
        (array([2., 7.]), array(['ant', 'bee'], dtype='<U3'))
        """
        held = vars(self)
        plain = classes is sample_weight is half_life is None and not reading
        if plain and "moments_" in held and self._is_usual(X, y):
            self.moments_.update(X, y)
            return self
        new = self._copy_to_learn(reset="moments_" not in held)
        rows = new._read(X, y, sample_weight, reading, reset="moments_" not in held)
        moments = new.moments_ if "moments_" in held else new._empty()
        options = {"max_memory": reading["max_memory"]} if reading.get("max_memory") else {}
        declares = classes is not None and new._declare(classes, moments)
        if half_life is None and not options:
            moments = new._added(moments, rows, expected=new._declared)
        else:
            decay = 1.0
            if half_life is not None:
                weights, decay = half_life_weights(half_life, rows.X.shape[0], rows.weight)
                rows = replace(rows, weight=weights)
            empty = new._empty(moments.covariance_type)
            added = new._added(empty, rows, expected=new._declared, **options)
            moments = added if moments.n_features is None else moments * decay + added
        if declares and moments.n_features is not None:
            moments = moments.declare(new._declared)
        new.moments_, new._found = moments, None
        self.__dict__ = new.__dict__
        return self

    @in_turn
    def forget(
        self, X: Any, y: Any = None, sample_weight: Any = None, **reading: Unpack[Reading]
    ) -> Self:
        """Remove rows: the model is then as if they had never been added.

        The result is the same to rounding, and bit for bit for 8- and 16-bit integers without
        weights. A class that is left without rows is dropped.

        Parameters
        ----------
        X, y : see `fit`
            Rows and labels, as they were passed to `fit` or `partial_fit`. Whether these very rows
            were added cannot be checked.
        sample_weight : array-like, shape (n_rows,), optional
            Weights of the rows; with a half-life, those that they have by now.
        **reading
            How rows are read; see `fit`.

        Returns
        -------
        estimator
            The estimator itself.

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used.
        MergeError
            For rows that were not added, as far as that can be told.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB().fit([[1.0], [3.0], [90.0], [6.0], [8.0]], [0, 0, 0, 1, 1])
        >>> nb.forget([[90.0]], [0]).theta_.ravel()
        array([2., 7.])
        """
        check_is_fitted(self)
        new = self._copy_to_learn()
        rows = new._read(X, y, sample_weight, reading)
        empty = new._empty(new.moments_.covariance_type)
        new.moments_, new._found = new.moments_ - new._added(empty, rows), None
        self.__dict__ = new.__dict__
        return self

    def _copy_to_learn(self, reset: bool = False) -> Self:
        """Return a copy with the same moments, to be changed before it replaces the estimator."""
        new = self._unfitted() if reset else object.__new__(type(self))
        if not reset:
            new.__dict__ = dict(vars(self))
            new.__dict__.pop("_model", None)
            self._check_same_kind()
        new._check_parameters()
        needed = new._needs_all_rows()
        if needed:
            raise InvalidParameterError(
                f"{needed} needs all rows at once, so that partial_fit and forget cannot add or "
                f"remove any; call fit with all of them, or use shrinkage='oas' or a number"
            )
        return new

    def _check_same_kind(self) -> None:
        """Raise `InvalidParameterError` unless the moments hold what the parameters ask for."""
        if self.moments_.n_features is not None:
            self._moments_of_kind()
        # A transformer that was loaded without its code gets it again.
        self.moments_._lifting = joined_maps(self._maps(), self.moments_)

    def _is_usual(self, X: Any, y: Any) -> bool:
        """Return True for arrays that the moments check themselves, with nothing to convert."""
        held = vars(self)
        if type(X) is not np.ndarray or type(y) is not np.ndarray or X.dtype.kind not in "iuf":
            return False
        if X.shape[1:] != (self.n_features_in_,) or y.shape != X.shape[:1] or not y.size:
            return False
        usual = "feature_names_in_" not in held and self._declared is None
        usual = usual and self.feature_map is None and self.moments_.feature_map is None
        usual = usual and self._found is None and self._needs_all_rows() is None
        return usual and type(self)._summed is MomentEstimator._summed and y.dtype.kind != "f"

    def _declare(self, classes: Any, moments: ClassMoments) -> bool:
        """Keep the labels that may occur; return True if they are declared for the first time."""
        labels = np.unique(as_labels(classes, "classes"))
        if self._declared is not None:
            if labels.dtype.kind == self._declared.dtype.kind and np.array_equal(
                labels, self._declared
            ):
                return False
            raise InvalidParameterError(
                f"classes={shown(labels.tolist())} is not the same as on the last call to "
                f"partial_fit, was: {shown(self._declared.tolist())}; pass these, or none"
            )
        held = moments.classes
        if held.size and (other := find(held, labels) < 0).any():
            raise InvalidParameterError(
                f"classes={shown(labels.tolist())} lacks {shown(held[other].tolist())}, of which "
                f"rows were learned; pass all labels, or none"
            )
        self._declared = labels
        return True

    def _empty(self, kind: str | None = None) -> ClassMoments:
        """Return moments without rows, by default of the kind that the parameters ask for."""
        return ClassMoments(kind or self._covariance_type(), feature_map=self._maps())

    def _added(self, moments: ClassMoments, rows: Rows, **options: Any) -> ClassMoments:
        """Return moments with rows added; options as of `streamgda.engine.accumulate_into`."""
        options = {name: value for name, value in options.items() if value is not None}
        moments = engine.accumulate_into(moments, self._summed(rows), **options)
        if not self._n_targets:
            moments._name_features(names_in(self))
        return moments

    def _unfitted(self) -> Self:
        """Return a copy without what was learned."""
        new: Self = object.__new__(type(self))
        new.__dict__ = {name: value for name, value in vars(self).items() if name not in _STATE}
        return new

    # --- the model ----------------------------------------------------------------------------

    @classmethod
    def from_moments(cls, moments: ClassMoments, **params: Any) -> Self:
        """Return an estimator with these moments, without reading any rows.

        Parameters
        ----------
        moments : ClassMoments
            Moments that determine the covariance type of the estimator; they are copied.
        **params
            Parameters of the estimator.

        Returns
        -------
        estimator
            The fitted estimator.

        Raises
        ------
        TypeError
            For anything but `ClassMoments`, such as `PairwiseMoments`, which `to_moments` converts.
        InvalidDataError, InvalidParameterError, MergeError, SingularCovarianceError
            For moments that do not determine such an estimator.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import GaussianNB, QuadraticDiscriminantAnalysis, accumulate
        >>> X, y = load_iris(return_X_y=True)
        >>> moments = accumulate(X, y)
        >>> qda = QuadraticDiscriminantAnalysis.from_moments(moments, reg_param=0.01)
        >>> qda.score(X, y), GaussianNB.from_moments(moments).score(X, y)
        (0.98, 0.96)
        """
        check_type("moments", moments, ClassMoments, "ClassMoments")
        estimator = cls(**params)
        with moments._lock:  # Another thread may be adding rows.
            if estimator.feature_map is None and moments.feature_map is not None:
                estimator.feature_map = moments.feature_map
            estimator._check_parameters()
            if moments.n_features is None:
                raise InvalidDataError(NO_ROWS)
            estimator._adopt(moments)
        estimator._check_fit(estimator.model_)
        return estimator

    def _adopt(self, moments: ClassMoments) -> None:
        """Take moments of rows as those that were learned."""
        joined_maps(self._maps(), moments)
        self.moments_ = moments.reduce(self._covariance_type())
        self.n_features_in_ = int(moments._n_features_in or 0) - self._n_targets
        if moments.feature_names is not None:
            names = moments.feature_names[: self.n_features_in_]
            self.feature_names_in_ = np.array(names, object)

    @property
    def model_(self) -> Any:
        """The model of the moments and the parameters as they are."""
        return self._scored().model

    def _scored(self) -> Scored:
        """Return the model of the moments and the parameters as they are."""
        held = self.__dict__  # Another thread may replace it.
        if "moments_" not in held:
            check_is_fitted(self)
        if "_only_shown" in held:
            raise AttributeError("the model is computed when it is used")
        moments = held["moments_"]
        changes, scored = held.get("_model", (None, None))
        if changes != moments.changes:
            with moments._lock:  # Another thread may be adding rows.
                changes = moments.changes
                held.setdefault("_told", {})  # shared with the copy
                frozen = object.__new__(type(self))
                frozen.__dict__ = dict(held)
                try:
                    scored = frozen._compute_model()
                except StreamGDAError as error:  # Attributes that follow from it are missing.
                    raise as_attribute_error(error) from None
            held["_model"] = changes, scored
        return scored

    def _compute_model(self) -> Scored:
        """Return the model, and the map of the rows that it scores."""
        self._check_parameters()
        lifting = joined_maps(self._maps(), self.moments_)
        needed = self._needs_all_rows()
        if needed and self._found is None:
            raise UnsupportedError(
                f"{needed} needs all rows at once, and the model is of rows that were added, "
                f"merged or removed, or of other parameters; call fit"
            )
        model = self._make_model(self._moments_of_kind(), self._found)
        return Scored(model, None if lifting is None else lifting.of_features)

    def _moments_of_kind(self) -> ClassMoments:
        """Return the moments, as those of the kind that the parameters ask for."""
        kind = self._covariance_type()
        if self.moments_.covariance_type == kind:
            return self.moments_
        try:
            return self.moments_.reduce(kind)
        except MergeError as error:
            raise InvalidParameterError(f"{error}; call fit") from None

    @in_turn
    def set_params(self, **params: Any) -> Self:
        """Set parameters, which count from now on, without reading rows again.

        Parameters
        ----------
        **params
            Parameters of the estimator.

        Returns
        -------
        estimator
            The estimator itself.

        Raises
        ------
        ValueError
            For names of no parameters.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> nb.set_params(priors=[0.9, 0.1]).class_prior_
        array([0.9, 0.1])
        """
        super().set_params(**params)
        self.__dict__.pop("_model", None)
        if not params.keys().isdisjoint(("shrinkage", "covariance_estimator")):
            self._found = None
        return self

    @property
    def _lock(self) -> Lock:
        """The lock of methods that change the estimator, made when it is first used."""
        lock: Lock = self.__dict__.setdefault("_lock", Lock())  # atomic
        return lock

    def __sklearn_is_fitted__(self) -> bool:
        return "moments_" in vars(self)

    def _locked(self) -> Any:
        """Return the lock of the moments, which are saved as they are between changes."""
        return self.moments_._lock if "moments_" in vars(self) else contextlib.nullcontext()

    def __getstate__(self) -> Any:
        """Return the attributes for copies and pickles, with a copy of the moments."""
        state = dict(super(Saved, self).__getstate__())
        state.pop("_model", None)
        state.pop("_lock", None)
        if "moments_" in state:
            state["moments_"] = state["moments_"].copy()
        return state

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        """Return the table of fitted attributes, of those that need no computation."""
        shown = object.__new__(type(self))
        shown.__dict__ = vars(self) | {"_only_shown": True}
        return super(MomentEstimator, shown)._get_fitted_attr_html(doc_link)

    def _warn_once(self, category: type[Warning], about: Any, message: str) -> None:
        """Warn of a property of the model, unless the last warning was of the same."""
        told = self.__dict__.setdefault("_told", {})
        if told.get(category.__name__) != about:
            told[category.__name__] = about
            warn(message, category)

    # --- predictions --------------------------------------------------------------------------

    def _map(
        self,
        name: str,
        method: str,
        X: Any,
        reading: Reading | None = None,
        scored: Scored | None = None,
        *,
        columns: int | None = None,
        labels: np.ndarray | None = None,
        classes: np.ndarray | None = None,
        of_features: bool = True,
        codes: np.ndarray | None = None,
        **options: Any,
    ) -> Any:
        """Return what a method of the model says of rows.

        It is an array for rows in memory, which are scored in blocks on all threads; lazy for dask;
        and written slab by slab to `out`.

        Parameters
        ----------
        name : str
            Name of the public method, by which tables call its columns.
        method : str
            Name of the method of the model.
        X : see `fit`
            Rows.
        reading : Reading, optional
        scored : Scored, optional
            The model from which `columns`, `labels` and `options` were taken.
        columns : int, optional
            Width of the results, by default one-dimensional.
        labels : ndarray, optional
            All values of the results, if these are labels; otherwise they are float64.
        classes : ndarray, optional
            Classes to which the columns belong.
        of_features : bool
            Rows have the features of the estimator.
        codes : ndarray, optional
            Option of the method with an entry for each row.
        **options
            Options of the method.
        """
        scored = self._scored() if scored is None else scored
        maps = scored.feature_map if of_features else None
        answer = Answer(scored.model, method, options, maps, codes=codes)
        if not reading and of_features and self._fits(X):
            return answer(X)
        reading = dict(reading or {})  # type: ignore[assignment]
        given: dict[str, Any] = {**reading}  # type: ignore[dict-item]
        out, fill = given.pop("out", None), given.pop("fill", None)
        planned = {key: given.pop(key) for key in _PLANNED if key in given}
        marginal = _is_marginal(given.pop("on_missing", "raise"))
        read = Rows.of(X, actions=SCORING, **given)
        source = validated_rows(self, read.X) if of_features else as_source(read.X)
        if marginal or answer.feature_map or not getattr(answer.model, "takes_sparse", False):
            source = Rows(source).dense().X
        rule, value = read.rule, None
        if rule.action == "raise" and fill is not None:
            raise InvalidParameterError(
                f"fill={shown(fill)}, and on_invalid='raise': no row is filled; pass "
                f"on_invalid='fill'"
            )
        if marginal and (not hasattr(scored.model, "marginal") or maps is not None):
            raise InvalidParameterError(
                "on_missing='marginal' needs densities of the features as they are, which this "
                "estimator does not have; fill in the values that are missing, or pass "
                "on_invalid='fill'"
            )
        if marginal or not rule.checks_sums:
            value = np.zeros((), float if labels is None else labels.dtype)
            if rule.action == "fill" and labels is None:
                value = as_numbers("fill", np.nan if fill is None else fill, "one number")
                if value.ndim:
                    raise refuse("fill", fill, "one number, which may be NaN")
            elif rule.action == "fill" and labels is not None:
                labels = with_label(labels, "fill", fill, scored.model.classes)
                value = labels[-1:].reshape(())
            answer = replace(answer, rule=rule, value=value, marginal=marginal)
        shown_fill = None
        if rule.action == "fill" and value is not None:  # dates are no integers
            shown_fill = value.item() if value.dtype.kind in "biuf" else value[()]
        return engine.score(
            answer,
            source,
            out,
            dtype=np.dtype(np.float64) if labels is None else labels.dtype,
            columns=columns,
            labels=labels,
            name=name,
            classes=classes,
            fill=shown_fill,
            fingerprint=None if out is None else _made_of(name, classes) | answer.fingerprint,
            held=int(answer.model.nbytes),
            **planned,
        )

    def _fits(self, X: Any) -> bool:
        """Return True for an array with nothing to convert or to warn of."""
        return (
            type(X) in (np.ndarray, np.memmap)
            and X.dtype.kind in "iuf"
            and X.shape[1:] == (self.n_features_in_,)
            and X.shape[0] > 0
            and X.nbytes <= _AT_ONCE
            and "feature_names_in_" not in vars(self)
        )

    # --- validation ---------------------------------------------------------------------------

    def _read(self, X: Any, y: Any, weight: Any, reading: Any = (), *, reset: bool = False) -> Rows:
        """Return labelled rows that fit the estimator and each other."""
        given = {name: value for name, value in dict(reading).items() if name in _LEARNING}
        for name in dict(reading).keys() - {*_LEARNING, "max_memory"}:
            raise TypeError(f"{type(self).__name__} got an unexpected keyword argument {name!r}")
        rows = Rows.of(X, y, weight, **given)
        X, y, rule = rows.X, rows.y, rows.rule
        if y is None:
            if get_tags(self).target_tags.required:
                raise InvalidParameterError(
                    f"y is missing: {type(self).__name__} requires y to be passed, but the target "
                    f"y is None; give one label for each row"
                )
            return replace(rows, X=validated_rows(self, X, reset=reset))
        if isinstance(X, RowSource):
            if isinstance(y, np.ndarray | list | tuple) and np.shape(y)[1:] == (1,):
                y = np.ravel(y)
            return replace(rows, X=validated_rows(self, X, reset=reset), y=y)
        if isinstance(y, np.ndarray) and y.dtype.kind in "biu" and y.ndim == 1:
            X, y = _validated(self, X, y, reset=reset)
            return replace(rows, X=X, y=y)
        if np.shape(y)[1:] == (1,):
            y = column_or_1d(y, warn=True)
        labels = rule.labels(y)
        return replace(rows, X=_validated(self, X, labels.codes, reset=reset)[0], y=labels)

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        check_is_fitted(self)
        self._check_parameters()
        params = {
            name: plain(name, value)
            for name, value in self.get_params(deep=False).items()
            if name != "feature_map"  # That of the moments.
        }
        names, parts = names_in(self), nested({"moments": self.moments_})
        attributes: dict[str, Any] = {
            "estimator": type(self).__name__,
            "params": params,
            "names": names and [*names],
            "n_features_in": self.n_features_in_,
            **parts[0],
        }
        if self._declared is not None:
            attributes["declared"] = pack_labels(self._declared)
        arrays = dict(parts[1])
        if self._found is not None:
            arrays["found"] = np.asarray(self._found)
        return attributes, arrays

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        kind = class_named(attributes["estimator"], cls)
        moments = restore(ClassMoments, attributes["moments"], arrays_within(arrays, "moments"))
        estimator = kind(**unpacked(attributes["params"]))
        estimator.feature_map = moments.feature_map
        estimator._check_parameters()
        estimator._restore(attributes)
        joined_maps(estimator._maps(), moments)
        estimator.moments_, estimator._reported = moments, True
        width = check_whole("n_features_in", attributes["n_features_in"], 1)
        if moments._n_features_in not in (None, width + estimator._n_targets):
            raise ValueError("its moments are of another number of features")
        estimator.n_features_in_ = width
        names = restored_names({"feature_names": attributes["names"]}, width)
        if names is not None:
            estimator.feature_names_in_ = np.array(names, object)
        if "declared" in attributes:
            estimator._declared = unpack_labels(attributes["declared"])
        if "found" in arrays:
            estimator._found = estimator._checked_found(arrays["found"])
        return estimator

    def _restore(self, attributes: Mapping[str, Any]) -> None:
        """Take what a subclass has added to the attributes of a file."""

    def _checked_found(self, found: np.ndarray) -> Any:
        """Return what `fit` found, from a file; raise ValueError if the moments have none such."""
        raise ValueError(f"{type(self).__name__} keeps nothing beside its moments")


_AT_ONCE = 1 << 30  # bytes of rows that are scored without a plan


def _made_of(method: str, classes: np.ndarray | None) -> dict[str, Any]:
    """Return the method and the columns of its results, as JSON."""
    columns = None
    if classes is not None:
        columns = [*map(str, classes)] if classes.dtype.kind in "SmM" else classes.tolist()
    return {"method": method, "columns": columns}


def _is_marginal(on_missing: Any) -> bool:
    if on_missing not in ("raise", "marginal"):
        raise refuse("on_missing", on_missing, "'raise' or 'marginal'")
    return bool(on_missing == "marginal")


def joined_maps(given: Lifting | None, moments: ClassMoments) -> Lifting | None:
    """Return the feature map of parameters and moments; raise an error for different ones."""
    held = moments._lifting
    joined = None if held is None else held.joined(given)
    if joined is None and (held is not None or given is not None):
        raise InvalidParameterError(
            f"feature_map is {given or None}, but the rows so far were added behind "
            f"{held or 'no map'}; pass the same one, or call fit with all rows"
        )
    return joined


def half_life_weights(
    half_life: float, n_rows: Any, sample_weight: Any = None
) -> tuple[np.ndarray, float]:
    """Return the weights of rows after the last of them, and the decay of all earlier rows.

    Parameters
    ----------
    half_life : float > 0
        Number of rows after which a row counts half as much.
    n_rows : int
        Number of rows, the oldest first.
    sample_weight : array-like, shape (n_rows,), optional
        Weights of the rows before they decay.

    Returns
    -------
    weights : ndarray, shape (n_rows,)
    decay : float
        Factor for the weights of earlier rows.

    Examples
    --------
    >>> half_life_weights(1, 3)
    (array([0.25, 0.5 , 1.  ]), 0.125)
    """
    expected = "a number of rows above 0, or None to forget nothing"
    half_life = as_number("half_life", half_life, expected, LEAST)
    if np.isnan(n_rows):
        raise InvalidDataError(
            f"X has row chunks of unknown size, and half_life needs the age of each row; "
            f"{how_to_count('X')}"
        )
    with np.errstate(over="ignore"):
        weights = np.exp2(np.arange(1 - n_rows, 1) / half_life)
    if sample_weight is not None:
        weights *= as_weights(sample_weight, n_rows)
    return weights, float(0.5 ** (n_rows / half_life))


def plain(name: str, value: Any) -> Any:
    """Return a parameter as JSON; raise `InvalidParameterError` for one that no file holds."""
    if isinstance(value, Mapping):  # weights of classes
        labels = as_labels([*value], name)
        numbers = np.asarray([*value.values()], np.float64).tolist()
        return {"labels": pack_labels(labels), "weights": numbers}
    found = value.tolist() if hasattr(value, "tolist") else value
    found = list(found) if isinstance(found, tuple) else found
    if found is None or isinstance(found, bool | int | float | str | list):
        return found
    raise InvalidParameterError(
        f"an estimator with {name}={shown(value)} cannot be saved, as files hold no code; use "
        f"pickle or joblib"
    )


def unpacked(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of which `plain` made JSON."""
    found = dict(params)
    for name, value in found.items():
        if isinstance(value, Mapping):
            labels = unpack_labels(value["labels"]).tolist()
            found[name] = dict(zip(labels, value["weights"], strict=True))
        elif not (value is None or isinstance(value, bool | int | float | str | list)):
            raise TypeError(f"the parameter {name}={value!r:.100} is of no type that is saved")
    return found


def names_in(estimator: Any) -> tuple[str, ...] | None:
    """Return the names of the features that an estimator was fitted with."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))


def validated_rows(estimator: Any, X: Any, *, reset: bool = False) -> Any:
    """Return rows whose width and feature names fit the estimator, as scikit-learn checks them.

    Parameters
    ----------
    estimator : estimator
    X : array-like, sparse matrix or RowSource
        Rows as `Rows.of` returns them.
    reset : bool
        The estimator gets its width and names from these rows.

    Raises
    ------
    InvalidDataError, ValueError, TypeError
        For rows that the estimator cannot use. Their values are checked when they are summed or
        scored.
    """
    if not isinstance(X, RowSource):
        return _validated(estimator, X, reset=reset)
    if len(X.shape) != 2:
        refuse_shape(X.shape)
    names, width = X.feature_names, int(X.shape[1])
    if reset:
        estimator.n_features_in_ = width
        vars(estimator).pop("feature_names_in_", None)
        if names is not None:
            estimator.feature_names_in_ = np.array(names, object)
        check_names_of_maps(estimator)
        return X
    _check_names(estimator, names)
    if width != estimator.n_features_in_:
        raise InvalidDataError(
            f"X has {width} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
    return X


def _validated(estimator: Any, X: Any, *y: Any, reset: bool) -> Any:
    """Return rows, and labels, that scikit-learn's validation accepts."""
    accepted: dict[str, Any] = {"dtype": "numeric", "ensure_all_finite": False}
    if SparseRows.accepts(X):
        accepted["accept_sparse"] = "csr"
    try:
        found = validate_data(estimator, X, *y, reset=reset, **accepted)
    except OverflowError as error:
        raise InvalidDataError(f"X holds integers that no float can hold: {error}") from None
    if reset:
        check_names_of_maps(estimator)
    return found


def check_names_of_maps(estimator: Any) -> None:
    """Raise `InvalidDataError` if a transformer was fitted to columns of other names."""
    lifting = as_map(getattr(estimator, "feature_map", None))
    first = None if lifting is None else lifting.maps[0]
    names = first.names if isinstance(first, Transformer) else None
    own = names_in(estimator)
    if names is not None and own is not None and names != own:
        raise InvalidDataError(
            f"feature_map is a {first!r} of the columns {shown([*names])}, and X has the columns "
            f"{shown([*own])}; give them in the same order"
        )


def _check_names(estimator: Any, names: tuple[str, ...] | None) -> None:
    """Check names of features as scikit-learn does, which knows those of frames only."""
    held, kind = names_in(estimator), type(estimator).__name__
    if names is None and held is not None:
        warn(f"X does not have valid feature names, but {kind} was fitted with feature names")
    elif names is not None and held is None:
        warn(f"X has feature names, but {kind} was fitted without feature names")
    elif names != held and names is not None and held is not None:
        message = "The feature names should match those that were passed during fit.\n"
        for heading, some in (
            ("unseen at fit time", set(names) - set(held)),
            ("seen at fit time, yet now missing", set(held) - set(names)),
        ):
            listed = "".join(f"- {name}\n" for name in sorted(some)[:5])
            listed += "- ...\n" if len(some) > 5 else ""
            message += f"Feature names {heading}:\n{listed}" if some else ""
        if set(names) == set(held):
            message += "Feature names must be in the same order as they were in fit.\n"
        raise InvalidDataError(message)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn the first caller that is not of the package."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("streamgda."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
