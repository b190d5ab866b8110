"""Classifiers: `MomentClassifier` for all, and `GaussianClassifier` for those with Gaussians."""

from __future__ import annotations

from dataclasses import replace
from pkgutil import resolve_name
from typing import Any, Self, Unpack

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from streamgda.errors import (
    ConstantFeatureWarning,
    InvalidDataError,
    InvalidParameterError,
    SingularCovarianceError,
    SingularCovarianceWarning,
    UnsupportedError,
)
from streamgda.estimators.base import MomentEstimator, Reading, validated_rows, warn
from streamgda.models.covariance import (
    Covariances,
    Regularisation,
    Roots,
    Summary,
    auto_amount,
    check_priors,
    estimate,
    inverse_roots,
    singular_error,
)
from streamgda.models.gaussian import Gaussians
from streamgda.models.leave_one_out import leave_one_out
from streamgda.models.scoring import check_finite
from streamgda.moments import ClassMoments
from streamgda.moments.feature_maps import lifted
from streamgda.rows import Rows
from streamgda.rows.counting import Slab, as_matrix, as_weights
from streamgda.rows.labels import as_labels, find, join_labels, with_label
from streamgda.rows.source import as_source, check_lengths
from streamgda.runtime.memory import allowed_bytes, readable
from streamgda.runtime.parameters import (
    BELOW_ONE,
    LEAST,
    as_flag,
    as_integer,
    as_number,
    shown,
    unexpected,
)


class MomentClassifier(ClassifierMixin, MomentEstimator):
    """Base of the classifiers, whose models are `streamgda.models.scoring.ClassModel`.

    Subclasses have the parameters `temperature` and `feature_map`.
    """

    temperature: float
    _theirs: str | None = None  # It names the class of scikit-learn.
    _least_classes = 1  # `fit` needs rows of so many classes.

    def _check_fit(self, model: Any) -> None:
        seen = np.count_nonzero(self.moments_.class_count)
        if seen < self._least_classes:
            raise InvalidDataError(
                f"The number of classes has to be greater than one; got {seen} class "
                f"({self.classes_[0]!s}) with rows. Give rows of at least one other class"
            )

    @property
    def classes_(self) -> np.ndarray:
        """Class labels, sorted, shape (n_classes,)."""
        return self.moments_.classes

    @property
    def class_count_(self) -> np.ndarray:
        """Rows of each class, or their total weight, float64, shape (n_classes,)."""
        return self.moments_.class_count.astype(np.float64)

    def _by_class(self, name: str, method: str, X: Any, reading: Any, **options: Any) -> Any:
        """Return what a method of the model says of rows and classes; see `_map`."""
        scored = self._scored()
        options |= {"columns": scored.model.classes.size, "classes": scored.model.classes}
        return self._map(name, method, X, reading, scored, **options)

    def predict(self, X: Any, **reading: Unpack[Reading]) -> Any:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
            Rows.
        **reading
            How rows are read and results are written: `features`, `nodata`, `on_invalid`, `fill`,
            `on_missing`, `out`, `keys`, `max_memory`; see `streamgda.estimators.base.Reading`.

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
        scored = self._scored()
        return self._map("predict", "predict", X, reading, scored, labels=scored.model.classes)

    def predict_proba(self, X: Any, **reading: Unpack[Reading]) -> Any:
        """Return the probabilities of the classes.

        Parameters
        ----------
        X, **reading : see `predict`
            Rows.

        Returns
        -------
        ndarray, shape (n_rows, n_classes); or as for `predict`
            Probabilities.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As for `predict`.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> nb.predict_proba([[2.0], [4.5]]).round(3)
        array([[1. , 0. ],
               [0.5, 0.5]])
        """
        options = {"temperature": float(self.temperature)}
        return self._by_class("predict_proba", "posterior", X, reading, options=options)

    def predict_log_proba(self, X: Any, **reading: Unpack[Reading]) -> Any:
        """Return the logarithms of the probabilities of the classes.

        They are exact even where probabilities are rounded to zero.

        Parameters
        ----------
        X, **reading : see `predict`
            Rows.

        Returns
        -------
        ndarray, shape (n_rows, n_classes); or as for `predict`
            Logarithms of probabilities.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As for `predict`.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> nb.predict_log_proba([[4.0]]).round(3)
        array([[-0.079, -2.579]])
        """
        options = {"temperature": float(self.temperature), "logs": True}
        return self._by_class("predict_log_proba", "posterior", X, reading, options=options)

    def predict_joint_log_proba(self, X: Any, **reading: Unpack[Reading]) -> Any:
        """Return the joint log-likelihoods of rows and classes, ln p(x, y=k).

        Parameters
        ----------
        X, **reading : see `predict`
            Rows.

        Returns
        -------
        ndarray, shape (n_rows, n_classes); or as for `predict`
            Joint log-likelihoods.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As for `predict`.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> nb.predict_joint_log_proba([[2.0]]).round(3)
        array([[ -1.612, -14.112]])
        """
        return self._by_class("predict_joint_log_proba", "joint", X, reading)

    def score_samples(self, X: Any, **reading: Unpack[Reading]) -> Any:
        """Return the log-density of each row, ln p(x).

        Parameters
        ----------
        X, **reading : see `predict`
            Rows.

        Returns
        -------
        ndarray, shape (n_rows,); or as for `predict`
            Log-densities.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As for `predict`.

        Examples
        --------
        >>> from streamgda import BernoulliNB
        >>> nb = BernoulliNB().fit([[0, 1], [0, 1], [1, 0], [1, 1]], [0, 0, 1, 1])
        >>> nb.score_samples([[0, 1]]).round(3)
        array([-1.068])
        """
        return self._map("score_samples", "log_density", X, reading)

    def score(self, X: Any, y: Any, sample_weight: Any = None, **reading: Unpack[Reading]) -> float:
        """Return the share of rows whose class is predicted correctly.

        Parameters
        ----------
        X : see `predict`
            Rows.
        y : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
            True labels.
        sample_weight : array-like, shape (n_rows,), optional
            Weights of the rows.
        **reading
            How rows are read: `features`, `nodata`, `max_memory`; see `predict`.

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
        >>> GaussianNB().fit(X, y).score([[2.0], [5.0]], ["ant", "ant"])
        0.5
        """
        predicted = np.ravel(as_source(self.predict(X, **reading)).whole())
        labels, weights = _labels_and_weights(self.classes_, X, y, sample_weight, reading)
        check_lengths(as_source(predicted), as_source(labels, "y"))
        right = find(labels, self.classes_) == find(predicted, self.classes_)
        return float(np.average(right, weights=weights))

    def calibrate(
        self, X: Any, y: Any, sample_weight: Any = None, **reading: Unpack[Reading]
    ) -> Self:
        """Set the temperature with which the labels of other rows are most probable.

        Parameters
        ----------
        X, y : see `score`
            Rows that the estimator was not fitted to, and their labels.
        sample_weight : array-like, shape (n_rows,), optional
            Weights of the rows.
        **reading
            How rows are read; see `predict`. Rows that are filled (``on_invalid="fill"``) do not
            count.

        Returns
        -------
        estimator
            The estimator itself, with another parameter `temperature`, which counts at once.

        Raises
        ------
        InvalidDataError
            For rows that cannot be used, such as labels that are not among the classes.

        Notes
        -----
        The temperature is sought between 1/16 and 4096. Rows whose true class has no density are
        left out.

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
        scored = self._scored()
        classes = scored.model.classes
        joint = self._map("calibrate", "joint", X, reading, scored, columns=classes.size)
        joint = np.asarray(as_source(joint).whole())
        labels, weights = _labels_and_weights(self.classes_, X, y, sample_weight, reading)
        codes = _codes(np.asarray(labels), classes)
        check_lengths(as_source(joint), as_source(codes, "y"))
        at = np.flatnonzero(np.isfinite(joint[np.arange(codes.size), codes]) & (weights > 0))
        if not at.size:
            raise InvalidDataError("no row has a density above zero in its class")
        joint, codes, weights = joint[at], codes[at], weights[at]

        def loss(log_temperature: float) -> float:
            logs = log_softmax(joint * np.exp(-log_temperature), axis=1)
            return float(-weights @ logs[np.arange(codes.size), codes])

        bounds = (-np.log(16), np.log(4096))
        found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-9})
        self.temperature = float(np.exp(found.x))
        return self

    def sample(
        self, n_samples: int = 1, random_state: Any = None, y: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows from the distributions of the classes, which are those of the model.

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
            Rows. Features that are constant over all rows have their value.
        y : ndarray, shape (n_samples,)
            Labels.

        Raises
        ------
        InvalidParameterError
            For a class that has no density, or a number of samples below one.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> qda = QuadraticDiscriminantAnalysis().fit(*load_iris(return_X_y=True))
        >>> X, y = qda.sample(1000, random_state=0)
        >>> X.shape, (qda.predict(X) == y).mean() > 0.95
        ((1000, 4), np.True_)
        """
        self._scored()  # It is kept, and its errors come first.
        self._check_no_map("sample draws rows, and a feature map has no inverse")
        n_samples = as_integer("n_samples", n_samples, "at least 1 row, an integer", 1)
        random = check_random_state(random_state)
        held = self._copied(vars(self))
        with held.moments_._lock:  # Another thread may be adding rows.
            model = held._scored().model
            has_density = np.isin(np.arange(model.classes.size), model.alive)
            if y is None:
                priors = model.priors * has_density
                codes = random.choice(priors.size, n_samples, p=priors / priors.sum())
            else:
                labels = as_labels([y] if np.ndim(y) == 0 else y)
                if labels.size != (n_samples if np.ndim(y) else 1):
                    raise InvalidParameterError(
                        f"y has {labels.size} labels for {n_samples} samples"
                    )
                codes = _codes(labels, model.classes, InvalidParameterError)
                codes = np.broadcast_to(codes, n_samples)
            if not has_density[codes].all():
                label = model.classes[codes[~has_density[codes]][0]]
                raise InvalidParameterError(f"cannot sample class {label!s}, which has no density")
            X = held.moments_.means[codes]
            X[:, model.features] = held._draw(model, codes, random)
        return X, model.classes[codes]

    def _draw(self, model: Any, codes: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        """Return a row of the class with each code, with the features of the model."""
        raise NotImplementedError

    def to_sklearn(self) -> Any:
        """Return a fitted estimator of scikit-learn with the same predictions.

        Other libraries support it: skl2onnx converts it to ONNX, skops and MLflow store it, and it
        can be pickled for a machine without this package. It has those parameters of this estimator
        that scikit-learn has, and no moments.

        Returns
        -------
        sklearn.base.BaseEstimator
            The estimator of scikit-learn of the same name.

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
        check_is_fitted(self)
        self._check_no_map("to_sklearn returns an estimator of features as they are")
        if self.temperature != 1:
            raise UnsupportedError(
                f"temperature={shown(self.temperature)}, and scikit-learn's estimators have no "
                f"temperature: call set_params(temperature=1.0) first"
            )
        if self._theirs is None:
            raise UnsupportedError(
                f"scikit-learn has no {type(self).__name__}; use QuadraticDiscriminantAnalysis, "
                f"LinearDiscriminantAnalysis or a naive Bayes classifier"
            )
        exported = resolve_name(self._theirs)()
        names = {*dir(self), *vars(self)} - {"moments_", "model_", "offset_"}
        names = {name for name in names if name.endswith("_") and not name.startswith("_")}
        learned = {name: getattr(self, name) for name in names if hasattr(self, name)}
        learned |= self._overrides(self.model_)
        known = exported.get_params(deep=False).keys()
        exported.set_params(**{name: getattr(self, name) for name in known - learned.keys()})
        for name, value in learned.items():
            setattr(exported, name, value.copy() if isinstance(value, np.ndarray) else value)
        return exported

    def _overrides(self, model: Any) -> dict[str, Any]:
        """Return attributes that scikit-learn's estimator has with other values."""
        raise NotImplementedError

    def _check_no_map(self, why: str) -> None:
        """Raise `UnsupportedError` if rows are behind a feature map."""
        if self.feature_map is not None:
            raise UnsupportedError(
                f"{why}: fit an estimator without feature_map to feature_map.transform(X)"
            )


def _labels_and_weights(
    classes: np.ndarray, X: Any, y: Any, weight: Any, reading: Any
) -> tuple[Any, np.ndarray]:
    """Return the labels and weights of rows in memory, labels of the kind of the classes."""
    rows = Rows.of(X, y, weight, features=reading.get("features")).opened()
    if rows.y is None:
        raise InvalidParameterError("y is missing; give one label for each row")
    labels = rows.rule.labels(np.ravel(rows.y.whole()))
    join_labels(classes, labels.values)
    weights = 1.0 if rows.weight is None else rows.weight.whole()
    return labels, as_weights(weights, len(labels))


def _codes(labels: np.ndarray, classes: np.ndarray, kind: Any = InvalidDataError) -> np.ndarray:
    """Return the codes of labels among classes; raise an error for other labels."""
    codes = find(labels, classes)
    if codes.min(initial=0) < 0:
        at = int((codes < 0).argmax())
        raise kind(f"y[{at}] is {labels[at]!s}, which is not one of the classes {classes!s:.200}")
    return codes


class GaussianClassifier(MomentClassifier):
    """Base of the Gaussian classifiers, which define covariance type and regularisation."""

    _model_type: str  # The covariances of the model have it; the moments may hold more.
    _solvers: tuple[str, ...] = ()
    _any_sum_of_priors = False
    _weighted = False  # Priors weight the covariances of the classes in a pooled one.
    _advice = "Regularise (reg_param, shrinkage, pooling or var_smoothing above 0)"
    priors: Any
    tol: float = 1e-4
    store_covariance = False
    covariance_estimator: Any = None
    shrinkage: Any = None

    def _regularisation(self) -> Regularisation:
        raise NotImplementedError

    def _covariance_type(self) -> str:
        return self._model_type

    def _check_parameters(self) -> None:
        as_number("temperature", self.temperature, "a number above 0", LEAST)
        as_number("tol", self.tol, "a number >= 0", 0)
        as_flag("store_covariance", self.store_covariance)
        self._regularisation().check(self._model_type)
        solver, estimator = getattr(self, "solver", None), self.covariance_estimator
        if self._solvers and not (isinstance(solver, str) and solver in self._solvers):
            raise unexpected("solver", solver, f"one of {', '.join(map(repr, self._solvers))}")
        if estimator is not None and not hasattr(estimator, "fit"):
            raise unexpected(
                "covariance_estimator", estimator, "an object with a method fit, or None"
            )
        if estimator is not None and self.shrinkage not in (None, 0):
            raise InvalidParameterError(
                "covariance_estimator and shrinkage parameters are not None. Only one of the two "
                "can be set."
            )
        if solver == "svd" and (self.shrinkage is not None or estimator is not None):
            what = "shrinkage" if estimator is None else "covariance estimator"
            raise UnsupportedError(
                f"{what} is not supported with svd solver. Try another solver "
                f"({', '.join(self._solvers[1:])})"
            )

    # --- what needs all rows at once ----------------------------------------------------------

    def _needs_all_rows(self) -> str | None:
        if self.covariance_estimator is not None:
            return "covariance_estimator"
        auto = isinstance(self.shrinkage, str) and self.shrinkage == "auto"
        return "shrinkage='auto'" if auto else None

    def _find(self, rows: Rows, max_memory: int | str | None) -> Any:
        """Return the amounts of shrinkage of the classes, or their covariances."""
        needed, source = self._needs_all_rows(), as_source(rows.X)
        size = source.shape[0] * source.shape[1] * 8
        if not size <= allowed_bytes(max_memory):
            raise InvalidParameterError(
                f"{needed} needs all rows in memory, and these would take {readable(size)}; use "
                f"shrinkage='oas', which follows from sums over the rows"
            )
        if rows.weight is not None:
            raise InvalidParameterError(
                f"{needed} takes no sample_weight; leave it out, or use shrinkage='oas'"
            )
        opened = rows.opened()
        X, labels, *_ = rows.rule.counted(Slab(opened.X.whole(), opened.y.whole()))
        X = np.asarray(lifted(X, self._moments_of_kind()._lifting), np.float64)
        parts = [X[np.asarray(labels) == label] for label in self.moments_.classes]
        if self.covariance_estimator is None:
            return np.array([auto_amount(part) for part in parts])
        found = []
        for part in parts:
            estimator = clone(self.covariance_estimator, safe=False)
            estimator.fit(part)
            covariance = np.atleast_2d(np.asarray(getattr(estimator, "covariance_", None), float))
            if covariance.shape != (X.shape[1],) * 2 or not np.isfinite(covariance).all():
                raise InvalidParameterError(
                    f"{type(estimator).__name__} does not have a covariance_ attribute of finite "
                    f"numbers in shape {(X.shape[1],) * 2} after fit; expected an estimator such "
                    f"as those of sklearn.covariance"
                )
            found.append(covariance)
        return np.array(found)

    # --- the model ----------------------------------------------------------------------------

    def _make_model(self, moments: ClassMoments, found: Any) -> Gaussians:
        summary = Summary.of(moments)
        constant = summary.variances == 0
        features = np.flatnonzero(~constant)
        if not features.size:
            raise InvalidDataError(
                f"all {constant.size} features are constant over all rows, "
                f"{summary.count.sum():g} sample(s); they do not distinguish the classes"
            )
        covariances = self._covariances(summary, features)
        roots = self._roots(covariances.values)
        alive = (summary.count > 0) & (roots.ranks == features.size)
        kept = alive if len(roots.values) > 1 and not alive.all() else slice(None)
        return Gaussians(
            classes=summary.classes,
            priors=self._priors_of(summary),
            count=summary.count,
            n_features=constant.size,
            features=features,
            origin=summary.origin[features],
            centres=np.ascontiguousarray(summary.offsets[:, features]),
            alive=np.flatnonzero(alive),
            roots=np.ascontiguousarray(roots.values[kept]),
            log_determinants=roots.log_determinants[kept],
            degrees=covariances.degrees,
            unbiased=covariances.unbiased,
            ranks=roots.ranks,
            one_variance="spherical" in self._model_type,
        )

    def _priors_of(self, summary: Summary) -> np.ndarray:
        """Return the priors of the classes, by default their shares of the rows."""
        normalised = not self._any_sum_of_priors
        return check_priors(self.priors, summary.classes, summary.count, normalised=normalised)

    def _covariances(self, summary: Summary, features: Any = None) -> Covariances:
        """Return the covariances of some features, by default all, that the model has."""
        weighted = self._weighted or self._found is not None
        weights = self._priors_of(summary) if weighted else None
        how, options = self._regularisation(), {"found": self._found, "weights": weights}
        return estimate(summary, self._model_type, how, features, **options)

    def _roots(self, covariances: np.ndarray) -> Roots:
        """Return the roots of inverse covariances, in the place of these."""
        return inverse_roots(covariances, self.tol, overwrite=True)

    def _singular(self, model: Gaussians) -> SingularCovarianceError:
        """Return the error for classes with rows that have no density."""
        advice = f"{self._advice}, leave out features that depend on others, or give more rows"
        return singular_error(model.ranks, model.features.size, model.classes, model.count, advice)

    def _check_fit(self, model: Gaussians) -> None:
        super()._check_fit(model)
        if model.alive.size < np.count_nonzero(model.count):
            raise self._singular(model)
        never = (model.priors > 0) & (model.count == 0)
        if self.priors is not None and never.any():
            raise InvalidParameterError(
                f"priors above zero of classes without rows: {model.classes[never].tolist()}. Give "
                f"their priors as zero, or rows of theirs"
            )
        constant = np.setdiff1d(np.arange(model.n_features), model.features)
        if constant.size and self.moments_.feature_map is None:
            names = self.moments_.feature_names or range(model.n_features)
            listed = [str(names[j]) for j in constant]
            listed[10:] = ["..."] if len(listed) > 10 else []
            warn(
                f"{constant.size} of {model.n_features} features are constant over all rows and "
                f"are left out of the density: {', '.join(listed)}",
                ConstantFeatureWarning,
            )

    def _check_stream(self, model: Gaussians) -> None:
        if not model.alive.size:
            raise self._singular(model)
        if model.alive.size < np.count_nonzero(model.count):
            warn(
                f"predictions leave out classes that have no invertible covariance yet: "
                f"{self._singular(model)}",
                SingularCovarianceWarning,
            )

    @property
    def constant_features_(self) -> np.ndarray:
        """Features that are constant over all rows and left out of the density."""
        return np.setdiff1d(np.arange(self.model_.n_features), self.model_.features)

    def _all_covariances(self, features: Any = None) -> Covariances:
        """Return the covariances of some features, by default of all, also of constant ones."""
        self.model_  # noqa: B018  (its errors come first)
        return self._covariances(Summary.of(self._moments_of_kind()), features)

    # --- answers ------------------------------------------------------------------------------

    def predict(
        self,
        X: Any,
        *,
        reject: float = 0.0,
        reject_label: Any = None,
        **reading: Unpack[Reading],
    ) -> Any:
        """Return the most probable class of each row, or a label for rejected rows.

        Parameters
        ----------
        X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
            Rows.
        reject : float in [0, 1)
            Rows are rejected if their p-value (see `p_values`) for the predicted class is below
            `reject`. If the classes are Gaussian, about this share of their rows is rejected.
        reject_label : label, optional
            Label of rejected rows. It has the type of the class labels and is not one of them; by
            default -1, an empty string or NaT.
        **reading
            How rows are read and results are written: `features`, `nodata`, `on_invalid`, `fill`,
            `on_missing`, `out`, `keys`, `max_memory`; see `streamgda.estimators.base.Reading`.

        Returns
        -------
        ndarray, shape (n_rows,); or `out`; or a lazy dask array
            Labels.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For rows, an `out`, or a parameter that cannot be used.

        Examples
        --------
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> X, y = [[1.0], [3.0], [6.0], [9.0]], ["ant", "ant", "bee", "bee"]
        >>> qda = QuadraticDiscriminantAnalysis().fit(X, y)
        >>> qda.predict([[2.0], [50.0]])
        array(['ant', 'bee'], dtype='<U3')
        >>> qda.predict([[2.0], [500.0]], reject=0.01, reject_label="neither")
        array(['ant', 'neither'], dtype='<U7')
        """
        reject = as_number("reject", reject, "a number from 0 to below 1", 0, BELOW_ONE)
        if not reject:
            return super().predict(X, **reading)
        scored = self._scored()
        labels = with_label(scored.model.classes, "reject_label", reject_label)
        given: Any = {"labels": labels, "options": {"reject": reject, "labels": labels}}
        return self._map("predict", "predict_or_reject", X, reading, scored, **given)

    def mahalanobis(self, X: Any, y: Any = None, **reading: Unpack[Reading]) -> Any:
        """Return the squared Mahalanobis distance to each class, or to the given one.

        Parameters
        ----------
        X : see `predict`
            Rows.
        y : array-like, shape (n_rows,), optional
            Class of each row: only the distance to it is computed, of all rows in memory. With many
            classes, such as a Gaussian for each position of an image, this takes a small part of
            the time.
        **reading : see `predict`
            How rows are read and results are written.

        Returns
        -------
        ndarray, shape (n_rows, n_classes), or (n_rows,) with `y`; or as for `predict`
            Squared distances; NaN for a class without a density.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As for `predict`.

        Examples
        --------
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> qda = QuadraticDiscriminantAnalysis().fit([[1.0], [3.0], [6.0], [9.0]], [0, 0, 1, 1])
        >>> qda.mahalanobis([[2.0], [5.0]]).round(2)
        array([[ 0.  , 13.44],
               [ 9.  ,  2.78]])
        """
        if y is None:
            return self._by_class("mahalanobis", "distances", X, reading)
        model, feature_map = self._scored()
        return model.own_distances(*self._in_memory(X, y, feature_map, **reading))

    def _in_memory(
        self, X: Any, y: Any, feature_map: Any, **reading: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return labelled rows as the model takes them, and the codes of their classes."""
        rows = Rows.of(X, y, **reading)
        opened = replace(rows, X=validated_rows(self, rows.X)).opened()
        codes = _codes(as_labels(opened.y.whole()), self.classes_)
        check_lengths(opened.X, as_source(codes, "y"))
        X = np.asarray(lifted(as_matrix(opened.X.whole()), feature_map), np.float64)
        check_finite(X, 0)
        return X, codes

    def p_values(self, X: Any, **reading: Unpack[Reading]) -> Any:
        r"""Return the share of each class that is further from its mean than the row.

        A row whose p-values are small for all classes is an outlier. The distribution of the
        squared distance takes into account that means and covariances are estimates. With n rows of
        a class and d features, of whose covariance S has nu degrees of freedom (one less than the
        rows of the class, or all rows less the classes), :math:`n/(n+1)\,(x-m)^T S^{-1} (x-m)` is
        Hotelling's :math:`T^2`: its product with (nu - d + 1) / (nu d) is F(d, nu - d + 1). Of
        variances it is a sum of d variables F(1, nu), in whose place a gamma variable with the same
        mean and variance is taken: a p-value below 0.01 has a probability of 0.010 to 0.012.
        Covariances that are regularised give larger p-values.

        Parameters
        ----------
        X, **reading : see `predict`
            Rows.

        Returns
        -------
        ndarray, shape (n_rows, n_classes); or as for `predict`
            P-values; NaN for a class without a density.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As for `predict`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> X, y = load_iris(return_X_y=True)
        >>> qda = QuadraticDiscriminantAnalysis().fit(X[::2], y[::2])
        >>> qda.p_values(X[1:100:50]).round(4)
        array([[0.577 , 0.    , 0.    ],
               [0.    , 0.7738, 0.0155]])
        """
        return self._by_class("p_values", "p_values", X, reading)

    def _draw(
        self, model: Gaussians, codes: np.ndarray, random: np.random.RandomState
    ) -> np.ndarray:
        X = model.origin + model.centres[codes]
        covariances = self._all_covariances(model.features).values
        groups = codes if len(covariances) > 1 else np.zeros_like(codes)
        for g in np.unique(groups):
            at, S = np.flatnonzero(groups == g), covariances[g]
            scales = np.sqrt(S if S.ndim == 1 else S.diagonal())
            z = random.standard_normal((at.size, scales.size))
            if S.ndim == 2:  # The symmetric root of the correlations, of any rank, has no signs.
                R = S / np.where(scales > 0, np.outer(scales, scales), 1.0)
                values, axes = np.linalg.eigh(R)
                values[values <= len(R) * np.finfo(float).eps * values[-1]] = 0.0
                z = z @ (axes * np.sqrt(values)) @ axes.T
            X[at] += z * scales
        return X

    # --- leave-one-out ------------------------------------------------------------------------

    def leave_one_out_proba(self, X: Any, y: Any, *, priors: str = "counted") -> np.ndarray:
        r"""Return the probability of each class by the model fitted without the row.

        The result is that of as many fits as there are rows, each without one of them, to rounding.
        Without a row x, the scatter of its class of n rows loses
        :math:`\frac{n}{n-1}\,\delta\delta^T`, with :math:`\delta = x - m`.

        Parameters
        ----------
        X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
            Rows that the estimator was fitted to, without weights: all of them, or some. They are
            read as a whole.
        y : array-like, shape (n_rows,)
            Their labels in the fit.
        priors : {"counted", "fixed"}
            Priors without the row: the classes' shares of the other rows, or those of the fit to
            all rows, as in ``lda`` and ``qda`` of R's package MASS with ``CV=TRUE``. It makes no
            difference where the estimator has `priors`.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Probabilities. That of a class is zero for its only row, with counted priors.

        Raises
        ------
        InvalidDataError
            For rows or labels that cannot be those of the fit.
        SingularCovarianceError
            If a covariance is singular without one of the rows, which is named.
        UnsupportedError
            Where a row changes the covariances in more than one direction: rules for the shrinkage,
            `pooling`, a `covariance_estimator`, `priors` that weight covariances (solvers
            ``"lsqr"`` and ``"eigen"``), dropped directions; and for weighted rows.

        References
        ----------
        B. D. Ripley: Pattern Recognition and Neural Networks, Cambridge University Press, 1996.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> X, y = load_iris(return_X_y=True)
        >>> qda = QuadraticDiscriminantAnalysis().fit(X, y)
        >>> qda.leave_one_out_proba(X, y)[70].round(3)
        array([0.   , 0.152, 0.848])
        >>> qda.predict_proba(X)[70].round(3)
        array([0.   , 0.328, 0.672])
        """
        return np.exp(self._log_proba_without(X, y, priors)[0])

    def leave_one_out_score(self, X: Any, y: Any, *, priors: str = "counted") -> float:
        """Return the share of rows that the model fitted without them classifies correctly.

        Parameters
        ----------
        X, y, priors : see `leave_one_out_proba`
            Rows that the estimator was fitted to, with their labels.

        Returns
        -------
        float
            Accuracy.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As for `predict`.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> X, y = load_wine(return_X_y=True)
        >>> qda = QuadraticDiscriminantAnalysis().fit(X, y)
        >>> round(qda.score(X, y), 3), round(qda.leave_one_out_score(X, y), 3)
        (0.994, 0.994)
        """
        logs, codes = self._log_proba_without(X, y, priors)
        return float((logs.argmax(axis=1) == codes).mean())

    def _log_proba_without(self, X: Any, y: Any, priors: str) -> tuple[np.ndarray, np.ndarray]:
        """Return log-probabilities by the model without each row, and codes of the classes."""
        if priors not in ("counted", "fixed"):
            raise unexpected("priors", priors, "'counted' or 'fixed'")
        (model, lifting), how = self._scored(), self._regularisation()
        changed = isinstance(how.shrinkage, str) or how.pooling or self._needs_all_rows()
        changed = changed or self._weighted or model.rank < model.features.size
        if changed or self.moments_.class_count.dtype.kind == "f":
            raise UnsupportedError(
                "leave-one-out has no formula for rules for the shrinkage, pooling, a "
                "covariance_estimator, priors that weight covariances, directions that are dropped "
                "and weighted rows; use a number for shrinkage, solver='svd', or folds"
            )
        summary = Summary.of(self._moments_of_kind())
        rows, codes = self._in_memory(X, y, lifting)
        given = np.bincount(codes, minlength=summary.classes.size)
        if (given > summary.count).any():
            k = int((given > summary.count).argmax())
            raise InvalidDataError(
                f"class {summary.classes[k]!s} has {given[k]} rows here, and {summary.count[k]:g} "
                f"in the fit; give rows and labels that the estimator was fitted to"
            )
        fixed = model.priors if self.priors is not None or priors == "fixed" else None
        logs = leave_one_out(summary, self._model_type, how, rows, codes, fixed)
        return log_softmax(logs / self.temperature, axis=1), codes
