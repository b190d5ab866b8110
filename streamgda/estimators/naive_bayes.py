"""Gaussian naive Bayes: features are independent given the class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from streamgda.estimators import export
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.estimators.moment_classifier import fitted
from streamgda.models.covariance import Covariances, Regularisation, estimate
from streamgda.models.leave_one_out import GaussianLeaveOneOut
from streamgda.moments import ClassMoments
from streamgda.moments.centred import total_variance
from streamgda.rows import Rows
from streamgda.storage.saved import State, arrays_within, nested, restore


class GaussianNB(GaussianClassifier):
    """Gaussian naive Bayes: a variance for each class and feature.

    It corresponds to `sklearn.naive_bayes.GaussianNB`, but needs only one pass over the rows, and a
    second one if they have weights: the smoothing follows the variances without weights, also of
    rows of weight zero, as in scikit-learn. In `partial_fit` these are of all rows so far, so that
    any chunking gives the same model; in scikit-learn they are of the last chunk. With a
    `half_life`, and in `from_moments`, they are those of the moments. Sparse matrices and arrays of
    scipy are learnt and scored without making them dense, which scikit-learn refuses.

    Parameters
    ----------
    priors : array-like, shape (n_classes,), optional
        Priors of the sorted classes; by default their shares of the rows.
    var_smoothing : float >= 0
        Fraction of the largest variance of a feature that is added to every variance.

    Attributes
    ----------
    classes_, class_count_, class_prior_, theta_, var_, epsilon_
    constant_features_, moments_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> GaussianNB().partial_fit(X[::2], y[::2]).partial_fit(X[1::2], y[1::2]).score(X, y)
    0.96
    """

    _beside: ClassMoments | None  # moments of the rows without their weights, if they had any

    def __init__(self, *, priors: Any = None, var_smoothing: float = 1e-9) -> None:
        self.priors = priors
        self.var_smoothing = var_smoothing

    def _covariance_type(self) -> str:
        return "diag"

    def _regularisation(self) -> Regularisation:
        return Regularisation(var_smoothing=self.var_smoothing, advice="Set var_smoothing above 0")

    # --- smoothing, which follows the rows without their weights, as in scikit-learn ------------

    def _adopt(self, moments: ClassMoments, settings: Self) -> None:
        super()._adopt(moments, settings)
        if not settings.var_smoothing:
            self._beside = None

    def _of_rows_alone(self, settings: Self, held: None, rows: Rows) -> ClassMoments:
        self._beside = None
        if rows.weight is not None and settings.var_smoothing:
            self._beside = super()._of_rows_alone(settings, held, _unweighted(rows))
        return super()._of_rows_alone(settings, held, rows)

    def _added(
        self,
        settings: Self,
        held: ClassMoments | None,
        rows: Rows,
        decay: float | None = None,
        declared: np.ndarray | None = None,
        expected: np.ndarray | None = None,
    ) -> ClassMoments:
        beside = self._beside
        if decay is not None:  # rows have other weights then than those of the caller
            self._beside = None
        elif settings.var_smoothing and (rows.weight is not None or beside is not None):
            beside = held if beside is None else beside
            copied = None if beside is None else beside.copy()
            self._beside = super()._added(settings, copied, _unweighted(rows))
            held = None if held is None else held.copy()  # both change, or none
        return super()._added(settings, held, rows, decay, declared, expected)

    def _without_rows(self, settings: Self, held: ClassMoments, rows: Rows) -> ClassMoments:
        if self._beside is not None:
            self._beside = super()._without_rows(settings, self._beside, _unweighted(rows))
        return super()._without_rows(settings, held, rows)

    def _without_classes(
        self, settings: Self, held: ClassMoments, rows: None, labels: Any
    ) -> ClassMoments:
        if self._beside is not None:
            self._beside = self._beside.drop_classes(labels)
        return super()._without_classes(settings, held, rows, labels)

    def _estimate(
        self, moments: ClassMoments, beside: ClassMoments | None = None, **options: Any
    ) -> Covariances:
        how = self._regularisation()
        if beside is not None:
            how = replace(how, largest_variance=float(total_variance(beside.centred()).max()))
        return estimate(moments, "diag", how, **options)

    def _leave_one_out(self) -> GaussianLeaveOneOut:
        model = super()._leave_one_out()
        if self._beside is None:
            return model
        sums, features = self._beside.centred(), model.features
        total = float(sums.count.sum())
        mean, variances = (sums.count / total) @ sums.mean, total_variance(sums)
        return replace(model, unweighted=(total, mean[features], total * variances[features]))

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        attributes, arrays = super()._state()
        if self._beside is None:
            return attributes, arrays
        states, own = nested({"unweighted": self._beside})
        return attributes | states, arrays | own

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        estimator = super()._from_state(attributes, arrays)
        if "unweighted" in attributes:
            own = arrays_within(arrays, "unweighted")
            held = restore(ClassMoments, attributes["unweighted"], own)
            if held.covariance_type != "diag" or held.n_features != estimator.n_features_in_:
                raise ValueError("its moments with weights and without have different features")
            estimator._beside = held
        return estimator

    # --- fitted attributes --------------------------------------------------------------------

    @classmethod
    def from_parameters(
        cls,
        theta: Any,
        var: Any,
        priors: Any,
        classes: Any,
        *,
        constant_features: Any = None,
        **params: Any,
    ) -> Self:
        """Return an estimator of given means, variances and priors, from a file or a paper.

        It predicts what an estimator with such `theta_`, `var_` and `class_prior_` predicts.
        The result has no `moments_`: attributes and methods that need them raise an AttributeError,
        and `partial_fit` an error. It can be saved and loaded.

        Parameters
        ----------
        theta : array-like, shape (n_classes, n_features)
            Class means; NaN for a class without rows.
        var : array-like, shape (n_classes, n_features)
            Variances, to which nothing is added.
        priors : array-like, shape (n_classes,)
            Priors of the classes.
        classes : array-like, shape (n_classes,)
            Class labels, sorted.
        constant_features : array-like of int, optional
            Features to be left out of the density, as in `constant_features_`; by default those
            whose variances are zero in all classes.
        **params
            Parameters of the estimator; those that regularise do not change what is given.

        Returns
        -------
        estimator
            The fitted estimator.

        Raises
        ------
        InvalidParameterError
            For numbers that do not fit each other.
        SingularCovarianceError
            If a covariance has no inverse.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB.from_parameters([[2.0], [7.0]], [[1.0], [1.0]], [0.5, 0.5], ["a", "b"])
        >>> nb.predict_proba([[4.0]]).round(3)
        array([[0.924, 0.076]])
        """
        numbers = {"means": theta, "covariances": var, "priors": priors}
        numbers["constant_features"] = constant_features
        return cls._of_numbers(classes, numbers, params)

    @fitted
    def class_prior_(self) -> np.ndarray:
        """Class priors, shape (n_classes,)."""
        return self._in_type(self.model_.priors)

    @fitted
    def theta_(self) -> np.ndarray:
        """Class means, shape (n_classes, n_features); NaN for a class without rows."""
        return self._in_type(self.model_.means)

    @fitted
    def var_(self) -> np.ndarray:
        """Smoothed variances, shape (n_classes, n_features)."""
        return self._in_type(self._covariances.values)

    @fitted
    def epsilon_(self) -> float:
        """Value that is added to the variances."""
        return self._amounts[1]

    def _counterpart(self) -> export.Counterpart:
        return export.independent(self.model_, self.class_count_, self.epsilon_)

    @property
    def _single_scores(self) -> tuple[str, ...]:
        return ("posterior", "log_posterior", "joint_log_likelihood")


def _unweighted(rows: Rows) -> Rows:
    """Return rows without weights; those of weight zero may be invalid, and of any label."""
    return replace(rows, weight=None, rule=replace(rows.rule, action="skip"))
