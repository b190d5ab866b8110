"""Principal components of all rows: from moments to coordinates, residuals and densities."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy.special import gammaln

from streamgda.errors import InvalidDataError, InvalidParameterError, SingularCovarianceError
from streamgda.models.model import RowModel, check_width, copied
from streamgda.moments import ClassMoments, held_sums
from streamgda.moments.centred import principal_axes
from streamgda.moments.feature_maps import Lifting
from streamgda.moments.roots import LinearFunctions
from streamgda.rows.invalid_rows import as_matrix
from streamgda.runtime.parameters import as_integer, as_number, refuse
from streamgda.storage.format import check_array, check_flag, check_number

_EPS = np.finfo(np.float64).eps
_LEAST_VARIANCE = 1e-15  # in Minka's formula, as in scikit-learn


@dataclass(frozen=True)
class PrincipalComponents(RowModel):
    r"""Mean, principal axes :math:`c_i` and variances :math:`\lambda_i` of all rows.

    Coordinates are :math:`t_i = c_i^T (x - m)`, and the density of a row is that of probabilistic
    principal component analysis (Tipping and Bishop, 1999): a Gaussian with the covariance
    :math:`\sum_i (\lambda_i - \sigma^2) c_i c_i^T + \sigma^2 I`.

    Attributes
    ----------
    n_rows : int or float
        Number of the rows, or their weight.
    noise : float
        Mean variance :math:`\sigma^2` along the axes that are left out; zero if none is.
    whiten : bool
        Coordinates are divided by their standard deviations.
    mean, mean_low : ndarray, shape (d,)
        Mean of all rows, in two parts.
    components : ndarray, shape (k, d)
        Orthonormal axes, one a row; the largest entry of each is positive.
    variances, shares : ndarray, shape (k,)
        Variances along the axes, and their shares of all variance.
    feature_names : tuple of str, optional
        Names of the features. Rows with other names are refused; those without names fit any.
    feature_map : Lifting, optional
        Map of rows before the components.
    """

    _kind = "principal components"
    _by_feature = "components"
    _shown = "mean", "mean_low", "components", "variances", "shares"
    _numbers = "n_rows", "noise", "whiten"

    n_rows: float
    noise: float
    whiten: bool
    mean: np.ndarray
    mean_low: np.ndarray
    components: np.ndarray
    variances: np.ndarray
    shares: np.ndarray
    feature_names: tuple[str, ...] | None = field(default=None, kw_only=True)
    feature_map: Lifting | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, moments: ClassMoments, n_components: Any, whiten: bool) -> Self:
        """Return the components of rows of one class.

        Raises
        ------
        InvalidDataError
            For fewer than two rows.
        InvalidParameterError
            For a number of components that such rows do not have.
        """
        sums = held_sums(moments).centred()
        n = sums.count.sum().item()
        if not n > 1:
            raise InvalidDataError(
                f"PCA of n_samples={n:g}, where at least 2 rows are needed: variances are divided "
                f"by the number of rows, or their weight, less one. Give more rows, or larger "
                f"weights"
            )
        squares, axes = principal_axes(sums)
        variances, most = squares / (n - 1), min(int(n), squares.size)
        total = variances.sum()
        shares = variances / total if total > 0 else np.zeros_like(variances)
        k = number_of_components(n_components, variances, shares, n)
        noise = float(variances[k:].mean()) if k < most else 0.0
        return cls(
            n,
            noise,
            whiten,
            mean=sums.mean[0].copy(),
            mean_low=sums.mean_low[0].copy(),
            components=axes[:k].copy(),
            variances=variances[:k].copy(),
            shares=shares[:k].copy(),
            feature_names=moments.feature_names,
        )

    @property
    def classes(self) -> np.ndarray:
        """The class of all rows."""
        return np.zeros(1, np.int64)

    @property
    def packed_bytes(self) -> int:
        """Bytes that scoring packs of the model, at most."""
        return 2 * self.components.nbytes

    @property
    def _row_products(self) -> int:
        return self.components.size

    @property
    def _row_scores(self) -> int:
        return self.n_features

    @cached_property
    def _scales(self) -> np.ndarray:
        """Divisors of coordinates; as in scikit-learn, deviations that are not too small."""
        if not self.whiten:
            return np.ones(self.variances.size)
        return np.maximum(np.sqrt(self.variances), _EPS)

    @cached_property
    def _coordinates(self) -> LinearFunctions:
        vectors = self.components / self._scales[:, None]
        features = np.arange(self.mean.size)
        return LinearFunctions(vectors, -(vectors @ self.mean_low), features, self.mean)

    def transform(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the coordinates of rows, shape (n_rows, k)."""
        return self._score(X, self._coordinates, copied, first_row, columns=self.variances.size)

    def restore(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the rows with given coordinates, shape (n_rows, d)."""
        X, vectors = as_matrix(X, first_row), self.components * self._scales[:, None]
        check_width(X, self.variances.size)

        def rows_of(coordinates: np.ndarray) -> np.ndarray:
            return (coordinates.astype(np.float64) @ vectors + self.mean).T

        out = np.empty((len(X), self.n_features))
        return self._by_chunks(X, rows_of, copied, first_row, out)

    def _apart(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coordinates before whitening, and squared distances from the subspace."""
        rest = (rows.astype(np.float64) - self.mean) - self.mean_low
        coordinates = rest @ self.components.T
        rest -= coordinates @ self.components
        return coordinates, np.einsum("ij,ij->i", rest, rest)

    def residual(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the squared distances of rows from the subspace, shape (n_rows,)."""
        return self._score(X, lambda rows: self._apart(rows)[1], copied, first_row)

    def log_density(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the logarithms of the densities of rows, shape (n_rows,)."""
        within, beside = self._precisions
        logs = -np.log(within).sum() - (self.mean.size - within.size) * np.log(beside or 1.0)

        def scores_of(rows: np.ndarray) -> np.ndarray:
            coordinates, rest = self._apart(rows)
            squares = coordinates**2 @ within + beside * rest
            return -0.5 * (squares + logs + self.mean.size * np.log(2 * np.pi))

        return self._score(X, scores_of, copied, first_row)

    @property
    def _precisions(self) -> tuple[np.ndarray, float]:
        """Inverse variances along the components, and along all other directions."""
        d, k = self.mean.size, self.variances.size
        if not self.variances.all() or (k < d and not self.noise):
            raise SingularCovarianceError(
                f"the covariance of {k} components and a noise of {self.noise:g} has no inverse, "
                f"for some directions of the {d} features do not vary; use fewer components, so "
                f"that noise_variance_ is above zero, or leave constant features out"
            )
        return 1 / self.variances, 1 / self.noise if k < d else 0.0

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the density, shape (d, d)."""
        along = (self.components.T * (self.variances - self.noise)) @ self.components
        return np.asarray(along + self.noise * np.eye(self.mean.size))

    @property
    def precision(self) -> np.ndarray:
        """Inverse of the covariance, shape (d, d)."""
        within, beside = self._precisions
        along = (self.components.T * (within - beside)) @ self.components
        return np.asarray(along + beside * np.eye(self.mean.size))

    # --- saving -------------------------------------------------------------------------------

    def _check(self) -> None:
        check_number("n_rows", self.n_rows)
        check_number("noise", self.noise)
        check_flag("whiten", self.whiten)
        k, d = self.components.shape
        if not k or not self.n_rows > 1 or self.noise < 0:
            raise ValueError("it has no components, a negative noise, or too few rows")
        check_array("components", self.components, (k, d), "f8", least=-2, most=2)
        for name in ("mean", "mean_low"):
            check_array(name, getattr(self, name), (d,), "f8")
        for name in ("variances", "shares"):
            check_array(name, getattr(self, name), (k,), "f8", least=0)


def number_of_components(
    wanted: Any, variances: np.ndarray, shares: np.ndarray, n_rows: float
) -> int:
    """Return the number of components that a parameter stands for.

    Parameters
    ----------
    wanted : int, float, "mle" or None
        A number; a share of the variance that the components exceed; Minka's maximum likelihood;
        or all of them.
    variances, shares : ndarray, shape (d,)
        Variances along all principal axes, in falling order, and their shares.
    n_rows : int or float
    """
    d = variances.size
    most = min(int(n_rows), d)
    expected = f"an integer from 1 to min(n_samples, n_features)={most}, a share between 0 and 1, "
    expected += "'mle' or None"
    if wanted is None:
        return most
    if isinstance(wanted, str) and wanted == "mle":
        if n_rows < d:
            raise InvalidParameterError(
                f"n_components='mle' is only supported if n_samples >= n_features; got {n_rows:g} "
                f"rows of {d} features. Give a number of components"
            )
        return most_likely_number(variances, n_rows)
    if isinstance(wanted, Real) and not isinstance(wanted, Integral):
        share = as_number("n_components", wanted, expected, 0, 1)
        if not 0 < share < 1:
            raise refuse("n_components", wanted, expected)
        return min(int(np.searchsorted(np.cumsum(shares), share, side="right")) + 1, d)
    return as_integer("n_components", wanted, expected, 1, most)


def most_likely_number(variances: np.ndarray, n_rows: float) -> int:
    r"""Return the number of components of the largest evidence, by Laplace's approximation.

    Minka (2000), Automatic choice of dimensionality for PCA, eq. 77, for :math:`k < d`.

    Parameters
    ----------
    variances : ndarray, shape (d,)
        In falling order.
    n_rows : int or float
    """
    d, n = variances.size, n_rows
    if d == 1:
        return 1
    k = np.arange(1, d)
    i = d - np.arange(d - 1)  # dimensions of the spheres in which the axes lie
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(variances)
        noise = np.cumsum(variances[::-1])[-2::-1] / (d - k)
        noise = np.maximum(noise, _LEAST_VARIANCE)
        axes = np.cumsum(gammaln(i / 2) - np.log(np.pi) * i / 2 - np.log(2))
        gaps = np.triu(np.log(variances[:, None] - variances), 1)
        above = gaps.sum(axis=0) - logs * np.arange(d) - np.append(0, np.cumsum(logs)[:-1])
        within = np.cumsum(above + gaps.sum(axis=0))[:-1]  # pairs of components
        corner = np.array([gaps[:size, size:].sum() for size in k])
        inverse = np.tril(np.log(1 / noise[:, None] - 1 / variances[:-1])).sum(axis=1)
        size = d * k - k * (k + 1) / 2
        pairs = within + corner + (d - k) * inverse + size * np.log(n)
        evidence = axes - n / 2 * (np.cumsum(logs)[:-1] + (d - k) * np.log(noise))
        evidence += np.log(2 * np.pi) * (size + k) / 2 - pairs / 2 - k * np.log(n) / 2
    evidence[(variances[:-1] < _LEAST_VARIANCE) | ~np.isfinite(evidence)] = -np.inf
    return int(evidence.argmax()) + 1
