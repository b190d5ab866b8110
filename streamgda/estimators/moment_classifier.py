"""`MomentEstimator` learns models that follow from moments; `MomentClassifier` scores classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack, overload

import numpy as np
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from streamgda import engine
from streamgda.engine.plan import distinct_labels
from streamgda.engine.progress import Progress
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MemoryBudgetError,
    SingularCovarianceError,
    StreamGDAError,
    UnsupportedError,
    as_attribute_error,
)
from streamgda.estimators.export import Counterpart
from streamgda.estimators.held_out import Scored, add_up, scored_rows
from streamgda.estimators.row_estimator import (
    Comparing,
    GapScoring,
    Reading,
    RowEstimator,
    Scorer,
    names_in,
    takes,
)
from streamgda.models.calibration import best_temperature
from streamgda.models.model import check_classes, check_priors
from streamgda.models.sampling import as_random_numbers
from streamgda.models.shrinkage import TWO_PASSES
from streamgda.moments import ClassMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.moments.feature_maps import Lifting
from streamgda.rows import Rows
from streamgda.rows.arrays import read_only
from streamgda.rows.counting import CHECK_SUMS, SCORING, Slab, as_weights
from streamgda.rows.labels import (
    as_labels,
    as_objects,
    check_expected,
    code,
    find,
    join_labels,
    label_of_none,
    refuse_missing,
    sorted_labels,
)
from streamgda.rows.names import ATTRIBUTE, Names, restored_names
from streamgda.rows.source import as_source, check_lengths, how_to_count
from streamgda.runtime.interruption import Lock
from streamgda.runtime.memory import readable, spare_memory
from streamgda.runtime.parameters import LEAST, as_integer, as_number, as_numbers, check_type, shown
from streamgda.storage.format import check_whole, pack_labels, unpack_labels
from streamgda.storage.saved import (
    Saved,
    State,
    arrays_within,
    build,
    check_params,
    class_named,
    describe,
    nested,
    restore,
    synchronized,
)

NO_ROWS = "every sample_weight is zero, or every row is unlabelled or invalid: no row is left"
_FADED = 2.0**-64  # weight of earlier rows that is too small to divide weights by

_OWN = {"score_samples": "own_log_density", "mahalanobis": "own_mahalanobis"}  # given the classes
_TEMPERED = ("predict_proba", "predict_log_proba")
# Methods as functions of joint log-likelihoods, for subclasses that compute these.
_OF_JOINT: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "predict": lambda joint, classes: classes[joint.argmax(axis=1)],
    "predict_proba": lambda joint, _: softmax(joint, axis=1),
    "predict_log_proba": lambda joint, _: log_softmax(joint, axis=1),
    "predict_joint_log_proba": lambda joint, _: joint,
    "score_samples": lambda joint, _: logsumexp(joint, axis=1),
}

Kind = TypeVar("Kind", bound="MomentEstimator")

if TYPE_CHECKING:
    fitted = property
else:

    def fitted(method: Callable[[Any], Any]) -> property:
        """Return a property whose arrays are read-only, and which cannot be set."""

        @wraps(method)
        def get(instance: Any) -> Any:
            value = method(instance)
            if isinstance(value, list):
                return tuple(map(read_only, value))
            return read_only(value) if isinstance(value, np.ndarray) else value

        def refuse_setting(instance: Any, value: Any) -> None:
            kind = type(instance).__name__
            raise AttributeError(
                f"{method.__name__} of {kind} follows from what was learnt, and cannot be set. For "
                f"other parameters, such as priors, call set_params and then refit(); for a model "
                f"of given numbers, {kind}.from_parameters"
            )

        return property(get, refuse_setting)


class Derived(dict[str, Any]):
    """The model and other values that follow from what was learnt; only the model is pickled.

    Attributes
    ----------
    changes : int
        Number of changes of the moments that the values follow from.
    """

    changes = 0

    def __reduce__(self) -> Any:
        kept = {"model": self["model"]} if "model" in self else {}
        return type(self), (kept,), {"changes": self.changes}


class MomentEstimator(RowEstimator):
    """Base of the estimators, which define the moments to keep and the model they determine.

    Methods that learn hold the estimator's lock. On an error or an interruption they restore its
    attributes in one assignment.

    The model and all fitted attributes depend on the moments, on ``_beside`` and on ``_settings``,
    the parameters at the time of learning. Methods that are called on the settings (`_kept`,
    `_scalings`, `_summed` and `_make_model`) use parameters and arguments only; others read
    parameters from ``_settings``.

    Attributes
    ----------
    moments_ : ClassMoments
        All that was kept of the rows.
    _beside : object or None
        What the model depends on besides the moments, in some classes.
    _settings : estimator of the same class
        Unfitted copy that holds the parameters as they were when the estimator last learnt, which
        neither `set_params` nor changes of arrays that were passed reach.
    _derived : Derived
        The model and other values that were computed since then.
    _numbers : dict or None
        Arguments of `from_parameters`, if it made the estimator, which then has no moments.
    _declared : ndarray, sorted, or None
        All labels that `partial_fit` takes, if it was passed its `classes`.
    _single : bool
        All rows so far were float32, and so are results.
    """

    _model_type: Any
    _any_sum_of_priors = False  # priors are accepted that do not sum to one
    _float32_of_float32 = False  # float32 rows have float32 results
    _least_classes = 1  # classes that `fit` needs rows of
    # Methods of the model behind methods, and its attribute with an entry for each column.
    _model_methods: Mapping[str, tuple[str, str | None]]
    _only_shown = False  # True for a copy that computes no attributes
    _beside: Any = None
    _settings: Self
    _derived: Derived
    _numbers: Mapping[str, np.ndarray] | None = None
    _declared: np.ndarray | None = None
    _single = False
    _lock: Lock | None = None

    # --- parameters -------------------------------------------------------------------------

    def _covariance_type(self) -> str:
        raise NotImplementedError

    def _kept(self) -> dict[str, Any]:
        """Return the parameters of the moments to keep; refuse parameters that do not work."""
        self._check_priors()
        mapped = Lifting.of(getattr(self, "feature_map", None))
        kind = self._covariance_type()
        return {"covariance_type": kind, "feature_map": mapped}

    def _empty(self, kept: Mapping[str, Any], kind: Any = ClassMoments) -> Any:
        """Return moments without rows, of parameters that `_kept` returns."""
        return kind(**kept)

    def _scalings(self) -> tuple[str, ...]:
        """Return the scalings of the rows that a second pass needs; see `accumulate_again`."""
        return ()

    def _check_supported(self) -> None:
        """Raise an error for a combination of parameters that files alone may have."""

    def _check_one_pass(self) -> None:
        """Raise `InvalidParameterError` if rows have to be read twice."""
        if self._scalings():
            raise InvalidParameterError(
                f"shrinkage={getattr(self, 'shrinkage', None)!r} {TWO_PASSES}"
            )

    def _check_priors(self, classes: np.ndarray | None = None) -> None:
        """Raise an error for priors that no rows, or none of these classes, can have."""
        name = "class_prior" if hasattr(self, "class_prior") else "priors"
        priors = getattr(self, name, None)
        if priors is not None:
            priors = as_numbers(name, priors, "one number for each class")
            classes = np.arange(priors.size) if classes is None else classes
            normalised = not self._any_sum_of_priors
            check_priors(priors, classes, np.ones(classes.size), name, normalised=normalised)

    def _current_settings(self) -> Self:
        """Return an unfitted copy with the present parameters: `_settings` if none changed.

        As scikit-learn has it, parameters are the attributes that no underscore begins or ends, so
        that those count, too, which a subclass sets or passes on by ``**kwargs``.
        """
        present = self.__dict__
        last: Self | None = present.get("_settings")
        if last is not None:
            for name, used in last.__dict__.items():
                value: Any = present.get(name)
                if value is not used and (
                    type(value) is not type(used) or not np.array_equal(value, used)
                ):
                    break
            else:
                return last
        settings: Self = object.__new__(type(self))
        for name, value in vars(self).items():
            if not (name.startswith("_") or name.endswith("_")):
                # Maps never change, and a clone of a fitted transformer is not fitted.
                mapped = list(value) if isinstance(value, list) else value
                settings.__dict__[name] = mapped if name == "feature_map" else _copied(value)
        return settings

    # --- learning ---------------------------------------------------------------------------

    def _summed(self, rows: Rows) -> Rows:
        """Return the rows whose moments are kept: these, or a transformation of them.

        It need not look at rows that do not count.
        """
        return rows

    @takes(Reading)
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, **reading: Unpack[Reading]
    ) -> Self:
        """Fit the model to rows, in one pass over them.

        There is a cheap second pass if standard deviations are needed first, for
        ``shrinkage="auto"``.

        To bound the memory of the pass, keep a checkpoint or show progress, call `accumulate` of
        the estimator, and pass the result to `from_moments`.

        Parameters
        ----------
        X : array-like, numpy.memmap, zarr.Array, dask.array.Array or data frame
            Rows, shape (n_rows, n_features), of any real type. Naive Bayes and other
            covariance types without covariances between features also take sparse matrices and
            arrays of scipy.
        y : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
            Class labels.
        sample_weight : array-like, shape (n_rows,), optional
            Non-negative weights; a row of weight zero is ignored.
        features : str, optional
            Name of the dimension that holds the features, if `X` is a DataArray.
        unlabelled : label or sequence of labels, optional
            Labels of rows that do not count, whatever they hold.
        nodata : int or float, optional
            Value that marks missing measurements.
        on_invalid : {"raise", "skip"}
            Raise an error for rows with NaN, infinity, masked values, `nodata` or a missing label,
            or leave them out; ``moments_.n_skipped`` counts them.

        Returns
        -------
        estimator
            The estimator itself.

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used.
        InvalidParameterError
            For parameters out of range.
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
        rows = self._read("fit", X, y, sample_weight, reading)
        try:
            return self._learn(self._of_all_rows, rows, adds=True, afresh=True, checked=True)
        except SingularCovarianceError as error:
            message = f"{error}. To sample such classes, call partial_fit(X, y) in place of fit"
            if getattr(rows.X, "dtype", None) == np.float32:
                message += (
                    ". The rows are float32, and products of many features are computed in it: as "
                    "float64, X.astype(float), they may have an inverse"
                )
            error.args = (message,)
            raise

    def refit(self) -> Self:
        """Apply the present parameters to the rows learnt so far, without reading them again.

        Parameters that `set_params` changes, such as priors, count from the next `fit` or
        `partial_fit` on. This is the same without rows.

        Returns
        -------
        estimator
            The estimator itself.

        Raises
        ------
        InvalidParameterError
            For parameters out of range, and those that need the rows; the estimator is unchanged.
        SingularCovarianceError
            If a covariance has no inverse; the estimator is unchanged.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> nb.set_params(priors=[0.9, 0.1]).refit().class_prior_
        array([0.9, 0.1])
        """
        check_is_fitted(self)
        return self._learn(lambda settings, held, rows: held, checked=True)

    @takes(Reading)
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

        Several threads may add rows to the same estimator, and use it meanwhile: they take turns.
        An interruption, such as Ctrl-C, leaves the estimator without these rows or with all of
        them.

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
            the oldest first. By default nothing is forgotten.
        features, unlabelled, nodata, on_invalid : see `fit`
            How rows are read, and which of them count.

        Returns
        -------
        estimator
            The estimator itself.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            See `fit`; the estimator is then unchanged. Problems of the model itself, such
            as a singular covariance, are reported when it is used.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB()
        >>> for X, y in ([[1.0], [3.0]], ["ant", "ant"]), ([[6.0], [8.0]], ["bee", "bee"]):
        ...     _ = nb.partial_fit(X, y)
        >>> nb.theta_.ravel(), nb.predict([[2.0], [5.0]])
        (array([2., 7.]), array(['ant', 'bee'], dtype='<U3'))
        """
        plain = sample_weight is half_life is None and not reading
        if plain and self._add_at_once(X, y, classes):
            return self
        rows = self._read("partial_fit", X, y, sample_weight, reading)
        adding = partial(self._with_rows, classes=classes, half_life=half_life)
        return self._learn(adding, rows, adds=True if half_life is None else None)

    @takes(Reading)
    def forget(self, X: Any, y: Any, sample_weight: Any = None, **reading: Unpack[Reading]) -> Self:
        """Remove rows: the model is then as if they had never been added.

        The result is the same to rounding, and bit for bit for 8- and 16-bit integers without
        weights. A class that is left without rows is dropped.

        Parameters
        ----------
        X, y : see `fit`
            Rows and labels, as they were passed to `fit` or `partial_fit`. Whether these very rows
            were added cannot be checked. It is an error if there were fewer of a class, or if a sum
            of squares would be left that no rows have, by more than rounding.
        sample_weight : array-like, shape (n_rows,), optional
            Weights of the rows; with a half-life, those that they have by now.
        features, unlabelled, nodata, on_invalid : see `fit`
            How rows are read, and which of them count.

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
        rows = self._read("forget", X, y, sample_weight, reading)
        return self._learn(
            lambda settings, held, rows: held - self._added(empty_like(held), settings, rows), rows
        )

    def _add_at_once(self, X: Any, y: Any, classes: Any) -> bool:
        """Add a few rows that need no conversion, with labels that are classes already.

        Returns False, with nothing changed, for all other rows, after a change of the parameters,
        and if there is anything to warn of.
        """
        if type(X) is not np.ndarray or type(y) is not np.ndarray or X.ndim != 2:
            return False
        held = self.__dict__
        with self._locked():
            moments = held.get("moments_")
            if moments is None or "feature_names_in_" in held or moments._scaled_fourth():
                return False
            settings = self._current_settings()
            if settings is not self._settings or self._beside is not None:
                return False
            if self._single and X.dtype != np.float32:
                return False
            if classes is not None and not self._is_declared(classes):
                return False
            rows = X
            if type(self)._summed is not MomentEstimator._summed:
                rows = settings._summed(Rows(X, y)).X
            return type(rows) is np.ndarray and moments._add_at_once(rows, y)

    def _learn(
        self,
        change: Callable[..., ClassMoments],
        rows: Rows | None = None,
        *,
        adds: bool | None = False,
        afresh: bool = False,
        checked: bool = False,
    ) -> Self:
        """Adopt the moments that a function returns, or stay as before if there is an error.

        Parameters
        ----------
        change : callable
            Called as ``change(settings, moments so far, rows)``.
        rows : Rows, optional
        adds : bool or None
            The rows are added, with their weights; None if weights decay. Subclasses use it that
            keep more than the moments.
        afresh : bool
            Whatever was learnt before does not count.
        checked : bool
            The moments have to determine a model.
        """
        with self._locked():
            before = vars(self).copy()
            moments = before.get("moments_")
            changes = None if moments is None else moments.changes
            settings = self._current_settings()
            try:
                first = afresh or not self.__sklearn_is_fitted__()
                kept = settings._kept() if checked or first else {}
                if kept:
                    settings._check_supported()
                if afresh:
                    self._declared = self._beside = None
                if not first:
                    self._check_kept(settings, rows_change=rows is not None)
                elif not afresh:
                    settings._check_one_pass()
                if rows is not None:
                    rows = self._validated(rows, reset=first)
                    single = self._float32_of_float32 and rows.X.dtype == np.float32
                    self._single = single and (first or self._single)
                held = self._empty(kept) if first else self.moments_
                self._adopt(change(settings, held, rows), settings)
                if checked:
                    self._check_fitted()
            except BaseException:
                # Moments that an interruption found complete have another model.
                if moments is not None and moments.changes != changes:
                    before["_settings"] = settings
                self.__dict__ = before
                raise
        return self

    def _added(
        self, moments: ClassMoments, settings: Self, rows: Rows, **options: Any
    ) -> ClassMoments:
        """Return moments with rows added; options as of `streamgda.engine.accumulate_into`."""
        moments = engine.accumulate_into(moments, settings._summed(rows), **options)
        moments._name_features(self._column_names())
        return moments

    def _of_all_rows(
        self, settings: Self, empty: ClassMoments, rows: Rows, **options: Any
    ) -> ClassMoments:
        """Return the moments of the rows of `fit`, which may be read twice."""
        moments = self._added(empty, settings, rows, **options)
        scalings = settings._scalings()
        if scalings and moments.n_features is not None:
            planned = {k: options[k] for k in ("max_memory", "progress") if k in options}
            engine.accumulate_again(moments, scalings, rows, **planned)
        return moments

    def _with_rows(
        self,
        settings: Self,
        held: ClassMoments,
        rows: Rows,
        classes: Any,
        half_life: float | None,
    ) -> ClassMoments:
        """Return the moments with more rows, most often the same object."""
        declared, decay = self._newly_declared(classes, held), None
        if half_life is not None:
            weight, decay = half_life_weights(half_life, rows.X.shape[0], rows.weight)
            rows = replace(rows, weight=weight)
        first = held.n_features is None
        if first or declared is not None or (decay is not None and decay < _FADED):
            empty = held if first else empty_like(held)
            moments = self._added(empty, settings, rows, expected=self._declared)
            if not first:
                moments = (held if decay is None else held * decay) + moments
            return moments if declared is None else moments.declare(declared)
        if decay is not None:
            rows = replace(rows, weight=rows.weight / decay)
        return engine.accumulate_into(held, settings._summed(rows), decay, self._declared)

    def _column_names(self) -> Names | None:
        """Return the names of the columns that the moments are of."""
        return names_in(self)

    def _check_fitted(self) -> None:
        """Raise an error unless the moments determine a model."""
        if self.moments_.n_features is None:
            raise InvalidDataError(NO_ROWS)
        if self._least_classes > 1:
            check_classes(self.moments_.classes, self.moments_.class_count, self._least_classes)
        self.model_  # noqa: B018

    def _check_kept(self, settings: Self, rows_change: bool = True) -> None:
        """Raise `InvalidParameterError` unless the moments so far have what settings keep."""
        twice = bool(self.moments_._scaled_fourth())
        if (twice and rows_change) or (settings is not self._settings and not twice):
            settings._check_one_pass()
        if settings is self._settings:
            return
        kept = settings._kept()
        if self.moments_.covariance_type != kept["covariance_type"]:
            held = structure_of(self.moments_.covariance_type)
            wanted = structure_of(kept["covariance_type"])
            reduced = f", or from_moments with moments_.reduce({wanted.name!r})"
            raise InvalidParameterError(
                f"covariance_type={wanted.name!r}, but the rows so far were kept for "
                f"{held.name!r}; call fit{reduced if held.covers(wanted) else ''}"
            )
        # A transformer that was loaded without its code gets it again.
        self.moments_._lifting = joined_maps(kept, self.moments_)

    def _is_declared(self, classes: Any) -> bool:
        """Return True for the same classes as were declared before."""
        held = self._declared
        if held is None:
            return False
        plain = type(classes) is np.ndarray and classes.dtype == held.dtype
        # Most calls name just these classes: comparing bytes is fast.
        if plain and classes.ndim == 1 and classes.tobytes() == held.tobytes():
            return True
        return np.array_equal(np.unique(as_labels(classes, "classes")), held)

    def _newly_declared(self, classes: Any, moments: ClassMoments) -> np.ndarray | None:
        """Return classes that are declared for the first time, which are all from then on."""
        if classes is None or self._is_declared(classes):
            return None
        labels = np.unique(as_labels(classes, "classes"))
        if self._declared is not None:
            raise InvalidParameterError(
                f"classes={shown(labels.tolist())} is not the same as on the last call to "
                f"partial_fit, was: {shown(self._declared.tolist())}; pass these, or none"
            )
        held = moments.classes
        if held.size and (other := find(held, labels) < 0).any():
            raise InvalidParameterError(
                f"classes={shown(labels.tolist())} lacks {shown(held[other].tolist())}, of which "
                f"rows were learnt; pass all labels, or none"
            )
        self._declared = labels
        return labels

    def _locked(self) -> Lock:
        """Return the lock that is held while the estimator changes."""
        return self._lock or self.__dict__.setdefault("_lock", Lock())

    def __getstate__(self) -> Any:
        """Return the attributes for copies and pickles, with copies of what changes in place."""
        with self._locked():
            state = super().__getstate__()
            held = {name: state.get(name) for name in ("moments_", "_beside")}
            copies = {k: each.copy() for k, each in held.items() if isinstance(each, ClassMoments)}
            return state | copies

    # --- moments and model ------------------------------------------------------------------

    @fitted
    def moments_(self) -> ClassMoments:
        """Moments of all rows learnt so far; the estimator changes them when it learns."""
        held: ClassMoments | None = vars(self).get("moments_")
        if held is not None:
            return held
        kind = type(self).__name__
        if self._numbers is None:
            raise AttributeError(f"this {kind} is not fitted, and has no moments_")
        raise as_attribute_error(
            UnsupportedError(
                f"this {kind} was made by from_parameters and has no moments_, which it needs for "
                f"this; call fit with all rows, or from_moments"
            )
        )

    def __sklearn_is_fitted__(self) -> bool:
        return "moments_" in vars(self) or self._numbers is not None

    def _make_model(self, moments: ClassMoments, beside: Any = None) -> Any:
        """Return the model that moments, and what else it depends on, determine."""
        raise NotImplementedError

    @classmethod
    @synchronized
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
        if getattr(estimator, "feature_map", moments) is None:
            estimator.feature_map = moments.feature_map
        kept = estimator._kept()
        estimator._check_supported()
        joined_maps(kept, moments)
        estimator._adopt(moments.reduce(kept["covariance_type"]), estimator._current_settings())
        estimator.n_features_in_ = int(moments._n_features_in or 0)
        if moments.feature_names is not None:
            estimator.feature_names_in_ = np.array(moments.feature_names, object)
        estimator._check_fitted()
        return estimator

    def _adopt(self, moments: ClassMoments, settings: Self) -> None:
        self._settings, self._numbers, self._derived = settings, None, Derived()
        self._derived.changes = moments.changes
        self.__dict__["moments_"] = moments

    @fitted
    def model_(self) -> Any:
        """The model that the moments determine with the parameters of the last learning."""
        return self._once("model", self._compute_model)

    def _compute_model(self) -> Any:
        return self._model_behind(self.moments_, self._beside)

    def _model_of(self, moments: ClassMoments, beside: Any = None) -> Any:
        """Return the model that other moments determine, as `fit` would with these parameters."""
        check_classes(moments.classes, moments.class_count, self._least_classes)
        return self._model_behind(moments, beside)

    def _model_behind(self, moments: ClassMoments, beside: Any) -> Any:
        """Return the model of moments, which lifts rows as these were lifted."""
        model, lifting = self._settings._make_model(moments, beside), moments._lifting
        return model if lifting is None else replace(model, feature_map=lifting.of_features)

    # --- fitted attributes --------------------------------------------------------------------

    def _once(self, name: str, compute: Callable[[], Any], keep: bool = True) -> Any:
        """Return the result of a function, which may be kept until rows are learnt.

        Its errors are AttributeErrors too.
        """
        kept = self._still_derived()
        if name not in kept:
            if not self.__sklearn_is_fitted__():
                check_is_fitted(self)  # for its error
            if self._only_shown:
                raise AttributeError(f"{name} is computed when it is first used")
            with self._locked():  # the moments do not change meanwhile
                self._derived = kept = self._still_derived()
                if name not in kept:
                    try:
                        value = compute()
                    except StreamGDAError as error:
                        raise as_attribute_error(error) from None
                    if not keep:
                        return value
                    kept[name] = value
        return kept[name]

    def _still_derived(self) -> Derived:
        """Return what follows from the moments as they are: nothing once they have changed."""
        held = vars(self)
        kept, moments = held.get("_derived"), held.get("moments_")
        if kept is None or (moments is not None and kept.changes != moments.changes):
            kept = Derived()
            kept.changes = 0 if moments is None else moments.changes
        return kept

    def _with_attributes(self, **others: Any) -> Self:
        """Return another estimator that shares the attributes of this one, but for some."""
        made: Self = object.__new__(type(self))
        made.__dict__ = vars(self) | others
        return made

    # scikit-learn's `dir`, and its table of fitted attributes, evaluate all attributes. Here the
    # table leaves out those that were not computed yet.

    def __dir__(self) -> Iterable[str]:
        return object.__dir__(self)

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        only_shown = self._with_attributes(_only_shown=True)
        return super(MomentEstimator, only_shown)._get_fitted_attr_html(doc_link)

    @property
    def _held(self) -> Any:
        """The moments, or the model of an estimator that has none."""
        return self.moments_ if self._numbers is None else self.model_

    # --- given numbers ------------------------------------------------------------------------

    @classmethod
    def _of_numbers(
        cls, classes: Any, numbers: Mapping[str, Any], params: Mapping[str, Any]
    ) -> Self:
        """Return an estimator whose model follows from given numbers."""
        estimator = cls(**params)
        if estimator._kept()["feature_map"] is not None:
            raise InvalidParameterError(
                "feature_map is given, and from_parameters makes a model of features as they are; "
                "leave it out, and pass feature_map.transform(X) to predict"
            )
        estimator._check_supported()
        labels = sorted_labels(classes)
        given = {
            name: as_numbers(name, values, "an array of numbers")
            for name, values in numbers.items()
            if values is not None
        }
        model = build(estimator._model_of_numbers, labels, **given)
        estimator._settings, estimator._numbers = estimator._current_settings(), given
        estimator._derived, estimator.n_features_in_ = Derived(model=model), model.n_features
        return estimator

    def _model_of_numbers(self, classes: np.ndarray, **numbers: np.ndarray) -> Any:
        """Return the model of given numbers, with these parameters."""
        raise NotImplementedError

    # --- scoring ------------------------------------------------------------------------------

    def _model_for(self, method: str) -> Any:
        """Return the model that a method scores rows with."""
        return self.model_

    @property
    def _single_scores(self) -> tuple[str, ...]:
        """Scores of float32 rows that are float32, by their names in the model."""
        return ()

    def _scorer(self, method: str, **options: Any) -> Scorer:
        if method not in self._model_methods or not hasattr(self, method) or options:
            self._refuse_method(method)
        name = method + " of rows"
        return self._still_derived().get(name) or self._once(
            name, partial(self._make_scorer, method)
        )

    def _in_type(self, values: np.ndarray) -> np.ndarray:
        """Return values as float32 if all rows were, as in scikit-learn."""
        return values.astype(np.float32) if self._single else values

    def _make_scorer(self, method: str) -> Scorer:
        model = self._model_for(method)  # once: another thread may replace it
        name, axis = self._model_methods[method]
        width = None if axis is None else len(getattr(model, axis))
        if method == "decision_function" and width is not None and width <= 2:
            name, width = "log_odds", None
        return Scorer(
            name,
            getattr(model, name),
            model,
            labels=model.classes if name == "predict" else None,
            columns=width,
            method=method,
            single=self._single and name in self._single_scores,
            of_features=method != "inverse_transform",
        )

    def _refuse_lifted(self, why: str) -> None:
        """Raise `UnsupportedError` if rows are behind a feature map."""
        if self._numbers is None and self.moments_._lifting is not None:
            raise UnsupportedError(
                f"{why}: fit an estimator without feature_map to feature_map.transform(X)"
            )

    def _refuse_method(self, method: str) -> NoReturn:
        raise InvalidParameterError(f"{type(self).__name__} has no {method}")

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        # The model is saved too, if it exists: to estimate it again takes longer than to read it,
        # and gives other last bits on another processor or with other threads. The parameters are
        # those that it depends on; any that were set since then are saved beside them.
        check_is_fitted(self)
        self._kept()  # refuses parameters that could not be loaded
        names, numbers = names_in(self), self._numbers
        parts: dict[str, Saved] = {} if numbers is not None else {"moments": self.moments_}
        derived = self._still_derived()
        if parts and "model" in derived:
            parts["model"] = derived["model"]
        states, arrays = nested(parts)
        for state in states.values() if names else ():
            state.pop(ATTRIBUTE, None)  # the names of all parts are those of the estimator
        fitted, present = described(self._settings), described(self)["params"]
        later = {k: value for k, value in present.items() if value != fitted["params"][k]}
        since: dict[str, Any] = {"set_params": later} if later else {}
        if self._single:
            since["rows"] = "float32"
        if parts and self.moments_._n_features_in is None:  # no row had a weight
            since["n_features_in"] = self.n_features_in_
        if self._declared is not None:
            since["declared"] = pack_labels(self._declared)
        if numbers is not None:
            since["classes"] = pack_labels(self.classes_)
            arrays = {f"numbers/{name}": values for name, values in numbers.items()}
        return {**fitted, **since, ATTRIBUTE: names and [*names], **states}, arrays

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        settings, later = unfitted(cls, attributes), attributes.get("set_params", {})
        params, estimator = {**attributes["params"], **later}, settings._with_attributes()
        if later:
            estimator = unfitted(cls, {**attributes, "params": params})
        if "moments" in attributes:
            moments = restore(ClassMoments, attributes["moments"], arrays_within(arrays, "moments"))
            joined_maps(settings._kept(), moments)
            estimator._adopt(moments, settings)
            estimator._single = attributes.get("rows") == "float32"
            estimator.n_features_in_ = estimator._restored_width(attributes)
        else:
            classes, given = unpack_labels(attributes["classes"]), arrays_within(arrays, "numbers")
            estimator = cls._of_numbers(classes, given, attributes["params"]).set_params(**params)
        names = restored_names(attributes, estimator.n_features_in_)
        if names is not None:
            estimator.feature_names_in_ = np.array(names, object)
        if "moments" not in attributes:
            return estimator
        moments._name_features(estimator._column_names())
        if "declared" in attributes:
            estimator._declared = declared = unpack_labels(attributes["declared"])
            if moments.classes.size and (find(moments.classes, declared) < 0).any():
                raise ValueError("its moments have classes that were not declared")
        if "model" in attributes:
            model = restore(cls._model_type, attributes["model"], arrays_within(arrays, "model"))
            same = model.classes.dtype == moments.classes.dtype
            if not same or not np.array_equal(model.classes, moments.classes):
                raise ValueError("its model and its moments have different classes")
            lifting, width = moments._lifting, estimator.n_features_in_
            if lifting is not None:
                lifting = lifting.of_features
                width = lifting.n_out
            if model.n_features != width or model.feature_map != lifting:
                raise ValueError("its model and its moments have different features")
            estimator._derived["model"] = replace(model, feature_names=names)
        return estimator

    def _restored_width(self, attributes: Mapping[str, Any]) -> int:
        """Return the number of features of an estimator that is loaded, once it has its moments."""
        held = check_whole("n_features_in", attributes.get("n_features_in", 0), 0)
        return int(self.moments_._n_features_in or held)


class MomentClassifier(ClassifierMixin, MomentEstimator):
    """Base of the classifiers whose models are distributions of the rows of each class."""

    _model_methods: Mapping[str, tuple[str, str | None]] = {
        "predict": ("predict", None),
        "predict_proba": ("posterior", "classes"),
        "predict_log_proba": ("log_posterior", "classes"),
        "predict_joint_log_proba": ("joint_log_likelihood", "classes"),
        "decision_function": ("relative_scores", "classes"),
        "score_samples": ("log_density", None),
        "mahalanobis": ("mahalanobis", "classes"),
        "p_values": ("p_values", "classes"),
    }

    @fitted
    def classes_(self) -> np.ndarray:
        """Class labels, sorted, shape (n_classes,)."""
        moments = vars(self).get("moments_")  # at once: streams ask for each row
        if moments is not None:
            return moments.classes
        check_is_fitted(self)
        return self.model_.classes

    def _kept(self) -> dict[str, Any]:
        as_number("temperature", self._temperature, "a number above 0", LEAST)
        return super()._kept()

    @property
    def _temperature(self) -> Any:
        return getattr(self, "temperature", 1.0)  # subclasses may have parameters of their own

    @fitted
    def class_count_(self) -> np.ndarray:
        """Rows of each class, or their total weight, float64, shape (n_classes,)."""
        check_is_fitted(self)
        return self.moments_.class_count.astype(np.float64)

    @takes(Reading)
    def accumulate(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        into: ClassMoments | None = None,
        max_memory: int | str | None = None,
        progress: Progress = False,
        checkpoint: Any = None,
        checkpoint_every: float = 60.0,
        **reading: Unpack[Reading],
    ) -> ClassMoments:
        """Return the moments of rows that an estimator with these parameters needs.

        `from_moments` makes the estimator of them. This estimator does not change.

        Parameters
        ----------
        X, y, sample_weight : see `fit`
            Rows, labels and weights.
        into : ClassMoments, optional
            Moments of other rows, to which these are added; they do not change.
        max_memory, progress, checkpoint, checkpoint_every : see `streamgda.accumulate`
            Budget of memory, display of progress, and the file from which the same call resumes.
        features, unlabelled, nodata, on_invalid : see `fit`
            How rows are read, and which of them count.

        Returns
        -------
        ClassMoments
            Moments of all rows, of the kind of `into` if that is given.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            See `fit`.
        MemoryBudgetError, CheckpointError
            If `max_memory` is too small, or the checkpoint is damaged or belongs to other data.
        MergeError
            If `into` is of other features.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> X, y = [[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"]
        >>> moments = GaussianNB().accumulate(X, y, max_memory="100MB")
        >>> GaussianNB.from_moments(moments).theta_.ravel()
        array([2., 7.])
        """
        own = self._with_attributes()  # the rows may have another width
        settings = own._current_settings()
        kept = settings._kept()
        settings._check_supported()
        if into is not None:
            settings._check_one_pass()
        rows = own._validated(self._read("accumulate", X, y, sample_weight, reading), reset=True)
        given = getattr(settings, "priors", None) is not None
        if given and rows.weight is None and rows.rule.action == "raise":  # all labels are classes
            classes = distinct_labels(rows.opened().y, rows.rule)
            settings._check_priors(classes if into is None else join_labels(into.classes, classes))
        options: dict[str, Any] = {"max_memory": max_memory, "progress": progress}
        options |= {"checkpoint": checkpoint, "checkpoint_every": checkpoint_every}
        if into is None:
            return own._of_all_rows(settings, own._empty(kept), rows, **options)
        if getattr(settings, "feature_map", into) is None:
            settings.feature_map = into.feature_map
        empty = empty_like(into)
        empty._lifting = joined_maps(settings._kept(), into)
        return into + engine.accumulate_into(empty, settings._summed(rows), **options)

    def retire(self, labels: Any) -> Self:
        """Drop classes with all their rows; their labels may appear again with other rows.

        Parameters
        ----------
        labels : array-like
            Labels of classes.

        Returns
        -------
        estimator
            The estimator itself.

        Raises
        ------
        InvalidParameterError
            For labels that are not among the classes.
        MergeError
            If all classes share one covariance, from which the part of one class cannot be
            removed; `forget` its rows, or keep ``"full"`` moments and `reduce` them.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0], [9.0], [12.0]], [0, 0, 1, 1, 2, 2])
        >>> nb.retire([1]).classes_
        array([0, 2])
        """
        check_is_fitted(self)
        return self._learn(lambda settings, held, rows: held.drop_classes(labels))

    # --- scoring ------------------------------------------------------------------------------

    def _joint_log_likelihood(self, X: Any) -> np.ndarray:
        """Return joint log-likelihoods of rows in memory.

        Scores are computed by it where a subclass overrides it, as in scikit-learn.
        """
        return np.asarray(self.model_.joint_log_likelihood(X))

    @overload
    def predict(self, X: np.ndarray, *, out: None = ..., **options: Any) -> np.ndarray: ...

    @overload
    def predict(self, X: Any, *, out: Any = ..., **options: Any) -> Any: ...

    @takes(GapScoring)
    def predict(self, X: Any, **scoring: Any) -> Any:
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
            Where `X` and `out` are arrays of numpy, and `out` has the type of the result in C
            order, it is written at once. An array that was used before takes less time than a new
            one, whose memory the system has to clear.
        features : str, optional
            Name of the dimension that holds the features, if `X` is a DataArray.
        nodata : int or float, optional
            Value that marks missing measurements.
        on_invalid : {"raise", "fill"}
            Raise an error for rows with NaN, infinity, masked values or `nodata`, or give them
            `fill` as their result.
        fill : label or number, optional
            Result for invalid rows. Among labels, it has the type of the class labels and is not
            one of them, by default -1, an empty string or NaT; otherwise it is a number, by default
            NaN.
        keys : str or sequence of str, optional
            Names of columns of the table that is scored, which are copied to an `out` that is a
            table.
        max_memory : int or str, optional
            Bytes, or a text such as ``"512MB"``, for rows in flight, scores and the model; by
            default half of the available memory. dask collections ignore it.
        on_missing : {"raise", "marginal"}
            Treat rows with NaN, masked values or `nodata` as invalid, or score them by the
            distribution of the features that they have; the others are integrated out, which is
            exact. Rows with infinity, and rows without any feature, are then invalid.

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
        return self._scored("predict", X, scoring)

    @takes(Comparing)
    def score(
        self, X: Any, y: Any, sample_weight: Any = None, **reading: Unpack[Comparing]
    ) -> float:
        """Return the share of rows whose class is predicted correctly.

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
        max_memory : see `predict`
            Memory for rows in flight, predictions and the model.

        Returns
        -------
        float
            Accuracy.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For rows, labels, weights or options that cannot be used.
        MemoryBudgetError
            If `max_memory` is too small.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> X, y = [[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"]
        >>> GaussianNB().fit(X, y).score([[2.0], [7.0], [8.0]], ["ant", "bee", "ant"])
        0.6666666666666666
        """
        max_memory = reading.pop("max_memory", None)
        rows = self._read("score", X, None, None, reading)
        labels: Any = y if y is None or isinstance(y, np.ndarray) else as_source(y, "y")
        if np.shape(labels)[1:] == (1,):  # as scikit-learn's and `fit`
            y = (y if labels is y else np.asarray(labels.whole()))[:, 0]
        rows = replace(rows, y=y, weight=sample_weight)
        hits = total = 0.0
        for scored in _predictions(self, rows, max_memory):
            classes = join_labels(self.classes_, scored.labels.values)
            right = find(scored.labels, classes) == find(scored.scores, classes)
            hits += float((right * scored.weights).sum())
            total += float(scored.weights.sum())
        if not total:
            raise InvalidDataError(NO_ROWS)
        return hits / total

    @takes(GapScoring)
    def predict_proba(self, X: Any, **scoring: Unpack[GapScoring]) -> Any:
        """Return the probability of each class.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys, max_memory, on_missing : see `predict`
            Rows, the destination of the result, and how rows are read.

        Returns
        -------
        ndarray, shape (n_rows, n_classes); or as for `predict`
            Probabilities.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidDataError, InvalidParameterError
            As for `predict`.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"])
        >>> nb.predict_proba([[2.0], [5.0]]).round(3)
        array([[1.   , 0.   ],
               [0.076, 0.924]])
        """
        return self._scored("predict_proba", X, scoring)

    @takes(GapScoring)
    def predict_log_proba(self, X: Any, **scoring: Unpack[GapScoring]) -> Any:
        """Return the logarithm of `predict_proba`, exact even if that is rounded to zero.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys, max_memory, on_missing : see `predict`
            Rows, the destination of the result, and how rows are read.

        Returns
        -------
        ndarray, shape (n_rows, n_classes); or as for `predict`
            Log-probabilities.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidDataError, InvalidParameterError
            As for `predict`.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"])
        >>> nb.predict_log_proba([[-500.0]]).round(1)
        array([[    0. , -2522.5]])
        """
        return self._scored("predict_log_proba", X, scoring)

    @takes(GapScoring)
    def predict_joint_log_proba(self, X: Any, **scoring: Unpack[GapScoring]) -> Any:
        """Return the joint log-likelihood ln p(x, y=k) of each class.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys, max_memory, on_missing : see `predict`
            Rows, the destination of the result, and how rows are read.

        Returns
        -------
        ndarray, shape (n_rows, n_classes); or as for `predict`
            Joint log-likelihoods.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidDataError
            For rows that cannot be scored; see `predict`.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"])
        >>> nb.predict_joint_log_proba([[2.0]]).round(3)
        array([[ -1.612, -14.112]])
        """
        return self._scored("predict_joint_log_proba", X, scoring)

    @takes(GapScoring)
    def score_samples(self, X: Any, y: Any = None, **scoring: Unpack[GapScoring]) -> Any:
        """Return the log-density ln p(x) of each row, or ln p(x | y) in the given class.

        Their sum is the log-likelihood of the rows under the model.

        Parameters
        ----------
        X : see `predict`
            Rows.
        y : array-like, shape (n_rows,), optional
            Class of each row: only the density in it is computed.
        out, features, nodata, on_invalid, fill, keys, max_memory, on_missing : see `predict`
            The destination of the result, and how rows are read.

        Returns
        -------
        ndarray, shape (n_rows,); or as for `predict`
            Log-densities.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidDataError
            For rows that cannot be scored; see `predict`.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"])
        >>> nb.score_samples([[2.0], [50.0]]).round(1)
        array([  -1.6, -926.1])
        """
        return self._scored_own("score_samples", X, y, scoring)

    def _scored_own(self, method: str, X: Any, y: Any, scoring: Any) -> Any:
        """Score rows by a method, for the classes `y` alone if these are given."""
        if y is None:
            return self._scored(method, X, scoring)
        reading = {
            name: scoring[name] for name in ("features", "nodata", "on_invalid") if name in scoring
        }
        rows = Rows.of(X, y, actions=SCORING, **reading).opened()
        check_lengths(rows.X, rows.y)
        labels = code(rows.y.whole())
        refuse_missing(labels)
        check_expected(labels, self.classes_)
        codes = find(labels, self.classes_)
        return self._scored(method, X, scoring, codes=codes)

    @takes(Comparing)
    def calibrate(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        leave_one_out: bool = False,
        **reading: Unpack[Comparing],
    ) -> Self:
        r"""Choose the temperature of the posteriors that makes the labels of rows most likely.

        Classes are rarely exactly Gaussian, and features rarely independent, so that the
        posteriors are often overconfident. The temperature T divides all joint log-likelihoods
        before they become posteriors, :math:`p_k \propto p(x, y=k)^{1/T}`. It changes
        `predict_proba` and `predict_log_proba`, but no prediction. It becomes the parameter
        `temperature`, which takes effect at once, and stays when rows are added.

        Parameters
        ----------
        X, y, sample_weight : see `fit`
            Rows that the estimator was not fitted to, their labels and their weights.
        leave_one_out : bool
            The rows are those of the fit. Each is scored by the model without it; see
            `leave_one_out_proba`, which Gaussian estimators have.
        features, unlabelled, nodata, on_invalid : see `fit`
            How rows are read, and which of them count.
        max_memory : see `predict`
            Memory for rows in flight, their scores and the model.

        Returns
        -------
        estimator
            The estimator itself.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For rows, labels, weights or options that cannot be used, such as labels that are not
            among the classes.
        UnsupportedError
            For `leave_one_out` where the estimator has no such formula.
        MemoryBudgetError
            If `max_memory` is too small.

        Notes
        -----
        One pass over the rows sums their log-likelihood and its derivatives at 33 temperatures
        from 1/16 to 4096, between which it is interpolated; see `streamgda.models.calibration`.
        The lowest is chosen if every row is classified correctly. Rows whose true class has no
        density are left out.

        References
        ----------
        C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger: On calibration of modern neural networks,
        ICML 2017, section 4.2.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.metrics import log_loss
        >>> from streamgda import GaussianNB
        >>> X, y = load_digits(return_X_y=True)
        >>> X = X[:, X[:900].std(axis=0) > 0]
        >>> nb = GaussianNB(var_smoothing=1e-3).fit(X[:900], y[:900])
        >>> before = log_loss(y[1300:], nb.predict_proba(X[1300:]))
        >>> nb.calibrate(X[900:1300], y[900:1300]).temperature > 1
        True
        >>> log_loss(y[1300:], nb.predict_proba(X[1300:])) < before / 2
        True
        """
        check_is_fitted(self)
        max_memory = reading.pop("max_memory", None)
        rows = self._read("calibrate", X, y, sample_weight, reading)
        if leave_one_out:
            sums = self._likelihoods_without(rows, max_memory)
        else:
            joint = self._scorer("predict_joint_log_proba")
            rows = self._validated(rows, reset=False)
            sums = np.zeros(1)
            for slab in scored_rows(self, joint, rows, max_memory)():
                sums = sums + add_up(slab.scores.T, slab.codes(self.classes_), slab.weights)
        if not sums.any():
            raise InvalidDataError(f"{NO_ROWS}, or no density is above zero where it should be")
        temperature = best_temperature(sums)
        with self._locked():
            settings = self._settings._with_attributes()  # a clone would have no fitted feature map
            settings.temperature = temperature
            # At once: an interruption finds both changed, or neither.
            self.__dict__ = vars(self) | {"temperature": temperature, "_settings": settings}
        return self

    def _likelihoods_without(self, rows: Rows, max_memory: int | str | None) -> np.ndarray:
        """Return the sums of `add_up` of rows of the fit, by the models without them."""
        raise UnsupportedError(
            f"{type(self).__name__} has no exact leave-one-out; give rows that it was not fitted to"
        )

    def _scorer(self, method: str, **options: Any) -> Scorer:
        own = type(self)._joint_log_likelihood is not MomentClassifier._joint_log_likelihood
        own_class = not own and method in _OWN and options.keys() == {"codes"}
        if options and not own_class:
            self._refuse_method(f"{method}({', '.join(options)})")
        scorer = super()._scorer(method)
        if own_class:
            name = _OWN[method]
            function = getattr(scorer.model, name)
            return replace(scorer, name=name, function=function, columns=None, of_rows=options)
        if own and method in _OF_JOINT:
            name, function = f"{type(self).__qualname__}.{method}", partial(_of_joint, self, method)
            scorer = replace(scorer, name=name, function=function, single=False)
        temperature = self._settings._temperature
        if method in _TEMPERED and temperature != 1:
            options = {"temperature": temperature}
            function = partial(scorer.function, **options)
            scorer = replace(scorer, function=function, options=options)
        return scorer

    def _drawing(
        self, n_samples: Any, random_state: Any, y: Any, in_memory: bool = True
    ) -> tuple[int, np.random.RandomState, np.ndarray | None]:
        """Return the number of rows to draw, random numbers, and labels; refuse others."""
        check_is_fitted(self)
        self._refuse_lifted("sample draws rows, and a feature map has no inverse")
        n_samples = as_integer("n_samples", n_samples, "at least 1 row, an integer", 1)
        needed = 8 * n_samples * (self.n_features_in_ + 2)
        if in_memory and needed > 2 * spare_memory():
            raise MemoryBudgetError(
                f"n_samples={n_samples} of {self.n_features_in_} features need "
                f"{readable(needed)} of memory, and {readable(2 * spare_memory())} are available; "
                f"draw fewer, or into an `out` of the Gaussian estimators"
            )
        labels = None if y is None else as_labels([y] if np.ndim(y) == 0 else y)
        if labels is not None and np.ndim(y) and labels.size != n_samples:
            raise InvalidParameterError(f"y has {labels.size} labels for {n_samples} samples")
        return n_samples, as_random_numbers(random_state), labels

    # --- conversion -------------------------------------------------------------------------

    def _counterpart(self) -> Counterpart:
        """Return the estimator of scikit-learn that makes the same predictions."""
        raise NotImplementedError

    @synchronized
    def to_sklearn(self) -> Any:
        """Return a fitted estimator of scikit-learn with the same predictions.

        Other libraries support it: skl2onnx converts it to ONNX, skops and MLflow store it, and it
        can be pickled for a machine without this package. It has those parameters of this estimator
        that scikit-learn has, and no moments: use this estimator to continue learning.

        Features that are constant over all rows affect neither its predictions nor those of this
        estimator.

        Returns
        -------
        sklearn.base.BaseEstimator
            The estimator of scikit-learn of the same name; for `GaussianDiscriminantAnalysis` with
            covariance type ``"full"``, ``"tied"`` or ``"diag"`` a `QuadraticDiscriminantAnalysis`,
            a `LinearDiscriminantAnalysis` or a `GaussianNB`.

        Raises
        ------
        UnsupportedError
            If scikit-learn has no estimator with these predictions.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import LinearDiscriminantAnalysis
        >>> X, y = load_iris(return_X_y=True)
        >>> lda = LinearDiscriminantAnalysis(n_components=1).fit(X, y).to_sklearn()
        >>> lda
        LinearDiscriminantAnalysis(n_components=1)
        >>> type(lda).__module__, lda.predict(X[:2])
        ('sklearn.discriminant_analysis', array([0, 0]))
        """
        self.model_  # noqa: B018  (raises an error before fit)
        self._refuse_lifted("to_sklearn returns an estimator of features as they are")
        if self._settings._temperature != 1:
            raise UnsupportedError(
                f"temperature={shown(self._settings._temperature)}, and scikit-learn's estimators "
                f"have no temperature: call set_params(temperature=1.0).refit() first"
            )
        kind, attributes, params = self._counterpart()
        exported = kind()
        known = exported.get_params(deep=False)
        given = {n: getattr(self._settings, n) for n in known if hasattr(self._settings, n)}
        exported.set_params(**{n: v for n, v in {**given, **params}.items() if n in known})
        shared = {"classes_": self.classes_, "n_features_in_": self.n_features_in_}
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            shared["feature_names_in_"] = names
        for name, value in {**shared, **attributes}.items():
            # Copies: ours are read-only, and `partial_fit` of scikit-learn writes to its own.
            setattr(exported, name, value.copy() if isinstance(value, np.ndarray) else value)
        return exported


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
    gamma : float
        Factor for the weights of earlier rows.

    Examples
    --------
    >>> half_life_weights(1, 3)
    (array([0.25, 0.5 , 1.  ]), 0.125)
    """
    expected = "a number of rows above 0, or None to forget nothing"
    half_life = as_number("half_life", half_life, expected, LEAST)
    if math.isnan(n_rows):
        raise InvalidDataError(
            f"X has row chunks of unknown size, and half_life needs the age of each row; "
            f"{how_to_count('X')}"
        )
    with np.errstate(over="ignore"):
        weights = np.exp2(np.arange(1 - n_rows, 1) / half_life)
    if sample_weight is not None:
        weights *= as_weights(sample_weight, n_rows)
    return weights, 0.5 ** (n_rows / half_life)


def _copied(value: Any) -> Any:
    """Return a parameter that does not change, or a copy of one that might."""
    if isinstance(value, str | float | int | None):
        return value
    try:
        return clone(value, safe=False)
    except TypeError:  # a generator, say, which the check of the parameters refuses
        return value


def _of_joint(
    estimator: MomentClassifier,
    method: str,
    rows: Any,
    first_row: int = 0,
    temperature: float = 1.0,
) -> np.ndarray:
    """Return what a method returns, from the joint log-likelihoods of a subclass."""
    joint = np.asarray(estimator._joint_log_likelihood(rows)) / temperature
    return np.asarray(_OF_JOINT[method](joint, estimator.classes_))


def empty_like(moments: ClassMoments) -> ClassMoments:
    """Return moments without rows that are kept as others are."""
    return ClassMoments(moments.covariance_type, feature_map=moments._lifting)


def joined_maps(kept: Mapping[str, Any], moments: ClassMoments) -> Lifting | None:
    """Return the feature map of parameters and moments; refuse different ones."""
    held, lifting = moments._lifting, kept["feature_map"]
    joined = None if held is None else held.joined(lifting)
    if joined is None and (held is not None or lifting is not None):
        raise InvalidParameterError(
            f"feature_map is {lifting or None}, but the rows so far were added behind "
            f"{held or 'no map'}; pass the same one, or call fit with all rows"
        )
    return joined


def described(estimator: Any) -> dict[str, Any]:
    """Return the name of an estimator's class and its parameters, for JSON and `unfitted`."""
    description = describe(estimator)
    params, weight = description["params"], getattr(estimator, "class_weight", None)
    mapped = Lifting.of(getattr(estimator, "feature_map", None))
    if mapped is not None:
        params["feature_map"] = mapped.as_json()
    if isinstance(weight, Mapping):
        labels, order = np.unique(as_labels([*weight]), return_index=True)
        numbers = np.array([*weight.values()], np.float64)[order].tolist()
        params["class_weight"] = {"labels": pack_labels(labels), "weights": numbers}
    if not isinstance(params.get("cv", 5), int):
        params["cv"] = 5  # no splitter, and no fold of each row
    return description


def weights_of(classes: np.ndarray, given: Mapping[Any, Any], expected: str) -> np.ndarray:
    """Return the weights of classes that `class_weight` gives, 1 for those that it does not name.

    Raises
    ------
    InvalidParameterError
        For labels that are not among the classes, and weights that are no numbers.
    """
    at = find(as_labels([*given], "class_weight"), classes)
    if (at < 0).any():
        label = [*given][int(at.argmin())]
        raise InvalidParameterError(
            f"class_weight has a weight for {shown(label)}, which is not one of the classes "
            f"{as_objects(classes)!s:.500}"
        )
    weights = np.ones(classes.size)
    weights[at] = as_numbers("class_weight", [*given.values()], expected)
    return weights


def unpacked(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of saved parameters that `described` made JSON of."""
    mapped, weight = Lifting.from_json(params.get("feature_map")), params.get("class_weight")
    found: dict[str, Any] = {} if mapped is None else {"feature_map": mapped.parameter}
    if isinstance(weight, Mapping):
        labels = as_objects(unpack_labels(weight["labels"]))
        found["class_weight"] = dict(zip(labels, weight["weights"], strict=True))
    return found


def unfitted(base: type[Kind], description: Mapping[str, Any]) -> Kind:
    """Build an unfitted estimator with valid parameters; see `streamgda.storage.saved.describe`.

    Raises
    ------
    InvalidParameterError
        For parameters out of range, and priors that are no distribution.
    """
    kind, params = class_named(description["estimator"], base), dict(description["params"])
    others = unpacked(params)
    check_params({name: value for name, value in params.items() if name not in others})
    estimator = build(kind, **params | others)
    estimator._kept()
    return estimator


def _predictions(estimator: Any, rows: Rows, max_memory: int | str | None) -> Iterable[Scored]:
    """Return the predictions of labelled rows that count."""
    X, rule = as_source(rows.X), rows.rule
    elsewhere = X.executor == "dask"
    own = not type(estimator).predict.__module__.startswith("streamgda.")
    if not (elsewhere or own or (max_memory is None and X.in_memory)):
        return scored_rows(estimator, estimator._scorer("predict"), rows, max_memory)()

    def whole(values: Any, name: str) -> Any:
        return None if values is None else as_source(X.laid_out(values, name), name).whole()

    # Subclasses may have a `predict` of rows alone.
    filled = rule is not CHECK_SUMS or (rows.weight is not None and not own)
    scoring: dict[str, Any] = {}
    if filled:
        fill = label_of_none(estimator.classes_)
        scoring = {"nodata": rule.nodata, "on_invalid": "fill", "fill": fill}
    budget = {} if max_memory is None else {"max_memory": max_memory}
    predicted = whole(estimator.predict(rows.X, **scoring, **budget), "predictions")
    y, weight = whole(rows.y, "y"), whole(rows.weight, "sample_weight")
    check_lengths(as_source(predicted), as_source(y, "y"))
    invalid = find(predicted, estimator.classes_) < 0 if filled else None
    return [Scored.of(Slab(predicted, y, weight=weight), rule, invalid)]
