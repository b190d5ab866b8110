"""Compiling the kernels ahead of time, by using them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from streamgda.estimators.discriminant import QuadraticDiscriminantAnalysis
from streamgda.estimators.linear import LinearDiscriminantAnalysis
from streamgda.estimators.naive_bayes import GaussianNB
from streamgda.runtime.parameters import as_flag, refuse

_ESTIMATORS: dict[str, Any] = {
    "qda": QuadraticDiscriminantAnalysis,
    "lda": LinearDiscriminantAnalysis,
    "gnb": GaussianNB,
}
# Rows and features: few features, and sums on many threads; tiles; products by BLAS, of more
# features than buckets have, and fewer than the rows of a class.
_SHAPES = ((20_000, 4), (2_000, 40), (1_200, 520))
_FEW, _MORE = 3, 300  # rows of a batch
_LABELS = "int64", "uint8", "str"
_METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples")


def warmup(
    types: str | Sequence[str] = ("uint8", "float32", "float64"),
    kinds: str | Sequence[str] = ("qda", "lda", "gnb"),
    *,
    progress: bool | Callable[[int, int], None] = False,
) -> None:
    """Compile the kernels of some estimators and data types ahead of time.

    The first use of an estimator on a type of rows compiles for seconds. Numba keeps the result for
    later processes, in ``NUMBA_CACHE_DIR`` or in its default folders. Call this function as an
    image is built, or once on each machine of a cluster.

    Parameters
    ----------
    types : sequence of str, or str
        Data types of rows, in a sequence or separated by commas: ``"uint8"``, ``"int8"``,
        ``"uint16"``, ``"int16"``, ``"float32"``, ``"float64"``. Rows of other types are cast to
        one of these.
    kinds : sequence of str, or str
        Estimators: ``"qda"``, ``"lda"``, ``"gnb"``, or the names of their classes.
        `GaussianDiscriminantAnalysis` shares their kernels.
    progress : bool or callable
        True prints each type and estimator to stderr; a callable gets ``(done, total)``, the
        numbers of these pairs.

    Raises
    ------
    InvalidParameterError
        For other types or kinds.

    Examples
    --------
    >>> import streamgda
    >>> streamgda.warmup("float64", "gnb")
    """
    pairs = list(product(_kinds(kinds), _types(types)))
    printing = not callable(progress) and as_flag("progress", progress)
    for number, (kind, dtype) in enumerate(pairs, 1):
        if printing:
            text = f"streamgda: {kind} on {dtype} ({number} of {len(pairs)})"
            print(text, file=sys.stderr, flush=True)
        _use(_ESTIMATORS[kind], dtype)
        if callable(progress):
            progress(number, len(pairs))


def _names(given: str | Sequence[str]) -> list[str]:
    return [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)


def _kinds(given: str | Sequence[str]) -> list[str]:
    short = {kind.__name__: name for name, kind in _ESTIMATORS.items()}
    kinds = [short.get(name, name) for name in _names(given)]
    if not set(kinds) <= _ESTIMATORS.keys():
        raise refuse("kinds", given, f"names among {', '.join((*short.values(), *short))}")
    return kinds


def _types(given: str | Sequence[str]) -> list[np.dtype]:
    try:
        types = [np.dtype(name) for name in _names(given)]
    except TypeError:
        types = []
    if not types or any(dtype.kind not in "iuf" for dtype in types):
        raise refuse("types", given, "names of real data types, such as uint8 or float64")
    return types


def _use(kind: Any, dtype: np.dtype) -> None:
    """Call the methods of an estimator on rows of a type, of all shapes that matter."""
    random = np.random.default_rng(0)
    for n_rows, n_features in _SHAPES:
        X = random.normal(100, 10, (n_rows, n_features)).astype(dtype)
        y = np.arange(n_rows) % 2
        estimator = kind().fit(X, y)
        for some in (_FEW, _MORE):
            estimator.partial_fit(X[:some], y[:some])
            estimator.predict(X[:some])
        kind.from_moments(estimator.moments_ + estimator.moments_)
        for method in _METHODS:
            if hasattr(estimator, method):
                getattr(estimator, method)(X)
        for labels in _LABELS:
            kind().partial_fit(X, y.astype(labels))
