"""`RowEstimator`: reads and scores rows from any container; the options of such methods."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import column_or_1d, validate_data

from streamgda import engine
from streamgda.engine.checkpoint import fingerprint_method
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.models.marginals import CACHE_BYTES, Filled, GapRule, Marginals
from streamgda.rows import Rows
from streamgda.rows.arrays import is_plain
from streamgda.rows.counting import CHECK_SUMS, SCORING, RowRule
from streamgda.rows.labels import (
    with_label,
)
from streamgda.rows.names import Names
from streamgda.rows.source import RowSource, as_source, refuse_shape
from streamgda.rows.sparse import SparseRows
from streamgda.runtime.parameters import as_numbers, refuse, shown
from streamgda.storage.saved import Saved

_SHOWN = 5  # names in a message, as in scikit-learn's
_DEFAULTS = {"on_invalid": "raise", "on_missing": "raise"}  # of options; the others are None
_GAPS = {"impute": "marginal"}  # methods that are about gaps
Method = TypeVar("Method", bound=Callable[..., Any])


class RowReading(TypedDict, total=False):
    """Options of methods that learn from rows.

    Attributes
    ----------
    features : str, optional
        Name of the dimension that holds the features, if `X` is a DataArray.
    nodata : int or float, optional
        Value that marks missing measurements.
    on_invalid : {"raise", "skip"}
        Raise an error for rows with NaN, infinity, masked values or `nodata`, or leave them out.
    """

    features: str | None
    nodata: float | None
    on_invalid: str


class Reading(TypedDict, total=False):
    """Options of methods that learn from labelled rows.

    Attributes
    ----------
    features, nodata, on_invalid
        See `RowReading`; a missing label is invalid, too.
    unlabelled : label or sequence of labels, optional
        Labels of rows that do not count, whatever they hold.
    """

    features: str | None
    unlabelled: Any
    nodata: float | None
    on_invalid: str


class Comparing(Reading, total=False):
    """Options of methods that compare labels with predictions.

    Attributes
    ----------
    max_memory : int or str, optional
        See `MomentClassifier.predict`.
    """

    max_memory: int | str | None


class Scoring(TypedDict, total=False):
    """Options of methods that return something for each row; see `MomentClassifier.predict`."""

    out: Any
    features: str | None
    nodata: float | None
    on_invalid: str
    fill: Any
    keys: Sequence[str] | str | None
    max_memory: int | str | None


class GapScoring(Scoring, total=False):
    """Options of methods that also take rows with gaps; see `MomentClassifier.predict`."""

    on_missing: str


def takes(options: Any) -> Callable[[Method], Method]:
    """Show options in the signature of a method, for ``help()`` and for scikit-learn's routing."""

    def decorate(method: Method) -> Method:
        signature, kind = inspect.signature(method), inspect.Parameter.KEYWORD_ONLY
        own = [*signature.parameters.values()][:-1]  # without those that are unpacked
        more = [
            inspect.Parameter(name, kind, default=_DEFAULTS.get(name), annotation=annotation)
            for name, annotation in options.__annotations__.items()
        ]
        method.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return method

    return decorate


@dataclass(frozen=True)
class Scorer:
    """A method of a fitted estimator as a function of blocks of rows.

    Attributes
    ----------
    name : str
        Identifies the function among those of the model.
    function : callable
        Called as ``function(rows, first_row)``; rows are numbered from `first_row` in errors.
        Returns one entry for each row.
    model : GaussianModel or BernoulliModel
        The model to which the function belongs.
    labels : ndarray or None
        All values of the result, if these are labels; otherwise it is float64.
    columns : int or None
        Width of the result; None if it is one-dimensional.
    options : dict
        Parameters on which the result depends besides the model.
    method : str
        Name of the method.
    single : bool
        Rows of float32 have results of float32.
    of_features : bool
        Rows have the features that the estimator was fitted with.
    held : int
        Bytes that it keeps besides the model.
    of_rows : dict of str to ndarray
        Keywords of the function with an entry for each row.
    """

    name: str
    function: Callable[..., np.ndarray]
    model: Any
    labels: np.ndarray | None = None
    columns: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    method: str = "predict"
    single: bool = False
    of_features: bool = True
    held: int = 0
    of_rows: Mapping[str, np.ndarray] = field(default_factory=dict)

    def filling(self, rule: RowRule, fill: Any = None, on_missing: str = "raise") -> Scorer:
        """Return the function with a result for invalid rows, or an error if `rule` raises one.

        Parameters
        ----------
        rule : RowRule
        fill : label or number, optional
        on_missing : {"raise", "marginal"}
            See `MomentClassifier.predict`.

        Raises
        ------
        InvalidParameterError
            For a `fill` that cannot be among the results.
        UnsupportedError
            For gaps, where the function has no answer for rows with these.
        """
        if on_missing not in ("raise", "marginal"):
            raise refuse("on_missing", on_missing, "'raise' or 'marginal'")
        if rule.action == "raise" and fill is not None:
            raise InvalidParameterError(
                f"fill={shown(fill)}, and on_invalid='raise': no row is filled; pass "
                f"on_invalid='fill'"
            )
        marginal = on_missing == "marginal"
        if marginal and not hasattr(type(self.model), "_used_features"):
            raise InvalidParameterError(
                "on_missing='marginal' needs densities of the features, and linear functions have "
                "none; fill in the values that are missing, or pass on_invalid='fill'"
            )
        if rule is CHECK_SUMS and not marginal and not self.of_rows:
            return self
        labels = self.labels
        value = np.zeros((), np.float64 if labels is None else labels.dtype)
        options = {**self.options, "on_invalid": rule.action, "nodata": rule.nodata}
        if rule.action == "fill":
            if labels is None:
                value = _fill_number(fill)
            else:
                labels = with_label(labels, "fill", fill, self.model.classes)
                value = labels[-1:].reshape(())
        options["fill"] = value
        function, held = self.function, self.held
        if marginal:
            rule = GapRule(rule.action, rule.nodata, used=self.model._used_features)
            function = Marginals(self.model, self.name, self.options, rule)
            options["on_missing"], held = on_missing, CACHE_BYTES
        filled = Filled(function, rule, value, self.of_rows)
        return replace(self, function=filled, labels=labels, options=options, held=held)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of the function and its model, as JSON."""
        return fingerprint_method(self.name, self.model, {**self.options, **self.of_rows})

    def score(self, rows: Any, out: Any = None, about: Any = None, **options: Any) -> Any:
        """Score rows from any container, into `out` if it is given.

        Parameters
        ----------
        rows, out, **options
            See `streamgda.engine.scoring.score`.
        about : dict, optional
            More of the fingerprint.
        """
        planned = any(value is not None for value in options.values()) if options else False
        if not planned and is_plain(rows):  # nothing to read, to plan or to describe
            if out is None:
                return self.function(rows, 0)
            if self._fits(out, rows):
                return self.function(rows, 0, out=out)
        classes, fill = self.model.classes, None
        by_class = self.columns == classes.size and not self.method.endswith("transform")
        if self.options.get("on_invalid") == "fill":
            value = self.options["fill"]  # dates are no integers
            fill = value.item() if value.dtype.kind in "biuf" else value[()]
        own = [np.asarray(v).nbytes for v in (*self.options.values(), *self.of_rows.values())]
        return engine.score(
            self.function,
            rows,
            out,
            dtype=np.dtype(np.float64) if self.labels is None else self.labels.dtype,
            columns=self.columns,
            labels=self.labels,
            name=self.method,
            classes=classes if by_class else None,
            fill=fill,
            fingerprint=None if out is None else self.fingerprint | (about or {}),
            held=int(self.model.held_bytes) + sum(own) + self.held,
            **options,
        )

    def _fits(self, out: Any, rows: np.ndarray) -> bool:
        """Return whether the function can write scores of rows straight to an array."""
        dtype = np.float64 if self.labels is None else self.labels.dtype
        shape = rows.shape[:1] if self.columns is None else (len(rows), self.columns)
        alike = is_plain(out) and out.dtype == dtype and out.shape == shape
        writable = alike and out.flags.c_contiguous and out.flags.writeable
        takes_out = writable and "out" in inspect.signature(self.function).parameters
        return takes_out and not np.may_share_memory(out, rows)


class RowEstimator(Saved, BaseEstimator):
    """Base of the estimators, which read and score rows from any container."""

    n_features_in_: int
    _repr_html_ = BaseEstimator._repr_html_  # the diagram of scikit-learn

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # which become dense slab by slab where zeros count
        return tags

    def _scorer(self, method: str, **options: Any) -> Scorer:
        """Return a method, with its options, as a function of blocks of rows.

        Raises
        ------
        InvalidParameterError
            For a method or an option that the estimator does not have.
        """
        raise NotImplementedError

    def _check_options(self, method: str, given: Any) -> None:
        known = inspect.signature(getattr(type(self), method)).parameters
        for name in given:
            if name not in known:
                raise TypeError(
                    f"{type(self).__name__}.{method}() got an unexpected keyword argument {name!r}"
                )

    def _read(self, method: str, X: Any, y: Any, weight: Any, reading: Reading) -> Rows:
        """Return labelled rows as a method reads them."""
        if reading:
            self._check_options(method, reading)
        return Rows.of(X, y, weight, **reading)

    def _validated(self, rows: Rows, reset: bool) -> Rows:
        """Return rows and labels that fit the estimator and each other; see `validate_rows`.

        Estimators that require no labels may have none. Labels are a masked array if some are
        missing and their rule skips such rows.

        Parameters
        ----------
        rows : Rows
        reset : bool
            Whether the estimator gets width and names from these rows.
        """
        X, y, rule = rows.X, rows.y, rows.rule
        if y is None and not get_tags(self).target_tags.required:
            return replace(rows, X=validate_rows(self, X, reset=reset))
        if y is None:
            raise InvalidParameterError(
                f"y is missing: {type(self).__name__} requires y to be passed, but the target y "
                f"is None; give one label for each row"
            )
        if isinstance(X, RowSource):
            if isinstance(y, np.ndarray | list | tuple) and np.shape(y)[1:] == (1,):
                y = column_or_1d(y, warn=True)
            return replace(rows, X=_validate_header(self, X, reset), y=y)
        if _fit_already(self, X, reset) and type(y) is np.ndarray and y.shape == X.shape[:1]:
            if reset:
                self.n_features_in_ = X.shape[1]
                self.__dict__.pop("feature_names_in_", None)
            return rows
        if isinstance(y, np.ndarray) and y.dtype.kind in "biu" and y.ndim == 1:
            X, y = _validate(self, X, y, reset=reset)
            return replace(rows, X=X, y=y)
        if np.shape(y)[1:] == (1,):
            y = column_or_1d(y, warn=True)
        labels = rule.labels(y)
        return replace(rows, X=_validate(self, X, labels.codes, reset=reset)[0], y=labels)

    def _scored(self, method: str, X: Any, scoring: Any, **options: Any) -> Any:
        """Score rows by a method with options of its own."""
        if scoring:
            self._check_options(method, scoring)
        scorer = self._scorer(method, **options)
        usual = not scoring and type(X) is np.ndarray and method not in _GAPS
        if usual and scorer.of_features and not scorer.of_rows and _fit_already(self, X):
            scores = scorer.score(X)  # nothing is left to recognise or to check
            return scores.astype(np.float32) if scorer.single and X.dtype == np.float32 else scores
        out, fill = scoring.pop("out", None), scoring.pop("fill", None)
        planned = {name: scoring.pop(name, None) for name in ("keys", "max_memory")}
        on_missing = scoring.pop("on_missing", _GAPS.get(method, "raise"))
        read = Rows.of(X, actions=SCORING, **scoring)
        rows = validate_rows(self, read.X) if scorer.of_features else as_source(read.X)
        model = scorer.model
        if not getattr(model, "_takes_sparse", False) or model.feature_map is not None:
            rows = Rows(rows).dense().X
        filling = scorer.filling(read.rule, fill, on_missing)
        scores = filling.score(rows, out, **planned)
        single = scorer.single and out is None and rows.dtype == np.float32
        return scores.astype(np.float32) if single else scores


def _fill_number(fill: Any) -> np.ndarray:
    """Return the result of invalid rows, by default NaN."""
    expected = "one number, which may be NaN"
    value = as_numbers("fill", np.nan if fill is None else fill, expected)
    if value.ndim:
        raise refuse("fill", fill, expected)
    return value


# --- validation, as in scikit-learn, for containers of every kind --------------------------------


def validate_rows(estimator: Any, X: Any, *, reset: bool = False) -> Any:
    """Return rows whose width and feature names fit the estimator.

    Parameters
    ----------
    estimator : estimator
    X : array-like, sparse matrix or RowSource
        Rows as `Rows.of` returns them.
    reset : bool
        Whether the estimator gets width and names from these rows.

    Returns
    -------
    ndarray, sparse matrix or RowSource

    Raises
    ------
    InvalidDataError, ValueError, TypeError
        For rows that the estimator cannot use. Their values are checked when they are read.
    """
    if isinstance(X, RowSource):
        return _validate_header(estimator, X, reset)
    ready = not reset and _fit_already(estimator, X)
    return X if ready else _validate(estimator, X, reset=reset)


def _validate(estimator: Any, X: Any, *y: Any, reset: bool) -> Any:
    """Return rows, and labels, that scikit-learn's validation accepts."""
    accepted = {"dtype": "numeric", "ensure_all_finite": False}
    if SparseRows.accepts(X):
        accepted["accept_sparse"] = "csr"
    try:
        return validate_data(estimator, X, *y, reset=reset, **accepted)
    except OverflowError as error:
        raise InvalidDataError(f"X holds integers that no float can hold: {error}") from None


def _validate_header(estimator: Any, rows: RowSource, reset: bool) -> RowSource:
    if len(rows.shape) != 2:
        refuse_shape(rows.shape)
    _check_names(estimator, rows.feature_names, reset)
    width = int(rows.shape[1])
    if reset:
        estimator.n_features_in_ = width
    elif width != estimator.n_features_in_:
        raise InvalidDataError(
            f"X has {width} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
    return rows


def _check_names(estimator: Any, names: Names | None, reset: bool) -> None:
    """Check names of features as scikit-learn does, which knows those of frames only."""
    if reset:
        estimator.__dict__.pop("feature_names_in_", None)
        if names is not None:
            estimator.feature_names_in_ = np.array(names, object)
        return
    held, kind = names_in(estimator), type(estimator).__name__
    if names is None and held is not None:
        warn(f"X does not have valid feature names, but {kind} was fitted with feature names")
    elif names is not None and held is None:
        warn(f"X has feature names, but {kind} was fitted without feature names")
    elif names != held and names is not None and held is not None:
        message = "The feature names should match those that were passed during fit.\n"
        message += _bulleted("unseen at fit time", set(names) - set(held))
        message += _bulleted("seen at fit time, yet now missing", set(held) - set(names))
        if set(names) == set(held):
            message += "Feature names must be in the same order as they were in fit.\n"
        raise InvalidDataError(message)


def _bulleted(heading: str, names: set[str]) -> str:
    lines = [f"- {name}\n" for name in sorted(names)[:_SHOWN]]
    more = "- ...\n" if len(names) > _SHOWN else ""
    return f"Feature names {heading}:\n{''.join(lines)}{more}" if names else ""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn the first caller that is not of the package."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("streamgda."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def names_in(estimator: Any) -> Names | None:
    """Return the names of the features that an estimator was fitted with."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))


def _fit_already(estimator: Any, X: Any, reset: bool = False) -> bool:
    """Return whether this is an array of numbers with nothing left to convert or to warn of."""
    if type(X) not in (np.ndarray, np.memmap) or X.dtype.kind not in "iuf":
        return False
    fits = reset or (
        X.shape[1:] == (estimator.n_features_in_,) and "feature_names_in_" not in vars(estimator)
    )
    return fits and X.ndim == 2 and X.size > 0
