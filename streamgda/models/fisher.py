"""Fisher's discriminant: the directions along which classes are furthest apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import linalg

from streamgda.errors import InvalidParameterError
from streamgda.models.base import check_classes
from streamgda.models.covariance import Regularisation
from streamgda.models.gaussian import GaussianModel, gaps_to
from streamgda.models.scores import check_width, checked_names
from streamgda.moments import ClassMoments
from streamgda.moments.structures import pooled
from streamgda.rows.validity import as_matrix
from streamgda.runtime.parameters import as_integer, as_numbers, check_type


def directions(model: GaussianModel, tol: float = 1e-4) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the directions that solve :math:`B w = J W w`, by falling J.

    B is the covariance of the class means, W the covariance within classes. In whitened
    coordinates, where W is the unit matrix, the directions are the principal axes of the means.
    They come from a singular value decomposition of K rows, which squares nothing.

    Parameters
    ----------
    model : GaussianModel
        Model of a tied covariance type.
    tol : float
        Directions are left out if their singular value is at most this fraction of the largest.

    Returns
    -------
    scalings : ndarray, shape (n_features, rank)
        Columns along which the variance within classes is one.
    criteria : ndarray, shape (min(n_classes, d),)
        :math:`J` of all directions, also of those left out.
    """
    seen = model.priors > 0
    gaps = _gaps(model)
    root = model.structure.whitening(model.roots[0])
    white = np.sqrt(model.priors[seen])[:, None] * (gaps[seen] @ root.T)
    _, singular, vectors = linalg.svd(white, full_matrices=False)
    rank = int((singular > tol * singular[0]).sum())
    scalings = np.zeros((model.n_features, rank))
    scalings[model.features] = root.T @ vectors[:rank].T
    return scalings, singular**2


def _gaps(model: GaussianModel) -> np.ndarray:
    """Return the class means less their own mean, of the features in the density."""
    gaps = gaps_to(model, model.xbar)
    return np.asarray(gaps - model.priors @ gaps / model.priors.sum())


@dataclass(frozen=True)
class FisherDiscriminant:
    r"""Directions w with the largest :math:`J(w) = w^T B w / w^T W w`, from moments alone.

    B is the covariance of the class means about their common mean, weighted with the priors, and
    W the covariance within classes (document 004). Two classes have one direction,
    :math:`w \propto W^{-1} (m_2 - m_1)`, with :math:`J(w) = \pi_1 \pi_2 (w^T m_1 - w^T m_2)^2 /
    w^T W w`; the factor :math:`\pi_1 \pi_2`, which 004 leaves out, is the same for all w. K
    classes have at most K - 1 directions.

    A singular covariance is refused; `LinearDiscriminantAnalysis` drops directions instead.

    `LinearDiscriminantAnalysis.transform` projects rows of any kind of array.

    Parameters
    ----------
    components : ndarray, shape (n_components, n_features)
        Directions by falling J. The variance within classes along each is one, and the covariance
        between any two is zero.
    criteria : ndarray, shape (n_components,)
        J of each direction.
    mean : ndarray, shape (n_features,)
        Mean of the class means, weighted with the priors; it is projected to zero.
    moments : ClassMoments
        Tied moments from which the directions were computed.
    model : GaussianModel
        Model of these moments.

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
            ``"full"`` or ``"tied"``, or another type to treat features as uncorrelated.
        n_components : int, optional
            Number of directions; by default all that separate the classes.
        priors : array-like, shape (n_classes,), optional
            Priors of the sorted classes; by default their shares of the rows.
        shrinkage : float in [0, 1], optional
            Amount of shrinkage, as for `LinearDiscriminantAnalysis`.
        tol : float
            Tolerance for a singular covariance, as for `LinearDiscriminantAnalysis`. Directions
            are also left out if their singular value is at most this fraction of the largest.

        Returns
        -------
        FisherDiscriminant
            Directions, by falling J.

        Raises
        ------
        InvalidDataError
            If fewer than two classes have rows.
        InvalidParameterError
            For more components than there are, and other parameters out of range.
        SingularCovarianceError
            If the covariance within classes has no inverse.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import ClassMoments, FisherDiscriminant
        >>> X, y = load_iris(return_X_y=True)
        >>> FisherDiscriminant.from_moments(ClassMoments("tied").update(X, y)).criteria.round(3)
        array([32.192,  0.285])
        """
        check_type("moments", moments, ClassMoments, "ClassMoments")
        how = Regularisation(shrinkage=shrinkage, tol=tol, advice="Set shrinkage above 0")
        tied = pooled(moments.covariance_type)
        moments = moments.reduce(tied)
        check_classes(moments.classes, moments.class_count, least=2)
        model = GaussianModel.from_moments(moments, tied, how, priors)
        scalings, criteria = directions(model, tol)
        most = scalings.shape[1]
        wanted = most
        if n_components is not None:
            expected = f"1 to {most}, the number of directions that separate these classes"
            wanted = as_integer("n_components", n_components, expected, 1, most)
        return cls(scalings[:, :wanted].T, criteria[:wanted], model.xbar, moments, model)

    def criterion(self, w: Any) -> np.ndarray:
        """Return J of any directions, which is at most ``criteria[0]``.

        Parameters
        ----------
        w : array-like, shape (n_features,) or (n_directions, n_features)
            Directions.

        Returns
        -------
        ndarray, shape () or (n_directions,)
            NaN for a direction along which nothing varies within classes.

        Raises
        ------
        InvalidParameterError
            For directions that are not finite numbers, or of another number of features.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import ClassMoments, FisherDiscriminant
        >>> X, y = load_iris(return_X_y=True)
        >>> fisher = FisherDiscriminant.from_moments(ClassMoments("tied").update(X, y))
        >>> fisher.criterion([[0, 0, 1, 0], [0, 0, 0, 1]]).round(2)
        array([16.06, 13.06])
        """
        model = self.model
        w = as_numbers("w", w, f"{model.n_features} numbers a direction", finite=True)
        if w.ndim not in (1, 2) or w.shape[-1] != model.n_features:
            raise InvalidParameterError(
                f"w has shape {w.shape}; expected {model.n_features} numbers a direction"
            )
        varying = w[..., model.features]
        seen = model.priors > 0
        between = ((varying @ _gaps(model)[seen].T) ** 2) @ model.priors[seen]
        within = model.structure.variances_along(model.roots[0], varying)
        with np.errstate(invalid="ignore"):
            return np.asarray(between / np.where(within > 0, within, np.nan))

    def transform(self, X: Any) -> np.ndarray:
        """Return rows, less the mean, along the directions.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows in memory.

        Returns
        -------
        ndarray, shape (n_rows, n_components)
            Coordinates along the directions.

        Raises
        ------
        InvalidDataError
            For rows that are not numbers, or of another number of features.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import ClassMoments, FisherDiscriminant
        >>> X, y = load_iris(return_X_y=True)
        >>> fisher = FisherDiscriminant.from_moments(ClassMoments("tied").update(X, y))
        >>> fisher.transform(X[:2]).round(2)
        array([[ 8.14, -0.3 ],
               [ 7.2 ,  0.79]])
        """
        X = as_matrix(checked_names(X, self.model.feature_names))
        check_width(X, self.mean.size)
        return (X - self.mean) @ self.components.T

    def project(self, moments: ClassMoments) -> ClassMoments:
        """Return the moments of the transformed rows, without reading the rows again.

        Parameters
        ----------
        moments : ClassMoments
            ``"full"`` or ``"tied"``, of the same features.

        Returns
        -------
        ClassMoments
            Moments of n_components features.

        Raises
        ------
        InvalidParameterError
            For moments of another number of features.
        MergeError
            For moments without covariances between features.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import ClassMoments, FisherDiscriminant
        >>> X, y = load_iris(return_X_y=True)
        >>> moments = ClassMoments().update(X, y)
        >>> projected = FisherDiscriminant.from_moments(moments).project(moments)
        >>> projected.reduce("tied").covariance(ddof=1).round(3)
        array([[1.02, 0.  ],
               [0.  , 1.02]])
        """
        check_type("moments", moments, ClassMoments, "ClassMoments")
        return moments.project(self.components, self.mean)
