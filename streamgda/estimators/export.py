"""`to_sklearn`: fitted estimators as estimators of scikit-learn with the same predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from streamgda.errors import UnsupportedError
from streamgda.models.bernoulli import BernoulliModel
from streamgda.models.discriminants import about_zero
from streamgda.models.gaussian import GaussianModel

_NO_DENSITY = 1 / (2 * np.pi)  # variance of a Gaussian whose log-density at its mean is zero


class Counterpart(NamedTuple):
    """A fitted estimator of scikit-learn, described.

    Attributes
    ----------
    kind : type
        Its class.
    attributes : dict
        Its fitted attributes, except those that all estimators have.
    params : dict
        Parameters that differ from those of our estimator.
    """

    kind: Any
    attributes: dict[str, Any]
    params: Mapping[str, Any]


def amount(shrinkage: Any, used: np.ndarray) -> Any:
    """Return the shrinkage of one covariance; rules that scikit-learn lacks as the amount used."""
    return shrinkage if shrinkage in (None, "auto") else float(used[0])


def linear(
    model: GaussianModel,
    discriminants: tuple[np.ndarray, np.ndarray],
    directions: tuple[np.ndarray, np.ndarray] | None,
    n_components: int,
    **more: Any,
) -> Counterpart:
    """Return the counterpart of a model with one covariance.

    Parameters
    ----------
    model : GaussianModel
    discriminants : tuple of ndarray
        Coefficients and intercepts about `xbar`.
    directions : tuple of ndarray, optional
        Scalings of `transform`, and the between-class variance along each.
    n_components : int
        Columns of `transform`.
    **more
        Parameters that differ from those of our estimator.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis  # noqa: PLC0415

    coefficients, intercepts = about_zero(model, *discriminants)
    if model.classes.size == 1:  # the score of a single class would be read as log-odds
        coefficients, intercepts = np.zeros_like(coefficients), np.zeros(1)
    attributes = {
        "priors_": model.priors,
        "means_": model.means,
        "coef_": coefficients,
        "intercept_": intercepts,
        "xbar_": model.xbar,
        "_max_components": n_components,  # which `transform` reads
        "_n_features_out": n_components,
    }
    if directions is not None:
        scalings, variances = directions
        used = np.zeros_like(scalings)
        used[model.features] = scalings[model.features]
        shares = variances / (variances.sum() or 1)
        attributes |= {"scalings_": used, "explained_variance_ratio_": shares[:n_components]}
    return Counterpart(LinearDiscriminantAnalysis, attributes, more)


def quadratic(model: GaussianModel, shrinkage: Any, **more: Any) -> Counterpart:
    """Return the counterpart of a model with a covariance matrix for each class.

    Its rotations have a column for each feature that varies, and are zero for the others. A column
    is what the features before do not predict of a feature, and its scaling the variance of that.
    Principal axes would give the same scores, but mix features of different scales, and so lose
    digits.

    Parameters
    ----------
    model : GaussianModel
    shrinkage : float or str, optional
        Parameter of our estimator. Rules that scikit-learn does not know by name are covariance
        estimators there.
    **more
        Parameters that differ from those of our estimator.
    """
    from sklearn.covariance import OAS  # noqa: PLC0415
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis  # noqa: PLC0415

    estimators = {"oas": OAS}
    if isinstance(shrinkage, str) and shrinkage in estimators:
        more |= {"shrinkage": None, "covariance_estimator": estimators[shrinkage]()}
    rotations, scalings = [], []
    for root in model.roots:
        rotation = np.zeros((model.n_features, model.features.size))
        rotation[model.features] = root.T / root.diagonal()
        rotations.append(rotation)
        scalings.append(root.diagonal() ** -2.0)
    attributes = {
        "priors_": model.priors,
        "means_": np.nan_to_num(model.means),  # NaN for classes without rows
        "rotations_": rotations,
        "scalings_": scalings,
    }
    return Counterpart(QuadraticDiscriminantAnalysis, attributes, more)


def independent(model: GaussianModel, class_count: np.ndarray, epsilon: float) -> Counterpart:
    """Return the counterpart of a model with a variance for each class and feature.

    Parameters
    ----------
    model : GaussianModel
    class_count : ndarray, shape (n_classes,)
    epsilon : float
        Value that smoothing added to the variances.
    """
    from sklearn.naive_bayes import GaussianNB  # noqa: PLC0415

    means, variances = np.nan_to_num(model.means), np.full(model.means.shape, _NO_DENSITY)
    variances[:, model.features] = 1 / model.roots
    constant = np.setdiff1d(np.arange(model.n_features), model.features)
    means[:, constant] = means[model.priors.argmax(), constant]
    attributes = {
        "theta_": means,
        "var_": variances,
        "class_prior_": model.priors,
        "class_count_": class_count,
        "epsilon_": epsilon,
    }
    return Counterpart(GaussianNB, attributes, {})


def bernoulli(
    model: BernoulliModel, class_count: np.ndarray, feature_count: np.ndarray
) -> Counterpart:
    """Return the counterpart of a model of zeros and ones.

    Parameters
    ----------
    model : BernoulliModel
    class_count : ndarray, shape (n_classes,)
    feature_count : ndarray, shape (n_classes, n_features)

    Raises
    ------
    UnsupportedError
        For probabilities of zero and one.
    """
    from sklearn.naive_bayes import BernoulliNB  # noqa: PLC0415

    log_one = np.where(np.isnan(model.log_one), -np.log(2.0), model.log_one)
    with np.errstate(divide="ignore"):
        log_zero = np.log(1 - np.exp(log_one))  # as scikit-learn computes it
    if not (np.isfinite(log_one).all() and np.isfinite(log_zero).all()):
        raise UnsupportedError(
            "a class has a probability of zero or one, with which BernoulliNB of scikit-learn "
            "predicts NaN; set alpha above 0"
        )
    attributes = {
        "feature_log_prob_": log_one,
        "class_log_prior_": model.log_priors,
        "class_count_": class_count,
        "feature_count_": feature_count,
    }
    return Counterpart(BernoulliNB, attributes, {})
