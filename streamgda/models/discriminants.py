"""Linear and quadratic discriminants: the coefficients of a model's predictions as formulas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import linalg, special

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.models.gaussian import GaussianModel, gaps_to
from streamgda.models.scores import check_width, checked_names
from streamgda.rows.labels import as_labels, find
from streamgda.rows.validity import as_matrix
from streamgda.runtime.parameters import as_numbers, check_type, shown


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
            Gaussian estimator, fitted, or its model.
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
        model: Any = fitted if isinstance(fitted, type) else getattr(fitted, "model_", fitted)
        check_type("fitted", model, GaussianModel, "a Gaussian estimator, fitted, or its model")
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
        X = as_matrix(checked_names(X, self.model.feature_names))
        check_width(X, self.model.n_features)
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
            Gaussian estimator, fitted, or its model.
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

    .. math:: A_k = -\Sigma_k^{-1} / 2, \quad b_k = \Sigma_k^{-1} (m_k - o), \quad
              c_k = -(m_k - o)^T \Sigma_k^{-1} (m_k - o) / 2 - \ln |\Sigma_k| / 2 + \ln \pi_k

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
        inverse = model.structure.inverse(model.roots[group])
        A = np.zeros((model.n_features, model.n_features))
        A[np.ix_(model.features, model.features)] = -0.5 * inverse
        c = -0.5 * (float(gap @ direction) + model.log_determinants[group])
        return Quadratic(
            A, self._all_features(direction), float(c + model.log_priors[number]), self.origin
        )
