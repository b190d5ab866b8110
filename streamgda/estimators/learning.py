"""Learning from rows in any container: the moments that estimators keep."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamgda import engine
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    SingularCovarianceError,
    UnsupportedError,
    as_attribute_error,
)
from streamgda.estimators.fitted import fitted
from streamgda.estimators.half_life import half_life_weights
from streamgda.estimators.scoring import RowClassifier
from streamgda.estimators.settings import present_settings
from streamgda.estimators.validation import names_in, validate_labelled
from streamgda.models.model import check_classes
from streamgda.models.shrinkage import TWO_PASSES
from streamgda.moments import ClassMoments, add_at_once, name_features, read_twice
from streamgda.moments.structures import structure_of
from streamgda.rows import as_rows
from streamgda.rows.invalid_rows import CHECK_SUMS, RowRule, row_rule
from streamgda.rows.labels import as_labels, find
from streamgda.runtime.interruption import Lock
from streamgda.runtime.parameters import shown

NO_ROWS = (
    "every sample_weight is zero, or every row is unlabelled or invalid: no row is left to fit to"
)
_FADED = 2.0**-64  # weight of earlier rows that is too small to divide weights by
_NO_MODEL = {"_fitted_model": None, "_fitted_covariances": None}


class MomentLearner(RowClassifier):
    """Base of the classifiers that learn by updating moments.

    Methods that learn hold the estimator's lock. On an error or an interruption they restore its
    attributes in one assignment.

    The model and all fitted attributes depend on the moments and on ``_settings``, the parameters
    at the time of learning. Methods that are called on the settings (`_kept`, `_scalings`,
    `_summed` and `_make_model`) use parameters and arguments only; others read parameters from
    ``_settings``.

    Attributes
    ----------
    moments_ : ClassMoments
        All that was kept of the rows.
    _settings : estimator of the same class
        Unfitted copy that holds the parameters as they were when the estimator last learnt, which
        neither `set_params` nor changes of arrays that were passed reach.
    _numbers : dict or None
        Arguments of `from_parameters`, if it made the estimator, which then has no moments.
    _declared : ndarray, sorted, or None
        All labels that `partial_fit` takes, if it was passed its `classes`.
    """

    _settings: Self
    _numbers: Mapping[str, np.ndarray] | None = None
    _declared: np.ndarray | None = None
    _lock: Lock | None = None
    _least_classes = 1  # classes that `fit` needs rows of

    @fitted
    def moments_(self) -> ClassMoments:
        """All that was kept of the rows; the estimator changes it when it learns."""
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

    def _covariance_type(self) -> str:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        with contextlib.suppress(InvalidParameterError):  # which `fit` raises
            tags.input_tags.sparse = not structure_of(self._covariance_type()).matrix
        return tags

    def _check_parameters(self) -> None:
        """Raise `InvalidParameterError` if a parameter is out of range."""
        raise NotImplementedError

    def _kept(self) -> dict[str, Any]:
        """Return the parameters of the moments to keep; refuse invalid parameters."""
        self._check_parameters()
        return {"covariance_type": self._covariance_type(), "norms": False}

    def _scalings(self) -> tuple[str, ...]:
        """Return the scalings of the rows that a second pass needs; see `accumulate_again`."""
        return ()

    def _check_supported(self) -> None:
        """Raise an error for a combination of parameters from which nothing can be learnt."""

    def _summed(
        self, X: Any, y: Any = None, sample_weight: Any = None, rule: RowRule = CHECK_SUMS
    ) -> tuple[Any, RowRule]:
        """Return the rows whose moments are kept: `X`, or a transformation of it; and their rule.

        Labels and weights are given so that a transformation need not look at rows that do not
        count.
        """
        return X, rule

    def _adopt(self, moments: ClassMoments, settings: Self | None = None) -> None:
        """Replace moments and settings, by default with copies of the present parameters.

        The model is computed again when it is next needed.
        """
        raise NotImplementedError

    def _current_settings(self) -> Self:
        """Return an unfitted copy with the present parameters: `_settings` if none changed."""
        return present_settings(self, vars(self).get("_settings"))

    @fitted
    def model_(self) -> Any:
        """The model that the moments determine with the parameters of the last learning."""
        raise NotImplementedError

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        features: str | None = None,
        unlabelled: Any = None,
        nodata: float | None = None,
        on_invalid: str = "raise",
    ) -> Self:
        """Fit the model to rows, in one pass over them.

        There is a cheap second pass if standard deviations are needed first: for
        ``shrinkage="auto"``, and for ``"ledoit_wolf"`` of standardised features.

        To bound the memory of the pass, keep a checkpoint or show progress, call `accumulate`,
        and pass the result to `from_moments`.

        Parameters
        ----------
        X : array-like, numpy.memmap, zarr.Array, dask.array.Array or data frame
            Rows, shape (n_rows, n_features), of any real type. Sparse matrices and arrays of scipy,
            too, for naive Bayes and other covariance types without covariances between features.
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
        X, nodata = as_rows(X, features, nodata)
        rule = row_rule(on_invalid, nodata, unlabelled, y=y)
        try:
            return self._learn(self._of_rows_alone, X, y, sample_weight, rule, checked=True)
        except SingularCovarianceError as error:
            message = f"{error}. To sample such classes, call partial_fit(X, y) in place of fit"
            if getattr(X, "dtype", None) == np.float32:
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
        return self._learn(self._of_same_rows, checked=True)

    def _of_same_rows(self, settings: Self) -> ClassMoments:
        settings._check_supported()
        self._check_kept(settings, rows_change=False)
        return self.moments_

    def _check_fitted(self) -> None:
        """Raise an error unless the moments determine a model."""
        if self.moments_.n_features is None:
            raise InvalidDataError(NO_ROWS)
        check_classes(self.moments_.classes, self.moments_.class_count, self._least_classes)
        self.model_  # noqa: B018

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        half_life: float | None = None,
        features: str | None = None,
        unlabelled: Any = None,
        nodata: float | None = None,
        on_invalid: str = "raise",
    ) -> Self:
        """Add rows: equal to `fit` on all of them, to rounding, however they are cut.

        Several threads may add rows to the same estimator, and use it meanwhile: they take turns.
        An interruption, such as Ctrl-C, leaves the estimator without these rows or with all of
        them.

        Parameters
        ----------
        X, y : see `fit`
            Rows and labels.
        classes : array-like, shape (n_classes,), optional
            All labels that may occur: they are classes even before the first row with them, and any
            other label is an error from then on. Later calls may leave it out, or pass the same
            ones. Without it, new labels may appear at any time.
        sample_weight : array-like, shape (n_rows,), optional
            Non-negative weights; a row of weight zero is ignored.
        half_life : float, optional
            Number of rows after which a row counts half. Every row that is added with a half-life
            reduces the weight of all rows before it. Rows are in the order of their age, the
            oldest first. By default nothing is forgotten.
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
        plain = sample_weight is half_life is features is unlabelled is nodata is None
        raises = isinstance(on_invalid, str) and on_invalid == "raise"
        if plain and raises and self._add_at_once(X, y, classes):
            return self
        X, nodata = as_rows(X, features, nodata)
        rule = row_rule(on_invalid, nodata, unlabelled, y=y)
        return self._learn(self._with_rows, X, y, classes, sample_weight, half_life, rule)

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
            if moments is None or "feature_names_in_" in held or read_twice(moments):
                return False
            if (settings := self._current_settings()) is not self._settings:
                return False
            if classes is not None and not self._is_declared(classes):
                return False
            changes, rows = moments.changes, settings._summed(X)[0]
            try:
                added = type(rows) is np.ndarray and add_at_once(moments, rows, y)
            finally:  # also if an exception from outside finds the rows added
                if moments.changes != changes:
                    held |= _NO_MODEL
        return added

    def _learn(
        self, learnt: Callable[..., ClassMoments], *arguments: Any, checked: bool = False
    ) -> Self:
        """Adopt the moments that a function returns, or stay as before if there is an error."""
        with self._locked():
            before = vars(self).copy()
            moments = before.get("moments_")
            changes = None if moments is None else moments.changes
            settings = self._current_settings()
            try:
                self._adopt(learnt(settings, *arguments), settings)
                if checked:
                    self._check_fitted()
            except BaseException:
                # Moments that an interruption found complete have another model.
                if moments is not None and moments.changes != changes:
                    before |= {**_NO_MODEL, "_settings": settings}
                self.__dict__ = before
                raise
        return self

    def _of_rows_alone(
        self, settings: Self, X: Any, y: Any, sample_weight: Any, rule: RowRule
    ) -> ClassMoments:
        """Return the moments of the rows of `fit`, which may be read twice."""
        self._declared = None
        return self._accumulated(settings, X, y, sample_weight, rule, True, True)

    def _with_rows(
        self,
        settings: Self,
        X: Any,
        y: Any,
        classes: Any,
        sample_weight: Any,
        half_life: float | None,
        rule: RowRule,
    ) -> ClassMoments:
        """Return the moments with these rows, most often `moments_` themselves."""
        first = not self.__sklearn_is_fitted__()
        if first:
            check_one_pass(settings)
        else:
            self._check_kept(settings)
        declared = self._newly_declared(classes, first)
        decay = None
        if half_life is not None:
            sample_weight, decay = half_life_weights(half_life, X, sample_weight)
        if first or declared is not None or (decay is not None and decay < _FADED):
            moments = self._accumulated(settings, X, y, sample_weight, rule, first)
            if not first:
                moments = (self.moments_ if decay is None else self.moments_ * decay) + moments
            if declared is not None:
                moments.declare(declared)
            return moments
        X, y = validate_labelled(self, X, y, reset=False, rule=rule)
        if decay is not None:
            sample_weight = sample_weight / decay
        rows, rule = settings._summed(X, y, sample_weight, rule)
        learnt = rows, y, sample_weight, rule, decay, self._declared
        return engine.accumulate_into(self.moments_, *learnt)

    def _accumulated(
        self,
        settings: Self,
        X: Any,
        y: Any,
        sample_weight: Any,
        rule: RowRule,
        first: bool,
        twice: bool = False,
    ) -> ClassMoments:
        """Return the moments of these rows alone, which may be read twice."""
        kept = settings._kept()
        if first:
            settings._check_supported()
        else:
            kept["norms"] = self.moments_.norms
        X, y = validate_labelled(self, X, y, reset=first, rule=rule)
        summed, rule = settings._summed(X, y, sample_weight, rule)
        rows = summed, y, sample_weight, rule
        moments = engine.accumulate_into(ClassMoments(**kept), *rows, expected=self._declared)
        name_features(moments, names_in(self))
        scalings = settings._scalings() if twice else ()
        if scalings and moments.n_features is not None:
            engine.accumulate_again(moments, scalings, *rows)
        return moments

    def _check_kept(self, settings: Self, rows_change: bool = True) -> None:
        """Raise `InvalidParameterError` unless the moments so far have what settings keep."""
        twice = read_twice(self.moments_)
        if (twice and rows_change) or (settings is not self._settings and not twice):
            check_one_pass(settings)
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
        if kept["norms"] and not self.moments_.norms:
            raise InvalidParameterError(
                f"shrinkage={shown(getattr(settings, 'shrinkage', None))}, but the rows so far "
                f"were kept without their norms; call fit"
            )

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

    def _newly_declared(self, classes: Any, first: bool) -> np.ndarray | None:
        """Return classes that are declared for the first time, which are all from then on."""
        if classes is None or self._is_declared(classes):
            return None
        labels = np.unique(as_labels(classes, "classes"))
        if self._declared is not None:
            raise InvalidParameterError(
                f"classes={shown(labels.tolist())} is not the same as on the last call to "
                f"partial_fit, was: {shown(self._declared.tolist())}; pass these, or none"
            )
        held = labels[:0] if first else self.moments_.classes
        if held.size and (other := find(held, labels) < 0).any():
            raise InvalidParameterError(
                f"classes={shown(labels.tolist())} lacks {shown(held[other].tolist())}, of which "
                f"rows were learnt; pass all labels, or none"
            )
        self._declared = labels
        return labels

    def _locked(self) -> Lock:
        """Return the lock that is held while the estimator changes."""
        lock: Lock = self._lock or self.__dict__.setdefault("_lock", Lock())
        return lock


def check_one_pass(estimator: MomentLearner) -> None:
    """Raise `InvalidParameterError` if an estimator needs two passes over the rows."""
    if estimator._scalings():
        raise InvalidParameterError(
            f"shrinkage={getattr(estimator, 'shrinkage', None)!r} {TWO_PASSES}"
        )


def read_again(
    estimator: MomentLearner, moments: ClassMoments, X: Any, y: Any, w: Any, **options: Any
) -> None:
    """Read rows again if an estimator needs it; parameters of `accumulate_again`."""
    scalings = estimator._scalings()
    if scalings:
        engine.accumulate_again(moments, scalings, X, y, w, **options)


def kept_by(estimator: MomentLearner) -> dict[str, Any]:
    """Return the parameters of the moments that an estimator needs; refuse invalid parameters."""
    return estimator._kept()


def check_fitted(estimator: MomentLearner) -> None:
    """Raise an error unless the moments of an estimator determine a model, as `fit` does."""
    estimator._check_fitted()


def check_supported(estimator: MomentLearner) -> None:
    """Raise an error for a combination of parameters from which nothing can be learnt."""
    estimator._check_supported()


def summed_rows(
    estimator: MomentLearner, X: Any, y: Any = None, rule: RowRule = CHECK_SUMS
) -> tuple[Any, RowRule]:
    """Return the rows whose moments an estimator keeps, and the rule for them.

    `from_moments` makes the estimator from their moments.
    """
    return estimator._summed(X, y, rule=rule)
