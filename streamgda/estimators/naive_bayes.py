"""Naive Bayes, Gaussian and Bernoulli: features are independent given the class."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.estimators import export
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.estimators.moment_classifier import MomentClassifier, fitted
from streamgda.estimators.row_estimator import warn
from streamgda.models.bernoulli import BernoulliModel, binarise, ones_of
from streamgda.models.covariance import Covariances, Regularisation
from streamgda.models.leave_one_out import GaussianLeaveOneOut
from streamgda.moments import ClassMoments, held_sums
from streamgda.moments.feature_maps import Binarize, Lifting
from streamgda.moments.sums import total_variance
from streamgda.rows import Rows
from streamgda.rows.counting import CHECK_SUMS, RowRule, as_matrix
from streamgda.rows.sources import as_array, as_source
from streamgda.rows.sparse import CompressedRows, SparseRows
from streamgda.runtime.parameters import as_flag, as_number, as_numbers, refuse, shown
from streamgda.storage.saved import State, arrays_within, nested, restore

_LEAST_ALPHA = 1e-10
_AT_ONCE = 1 << 16  # values that are binarised without a source


class GaussianNB(GaussianClassifier):
    """Gaussian naive Bayes: a variance for each class and feature.

    It corresponds to `sklearn.naive_bayes.GaussianNB`, but needs only one pass over the rows, and a
    second one if they have weights: as in scikit-learn, the smoothing is a fraction of the largest
    variance without weights, to which rows of weight zero contribute too. In `partial_fit` this
    variance is that of all rows so far, so that any chunking gives the same model; in scikit-learn
    it is that of the last chunk. With a `half_life`, and in `from_moments`, it is that of the
    moments. Sparse matrices and arrays of scipy, which scikit-learn refuses, are learnt and scored
    without making them dense.

    Parameters
    ----------
    priors : array-like, shape (n_classes,), optional
        Priors of the sorted classes; by default their shares of the rows.
    var_smoothing : float >= 0
        Fraction of the largest variance of a feature that is added to every variance.
    temperature : float > 0
        Divides the joint log-likelihoods before they become posteriors; `calibrate` chooses it.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map that is applied to rows before the model; see `GaussianDiscriminantAnalysis`.

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

    _single_scores = ("posterior", "log_posterior", "joint_log_likelihood")
    _beside: ClassMoments | None  # moments of the rows without their weights, if they had any

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

    def _covariance_type(self) -> str:
        return "diag"

    def _regularisation(self) -> Regularisation:
        return Regularisation(var_smoothing=self.var_smoothing, advice="Set var_smoothing above 0")

    # --- smoothing, which follows the rows without their weights, as in scikit-learn ------------

    def _learn(
        self, change: Any, rows: Rows | None = None, *, adds: bool | None = False, **options: Any
    ) -> Self:
        """Change the moments, and those of the rows without weights once there are weights."""

        def changed(settings: Self, held: ClassMoments, rows: Rows | None) -> ClassMoments:
            beside, self._beside = self._beside, None
            # Rows that were weighted or decayed without it are not known without their weights.
            whole = beside is None and held.class_count.dtype.kind == "i"
            begins = adds and whole and rows is not None and rows.weight is not None
            if adds is None or not settings.var_smoothing or not (begins or beside):
                return change(settings, held, rows)
            before = (beside or held).copy()
            moments = change(settings, held.copy(), rows)  # both change, or none
            self._beside = change(settings, before, rows and _unweighted(rows))
            return moments

        return super()._learn(changed, rows, **options)

    def _estimate(
        self, moments: ClassMoments, how: Regularisation, beside: Any = None, **options: Any
    ) -> Covariances:
        if beside is not None:
            largest = float(total_variance(held_sums(beside).centred()).max())
            how = replace(how, largest_variance=largest)
        return super()._estimate(moments, how, **options)

    def _leave_one_out(self) -> GaussianLeaveOneOut:
        model = super()._leave_one_out()
        if self._beside is None:
            return model
        sums, features = held_sums(self._beside).centred(), model.features
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
            widths = None, held.n_features  # none, if all weights were zero
            if held.covariance_type != "diag" or estimator.moments_.n_features not in widths:
                raise ValueError("its moments with weights and without have different features")
            estimator._beside = held
        return estimator

    # --- fitted attributes --------------------------------------------------------------------

    @classmethod
    def from_parameters(  # type: ignore[override]
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
        given = {"constant_features": constant_features, **params}
        return super().from_parameters(theta, var, priors, classes, **given)

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


def _unweighted(rows: Rows) -> Rows:
    """Return rows without weights; those of weight zero may be invalid, and of any label."""
    return replace(rows, weight=None, rule=replace(rows.rule, action="skip"))


class BernoulliNB(MomentClassifier):
    r"""Bernoulli naive Bayes: a probability of a one for each class and feature.

    It corresponds to `sklearn.naive_bayes.BernoulliNB`, but needs only one pass over rows, which
    may be larger than memory: :math:`p_{kj} = (n_{kj} + \alpha_j) / (n_k + 2\alpha_j)`. It keeps
    the moments of the binarised rows, which are whole numbers unless there are weights.

    Sparse matrices and arrays of scipy are learnt and scored in time for the entries that are
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
        `sample` do; other values are then refused.
    fit_prior : bool
        If False, all classes that have rows get the same prior.
    class_prior : array-like, shape (n_classes,), optional
        Priors of the sorted classes, used as they are; by default their shares of the rows.
    temperature : float > 0
        Divides the joint log-likelihoods before they become posteriors; `calibrate` chooses it.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map that is applied to rows before they are binarised; see `GaussianDiscriminantAnalysis`.

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

    _model_type = BernoulliModel
    _any_sum_of_priors = True

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
        tags.classifier_tags.poor_score = True  # on rows that are not binary by nature
        return tags

    def _covariance_type(self) -> str:
        return "diag"

    def _kept(self) -> dict[str, Any]:
        expected = "a number >= 0, or one for each feature"
        if isinstance(self.alpha, Real):
            as_number("alpha", self.alpha, expected, 0)
        else:
            values = as_numbers("alpha", self.alpha, expected)
            if not ((values >= 0) & (values < np.inf)).all():
                raise InvalidParameterError(
                    f"alpha={shown(self.alpha)}; expected finite numbers. All values in alpha must "
                    f"be greater than 0."
                )
        as_flag("force_alpha", self.force_alpha)
        as_flag("fit_prior", self.fit_prior)
        kept, threshold = super()._kept(), self._threshold()
        if kept["feature_map"] is not None and threshold is not None:
            maps = *kept["feature_map"].maps, Binarize(threshold)
            kept["feature_map"] = Lifting(maps)
        return kept

    def _threshold(self) -> float | None:
        """Return `binarize`, of which True and False are 1 and 0, as in scikit-learn."""
        given = self.binarize
        if given is None:
            return None
        given = float(given) if isinstance(given, bool) else given
        return as_number("binarize", given, "a number, or None for zeros and ones")

    def _make_model(self, moments: ClassMoments, beside: None = None) -> BernoulliModel:
        alpha = self._smoothing(moments.n_features)
        priors = self.class_prior
        if priors is None and not self.fit_prior:
            seen = moments.class_count > 0
            priors = seen / max(1, seen.sum())
        threshold = None if self.feature_map is not None else self._threshold()
        return BernoulliModel.from_moments(moments, alpha, threshold, priors)

    def _model_of_numbers(  # type: ignore[override]
        self, classes: np.ndarray, feature_log_prob: np.ndarray, class_log_prior: np.ndarray
    ) -> BernoulliModel:
        return BernoulliModel.of(classes, feature_log_prob, class_log_prior, self._threshold())

    def _check_kept(self, settings: Self, rows_change: bool = True) -> None:
        super()._check_kept(settings, rows_change)
        held = self._settings._threshold()
        if settings._threshold() != held:
            raise InvalidParameterError(
                f"binarize={shown(settings.binarize)}, but the rows so far were binarised with "
                f"binarize={held}; call fit"
            )

    def _smoothing(self, n_features: int | None) -> Any:
        """Return `alpha` as it is used, a number or an array of one for each feature."""
        alpha = self.alpha
        if not isinstance(alpha, Real):
            alpha = np.asarray(alpha, np.float64)
            if alpha.shape == (n_features,):
                return alpha if self.force_alpha else np.maximum(alpha, _LEAST_ALPHA)
            raise InvalidParameterError(
                f"When alpha is an array, it should contains `n_features`. alpha has shape "
                f"{alpha.shape}; expected one number for each of the {n_features} features"
            )
        return alpha if self.force_alpha else max(float(alpha), _LEAST_ALPHA)

    def _check_alpha(self, n_features: int | None = None) -> Any:
        """Return `_smoothing`, with scikit-learn's warning if that is not `alpha`."""
        alpha = self._smoothing(n_features or getattr(self, "n_features_in_", None))
        if not self.force_alpha and np.min(self.alpha) < _LEAST_ALPHA:
            warn(
                f"alpha too small will result in numeric errors, setting alpha = "
                f"{_LEAST_ALPHA:.1e}. Use `force_alpha=True` to keep alpha unchanged.",
            )
        return alpha

    def _summed(self, rows: Rows) -> Rows:
        X, rule = rows.X, rows.rule
        if self.feature_map is not None:
            self._check_alpha(self._kept()["feature_map"].bound(X.shape[1]).n_out)
            return rows
        self._check_alpha(X.shape[1])
        plain = type(X) is np.ndarray and rule is CHECK_SUMS and rows.weight is None
        if plain and X.size <= _AT_ONCE:
            return replace(rows, X=binarise(X, self._threshold()))
        if rule.nodata == 0 and SparseRows.accepts(X):
            raise refuse("nodata", rule.nodata, "another value: sparse rows do not store zeros")
        ignored = _ignored(rows)
        function = partial(_binarised, threshold=self._threshold(), rule=rule, ignored=ignored)
        ones = as_source(X).map(function, np.uint8, X.shape[1])
        return replace(
            rows, X=ones, rule=rule if rule.nodata is None else replace(rule, nodata=None)
        )

    @classmethod
    def from_parameters(
        cls, feature_log_prob: Any, class_log_prior: Any, classes: Any, **params: Any
    ) -> Self:
        """Return an estimator of given probabilities and priors, from a file or a paper.

        It predicts what an estimator with such `feature_log_prob_` and `class_log_prior_` predicts.
        The result has no `moments_`: attributes and methods that need them raise an AttributeError,
        and `partial_fit` an error. It can be saved and loaded.

        Parameters
        ----------
        feature_log_prob : array-like, shape (n_classes, n_features)
            Log-probabilities of ones, to which no smoothing is added; NaN for a class without rows.
        class_log_prior : array-like, shape (n_classes,)
            Logarithms of the priors.
        classes : array-like, shape (n_classes,)
            Class labels, sorted.
        **params
            Parameters of the estimator, such as `binarize`.

        Returns
        -------
        estimator
            The fitted estimator.

        Raises
        ------
        InvalidParameterError
            For numbers that do not fit each other.

        Examples
        --------
        >>> import numpy as np
        >>> from streamgda import BernoulliNB
        >>> nb = BernoulliNB.from_parameters(np.log([[0.2], [0.6]]), np.log([0.5, 0.5]), [0, 1])
        >>> nb.predict_proba([[1]]).round(3)
        array([[0.25, 0.75]])
        """
        numbers = {"feature_log_prob": feature_log_prob, "class_log_prior": class_log_prior}
        return cls._of_numbers(classes, numbers, params)

    @fitted
    def class_log_prior_(self) -> np.ndarray:
        """Logarithms of the class priors, shape (n_classes,)."""
        return self.model_.log_priors

    @fitted
    def feature_log_prob_(self) -> np.ndarray:
        """Log-probability of a one, (n_classes, n_features); NaN for a class without rows."""
        return self.model_.log_one

    @fitted
    def feature_count_(self) -> np.ndarray:
        """Number of ones, or their weight, of each class and feature, (n_classes, n_features)."""
        self.class_count_  # noqa: B018  (raises an error before fit)
        return ones_of(self.moments_)

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
        >>> from streamgda import BernoulliNB
        >>> nb = BernoulliNB().fit([[0, 1], [0, 1], [1, 0], [1, 1]], ["ant", "ant", "bee", "bee"])
        >>> nb.sample(2, random_state=0, y="ant")
        (array([[0., 1.],
               [0., 1.]]), array(['ant', 'ant'], dtype='<U3'))
        """
        n_samples, random, labels = self._drawing(n_samples, random_state, y)
        model = self.model_
        if labels is None:
            labels = random.choice(model.classes, n_samples, p=model.priors / model.priors.sum())
        labels = np.repeat(labels, n_samples // labels.size)  # of one for all
        return model.sample(labels, random), labels

    def _counterpart(self) -> export.Counterpart:
        return export.bernoulli(self.model_, self.class_count_, self.feature_count_)


def _ignored(rows: Rows) -> np.ndarray | None:
    """Return which rows surely do not count, by labels and weights in memory; None for none."""
    n_rows, y, rule = rows.X.shape[0], rows.y, rows.rule
    ignored = np.zeros(() if math.isnan(n_rows) else int(n_rows), bool)
    held = isinstance(rows.weight, np.ndarray | list | tuple)
    if held or getattr(rows.weight, "in_memory", False):
        weights = as_array(rows.weight, "sample_weight")
        if weights.dtype.kind in "biuf" and weights.shape == ignored.shape:
            ignored = ignored | (weights == 0)
    if rule.unlabelled is not None and isinstance(y, np.ndarray) and y.shape == ignored.shape:
        ignored = ignored | ~rule.labelled(rule.labels(y))
    return ignored if ignored.any() else None


def _binarised(
    X: Any, first_row: int, threshold: float | None, rule: RowRule, ignored: np.ndarray | None
) -> Any:
    """Return binarised rows; zeros for those to be ignored, and NaN for invalid ones."""
    if ignored is not None:
        X = _with_zeros(X, ignored[first_row : first_row + X.shape[0]])
    if rule is CHECK_SUMS:
        return binarise(X, threshold, first_row)
    X = as_matrix(X, sparse=True)
    invalid = np.zeros(X.shape[0], bool)
    invalid[rule.rows(X)] = True
    if not invalid.any():
        return binarise(X, threshold, first_row)
    ones = binarise(_with_zeros(X, invalid), threshold, first_row)
    if type(ones) is CompressedRows:
        return ones.with_values(np.where(ones.entries_of(invalid), np.nan, ones.values))
    return np.where(invalid[:, None], np.float32(np.nan), ones)


def _with_zeros(X: Any, rows: np.ndarray) -> Any:
    """Return rows with zeros in some of them."""
    if type(X) is CompressedRows:
        return X.without(rows)
    if not isinstance(X, np.ndarray):
        return X
    return np.where(rows[:, None], X.dtype.type(0), X)
