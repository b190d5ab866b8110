"""A binary classifier whose threshold is fitted to the data rather than to a model of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.estimators.held_out import scored_rows
from streamgda.estimators.linear import LinearDiscriminantAnalysis
from streamgda.estimators.moment_classifier import (
    MomentClassifier,
    described,
    unfitted,
    unpacked,
    weights_of,
)
from streamgda.estimators.row_estimator import Reading, RowEstimator, Scorer, Scoring, takes
from streamgda.models.gaussian import GaussianModel
from streamgda.models.model import check_classes
from streamgda.models.thresholds import Block, best_threshold
from streamgda.moments import ClassMoments
from streamgda.rows import Rows
from streamgda.runtime.memory import as_bytes
from streamgda.runtime.parameters import as_numbers, check_type, refuse
from streamgda.storage.saved import State, arrays_within, build, nested, restore

_COST = "[[0, a], [b, 0]]: finite numbers, the least of each row on the diagonal"
_CLASS_WEIGHT = "'balanced', or a dict of labels to weights that are finite and >= 0"
_ESTIMATOR = "a Gaussian or Bernoulli classifier of streamgda, such as GaussianNB()"
_CELL_BYTES = 200  # of a score that is kept, while it is sorted and merged
_LEAST_ROOM = 1 << 10


class ThresholdClassifier(ClassifierMixin, RowEstimator):
    r"""Binary classification by the threshold on a score that minimises the cost on the rows.

    With the default estimator this is Fisher's rule of document 004: predict the second class if
    :math:`w \cdot x > \theta`, with w from the moments and :math:`\theta` "fit to minimise
    training/validation error". The threshold of a model is optimal only if the model is right;
    this one is optimal for the rows, whatever their distribution.

    The score is the log-odds of the estimator, so that `threshold_` is zero if its own threshold
    is optimal. Fitting takes one pass for the moments and one for the scores, over any kind of
    array.

    Parameters
    ----------
    estimator : Gaussian or Bernoulli classifier of this package, optional
        Estimator of the score, by default ``LinearDiscriminantAnalysis()``.
    cost : array-like, shape (2, 2), optional
        Cost of predicting class j for a row of class i, classes sorted; by default
        ``[[0, 1], [1, 0]]``, which minimises the number of errors.
    class_weight : dict of label to weight, or "balanced"; optional
        Factors of the costs of the rows of a class; "balanced" gives both classes the same total
        weight.
    max_memory : int or str, optional
        Bytes, or a text such as ``"512MB"``, for rows in flight and scores. By default all scores
        are kept, and one pass is enough. With a budget the result is the same, but further passes
        may be needed to find the best among scores that were counted together.

    Attributes
    ----------
    threshold_ : float
        Threshold on the log-odds; infinite if one class for all rows costs least.
    total_cost_ : float
        Cost of the rows to which the threshold was fitted, beyond what no threshold avoids.
    estimator_ : estimator
        The fitted estimator, with direction, moments and all methods besides `predict`.
    classes_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from streamgda import LinearDiscriminantAnalysis, ThresholdClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> LinearDiscriminantAnalysis().fit(X, y).score(X, y).__round__(3)
    0.965
    >>> ThresholdClassifier().fit(X, y).score(X, y).__round__(3)
    0.981
    >>> careful = ThresholdClassifier(cost=[[0, 50], [1, 0]]).fit(X, y)
    >>> (careful.predict(X)[y == 0] == 1).sum()  # malignant, but not detected
    np.int64(1)
    """

    def __init__(
        self,
        estimator: GaussianClassifier | None = None,
        *,
        cost: Any = None,
        class_weight: Any = None,
        max_memory: int | str | None = None,
    ) -> None:
        self.estimator = estimator
        self.cost = cost
        self.class_weight = class_weight
        self.max_memory = max_memory

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        if self.estimator is not None:
            tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        return tags

    @takes(Reading)
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **reading: Unpack[Reading]) -> Self:
        """Fit the estimator, and then the threshold to the same rows.

        Parameters
        ----------
        X, y, sample_weight : see `LinearDiscriminantAnalysis.fit`
            Rows, labels and weights.
        features, unlabelled, nodata, on_invalid : see `LinearDiscriminantAnalysis.fit`
            How rows are read, and which of them count.

        Returns
        -------
        ThresholdClassifier
            The fitted classifier.

        Raises
        ------
        InvalidDataError
            For rows that cannot be used, or unless there are two classes.
        InvalidParameterError
            For invalid costs or class weights.
        TypeError
            For an estimator of another kind.

        Examples
        --------
        >>> from sklearn.datasets import load_breast_cancer
        >>> from streamgda import LinearDiscriminantAnalysis, ThresholdClassifier
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> classifier = ThresholdClassifier(LinearDiscriminantAnalysis(), cost=[[0, 1], [10, 0]])
        >>> round(classifier.fit(X, y).score(X, y), 3)
        0.967
        """
        own = LinearDiscriminantAnalysis() if self.estimator is None else self.estimator
        check_type("estimator", own, MomentClassifier, _ESTIMATOR)
        _costs(self.cost)
        rows = self._read("fit", X, y, sample_weight, reading)
        counting: Any = {**reading, "features": None, "nodata": rows.rule.nodata}
        return self._adopt(clone(own).fit(rows.X, y, sample_weight, **counting), rows)

    @takes(Reading)
    def fit_threshold(
        self, X: Any, y: Any, sample_weight: Any = None, **reading: Unpack[Reading]
    ) -> Self:
        """Fit only the threshold, for example to rows for validation.

        Parameters
        ----------
        X, y, sample_weight : see `fit`
            Rows, labels and weights, which need not be those of the estimator.
        features, unlabelled, nodata, on_invalid : see `fit`
            How rows are read, and which of them count.

        Returns
        -------
        ThresholdClassifier
            The fitted classifier.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidDataError, InvalidParameterError
            As for `fit`.

        Examples
        --------
        >>> from sklearn.datasets import load_breast_cancer
        >>> from streamgda import LinearDiscriminantAnalysis, ThresholdClassifier
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> classifier = ThresholdClassifier(LinearDiscriminantAnalysis()).fit(X[:300], y[:300])
        >>> round(classifier.fit_threshold(X[300:], y[300:]).score(X, y), 3)
        0.963
        """
        check_is_fitted(self)
        rows = self._read("fit_threshold", X, y, sample_weight, reading)
        return self._adopt(self.estimator_, rows)

    def _adopt(self, fitted: GaussianClassifier, rows: Rows) -> Self:
        check_classes(fitted.classes_, fitted.class_count_, least=2)
        if fitted.classes_.size != 2:
            raise InvalidDataError(
                f"Only binary classification is supported. The type of the target is multiclass: "
                f"{fitted.classes_.size} classes {fitted.classes_.tolist()[:20]}"
            )
        allowed = as_bytes(self.max_memory)
        room = None if allowed is None else max(_LEAST_ROOM, allowed // 4 // _CELL_BYTES)
        costs, model = self._costs_of(fitted), fitted.model_
        scorer, held = Scorer("log_odds", model.log_odds, model), _CELL_BYTES * (room or 0)
        own: Any = {"held": held, "at_once": room is None}
        scored = scored_rows(fitted, scorer, rows, self.max_memory, **own)

        def blocks() -> Iterator[Block]:
            for slab in scored():
                yield slab.scores, slab.codes(model.classes) == 1, slab.weights

        return self._with(fitted, *best_threshold(blocks, costs, room))

    def _with(self, fitted: GaussianClassifier, threshold: float, cost: float) -> Self:
        learnt = {"estimator_": fitted, "threshold_": threshold, "total_cost_": cost}
        learnt["n_features_in_"] = fitted.n_features_in_
        if hasattr(fitted, "feature_names_in_"):
            learnt["feature_names_in_"] = fitted.feature_names_in_
        before = {k: v for k, v in vars(self).items() if k != "feature_names_in_"}
        self.__dict__ = before | learnt  # at once, whatever exception from outside arrives
        return self

    def _costs_of(self, fitted: GaussianClassifier) -> tuple[float, float]:
        costs = _costs(self.cost)
        if self.class_weight is None:
            return costs
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            weights = fitted.class_count_.sum() / (2 * fitted.class_count_)
        elif isinstance(self.class_weight, Mapping):
            weights = weights_of(fitted.classes_, self.class_weight, _CLASS_WEIGHT)
        else:
            weights = np.empty(0)
        if weights.shape != (2,) or not (np.isfinite(weights) & (weights >= 0)).all():
            raise refuse("class_weight", self.class_weight, _CLASS_WEIGHT)
        return float(costs[0] * weights[0]), float(costs[1] * weights[1])

    @property
    def classes_(self) -> np.ndarray:
        """Class labels, sorted, shape (2,)."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.classes_

    predict, score = MomentClassifier.predict, MomentClassifier.score

    @takes(Scoring)
    def decision_function(self, X: Any, **scoring: Unpack[Scoring]) -> Any:
        """Return the log-odds less the threshold; above zero, the second class is predicted.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys, max_memory : see `predict`
            Rows, the destination of the result, and how rows are read.

        Returns
        -------
        ndarray, shape (n_rows,); or as for `predict`
            Log-odds less the threshold.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidDataError, InvalidParameterError
            As for `predict`.

        Examples
        --------
        >>> from streamgda import LinearDiscriminantAnalysis, ThresholdClassifier
        >>> lda = LinearDiscriminantAnalysis()
        >>> classifier = ThresholdClassifier(lda).fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> classifier.decision_function([[2.0], [7.0]]).round(3)
        array([-12.5,  12.5])
        """
        return self._scored("decision_function", X, scoring)

    def _scorer(self, method: str, **options: Any) -> Scorer:
        check_is_fitted(self)
        functions: dict[str, Any] = {"predict": _labels, "decision_function": _excess}
        if method not in functions or options:
            given = f"{method}({', '.join(options)})" if options else method
            raise InvalidParameterError(
                f"{type(self).__name__} has no {given}: it predicts classes, not "
                f"probabilities; its estimator_ does"
            )
        model, above = self.estimator_.model_, {"threshold": self.threshold_}
        function = partial(functions[method], model=model, **above)
        labels = self.classes_ if method == "predict" else None
        return Scorer(f"{method} above a threshold", function, model, labels, None, above, method)

    # --- saving -------------------------------------------------------------------------------

    @property
    def moments_(self) -> ClassMoments:
        """Moments of the estimator."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.moments_

    def _state(self) -> State:
        check_is_fitted(self)
        given, description = self.estimator, described(self)
        params = description["params"]
        params["estimator"] = None if given is None else described(given)
        fitted, arrays = nested({"fitted": self.estimator_})
        threshold = np.array([self.threshold_, self.total_cost_])
        return {**description, **fitted}, {"threshold": threshold, **arrays}

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        params = attributes["params"] | unpacked(attributes["params"])
        if params["estimator"] is not None:
            params["estimator"] = unfitted(MomentClassifier, params["estimator"])
        classifier = build(cls, **params)
        as_bytes(classifier.max_memory)
        fitted: Any = restore(
            MomentClassifier, attributes["fitted"], arrays_within(arrays, "fitted")
        )
        values = arrays["threshold"]
        usable = values.shape == (2,) and values.dtype == np.float64
        usable = usable and not np.isnan(values[0]) and np.isfinite(values[1])
        if not usable or fitted.classes_.size != 2:
            raise ValueError(f"{values} is no threshold between the classes {fitted.classes_}")
        classifier._costs_of(fitted)
        return classifier._with(fitted, *values.tolist())


def _excess(X: Any, first_row: int = 0, *, model: GaussianModel, threshold: float) -> np.ndarray:
    return model.log_odds(X, first_row) - threshold


def _labels(X: Any, first_row: int = 0, *, model: GaussianModel, threshold: float) -> np.ndarray:
    # Comparison rather than subtraction: the difference of close scores may round to zero.
    return model.classes[(model.log_odds(X, first_row) > threshold).astype(np.intp)]


def _costs(cost: Any) -> tuple[float, float]:
    """Return the cost of a row of the first class above the threshold, and of the second below."""
    if cost is None:
        return 1.0, 1.0
    matrix = as_numbers("cost", cost, _COST)
    if matrix.shape == (2, 2) and np.isfinite(matrix).all():
        first, second = matrix[0, 1] - matrix[0, 0], matrix[1, 0] - matrix[1, 1]
        if min(first, second) >= 0 and max(first, second) > 0:
            return float(first), float(second)
    raise refuse("cost", cost, _COST)
