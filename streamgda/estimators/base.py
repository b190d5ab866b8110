"""What all estimators share: rows in, moments kept, the model made of them when it is needed."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from streamgda import engine
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.estimators.half_life import recency
from streamgda.estimators.saving import SavedEstimator, describe, described
from streamgda.estimators.scoring import Blockwise
from streamgda.moments import ClassMoments
from streamgda.rows.labels import as_labels, find
from streamgda.rows.sources import is_dask, is_store, refuse_group
from streamgda.storage.saved import Saved, State, arrays_within, nested, restore

_FADED = 2.0**-64  # of the earlier rows' weight: so little that others are not weighed against it
# The model's methods that say what the estimators' do, and whether that is a number for each class.
_OF_THE_MODEL = {
    "predict": ("predict", False),
    "predict_proba": ("posterior", True),
    "predict_log_proba": ("log_posterior", True),
    "predict_joint_log_proba": ("joint_log_likelihood", True),
    "decision_function": ("relative_scores", True),
    "score_samples": ("log_density", False),
    "mahalanobis": ("mahalanobis", True),
    "p_values": ("p_values", True),
}


class MomentClassifier(ClassifierMixin, SavedEstimator):
    """Base of the estimators; each says which moments it keeps and what model they make.

    Attributes
    ----------
    moments_ : ClassMoments
        All that was kept of the rows.
    """

    n_features_in_: int
    _model_type: Any

    @abstractmethod
    def _covariance_type(self) -> str: ...

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

    def summed(self, X: Any) -> Any:
        """What the moments are of: the rows, or what is made of them as they are read.

        For `streamgda.accumulate`, of whose moments `from_moments` makes the estimator.
        """
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
            earlier, gamma = None if first else self.moments_, 1.0
            if half_life is not None:
                sample_weight, gamma = recency(half_life, X, sample_weight)
            apart = self._is_stored(X) or declared is not None or gamma < _FADED
            if earlier is None or apart:
                moments = self._read(X, y, sample_weight, first)
                if earlier is not None:
                    moments = (earlier if half_life is None else earlier * gamma) + moments
                if declared is not None:
                    moments.declare(declared)
                self._adopt(moments)
            else:
                X, y = self._validate(X, y, first)
                if half_life is None:
                    earlier.update(self.summed(X), y, sample_weight)
                else:  # which may fail, and must then have changed nothing; fading cannot
                    earlier.update(self.summed(X), y, sample_weight / gamma)
                    earlier *= gamma
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
            X = self.summed(X)
            return engine.accumulate(X, y, sample_weight=sample_weight, for_model=True, **kept)
        X, y = self._validate(X, y, first)
        return ClassMoments(**kept).update(self.summed(X), y, sample_weight)

    def _knows(self, labels: Any) -> bool:
        held = self.moments_.classes
        plain = type(labels) is np.ndarray and labels.dtype == held.dtype and labels.ndim == 1
        if plain and labels.tobytes() == held.tobytes():  # most often it is just these
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
        if _are_arrays(X, y) and (
            first or (X.shape[1] == self.n_features_in_ and not hasattr(self, "feature_names_in_"))
        ):  # nothing to convert, no names, and what is left to check the moments do
            if first:
                self.n_features_in_ = X.shape[1]
                self.__dict__.pop("feature_names_in_", None)
            return X, y
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
        return self._evaluate(self.blockwise("predict"), X, out)

    def predict_proba(self, X: Any, *, out: Any = None) -> Any:
        """Probability of each class, shape (n_rows, n_classes); parameters as of `predict`."""
        return self._evaluate(self.blockwise("predict_proba"), X, out)

    def predict_log_proba(self, X: Any, *, out: Any = None) -> Any:
        """Logarithm of `predict_proba`, exact where that is rounded to zero."""
        return self._evaluate(self.blockwise("predict_log_proba"), X, out)

    def predict_joint_log_proba(self, X: Any, *, out: Any = None) -> Any:
        """Joint log-likelihood ln p(x, y=k), shape (n_rows, n_classes); as of `predict`."""
        return self._evaluate(self.blockwise("predict_joint_log_proba"), X, out)

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
        return self._evaluate(self.blockwise("decision_function"), X, out)

    def score_samples(self, X: Any, *, out: Any = None) -> Any:
        """Log-density ln p(x) of each row, shape (n_rows,); parameters as of `predict`."""
        return self._evaluate(self.blockwise("score_samples"), X, out)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows whose predicted class is right.

        Parameters
        ----------
        X : array-like, zarr.Array or dask.array.Array, shape (n_rows, n_features)
        y : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
        sample_weight : array-like, shape (n_rows,), optional
        """
        return score_labels(self.predict(X), y, sample_weight)

    def blockwise(self, method: str, **options: Any) -> Blockwise:
        """What a method says of rows, as a function of blocks of them.

        Parameters
        ----------
        method : str
            Such as ``"predict_proba"``.
        **options
            Of that method.

        Raises
        ------
        InvalidParameterError
            For a method or an option that this estimator has not.
        """
        if method not in _OF_THE_MODEL or not hasattr(self, method) or options:
            given = f"{method}({', '.join(options)})" if options else method
            raise InvalidParameterError(f"{type(self).__name__} has no {given}")
        name, by_class = _OF_THE_MODEL[method]
        if method == "decision_function" and self.classes_.size == 2:
            name, by_class = "log_odds", False
        dtype = self.classes_.dtype if method == "predict" else np.float64
        columns = self.classes_.size if by_class else None
        return Blockwise(name, getattr(self.model_, name), self.model_, dtype, columns)

    def _evaluate(self, how: Blockwise, X: Any, out: Any = None) -> Any:
        if is_dask(X):
            from streamgda.engine import dask as distributed  # noqa: PLC0415

            self._check_stored(X, first=False)
            scores = distributed.score(how.function, X, how.dtype, how.columns)
            return scores if out is None else distributed.store(scores, out)
        if is_store(X):
            self._check_stored(X, first=False)
        else:
            refuse_group(X)
            X = validate_data(self, X, reset=False, dtype="numeric", ensure_all_finite=False)
            if out is None:
                return how.function(X)
        made_of = None if out is None else how.made_of
        return engine.score(
            how.function, X, out, made_of=made_of, out_row_bytes=how.row_bytes, held=how.held
        )

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

    def _state(self) -> State:
        # The model is saved too, if it exists: to estimate it again takes longer than to read it,
        # and gives other last bits on another processor or with other threads.
        check_is_fitted(self, "moments_")
        names = getattr(self, "feature_names_in_", None)
        parts: dict[str, Saved] = {"moments": self.moments_}
        if self._fitted_model is not None:
            parts["model"] = self._fitted_model
        states, arrays = nested(parts)
        names = None if names is None else [str(name) for name in names]
        return {**describe(self), "feature_names": names, **states}, arrays

    @classmethod
    def _restored(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        estimator = described(cls, attributes)
        moments = restore(ClassMoments, attributes["moments"], arrays_within(arrays, "moments"))
        estimator._adopt(moments)
        estimator.n_features_in_ = int(moments.n_features or 0)
        names = attributes["feature_names"]
        if names is not None:
            texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
            if not texts or len(names) != estimator.n_features_in_:
                raise ValueError(f"{estimator.n_features_in_} features cannot have such names")
            estimator.feature_names_in_ = np.array(names, object)
        if "model" in attributes:
            model = restore(cls._model_type, attributes["model"], arrays_within(arrays, "model"))
            if model.n_features != estimator.n_features_in_:
                raise ValueError("its model and its moments have different features")
            estimator._fitted_model = model
        return estimator


def score_labels(predicted: Any, y: Any, sample_weight: Any) -> float:
    """Share of rows, or of their weight, whose label is right."""
    from sklearn.metrics import accuracy_score  # noqa: PLC0415  (slow to import)

    if sample_weight is not None:
        sample_weight = np.asarray(sample_weight)
    true = as_labels(_in_memory(y))
    return float(accuracy_score(true, np.asarray(predicted), sample_weight=sample_weight))


def _in_memory(y: Any) -> Any:
    return y[...] if is_store(y) else np.asarray(y)


def _are_arrays(X: Any, y: Any) -> bool:
    """Whether these are arrays of numbers and of labels that fit each other as they are."""
    return (
        type(X) is type(y) is np.ndarray
        and X.dtype.kind in "iuf"
        and X.ndim == 2
        and X.size > 0
        and y.shape == X.shape[:1]
    )
