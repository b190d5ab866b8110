"""Linear, quadratic and Fisher's discriminants of classes, and the models of LDA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import linalg, special

from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    UnsupportedError,
    as_attribute_error,
)
from streamgda.models.covariance import Covariances, Regularisation, average, estimate, factorise
from streamgda.models.gaussian import GaussianModel, gaps_to
from streamgda.models.model import Model, check_classes, check_width, checked_rows, part_of
from streamgda.models.sampling import as_random_numbers
from streamgda.models.shrinkage import AUTO, fourth_of_scaled, shrinkage_of
from streamgda.moments import ClassMoments, held_sums
from streamgda.moments.covariance_types import pooled, structure_of
from streamgda.moments.fourth import TOTAL
from streamgda.moments.roots import LinearFunctions
from streamgda.moments.sums import class_variance
from streamgda.rows.arrays import as_kernel_rows
from streamgda.rows.counting import as_matrix
from streamgda.rows.labels import as_labels, find
from streamgda.runtime.parameters import as_integer, as_numbers, check_type, shown
from streamgda.storage.format import check_array, check_number
from streamgda.storage.saved import State, synchronized

SOLVERS = ("svd", "lsqr", "eigen")
_TIE = 2.0**-40  # of the largest: discriminants that differ by less are equal up to rounding


@dataclass(frozen=True)
class Linear:
    r"""Linear function :math:`w^T (x - o) + w_0`, which unpacks as ``w, w0 = ...``.

    Attributes
    ----------
    w : ndarray, shape (n_features,)
    w0 : float
    origin : ndarray, shape (n_features,)
        Point :math:`o` that is subtracted from rows.
    """

    w: np.ndarray
    w0: float
    origin: np.ndarray

    @property
    def intercept(self) -> float:
        """Value at zero, which replaces `w0` for rows that are not shifted."""
        return float(self.w0 - self.w @ self.origin)

    def __call__(self, X: Any) -> np.ndarray:
        """Return the value at each row, shape (n_rows,)."""
        X = as_matrix(X)
        check_width(X, self.w.size)
        return (X - self.origin) @ self.w + self.w0

    def __sub__(self, other: Linear) -> Linear:
        return Linear(self.w - other.w, self.w0 - other.w0, self.origin)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.w, self.w0))


@dataclass(frozen=True)
class Quadratic:
    r"""Quadratic function :math:`(x - o)^T A (x - o) + b^T (x - o) + c`.

    It unpacks as ``A, b, c = ...``.

    Attributes
    ----------
    A : ndarray, shape (n_features, n_features)
        Symmetric.
    b : ndarray, shape (n_features,)
    c : float
    origin : ndarray, shape (n_features,)
        Point :math:`o` that is subtracted from rows.
    """

    A: np.ndarray
    b: np.ndarray
    c: float
    origin: np.ndarray

    def __call__(self, X: Any) -> np.ndarray:
        """Return the value at each row, shape (n_rows,)."""
        X = as_matrix(X)
        check_width(X, self.b.size)
        rows = X - self.origin
        return ((rows @ self.A + self.b) * rows).sum(axis=1) + self.c

    def __sub__(self, other: Quadratic) -> Quadratic:
        return Quadratic(self.A - other.A, self.b - other.b, self.c - other.c, self.origin)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.A, self.b, self.c))


@dataclass(frozen=True)
class Discriminants:
    """Base of both kinds of discriminants: one function a class, whose differences are log-odds.

    Parameters
    ----------
    model : GaussianModel
        Model whose predictions the functions give.
    origin : ndarray, shape (n_features,)
        Point that is subtracted from rows.
    """

    model: GaussianModel
    origin: np.ndarray

    @classmethod
    def of(cls, fitted: Any, origin: Any = None) -> Self:
        """Return the discriminants of a fitted estimator or of a model.

        Parameters
        ----------
        fitted : estimator or GaussianModel
            Gaussian estimator or search, fitted, or its model.
        origin : array-like, shape (n_features,), or float; optional
            Point that is subtracted from rows. The default is the mean of all classes, which keeps
            the accuracy of data far from zero; with 0 the formulas are those of the textbooks, term
            by term.

        Returns
        -------
        Discriminants
            Discriminants about the origin.

        Raises
        ------
        InvalidParameterError
            For an origin of another shape, or a model that has no discriminants of this kind.
        TypeError
            For anything but a Gaussian estimator or model.

        Examples
        --------
        >>> from streamgda import QuadraticDiscriminantAnalysis, QuadraticDiscriminants
        >>> qda = QuadraticDiscriminantAnalysis().fit([[1.0], [3.0], [6.0], [9.0]], [0, 0, 1, 1])
        >>> QuadraticDiscriminants.of(qda, origin=0).classes
        array([0, 1])
        """
        kinds = "a Gaussian estimator or search, fitted, or its model"
        model = part_of("fitted", fitted, "model_", GaussianModel, kinds)
        expected = f"{model.n_features} finite numbers, or one for all features"
        point = as_numbers("origin", model.xbar if origin is None else origin, expected)
        if point.shape not in ((), (model.n_features,)) or not np.isfinite(point).all():
            raise InvalidParameterError(f"origin has shape {point.shape}; expected {expected}")
        return cls(model, np.broadcast_to(point, model.n_features))

    @property
    def classes(self) -> np.ndarray:
        """Class labels, sorted, shape (n_classes,)."""
        return self.model.classes

    def of_class(self, label: Any) -> Any:
        """Return the discriminant of a class: its log-posterior, up to a term that all share.

        Parameters
        ----------
        label : label
            Class label.

        Returns
        -------
        Linear or Quadratic
            Function of the class.

        Raises
        ------
        InvalidParameterError
            For a label that is not a class, or a class without rows.

        Examples
        --------
        >>> from streamgda import LinearDiscriminantAnalysis, LinearDiscriminants
        >>> lda = LinearDiscriminantAnalysis().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> f = LinearDiscriminants.of(lda, origin=0).of_class(1)
        >>> f.w, round(f.intercept, 3)
        (array([7.]), -25.193)
        """
        try:
            number = int(find(as_labels([label], "label"), self.classes)[0])
        except InvalidDataError:  # it is no label at all
            number = -1
        if number < 0 or np.isnan(self.model.means[number, 0]):
            known = self.classes[~np.isnan(self.model.means[:, 0])].tolist()
            raise InvalidParameterError(
                f"{shown(label)} is not one of the classes with rows, {known}"
            )
        return self._function(number)

    def pair(self, a: Any, b: Any) -> Any:
        r"""Return the log-odds of class `a` against `b`, :math:`\ln p(a|x) - \ln p(b|x)`.

        It is positive where `a` is more probable than `b`, and zero on their boundary.

        Parameters
        ----------
        a, b : label
            Class labels.

        Returns
        -------
        Linear or Quadratic
            Difference of the two functions.

        Raises
        ------
        InvalidParameterError
            As for `of_class`.

        Examples
        --------
        >>> from streamgda import LinearDiscriminantAnalysis, LinearDiscriminants
        >>> lda = LinearDiscriminantAnalysis().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> f = LinearDiscriminants.of(lda, origin=0).pair(1, 0)
        >>> f([[4.5], [5.5]])
        array([0., 5.])
        """
        return self.of_class(a) - self.of_class(b)

    def __call__(self, X: Any) -> np.ndarray:
        """Return all discriminants, shape (n_rows, n_classes); -inf for classes without rows."""
        X = np.asarray(checked_rows(self.model, X))
        values = np.full((X.shape[0], self.classes.size), -np.inf)
        for number in np.flatnonzero(~np.isnan(self.model.means[:, 0])):
            values[:, number] = self._function(int(number))(X)
        return values

    def posterior(self, X: Any) -> np.ndarray:
        """Return the probability of each class given the row.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Probabilities; each row sums to one.

        Raises
        ------
        InvalidDataError
            For rows that are not numbers, or of another number of features.

        Examples
        --------
        >>> from streamgda import LinearDiscriminantAnalysis, LinearDiscriminants
        >>> lda = LinearDiscriminantAnalysis().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> LinearDiscriminants.of(lda).posterior([[4.5], [5.5]]).round(3)
        array([[0.5  , 0.5  ],
               [0.007, 0.993]])
        """
        return np.asarray(special.softmax(self(X), axis=1))

    def predict(self, X: Any, random_state: Any = None) -> np.ndarray:
        r"""Return the class of the largest discriminant, one of them at random if several tie.

        This is the rule of document 001: a row on the boundary is assigned "randomly (and with
        equal probability)". Discriminants tie if they differ by at most :math:`2^{-40}` of the
        largest, which is rounding. `predict` of the estimators takes the first class of a tie.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        random_state : int, RandomState instance or None
            Seed or generator of random numbers.

        Returns
        -------
        ndarray, shape (n_rows,)
            Predicted classes.

        Raises
        ------
        InvalidDataError
            For rows that are not numbers, or of another number of features.

        Examples
        --------
        >>> from streamgda import LinearDiscriminantAnalysis, LinearDiscriminants
        >>> lda = LinearDiscriminantAnalysis().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> LinearDiscriminants.of(lda).predict([[2.0], [4.5], [4.5], [4.5], [7.0]], 0)
        array([0, 1, 0, 0, 1])
        """
        values = self(X)
        best = values.max(axis=1, keepdims=True)
        tied = values >= best - _TIE * np.maximum(np.abs(best), 1)
        drawn = 1 - as_random_numbers(random_state).random_sample(values.shape)
        return np.asarray(self.classes[np.where(tied, drawn, 0).argmax(axis=1)])

    def thresholds(self) -> np.ndarray:
        r"""Return the points at which the most probable class changes, along one feature.

        Two classes of one variance have one, :math:`(m_1 + m_2) / 2 + \sigma^2 \ln(\pi_1 / \pi_2)
        / (m_2 - m_1)`; of different variances, two or none (document 004).

        Returns
        -------
        ndarray, shape (n_thresholds,)
            Thresholds, sorted.

        Raises
        ------
        InvalidParameterError
            For a model of several features; ``moments.select_features([i])`` and
            ``moments.project(directions)`` have the moments of one.

        Examples
        --------
        >>> from streamgda import GaussianNB, QuadraticDiscriminants
        >>> nb = GaussianNB.from_parameters([[0.0], [2.0]], [[4.0], [0.5]], [0.5, 0.5], [1, 2])
        >>> QuadraticDiscriminants.of(nb).thresholds().round(4)
        array([0.9288, 3.6427])
        """
        model = self.model
        if model.n_features != 1:
            raise InvalidParameterError(
                f"a model of {model.n_features} features has no thresholds; expected one feature: "
                f"moments.select_features([i]) or moments.project(directions) have its moments"
            )
        if not model.features.size:  # the feature is constant
            return np.empty(0)
        seen = np.flatnonzero(model.priors > 0)
        structure, unit = model.structure, np.ones((1, 1))
        variances = [
            structure.variances_along(model.roots[structure.group(int(k))], unit)[0] for k in seen
        ]
        return thresholds_between(model.means[seen, 0], np.array(variances), model.priors[seen])

    def _function(self, number: int) -> Any:
        raise NotImplementedError

    def _gap_and_direction(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a class mean less the origin, and its product with the inverse covariance."""
        model = self.model
        gap = gaps_to(model, self.origin)[number]
        root = model.roots[model.structure.group(number)]
        return gap, model.structure.solve(root, gap)

    def _all_features(self, values: np.ndarray) -> np.ndarray:
        """Return one value for each feature, zero for those left out of the density."""
        full = np.zeros(self.model.n_features)
        full[self.model.features] = values
        return full


class LinearDiscriminants(Discriminants):
    r"""Discriminants of LDA.

    That of class k, about the origin :math:`o`, is

    .. math:: w_k = \Sigma^{-1} (m_k - o), \quad
              w_{k0} = -(m_k - o)^T \Sigma^{-1} (m_k - o) / 2 + \ln \pi_k

    and that of a pair of classes the difference of theirs (documents 001, eq. 13-14 and 22-24, and
    003).

    Parameters
    ----------
    model : GaussianModel
        Model of a tied covariance type.
    origin : ndarray, shape (n_features,)
        Point :math:`o` that is subtracted from rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import LinearDiscriminantAnalysis, LinearDiscriminants
    >>> X, y = load_iris(return_X_y=True)
    >>> lda = LinearDiscriminantAnalysis().fit(X[:, :2], y)
    >>> discriminants = LinearDiscriminants.of(lda)
    >>> w, w0 = discriminants.pair(1, 2)
    >>> w.round(2)
    array([-2.61,  0.3 ])
    >>> discriminants.meeting(0, 1, 2).round(2)  # where all three are equally probable
    array([6.35, 3.67])
    """

    @classmethod
    def of(cls, fitted: Any, origin: Any = None) -> Self:
        """Return the discriminants of a fitted estimator or of a model, of a tied covariance type.

        Parameters
        ----------
        fitted : estimator or GaussianModel
            Gaussian estimator or search, fitted, or its model.
        origin : array-like, shape (n_features,), or float; optional
            Point that is subtracted from rows; see `Discriminants.of`.

        Returns
        -------
        LinearDiscriminants
            Discriminants about the origin.

        Raises
        ------
        InvalidParameterError
            For an origin of another shape, or a covariance for each class.

        Examples
        --------
        >>> from streamgda import LinearDiscriminantAnalysis, LinearDiscriminants
        >>> lda = LinearDiscriminantAnalysis().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> LinearDiscriminants.of(lda).classes
        array([0, 1])
        """
        discriminants = super().of(fitted, origin)
        structure = discriminants.model.structure
        if structure.per_class:
            raise InvalidParameterError(
                f"covariance_type={structure.name!r} has a covariance for each class, and no "
                f"linear discriminants; use QuadraticDiscriminants, or a tied covariance type"
            )
        return discriminants

    def _function(self, number: int) -> Linear:
        gap, direction = self._gap_and_direction(number)
        w0 = self.model.log_priors[number] - 0.5 * float(gap @ direction)
        return Linear(self._all_features(direction), float(w0), self.origin)

    def meeting(self, *labels: Any) -> np.ndarray:
        """Return a point where classes are equally probable, so that all their boundaries meet.

        Parameters
        ----------
        *labels : label
            Labels of two classes or more.

        Returns
        -------
        ndarray, shape (n_features,)
            The one of these points that is closest to the origin.

        Raises
        ------
        InvalidParameterError
            If there is none, or there are fewer than two labels.

        Examples
        --------
        >>> from streamgda import LinearDiscriminantAnalysis, LinearDiscriminants
        >>> lda = LinearDiscriminantAnalysis().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> LinearDiscriminants.of(lda).meeting(0, 1)
        array([4.5])
        """
        if len(labels) < 2:
            raise InvalidParameterError(f"meeting of {labels!r}; expected two classes or more")
        first, *others = (self.of_class(label) for label in labels)
        gaps = [first - other for other in others]
        w, w0 = np.array([gap.w for gap in gaps]), np.array([gap.w0 for gap in gaps])
        step, _, rank, _ = linalg.lstsq(w, -w0)
        if rank < len(gaps):
            raise InvalidParameterError(
                f"the boundaries of classes {list(labels)} do not meet: some are parallel"
            )
        return np.asarray(self.origin + step)


class QuadraticDiscriminants(Discriminants):
    r"""Discriminants of QDA.

    That of class k, about the origin :math:`o`, is

    .. math:: A_k = -\Sigma_k^{-1} / 2, \quad b_k = \Sigma_k^{-1} (m_k - o)

    .. math:: c_k = -(m_k - o)^T \Sigma_k^{-1} (m_k - o) / 2 - \ln |\Sigma_k| / 2 + \ln \pi_k

    and that of a pair of classes the difference of theirs. It is half of that in document 000
    (eq. 26-28), which multiplies the equation of the boundary by two, and that in 001 (eq. 17-19)
    with the other sign of :math:`\ln(\pi_1 / \pi_2)`.

    Any covariance type has quadratic discriminants; for a tied one, ``A`` is zero for all pairs.

    Parameters
    ----------
    model : GaussianModel
        Model of any covariance type.
    origin : ndarray, shape (n_features,)
        Point :math:`o` that is subtracted from rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import QuadraticDiscriminantAnalysis, QuadraticDiscriminants
    >>> X, y = load_iris(return_X_y=True)
    >>> qda = QuadraticDiscriminantAnalysis().fit(X[:, :2], y)
    >>> A, b, c = QuadraticDiscriminants.of(qda).pair(1, 2)
    >>> A.round(2)
    array([[-1.05,  0.85],
           [ 0.85, -0.96]])
    """

    def _function(self, number: int) -> Quadratic:
        model = self.model
        group = model.structure.group(number)
        gap, direction = self._gap_and_direction(number)
        inverse = model.structure.solve(model.roots[group], np.eye(model.features.size))
        A = np.zeros((model.n_features, model.n_features))
        A[np.ix_(model.features, model.features)] = -0.5 * inverse
        c = -0.5 * (float(gap @ direction) + model.log_determinants[group])
        return Quadratic(
            A, self._all_features(direction), float(c + model.log_priors[number]), self.origin
        )


def thresholds_between(means: np.ndarray, variances: np.ndarray, priors: np.ndarray) -> np.ndarray:
    r"""Return the points at which the class of the largest density times prior changes, sorted.

    Two classes are equally probable where the difference :math:`a z^2 + b z + c` of their
    log-densities is zero. Roots at which a third class is more probable are left out.

    Parameters
    ----------
    means, variances, priors : ndarray, shape (n_classes,)
        Numbers of each class along a direction; variances above zero.
    """
    used = priors > 0
    origin, unit = means[used].mean(), np.sqrt(variances[used].max())
    means, variances = (means[used] - origin) / unit, variances[used] / unit**2
    # Coefficients of each log-density, shape (3, n_classes).
    constants = np.log(priors[used]) - 0.5 * (np.log(variances) + means**2 / variances)
    terms = np.stack([-0.5 / variances, means / variances, constants])
    found = []
    for k in range(means.size - 1):
        a, b, c = terms[:, k + 1 :] - terms[:, [k]]
        a = np.where(np.abs(a) > _TIE * np.abs(terms[0, k]), a, 0)  # variances equal up to rounding
        with np.errstate(divide="ignore", invalid="ignore"):  # where there is no root
            q = -0.5 * (b + np.copysign(np.sqrt(b * b - 4 * a * c), b))
            roots = np.concatenate([q / a, c / q])
        roots = roots[np.isfinite(roots)]
        values = (terms[0] * roots[:, None] + terms[1]) * roots[:, None] + terms[2]
        best = values.max(axis=1)
        found.append(roots[values[:, k] >= best - _TIE * np.maximum(np.abs(best), 1)])
    return np.unique(np.concatenate([*found, np.empty(0)])) * unit + origin


def discriminant_directions(
    model: GaussianModel, tol: float = 1e-4
) -> tuple[np.ndarray, np.ndarray]:
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
    return np.asarray(model._mean_gaps - model.priors @ model._mean_gaps / model.priors.sum())


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
    @synchronized
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
        scalings, criteria = discriminant_directions(model, tol)
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
        X = np.asarray(checked_rows(self.model, X))
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
        >>> projected.reduce("tied").covariance(ddof=1).diagonal().round(3)
        array([1.02, 1.02])
        """
        check_type("moments", moments, ClassMoments, "ClassMoments")
        return moments.project(self.components, self.mean)


# --- models of LDA ----------------------------------------------------------------------------


@dataclass(frozen=True)
class LinearModel(GaussianModel):
    r"""Gaussians with one covariance, scored as a solver of scikit-learn's LDA does.

    All solvers find the same posteriors. With ``"svd"`` the discriminants are linear functions
    about `xbar`, of the coordinates along the discriminant directions; those along which the class
    means differ too little are left out. With the others the discriminants are

    .. math:: m_k^T \Sigma^{-1} x - m_k^T \Sigma^{-1} m_k / 2 + \ln \pi_k

    which differs by a term that all classes of a row share.

    Parameters
    ----------
    solver : {"svd", "lsqr", "eigen"}
        Solver.
    tol : float
        Discriminant directions are left out if their singular value is at most this fraction of
        the largest; see `streamgda.models.discriminants.discriminant_directions`.
    """

    _numbers = "solver", "tol"

    solver: str = "svd"
    tol: float = 1e-4

    @cached_property
    def directions(self) -> tuple[np.ndarray, np.ndarray]:
        """Discriminant directions, and the between-class variance along each of all."""
        return discriminant_directions(self, self.tol)

    @cached_property
    def drops_directions(self) -> bool:
        """True if class means differ so little along a direction that it is left out."""
        if self.solver != "svd" or self.priors.size <= 2:
            return False
        most = min((self.priors > 0).sum() - 1, self.rank)
        return bool(self.directions[0].shape[1] < most)

    def _solved(self, gaps: np.ndarray) -> np.ndarray:
        if self.drops_directions:
            within = self.directions[0][self.features]
            return np.asarray(gaps @ within @ within.T)
        return super()._solved(gaps)

    @cached_property
    def discriminants(self) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (K, d) and intercepts (K,) about `xbar` of the solver's discriminants."""
        return super().discriminants if self.solver == "svd" else self._linear_about(-self._centre)

    def _state(self) -> State:
        attributes, arrays = super()._state()
        for name, usual in {"solver": "svd", "tol": 1e-4}.items():
            if attributes[name] == usual:  # as files without it mean
                del attributes[name]
        return attributes, arrays

    def _check(self) -> None:
        super()._check()
        check_number("tol", self.tol)
        if self.solver not in SOLVERS or self.structure.per_class:
            raise ValueError(f"its solver {self.solver!r:.50} or its structure is not one of LDA")


@dataclass(frozen=True)
class LinearScores(Model):
    """Linear discriminants of the classes, and nothing else: no densities.

    Parameters
    ----------
    classes : ndarray, shape (n_classes,)
    coefficients : ndarray of float64, shape (n_classes, n_features)
    intercepts : ndarray of float64, shape (n_classes,)
    feature_names : tuple of str, optional
    feature_map : Lifting, optional
    """

    _kind = "linear scores"
    _by_feature = "coefficients"
    _degree = 1

    classes: np.ndarray
    coefficients: np.ndarray
    intercepts: np.ndarray
    feature_names: tuple[str, ...] | None = None
    feature_map: Any = field(default=None, kw_only=True)

    @classmethod
    def of(cls, classes: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> Self:
        """Return the discriminants of coefficients in scikit-learn's shapes.

        Parameters
        ----------
        classes : ndarray, shape (n_classes,)
        coef : ndarray, shape (n_classes, n_features), or (1, n_features) for two classes
        intercept : ndarray, shape (n_classes,), or (1,) for two classes

        Raises
        ------
        InvalidParameterError
            For other shapes, and numbers that are not finite.
        """
        if classes.size == 2 and len(coef) == 1:
            coef = np.concatenate([np.zeros_like(coef), coef])
            intercept = np.append(0.0, intercept)
        if coef.ndim != 2 or (len(coef), *intercept.shape) != (classes.size, classes.size):
            raise InvalidParameterError(
                f"coef has shape {coef.shape} and intercept {intercept.shape}; expected those of "
                f"coef_ and intercept_ for {classes.size} classes"
            )
        if not coef.size or not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            raise InvalidParameterError("coef and intercept have to be finite numbers")
        return cls(classes, coef, intercept)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise as_attribute_error(
            UnsupportedError(
                f"coef and intercept determine no {name}; from_parameters takes means, covariance "
                f"and priors, too"
            )
        )

    @property
    def packed_bytes(self) -> int:
        """Bytes that scoring packs of the model, at most."""
        return self.coefficients.nbytes

    @property
    def about_zero(self) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients and intercepts; those of the second class less the first, of two."""
        return _of_two(self.coefficients, self.intercepts)

    @cached_property
    def _functions(self) -> LinearFunctions:
        return LinearFunctions(self.coefficients, self.intercepts, np.arange(self.n_features))

    def _read(self, X: Any, first_row: int) -> np.ndarray:
        return as_kernel_rows(X, np.dtype(np.float64))

    def _relative_scores(self, X: np.ndarray, margin: float = np.inf) -> np.ndarray:
        return self._functions(X)

    def _joint(self, X: np.ndarray) -> np.ndarray:
        return self.log_densities  # which raises an error

    def _check(self) -> None:
        self._check_functions(self.classes.size)

    def _check_functions(self, n: int) -> None:
        if not n or not self.n_features:
            raise ValueError("it has no functions, or no features")
        check_array("coefficients", self.coefficients, (n, self.n_features), "f8")
        check_array("intercepts", self.intercepts, (n,), "f8")


def about_zero(
    model: GaussianModel, coefficients: np.ndarray, intercepts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return discriminants about `xbar` as linear functions of the rows themselves.

    Parameters
    ----------
    model : GaussianModel
    coefficients : ndarray, shape (n_classes, d)
    intercepts : ndarray, shape (n_classes,)

    Returns
    -------
    coefficients : ndarray, shape (n_classes, n_features); or (1, n_features) for two classes
        The second class less the first one, if there are two.
    intercepts : ndarray, shape (n_classes,), or (1,)
    """
    every = np.zeros((model.classes.size, model.n_features))
    every[:, model.features] = coefficients
    intercepts = intercepts - every @ model.xbar
    return _of_two(every, intercepts)


def _of_two(coefficients: np.ndarray, intercepts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return linear functions; the second less the first, if there are two."""
    if len(intercepts) == 2:
        return np.diff(coefficients, axis=0), np.diff(intercepts)
    return coefficients, intercepts


# --- covariances of the solvers ---------------------------------------------------------------


def estimate_pooled(
    moments: ClassMoments, how: Regularisation, priors: np.ndarray | None, **options: Any
) -> Covariances:
    r"""Estimate one covariance for all classes: :math:`\sum_k \pi_k \Sigma_k`.

    Parameters
    ----------
    moments : ClassMoments
        ``"full"``, or ``"tied"`` without priors.
    how : Regularisation
    priors : ndarray, shape (n_classes,), optional
        Weights of the class covariances; by default the classes' shares of the rows.
    **options
        Options of `estimate`.
    """
    if priors is None or how.shrinkage == AUTO:
        return estimate(moments, "tied", how, priors=priors, **options)
    if how.shrinkage_rule:
        amounts = shrinkage_of(moments, how.shrinkage_rule, structure_of("tied"))
        how = replace(how, shrinkage=float(amounts[0]))
    return average(estimate(moments, "full", how, **options), priors)


def total_covariance(moments: ClassMoments, how: Regularisation, amount: float) -> np.ndarray:
    """Return the covariance of all rows about their common mean, shrunk, shape (d, d).

    Parameters
    ----------
    moments : ClassMoments
    how : Regularisation
    amount : float
        Amount of shrinkage; ``"auto"`` has one of all rows instead, from a second pass over them.
    """
    together = moments.relabel(dict.fromkeys(moments.classes, moments.classes[0]))
    auto = how.shrinkage == AUTO
    if auto:
        fourth = fourth_of_scaled(moments, TOTAL, AUTO)
        together._keep_scaled({TOTAL: fourth.sum(keepdims=True)})
        unit = class_variance(held_sums(together).centred(), total=True)
        amount = float(shrinkage_of(together, AUTO, structure_of("tied"), unit, TOTAL)[0])
    alone = Regularisation(shrinkage=amount, standardize=auto)
    return estimate(together, "tied", alone, drop_constant=False).values[0]


def eigen_directions(
    within: Covariances, total: np.ndarray, how: Regularisation
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return discriminant directions as solver ``"eigen"`` does, with their eigenvalues.

    They solve :math:`(\Sigma_t - \Sigma) w = \lambda \Sigma w`, and come by falling
    :math:`\lambda`.

    Parameters
    ----------
    within : Covariances
        Pooled covariance.
    total : ndarray, shape (n_features, n_features)
        Covariance of all rows about their common mean.
    how : Regularisation

    Returns
    -------
    scalings : ndarray, shape (n_features, d)
        Columns along which the variance within classes is one.
    values : ndarray, shape (d,)
    """
    features = within.features
    root = factorise(within, how)[0][0]
    between = total[np.ix_(features, features)] - within.values[0]
    values, vectors = linalg.eigh(root @ between @ root.T)
    scalings = np.zeros((len(total), features.size))
    scalings[features] = root.T @ vectors[:, ::-1]
    return scalings, values[::-1]
