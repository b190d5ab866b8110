"""Exact leave-one-out: rows of a fit, each scored by the model without that row."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from streamgda import engine
from streamgda.errors import InvalidDataError
from streamgda.estimators.base import MomentClassifier
from streamgda.estimators.scoring import Scorer
from streamgda.estimators.validation import validate_rows
from streamgda.models.removals import LeaveOneOutModel
from streamgda.rows import as_rows, as_source
from streamgda.rows.labels import coded_labels, find
from streamgda.rows.sources import check_lengths
from streamgda.rows.validity import as_weights

_SHARE = 1e-9  # of the weight of a class that rounding may add


class LeaveOneOutScores(MomentClassifier):
    """Base of the estimators with exact leave-one-out posteriors."""

    def leave_one_out_proba(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        out: Any = None,
        features: str | None = None,
    ) -> Any:
        r"""Return the probability of each class by the model fitted without the row.

        The result is that of as many fits as there are rows, each without one of them, to
        rounding; it takes one pass over the rows. Without a row x, the scatter of its class of n
        rows loses :math:`\frac{n}{n-1}\,\delta\delta^T`, with :math:`\delta = x - m`. The squared
        distance of x to the mean of its class, by the covariance C of that class without
        regularisation, :math:`q = \delta^T C^{-1} \delta`, becomes

        .. math:: \frac{n^2 q}{(n-1)^2} \cdot \frac{n-1}{n - n q / (n-1)}

        by the formula of Sherman and Morrison. See `streamgda.models.leave_one_out`. Zeros and ones
        are subtracted from the counts of `BernoulliNB`.

        Parameters
        ----------
        X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
            Rows that the estimator was fitted to: all of them, or some.
        y : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
            Their labels in the fit. They are read as a whole.
        sample_weight : array-like, shape (n_rows,), optional
            Their weights in the fit.
        out : numpy.ndarray, zarr.Array, or path or zarr store to create one in; optional
            Destination of the result; see `predict`.
        features : str, optional
            Name of the dimension that holds the features, if `X` is a DataArray.

        Returns
        -------
        ndarray, shape (n_rows, n_classes); or as for `predict`
            Probabilities. That of a class is zero for its only row.

        Raises
        ------
        InvalidDataError
            For rows or labels that cannot be those of the fit, sparse rows (`BernoulliNB` takes
            them), or a class whose only row is left out, if it has a fixed prior, or too few
            classes are left.
        SingularCovarianceError
            If a covariance is singular without one of the rows.
        UnsupportedError
            Where a row changes the covariances in more than one direction: rules for the
            shrinkage, `pooling`, regularisation with `standardize`, a `covariance_estimator`,
            `priors` that weight covariances (solvers ``"lsqr"`` and ``"eigen"``), dropped
            directions.

        Notes
        -----
        Regularisation, `ddof` and priors are those of a fit without the row: also the mean variance
        that shrinkage adds, and the largest one of `var_smoothing`. Rows of float32 are multiplied
        in float32, as they are by `predict_proba`; for data with few rows in some direction, whose
        removal divides that rounding error by a small number, give float64.

        References
        ----------
        B. D. Ripley: Pattern Recognition and Neural Networks, Cambridge University Press, 1996.
        W. N. Venables and B. D. Ripley: Modern Applied Statistics with S, 2002, ``lda(CV=TRUE)``.

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
        n_classes = self.classes_.size
        return self._scored_without("posterior", n_classes, X, y, sample_weight, out, features)[0]

    def leave_one_out_score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows that the model fitted without them classifies correctly.

        Parameters
        ----------
        X, y, sample_weight : see `leave_one_out_proba`
            Rows that the estimator was fitted to, with their labels and weights.

        Returns
        -------
        float
            Accuracy; of weighted rows, that of their weight.

        Raises
        ------
        InvalidDataError, SingularCovarianceError, UnsupportedError
            As for `leave_one_out_proba`.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> X, y = load_wine(return_X_y=True)
        >>> qda = QuadraticDiscriminantAnalysis().fit(X, y)
        >>> round(qda.score(X, y), 3), round(qda.leave_one_out_score(X, y), 3)
        (0.994, 0.994)
        """
        right, weights = self._scored_without("right", None, X, y, sample_weight, None, None)
        return float(np.average(as_source(right, "right").whole(), weights=weights))

    def _scored_without(
        self,
        name: str,
        columns: int | None,
        X: Any,
        y: Any,
        sample_weight: Any,
        out: Any,
        features: str | None,
    ) -> tuple[Any, np.ndarray | None]:
        """Return what a method of `LeaveOneOutModel` returns for rows, and their weights."""
        model = self._once("leave_one_out", self._leave_one_out)
        X, _ = as_rows(X, features)
        rows = as_source(X)
        if np.isnan(rows.n_rows):
            raise InvalidDataError(
                "X has row chunks of unknown size, and labels belong to rows by their number: "
                "call X.compute_chunk_sizes() first"
            )
        codes, weights = self._companions(rows, y, sample_weight, model)
        own = {"codes": codes} | ({} if weights is None else {"weights": weights})
        method = f"leave_one_out_{name}"
        scorer = Scorer(
            method, partial(getattr(model, method), **own), self.model_, None, columns, own, method
        )
        scores = engine.score(
            scorer.function,
            validate_rows(self, X),
            out,
            columns=columns,
            name=method,
            classes=scorer.classes,
            fingerprint=None if out is None else scorer.fingerprint,
            held=scorer.held,
        )
        return scores, weights

    def _companions(
        self, rows: Any, y: Any, sample_weight: Any, model: LeaveOneOutModel
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the codes and weights of rows, which could be those of the fit."""

        def in_order(values: Any, name: str) -> np.ndarray:
            return as_source(rows.laid_out(values, name), name).whole()

        labels = coded_labels(in_order(y, "y"))
        check_lengths(rows, as_source(labels, "y"))
        codes = find(labels, self.classes_)
        if (codes < 0).any():
            at = int((codes < 0).argmax())
            raise InvalidDataError(
                f"y[{at}] is {labels[at]!s}, which is not a class of the fit; give the rows and "
                f"labels that the estimator was fitted to",
                *("y", at),
            )
        weights = None
        if sample_weight is not None:
            weights = as_weights(in_order(sample_weight, "sample_weight"), codes.size)
        given = np.bincount(codes, weights, self.classes_.size)
        over = given > model.count * (1 + _SHARE)
        if over.any():
            k = int(over.argmax())
            raise InvalidDataError(
                f"class {self.classes_[k]!s} has a weight of {given[k]:g} here, and of "
                f"{model.count[k]:g} in the fit; give rows, labels and weights that the estimator "
                f"was fitted to"
            )
        self._refuse_too_few(model, codes, weights)
        return codes.astype(np.min_scalar_type(self.classes_.size)), weights

    def _refuse_too_few(
        self, model: LeaveOneOutModel, codes: np.ndarray, weights: np.ndarray | None
    ) -> None:
        """Raise an error if fewer classes than a fit needs are left without some row."""
        n_classes = int((model.count > 0).sum())
        if n_classes > self._least_classes:
            return
        empties = model.emptied(codes, weights)
        if empties.any():
            at = int(empties.argmax())
            raise InvalidDataError(
                f"row {at} is the only one of class {self.classes_[codes[at]]!s}, and without it "
                f"{n_classes - 1} of the {self._least_classes} classes that a fit needs "
                f"would be left. Give more rows of that class"
            )

    def _leave_one_out(self) -> LeaveOneOutModel:
        """Return the model, ready to score rows without them."""
        raise NotImplementedError
