"""What all estimators share: rows in, moments kept, the model made of them when it is needed."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from streamgda import engine, storage
from streamgda.covariance import Covariances, Regularisation, estimate
from streamgda.errors import ConstantFeatureWarning, InvalidDataError, InvalidParameterError
from streamgda.model import GaussianModel, check_priors
from streamgda.moments import ClassMoments
from streamgda.moments.labels import as_labels, find, join_labels
from streamgda.sampling import Sampler, sample
from streamgda.sources import is_dask, is_store, refuse_group


class GaussianClassifier(ClassifierMixin, BaseEstimator):
    """Base of the estimators; each says which covariance type and regularisation it means.

    Attributes
    ----------
    moments_ : ClassMoments
        All that was kept of the rows.
    """

    n_features_in_: int

    def _covariance_type(self) -> str:
        raise NotImplementedError

    def _regularisation(self) -> Regularisation:
        raise NotImplementedError

    # --- learning -----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model to rows, in one pass over them.

        Parameters
        ----------
        X : array-like, numpy.memmap, zarr.Array, dask.array.Array or data frame
            Rows, shape (n_rows, n_features), of any real type.
        y : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
            Class labels.
        sample_weight : array-like, shape (n_rows,), optional
            Non-negative; a row of weight zero counts as not there.

        Returns
        -------
        self

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used.
        InvalidParameterError
            For parameters out of range.
        SingularCovarianceError
            Where a covariance has no inverse.
        """
        with self._unchanged_on_error():
            self._regularisation()
            moments = self._read(X, y, sample_weight, first=True)
            if moments.n_features is None:
                raise InvalidDataError("every sample_weight is zero: no row is left to fit to")
            self._adopt(moments)
            self.model_  # noqa: B018  (so that fit says what is wrong)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Take in more rows: equal to `fit` on all of them, to rounding, however they were cut.

        Parameters
        ----------
        X, y, sample_weight
            As of `fit`.
        classes : array-like, shape (n_classes,), optional
            Labels that are classes before any row of theirs is seen. Others may appear at any
            time, whether this was given or not.

        Returns
        -------
        self

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As of `fit`; the estimator is then as it was. What is wrong with the model itself (a
            single class, a singular covariance) is said when it is used.
        """
        with self._unchanged_on_error():
            self._regularisation()
            first = not hasattr(self, "moments_")
            declared = None  # as where every call names the classes: nothing to add
            if classes is not None and (first or not self._knows(classes)):
                declared = as_labels(classes, "classes")
            if not first and self.moments_.covariance_type != self._covariance_type():
                raise InvalidParameterError(
                    f"covariance_type={self._covariance_type()!r}, but the rows so far were kept "
                    f"for {self.moments_.covariance_type!r}; call fit, or from_moments with "
                    f"moments_.reduce({self._covariance_type()!r})"
                )
            if first or is_dask(X) or is_store(X) or declared is not None:
                moments = self._read(X, y, sample_weight, first)
                if not first:
                    moments = self.moments_ + moments
                if declared is not None:
                    moments.declare(declared)
                self._adopt(moments)
            else:
                X, y = self._validate(X, y, first)
                self.moments_.update(X, y, sample_weight)
                self._forget_model()
        return self

    @classmethod
    def from_moments(cls, moments: ClassMoments, **params: Any) -> Self:
        """Make the estimator of moments, with no look at any row.

        Parameters
        ----------
        moments : ClassMoments
            That determine the estimator's covariance type; they are copied.
        **params
            The estimator's parameters.

        Returns
        -------
        GaussianClassifier
            Fitted.
        """
        estimator = cls(**params)
        estimator._adopt(moments.reduce(estimator._covariance_type()))
        estimator.n_features_in_ = int(moments.n_features or 0)
        estimator.model_  # noqa: B018
        return estimator

    def _read(self, X: Any, y: Any, sample_weight: Any, first: bool) -> ClassMoments:
        if is_dask(X) or is_store(X):
            self._check_stored(X, first)
            return engine.accumulate(
                X, y, covariance_type=self._covariance_type(), sample_weight=sample_weight
            )
        X, y = self._validate(X, y, first)
        return ClassMoments(self._covariance_type()).update(X, y, sample_weight)

    def _knows(self, labels: Any) -> bool:
        held = self.moments_.classes
        plain = type(labels) is np.ndarray and labels.dtype == held.dtype
        if plain and np.array_equal(labels, held):  # most often it is just these
            return True
        return bool((find(as_labels(labels, "classes"), held) >= 0).all())

    def _check_stored(self, X: Any, first: bool) -> None:
        """Of rows that are not in memory, what can be said before they are read."""
        if len(X.shape) != 2:
            raise InvalidDataError(f"X has shape {X.shape}; expected a 2D array of rows x features")
        validate_data(self, X, reset=first, skip_check_array=True)

    def _validate(self, X: Any, y: Any, first: bool) -> tuple[np.ndarray, np.ndarray]:
        if (
            not first
            and type(X) is np.ndarray
            and type(y) is np.ndarray
            and X.dtype.kind in "iuf"
            and y.ndim == 1
            and X.shape[1:] == (self.n_features_in_,)
            and not hasattr(self, "feature_names_in_")
        ):
            return X, y  # nothing to convert, and what is left to check the moments do
        refuse_group(X)
        refuse_group(y, "y")
        # Values are checked where they are summed: not finite means a sum that is not.
        X, y = validate_data(self, X, y, reset=first, dtype="numeric", ensure_all_finite=False)
        return X, y

    def _adopt(self, moments: ClassMoments) -> None:
        self.moments_ = moments
        self._forget_model()

    def _forget_model(self) -> None:
        self._fitted_model: GaussianModel | None = None
        self._fitted_covariances: Covariances | None = None

    @contextlib.contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    @property
    def model_(self) -> GaussianModel:
        """The model that the moments make with these parameters, made when it is first needed."""
        check_is_fitted(self, "moments_")
        if self._fitted_model is None:
            self._fitted_model = GaussianModel.from_moments(
                self.moments_,
                self._covariance_type(),
                self._regularisation(),
                getattr(self, "priors", None),
            )
            self._report_constant_features()
        return self._fitted_model

    def _report_constant_features(self) -> None:
        constant = self.constant_features_
        told = getattr(self, "_told_constant", None)
        if constant.size and (told is None or not np.array_equal(told, constant)):
            listed = ", ".join(map(str, constant[:10])) + (", ..." if constant.size > 10 else "")
            warnings.warn(
                f"{constant.size} of {self.n_features_in_} features are constant over all rows "
                f"and are left out of the density: {listed}",
                ConstantFeatureWarning,
                stacklevel=4,
            )
            self._told_constant = constant

    @property
    def _covariances(self) -> Covariances:
        """Of all features, constant ones too."""
        check_is_fitted(self, "moments_")
        if self._fitted_covariances is not None:
            return self._fitted_covariances
        covariances = estimate(
            self.moments_, self._covariance_type(), self._regularisation(), drop_constant=False
        )
        if getattr(self, "store_covariance", False):
            self._fitted_covariances = covariances
        return covariances

    # --- fitted attributes --------------------------------------------------------------------

    @property
    def classes_(self) -> np.ndarray:
        """Class labels, sorted, shape (n_classes,)."""
        check_is_fitted(self, "moments_")
        return self.moments_.classes

    @property
    def class_count_(self) -> np.ndarray:
        """Rows of each class, or their total weight, shape (n_classes,)."""
        check_is_fitted(self, "moments_")
        return self.moments_.class_count

    @property
    def constant_features_(self) -> np.ndarray:
        """Numbers of the features that are constant over all rows: not in the density."""
        return np.setdiff1d(np.arange(self.n_features_in_), self.model_.features)

    # --- scoring ------------------------------------------------------------------------------

    def predict(
        self, X: Any, *, out: Any = None, reject: float = 0.0, reject_label: Any = -1
    ) -> Any:
        """Most probable class of each row, or a label for rows that are of none.

        Parameters
        ----------
        X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
        out : numpy.ndarray, zarr.Array, or path or zarr store to create one in; optional
            Where the result goes, slab by slab. Not for dask arrays, whose result is lazy.
        reject : float in [0, 1)
            Rows are rejected whose p-value (see `p_values`) for the class predicted is below
            this: about so large a share of good rows is lost to it, if the classes are Gaussian.
        reject_label : label
            What rejected rows get: of the same kind as the classes' labels, and none of them.

        Returns
        -------
        ndarray, shape (n_rows,); or `out`; or a lazy dask array

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For rows, an `out`, a `reject` or a `reject_label` that cannot be used.
        """
        if isinstance(reject, Real) and reject == 0:
            return self._evaluate("predict", X, out, self.classes_.dtype)
        label = self._check_rejection(reject, reject_label)
        options = {"reject": float(reject), "label": label}
        return self._evaluate("predict_or_reject", X, out, label.dtype, options=options)

    def _check_rejection(self, reject: Any, label: Any) -> np.ndarray:
        """The label for rejected rows, in a type that holds it and all classes."""
        if not isinstance(reject, Real) or not 0 <= float(reject) < 1:
            raise InvalidParameterError(f"reject={reject!r}; expected a number from 0 to below 1")
        try:
            own = as_labels([label], "reject_label")
            if own.dtype.kind == "i":
                own = own.astype(np.min_scalar_type(own[0]))
            dtype = join_labels(self.classes_, own).dtype
        except InvalidDataError as error:
            raise InvalidParameterError(f"reject_label={label!r}: {error}") from None
        if find(own, self.classes_)[0] >= 0:
            raise InvalidParameterError(
                f"reject_label={label!r} is a class; rows that are rejected need another label"
            )
        return own.astype(dtype)[0]

    def predict_proba(self, X: Any, *, out: Any = None) -> Any:
        """Probability of each class, shape (n_rows, n_classes); parameters as of `predict`."""
        return self._evaluate("posterior", X, out, columns=self.classes_.size)

    def predict_log_proba(self, X: Any, *, out: Any = None) -> Any:
        """Logarithm of `predict_proba`, exact where that is rounded to zero."""
        return self._evaluate("log_posterior", X, out, columns=self.classes_.size)

    def predict_joint_log_proba(self, X: Any, *, out: Any = None) -> Any:
        """Joint log-likelihood ln p(x, y=k), shape (n_rows, n_classes); as of `predict`."""
        return self._evaluate("joint_log_likelihood", X, out, columns=self.classes_.size)

    def decision_function(self, X: Any, *, out: Any = None) -> Any:
        """Discriminants of the classes, or log-odds of the second of two.

        Parameters
        ----------
        X, out
            As of `predict`.

        Returns
        -------
        ndarray, shape (n_rows, n_classes), or (n_rows,) of two classes; or as of `predict`
        """
        if self.classes_.size == 2:
            return self._evaluate("log_odds", X, out)
        return self._evaluate("relative_scores", X, out, columns=self.classes_.size)

    def score_samples(self, X: Any, *, out: Any = None) -> Any:
        """Log-density ln p(x) of each row, shape (n_rows,); parameters as of `predict`."""
        return self._evaluate("log_density", X, out)

    def mahalanobis(self, X: Any, *, out: Any = None) -> Any:
        """Squared Mahalanobis distance to each class, shape (n_rows, n_classes)."""
        return self._evaluate("mahalanobis", X, out, columns=self.classes_.size)

    def p_values(self, X: Any, *, out: Any = None) -> Any:
        """Share of each class's rows that lie further from its mean, shape (n_rows, n_classes).

        Of a Gaussian: the chi-square p-value of `mahalanobis`. Small for all classes, it marks an
        outlier.
        """
        return self._evaluate("p_values", X, out, columns=self.classes_.size)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows whose predicted class is right.

        Parameters
        ----------
        X : array-like, zarr.Array or dask.array.Array, shape (n_rows, n_features)
        y : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
        sample_weight : array-like, shape (n_rows,), optional
        """
        return score_labels(self.predict(X), y, sample_weight)

    def _evaluate(
        self,
        method: str | Callable[..., np.ndarray],
        X: Any,
        out: Any = None,
        dtype: Any = np.float64,
        columns: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        function = getattr(self.model_, method) if isinstance(method, str) else method
        if options:
            function = partial(function, **options)
        width = np.dtype(dtype).itemsize * (columns or 1)
        if is_dask(X):
            from streamgda import distributed  # noqa: PLC0415  (dask is loaded where it is used)

            if out is not None:
                raise InvalidParameterError(
                    "out does not go with a dask array: the result is lazy; store it with "
                    "dask.array.to_zarr(result, ...)"
                )
            self._check_stored(X, first=False)
            return distributed.score(function, X, dtype, columns)
        if is_store(X):
            self._check_stored(X, first=False)
            return engine.score(function, X, out, out_row_bytes=width)
        refuse_group(X)
        X = validate_data(self, X, reset=False, dtype="numeric", ensure_all_finite=False)
        return function(X) if out is None else engine.score(function, X, out, out_row_bytes=width)

    def sample(
        self, n_samples: int = 1, random_state: Any = None, y: Any = None, *, out: Any = None
    ) -> tuple[Any, Any]:
        """Draw rows from the classes' Gaussians, on all threads.

        What is drawn with a seed depends on nothing else, neither on threads nor on `out`. Unlike
        the other methods this one needs no inverse of a covariance: of a singular one, the rows
        vary as the class does and no further. (`fit` refuses to make a classifier of such rows;
        `partial_fit` takes them in.)

        Parameters
        ----------
        n_samples : int
        random_state : int, RandomState instance or None
        y : label, or array-like of labels of shape (n_samples,); optional
            The classes to draw from; by default drawn from the priors.
        out : numpy.ndarray, zarr.Array, or path or zarr store to create a group in; optional
            An array, of shape (n_samples, n_features), gets the rows; a group gets arrays "X" and
            "y", slab by slab, as `open_store` reads them.

        Returns
        -------
        X : ndarray of float64, shape (n_samples, n_features); or as `out` says
            Features that are constant over all rows have their value.
        y : ndarray, shape (n_samples,); or a zarr.Array where `out` is a group

        Raises
        ------
        InvalidParameterError
            For a class that has no rows, or a number of samples below one.
        InvalidDataError
            For an `out` of another shape or not of floating-point numbers.
        """
        if n_samples < 1:
            raise InvalidParameterError(f"n_samples={n_samples}; expected at least 1")
        random = check_random_state(random_state)
        check_is_fitted(self, "moments_")
        moments = self.moments_
        covariances = estimate(moments, self._covariance_type(), self._regularisation())
        priors = check_priors(getattr(self, "priors", None), moments.classes, moments.class_count)
        sampler = Sampler.of(covariances, moments.means, priors)
        codes = None
        if y is not None:
            labels = as_labels(np.full(1, y) if np.ndim(y) == 0 else y)
            if np.ndim(y) and labels.size != n_samples:
                raise InvalidParameterError(f"y has {labels.size} labels for {n_samples} samples")
            codes = np.broadcast_to(sampler.codes_of(labels), n_samples)
        return sample(sampler, n_samples, random, codes, out)

    # --- saving -------------------------------------------------------------------------------

    def save(self, store: Any) -> None:
        """Write parameters, moments and model as a zarr group: nothing in it is executed.

        What is loaded (`streamgda.load`) scores as this does bit for bit, and goes on learning.

        Parameters
        ----------
        store : path, zarr store or zarr group
            A path that ends in ``.zip`` becomes one file. What stands there is replaced.
        """
        check_is_fitted(self, "moments_")
        names = getattr(self, "feature_names_in_", None)
        attributes: dict[str, Any] = {
            "estimator": type(self).__name__,
            "params": {name: _plain(v) for name, v in self.get_params(deep=False).items()},
            "feature_names": None if names is None else [str(name) for name in names],
        }
        arrays: dict[str, np.ndarray] = {}
        parts: dict[str, Any] = {"moments": self.moments_}
        if self._fitted_model is not None:
            parts["model"] = self._fitted_model
        for part, held in parts.items():
            attributes[part], held_arrays = held.state()
            arrays |= {f"{part}/{name}": array for name, array in held_arrays.items()}
        storage.write(store, "estimator", attributes, arrays)

    def _restore(self, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        def arrays_of(part: str) -> dict[str, np.ndarray]:
            start = f"{part}/"
            return {
                name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)
            }

        self._adopt(ClassMoments.from_state(attributes["moments"], arrays_of("moments")))
        self.n_features_in_ = int(self.moments_.n_features or 0)
        if attributes["feature_names"] is not None:
            self.feature_names_in_ = np.array(attributes["feature_names"], object)
        if "model" in attributes:
            self._fitted_model = GaussianModel.from_state(attributes["model"], arrays_of("model"))
        return self


class DiscriminantAnalysis(GaussianClassifier):
    """Base of the estimators that have scikit-learn's names for discriminant analysis."""

    @property
    def priors_(self) -> np.ndarray:
        """Class priors, shape (n_classes,)."""
        return self.model_.priors

    @property
    def means_(self) -> np.ndarray:
        """Class means, shape (n_classes, n_features); NaN for a class without rows."""
        return self.model_.means


def score_labels(predicted: Any, y: Any, sample_weight: Any) -> float:
    """Share of rows, or of their weight, whose label is right."""
    from sklearn.metrics import accuracy_score  # noqa: PLC0415  (slow to import)

    if sample_weight is not None:
        sample_weight = np.asarray(sample_weight)
    true = as_labels(_in_memory(y))
    return float(accuracy_score(true, np.asarray(predicted), sample_weight=sample_weight))


def _plain(value: Any) -> Any:
    """A parameter as JSON holds it."""
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _in_memory(y: Any) -> Any:
    return y[...] if is_store(y) else np.asarray(y)
