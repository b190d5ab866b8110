"""A linear rule whose threshold is fitted to the data, and not to the model of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from streamgda import storage
from streamgda.engine.plan import plan_rows
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.estimators.base import MomentClassifier, score_labels
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.estimators.linear import LinearDiscriminantAnalysis
from streamgda.estimators.saving import SavedEstimator, describe, described
from streamgda.estimators.scoring import Blockwise
from streamgda.models.gaussian import GaussianModel
from streamgda.models.thresholds import Block, best_threshold
from streamgda.moments import ClassMoments
from streamgda.rows.labels import as_labels, find
from streamgda.rows.sources import as_source, check_rows, is_dask, is_store, placing
from streamgda.rows.validity import as_weights
from streamgda.runtime.memory import allowed_bytes, as_bytes
from streamgda.storage.saved import State, arrays_within, nested, restore

_CELL_BYTES = 200  # what a score that is kept takes, while it is sorted and merged
_LEAST_ROOM = 1 << 10


class ThresholdClassifier(ClassifierMixin, SavedEstimator):
    r"""Two classes, told apart by the threshold on a score that costs least on the rows.

    With the default estimator, Fisher's rule of document 004: predict the second class where
    :math:`w \cdot x > \theta`, with w from the moments and :math:`\theta` "fit to minimise
    training/validation error". The model's own threshold is right only where the model is; this
    one is the best there is for the rows, whatever they are like.

    The score is the estimator's log-odds, so that `threshold_` is zero where its own threshold
    cannot be bettered. Fitting takes one pass for the moments and one for the scores, over any
    kind of array.

    Parameters
    ----------
    estimator : estimator of this package, optional
        By default ``LinearDiscriminantAnalysis()``.
    cost : array-like, shape (2, 2), optional
        What it costs to predict class j of a row of class i, classes sorted; by default
        ``[[0, 1], [1, 0]]``, so that the share of errors is least.
    class_weight : dict of label to weight, or "balanced"; optional
        Multiplies the costs of a class's rows; "balanced" gives both classes the same weight in
        all.
    max_memory : int or str, optional
        Bytes, or a text such as ``"512MB"``, for rows being read and scores being kept. Without
        it all scores are kept, and read in one pass. With it the result is the same, but it may
        take further passes to tell which of the scores that were counted together is best.

    Attributes
    ----------
    threshold_ : float
        On the log-odds; infinite where one class for all rows costs least.
    total_cost_ : float
        Of the rows that the threshold was fitted to, beyond what no threshold saves.
    estimator_ : estimator
        Fitted: it has the direction, the moments and all that is said of rows but the class.
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
    >>> (careful.predict(X)[y == 0] == 1).sum()  # malignant, and not found
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
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the estimator, and then the threshold to the same rows.

        Parameters
        ----------
        X, y, sample_weight
            As of the estimator.

        Returns
        -------
        self

        Raises
        ------
        InvalidDataError
            For rows that cannot be used, or of other than two classes.
        InvalidParameterError
            For costs or weights of classes that cannot be used.
        """
        own = LinearDiscriminantAnalysis() if self.estimator is None else clone(self.estimator)
        _costs(self.cost)
        return self._adopt(own.fit(X, y, sample_weight), X, y, sample_weight)

    def fit_threshold(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the threshold alone, to rows that the estimator need not have seen.

        Parameters
        ----------
        X, y, sample_weight
            As of `fit`: rows to validate with.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        return self._adopt(self.estimator_, X, y, sample_weight)

    def _adopt(self, fitted: GaussianClassifier, X: Any, y: Any, sample_weight: Any) -> Self:
        if fitted.classes_.size != 2:
            raise InvalidDataError(
                f"Only binary classification is supported. The type of the target is multiclass: "
                f"{fitted.classes_.size} classes {fitted.classes_.tolist()[:20]}"
            )
        allowed = as_bytes(self.max_memory)
        room = None if allowed is None else max(_LEAST_ROOM, allowed // 4 // _CELL_BYTES)
        costs = self._costs_of(fitted)
        if is_dask(X):
            source: Iterable[Block] = _DaskScores(fitted, X, y, sample_weight, room is None)
        elif is_store(X):
            planned = allowed_bytes(self.max_memory)
            source = _StoredScores(fitted, X, y, sample_weight, planned, room)
        else:
            source = [_block(fitted, fitted.decision_function(X), y, sample_weight)]
        return self._with(fitted, *best_threshold(lambda: source, costs, room))

    def _with(self, fitted: GaussianClassifier, threshold: float, cost: float) -> Self:
        self.estimator_, self.threshold_, self.total_cost_ = fitted, threshold, cost
        self.n_features_in_ = fitted.n_features_in_
        if hasattr(fitted, "feature_names_in_"):
            self.feature_names_in_ = fitted.feature_names_in_
        return self

    def _costs_of(self, fitted: GaussianClassifier) -> tuple[float, float]:
        costs = _costs(self.cost)
        if self.class_weight is None:
            return costs
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            weights = fitted.class_count_.sum() / (2 * fitted.class_count_)
        elif isinstance(self.class_weight, Mapping):
            weights = np.array([self.class_weight.get(k, 1.0) for k in fitted.classes_.tolist()])
        else:
            weights = np.array(np.nan)
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise InvalidParameterError(
                f"class_weight={self.class_weight!r}; expected 'balanced', or a dict of labels to "
                f"weights that are finite and >= 0"
            )
        return float(costs[0] * weights[0]), float(costs[1] * weights[1])

    @property
    def classes_(self) -> np.ndarray:
        """Class labels, sorted, shape (2,)."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.classes_

    def decision_function(self, X: Any, *, out: Any = None) -> Any:
        """Log-odds less the threshold, shape (n_rows,): above zero, the second class is predicted.

        Parameters
        ----------
        X, out
            As of `predict`.
        """
        check_is_fitted(self)
        return self.estimator_._evaluate(self.blockwise("decision_function"), X, out)

    def predict(self, X: Any, *, out: Any = None) -> Any:
        """The class of each row.

        Parameters
        ----------
        X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
        out : numpy.ndarray, zarr.Array, or path or zarr store to create one in; optional
            Where the result goes, slab by slab, as of the other estimators.

        Returns
        -------
        ndarray, shape (n_rows,); or `out`; or a lazy dask array
        """
        check_is_fitted(self)
        return self.estimator_._evaluate(self.blockwise("predict"), X, out)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows whose predicted class is right; see `GaussianClassifier.score`."""
        return score_labels(self.predict(X), y, sample_weight)

    def blockwise(self, method: str, **options: Any) -> Blockwise:
        """What a method says of rows, as a function of blocks of them; as of the other estimators.

        Parameters
        ----------
        method : {"predict", "decision_function"}
        **options
            There are none.
        """
        check_is_fitted(self)
        functions: dict[str, Any] = {"predict": _labels, "decision_function": _excess}
        if method not in functions or options:
            given = f"{method}({', '.join(options)})" if options else method
            raise InvalidParameterError(
                f"{type(self).__name__} has no {given}: it tells classes apart, and gives no "
                f"probabilities; its estimator_ does"
            )
        model, above = self.estimator_.model_, {"threshold": self.threshold_}
        function = partial(functions[method], model=model, **above)
        dtype = self.classes_.dtype if method == "predict" else np.float64
        return Blockwise(f"{method} above a threshold", function, model, dtype, None, above)

    # --- saving -------------------------------------------------------------------------------

    @property
    def moments_(self) -> ClassMoments:
        """Of the estimator: all that was kept of the rows."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.moments_

    def _state(self) -> State:
        check_is_fitted(self)
        given, description = self.estimator, describe(self)
        params = description["params"]
        params["estimator"] = None if given is None else describe(given)
        if isinstance(self.class_weight, Mapping):
            labels, order = np.unique(as_labels([*self.class_weight]), return_index=True)
            weights = [float(weight) for weight in self.class_weight.values()]
            params["class_weight"] = {
                "labels": storage.pack_labels(labels),
                "weights": [weights[i] for i in order],
            }
        fitted, arrays = nested({"fitted": self.estimator_})
        threshold = np.array([self.threshold_, self.total_cost_])
        return {**description, **fitted}, {"threshold": threshold, **arrays}

    @classmethod
    def _restored(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        params = dict(attributes["params"])
        if params["estimator"] is not None:
            params["estimator"] = described(MomentClassifier, params["estimator"])
        weight = params["class_weight"]
        if isinstance(weight, Mapping):
            labels = storage.unpack_labels(weight["labels"]).tolist()
            params["class_weight"] = dict(zip(labels, weight["weights"], strict=True))
        classifier = cls(**params)
        as_bytes(classifier.max_memory)
        fitted: Any = restore(
            MomentClassifier, attributes["fitted"], arrays_within(arrays, "fitted")
        )
        threshold = arrays["threshold"]
        if threshold.shape != (2,) or np.isnan(threshold).any() or fitted.classes_.size != 2:
            raise ValueError("it has no threshold between two classes")
        classifier._costs_of(fitted)
        return classifier._with(fitted, float(threshold[0]), float(threshold[1]))


def _excess(X: Any, first_row: int = 0, *, model: GaussianModel, threshold: float) -> np.ndarray:
    return model.log_odds(X, first_row) - threshold


def _labels(X: Any, first_row: int = 0, *, model: GaussianModel, threshold: float) -> np.ndarray:
    # Compared, not subtracted: scores that differ by less than can be told from zero count too.
    return model.classes[(model.log_odds(X, first_row) > threshold).astype(np.intp)]


def _costs(cost: Any) -> tuple[float, float]:
    """What is lost by a row of the first class above the threshold, and of the second below."""
    if cost is None:
        return 1.0, 1.0
    try:
        matrix = np.asarray(cost, np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.shape == (2, 2) and np.isfinite(matrix).all():
        first, second = matrix[0, 1] - matrix[0, 0], matrix[1, 0] - matrix[1, 1]
        if min(first, second) >= 0 and max(first, second) > 0:
            return float(first), float(second)
    raise InvalidParameterError(
        f"cost={cost!r}; expected [[0, a], [b, 0]]: finite numbers, of each row the least where "
        f"the class is right"
    )


# --- scores, labels and weights of rows of any kind ----------------------------------------------


def _block(
    fitted: GaussianClassifier, scores: Any, y: Any, sample_weight: Any, first_row: int = 0
) -> Block:
    labels = np.asarray(y)
    labels = as_labels(labels[:, 0] if labels.shape[1:] == (1,) else labels, first_row=first_row)
    codes = find(labels, fitted.classes_)
    if codes.shape != np.shape(scores):
        raise InvalidDataError(f"X has {len(scores)} rows but y has {labels.size} labels")
    if (codes < 0).any():
        at = int((codes < 0).argmax())
        raise InvalidDataError(
            f"y[{first_row + at}] has the label {labels[at]!s}, which is not one of the classes "
            f"{fitted.classes_.tolist()}",
            *("y", first_row + at),
        )
    weights = np.ones(codes.size)
    if sample_weight is not None:
        weights = as_weights(sample_weight, codes.size, first_row)
    kept = weights > 0
    return np.asarray(scores)[kept], codes[kept] == 1, weights[kept]


class _StoredScores:
    """Of rows in a store: scored slab by slab, each time they are asked for."""

    def __init__(
        self,
        fitted: GaussianClassifier,
        X: Any,
        y: Any,
        sample_weight: Any,
        allowed: int,
        room: int | None,
    ) -> None:
        self.fitted = fitted
        self.sources = [as_source(X), as_source(y, "y")]
        if sample_weight is not None:
            self.sources.append(as_source(sample_weight, "sample_weight"))
        check_rows(*self.sources)
        kept = _CELL_BYTES * (room or 0) + fitted.model_.packed_bytes
        beside = self.sources[1:]
        self.slabs = plan_rows(self.sources[0], allowed, kept, beside=beside, out_row_bytes=8)

    def __iter__(self) -> Iterator[Block]:
        with placing(*self.sources):
            for start, (rows, y, *weights) in self.slabs.read(*self.sources):
                scores = self.fitted.model_.log_odds(rows, start)
                yield _block(self.fitted, scores, y, weights[0] if weights else None, start)


class _DaskScores:
    """Of dask arrays: all at once, or block by block."""

    def __init__(
        self, fitted: GaussianClassifier, X: Any, y: Any, sample_weight: Any, at_once: bool
    ) -> None:
        from streamgda.engine import dask as distributed  # noqa: PLC0415

        self.fitted = fitted
        arrays = [fitted.decision_function(X), distributed.beside(X, y, "y")]
        if sample_weight is not None:
            arrays.append(distributed.beside(X, sample_weight, "sample_weight"))
        blocks = zip(*(array.to_delayed().ravel() for array in arrays), strict=True)
        self.parts: list[Any] = [arrays] if at_once else list(blocks)

    def __iter__(self) -> Iterator[Block]:
        import dask  # noqa: PLC0415

        for number, part in enumerate(self.parts):
            scores, y, *weights = dask.compute(*part)
            try:
                block = _block(self.fitted, scores, y, weights[0] if weights else None)
            except InvalidDataError as error:
                if len(self.parts) > 1:
                    error.place(f"block {number} (rows counted from its first)")
                raise
            yield block
