"""Naive Bayes, Gaussian and Bernoulli: features are independent given the class."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamgda.errors import InvalidParameterError, UnsupportedError
from streamgda.estimators.base import warn
from streamgda.estimators.classifier import GaussianClassifier, MomentClassifier
from streamgda.models.bernoulli import Bernoullis, binarise, ones_of
from streamgda.models.covariance import Regularisation
from streamgda.models.gaussian import Gaussians
from streamgda.moments import ClassMoments
from streamgda.moments.feature_maps import Binarize, Lifting
from streamgda.rows import Rows
from streamgda.rows.source import as_source
from streamgda.rows.sparse import SparseRows
from streamgda.runtime.parameters import LEAST, as_flag, as_number, as_numbers, shown, unexpected

_LEAST_ALPHA = 1e-10


class GaussianNB(GaussianClassifier):
    """Gaussian naive Bayes: a variance for each class and feature.

    It corresponds to `sklearn.naive_bayes.GaussianNB`, but needs only one pass over the rows. The
    smoothing is a fraction of the largest variance of all rows so far, so that any chunking gives
    the same model; in scikit-learn it is that of the last chunk of `partial_fit`, and that of rows
    without their weights. Sparse matrices and arrays of scipy, which scikit-learn does not take,
    are learned and scored without making them dense.

    Parameters
    ----------
    priors : array-like, shape (n_classes,), optional
        Priors of the sorted classes; by default their shares of the rows.
    var_smoothing : float >= 0
        Fraction of the largest variance of a feature that is added to every variance.
    temperature, feature_map : float > 0; RandomFeatures, Standardize, transformer, or list
        Temperature of posteriors and map of rows; see `GaussianDiscriminantAnalysis`.

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

    _model_type = "diag"
    _theirs = "sklearn.naive_bayes:GaussianNB"
    _advice = "Set var_smoothing above 0"

    def __init__(
        self,
        *,
        priors: Any = None,
        var_smoothing: float = 1e-9,
        temperature: float = 1.0,
        feature_map: Any = None,
    ) -> None:
        self.priors = priors
        self.var_smoothing = var_smoothing
        self.temperature = temperature
        self.feature_map = feature_map

    def _regularisation(self) -> Regularisation:
        return Regularisation(var_smoothing=self.var_smoothing)

    @property
    def class_prior_(self) -> np.ndarray:
        """Class priors, shape (n_classes,)."""
        return self.model_.priors

    @property
    def theta_(self) -> np.ndarray:
        """Class means, shape (n_classes, n_features); NaN for a class without rows."""
        return self._moments_of_kind().means

    @property
    def var_(self) -> np.ndarray:
        """Smoothed variances, shape (n_classes, n_features)."""
        return self._all_covariances().values

    @property
    def epsilon_(self) -> float:
        """Value that is added to the variances."""
        return self._all_covariances().epsilon

    def _overrides(self, model: Gaussians) -> dict[str, Any]:
        means, constant = np.nan_to_num(self.theta_), self.constant_features_
        # The log-density of a constant feature is zero at its mean with this variance.
        variances = np.full(means.shape, 1 / (2 * np.pi))
        variances[np.ix_(model.alive, model.features)] = 1 / model.roots
        means[:, constant] = means[model.priors.argmax(), constant]
        return {"theta_": means, "var_": variances}


class BernoulliNB(MomentClassifier):
    r"""Bernoulli naive Bayes: a probability of a one for each class and feature.

    It corresponds to `sklearn.naive_bayes.BernoulliNB`, but needs only one pass over rows, which
    may be larger than memory: :math:`p_{kj} = (n_{kj} + \alpha_j) / (n_k + 2\alpha_j)`. It keeps
    the moments of the binarised rows, which are whole numbers unless there are weights.

    Sparse matrices and arrays of scipy are learned and scored in time for the entries that are
    stored, and never made dense; the threshold is then at least 0.

    Parameters
    ----------
    alpha : float >= 0, or array-like of them, shape (n_features,)
        Smoothing, of all features or of each; 1 for Laplace's. With 0, a value that a class never
        had excludes the class.
    force_alpha : bool
        If False, an `alpha` below 1e-10 is raised to that value, with a warning.
    binarize : float or None
        Values above it are ones. None if the rows consist of zeros and ones already, as those of
        `sample` do; other values are then an error.
    fit_prior : bool
        If False, all classes that have rows get the same prior.
    class_prior : array-like, shape (n_classes,), optional
        Priors of the sorted classes, used as they are; by default their shares of the rows.
    temperature, feature_map : float > 0; RandomFeatures, Standardize, transformer, or list
        Temperature of posteriors, and map of rows before they are binarised; see
        `GaussianDiscriminantAnalysis`.

    Attributes
    ----------
    classes_, class_count_, class_log_prior_, feature_count_, feature_log_prob_
    moments_ : ClassMoments
        Moments of the binarised rows.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from streamgda import BernoulliNB
    >>> X, y = [[1, 0, 1], [1, 1, 1], [0, 1, 0], [0, 0, 0]], ["a", "a", "b", "b"]
    >>> nb = BernoulliNB().partial_fit(X[:2], y[:2]).partial_fit(X[2:], y[2:])
    >>> nb.predict([[1, 0, 1]]), nb.feature_count_
    (array(['a'], dtype='<U1'), array([[2., 1., 2.],
           [0., 1., 0.]]))

    A stream of texts, as sparse rows. Most columns are of no word, and `alpha` is small, or their
    smoothing would outweigh the words:

    >>> from sklearn.feature_extraction.text import HashingVectorizer
    >>> words = HashingVectorizer(n_features=2**16, alternate_sign=False)
    >>> nb = BernoulliNB(alpha=1e-6)
    >>> for texts, labels in (
    ...     (["lunch at noon", "win money", "cheap pills"], ["ham", "spam", "spam"]),
    ...     (["the meeting at noon", "win a prize now"], ["ham", "spam"]),
    ... ):
    ...     _ = nb.partial_fit(words.transform(texts), labels)
    >>> nb.predict(words.transform(["win the pills", "a meeting at lunch"]))
    array(['spam', 'ham'], dtype='<U4')
    """

    _theirs = "sklearn.naive_bayes:BernoulliNB"

    def __init__(
        self,
        *,
        alpha: Any = 1.0,
        force_alpha: bool = True,
        binarize: float | None = 0.0,
        fit_prior: bool = True,
        class_prior: Any = None,
        temperature: float = 1.0,
        feature_map: Any = None,
    ) -> None:
        self.alpha = alpha
        self.force_alpha = force_alpha
        self.binarize = binarize
        self.fit_prior = fit_prior
        self.class_prior = class_prior
        self.temperature = temperature
        self.feature_map = feature_map

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # Rows of the checks are not binary by nature.
        return tags

    _scales = False

    def _covariance_type(self) -> str:
        return "diag"

    def _check_parameters(self) -> None:
        as_number("temperature", self.temperature, "a number above 0", LEAST)
        expected = "a number >= 0, or one for each feature"
        if (as_numbers("alpha", self.alpha, expected, finite=True) < 0).any():
            raise InvalidParameterError(
                f"alpha={shown(self.alpha)}; expected {expected}. All values in alpha must be "
                f"greater than 0."
            )
        as_flag("force_alpha", self.force_alpha)
        as_flag("fit_prior", self.fit_prior)
        self._threshold()

    def _threshold(self) -> float | None:
        """Return `binarize`, of which True and False are 1 and 0, as in scikit-learn."""
        given = self.binarize
        if given is None:
            return None
        given = float(given) if isinstance(given, bool) else given
        return as_number("binarize", given, "a number, or None for zeros and ones")

    def _maps(self) -> Lifting | None:
        lifting, threshold = super()._maps(), self._threshold()
        if lifting is None or threshold is None:
            return lifting
        return Lifting((*lifting.maps, Binarize(threshold)))

    def _smoothing(self, n_features: int) -> Any:
        """Return `alpha` as it is used, a number or an array of one for each feature."""
        alpha: Any = np.asarray(self.alpha, np.float64)
        if alpha.ndim and alpha.shape != (n_features,):
            raise InvalidParameterError(
                f"When alpha is an array, it should contains `n_features`. alpha has shape "
                f"{alpha.shape}; expected one number for each of the {n_features} features"
            )
        return alpha if self.force_alpha else np.maximum(alpha, _LEAST_ALPHA)

    def _make_model(self, moments: ClassMoments, found: Any) -> Bernoullis:
        priors = self.class_prior
        if priors is None and not self.fit_prior:
            seen = moments.class_count > 0
            priors = seen / max(1, seen.sum())
        threshold = self._threshold_so_far()
        threshold = threshold if moments.feature_map is None else None
        n_features: Any = moments.n_features
        return Bernoullis.of(moments, self._smoothing(n_features), threshold, priors)

    def _threshold_so_far(self) -> float | None:
        """Return the threshold; raise `InvalidParameterError` if rows were learned with another."""
        threshold = self._threshold()
        held = vars(self).get("_binarised_at", threshold)
        if held != threshold:
            raise InvalidParameterError(
                f"binarize={shown(self.binarize)}, but the rows so far were binarised with "
                f"binarize={held}; call fit"
            )
        return threshold

    def _summed(self, rows: Rows) -> Rows:
        X, rule, lifting = rows.X, rows.rule, self._maps()
        threshold = self.__dict__["_binarised_at"] = self._threshold_so_far()
        width = X.shape[1] if lifting is None else lifting.bound(X.shape[1]).n_out
        if self._smoothing(width).min() > np.min(self.alpha):
            warn(
                f"alpha too small will result in numeric errors, setting alpha = "
                f"{_LEAST_ALPHA:.1e}. Use `force_alpha=True` to keep alpha unchanged."
            )
        if lifting is not None:
            return rows
        if rule.nodata == 0 and isinstance(X, SparseRows):
            raise unexpected("nodata", rule.nodata, "another value: sparse rows do not store zeros")
        marked: float | None = None
        dtype: Any = np.uint8  # Bad values are errors at once, or NaN.
        if not rule.checks_sums or rows.weight is not None:
            marked, dtype = np.nan if rule.nodata is None else rule.nodata, np.float32
        ones = partial(binarise, threshold=threshold, marked=marked)
        X = as_source(X).map(ones, dtype, X.shape[1])
        return replace(rows, X=X, rule=replace(rule, nodata=None))

    @property
    def class_log_prior_(self) -> np.ndarray:
        """Logarithms of the class priors, shape (n_classes,)."""
        return self.model_.log_priors

    @property
    def feature_log_prob_(self) -> np.ndarray:
        """Log-probability of a one, (n_classes, n_features); NaN for a class without rows."""
        return self.model_.log_one

    @property
    def feature_count_(self) -> np.ndarray:
        """Number of ones, or their weight, of each class and feature, (n_classes, n_features)."""
        return ones_of(self.moments_)

    def _draw(
        self, model: Bernoullis, codes: np.ndarray, random: np.random.RandomState
    ) -> np.ndarray:
        shares = np.exp(model.log_one)[codes]
        return np.asarray(random.random_sample(shares.shape) < shares, np.float64)

    def _overrides(self, model: Bernoullis) -> dict[str, Any]:
        log_one = np.where(np.isnan(model.log_one), -np.log(2.0), model.log_one)
        with np.errstate(divide="ignore"):
            log_zero = np.log(1 - np.exp(log_one))  # As scikit-learn computes it.
        if not (np.isfinite(log_one).all() and np.isfinite(log_zero).all()):
            raise UnsupportedError(
                "a class has a probability of zero or one, with which BernoulliNB of scikit-learn "
                "predicts NaN; set alpha above 0"
            )
        return {"feature_log_prob_": log_one}
