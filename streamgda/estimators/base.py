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
from streamgda.estimators.recency import recency
from streamgda.identity import made_by
from streamgda.model import GaussianModel, check_priors
from streamgda.moments import ClassMoments
from streamgda.moments.labels import as_labels, find, join_labels
from streamgda.sampling import Sampler, sample
from streamgda.sources import is_dask, is_store, refuse_group


class MomentClassifier(ClassifierMixin, BaseEstimator):
    """Base of the estimators; each says which moments it keeps and what model they make.

    Attributes
    ----------
    moments_ : ClassMoments
        All that was kept of the rows.
    """

    n_features_in_: int
    _model_type: Any

    def _covariance_type(self) -> str:
        raise NotImplementedError

    def _check_parameters(self) -> None:
        """Raise `InvalidParameterError` where a parameter is out of range."""
        raise NotImplementedError

    def _kept(self) -> dict[str, Any]:
        """What the moments are to keep, as parameters of theirs; refuses what cannot be meant."""
        self._check_parameters()
        return {"covariance_type": self._covariance_type(), "norms": False}

    def _make_model(self) -> Any:
        """The model that the moments make with these parameters."""
        raise NotImplementedError

    def _is_stored(self, X: Any) -> bool:
        """Whether rows are read in blocks, and are not to be held in memory."""
        return is_dask(X) or is_store(X)

    def _summed(self, X: Any) -> Any:
        """What the moments are of: the rows, or what is made of them as they are read."""
        return X

    # --- learning -----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model to rows, in one pass over them.

        To bound the memory of that pass, keep a checkpoint of it or see how far it is, call
        `accumulate`, and `from_moments` with what it gives.

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
            moments = self._read(X, y, sample_weight, first=True)
            if moments.n_features is None:
                raise InvalidDataError("every sample_weight is zero: no row is left to fit to")
            self._adopt(moments)
            self.model_  # noqa: B018  (so that fit says what is wrong)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        half_life: float | None = None,
    ) -> Self:
        """Take in more rows: equal to `fit` on all of them, to rounding, however they were cut.

        Parameters
        ----------
        X, y, sample_weight
            As of `fit`.
        classes : array-like, shape (n_classes,), optional
            Labels that are classes before any row of theirs is seen. Others may appear at any
            time, whether this was given or not.
        half_life : float, optional
            In rows: every row that is taken in after it, in this call or a later one with a
            half-life, makes a row weigh less, until after `half_life` rows it weighs half. The
            rows are taken to be in the order of their age, the oldest first. By default nothing
            is forgotten.

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
            kept = self._kept()
            first = not hasattr(self, "moments_")
            declared = None  # as where every call names the classes: nothing to add
            if classes is not None and (first or not self._knows(classes)):
                declared = as_labels(classes, "classes")
            if not first and self.moments_.covariance_type != kept["covariance_type"]:
                raise InvalidParameterError(
                    f"covariance_type={kept['covariance_type']!r}, but the rows so far were kept "
                    f"for {self.moments_.covariance_type!r}; call fit, or from_moments with "
                    f"moments_.reduce({kept['covariance_type']!r})"
                )
            if not first and kept["norms"] and not self.moments_.norms:
                raise InvalidParameterError(
                    f"shrinkage={self.get_params()['shrinkage']!r}, but the rows so far were kept "
                    f"without their norms; call fit"
                )
            earlier = None if first else self.moments_
            if half_life is not None:
                sample_weight, gamma = recency(half_life, X, sample_weight)
                earlier = None if earlier is None else earlier * gamma
            if earlier is None or self._is_stored(X) or declared is not None:
                moments = self._read(X, y, sample_weight, first)
                if earlier is not None:
                    moments = earlier + moments
                if declared is not None:
                    moments.declare(declared)
                self._adopt(moments)
            else:
                X, y = self._validate(X, y, first)
                earlier.update(self._summed(X), y, sample_weight)
                self._adopt(earlier)
        return self

    def forget(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take rows out again: the model is then as if they had never been seen.

        To rounding; to the bit where rows are 8- or 16-bit integers without weights. A class left
        without rows is no class any more.

        Parameters
        ----------
        X, y, sample_weight
            As they were given to `fit` or `partial_fit`; where rows fade with a half-life, with
            the weights that they have by now. That these very rows were seen cannot be known; that
            there were as many of each class is checked.

        Returns
        -------
        self

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used.
        MergeError
            For more rows of a class than were seen.
        """
        check_is_fitted(self, "moments_")
        with self._unchanged_on_error():
            self._adopt(self.moments_ - self._read(X, y, sample_weight, first=False))
        return self

    def retire(self, labels: Any) -> Self:
        """Drop classes with all that was seen of them; their labels may come back with other rows.

        Parameters
        ----------
        labels : array-like
            Of classes.

        Returns
        -------
        self

        Raises
        ------
        InvalidParameterError
            For labels that are not among the classes.
        MergeError
            Where all classes share one covariance, from which no class's part can be taken out;
            `forget` its rows, or keep ``"full"`` moments and `reduce` them.
        """
        check_is_fitted(self, "moments_")
        self._adopt(self.moments_.drop_classes(labels))
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
        estimator
            Fitted.
        """
        estimator = cls(**params)
        kept = estimator._kept()
        if kept["norms"] and moments.n_features is not None:
            moments.fourth  # noqa: B018  (so that it says what is missing)
        estimator._adopt(moments.reduce(kept["covariance_type"]))
        estimator.n_features_in_ = int(moments.n_features or 0)
        estimator.model_  # noqa: B018
        return estimator

    def _read(self, X: Any, y: Any, sample_weight: Any, first: bool) -> ClassMoments:
        kept = self._kept()
        if not first:
            kept["norms"] = self.moments_.norms
        if self._is_stored(X):
            self._check_stored(X, first)
            X = self._summed(X)
            return engine.accumulate(X, y, sample_weight=sample_weight, for_model=True, **kept)
        X, y = self._validate(X, y, first)
        return ClassMoments(**kept).update(self._summed(X), y, sample_weight)

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
        if hasattr(X, "to_dask_array"):  # scikit-learn takes names from pandas' own frames only
            import pandas as pd  # noqa: PLC0415

            X = pd.DataFrame(columns=X.columns)
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
        self._fitted_model: Any = None

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
    def model_(self) -> Any:
        """The model that the moments make with these parameters, made when it is first needed."""
        check_is_fitted(self, "moments_")
        if self._fitted_model is None:
            self._fitted_model = self._make_model()
        return self._fitted_model

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

    # --- scoring ------------------------------------------------------------------------------

    def predict(self, X: Any, *, out: Any = None) -> Any:
        """Most probable class of each row.

        Parameters
        ----------
        X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
        out : numpy.ndarray, zarr.Array, or path or zarr store to create one in; optional
            Where the result goes, slab by slab, or block by block of a dask array, whose result
            is lazy otherwise. On a cluster each chunk or shard is written by one task. Elsewhere a
            zarr array bears a mark, the attribute ``streamgda_scores``, that says how far it is
            written: where the process is stopped, the same call goes on from there.

        Returns
        -------
        ndarray, shape (n_rows,); or `out`; or a lazy dask array
        """
        return self._evaluate("predict", X, out, self.classes_.dtype)

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
        needs = {"out_row_bytes": width, "held": self.model_.packed_bytes}
        if is_dask(X):
            from streamgda import distributed  # noqa: PLC0415  (dask is loaded where it is used)

            self._check_stored(X, first=False)
            scores = distributed.score(function, X, dtype, columns)
            return scores if out is None else distributed.store(scores, out)
        if is_store(X):
            self._check_stored(X, first=False)
        else:
            refuse_group(X)
            X = validate_data(self, X, reset=False, dtype="numeric", ensure_all_finite=False)
            if out is None:
                return function(X)
        named = out is not None and isinstance(method, str)
        made_of = made_by(str(method), self.model_, options) if named else None
        return engine.score(function, X, out, made_of=made_of, **needs)

    def sample(
        self, n_samples: int = 1, random_state: Any = None, y: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int
        random_state : int, RandomState instance or None
        y : label, or array-like of labels of shape (n_samples,); optional
            The classes to draw from; by default drawn from the priors.

        Returns
        -------
        X : ndarray of float64, shape (n_samples, n_features)
        y : ndarray, shape (n_samples,)

        Raises
        ------
        InvalidParameterError
            For a class that has no rows, or a number of samples below one.
        """
        if n_samples < 1:
            raise InvalidParameterError(f"n_samples={n_samples}; expected at least 1")
        random = check_random_state(random_state)
        if y is None:
            labels = random.choice(self.model_.classes, n_samples, p=self.model_.priors)
        else:
            labels = as_labels(np.full(n_samples, y) if np.ndim(y) == 0 else y)
            if labels.size != n_samples:
                raise InvalidParameterError(f"y has {labels.size} labels for {n_samples} samples")
        return self.model_.sample(labels, random), labels

    # --- saving -------------------------------------------------------------------------------

    def save(self, store: Any, *, offset: Any = None) -> None:
        """Write parameters, moments and model as a zarr group: nothing in it is executed.

        What is loaded (`streamgda.load`) scores as this does bit for bit, and goes on learning.

        Parameters
        ----------
        store : path, zarr store or zarr group
            A path that ends in ``.zip`` becomes one file. What stands there is replaced.
        offset : object
            What JSON can hold, to be kept beside: where in a stream it belongs (`Checkpoint`).
        """
        check_is_fitted(self, "moments_")
        names = getattr(self, "feature_names_in_", None)
        attributes: dict[str, Any] = {
            "estimator": type(self).__name__,
            "params": {name: _plain(v) for name, v in self.get_params(deep=False).items()},
            "feature_names": None if names is None else [str(name) for name in names],
            "offset": offset,
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
        names = attributes["feature_names"]
        if names is not None:
            texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
            if not texts or len(names) != self.n_features_in_:
                raise ValueError(f"{self.n_features_in_} features do not have such names")
            self.feature_names_in_ = np.array(names, object)
        if "model" in attributes:
            model = self._model_type.from_state(attributes["model"], arrays_of("model"))
            if model.n_features != self.n_features_in_:
                raise ValueError("its model and its moments are not of the same features")
            self._fitted_model = model
        return self


class GaussianClassifier(MomentClassifier):
    """Base of the Gaussian estimators; each says which covariances and regularisation it means."""

    _model_type = GaussianModel
    _fitted_model: GaussianModel | None

    def _regularisation(self) -> Regularisation:
        raise NotImplementedError

    def _kept(self) -> dict[str, Any]:
        return self._regularisation().needs(self._covariance_type())

    def _make_model(self) -> GaussianModel:
        model = GaussianModel.from_moments(
            self.moments_,
            self._covariance_type(),
            self._regularisation(),
            getattr(self, "priors", None),
        )
        self._report_constant_features(model)
        return model

    def _forget_model(self) -> None:
        super()._forget_model()
        self._fitted_covariances: Covariances | None = None

    def _report_constant_features(self, model: GaussianModel) -> None:
        constant = self._left_out(model)
        told = getattr(self, "_told_constant", None)
        if constant.size and (told is None or not np.array_equal(told, constant)):
            listed = ", ".join(map(str, constant[:10])) + (", ..." if constant.size > 10 else "")
            warnings.warn(
                f"{constant.size} of {self.n_features_in_} features are constant over all rows "
                f"and are left out of the density: {listed}",
                ConstantFeatureWarning,
                stacklevel=5,
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

    def _left_out(self, model: GaussianModel) -> np.ndarray:
        return np.setdiff1d(np.arange(self.n_features_in_), model.features)

    @property
    def constant_features_(self) -> np.ndarray:
        """Numbers of the features that are constant over all rows: not in the density."""
        return self._left_out(self.model_)

    def predict(
        self, X: Any, *, out: Any = None, reject: float = 0.0, reject_label: Any = -1
    ) -> Any:
        """Most probable class of each row, or a label for rows that are of none.

        Parameters
        ----------
        X, out
            As of the other estimators: any array of rows, and where the result goes.
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
            return super().predict(X, out=out)
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

    def mahalanobis(self, X: Any, *, out: Any = None) -> Any:
        """Squared Mahalanobis distance to each class, shape (n_rows, n_classes)."""
        return self._evaluate("mahalanobis", X, out, columns=self.classes_.size)

    def p_values(self, X: Any, *, out: Any = None) -> Any:
        """Share of each class's rows that lie further from its mean, shape (n_rows, n_classes).

        Of a Gaussian: the chi-square p-value of `mahalanobis`. Small for all classes, it marks an
        outlier.
        """
        return self._evaluate("p_values", X, out, columns=self.classes_.size)

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
