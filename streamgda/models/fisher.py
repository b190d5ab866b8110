"""Fisher's discriminant: the directions along which classes lie furthest apart."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from scipy import linalg

from streamgda.errors import InvalidParameterError
from streamgda.models.covariance import Regularisation
from streamgda.models.gaussian import GaussianModel
from streamgda.moments import ClassMoments
from streamgda.rows.validity import as_matrix


def directions(model: GaussianModel, tol: float = 1e-4) -> tuple[np.ndarray, np.ndarray]:
    r"""Directions that solve :math:`B w = J W w`, by falling J, from the means of a tied model.

    B is the covariance of the class means, W the one within classes. In whitened coordinates,
    where W is the unit matrix, the directions are the principal axes of the means: a singular
    value decomposition of K rows, which squares nothing.

    Parameters
    ----------
    model : GaussianModel
        Of a tied covariance type.
    tol : float
        Directions are left out whose singular value is no more than this part of the largest.

    Returns
    -------
    scalings : ndarray, shape (n_features, rank)
        Columns along which the variance within classes is one.
    criteria : ndarray, shape (min(n_classes, d),)
        :math:`J`, of those left out too.
    """
    seen = model.priors > 0
    gaps = (model.means[seen] - model.xbar)[:, model.features]
    root = model.roots[0] if model.structure.matrix else np.diag(np.sqrt(model.roots[0]))
    white = np.sqrt(model.priors[seen])[:, None] * (gaps @ root.T)
    _, singular, vectors = linalg.svd(white, full_matrices=False)
    rank = int((singular > tol * singular[0]).sum())
    scalings = np.zeros((model.n_features, rank))
    scalings[model.features] = root.T @ vectors[:rank].T
    return scalings, singular**2


@dataclass(frozen=True)
class FisherDiscriminant:
    r"""The directions w with the largest :math:`J(w) = w^T B w / w^T W w`, from moments alone.

    B is the covariance of the class means about their common mean, weighted with the priors, and
    W the covariance within classes (document 004). Of two classes there is one direction,
    :math:`w \propto W^{-1} (m_2 - m_1)`, with :math:`J(w) = \pi_1 \pi_2 (w^T m_1 - w^T m_2)^2 /
    w^T W w`; the factor :math:`\pi_1 \pi_2`, which 004 leaves out, is the same for all w. Of K
    classes there are at most K - 1.

    Rows of any kind of array are projected by `LinearDiscriminantAnalysis.transform`.

    Attributes
    ----------
    components : ndarray, shape (n_components, n_features)
        By falling J. Along each, the variance within classes is one; between them, there is no
        covariance.
    criteria : ndarray, shape (n_components,)
        J of each.
    mean : ndarray, shape (n_features,)
        Of the class means, weighted with the priors: projected to zero.
    moments : ClassMoments
        Tied ones, that all this was made of.
    model : GaussianModel

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import FisherDiscriminant, QuadraticDiscriminantAnalysis, accumulate
    >>> X, y = load_iris(return_X_y=True)
    >>> moments = accumulate(X, y)
    >>> fisher = FisherDiscriminant.from_moments(moments, 2)
    >>> fisher.criteria.round(2)
    array([32.19,  0.29])
    >>> plane = QuadraticDiscriminantAnalysis.from_moments(fisher.project(moments))
    >>> plane.score(fisher.transform(X), y)
    0.9733333333333334
    """

    components: np.ndarray
    criteria: np.ndarray
    mean: np.ndarray
    moments: ClassMoments
    model: GaussianModel

    @classmethod
    def from_moments(
        cls,
        moments: ClassMoments,
        n_components: int | None = None,
        *,
        priors: Any = None,
        shrinkage: float | None = None,
        tol: float = 1e-4,
    ) -> Self:
        """Find the directions.

        Parameters
        ----------
        moments : ClassMoments
            ``"full"`` or ``"tied"``, or others where features are taken to be uncorrelated.
        n_components : int, optional
            How many; by default as many as tell the classes apart.
        priors, shrinkage, tol
            As of `LinearDiscriminantAnalysis`.

        Raises
        ------
        InvalidParameterError
            For more components than there are, and other parameters out of range.
        SingularCovarianceError
            Where the covariance within classes has no inverse.
        """
        how = Regularisation(shrinkage=shrinkage, tol=tol)
        name = moments.covariance_type
        tied = name if name.startswith("tied") else {"full": "tied"}.get(name, f"tied_{name}")
        moments = moments.reduce(tied)
        model = GaussianModel.from_moments(moments, tied, how, priors)
        scalings, criteria = directions(model, tol)
        most = scalings.shape[1]
        wanted: Any = most if n_components is None else n_components
        if not isinstance(wanted, Integral) or not 1 <= int(wanted) <= most:
            raise InvalidParameterError(
                f"n_components={n_components!r}; {most} directions tell these classes apart"
            )
        wanted = int(wanted)
        return cls(scalings[:, :wanted].T, criteria[:wanted], model.xbar, moments, model)

    def criterion(self, w: Any) -> np.ndarray:
        """J of any directions: it is nowhere larger than ``criteria[0]``.

        Parameters
        ----------
        w : array-like, shape (n_features,) or (n_directions, n_features)

        Returns
        -------
        ndarray, shape () or (n_directions,)
            NaN for a direction along which nothing varies within classes.
        """
        model = self.model
        w = np.asarray(w, np.float64)
        if w.ndim not in (1, 2) or w.shape[-1] != model.n_features:
            raise InvalidParameterError(
                f"w has shape {w.shape}; expected {model.n_features} numbers a direction"
            )
        varying = w[..., model.features]
        seen = model.priors > 0
        between = ((w @ (model.means[seen] - model.xbar).T) ** 2) @ model.priors[seen]
        if model.structure.matrix:  # W is the inverse of R^T R, so that w^T W w = |R^-T w|^2
            spread = linalg.solve_triangular(model.roots[0], varying.T, lower=True, trans="T")
            within = (spread**2).sum(axis=0)
        else:
            within = varying**2 @ (1 / model.roots[0])
        with np.errstate(invalid="ignore"):
            return np.asarray(between / np.where(within > 0, within, np.nan))

    def transform(self, X: Any) -> np.ndarray:
        """Rows in memory, less the mean, along the directions: shape (n_rows, n_components)."""
        return (as_matrix(X) - self.mean) @ self.components.T

    def project(self, moments: ClassMoments) -> ClassMoments:
        """The moments of the transformed rows, without looking at any row again.

        Parameters
        ----------
        moments : ClassMoments
            ``"full"`` or ``"tied"``, of the same features.
        """
        return moments.project(self.components, self.mean)
