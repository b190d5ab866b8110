"""Principal components of all rows: from moments to coordinates and residuals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy import linalg

from streamgda.errors import InvalidDataError
from streamgda.models.covariance import Summary
from streamgda.models.scoring import ClassModel
from streamgda.moments import ClassMoments
from streamgda.rows.counting import as_matrix
from streamgda.runtime import threads
from streamgda.runtime.parameters import as_integer, as_number, unexpected

_EPS = np.finfo(np.float64).eps


@dataclass(frozen=True, eq=False)
class PrincipalComponents(ClassModel):
    r"""Mean, principal axes :math:`c_i` and variances :math:`\lambda_i` of all rows.

    Attributes
    ----------
    classes : ndarray, shape (k,)
        Numbers of the axes.
    n_features : int
    n_rows : int or float
        Number of the rows, or their weight.
    noise : float
        Mean variance along the axes that are left out; zero if none is.
    origin, offset : ndarray, shape (d,)
        Their sum is the mean of all rows.
    components : ndarray, shape (k, d)
        Orthonormal axes, one a row; the largest entry of each is positive.
    variances, shares : ndarray, shape (k,)
        Variances along the axes, and their shares of all variance.
    scales : ndarray, shape (k,)
        Divisors of coordinates: ones, or standard deviations to whiten them.
    """

    classes: np.ndarray
    n_features: int
    n_rows: float
    noise: float
    origin: np.ndarray
    offset: np.ndarray
    components: np.ndarray
    variances: np.ndarray
    shares: np.ndarray
    scales: np.ndarray

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
        held = Summary.of(moments)
        n, d = held.count[0].item(), held.origin.size
        if not n > 1:
            raise InvalidDataError(
                f"PCA of n_samples={n:g}, where at least 2 rows are needed: variances are divided "
                f"by the number of rows, or their weight, less one. Give more rows, or larger "
                f"weights"
            )
        scatter = held.scatter[0] / (n - 1)
        variances, axes = threads.call_blas(d, partial(linalg.eigh, driver="evd"), scatter)
        variances, axes = np.maximum(variances[::-1], 0), axes[:, ::-1].T
        largest = np.abs(axes).argmax(axis=1)
        axes = axes * np.sign(axes[np.arange(d), largest])[:, None]
        shares = variances / (variances.sum() or 1.0)
        most = min(int(n), d)
        k = _number_of_components(n_components, shares, most)
        noise = float(variances[k:].mean()) if k < most else 0.0
        scales = np.maximum(np.sqrt(variances[:k]), _EPS) if whiten else np.ones(k)
        found = axes[:k].copy(), variances[:k], shares[:k], scales
        return cls(np.arange(k), d, n, noise, held.origin, held.offsets[0], *found)

    def _centred(self, X: np.ndarray) -> np.ndarray:
        return np.asarray((X - self.origin) - self.offset)

    def _joint(self, X: Any) -> np.ndarray:
        """Return the coordinates of a block of rows, axis by axis."""
        return np.asarray((self.components / self.scales[:, None]) @ self._centred(X).T)

    def restore(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the rows with given coordinates, shape (n_rows, d)."""
        X = as_matrix(X, first_row)
        if X.shape[1] != self.classes.size:
            raise InvalidDataError(
                f"X has {X.shape[1]} coordinates, but there are {self.classes.size} components"
            )
        rows = X @ (self.components * self.scales[:, None])
        return np.asarray(rows + self.offset + self.origin)

    def residual(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the squared distances of rows from the subspace, shape (n_rows,)."""

        def distances(block: np.ndarray) -> np.ndarray:
            rest = self._centred(block)
            rest -= (rest @ self.components.T) @ self.components
            return np.einsum("ij,ij->i", rest, rest)[None]

        def finish(found: np.ndarray, out: np.ndarray) -> None:
            out[...] = found[0]

        return self._answer(X, first_row, distances, finish)


def _number_of_components(wanted: Any, shares: np.ndarray, most: int) -> int:
    """Return the number of components that a parameter stands for."""
    expected = f"an integer from 1 to min(n_samples, n_features)={most}, a share between 0 and 1, "
    expected += "or None"
    if wanted is None:
        return most
    if isinstance(wanted, Real) and not isinstance(wanted, Integral):
        share = as_number("n_components", wanted, expected, 0, 1)
        if not 0 < share < 1:
            raise unexpected("n_components", wanted, expected)
        return min(int(np.searchsorted(np.cumsum(shares), share, side="right")) + 1, shares.size)
    return as_integer("n_components", wanted, expected, 1, most)
