"""Exact leave-one-out: rows of a fit, each scored by the model without that row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamgda import engine
from streamgda.errors import InvalidDataError, StreamGDAError
from streamgda.estimators.base import MomentClassifier
from streamgda.estimators.scoring import Scorer
from streamgda.estimators.validation import validate_rows
from streamgda.models.removals import LeaveOneOutModel
from streamgda.moments import ClassMoments
from streamgda.rows import as_rows, as_source
from streamgda.rows.invalid_rows import as_matrix, as_weights
from streamgda.rows.labels import coded_labels, find
from streamgda.rows.sources import check_lengths
from streamgda.runtime.parameters import refuse

_SHARE = 1e-9  # of the weight of a class that rounding may add


class LeaveOneOutScores(MomentClassifier):
    """Base of the estimators with exact leave-one-out posteriors."""

    def leave_one_out_proba(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        priors: str = "counted",
        out: Any = None,
        features: str | None = None,
    ) -> Any:
        r"""Return the probability of each class by the model fitted without the row.

        The result is that of as many fits as there are rows, each without one of them, to
        rounding; it takes two passes over the rows. Without a row x, the scatter of its class of n
        rows loses :math:`\frac{n}{n-1}\,\delta\delta^T`, with :math:`\delta = x - m`. The squared
        distance of x to the mean of its class, by the covariance C of that class without
        regularisation, :math:`q = \delta^T C^{-1} \delta`, becomes

        .. math:: \frac{n^2 q}{(n-1)^2} \cdot \frac{n-1}{n - n q / (n-1)}

        by the formula of Sherman and Morrison. See `streamgda.models.leave_one_out`. The first pass
        finds rows that hold nearly all of their class, or nearly all that a feature or a direction
        varies. A difference leaves nothing but rounding errors of these, so that the model without
        such a row is fitted to the others. Zeros and ones are subtracted from the counts of
        `BernoulliNB`.

        Parameters
        ----------
        X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
            Rows that the estimator was fitted to: all of them, or some.
        y : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
            Their labels in the fit. They are read as a whole.
        sample_weight : array-like, shape (n_rows,), optional
            Their weights in the fit, with which they are removed. Rows of weight zero may have any
            label.
        priors : {"counted", "fixed"}
            Priors without the row: the classes' shares of the other rows, as a fit to these
            has them, or those of the fit to all rows, as in ``lda`` and ``qda`` of R's package
            MASS with ``CV=TRUE``. It makes no difference where the estimator has `priors`.
        out : numpy.ndarray, zarr.Array, or path or zarr store to create one in; optional
            Destination of the result; see `predict`.
        features : str, optional
            Name of the dimension that holds the features, if `X` is a DataArray.

        Returns
        -------
        ndarray, shape (n_rows, n_classes); or as for `predict`
            Probabilities. That of a class is zero for its only row, with counted priors.

        Raises
        ------
        InvalidDataError
            For rows or labels that cannot be those of the fit, sparse rows (`BernoulliNB` takes
            them), or a class whose only row is left out, if it has a fixed prior, or too few
            classes are left. Also if the model without a row has to be fitted to the others, and
            some of these are missing.
        SingularCovarianceError
            If a covariance is singular without one of the rows. Errors are those of the fit without
            that row, whose number they give.
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
        W. N. Venables and B. D. Ripley: Modern Applied Statistics with S, Springer, 2002.

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
        asked = X, y, sample_weight, priors, out, features
        return self._scored_without("posterior", n_classes, *asked)[0]

    def leave_one_out_score(
        self, X: Any, y: Any, sample_weight: Any = None, *, priors: str = "counted"
    ) -> float:
        """Return the share of rows that the model fitted without them classifies correctly.

        Parameters
        ----------
        X, y, sample_weight, priors : see `leave_one_out_proba`
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
        asked = X, y, sample_weight, priors, None, None
        right, weights = self._scored_without("right", None, *asked)
        return float(np.average(as_source(right, "right").whole(), weights=weights))

    def _scored_without(
        self,
        name: str,
        columns: int | None,
        X: Any,
        y: Any,
        sample_weight: Any,
        priors: str,
        out: Any,
        features: str | None,
    ) -> tuple[Any, np.ndarray | None]:
        """Return what a method of `LeaveOneOutModel` returns for rows, and their weights."""
        if priors not in ("counted", "fixed"):
            raise refuse("priors", priors, "'counted' or 'fixed'")

        def compute() -> LeaveOneOutModel:
            model = self._leave_one_out()
            return model if priors == "counted" else replace(model, prior_kind="given")

        model = self._once(f"leave_one_out_{priors}", compute)
        X, _ = as_rows(X, features)
        rows = as_source(X)
        if np.isnan(rows.n_rows):
            raise InvalidDataError(
                "X has row chunks of unknown size, and labels belong to rows by their number: "
                "call X.compute_chunk_sizes() first"
            )
        X = validate_rows(self, X)
        codes, weights = self._companions(rows, y, sample_weight, model)
        own = {"codes": codes} | ({} if weights is None else {"weights": weights})
        own |= self._refits(model, rows, X, codes, weights)
        method = f"leave_one_out_{name}"
        options = own | {"priors": priors}
        function = partial(getattr(model, method), **own)
        scorer = Scorer(method, function, self.model_, None, columns, options, method)
        scores = engine.score(
            scorer.function,
            X,
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
        labels = coded_labels(_in_order(rows, y, "y"))
        check_lengths(rows, as_source(labels, "y"))
        codes = find(labels, self.classes_)
        weights = None
        if sample_weight is not None:
            weights = as_weights(_in_order(rows, sample_weight, "sample_weight"), codes.size)
            # Rows of weight zero are not in the fit, whatever their labels.
            codes[weights == 0] = model.count.argmax()
        if (codes < 0).any():
            at = int((codes < 0).argmax())
            raise InvalidDataError(
                f"y[{at}] is {labels[at]!s}, which is not a class of the fit; give the rows and "
                f"labels that the estimator was fitted to",
                *("y", at),
            )
        given = np.bincount(codes, weights, self.classes_.size)
        over = given > model.count * (1 + _SHARE)
        if over.any():
            k = int(over.argmax())
            raise InvalidDataError(
                f"class {self.classes_[k]!s} has a weight of {given[k]:g} here, and of "
                f"{model.count[k]:g} in the fit; give rows, labels and weights that the estimator "
                f"was fitted to"
            )
        return codes.astype(np.min_scalar_type(self.classes_.size)), weights

    def _refits(
        self,
        model: LeaveOneOutModel,
        rows: Any,
        X: Any,
        codes: np.ndarray,
        weights: np.ndarray | None,
    ) -> dict[str, Any]:
        """Return the numbers and posteriors of rows that need a fit to the others.

        The weights that the formulas get of them are zero. Their moments are those of the rows that
        need none, and all of them but one: rows are added only, so that nothing cancels.
        """
        if not model.refits:
            return {}
        given = partial(model.leave_one_out_influential, codes=codes, weights=weights)
        found = engine.score(given, X)
        at = np.flatnonzero(_in_order(rows, found, "found"))
        if not at.size:
            return {}
        total = np.bincount(codes, weights, self.classes_.size)
        if (total < model.count * (1 - _SHARE)).any():
            raise InvalidDataError(
                f"without row {at[0]}, nearly nothing is left of the weight or of some variance of "
                f"its class, so that all rows of the fit are needed; give all of them"
            )
        others = codes.astype(np.int64)
        others[at] = -1
        kind = self.moments_.covariance_type

        def of_others(weights: np.ndarray | None) -> ClassMoments:
            if at.size == codes.size:
                return ClassMoments(kind)
            options: Any = {"sample_weight": weights, "covariance_type": kind, "unlabelled": -1}
            moments = engine.accumulate(X, others, **options)
            return moments.relabel({k: self.classes_[k] for k in moments.classes})

        source = as_source(X)
        values = np.concatenate([as_matrix(source.read(r, r + 1)) for r in at.tolist()])
        labels = self.classes_[codes[at]]
        shares = None if weights is None else weights[at]
        refits = np.empty((at.size, self.classes_.size))
        rows_of = values, labels
        each = _without_each(of_others(weights), *rows_of, shares, np.arange(at.size))
        plain: Any = itertools.repeat((0, None))
        if getattr(self, "_unweighted", None) is not None:  # smoothing follows rows without weights
            plain = _without_each(of_others(None), *rows_of, None, np.arange(at.size))
        for (i, without), (_, beside) in zip(each, plain, strict=False):
            x = values[i : i + 1]
            refits[i] = self._refitted(without, beside, model.prior_kind, x, int(at[i]))
        shares = np.ones(codes.size) if weights is None else weights.copy()
        shares[at] = 0
        return {"weights": shares, "refitted": at, "refits": refits}

    def _refitted(
        self,
        moments: ClassMoments,
        plain: ClassMoments | None,
        prior_kind: str,
        x: np.ndarray,
        row: int,
    ) -> np.ndarray:
        """Return the posterior of a row by the model that the moments of the others determine."""
        left = np.isin(self.classes_, moments.classes[moments.class_count > 0])
        gone = (self.class_count_ > 0) & ~left
        if gone.any() and prior_kind == "given":
            raise InvalidDataError(
                f"row {row} is the only one of class {self.classes_[gone][0]!s}, which has a fixed "
                f"prior and no rows without it. Leave out the class, or its prior"
            )
        try:
            model = self._model_of(moments, plain)
        except StreamGDAError as error:
            error.args = (f"without row {row}: {error}", *error.args[1:])
            raise
        seen = np.isin(self.classes_, model.classes)
        if prior_kind == "given":
            model = replace(model, priors=self.model_.priors[seen])
        posterior = np.zeros(self.classes_.size)
        posterior[seen] = model.posterior(x)[0]
        return posterior

    def _leave_one_out(self) -> Any:
        """Return the model, ready to score rows without them."""
        raise NotImplementedError


def _in_order(rows: Any, values: Any, name: str) -> np.ndarray:
    """Return labels, weights or scores of rows, in memory, in the order of the rows."""
    whole: np.ndarray = as_source(rows.laid_out(values, name), name).whole()
    return whole


def _without_each(
    moments: ClassMoments,
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray | None,
    some: np.ndarray,
) -> Iterator[tuple[int, ClassMoments]]:
    """Yield the number of each of some rows, and moments with all the others of these rows."""
    if some.size == 1:
        yield int(some[0]), moments
        return
    first, second = np.array_split(some, 2)
    for part, others in ((first, second), (second, first)):
        w = None if weights is None else weights[others]
        grown = moments.copy().update(X[others], y[others], w)
        yield from _without_each(grown, X, y, weights, part)
