"""Exact leave-one-out: rows of a fit, each scored by the model without that row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda import engine
from streamgda.errors import InvalidDataError, StreamGDAError
from streamgda.estimators.row_classifier import Scorer, validate_rows
from streamgda.models.leave_one_out import GaussianLeaveOneOut
from streamgda.moments import ClassMoments
from streamgda.rows import Rows, as_source
from streamgda.rows.invalid_rows import as_matrix, as_weights
from streamgda.rows.labels import coded_labels, find
from streamgda.rows.sources import check_lengths
from streamgda.runtime.parameters import refuse

if TYPE_CHECKING:
    from streamgda.estimators.gaussian import GaussianClassifier

_SHARE = 1e-9  # of the weight of a class that rounding may add


def scored_without(
    estimator: GaussianClassifier,
    name: str,
    columns: int | None,
    X: Any,
    y: Any,
    sample_weight: Any,
    priors: str,
    out: Any,
    features: str | None,
) -> tuple[Any, np.ndarray | None]:
    """Return what a method of `GaussianLeaveOneOut` returns for rows, and their weights."""
    if priors not in ("counted", "fixed"):
        raise refuse("priors", priors, "'counted' or 'fixed'")

    def compute() -> GaussianLeaveOneOut:
        model = estimator._leave_one_out()
        return model if priors == "counted" else replace(model, prior_kind="given")

    model = estimator._once(f"leave_one_out_{priors}", compute)
    X = Rows.of(X, features=features).X
    rows = as_source(X)
    if np.isnan(rows.n_rows):
        raise InvalidDataError(
            "X has row chunks of unknown size, and labels belong to rows by their number: "
            "call X.compute_chunk_sizes() first"
        )
    X = validate_rows(estimator, X)
    codes, weights = _companions(estimator, rows, y, sample_weight, model)
    own = {"codes": codes} | ({} if weights is None else {"weights": weights})
    own |= _refits(estimator, model, rows, X, codes, weights)
    method = f"leave_one_out_{name}"
    options = own | {"priors": priors}
    function = partial(model.leave_one_out, answer=name, **own)
    scorer = Scorer(method, function, estimator.model_, None, columns, options, method)
    return scorer.score(X, out), weights


def _companions(
    estimator: GaussianClassifier, rows: Any, y: Any, sample_weight: Any, model: GaussianLeaveOneOut
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the codes and weights of rows, which could be those of the fit."""
    labels = coded_labels(_in_order(rows, y, "y"))
    check_lengths(rows, as_source(labels, "y"))
    codes = find(labels, estimator.classes_)
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
    given = np.bincount(codes, weights, estimator.classes_.size)
    over = given > model.count * (1 + _SHARE)
    if over.any():
        k = int(over.argmax())
        raise InvalidDataError(
            f"class {estimator.classes_[k]!s} has a weight of {given[k]:g} here, and of "
            f"{model.count[k]:g} in the fit; give rows, labels and weights that the estimator "
            f"was fitted to"
        )
    return codes.astype(np.min_scalar_type(estimator.classes_.size)), weights


def _refits(
    estimator: GaussianClassifier,
    model: GaussianLeaveOneOut,
    rows: Any,
    X: Any,
    codes: np.ndarray,
    weights: np.ndarray | None,
) -> dict[str, Any]:
    """Return the numbers and posteriors of rows that need a fit to the others.

    The weights that the formulas get of them are zero. Their moments are those of the rows that
    need none, and all of them but one: rows are added only, so that nothing cancels.
    """
    asked = partial(model.leave_one_out, answer="influential", codes=codes, weights=weights)
    found = engine.score(asked, X)
    at = np.flatnonzero(_in_order(rows, found, "found"))
    if not at.size:
        return {}
    total = np.bincount(codes, weights, estimator.classes_.size)
    if (total < model.count * (1 - _SHARE)).any():
        raise InvalidDataError(
            f"without row {at[0]}, nearly nothing is left of the weight or of some variance of "
            f"its class, so that all rows of the fit are needed; give all of them"
        )
    others = codes.astype(np.int64)
    others[at] = -1
    kind = estimator.moments_.covariance_type

    def of_others(weights: np.ndarray | None) -> ClassMoments:
        if at.size == codes.size:
            return ClassMoments(kind)
        options: Any = {"sample_weight": weights, "covariance_type": kind, "unlabelled": -1}
        moments = engine.accumulate(X, others, **options)
        return moments.relabel({k: estimator.classes_[k] for k in moments.classes})

    source = as_source(X)
    values = np.concatenate([as_matrix(source.read(r, r + 1)) for r in at.tolist()])
    labels = estimator.classes_[codes[at]]
    shares = None if weights is None else weights[at]
    refits = np.empty((at.size, estimator.classes_.size))
    rows_of = values, labels
    each = _without_each(of_others(weights), *rows_of, shares, np.arange(at.size))
    plain: Any = itertools.repeat((0, None))
    if estimator._beside is not None:  # smoothing follows rows without weights
        plain = _without_each(of_others(None), *rows_of, None, np.arange(at.size))
    for (i, without), (_, beside) in zip(each, plain, strict=False):
        x = values[i : i + 1]
        refits[i] = _refitted(estimator, without, beside, model.prior_kind, x, int(at[i]))
    shares = np.ones(codes.size) if weights is None else weights.copy()
    shares[at] = 0
    return {"weights": shares, "refitted": at, "refits": refits}


def _refitted(
    estimator: GaussianClassifier,
    moments: ClassMoments,
    plain: ClassMoments | None,
    prior_kind: str,
    x: np.ndarray,
    row: int,
) -> np.ndarray:
    """Return the posterior of a row by the model that the moments of the others determine."""
    left = np.isin(estimator.classes_, moments.classes[moments.class_count > 0])
    gone = (estimator.class_count_ > 0) & ~left
    if gone.any() and prior_kind == "given":
        label = estimator.classes_[gone][0]
        raise InvalidDataError(
            f"row {row} is the only one of class {label!s}, which has a fixed prior and no "
            f"rows without it. Leave out the class, or its prior"
        )
    try:
        model = estimator._model_of(moments, plain)
    except StreamGDAError as error:
        error.args = (f"without row {row}: {error}", *error.args[1:])
        raise
    seen = np.isin(estimator.classes_, model.classes)
    if prior_kind == "given":
        model = replace(model, priors=estimator.model_.priors[seen])
    posterior = np.zeros(estimator.classes_.size)
    posterior[seen] = model.posterior(x)[0]
    return posterior


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
