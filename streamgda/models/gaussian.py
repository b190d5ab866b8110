"""`GaussianModel`: class-conditional Gaussians with priors, which score rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidParameterError, UnsupportedError
from streamgda.kernels import scoring
from streamgda.models.covariance import (
    Covariances,
    Regularisation,
    estimate,
    estimate_total,
    factorise,
    given_covariances,
    root_beside,
    without_features,
)
from streamgda.models.distance_tails import Tail, tail_of
from streamgda.models.model import (
    Model,
    check_classes,
    check_means,
    check_priors,
    copied,
)
from streamgda.moments import ClassMoments, held_sums
from streamgda.moments.covariance_types import Structure, structure_of
from streamgda.moments.feature_maps import Lifting
from streamgda.moments.roots import (
    NO_LABELS,
    Answers,
    Distances,
    LinearFunctions,
    rank,
    valid_roots,
    writable,
)
from streamgda.rows.arrays import as_kernel_rows
from streamgda.rows.labels import find, sorted_labels, with_label
from streamgda.rows.sparse import CompressedRows
from streamgda.runtime.parameters import as_numbers, check_type
from streamgda.storage.format import check_array
from streamgda.storage.saved import State

_FLOAT64 = np.dtype(np.float64)
_LOG_2PI = np.log(2 * np.pi)
_ROUNDING = 2.0**-43  # error of a mean, in standard deviations, from which on it counts


class Computed:
    """An attribute that is None by default, and may be given as a function that computes it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self._name] = value

    def __get__(self, instance: Any, owner: type) -> Any:
        value = None if instance is None else vars(instance)[self._name]
        if callable(value):
            vars(instance)[self._name] = value = value()
        return value


@dataclass(frozen=True)
class GaussianModel(Model):
    r"""Gaussians with priors: :math:`p(x, y=k) = \pi_k N(x; m_k, \Sigma_k)`.

    See documents 000 (eq. 4-5), 002 (eq. 8) and 003 of the field's lecture notes. Scores are
    logarithms, and posteriors are computed by log-sum-exp.

    Rows are scored in float64, with one exception: float32 rows of more than 12 features are
    multiplied by matrices, and by the coefficients of a pooled covariance, in float32, after they
    were centred as if in float64. The error of each entry of :math:`W (x - m)`, whose squares are
    summed to the Mahalanobis distance, is then at most
    :math:`(d + 3)\, 2^{-24} \sum_j |W_{ij}| |x_j - m_j|`, where :math:`W^T W = \Sigma^{-1}`; the
    same holds for a linear score of a pooled covariance, with its coefficients in place of W and
    `xbar` in place of m. No more than eight squares are summed in float32, and these sums in
    float64, so that the distance is off by another :math:`2^{-21}` of it at most. By a pooled
    covariance of more than 96 features, rows are multiplied once for all classes: in the bound of
    these distances, m is the mean of the class means. The distance of rows and means from zero does
    not matter. If float32 overflows, a row is scored in float64.

    Parameters
    ----------
    structure : Structure
        Structure of the covariances.
    classes : ndarray, shape (n_classes,)
        Class labels, sorted.
    priors : ndarray of float64, shape (n_classes,)
        Prior probabilities of the classes.
    means : ndarray of float64, shape (n_classes, n_features)
        NaN for a class without rows, whose prior is zero.
    features : ndarray of int64, shape (d,)
        Features that vary; the others are left out of the density.
    roots : ndarray of float64, shape (groups, d, d) or (groups, d)
        Roots of the inverse covariances; see `streamgda.models.covariance.factorise`.
    log_determinants : ndarray of float64, shape (groups,)
        Log-determinants of the covariances, in the directions that were kept.
    feature_names : tuple of str, optional
        Names of the features. Rows with other names are refused; those without names fit any.
    feature_map : Lifting, optional
        Map that is applied to rows before they are scored; the means are those of mapped rows.
    means_low : ndarray of float64, shape (n_classes, n_features), optional
        Rounding errors of the means, which count where a mean is more than about a thousand
        standard deviations from zero. Without them, the means are exact.
    degrees, unbiased : ndarray of float64, shape (n_classes,), optional
        Degrees of freedom of the covariance of each class, and factors that make its squared
        distances unbiased, for p-values. Without them, means and covariances count as known. Given
        as functions, they are computed when they are first read.

    Examples
    --------
    >>> from streamgda import QuadraticDiscriminantAnalysis
    >>> X, y = [[1.0], [3.0], [6.0], [9.0]], [0, 0, 1, 1]
    >>> model = QuadraticDiscriminantAnalysis().fit(X, y).model_
    >>> model.means, model.priors
    (array([[2. ],
           [7.5]]), array([0.5, 0.5]))
    """

    _kind = "model"
    _shown = "priors", "means"
    _by_blas = False

    structure: Structure
    classes: np.ndarray
    priors: np.ndarray
    means: np.ndarray
    features: np.ndarray
    roots: np.ndarray
    log_determinants: np.ndarray
    feature_names: tuple[str, ...] | None = field(default=None, kw_only=True)
    feature_map: Lifting | None = field(default=None, kw_only=True)
    means_low: np.ndarray | None = field(default=None, kw_only=True)
    _: KW_ONLY
    degrees: Any = Computed()
    unbiased: Any = Computed()

    def _description(self) -> dict[str, Any]:
        constant = self.n_features - self.features.size
        kind = self.structure.name
        return {**super()._description(), "covariance_type": kind, "constant_features": constant}

    @classmethod
    def from_moments(
        cls,
        moments: ClassMoments,
        covariance_type: str,
        how: Regularisation,
        priors: Any = None,
    ) -> Self:
        """Estimate the model from moments.

        Parameters
        ----------
        moments : ClassMoments
            Moments of rows.
        covariance_type : str
            A covariance type that the moments determine.
        how : Regularisation
            Regularisation of the covariances.
        priors : array-like, shape (n_classes,), optional
            In the order of the sorted classes; by default the classes' shares of the rows.

        Returns
        -------
        GaussianModel
            Model of all classes, also of those without rows.

        Raises
        ------
        InvalidDataError
            If no class has rows.
        InvalidParameterError
            For priors that do not fit.
        SingularCovarianceError
            For covariances without an inverse.

        Examples
        --------
        >>> from streamgda import ClassMoments, GaussianModel
        >>> from streamgda.models.covariance import Regularisation
        >>> moments = ClassMoments().update([[1.0], [3.0], [6.0], [9.0]], [0, 0, 1, 1])
        >>> GaussianModel.from_moments(moments, "diag", Regularisation()).predict([[2.0], [7.0]])
        array([0, 1])
        """
        check_type("moments", moments, ClassMoments, "ClassMoments")
        count = moments.class_count
        check_classes(moments.classes, count)
        shares = check_priors(priors, moments.classes, count)
        covariances = estimate(moments, covariance_type, how, priors=priors)
        names, mapped = moments.feature_names, moments._lifting
        return cls.of(
            covariances, moments.means, shares, how, feature_names=names, feature_map=mapped
        )

    @classmethod
    def from_parameters(
        cls,
        means: Any,
        covariances: Any,
        priors: Any,
        classes: Any,
        *,
        covariance_type: str = "full",
    ) -> Self:
        """Return the model of given means, covariances and priors, from a file or a paper.

        Parameters
        ----------
        means : array-like, shape (n_classes, n_features)
            NaN for a class without rows.
        covariances : array-like
            Covariances in the shape of `ClassMoments.covariance`; (n_classes, n_features,
            n_features) for ``"full"``.
        priors : array-like, shape (n_classes,)
            Priors of the classes.
        classes : array-like, shape (n_classes,)
            Class labels, sorted.
        covariance_type : str
            Covariance type.

        Returns
        -------
        GaussianModel
            Model that scores rows; features without variance in all classes are left out.

        Raises
        ------
        InvalidParameterError
            For numbers that do not fit each other.
        SingularCovarianceError
            If a covariance has no inverse.

        See Also
        --------
        QuadraticDiscriminantAnalysis.from_parameters : An estimator, which draws samples, too.

        Examples
        --------
        >>> from streamgda import GaussianModel
        >>> means, covariances, priors = [[2.0], [7.0]], [[[1.0]], [[4.0]]], [0.5, 0.5]
        >>> model = GaussianModel.from_parameters(means, covariances, priors, ["ant", "bee"])
        >>> model.predict([[3.0], [4.0], [9.0]])
        array(['ant', 'bee', 'bee'], dtype='<U3')
        """
        labels, structure = sorted_labels(classes), structure_of(covariance_type)
        expected = "an array of numbers"
        means = as_numbers("means", means, expected)
        values = as_numbers("covariances", covariances, expected)
        every = given_covariances(structure, labels, means, values)
        shares = check_priors(priors, labels, every.count)
        return cls.of(without_features(every, None), means, shares, Regularisation())

    @classmethod
    def of(
        cls,
        covariances: Covariances,
        means: np.ndarray,
        priors: np.ndarray,
        how: Regularisation,
        **attributes: Any,
    ) -> Self:
        """Return the model of classes with given covariances.

        Parameters
        ----------
        covariances : Covariances
            Covariances of the features that vary, whose memory becomes the model's.
        means : ndarray, shape (n_classes, n_features)
            Class means.
        priors : ndarray, shape (n_classes,)
            Priors of the sorted classes.
        how : Regularisation
            Determines which covariances are singular, and whether these are refused.
        **attributes
            Names of the features, and attributes that subclasses add.

        Returns
        -------
        GaussianModel
            Model of all classes.

        Raises
        ------
        SingularCovarianceError
            For covariances without an inverse.

        Examples
        --------
        >>> import numpy as np
        >>> from streamgda import ClassMoments, GaussianModel
        >>> from streamgda.models.covariance import Regularisation, estimate
        >>> moments = ClassMoments().update([[1.0], [3.0], [6.0], [9.0]], [0, 0, 1, 1])
        >>> how, priors = Regularisation(), np.array([0.9, 0.1])
        >>> tied = estimate(moments, "tied", how)
        >>> GaussianModel.of(tied, moments.means, priors, how).predict([[4.5], [5.0]])
        array([0, 0])
        """
        attributes["means_low"] = _errors_that_count(covariances)
        roots, log_determinants = factorise(covariances, how, overwrite=True)
        if covariances.precision is not None:
            # Predictions need neither. The values of the covariances are not kept for them.
            structure, precision = covariances.structure, covariances.precision
            attributes["degrees"] = lambda: precision().of_classes(structure)[0]
            attributes["unbiased"] = lambda: precision().of_classes(structure)[1]
        return cls(
            covariances.structure,
            covariances.classes,
            priors,
            means,
            covariances.features,
            roots,
            log_determinants,
            **attributes,
        )

    # --- derived attributes -------------------------------------------------------------------

    @property
    def packed_bytes(self) -> int:
        """Bytes that scoring packs of the model, at most."""
        return self.roots.nbytes if self.structure.matrix else 2 * self.means.nbytes

    @cached_property
    def xbar(self) -> np.ndarray:
        """Mean of the class means, weighted with the priors, shape (n_features,)."""
        seen = self.priors > 0
        return np.asarray(self.priors[seen] @ self.means[seen])

    @cached_property
    def _mean_gaps(self) -> np.ndarray:
        """Class means less `xbar`, of the features in the density; zeros without rows."""
        return gaps_to(self, self.xbar)

    @cached_property
    def _class_means(self) -> np.ndarray:
        """Class means of the features in the density; `xbar` for classes without rows."""
        means = self._varying(self.means)
        without = np.isnan(means)
        return np.where(without, self._centre, means) if np.count_nonzero(without) else means

    @cached_property
    def _centre(self) -> np.ndarray:
        """`xbar` of the features in the density."""
        return self._varying(self.xbar[None])[0]

    def _varying(self, means: np.ndarray) -> np.ndarray:
        """Return means of the features in the density."""
        return means.take(self.features, axis=1)

    @cached_property
    def _mean_terms(self) -> LinearFunctions:
        r"""Linear functions of rows less `xbar` that add the rounding errors of the means.

        With the error :math:`e_k` of a mean, a squared distance changes by :math:`-2 (x - m_k)^T
        \Sigma_k^{-1} e_k + e_k^T \Sigma_k^{-1} e_k`.
        """
        assert self.means_low is not None
        errors, solve = self._varying(self.means_low), self.structure.solve
        groups = self.structure.groups(len(errors))
        solved = np.array([solve(self.roots[g], e) for g, e in zip(groups, errors, strict=True)])
        gaps = self._class_means - self._centre
        return self._functions(-2 * solved, ((2 * gaps + errors) * solved).sum(axis=1))

    @cached_property
    def _read_features(self) -> np.ndarray:
        """`features` as kernels read them."""
        return writable(self.features)

    def _distances_to(self, centres: np.ndarray) -> Distances:
        return self.structure.packed(self.roots, self._read_features, centres)

    @cached_property
    def _from_means(self) -> Distances:
        return self._distances_to(self._class_means)

    @cached_property
    def _from_centre(self) -> Distances:
        return self._distances_to(self._centre[None])

    def _functions(self, vectors: np.ndarray, offsets: np.ndarray) -> LinearFunctions:
        """Return linear functions of rows less `xbar`."""
        precisions = None if self.structure.matrix else self.roots
        return LinearFunctions(vectors, offsets, self._read_features, self._centre, precisions)

    @cached_property
    def _linear_functions(self) -> LinearFunctions:
        return self._functions(*self.linear)

    @cached_property
    def _discriminant_functions(self) -> LinearFunctions:
        return self._functions(*self.discriminants)

    @property
    def _takes_sparse(self) -> bool:
        return not self.structure.matrix

    @cached_property
    def _row_products(self) -> int:
        d, k = self.features.size, self.classes.size
        of_matrices = self.structure.matrix and self.structure.per_class
        return k * d * (d + 1) // 2 if of_matrices else self.n_features * k

    @cached_property
    def linear(self) -> tuple[np.ndarray, np.ndarray]:
        r"""Coefficients (K, d) and intercepts (K,) about `xbar`, for a pooled covariance.

        .. math:: a_k(x) = (m_k - \bar x)^T \Sigma^{-1} (x - \bar x)
                  - (m_k - \bar x)^T \Sigma^{-1} (m_k - \bar x) / 2 + \ln \pi_k

        This is the joint log-likelihood up to a term that all classes share.
        """
        gaps = self._mean_gaps
        coefficients = self._solved(gaps)
        return coefficients, self.log_priors - 0.5 * (gaps * coefficients).sum(axis=1)

    @cached_property
    def discriminants(self) -> tuple[np.ndarray, np.ndarray]:
        """`linear` without the effect of the rounding error of `xbar` on all classes."""
        return self._linear_about(self._xbar_low)

    @cached_property
    def _xbar_low(self) -> np.ndarray:
        """Rounding error of `xbar`, of the features in the density; zeros if it does not count."""
        if self.means_low is None:
            return np.zeros(self.features.size)
        return np.asarray(self.priors @ self._mean_gaps)

    def _linear_about(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the functions that are `linear` for a point, given less `xbar`, in its place."""
        coefficients, intercepts = self.linear
        shared = self._solved(point[None])[0]
        return coefficients - shared, intercepts + 0.5 * float(point @ shared)

    def _solved(self, gaps: np.ndarray) -> np.ndarray:
        """Return the products of class means less `xbar` and the inverse of a pooled covariance."""
        return self.structure.solve(self.roots[0], gaps)

    @cached_property
    def rank(self) -> int:
        """Number of directions in the density: of the features that vary, less those dropped."""
        pooled = not self.structure.per_class
        return rank(self.roots[0]) if pooled else self.features.size

    @cached_property
    def _constants(self) -> np.ndarray:
        """Logarithms of the densities at the means, shape (groups,)."""
        return -0.5 * (self.rank * _LOG_2PI + self.log_determinants)

    @cached_property
    def _tails(self) -> list[tuple[Tail | None, float]]:
        """Distribution of the squared distances to each class, and a factor of these before.

        The distribution is None with too few degrees of freedom.
        """
        degrees, factors = np.full(self.classes.size, np.inf), np.ones(self.classes.size)
        if self.degrees is not None and self.unbiased is not None:
            degrees, factors = self.degrees, self.unbiased
        tails = (tail_of(self.structure, self.rank, nu) for nu in degrees.tolist())
        return list(zip(tails, factors.tolist(), strict=True))

    # --- scores of a chunk of rows ------------------------------------------------------------

    def _read(self, X: Any, first_row: int) -> Any:
        sparse = type(X) is CompressedRows
        return as_kernel_rows(X, _FLOAT64) if sparse else super()._read(X, first_row)

    def _distances(
        self, X: np.ndarray, scale: float, offsets: np.ndarray, margin: float = np.inf
    ) -> np.ndarray:
        """Return squared distances to the class means, scaled; see `Distances.scores`."""
        if self.means_low is None:
            return self._from_means.scores(X, scale, offsets, margin)
        scores = self._from_means.scores(X, scale, offsets)
        scores += scale * self._mean_terms(X)
        return scores

    def _to_means(self, X: np.ndarray) -> np.ndarray:
        """Return squared Mahalanobis distances to the class means, shape (n_classes, n_rows)."""
        return self._distances(X, 1.0, np.zeros(self.classes.size))

    @cached_property
    def _offsets(self) -> np.ndarray:
        """Scores of the classes at their means."""
        return np.asarray(self._constants + self.log_priors)

    def _relative_scores(self, X: np.ndarray, margin: float = np.inf) -> np.ndarray:
        if self.structure.per_class:
            return self._distances(X, -0.5, self._offsets, margin)
        return self._linear_functions(X)

    @property
    def _degree(self) -> int:  # type: ignore[override]
        return 1 + self.structure.per_class

    def _shared_scores(self, X: np.ndarray) -> np.ndarray:
        """Return the term that all classes share, if the scores are linear, shape (1, n_rows)."""
        return self._from_centre.scores(X, -0.5, self._constants)

    def _joint(self, X: np.ndarray) -> np.ndarray:
        scores = self._relative_scores(X)
        if not self.structure.per_class:
            scores += self._shared_scores(X)
        return scores

    def _write(self, X: Any, out: Answers, temperature: float = 1.0) -> bool | None:
        if not self.structure.per_class:
            return self._linear_functions.write(X, out, temperature)
        scale, offsets = -0.5 / temperature, self._offsets
        offsets = offsets if temperature == 1.0 else offsets / temperature
        return (
            None if self.means_low is not None else self._from_means.write(X, scale, offsets, out)
        )

    # --- scores of arrays ---------------------------------------------------------------------

    def relative_scores(self, X: Any, first_row: int = 0, out: Any = None) -> np.ndarray:
        r"""Return discriminants: linear ones of a pooled covariance, else joint log-likelihoods.

        They leave out the term :math:`-(d/2) \ln 2\pi`.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        out : ndarray, optional
            Array in rows that gets the result, of its shape and type, and which `X` does not share.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Discriminants.

        Raises
        ------
        InvalidDataError
            For rows that cannot be scored; see `predict`.

        Examples
        --------
        >>> from streamgda import LinearDiscriminantAnalysis
        >>> X, y = [[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1]
        >>> model = LinearDiscriminantAnalysis().fit(X, y).model_
        >>> scores = model.relative_scores([[5.0]])
        >>> (scores[:, 1] - scores[:, 0]).round(3), model.log_odds([[5.0]]).round(3)
        (array([2.5]), array([2.5]))
        """
        if self.structure.per_class:
            scores = super().relative_scores(X, first_row, out)
            scores += 0.5 * self.features.size * math.log(2 * math.pi)
            return scores
        functions = self._discriminant_functions

        def write(rows: Any, out: np.ndarray) -> bool | None:
            return functions.write(rows, (NO_LABELS, out, False))

        return self._by_class(X, functions, copied, first_row, out, write=write)

    def project(
        self, X: Any, first_row: int = 0, *, directions: np.ndarray, centred: bool = True
    ) -> np.ndarray:
        """Return rows, most often less `xbar`, along directions.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        directions : ndarray, shape (n_features, n_directions)
            Directions, one per column.
        centred : bool
            Subtract `xbar` from the rows.

        Returns
        -------
        ndarray, shape (n_rows, n_directions)
            Coordinates along the directions.

        Raises
        ------
        InvalidDataError
            For rows that cannot be scored; see `predict`.

        Examples
        --------
        >>> import numpy as np
        >>> from streamgda import LinearDiscriminantAnalysis
        >>> X, y = [[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1]
        >>> model = LinearDiscriminantAnalysis().fit(X, y).model_
        >>> model.project([[5.0]], directions=np.array([[2.0]]))
        array([[1.]])
        """
        used = directions[self.features]
        point = self._xbar_low if centred else -self._centre
        functions = self._functions(used.T, -(point @ used))
        return self._score(X, functions, copied, first_row, columns=used.shape[1])

    # --- rows with gaps -----------------------------------------------------------------------

    @property
    def _used_features(self) -> np.ndarray:
        """Features of the density; rows without any of them have none."""
        return self.features

    def marginal(self, observed: Any) -> Self:
        """Return the model of some of the features, the others integrated out.

        Parameters
        ----------
        observed : array-like of int
            Numbers of the features, in order.

        Returns
        -------
        GaussianModel
            Model of rows of these features. It has no p-values.

        Raises
        ------
        UnsupportedError
            If the density leaves out directions, as that of `LinearDiscriminantAnalysis` does where
            features depend on each other.

        Examples
        --------
        >>> import numpy as np
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> X, y = np.array([[1.0, 2], [3, 5], [4, 3], [6, 1], [9, 2], [8, 4]]), [0, 0, 0, 1, 1, 1]
        >>> qda = QuadraticDiscriminantAnalysis().fit(X, y)
        >>> alone = QuadraticDiscriminantAnalysis().fit(X[:, :1], y)
        >>> np.allclose(qda.model_.marginal([0]).posterior(X[:, :1]), alone.predict_proba(X[:, :1]))
        True
        """
        if self.rank < self.features.size:
            raise UnsupportedError(
                f"features depend on each other, and the density leaves out "
                f"{self.features.size - self.rank} directions: it has no marginal; give a shrinkage"
            )
        at, names, low = np.asarray(observed), self.feature_names, self.means_low
        kept = np.flatnonzero(np.isin(self.features, at))
        roots = np.ascontiguousarray(self.structure.marginal(self.roots, kept))
        return replace(
            self,
            means=self.means[:, at],
            features=np.searchsorted(at, self.features[kept]),
            roots=roots,
            log_determinants=self.structure.log_determinants(roots),
            feature_names=None if names is None else tuple(names[j] for j in at),
            means_low=None if low is None else low[:, at],
            degrees=None,
            unbiased=None,
        )

    # --- distances and outliers ---------------------------------------------------------------

    def background(
        self, moments: ClassMoments, how: Regularisation, total: Covariances | None = None
    ) -> Self:
        r"""Return one Gaussian of all rows, regardless of class, for `relative_mahalanobis`.

        Its mean and its covariance are those of all rows, regularised as those of a class. In
        place of a pooled covariance, it has one of the same kind; directions that the density
        leaves out are left out here too.

        Parameters
        ----------
        moments : ClassMoments
            The moments from which this model was estimated.
        how : Regularisation
            Regularisation of the covariance.
        total : Covariances, optional
            Covariance of all rows, by default estimated from the moments.

        Returns
        -------
        GaussianModel
            Model of one class, which has the label of the first one here.

        Raises
        ------
        SingularCovarianceError
            If the covariance is singular to rounding, beside those of the classes.

        Examples
        --------
        >>> from streamgda import ClassMoments, GaussianModel
        >>> from streamgda.models.covariance import Regularisation
        >>> moments = ClassMoments().update([[1.0], [3.0], [6.0], [9.0]], [0, 0, 1, 1])
        >>> model = GaussianModel.from_moments(moments, "full", Regularisation())
        >>> model.background(moments, Regularisation()).means
        array([[4.75]])
        """
        if total is None:
            total = estimate_total(moments, self.structure.name, how)
        largest = int(self.priors.argmax())
        if self.structure.matrix:
            root = self.roots[self.structure.group(largest)]
            roots = root_beside(root, total.values[0])[None]
        else:
            roots, _ = factorise(total, how)
        sums = held_sums(moments).without_products()
        everyone = sums.placed(np.zeros(sums.count.size, np.int64), 1)
        return replace(
            self,
            classes=self.classes[:1],
            priors=np.ones(1),
            means=everyone.mean,
            means_low=None if self.means_low is None else everyone.mean_low,
            features=total.features,
            roots=roots,
            log_determinants=self.structure.log_determinants(roots),
            degrees=None,
            unbiased=None,
        )

    def rejection_limits(self, reject: float) -> np.ndarray:
        """Return the squared distance to each class beyond which p-values are below `reject`.

        Parameters
        ----------
        reject : float
            Least p-value of rows that are not rejected.

        Returns
        -------
        ndarray, shape (n_classes,)
            Squared distances; NaN for a class without rows.

        Raises
        ------
        InvalidParameterError
            If a class has too few rows for p-values.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> model = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1]).model_
        >>> model.rejection_limits(0.05).round()
        array([484., 484.])
        """
        limits = np.full(self.classes.size, np.nan)
        for k in np.flatnonzero(self.priors > 0):
            tail, factor = self._tails[k]
            if tail is None:
                assert self.degrees is not None
                raise InvalidParameterError(
                    f"reject={reject:g} needs p-values, which class {self.classes[k]!s} does not "
                    f"have: its covariance has {self.degrees[k]:.3g} degrees of freedom, too few "
                    f"for {self.rank} features. Give more rows of it, or use a covariance_type "
                    f"with fewer parameters ('tied' or 'diag')"
                )
            limits[k] = tail.limit(reject) / factor
        return limits

    def predict_or_reject(
        self, X: Any, first_row: int = 0, *, reject: float, label: Any = None
    ) -> np.ndarray:
        """Return each row's most probable class, or a label for rows too far from that class.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        reject : float
            A row is rejected if its p-value (see `p_values`) for the class is below this.
        label : label, optional
            Label for rejected rows; see `with_label` for its kind.

        Returns
        -------
        ndarray, shape (n_rows,)
            Class labels, and `label` for rejected rows.

        Raises
        ------
        InvalidDataError
            For rows that cannot be scored; see `predict`.
        InvalidParameterError
            If a class has too few rows for p-values.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> model = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1]).model_
        >>> model.predict_or_reject([[2.0], [500.0]], reject=0.01, label=-1)
        array([ 0, -1])
        """
        labels, n = with_label(self.classes, "label", label), self.classes.size
        limits = self.rejection_limits(reject)

        def scores_of(rows: np.ndarray) -> np.ndarray:
            scores = self._relative_scores(rows, margin=0.0)
            if self.structure.per_class:
                return scores
            return np.vstack([scores, self._shared_scores(rows)])

        def finish(scores: np.ndarray, out: np.ndarray) -> None:
            codes = np.empty(out.size, np.int64)
            scoring.largest(scores[:n], codes)
            best = scores[codes, np.arange(out.size)] + scores[n:].sum(axis=0)
            best -= self._offsets[codes]  # minus half a squared distance
            np.take(labels, codes, out=out, mode="clip")
            out[~(-2 * best <= limits[codes])] = labels[-1]  # NaN far away, where scores overflow

        return self._score(X, scores_of, finish, first_row, dtype=labels.dtype)

    def mahalanobis(self, X: Any, first_row: int = 0, out: Any = None) -> np.ndarray:
        r"""Return :math:`(x-m_k)^T \Sigma_k^{-1} (x-m_k)`.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        out : ndarray, optional
            Array in rows that gets the result, of its shape and type, and which `X` does not share.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Squared Mahalanobis distances; NaN for a class without rows.

        Raises
        ------
        InvalidDataError
            For rows that cannot be scored; see `predict`.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> model = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1]).model_
        >>> model.mahalanobis([[2.0], [5.0]]).round(3)
        array([[ 0., 25.],
               [ 9.,  4.]])
        """
        return self._by_mean(X, self._to_means, copied, first_row, out)

    def own_mahalanobis(self, X: Any, first_row: int = 0, *, codes: np.ndarray) -> np.ndarray:
        """Return the squared distance of each row to the mean of its own class.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        codes : ndarray of int, shape (n_rows,)
            Numbers of the classes of the rows.

        Returns
        -------
        ndarray, shape (n_rows,)
            Squared Mahalanobis distances; NaN for a class without rows.

        Raises
        ------
        InvalidDataError
            For rows that cannot be scored; see `predict`.

        Examples
        --------
        >>> import numpy as np
        >>> from streamgda import GaussianNB
        >>> model = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1]).model_
        >>> model.own_mahalanobis([[2.0], [5.0]], codes=np.array([0, 1])).round(3)
        array([0., 4.])
        """
        return self._score(X, self._to_own_means, copied, first_row, None, codes)

    def _to_own_means(self, X: Any, codes: np.ndarray) -> np.ndarray:
        """Return squared distances of rows to the means of their own classes."""
        if type(X) is CompressedRows:
            every: Any = self._to_means(X)  # type: ignore[arg-type]
            return every[codes, np.arange(codes.size)]
        out, order = np.empty(codes.size), np.argsort(codes, kind="stable")
        classes, starts = np.unique(codes[order], return_index=True)
        low = np.zeros_like(self.means) if self.means_low is None else self.means_low
        low = self._varying(low)
        for k, rows in zip(classes, np.split(order, starts[1:]), strict=True):
            gaps = X[np.ix_(rows, self.features)] - self._class_means[k] - low[k]
            root = self.roots[self.structure.group(k)]
            out[rows] = np.square(gaps @ root.T).sum(axis=1) if root.ndim == 2 else gaps**2 @ root
            if np.isnan(self.means[k, 0]):
                out[rows] = np.nan
        return out

    def _own_densities(self, X: Any, codes: np.ndarray) -> np.ndarray:
        constants = self._constants[self.structure.groups(self.classes.size)[codes]]
        return np.asarray(constants - 0.5 * self._to_own_means(X, codes))

    def relative_mahalanobis(
        self, X: Any, first_row: int = 0, *, background: GaussianModel
    ) -> np.ndarray:
        r"""Return the Mahalanobis distances less that to one Gaussian of all rows.

        .. math:: (x-m_k)^T \Sigma_k^{-1} (x-m_k) - (x-m_0)^T \Sigma_0^{-1} (x-m_0)

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        background : GaussianModel
            The Gaussian of all rows; see `GaussianModel.background`.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Differences of squared distances; NaN for a class without rows.

        Raises
        ------
        InvalidParameterError
            If the background is no Gaussian of one class, or has other features.

        Examples
        --------
        >>> from streamgda import ClassMoments, GaussianModel
        >>> from streamgda.models.covariance import Regularisation
        >>> moments = ClassMoments().update([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> model = GaussianModel.from_moments(moments, "tied", Regularisation())
        >>> background = model.background(moments, Regularisation())
        >>> model.relative_mahalanobis([[2.0], [20.0]], background=background).round(1)
        array([[ -0.9,  24.1],
               [290.9, 135.9]])
        """
        check_type("background", background, GaussianModel, "a GaussianModel of one class")
        if background.classes.size != 1 or not np.array_equal(background.features, self.features):
            raise InvalidParameterError(
                f"the background has {background.classes.size} class(es) and "
                f"{background.features.size} features that vary; expected one class and the "
                f"{self.features.size} features of this model. Pass what its method background "
                f"returns"
            )

        def scores_of(rows: np.ndarray) -> np.ndarray:
            return self._to_means(rows) - background._to_means(rows)

        return self._by_mean(X, scores_of, copied, first_row)

    def p_values(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the share of a class's rows that are further from its mean than the row.

        The distribution of the squared distances of Gaussian rows that the model has not seen
        takes into account that means and covariances are estimated; see
        `streamgda.models.distance_tails`. Where nothing is known of the estimation, it is
        chi-square, with as many degrees of freedom as the density has directions.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            P-values; NaN for a class without rows, or with too few of them.

        Raises
        ------
        InvalidDataError
            For rows that cannot be scored; see `predict`.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> model = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1]).model_
        >>> model.p_values([[2.0], [5.0]]).round(4)
        array([[1.    , 0.2123],
               [0.3333, 0.4544]])
        """
        tails = self._tails

        def finish(distances: np.ndarray, out: np.ndarray) -> None:
            for column, values, (tail, factor) in zip(out.T, distances, tails, strict=True):
                column[:] = np.nan if tail is None else tail.beyond(values * factor)

        return self._by_mean(X, self._to_means, finish, first_row)

    def _by_mean(self, *arguments: Any) -> np.ndarray:
        """Score rows as `_by_class` does; NaN for classes without rows."""
        values = self._by_class(*arguments)
        without = np.isnan(self.means[:, 0])
        values[:, without] = np.nan
        return values

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        attributes, arrays = super()._state()
        arrays["roots"] = self.structure.pack(self.roots)
        return {"covariance_type": self.structure.name, **attributes}, arrays

    @classmethod
    def _restored(
        cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        structure = structure_of(attributes["covariance_type"])
        own = {"structure": structure, "roots": structure.unpack(arrays["roots"])}
        return super()._restored(attributes, arrays) | own

    def _check(self) -> None:
        """Raise ValueError unless the attributes fit each other and determine densities."""
        k, d = self.classes.size, self.features.size
        if not k or not d:
            raise ValueError("it has no classes, or no features")
        shape = self.structure.n_groups(k), *self.structure.shape(d)
        check_array("features", self.features, (d,), "i8", least=0, most=self.n_features - 1)
        if not (np.diff(self.features) > 0).all():
            raise ValueError("its features are not in ascending order")
        check_array("roots", self.roots, shape, "f8")
        check_array("log_determinants", self.log_determinants, shape[:1], "f8")
        seen = check_means("means", self.means, (k, self.n_features))
        if self.means_low is not None:
            check_array("means_low", self.means_low, (k, self.n_features), "f8")
            if (np.abs(self.means_low) > 1e-9 * np.abs(self.means)).any():
                raise ValueError("means_low is more than the rounding error of means")
        check_array("priors", self.priors, (k,), "f8")
        check_priors(self.priors, self.classes, seen, normalised=False)
        names = ("degrees", "unbiased")
        for name in names if any(getattr(self, each) is not None for each in names) else ():
            values = np.asarray(getattr(self, name))
            check_array(name, np.where(values == np.inf, 0.0, values), (k,), "f8", least=0)
        if not valid_roots(self.roots):
            raise ValueError("its roots are not positive")
        if not np.allclose(self.structure.log_determinants(self.roots), self.log_determinants):
            raise ValueError("its log-determinants are not those of its roots")


def gaps_to(model: GaussianModel, origin: np.ndarray) -> np.ndarray:
    """Return class means less a point, shape (n_classes, d); zeros for classes without rows."""
    gaps = model.means - origin
    if model.means_low is not None:
        gaps += model.means_low
    gaps = gaps[:, model.features]
    gaps[np.isnan(gaps)] = 0.0
    return gaps


def joint_log_likelihood(model: GaussianModel, moments: ClassMoments) -> tuple[float, float]:
    r"""Return the sum of :math:`\ln p(x_i, y_i)` over rows, and their number.

    The rows themselves are not needed. The n rows of class k, with mean m' and scatter S', add

    .. math:: n \ln \pi_k - \frac n2 (d \ln 2\pi + \ln|\Sigma_k|)
              - \frac12 \mathrm{tr}\, \Sigma_k^{-1} (S' + n (m' - m_k)(m' - m_k)^T)

    Parameters
    ----------
    model : GaussianModel
    moments : ClassMoments
        Moments of rows that the model may not have seen: ``"full"``, or ``"diag"`` if the
        covariances of the model are diagonal. Rows of classes that the model does not know are
        left out.

    Returns
    -------
    total, weight : float
    """
    sums, structure = held_sums(moments).centred(), model.structure
    codes = find(moments.classes, model.classes)
    known = (codes >= 0) & (sums.count > 0) & ~np.isnan(model.means[codes, 0])
    known, codes = np.flatnonzero(known), codes[known]
    count, groups = sums.count[known].astype(float), structure.groups(model.classes.size)[codes]
    gaps = (sums.mean[known] - model.means[codes]) + sums.mean_low[known]
    if model.means_low is not None:
        gaps -= model.means_low[codes]
    gaps = gaps[:, model.features]
    total = float(count @ model._offsets[codes])
    part = np.empty((1, *structure.shape(model.features.size)))
    for g in np.unique(groups):
        root, own, scatter = model.roots[g], groups == g, np.zeros(part.shape[1:])
        for k in known[own]:
            held = structure.of_kind(sums.structure, sums.packed[k : k + 1])
            structure.select_varying(held, model.features, part)
            scatter += part[0]
        if structure.matrix:
            squares = np.square(gaps[own] @ root.T).sum(axis=1)
            trace = np.vdot(root @ scatter, root)
        else:
            squares, trace = gaps[own] ** 2 @ root, root @ scatter
        total -= 0.5 * float(count[own] @ squares + trace)
    return total, float(count.sum())


def _errors_that_count(covariances: Covariances) -> np.ndarray | None:
    """Return the rounding errors of the means; None if they are nothing beside the deviations."""
    structure, low = covariances.structure, covariances.means_low
    variances = structure.diagonal(covariances.values)
    if not structure.per_class:
        variances = variances[structure.groups(len(low))]
    errors = low.take(covariances.features, axis=1)
    counts = np.count_nonzero(errors * errors > _ROUNDING**2 * variances)
    return low.copy() if counts else None  # sums change when rows are added
