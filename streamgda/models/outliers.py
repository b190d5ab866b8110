"""`OutlierScores`: distances of rows to the Gaussians of a model, and what follows from them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.kernels import scoring
from streamgda.models.base import Model, length
from streamgda.models.covariance import (
    Covariances,
    Regularisation,
    estimate_total,
    factorise,
    root_beside,
)
from streamgda.models.distance_tails import Tail, tail_of
from streamgda.models.scores import Finish, copied
from streamgda.moments import ClassMoments
from streamgda.moments.class_state import held_sums
from streamgda.moments.structures import Structure
from streamgda.rows.labels import with_label
from streamgda.runtime.parameters import check_type


class OutlierScores(Model):
    """Base of `GaussianModel`: distances, p-values and the rejection of rows that are far away."""

    structure: Structure
    means: np.ndarray
    features: np.ndarray
    roots: np.ndarray
    log_determinants: np.ndarray
    means_low: np.ndarray | None
    degrees: np.ndarray | None
    unbiased: np.ndarray | None

    @abstractmethod
    def _distances(self, X: np.ndarray, *scaling: Any) -> np.ndarray:
        """Return squared Mahalanobis distances to centres, scaled; see `Structure.scores`."""

    @abstractmethod
    def _shared_scores(self, X: np.ndarray) -> np.ndarray:
        """Return the term that all classes share, if the scores are linear, shape (1, n_rows)."""

    @property
    @abstractmethod
    def _class_means(self) -> np.ndarray:
        """Class means of the features in the density, shape (n_classes, d)."""

    @cached_property
    def rank(self) -> int:
        """Number of directions in the density: of the features that vary, less those dropped."""
        pooled = not self.structure.per_class
        return self.structure.rank(self.roots[0]) if pooled else self.features.size

    @cached_property
    def _constants(self) -> np.ndarray:
        """Logarithms of the densities at the means, shape (groups,)."""
        return -0.5 * (self.rank * np.log(2 * np.pi) + self.log_determinants)

    def _to_means(self, X: np.ndarray) -> np.ndarray:
        """Return squared Mahalanobis distances to the class means, shape (n_classes, n_rows)."""
        return self._distances(X, self._class_means, 1.0, np.zeros(self.classes.size))

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
        sums, centre = held_sums(moments).without_products(), self.means[largest]
        shares = sums.count / sums.count.sum()
        gap = (shares[:, None] * ((sums.mean - centre) + sums.mean_low)).sum(axis=0)
        mean = centre + gap
        return replace(  # type: ignore[type-var]  # subclasses are dataclasses
            self,
            classes=self.classes[:1],
            priors=np.ones(1),
            means=mean[None],
            means_low=None if self.means_low is None else ((centre - mean) + gap)[None],
            features=total.features,
            roots=roots,
            log_determinants=self.structure.log_determinants(roots),
            degrees=None,
            unbiased=None,
        )

    @cached_property
    def _tails(self) -> list[tuple[Tail | None, float]]:
        """Distribution of the squared distances to each class, and a factor of these before.

        The distribution is None with too few degrees of freedom.
        """
        if self.degrees is None or self.unbiased is None:
            known = tail_of(self.structure.kind, self.rank, np.inf)
            return [(known, 1.0)] * self.classes.size
        of_classes = zip(self.degrees.tolist(), self.unbiased.tolist(), strict=True)
        kind = self.structure.kind
        return [(tail_of(kind, self.rank, degrees), factor) for degrees, factor in of_classes]

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
        # The difference of a score and minus half a squared distance.
        offsets = self.log_priors + self._constants

        def scores_of(rows: np.ndarray) -> np.ndarray:
            scores = self._relative_scores(rows, margin=0.0)
            if self.structure.per_class:
                return scores
            return np.vstack([scores, self._shared_scores(rows)])

        def finish(scores: np.ndarray, out: np.ndarray) -> None:
            codes = np.empty(out.size, np.int64)
            scoring.largest(scores[:n], codes)
            best = scores[codes, np.arange(out.size)] + scores[n:].sum(axis=0) - offsets[codes]
            np.take(labels, codes, out=out, mode="clip")
            out[-2 * best > limits[codes]] = labels[-1]

        return self._score(X, scores_of, finish, np.empty(length(X), labels.dtype), first_row)

    def mahalanobis(self, X: Any, first_row: int = 0) -> np.ndarray:
        r"""Return :math:`(x-m_k)^T \Sigma_k^{-1} (x-m_k)`.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.

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
        return self._by_mean(X, self._to_means, copied, first_row)

    def relative_mahalanobis(
        self, X: Any, first_row: int = 0, *, background: OutlierScores
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
        check_type("background", background, OutlierScores, "a GaussianModel of one class")
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

    def _by_mean(
        self,
        X: Any,
        scores_of: Callable[[np.ndarray], np.ndarray],
        finish: Finish,
        first_row: int,
    ) -> np.ndarray:
        """Score rows as `_by_class` does; NaN for classes without rows."""
        values = self._by_class(X, scores_of, finish, first_row)
        values[:, np.isnan(self.means[:, 0])] = np.nan
        return values
