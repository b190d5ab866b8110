"""Maps of rows that stand before the moments: random features and standardisation.

The moments of lifted rows are moments like any other. What is kept of a map are its parameters,
from which it is computed again: matrices follow from a seed, on every machine, so that moments of
two places combine, and models that are loaded lift rows as they did.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from streamgda.errors import InvalidDataError, InvalidParameterError, UnsupportedError
from streamgda.rows.counting import (
    WINDOW_BYTES,
    as_matrix,
    kernel_type,
    raise_not_finite,
)
from streamgda.runtime import threads
from streamgda.runtime.parameters import LEAST, as_integer, as_number, shown, unexpected
from streamgda.storage.format import check_whole

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_EPS = np.finfo(np.float64).eps
_PART_ELEMENTS = 1 << 21  # A thread computes so many elements of lifted rows at a time.
_PART_ROWS = 256  # A part has at least so many rows: BLAS packs the matrix of a map for each.
_LEAST_ROWS = 1024  # A window has at least so many rows, as each costs a pass over the moments.
_WINDOW_BYTES = WINDOW_BYTES // 2  # Lifted rows are centred in a copy.

_EXPECTED = "RandomFeatures, Standardize, a fitted transformer of scikit-learn, or a list of them"


class FeatureMap(ABC):
    """Base of the maps, which are compared by their parameters and never change."""

    def _n_features_out(self, n_in: int) -> int:
        """Return the number of features of mapped rows; raise an error for a wrong width."""
        return n_in

    @abstractmethod
    def _apply(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write mapped rows, float32 or float64 like the rows."""

    def _nbytes(self, n_in: int) -> int:
        """Return the bytes that the map holds for rows of a width, in float64."""
        return 0

    def _as_json(self) -> dict[str, Any]:
        """Return the parameters, from which the map is computed again, as JSON."""
        return asdict(self)  # type: ignore[call-overload]

    @classmethod
    def _from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the map of the result of `_as_json`."""
        return cls(**values)

    def transform(self, X: Any) -> np.ndarray:
        """Return mapped rows, all in memory; estimators map rows by themselves.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.

        Returns
        -------
        ndarray, shape (n_rows, n_features_out)
            Mapped rows: float32 for rows of float32 and of bytes, float64 for all others.

        Raises
        ------
        InvalidDataError
            If rows hold NaN or infinity, or have the wrong number of features.

        Examples
        --------
        >>> from streamgda import RandomFeatures
        >>> RandomFeatures(3, random_state=1).transform([[1.0, 2.0], [3.0, -4.0]]).round(2)
        array([[0.  , 0.79, 0.  ],
               [4.32, 0.  , 0.  ]])
        """
        rows = as_matrix(X)
        lifting: Any = Lifting.of(self)
        mapped: LiftedRows = lifted(rows, lifting.bound(rows.shape[1]))
        return mapped[:]


@dataclass(frozen=True)
class RandomFeatures(FeatureMap):
    r"""Random features: a fixed layer of a network, which is not learned.

    With a matrix W of independent normal numbers, ``"relu"`` features are

    .. math:: \phi(x) = \max(W x, 0), \quad W_{ij} \sim N(0, 2 / d)

    whose mean square is that of the d features of the row [1]_, [2]_, and ``"fourier"`` features

    .. math:: \phi(x) = \sqrt{2 / n} \cos(W x + b), \quad
              W_{ij} \sim N(0, 2 \gamma), \quad b_i \sim U(0, 2 \pi)

    whose inner products estimate the kernel :math:`e^{-\gamma |x - y|^2}`, as those of
    scikit-learn's `RBFSampler` do [3]_.

    The numbers come from a counter-based generator (Philox) and from `numpy.random.RandomState`,
    whose numbers no version of NumPy changes: they are the same on every machine, as far as its
    logarithm is. The first n features of two maps with the same seed have the same rows of W. BLAS
    rounds the products with rows: features of float32 rows differ in their last bits, and moments
    of them by about 1e-9, between slabs or batches of other sizes.

    Parameters
    ----------
    n : int
        Number of features.
    kind : {"relu", "fourier"}
        Function of the products.
    gamma : float
        Width of the kernel of Fourier features, in the units of the rows: 0.02 for pixels from 0 to
        1 is ``0.02 / 255**2`` for bytes. ReLU features do not depend on the units.
    random_state : int
        Seed, from 0 to 2**64 - 1.

    References
    ----------
    .. [1] M. D. McDonnell et al., "RanPAC: random projections and pre-trained models for continual
       learning", NeurIPS 2023.
    .. [2] K. He, X. Zhang, S. Ren and J. Sun, "Delving deep into rectifiers", ICCV 2015.
    .. [3] A. Rahimi and B. Recht, "Random features for large-scale kernel machines", NIPS 2007.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from streamgda import LinearDiscriminantAnalysis, RandomFeatures
    >>> X, y = make_circles(1000, noise=0.1, factor=0.6, random_state=0)
    >>> LinearDiscriminantAnalysis().fit(X[:500], y[:500]).score(X[500:], y[500:])
    0.414
    >>> lda = LinearDiscriminantAnalysis("lsqr", 1e-4, feature_map=RandomFeatures(100))
    >>> lda.fit(X[:500], y[:500]).score(X[500:], y[500:])
    0.96
    """

    n: int
    kind: str = "relu"
    gamma: float = 1.0
    random_state: int = 0

    def __post_init__(self) -> None:
        """Raise an error for invalid parameters."""
        n = as_integer("n", self.n, "a number of features, at least 1", 1)
        if self.kind not in ("relu", "fourier"):
            raise unexpected("kind", self.kind, "'relu' or 'fourier'")
        expected = "a number above 0, in units of one over the squared features"
        if isinstance(self.gamma, str):
            expected += (
                "; scikit-learn's 'scale' is 1 / (n_features * X.var()), which needs all rows"
            )
        gamma = as_number("gamma", self.gamma, expected, LEAST)
        if self.kind == "relu" and gamma != 1.0:
            raise unexpected("gamma", self.gamma, "it with kind='fourier' only")
        expected = "an integer from 0 to 2**64 - 1: the same seed gives the same features"
        seed = as_integer("random_state", self.random_state, expected, 0, 2**64 - 1)
        for name, value in {"n": n, "gamma": gamma, "random_state": seed}.items():
            object.__setattr__(self, name, value)

    def _n_features_out(self, n_in: int) -> int:
        """Return `n`, whatever the number of features of the rows is."""
        return self.n

    def _nbytes(self, n_in: int) -> int:
        """Return the bytes of the matrix in float64."""
        return 8 * self.n * (n_in + 1)

    def _apply(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write the features of rows; see `FeatureMap._apply`."""
        weights, offsets = _matrix(self, rows.shape[1], rows.dtype)
        np.matmul(rows, weights.T, out=out)
        if self.kind == "relu":
            np.maximum(out, 0, out=out)
        else:
            out += offsets
            np.cos(out, out=out)
            out *= out.dtype.type(np.sqrt(2 / self.n))


@lru_cache(maxsize=2)
def _matrix(features: RandomFeatures, n_in: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return the matrix, shape (n, n_in), and the phases of random features."""
    fourier, seed = features.kind == "fourier", features.random_state
    # NumPy never changes the numbers of this class, unlike those of newer generators (NEP 19).
    normal, uniform = (
        np.random.RandomState(np.random.Philox(key=np.array([seed, stream], np.uint64)))
        for stream in (0, 1)
    )
    weights = normal.standard_normal((features.n, n_in))
    weights *= np.sqrt(2 * features.gamma if fourier else 2 / n_in)
    phases = 2 * np.pi * uniform.random_sample(features.n if fourier else 0)
    return weights.astype(dtype, copy=False), phases.astype(dtype, copy=False)


# --- other maps -----------------------------------------------------------------------------------


@dataclass(frozen=True, init=False, repr=False)
class Standardize(FeatureMap):
    r"""Features less their mean, divided by their standard deviation: :math:`(x - m) / s`.

    Both follow from moments of rows, of any covariance type with a variance for each feature, from
    an earlier pass or from elsewhere. Features that are constant there are only centred.

    Without moments it is the last map of an estimator, and needs no earlier pass: the estimator
    keeps the moments of rows as they are, and scales these by algebra when its model is computed.
    The mean and the deviations are those of all rows so far, in a stream, too, and those of the
    training set of each split where an estimator chooses by folds.

    Parameters
    ----------
    moments : ClassMoments, optional
        Moments of the rows before the map.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from streamgda import RidgeClassifier, Standardize
    >>> X, y = load_wine(return_X_y=True)
    >>> ridge = RidgeClassifier(100.0).fit(X, y)
    >>> scaled = RidgeClassifier(100.0, feature_map=Standardize()).fit(X, y)
    >>> round(ridge.score(X, y), 3), round(scaled.score(X, y), 3)
    (0.972, 0.994)

    With moments of an earlier pass it may stand anywhere:

    >>> from streamgda import Standardize, accumulate
    >>> X = [[1.0, 10.0], [3.0, 30.0], [5.0, 20.0]]
    >>> Standardize(accumulate(X, [0, 0, 1], covariance_type="diag")).transform(X).round(3)
    array([[-1.225, -1.225],
           [ 0.   ,  1.225],
           [ 1.225,  0.   ]])
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]

    def __init__(self, moments: Any = None) -> None:
        kind = getattr(moments, "covariance_type", "spherical")
        # Groups, windows and estimators have no `centred`.
        if moments is None:
            self._set((), ())
        elif "spherical" in kind or not hasattr(moments, "centred"):
            raise unexpected("moments", moments, "ClassMoments with a variance for each feature")
        else:
            self._set(*self._parameters(moments))

    @staticmethod
    def _parameters(moments: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the means and the standard deviations of features."""
        count, mean, scatter = moments.total()
        variance = (scatter if scatter.ndim == 1 else scatter.diagonal()) / count
        # As for scikit-learn's StandardScaler, less is what rounding may leave of equal values.
        with np.errstate(over="ignore"):
            least = count * _EPS * variance + (count * mean * _EPS) ** 2
        return mean, np.sqrt(np.where(variance > least, variance, 1.0))

    def _set(self, mean: Any, scale: Any) -> None:
        for name, values in {"mean": mean, "scale": scale}.items():
            object.__setattr__(self, name, tuple(np.asarray(values, np.float64).ravel().tolist()))

    @classmethod
    def _from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the map of the result of `_as_json`."""
        found = object.__new__(cls)
        found._set(values["mean"], values["scale"])
        if len(found.mean) != len(found.scale) or not np.all(np.array(found.scale) > 0):
            raise ValueError("its scales are not those of features")
        return found

    def __repr__(self) -> str:
        return f"Standardize({len(self.mean)} features)" if self.mean else "Standardize()"

    def _n_features_out(self, n_in: int) -> int:
        """Return the number of features; raise an error for rows of another."""
        check_fits(repr(self), n_in, len(self.mean))
        return n_in

    def _apply(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write standardised rows; see `FeatureMap._apply`."""
        mean, scale = np.array([self.mean, self.scale])
        np.divide(rows - mean, scale, out=out, casting="same_kind")  # It rounds to float32 once.


@dataclass(frozen=True)
class Binarize(FeatureMap):
    """Ones where values are above a threshold, zeros elsewhere: the last map of `BernoulliNB`.

    It belongs to that estimator's parameter ``binarize``, and not to ``feature_map``.
    """

    threshold: float

    def __post_init__(self) -> None:
        """Raise an error for invalid thresholds."""
        object.__setattr__(self, "threshold", as_number("threshold", self.threshold, "a number"))

    def _apply(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write ones and zeros; see `FeatureMap._apply`."""
        np.greater(rows, self.threshold, out=out)


class Transformer(FeatureMap):
    """A fitted transformer of scikit-learn, of which only a fingerprint is saved.

    Attributes
    ----------
    fitted : transformer or None
        Copy of the transformer; None if it was loaded from a file.
    name : str
        Name of its class.
    widths : tuple of int
        Features before and after it.
    fingerprint : str
        Hash of its parameters and fitted attributes.
    names : tuple of str or None
        Names of the columns that it was fitted to.
    """

    names: tuple[str, ...] | None = None

    def __init__(self, fitted: Any, name: str, widths: tuple[int, int]) -> None:
        self.fitted, self.name, self.widths = fitted, name, widths

    @classmethod
    def of(cls, fitted: Any) -> Self:
        """Return the map of a transformer; raise an error if it is not fitted."""
        name = type(fitted).__name__
        try:
            check_is_fitted(fitted)
            n_in = int(fitted.n_features_in_)
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                n_out = int(fitted.transform(np.zeros((1, n_in))).shape[1])
        except (NotFittedError, AttributeError) as error:
            raise InvalidParameterError(
                f"feature_map has a {name} that is not fitted. Fit it first; clones, such as those "
                f"of searches, are not fitted unless it is wrapped in FrozenEstimator: {error}"
            ) from None
        # The copy stays as it is when the caller fits the transformer again. It gets arrays
        # without names, which are compared before.
        made = cls(deepcopy(fitted), name, (n_in, n_out))
        given = getattr(fitted, "feature_names_in_", None)
        made.names = None if given is None else tuple(map(str, given))
        part = made.fitted
        while part is not None:
            vars(part).pop("feature_names_in_", None)
            part = part.steps[0][1] if getattr(part, "steps", None) else None
        return made

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the parameters and of what was learned."""
        from joblib import hash as hashed  # type: ignore[import-untyped]  # noqa: PLC0415

        state = dict(self.fitted.__getstate__())  # What is computed again stays out.
        state.pop("_sklearn_version", None)
        return f"{self.name} {hashed(state)}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transformer):
            return NotImplemented
        same = self.fitted is not None and self.fitted is other.fitted
        return same or self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash((self.name, self.widths))

    def __repr__(self) -> str:
        return f"fitted {self.name}"

    def _as_json(self) -> dict[str, Any]:
        """Return what is known of the transformer, as JSON."""
        return {"name": self.name, "widths": [*self.widths], "fingerprint": self.fingerprint}

    @classmethod
    def _from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the map without its transformer."""
        n_in, n_out = (check_whole("widths", width, 1) for width in values["widths"])
        loaded = cls(None, str(values["name"]), (n_in, n_out))
        loaded.fingerprint = str(values["fingerprint"])
        return loaded

    def _n_features_out(self, n_in: int) -> int:
        """Return the width of the result; rows of another width than fitted are an error."""
        check_fits(repr(self), n_in, self.widths[0])
        return self.widths[1]

    def _apply(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write transformed rows; see `FeatureMap._apply`."""
        if self.fitted is None:
            raise UnsupportedError(
                f"these rows were mapped by a {self.name} of scikit-learn, which is not saved, as "
                f"files hold no code. Pass the same one again: set_params(feature_map=...) "
                f"of an estimator, accumulate(..., feature_map=...) for moments"
            )
        found = self.fitted.transform(rows)
        out[...] = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
        if not np.isfinite(out).all():
            raise InvalidDataError(
                f"the feature_map, a {self!r}, makes NaN or infinity of rows of X that are finite; "
                f"expected finite numbers"
            )


def standardized(moments: Any, *others: Any, n_targets: int = 0) -> list[Any]:
    """Return moments of rows behind their `Standardize`, and others behind the same map.

    Parameters
    ----------
    moments, *others : ClassMoments
        Moments of rows, of which the first determine the mean and the deviations.
    n_targets : int
        Last columns that are targets, which stay as they are.
    """
    mean, scale = Standardize._parameters(moments)
    d, found = mean.size - n_targets, []
    mean[d:], scale[d:] = 0, 1
    last = Standardize._from_json({"mean": mean[:d], "scale": scale[:d]})
    for each in (moments, *others):
        sums = each.centred()
        sums.origin = np.where(sums.count[:, None] > 0, (sums.origin - mean) / scale, 0.0)
        sums.offset = sums.offset / scale
        squares = np.outer(scale, scale)[None] if sums.structure.matrix else scale[None] ** 2
        sums.packed /= sums.structure.pack(squares)
        behind = each._with_sums(each.classes, sums.checked())
        before = each._lifting or Lifting((), mean.size, n_targets)
        behind._lifting = replace(before, maps=(*before.maps, last))
        found.append(behind)
    return found


def before_standardize(feature_map: Any) -> tuple[Any, bool]:
    """Return the maps before a last `Standardize` without moments, and True if there is one."""
    maps = feature_map if isinstance(feature_map, list | tuple) else [feature_map]
    if not maps or not isinstance(maps[-1], Standardize) or maps[-1].mean:
        return feature_map, False
    return [*maps[:-1]] or None, True


def with_standardize(feature_map: Any) -> Any:
    """Return these maps, if there are any, and a last `Standardize` without moments."""
    maps = feature_map if isinstance(feature_map, list) else [feature_map]
    return Standardize() if feature_map is None else [*maps, Standardize()]


def check_fits(name: str, n_in: int, expected: int) -> None:
    """Raise `InvalidDataError` for rows of another width than a map is of."""
    if n_in != expected:
        raise InvalidDataError(
            f"{name} is a map of rows of {expected} features, and these have {n_in} features"
        )


# --- the maps of rows, one after another --------------------------------------------------------

_MAPS: dict[str, type[FeatureMap]] = {
    kind.__name__: kind for kind in (RandomFeatures, Standardize, Binarize, Transformer)
}


@dataclass(frozen=True)
class Lifting:
    """Maps that rows go through one after another, and the width of the rows once it is known.

    Attributes
    ----------
    maps : tuple of FeatureMap
    n_in : int, optional
        Columns of the rows before the maps.
    n_targets : int
        Last columns that are targets, which stay as they are.
    """

    maps: tuple[FeatureMap, ...]
    n_in: int | None = None
    n_targets: int = 0

    @classmethod
    def of(cls, feature_map: Any) -> Self | None:
        """Return the maps of a parameter ``feature_map``; None for None.

        Raises
        ------
        InvalidParameterError
            For anything else than maps.
        """
        if feature_map is None or isinstance(feature_map, cls):
            return feature_map
        maps = feature_map if isinstance(feature_map, list | tuple) else [feature_map]
        if not maps or any(isinstance(m, type) or not hasattr(m, "transform") for m in maps):
            raise unexpected("feature_map", feature_map, f"None, {_EXPECTED}")
        if Standardize() in maps:
            raise InvalidParameterError(
                "Standardize() without moments is the last map of an estimator, which has them; "
                "here, give the moments of rows before it: Standardize(moments)"
            )
        return cls(tuple(m if isinstance(m, FeatureMap) else Transformer.of(m) for m in maps))

    @property
    def parameter(self) -> Any:
        """The parameter ``feature_map`` of these maps."""
        maps = [m for m in self.maps if not isinstance(m, Binarize)]
        given = [m.fitted or m if isinstance(m, Transformer) else m for m in maps]
        return given[0] if len(given) == 1 else given

    def bound(self, n_in: int) -> Self:
        """Return the maps of rows of a width; another width than before is an error."""
        if self.n_in == n_in:
            return self
        if self.n_in is not None:
            check_fits(str(self), n_in, self.n_in)
        bound = replace(self, n_in=n_in)
        bound.widths  # noqa: B018  (it raises an error for widths that do not fit)
        return bound

    @property
    def widths(self) -> list[int]:
        """Features before the maps, and after each of them."""
        assert self.n_in is not None
        widths = [self.n_in - self.n_targets]
        for each in self.maps:
            widths.append(each._n_features_out(widths[-1]))
        return widths

    @property
    def n_out(self) -> int:
        """Columns of lifted rows."""
        return self.widths[-1] + self.n_targets

    @property
    def of_features(self) -> Self:
        """The maps of the features alone, without targets beside them."""
        n_in = None if self.n_in is None else self.n_in - self.n_targets
        return replace(self, n_in=n_in, n_targets=0) if self.n_targets else self

    @property
    def nbytes(self) -> int:
        """Bytes of what the maps hold, and of the lifted rows in memory at a time, at most."""
        widths = self.widths
        held = sum(each._nbytes(n_in) for each, n_in in zip(self.maps, widths, strict=False))
        return held + window_bytes(max(widths[1:]) + self.n_targets)

    def dtype(self, dtype: np.dtype) -> np.dtype:
        """Return float32 for rows of float32 and of bytes, float64 for all others."""
        read = kernel_type(dtype)
        return _FLOAT32 if read == _FLOAT32 or read.itemsize == 1 else _FLOAT64

    def apply(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write lifted rows."""
        values, last = np.asarray(rows, out.dtype), len(self.maps) - 1
        if self.n_targets:
            out[:, -self.n_targets :] = values[:, -self.n_targets :]
            values, out = values[:, : -self.n_targets], out[:, : -self.n_targets]
        for number, (each, width) in enumerate(zip(self.maps, self.widths[1:], strict=True)):
            mapped = out if number == last else np.empty((len(values), width), out.dtype)
            each._apply(values, mapped)
            values = mapped

    def joined(self, other: Lifting | None) -> Self | None:
        """Return the maps if others are equal, as far as widths are known; otherwise None."""
        if other is None or self.maps != other.maps:
            return None
        known = self if other.n_in is None else other
        if self.n_in is not None and (known.n_in, known.n_targets) != (self.n_in, self.n_targets):
            return None
        # A transformer that was loaded is only a fingerprint.
        complete = all(getattr(each, "fitted", each) is not None for each in self.maps)
        found: Any = self if complete else other
        return replace(found, n_in=known.n_in, n_targets=known.n_targets)

    def __str__(self) -> str:
        width = "" if self.n_in is None else f" of {self.widths[0]} features"
        return f"{shown(self.maps[0] if len(self.maps) == 1 else list(self.maps))}{width}"

    def as_json(self) -> dict[str, Any]:
        """Return the maps as JSON."""
        maps = [{"map": type(each).__name__, "parameters": each._as_json()} for each in self.maps]
        return {"maps": maps, "n_features_in": self.n_in, "n_targets": self.n_targets}

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> Self | None:
        """Return the maps of the result of `as_json`; None for None."""
        if values is None:
            return None
        maps = tuple(_MAPS[each["map"]]._from_json(each["parameters"]) for each in values["maps"])
        if not maps:
            raise ValueError("it has no maps")
        n_in, n_targets = values["n_features_in"], check_whole("n_targets", values["n_targets"], 0)
        lifting = cls(maps, None, n_targets)
        if n_in is None:
            return lifting
        return lifting.bound(check_whole("n_features_in", n_in, n_targets + 1))


# --- rows behind maps ----------------------------------------------------------------------------


class LiftedRows:
    """An array of rows behind a feature map: a slice, or some rows, are lifted when it is read.

    Attributes
    ----------
    values : ndarray, shape (n_rows, n_features)
        Rows before the map; they are finite.
    lifting : Lifting
    shape : tuple of int
    dtype : dtype
    """

    def __init__(self, values: np.ndarray, lifting: Lifting) -> None:
        self.values, self.lifting = values, lifting
        self.shape = len(values), lifting.n_out
        self.dtype = lifting.dtype(values.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Return lifted rows, given as a slice or by their indices; computed on all threads."""
        values, width = self.values[rows], self.shape[1]
        out = np.empty((len(values), width), self.dtype)
        # The size of a part does not depend on the number of threads, and so no bit does.
        step = max(_PART_ROWS, _PART_ELEMENTS // width)

        def lift(start: int) -> None:
            part = slice(start, start + step)
            self.lifting.apply(values[part], out[part])

        threads.run_serial_blas(lift, ((start,) for start in range(0, len(values), step)))
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)

    def windows(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield lifted rows, window by window, each with its place."""
        n_rows = max(_LEAST_ROWS, _WINDOW_BYTES // (self.dtype.itemsize * self.shape[1]))
        for start in range(0, len(self), n_rows):
            rows = slice(start, start + n_rows)
            yield rows, self[rows]


def window_bytes(n_features: int) -> int:
    """Return the bytes of the lifted rows that are in memory at a time, at most."""
    return max(_WINDOW_BYTES, 8 * _LEAST_ROWS * n_features)


def lifted(
    X: Any, lifting: Lifting | None, first_row: int = 0, numbers: np.ndarray | None = None
) -> Any:
    """Return rows as they are without a map; with one, rows that are lifted when they are read.

    Raises
    ------
    InvalidDataError
        For NaN and infinity; see `raise_not_finite`.
    """
    if lifting is None:
        return X
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        raise_not_finite(X, first_row, numbers)
    return LiftedRows(X, lifting)
