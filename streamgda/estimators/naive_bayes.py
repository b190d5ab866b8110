"""Gaussian naive Bayes: features are independent given the class."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from streamgda.estimators import export
from streamgda.estimators.fitted import fitted
from streamgda.estimators.scoring import Scorer
from streamgda.estimators.single import SingleAsRows
from streamgda.models.covariance import Regularisation


class GaussianNB(SingleAsRows):
    """Gaussian naive Bayes: a variance for each class and feature.

    It corresponds to `sklearn.naive_bayes.GaussianNB`, but needs only one pass over the rows. In
    `partial_fit` the smoothing follows the variance of all rows so far, so that any chunking gives
    the same model; in scikit-learn it follows the variance of the last chunk. Sparse matrices and
    arrays of scipy are learnt and scored without making them dense, which scikit-learn refuses.

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

    def __init__(self, *, priors: Any = None, var_smoothing: float = 1e-9) -> None:
        self.priors = priors
        self.var_smoothing = var_smoothing

    def _covariance_type(self) -> str:
        return "diag"

    def _regularisation(self) -> Regularisation:
        return Regularisation(var_smoothing=self.var_smoothing, advice="Set var_smoothing above 0")

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

    def _is_single_score(self, scorer: Scorer) -> bool:
        return scorer.name in ("posterior", "log_posterior", "joint_log_likelihood")
