"""Removing rows and classes that an estimator has learnt from."""

from __future__ import annotations

from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from streamgda.estimators.learning import MomentLearner
from streamgda.moments import ClassMoments
from streamgda.rows import as_rows
from streamgda.rows.invalid_rows import RowRule, row_rule


class ForgetfulLearner(MomentLearner):
    """Base of the classifiers that learn by updating moments, and unlearn by subtracting them."""

    def forget(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        features: str | None = None,
        unlabelled: Any = None,
        nodata: float | None = None,
        on_invalid: str = "raise",
    ) -> Self:
        """Remove rows: the model is then as if they had never been added.

        The result is equal to rounding; to the bit for 8- and 16-bit integers without weights,
        unless the shrinkage needs norms of the rows (``"ledoit_wolf"``), which are sums of floats.
        A class that is left without rows is dropped.

        Parameters
        ----------
        X, y : see `fit`
            Rows and labels, as they were passed to `fit` or `partial_fit`. Whether these very rows
            were added cannot be checked. It is an error if there were fewer of a class, or if a sum
            of squares would be left that no rows have, by more than rounding.
        sample_weight : array-like, shape (n_rows,), optional
            Weights of the rows; with a half-life, those that they have by now.
        features, unlabelled, nodata, on_invalid : see `fit`
            How rows are read, and which of them count.

        Returns
        -------
        estimator
            The estimator itself.

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used.
        MergeError
            For rows that were not added, as far as that can be told.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB().fit([[1.0], [3.0], [90.0], [6.0], [8.0]], [0, 0, 0, 1, 1])
        >>> nb.forget([[90.0]], [0]).theta_.ravel()
        array([2., 7.])
        """
        check_is_fitted(self)
        X, nodata = as_rows(X, features, nodata)
        rule = row_rule(on_invalid, nodata, unlabelled, y=y)
        return self._learn(self._without_rows, X, y, sample_weight, rule)

    def _without_rows(
        self, settings: Self, X: Any, y: Any, sample_weight: Any, rule: RowRule
    ) -> ClassMoments:
        self._check_kept(settings)
        return self.moments_ - self._accumulated(settings, X, y, sample_weight, rule, False)

    def retire(self, labels: Any) -> Self:
        """Drop classes with all their rows; their labels may appear again with other rows.

        Parameters
        ----------
        labels : array-like
            Labels of classes.

        Returns
        -------
        estimator
            The estimator itself.

        Raises
        ------
        InvalidParameterError
            For labels that are not among the classes.
        MergeError
            If all classes share one covariance, from which the part of one class cannot be
            removed; `forget` its rows, or keep ``"full"`` moments and `reduce` them.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> nb = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0], [9.0], [12.0]], [0, 0, 1, 1, 2, 2])
        >>> nb.retire([1]).classes_
        array([0, 2])
        """
        check_is_fitted(self)
        return self._learn(self._without_classes, labels)

    def _without_classes(self, settings: Self, labels: Any) -> ClassMoments:
        self._check_kept(settings, rows_change=False)
        return self.moments_.drop_classes(labels)
