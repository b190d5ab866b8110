"""Estimators of models that follow from moments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from streamgda import storage
from streamgda.errors import (
    InvalidParameterError,
    MemoryBudgetError,
    StreamGDAError,
    as_attribute_error,
)
from streamgda.estimators.export import SklearnExport
from streamgda.estimators.fitted import fitted
from streamgda.estimators.forgetting import ForgetfulLearner
from streamgda.estimators.learning import check_fitted, check_supported, kept_by
from streamgda.estimators.saving import describe, described
from streamgda.estimators.scoring import ProbabilityMixin, Scorer
from streamgda.estimators.settings import present_settings
from streamgda.estimators.validation import names_in
from streamgda.models.model import check_classes, check_priors
from streamgda.moments import ClassMoments, name_features
from streamgda.rows.labels import as_labels, find
from streamgda.rows.names import ATTRIBUTE, restored_names
from streamgda.runtime.memory import readable, spare_memory
from streamgda.runtime.parameters import as_integer, as_numbers, check_type, refuse
from streamgda.storage.saved import Saved, State, arrays_within, nested, restore

# Methods of the model behind those of the estimators, and whether they return a column per class.
_MODEL_METHODS = {
    "predict": ("predict", False),
    "predict_proba": ("posterior", True),
    "predict_log_proba": ("log_posterior", True),
    "predict_joint_log_proba": ("joint_log_likelihood", True),
    "decision_function": ("relative_scores", True),
    "score_samples": ("log_density", False),
    "mahalanobis": ("mahalanobis", True),
    "p_values": ("p_values", True),
}


# Methods as functions of joint log-likelihoods and classes.
_OF_JOINT: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "predict": lambda joint, classes: classes[joint.argmax(axis=1)],
    "predict_proba": lambda joint, _: softmax(joint, axis=1),
    "predict_log_proba": lambda joint, _: log_softmax(joint, axis=1),
    "predict_joint_log_proba": lambda joint, _: joint,
    "score_samples": lambda joint, _: logsumexp(joint, axis=1),
}

Kind = TypeVar("Kind", bound="MomentClassifier")


class MomentClassifier(SklearnExport, ProbabilityMixin, ForgetfulLearner):
    """Base of the estimators, which define the moments to keep and the model they determine."""

    _model_type: Any
    _any_sum_of_priors = False  # priors are accepted that do not sum to one
    _only_shown = False  # True for a copy that computes no attributes

    def _make_model(self, moments: ClassMoments) -> Any:
        """Return the model that moments determine with these parameters."""
        raise NotImplementedError

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
        kept = kept_by(estimator)
        check_supported(estimator)
        if kept["norms"] and moments.n_features is not None:
            moments.fourth  # noqa: B018  (reports missing norms)
        estimator._adopt(moments.reduce(kept["covariance_type"]))
        estimator.n_features_in_ = int(moments.n_features or 0)
        if moments.feature_names is not None:
            estimator.feature_names_in_ = np.array(moments.feature_names, object)
        check_fitted(estimator)
        return estimator

    def _check_supported(self) -> None:
        super()._check_supported()
        self._check_priors()

    def _check_priors(self, classes: np.ndarray | None = None) -> None:
        """Raise an error for priors that no rows, or none of these classes, can have."""
        name = "class_prior" if hasattr(self, "class_prior") else "priors"
        priors = getattr(self, name, None)
        if priors is None:
            return
        priors = as_numbers(name, priors, "one number for each class")
        classes = np.arange(priors.size) if classes is None else classes
        normalised = not self._any_sum_of_priors
        check_priors(priors, classes, np.ones(classes.size), name, normalised=normalised)

    def _adopt(self, moments: ClassMoments, settings: Self | None = None) -> None:
        self._settings = self._current_settings() if settings is None else settings
        self.__dict__["moments_"] = moments
        self._numbers = None
        self._forget_model()

    def _forget_model(self) -> None:
        self._fitted_model: Any = None

    @fitted
    def model_(self) -> Any:
        """The model that the moments determine with the parameters of the last learning."""
        model = vars(self).get("_fitted_model")
        if model is None:
            check_is_fitted(self)
            self._refuse_if_only_shown()
            with self._locked():  # the moments do not change meanwhile
                model = self._fitted_model
                if model is None:
                    self._fitted_model = model = self._derived(self._compute_model)
        return model

    def _compute_model(self) -> Any:
        return self._settings._make_model(self.moments_)

    def _model_of(self, moments: ClassMoments, plain: ClassMoments | None = None) -> Any:
        """Return the model that other moments determine, as `fit` would with these parameters.

        `plain` are those of the same rows without their weights, if smoothing follows these.
        """
        check_classes(moments.classes, moments.class_count, self._least_classes)
        return self._settings._make_model(moments)

    # --- fitted attributes --------------------------------------------------------------------

    def _derived(self, compute: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the result of a function; its errors are AttributeErrors too."""
        try:
            return compute(*arguments, **options)
        except StreamGDAError as error:
            raise as_attribute_error(error) from None

    def _refuse_if_only_shown(self) -> None:
        if self._only_shown:
            raise _NotComputedError("this attribute is computed when it is first used")

    def _once(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return the result of a function, which is kept as long as the model."""
        kept = self.model_.cache
        if name not in kept:
            self._refuse_if_only_shown()
            with self._locked():  # the moments do not change meanwhile
                if name not in kept:
                    kept[name] = self._derived(compute)
        return kept[name]

    # scikit-learn's `dir` and its table of fitted attributes evaluate all attributes. Here `dir`
    # lists those that were not computed yet, and the table leaves them out.

    def __dir__(self) -> Iterable[str]:
        if self._only_shown:
            return super().__dir__()
        shown = self._shown()
        return [name for name in object.__dir__(self) if _is_listed(shown, name)]

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        return super(MomentClassifier, self._shown())._get_fitted_attr_html(doc_link)

    def _shown(self) -> Self:
        shown = object.__new__(type(self))
        shown.__dict__ = {**vars(self), "_only_shown": True}
        return shown

    @fitted
    def classes_(self) -> np.ndarray:
        """Class labels, sorted, shape (n_classes,)."""
        moments = vars(self).get("moments_")  # at once: streams ask for each row
        if moments is not None:
            return moments.classes
        check_is_fitted(self)
        return self.model_.classes

    @fitted
    def class_count_(self) -> np.ndarray:
        """Rows of each class, or their total weight, float64, shape (n_classes,)."""
        check_is_fitted(self)
        return self.moments_.class_count.astype(np.float64)

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
        kept_by(estimator)
        check_supported(estimator)
        labels = as_labels(classes, "classes")
        if not labels.size or not np.array_equal(labels, np.unique(labels)):
            raise refuse("classes", labels.tolist(), "each label once, sorted as in classes_")
        given = {
            name: as_numbers(name, values, "an array of numbers")
            for name, values in numbers.items()
            if values is not None
        }
        estimator._settings = present_settings(estimator, None)
        estimator._forget_model()
        estimator._fitted_model = estimator._model_of_numbers(labels, **given)
        estimator._numbers = given
        estimator.n_features_in_ = estimator.model_.n_features
        return estimator

    def _model_of_numbers(self, classes: np.ndarray, **numbers: np.ndarray) -> Any:
        """Return the model of given numbers, with these parameters."""
        raise NotImplementedError

    # --- scoring ------------------------------------------------------------------------------

    def _joint_log_likelihood(self, X: Any) -> np.ndarray:
        """Return joint log-likelihoods of rows in memory.

        Scores are computed by it where a subclass overrides it, as in scikit-learn.
        """
        return np.asarray(self.model_.joint_log_likelihood(X))

    def predict_joint_log_proba(
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
        """Return the joint log-likelihood ln p(x, y=k) of each class.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys : see `predict`
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
        return self._scored(
            "predict_joint_log_proba", X, out, features, nodata, on_invalid, fill, keys
        )

    def score_samples(
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
        """Return the log-density ln p(x) of each row.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys : see `predict`
            Rows, the destination of the result, and how rows are read.

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
        return self._scored("score_samples", X, out, features, nodata, on_invalid, fill, keys)

    def _model_for(self, method: str) -> Any:
        """Return the model that a method scores rows with."""
        return self.model_

    def _scorer(self, method: str, **options: Any) -> Scorer:
        if method not in _MODEL_METHODS or not hasattr(self, method) or options:
            given = f"{method}({', '.join(options)})" if options else method
            raise InvalidParameterError(f"{type(self).__name__} has no {given}")
        name, by_class = _MODEL_METHODS[method]
        model = self._model_for(method)  # once: another thread may replace it
        own = type(self)._joint_log_likelihood is not MomentClassifier._joint_log_likelihood
        if own and method in _OF_JOINT:
            function = partial(_of_joint, self, method)
            labels = model.classes if method == "predict" else None
            columns = model.classes.size if by_class else None
            return Scorer(
                f"{type(self).__qualname__}.{method}",
                function,
                model,
                labels,
                columns,
                method=method,
            )
        if method == "decision_function" and model.classes.size <= 2:
            name, by_class = "log_odds", False
        labels = model.classes if method == "predict" else None
        columns = model.classes.size if by_class else None
        return Scorer(name, getattr(model, name), model, labels, columns, method=method)

    def sample(
        self, n_samples: int = 1, random_state: Any = None, y: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int
            Number of rows.
        random_state : int, RandomState instance or None
            Seed.
        y : label, or array-like of labels of shape (n_samples,); optional
            Classes of the rows; by default drawn from the priors.

        Returns
        -------
        X : ndarray of float64, shape (n_samples, n_features)
            Rows.
        y : ndarray, shape (n_samples,)
            Labels.

        Raises
        ------
        InvalidParameterError
            For a class that has no rows, or a number of samples below one.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"])
        >>> X, y = nb.sample(3, random_state=0, y="bee")
        >>> X.round(2).ravel(), y
        (array([7.34, 6.02, 7.32]), array(['bee', 'bee', 'bee'], dtype='<U3'))
        """
        check_is_fitted(self)
        n_samples, random = self._drawing(n_samples, random_state)
        model = self.model_
        if y is None:
            labels = random.choice(model.classes, n_samples, p=model.priors)
        else:
            labels = np.repeat(as_labels([y]), n_samples) if np.ndim(y) == 0 else as_labels(y)
            if labels.size != n_samples:
                raise InvalidParameterError(f"y has {labels.size} labels for {n_samples} samples")
        return model.sample(labels, random), labels

    def _drawing(
        self, n_samples: Any, random_state: Any, in_memory: bool = True
    ) -> tuple[int, np.random.RandomState]:
        """Return the number of rows to draw, and the source of random numbers; refuse others."""
        n_samples = as_integer("n_samples", n_samples, "at least 1 row, an integer", 1)
        needed = 8 * n_samples * (self.n_features_in_ + 2)
        if in_memory and needed > 2 * spare_memory():
            raise MemoryBudgetError(
                f"n_samples={n_samples} of {self.n_features_in_} features need "
                f"{readable(needed)} of memory, and {readable(2 * spare_memory())} are available; "
                f"draw fewer, or into an `out` of the Gaussian estimators"
            )
        try:
            return n_samples, check_random_state(random_state)
        except ValueError:
            expected = "an integer from 0 to 2**32 - 1, a RandomState, or None"
            raise refuse("random_state", random_state, expected) from None

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        # The model is saved too, if it exists: to estimate it again takes longer than to read it,
        # and gives other last bits on another processor or with other threads. The parameters are
        # those that it depends on; any that were set since then are saved beside them.
        check_is_fitted(self)
        kept_by(self)  # refuses parameters that could not be loaded
        names, numbers = names_in(self), self._numbers
        parts: dict[str, Saved] = {} if numbers is not None else {"moments": self.moments_}
        if parts and self._fitted_model is not None:
            parts["model"] = self._fitted_model
        states, arrays = nested(parts)
        for state in states.values() if names else ():
            state.pop(ATTRIBUTE, None)  # the names of all parts are those of the estimator
        fitted, present = describe(self._settings), describe(self)["params"]
        later = {k: value for k, value in present.items() if value != fitted["params"][k]}
        since: dict[str, Any] = {"set_params": later} if later else {}
        if self._declared is not None:
            since["declared"] = storage.pack_labels(self._declared)
        if numbers is not None:
            since["classes"] = storage.pack_labels(self.classes_)
            arrays = {f"numbers/{name}": values for name, values in numbers.items()}
        return {**fitted, **since, ATTRIBUTE: names and [*names], **states}, arrays

    @classmethod
    def _restored(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        params = {**attributes["params"], **attributes.get("set_params", {})}
        estimator = unfitted(cls, {**attributes, "params": params})
        if "moments" not in attributes:
            classes, numbers = storage.unpack_labels(attributes["classes"]), "numbers"
            given = arrays_within(arrays, numbers)
            estimator = cls._of_numbers(classes, given, attributes["params"]).set_params(**params)
            names = restored_names(attributes, estimator.n_features_in_)
            if names is not None:
                estimator.feature_names_in_ = np.array(names, object)
            return estimator
        moments = restore(ClassMoments, attributes["moments"], arrays_within(arrays, "moments"))
        estimator._adopt(moments, unfitted(cls, attributes))
        estimator.n_features_in_ = int(moments.n_features or 0)
        names = restored_names(attributes, moments.n_features)
        if names is not None:
            estimator.feature_names_in_ = np.array(names, object)
            name_features(moments, names)
        if "declared" in attributes:
            estimator._declared = _all_of(moments, storage.unpack_labels(attributes["declared"]))
        if "model" in attributes:
            model = restore(cls._model_type, attributes["model"], arrays_within(arrays, "model"))
            same = model.classes.dtype == moments.classes.dtype
            if not same or not np.array_equal(model.classes, moments.classes):
                raise ValueError("its model and its moments have different classes")
            if model.n_features != estimator.n_features_in_:
                raise ValueError("its model and its moments have different features")
            estimator._fitted_model = replace(model, feature_names=moments.feature_names)
        return estimator


def _of_joint(
    estimator: MomentClassifier, method: str, rows: Any, first_row: int = 0
) -> np.ndarray:
    """Return what a method returns, from the joint log-likelihoods of a subclass."""
    joint = np.asarray(estimator._joint_log_likelihood(rows))
    return np.asarray(_OF_JOINT[method](joint, estimator.classes_))


def _all_of(moments: ClassMoments, labels: np.ndarray) -> np.ndarray:
    """Return declared labels; refuse those that lack some of the moments."""
    if moments.classes.size and (find(moments.classes, labels) < 0).any():
        raise ValueError("its moments have classes that were not declared")
    return labels


class _NotComputedError(AttributeError):
    """A fitted attribute that is computed when it is first used."""


def _is_listed(shown: MomentClassifier, name: str) -> bool:
    try:
        getattr(shown, name)
    except AttributeError as error:
        return isinstance(error, _NotComputedError)
    return True


def unfitted(base: type[Kind], description: Mapping[str, Any]) -> Kind:
    """Build an unfitted estimator with valid parameters; see `streamgda.estimators.saving`.

    Raises
    ------
    InvalidParameterError
        For parameters out of range, and priors that are no distribution.
    """
    estimator = described(base, description)
    kept_by(estimator)
    check_given_priors(estimator)
    return estimator


def check_given_priors(estimator: MomentClassifier, classes: np.ndarray | None = None) -> None:
    """Raise an error for priors that no rows, or none of these classes, can have."""
    estimator._check_priors(classes)
