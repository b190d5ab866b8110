"""`MomentEstimator`: parameters, the moments of rows, and a model that follows from both."""

from __future__ import annotations

import contextlib
import inspect
import pickle
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypedDict, TypeVar, Unpack, get_args

import numpy as np
from joblib import hash as hashed  # type: ignore[import-untyped]
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from streamgda import engine
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    StreamGDAError,
    UnsupportedError,
    as_attribute_error,
)
from streamgda.models.covariance import NO_ROWS
from streamgda.moments import ClassMoments
from streamgda.moments.covariance_types import check_covers
from streamgda.moments.feature_maps import (
    Lifting,
    Transformer,
    before_standardize,
    lifted,
    standardized,
    with_standardize,
)
from streamgda.rows import Rows
from streamgda.rows.counting import (
    CHECK_SUMS,
    SCORING,
    RowRule,
    as_matrix,
    as_weights,
    raise_not_finite,
)
from streamgda.rows.labels import as_labels, find, with_label
from streamgda.rows.names import restored_names
from streamgda.rows.source import RowSource, as_source, check_lengths, raise_for_shape
from streamgda.rows.sparse import with_values
from streamgda.runtime.interruption import Lock
from streamgda.runtime.parameters import LEAST, as_number, as_numbers, check_type, shown, unexpected
from streamgda.storage.format import State, check_whole, pack_labels, unpack_labels
from streamgda.storage.saved import Saved

_LEARNED = {"moments_", "n_features_in_", "feature_names_in_"}
_LEARNED |= {"_binarised_at", "_declared", "_found", "_models", "_n_numbered"}
_FINDING = {"shrinkage", "covariance_estimator", "param_grid"}  # Parameters of what `_find` finds.
_AT_ONCE = 1 << 30  # Rows of fewer bytes are scored without a plan.


class Reading(TypedDict, total=False):
    """Options of methods that read rows; each method takes those that make sense for it.

    Attributes
    ----------
    groups : array-like, shape (n_rows,)
        Groups of the rows, in estimators that choose by folds: each is held out as a whole.
    features : str
        Name of the dimension that holds the features, if `X` is a DataArray.
    nodata : int or float
        Value that marks missing measurements.
    on_invalid : {"raise", "skip", "fill"}
        Raise an error for rows with NaN, infinity, masked values, `nodata` or a missing label. Or
        skip them, in methods that learn (``moments_.n_skipped`` counts them); or give them `fill`
        as their result, in methods that predict.
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
        predictions are lazy otherwise, they are computed. A store of zarr holds credentials:
        ``zarr.storage.FsspecStore.from_url("s3://bucket/out", storage_options={...})``.
    keys : str or sequence of str
        Names of columns of the table that is scored, which are copied to an `out` that is a table.
    max_memory : int or str
        Bytes, or a text such as ``"512MB"``, for rows in flight, results, moments and the model;
        by default half of the available memory.
    """

    groups: Any
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
    value : ndarray, shape (); optional
        That value, in the type of the results.
    marginal : bool
        Rows with gaps are scored by ``model.marginal(features)`` of the features that they have.
    """

    model: Any
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    feature_map: Lifting | None = None
    rule: RowRule = CHECK_SUMS
    value: Any = None
    marginal: bool = False

    def __call__(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the results of rows; errors number them from `first_row`."""
        if self.rule.checks_sums and not self.marginal:
            return self._of(self.model, X, first_row)
        X = as_matrix(X, sparse=True)
        if self.marginal:
            gaps = self.rule.missing(X) | np.isnan(X)
            invalid = (np.isinf(X) & ~gaps).any(axis=1) | gaps[:, self.model.features].all(axis=1)
        else:
            invalid = np.zeros(X.shape[0], bool)
            invalid[self.rule.rows(X)] = True
        if invalid.any() and self.rule.action == "raise":
            at = int(invalid.argmax())
            if not self.marginal:
                raise_not_finite(X, first_row, nodata=self.rule.nodata)
            raise InvalidDataError(
                f"row {first_row + at} of X has infinity, or no feature that the model uses: gaps "
                f"are NaN or nodata; on_invalid='fill' gives such rows a result of your own",
                *("X", first_row + at),
            )
        # Zeros take the place of what cannot be scored, so that all rows keep their numbers.
        if issparse(X):
            zeroed = np.repeat(invalid, np.diff(X.indptr))
            X = with_values(X, np.where(zeroed, 0, X.data)) if invalid.any() else X
        elif self.marginal or invalid.any():
            X = np.where(invalid[:, None] | (gaps if self.marginal else False), X.dtype.type(0), X)
        results = self._of(self.model, X, first_row)
        if self.value is not None:
            results = results.astype(self.value.dtype, copy=False)
            results[invalid] = self.value
        if self.marginal:
            rows = np.flatnonzero(gaps.any(axis=1) & ~invalid)
            patterns, which = np.unique(gaps[rows], axis=0, return_inverse=True)
            for number, pattern in enumerate(patterns):
                at = rows[which.ravel() == number]
                model = self.model.marginal(np.flatnonzero(~pattern))
                results[at] = self._of(model, X[at], first_row)
        return results

    def _of(self, model: Any, X: Any, first_row: int) -> np.ndarray:
        """Return the results of a block of rows, which are mapped as they are scored."""
        if self.feature_map is not None:
            X = as_matrix(X)
            X = lifted(X, self.feature_map.bound(X.shape[1]), first_row)
        return np.asarray(getattr(model, self.method)(X, first_row, **self.options))

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Identity of the method, its model and options, as JSON."""
        rule = self.rule.action, self.rule.nodata, self.marginal, str(self.value)
        of_map = None if self.feature_map is None else self.feature_map.as_json()
        contents = self.model.__getstate__(), dict(self.options), rule, of_map
        return {"model": f"checksum {hashed(contents)}"}


Function = TypeVar("Function", bound=Callable[..., Any])


def in_turn(method: Function) -> Function:
    """Let threads that call such methods of one estimator take turns."""

    @wraps(method)
    def call(self: MomentEstimator, *arguments: Any, **options: Any) -> Any:
        with self.__dict__.setdefault("_lock", Lock()):  # This is atomic.
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
    - ``_in_folds(rows)``: folds of rows as their groups, which the moments are then grouped by;
    - ``_find(rows, max_memory)``: what needs all rows at once in `fit` (kept as `_found`, dropped
      by `partial_fit`, `forget` and `set_params`); ``_needs_all_rows()`` names the parameter;
    - ``_check_fit(model)``: raises the errors and gives the warnings of `fit` and `from_moments`;
      ``_check_stream(model)`` those of a model of rows that were added, merged or loaded.

    Methods that predict take one model, `_scored`, and map one of its methods over rows, `_map`.

    Attributes
    ----------
    moments_ : ClassMoments
        All that was kept of the rows; the model follows changes of it.
    """

    moments_: ClassMoments
    n_features_in_: int
    feature_map: Any = None
    _kinds: Any = (ClassMoments, "ClassMoments")  # These moments are taken, of that name.
    # Methods that learn take these options.
    _reads = frozenset({"features", "nodata", "unlabelled", "on_invalid"})
    _instead = "a number, or shrinkage='oas'"  # Errors offer it for what needs all rows.
    _scales = True  # Moments behind a last `Standardize` follow from those before it.
    _n_targets = 0  # So many last columns of the moments are no features.
    _declared: np.ndarray | None = None
    _models: dict[int, Scored]  # The model, by the `changes` of the moments that it is of.
    _found: Any = None
    _repr_html_ = BaseEstimator._repr_html_  # This is the diagram of scikit-learn.

    # --- what subclasses define ---------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # They become dense slab by slab where zeros count.
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

    def _in_folds(self, rows: Rows, method: str, max_memory: int | str | None = None) -> Rows:
        """Return rows, which a method adds or removes, with their folds as groups."""
        return rows

    def _find(self, rows: Rows, max_memory: int | str | None) -> Any:
        """Return what the model needs of all rows at once."""

    def _needs_all_rows(self) -> str | None:
        """Return the name of the parameter for which `_find` finds anything."""
        return None

    def _check_fit(self, model: Any) -> None:
        """Raise an error for a model that `fit` does not accept, and warn of what it leaves out."""

    def _check_stream(self, model: Any) -> None:
        """Raise an error for a model that cannot predict, and warn of what it leaves out."""

    def _maps(self) -> Lifting | None:
        """Return the feature map of the moments; raise an error for one without a pickle."""
        maps, standardized = before_standardize(self.feature_map)
        if standardized and not self._scales:
            expected = "Standardize(moments): the rows of this estimator are counted behind it"
            raise unexpected("feature_map", self.feature_map, expected)
        found = Lifting.of(maps)
        try:
            pickle.dumps(found)
        except Exception as error:
            raise InvalidParameterError(
                f"feature_map={shown(self.feature_map)} cannot be pickled, as copies, workers and "
                f"files need; define its functions in a module: {error}"
            ) from None
        return found

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
        allowed = reading.get("max_memory")
        rows = new._in_folds(rows, "fit", allowed)
        new.moments_ = new._added(new._empty(), rows, max_memory=allowed)
        if new.moments_.n_features is None:
            raise InvalidDataError(NO_ROWS)
        new._found = new._find(rows, allowed) if new._needs_all_rows() else None
        new._scored(new._check_fit)
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
        first = "moments_" not in vars(self)
        plain = sample_weight is half_life is None and not reading
        if plain and not first and self._is_usual(X, y, classes):
            self.moments_.update(X, y)
            return self
        new = self._copy_to_learn(reset=first)
        rows = new._read(X, y, sample_weight, reading, reset=first)
        rows = new._in_folds(rows, "partial_fit")
        moments = new._empty() if first else new.moments_
        if classes is not None:
            new._declare(classes, moments)
        if half_life is not None:
            expected = "a number of rows above 0, or None to forget nothing"
            half_life = as_number("half_life", half_life, expected, LEAST)
            check_lengths(as_source(rows.X))  # The age of each row has to be known.
            n_rows = rows.X.shape[0]
            with np.errstate(over="ignore"):
                weights = np.exp2(np.arange(1 - n_rows, 1) / half_life)
            if rows.weight is not None:
                weights *= as_weights(rows.weight, n_rows)
            rows = replace(rows, weight=weights)
            if moments.n_features is not None:
                moments = moments * float(0.5 ** (n_rows / half_life))
        known, allowed = new._declared, reading.get("max_memory")
        moments = new._added(moments, rows, expected=known, max_memory=allowed)
        if known is not None and moments.n_features and moments.classes.size < known.size:
            moments = moments.declare(known)
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
        rows = new._in_folds(new._read(X, y, sample_weight, reading), "forget")
        empty = new._empty(new.moments_.covariance_type)
        new.moments_, new._found = new.moments_ - new._added(empty, rows), None
        self.__dict__ = new.__dict__
        return self

    def _copy_to_learn(self, reset: bool = False) -> Self:
        """Return a copy with the same moments, to be changed before it replaces the estimator."""
        new = self._unfitted() if reset else self._copied(vars(self))
        new._check_parameters()
        needed = new._needs_all_rows()
        if needed:
            raise InvalidParameterError(
                f"{needed} needs all rows at once, so that partial_fit and forget cannot add or "
                f"remove any; call fit with all of them, or use {self._instead}"
            )
        if not reset:
            new.__dict__.pop("_models", None)
            check_covers(self.moments_._structure, self._empty()._structure)
            # A transformer that was loaded without its code gets it again.
            self.moments_._lifting = joined_maps(self._maps(), self.moments_)
        return new

    def _is_usual(self, X: Any, y: Any, classes: Any) -> bool:
        """Return True for arrays that the moments check themselves, with nothing to convert."""
        known = self._declared
        return (
            self._is_plain(X)
            and (classes is None or (known is not None and np.array_equal(classes, known)))
            and type(y) is np.ndarray
            and y.shape == X.shape[:1]
            and y.dtype.kind != "f"
            and self._found is self.feature_map is self.moments_.feature_map is None
            and self._needs_all_rows() is None
            and type(self.moments_) is ClassMoments
            and not self._n_targets
            and type(self)._summed is MomentEstimator._summed
            and (known is None or bool((find(y, known) >= 0).all()))
        )

    def _declare(self, classes: Any, moments: ClassMoments) -> None:
        """Keep the labels that may occur."""
        labels, known = np.unique(as_labels(classes, "classes")), self._declared
        other = moments.classes[find(moments.classes, labels) < 0]
        if known is not None and [labels.dtype.kind, *labels] != [known.dtype.kind, *known]:
            raise InvalidParameterError(
                f"classes={shown(labels.tolist())} is not the same as on the last call to "
                f"partial_fit, was: {shown(known.tolist())}; pass these, or none"
            )
        if other.size:
            raise InvalidParameterError(
                f"classes={shown(labels.tolist())} lacks {shown(other.tolist())}, of which rows "
                f"were learned; pass all labels, or none"
            )
        self._declared = labels

    def _empty(self, kind: str | None = None) -> Any:
        """Return moments without rows, by default of the kind that the parameters ask for."""
        return ClassMoments(kind or self._covariance_type(), feature_map=self._maps())

    def _added(self, moments: Any, rows: Rows, **options: Any) -> Any:
        """Return moments with rows added; options as of `streamgda.engine.accumulate_into`."""
        options = {name: value for name, value in options.items() if value is not None}
        moments = engine.accumulate_into(moments, self._summed(rows), **options)
        if not self._n_targets and "feature_names_in_" in vars(self):
            moments._name_features(names_in(self))
        return moments

    def _copied(self, state: Mapping[str, Any]) -> Self:
        """Return another estimator with these attributes."""
        new: Self = object.__new__(type(self))
        new.__dict__ = dict(state)
        return new

    def _unfitted(self) -> Self:
        """Return a copy without what was learned."""
        return self._copied({k: v for k, v in vars(self).items() if k not in _LEARNED})

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
        check_type("moments", moments, *cls._kinds)
        estimator = cls(**params)
        with moments._lock:  # Another thread may be adding rows.
            if estimator.feature_map is None and moments.feature_map is not None:
                estimator.feature_map = moments.feature_map
            estimator._check_parameters()
            if moments.n_features is None:
                raise InvalidDataError(NO_ROWS)
            estimator._adopt(moments)
        estimator._scored(estimator._check_fit)
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

    def _scored(self, check: Callable[[Any], None] | None = None) -> Scored:
        """Return the model of the moments and the parameters as they are, computed once.

        It is checked, by default as that of a stream.
        """
        state = self.__dict__  # Another thread may replace it.
        if "moments_" not in state:
            check_is_fitted(self)
        moments, models = state["moments_"], state.setdefault("_models", {})
        scored = models.get(moments.changes)
        if scored is None:
            with moments._lock:  # Another thread may be adding rows.
                changes = moments.changes
                try:
                    scored = self._copied(state)._compute_model()
                    (check or self._check_stream)(scored.model)
                except StreamGDAError as error:  # Attributes that follow from it are missing.
                    raise as_attribute_error(error) from None
            models.clear()
            models[changes] = scored  # It is lost if a parameter was set meanwhile.
        return scored

    def _compute_model(self) -> Scored:
        """Return the model, and the map of the rows that it scores."""
        self._check_parameters()
        self.moments_._lifting = joined_maps(self._maps(), self.moments_)
        needed = self._needs_all_rows()
        if needed and self._found is None:
            raise UnsupportedError(
                f"{needed} needs all rows at once, and the model is of rows that were added, "
                f"merged or removed, or of other parameters; call fit"
            )
        moments = self._moments_of_kind()
        lifting = moments._lifting
        model = self._make_model(moments, self._found)
        return Scored(model, None if lifting is None else lifting.of_features)

    def _moments_of_kind(self) -> ClassMoments:
        """Return the moments of all rows, as the parameters ask for them."""
        try:
            return self._as_asked(self.moments_)[0]
        except StreamGDAError as error:  # Attributes that follow from it are missing.
            raise as_attribute_error(error) from None

    def _as_asked(self, *moments: ClassMoments) -> list[ClassMoments]:
        """Return moments of the kind and behind the map of the parameters.

        A last `Standardize` without moments is that of the first.
        """
        kind = self._covariance_type()
        found = [each if each.covariance_type == kind else each.reduce(kind) for each in moments]
        if before_standardize(self.feature_map)[1]:
            return standardized(*found, n_targets=self._n_targets)
        return found

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
        return super().set_params(**params)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; the model is computed anew, also after ``estimator.alpha = 2``."""
        state = self.__dict__  # That of another estimator, if `__dict__` is set, keeps its model.
        super().__setattr__(name, value)
        state.pop("_models", None)
        if name in _FINDING:
            state.pop("_found", None)

    def __sklearn_is_fitted__(self) -> bool:
        return "moments_" in vars(self)

    def _get_fitted_attr_html(self, doc_link: str = "") -> str:
        """Return no table for notebooks, for which scikit-learn 1.9 computes every attribute."""
        return ""

    def _locked(self) -> Any:
        """Return the lock of the moments, which are saved as they are between changes."""
        return self.moments_._lock if "moments_" in vars(self) else contextlib.nullcontext()

    def __getstate__(self) -> Any:
        """Return the attributes for copies and pickles, with a copy of the moments."""
        state = dict(super(Saved, self).__getstate__())
        state.pop("_models", None)
        if "moments_" in state:
            state["moments_"] = state["moments_"].copy()
        return state

    # --- predictions --------------------------------------------------------------------------

    def _map(
        self,
        name: str,
        method: str,
        X: Any,
        reading: Reading | None = None,
        scored: Scored | None = None,
        *,
        labels: np.ndarray | None = None,
        of_features: bool = True,
        options: Mapping[str, Any] = MappingProxyType({}),
        **about: Any,
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
            The model from which labels, columns and options were taken.
        labels : ndarray, optional
            All values of the results, if these are labels; otherwise they are float64.
        of_features : bool
            Rows have the features of the estimator.
        options : dict, optional
            Options of the method.
        **about
            Of results with columns: their number, `columns`, and the `classes` that they are of.
        """
        model, feature_map = self._scored() if scored is None else scored
        feature_map = feature_map if of_features else None
        answer = Answer(model, method, options, feature_map)
        if not reading and of_features and self._is_plain(X):
            return answer(X)
        given: dict[str, Any] = {**(reading or {})}
        out, fill = given.pop("out", None), given.pop("fill", None)
        planned = {key: given.pop(key) for key in ("keys", "max_memory") if key in given}
        on_missing = given.pop("on_missing", "raise")
        self._check_options(given)
        rows = Rows.of(X, actions=SCORING, **given)
        source = validated_rows(self, rows.X) if of_features else as_source(rows.X)
        marginal, filled = on_missing == "marginal", rows.rule.action == "fill"
        if not marginal and on_missing != "raise":
            raise unexpected("on_missing", on_missing, "'raise' or 'marginal'")
        if marginal and (feature_map is not None or not hasattr(model, "marginal")):
            raise InvalidParameterError(
                "on_missing='marginal' needs densities of the features as they are, which this "
                "estimator does not have; fill in the values that are missing, or pass "
                "on_invalid='fill'"
            )
        if marginal or feature_map is not None or not getattr(model, "takes_sparse", False):
            source = Rows(source).dense().X
        value = None
        if fill is not None and not filled:
            raise InvalidParameterError(
                f"fill={shown(fill)}, and on_invalid='raise': no row is filled; pass "
                f"on_invalid='fill'"
            )
        if filled and labels is None:
            value = as_numbers("fill", np.nan if fill is None else fill, "one number, or NaN")
            if value.ndim:
                raise unexpected("fill", fill, "one number, or NaN")
        elif labels is not None and filled:
            labels = with_label(labels, "fill", fill, model.classes)
            value = labels[-1:].reshape(())
        answer = replace(answer, rule=rows.rule, value=value, marginal=marginal)
        if value is not None:
            value = value.item() if value.dtype.kind in "biuf" else value[()]
        return engine.score(
            answer,
            source,
            out,
            dtype=np.dtype(np.float64) if labels is None else labels.dtype,
            labels=labels,
            name=name,
            fill=value,
            fingerprint=None if out is None else {"method": name, **answer.fingerprint},
            held=int(model.nbytes),
            **about,
            **planned,
        )

    def _is_plain(self, X: Any) -> bool:
        """Return True for an array with nothing to convert, to plan or to warn of."""
        return (
            type(X) in (np.ndarray, np.memmap)
            and X.dtype.kind in "iuf"
            and X.shape[1:] == (self.n_features_in_,)
            and 0 < X.nbytes <= _AT_ONCE
            and "feature_names_in_" not in vars(self)
        )

    # --- validation ---------------------------------------------------------------------------

    def _check_options(self, given: Mapping[str, Any]) -> None:
        """Raise `TypeError` for options that are none of reading rows."""
        for name in sorted(given.keys() - self._reads):
            raise TypeError(f"{type(self).__name__} got an unexpected keyword argument {name!r}")

    def _read(self, X: Any, y: Any, weight: Any, reading: Any = (), *, reset: bool = False) -> Rows:
        """Return labelled rows that fit the estimator."""
        given = {name: value for name, value in dict(reading).items() if name != "max_memory"}
        self._check_options(given)
        rows = Rows.of(X, y, weight, **given)
        y = rows.y
        if y is None and get_tags(self).target_tags.required:
            raise InvalidParameterError(
                f"y is missing: {type(self).__name__} requires y to be passed, but the target y is "
                f"None; give one label for each row"
            )
        if isinstance(y, np.ndarray | list | tuple) and np.shape(y)[1:] == (1,):
            y = column_or_1d(y, warn=not isinstance(rows.X, RowSource))
        return replace(rows, X=validated_rows(self, rows.X, reset=reset), y=y)

    # --- saving -------------------------------------------------------------------------------

    def _description(self) -> dict[str, Any]:
        held = getattr(self, "moments_", None)
        params, defaults = (each.get_params(deep=False) for each in (self, type(self)()))
        changed = {k: v for k, v in params.items() if repr(v) != repr(defaults[k])}
        own = {"features": getattr(self, "n_features_in_", None), "parameters": changed}
        return {} if held is None else held._description() | super()._description() | own

    def _state(self) -> State:
        check_is_fitted(self)
        self._check_parameters()
        params = self.get_params(deep=False)
        params.pop("feature_map", None)  # That of the moments.
        names = names_in(self)
        state: State = {
            "params": {name: plain(name, value) for name, value in params.items()},
            "names": names and [*names],
            "n_features_in": self.n_features_in_,
            "standardized": before_standardize(self.feature_map)[1],
            "moments": self.moments_._state(),
        }
        if self._declared is not None:
            state["declared"] = pack_labels(self._declared)
        if self._found is not None:
            state["found"] = np.asarray(self._found)
        return state

    @classmethod
    def _from_state(cls, state: Mapping[str, Any]) -> Self:
        kinds = get_args(cls._kinds[0]) or cls._kinds[:1]  # Those with groups come last.
        moments = kinds[-1 if "groups" in state["moments"] else 0]._from_state(state["moments"])
        estimator = cls(**{name: from_plain(value) for name, value in state["params"].items()})
        estimator.feature_map = moments.feature_map
        if state["standardized"] is True:
            estimator.feature_map = with_standardize(moments.feature_map)
        estimator._check_parameters()
        estimator._restore(state)
        joined_maps(estimator._maps(), moments)
        estimator.moments_ = moments
        width = check_whole("n_features_in", state["n_features_in"], 1)
        if moments._n_features_in not in (None, width + estimator._n_targets):
            raise ValueError("its moments are of another number of features")
        estimator.n_features_in_ = width
        names = restored_names({"feature_names": state["names"]}, width)
        if names is not None:
            estimator.feature_names_in_ = np.array(names, object)
        if "declared" in state:
            estimator._declared = unpack_labels(state["declared"])
        if "found" in state:
            estimator._found = estimator._checked_found(state["found"])
        return estimator

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Take what a subclass has added to the state."""

    def _checked_found(self, found: np.ndarray) -> Any:
        """Return what `fit` found, from a file; raise ValueError for what it cannot have found."""
        return found


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


def plain(name: str, value: Any) -> Any:
    """Return a parameter as JSON; raise `InvalidParameterError` for one that no file holds."""
    found = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(found, Mapping):  # Weights of classes, or values of parameters, are dicts.
        values = [plain(name, each) for each in found.values()]
        return {"keys": np.asarray([*found]).tolist(), "values": values}
    if isinstance(found, list | tuple):
        return [plain(name, each) for each in found]
    if found is None or isinstance(found, bool | int | float | str):
        return found
    raise InvalidParameterError(
        f"an estimator with {name}={shown(value)} cannot be saved, as files hold no code; use "
        f"pickle or joblib"
    )


def from_plain(found: Any) -> Any:
    """Return a parameter from the result of `plain`."""
    if isinstance(found, Mapping):
        return dict(zip(found["keys"], map(from_plain, found["values"]), strict=True))
    return [from_plain(each) for each in found] if isinstance(found, list) else found


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
        try:
            X = validate_data(estimator, X, reset=reset, dtype="numeric", ensure_all_finite=False)
        except OverflowError as error:
            raise InvalidDataError(f"X holds integers that no float can hold: {error}") from None
    elif len(X.shape) != 2 or np.isnan(X.shape[1]):
        raise_for_shape(X.shape)
    elif reset:
        estimator.n_features_in_ = int(X.shape[1])
        vars(estimator).pop("feature_names_in_", None)
        if X.feature_names is not None:
            estimator.feature_names_in_ = np.array(X.feature_names, object)
    else:
        _check_names(estimator, X.feature_names)
        if X.shape[1] != estimator.n_features_in_:
            raise InvalidDataError(
                f"X has {X.shape[1]} features, but {type(estimator).__name__} is expecting "
                f"{estimator.n_features_in_} features as input"
            )
    lifting = Lifting.of(before_standardize(getattr(estimator, "feature_map", None))[0])
    if reset and lifting is not None:
        mapping, own = lifting.maps[0], names_in(estimator)
        names = mapping.names if isinstance(mapping, Transformer) else None
        if names is not None and own is not None and names != own:
            raise InvalidDataError(
                f"feature_map is a {mapping!r} of the columns {shown([*names])}, and X has the "
                f"columns {shown([*own])}; give them in the same order"
            )
    return X


def _check_names(estimator: Any, names: tuple[str, ...] | None) -> None:
    """Check names of features as scikit-learn does, which knows those of frames only."""
    held, kind = names_in(estimator), type(estimator).__name__
    if names is None and held is not None:
        warn(f"X does not have valid feature names, but {kind} was fitted with feature names")
    elif names is not None and held is None:
        warn(f"X has feature names, but {kind} was fitted without feature names")
    elif names is not None and held is not None and names != held:
        message = "The feature names should match those that were passed during fit.\n"
        unseen, missing = sorted({*names} - {*held}), sorted({*held} - {*names})
        for heading, some in (
            ("unseen at fit time", unseen),
            ("seen at fit time, yet now missing", missing),
        ):
            listed = "".join(f"- {name}\n" for name in some[:5]) + "- ...\n" * (len(some) > 5)
            message += f"Feature names {heading}:\n{listed}" if some else ""
        if not unseen and not missing:
            message += "Feature names must be in the same order as they were in fit.\n"
        raise InvalidDataError(message)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn the first caller that is not of the package."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("streamgda."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
