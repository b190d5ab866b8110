"""`GaussianModel`: class-conditional Gaussians with priors, and what they say of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import special

from streamgda import storage
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.kernels import narrow_distances, scoring
from streamgda.kernels.tiles import panel_width
from streamgda.models.covariance import Regularisation, estimate, factorise
from streamgda.models.scores import (
    Strips,
    by_chunks,
    check_width,
    copied,
    difference,
    labelled,
    log_posterior,
    log_sum_exp,
    posterior,
)
from streamgda.moments import ClassMoments
from streamgda.moments.structure import Structure, structure_of
from streamgda.moments.sums import check_array
from streamgda.rows.blocks import as_rows, read_dtype
from streamgda.rows.validity import as_matrix, refuse_not_finite
from streamgda.storage.saved import Saved, State

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


@dataclass(frozen=True)
class GaussianModel(Saved):
    r"""Gaussians with priors: :math:`p(x, y=k) = \pi_k N(x; m_k, \Sigma_k)`.

    Documents 000 (eq. 4-5), 002 (eq. 8) and 003 of the field's lecture notes; all in logarithms,
    posteriors by log-sum-exp.

    Rows are scored in float64, with one exception: float32 rows are multiplied by matrices of more
    than 12 features, and by coefficients of a common covariance, in float32, after they were
    centred in float64. Each entry of :math:`W (x - m)`, whose squares are summed (in
    float64) to the Mahalanobis distance, is then right to :math:`(d + 3)\, 2^{-24} \sum_j
    |W_{ij}| |x_j - m_j|`, where :math:`W^T W = \Sigma^{-1}`; so is, with its coefficients in the
    place of W, a linear score of a common covariance. How far rows and means are from zero does
    not matter. Where float32 overflows, a row is scored in float64.

    Attributes
    ----------
    structure : Structure
        Of the covariances.
    classes : ndarray, shape (n_classes,)
    priors : ndarray of float64, shape (n_classes,)
    means : ndarray of float64, shape (n_classes, n_features)
        NaN for a class without rows, whose prior is zero.
    features : ndarray of int64, shape (d,)
        The features that vary: the others are left out of the density.
    roots : ndarray of float64, shape (groups, d, d) or (groups, d)
        Of the inverse covariances; see `streamgda.models.covariance.factorise`.
    log_determinants : ndarray of float64, shape (groups,)
        Of the covariances.
    """

    _kind = "model"

    structure: Structure
    classes: np.ndarray
    priors: np.ndarray
    means: np.ndarray
    features: np.ndarray
    roots: np.ndarray
    log_determinants: np.ndarray

    @classmethod
    def from_moments(
        cls,
        moments: ClassMoments,
        covariance_type: str,
        how: Regularisation,
        priors: Any = None,
    ) -> Self:
        """Estimate the model.

        Parameters
        ----------
        moments : ClassMoments
        covariance_type : str
            One that the moments determine.
        how : Regularisation
        priors : array-like, shape (n_classes,), optional
            In the order of the sorted classes; the classes' shares of the rows by default.

        Raises
        ------
        InvalidDataError
            Where fewer than two classes have rows.
        InvalidParameterError
            For priors that do not fit.
        SingularCovarianceError
            For covariances without an inverse.
        """
        count = moments.class_count
        present = int((count > 0).sum())
        if present < 2:
            named = f" ({moments.classes[count > 0][0]!s})" if present else ""
            raise InvalidDataError(
                f"The number of classes has to be greater than one; got {present} class{named} "
                f"with rows. Give rows of at least one other class"
            )
        shares = check_priors(priors, moments.classes, count)
        covariances = estimate(moments, covariance_type, how)
        roots, log_determinants = factorise(covariances, how.tol)
        return cls(
            covariances.structure,
            moments.classes,
            shares,
            moments.means,
            covariances.features,
            roots,
            log_determinants,
        )

    def __getstate__(self) -> dict[str, Any]:
        """The attributes, without what is derived from them: a pickle is as small as it can be."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    # --- derived once -------------------------------------------------------------------------

    @property
    def packed_bytes(self) -> int:
        """Bytes that scoring packs of the model, at most."""
        return self.roots.nbytes

    @cached_property
    def n_features(self) -> int:
        """Width of the rows that are scored."""
        return int(self.means.shape[1])

    @cached_property
    def log_priors(self) -> np.ndarray:
        """Logarithms of the priors, minus infinity where zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.priors)

    @cached_property
    def xbar(self) -> np.ndarray:
        """Mean of the class means, weighted with the priors, shape (n_features,)."""
        seen = self.priors > 0
        return np.asarray(self.priors[seen] @ self.means[seen])

    @cached_property
    def _centres(self) -> np.ndarray:
        means = self.means if self.structure.per_class else self.xbar[None]
        return self._of_features(means)

    def _of_features(self, means: np.ndarray) -> np.ndarray:
        """Of the features in the density; zeros for classes without rows."""
        return np.ascontiguousarray(np.nan_to_num(means[:, self.features]))

    @cached_property
    def _root_strips(self) -> Strips:
        return Strips(self.roots)

    @cached_property
    def _linear_strips(self) -> Strips:
        return Strips(self.linear[0])

    @cached_property
    def _constants(self) -> np.ndarray:
        """What is added to minus half the squared distances, shape (groups,)."""
        return -0.5 * (self.features.size * np.log(2 * np.pi) + self.log_determinants)

    @cached_property
    def linear(self) -> tuple[np.ndarray, np.ndarray]:
        r"""Of a common covariance: coefficients (K, d) and intercepts (K,) about `xbar`.

        .. math:: a_k(x) = (m_k - \bar x)^T \Sigma^{-1} (x - \bar x)
                  - (m_k - \bar x)^T \Sigma^{-1} (m_k - \bar x) / 2 + \ln \pi_k

        which differs from the joint log-likelihood by what is the same for all classes.
        """
        gaps = np.nan_to_num((self.means - self.xbar)[:, self.features])
        if self.structure.matrix:
            white = gaps @ self.roots[0].T
            coefficients = white @ self.roots[0]
        else:
            coefficients = gaps * self.roots[0]
        return coefficients, self.log_priors - 0.5 * (gaps * coefficients).sum(axis=1)

    # --- scores of a chunk of rows ------------------------------------------------------------
    # They lie class by class, shape (n_classes, n_rows).

    def _distances(
        self, X: np.ndarray, centres: np.ndarray, scale: float, offsets: np.ndarray
    ) -> np.ndarray:
        """Squared Mahalanobis distances to the centres, scaled, and an offset for each added."""
        if self._tiled:
            kernel, strips = scoring.matrix_distances, self._root_strips
            return self._multiply(kernel, X, centres, strips, scale, offsets)
        out = np.empty((offsets.size, X.shape[0]))
        self._small_distances(X, centres, scale, offsets, out)
        return out

    @property
    def _tiled(self) -> bool:
        """Whether there are matrices that it pays to cut into tiles."""
        return self.structure.matrix and self.features.size > narrow_distances.MAX_FEATURES

    def _small_distances(
        self,
        X: np.ndarray,
        centres: np.ndarray,
        scale: float,
        offsets: np.ndarray,
        out: np.ndarray,
    ) -> None:
        """`_distances` without tiles, or the classes for which they are the largest.

        In float64 whatever the rows are: for so little work, float32 would save nothing.
        """
        kernel, roots = scoring.diagonal_distances, self.roots
        if self.structure.matrix:
            kernel, roots = scoring.narrow_matrix_distances, self._root_strips[_FLOAT64]
        kernel(X, self.features, centres, roots, scale, offsets, out)

    def _products(self, X: np.ndarray, vectors: Strips, offsets: np.ndarray) -> np.ndarray:
        """Rows less `xbar` times vectors, and an offset for each vector added."""
        centre = self.xbar[self.features]
        return self._multiply(scoring.linear_scores, X, centre, vectors, 1.0, offsets)

    def _multiply(
        self,
        kernel: Callable[..., None],
        X: np.ndarray,
        centre: np.ndarray,
        vectors: Strips,
        scale: float,
        offsets: np.ndarray,
    ) -> np.ndarray:
        """What a kernel that multiplies makes of rows; in float32 of float32, if that is enough."""
        dtype = _FLOAT32 if X.dtype == _FLOAT32 else _FLOAT64
        panels = self._panels(X, panel_width(dtype), dtype)
        out = np.empty((offsets.size, X.shape[0]))
        kernel(panels, centre, vectors[dtype], scale, offsets, out)
        if dtype == _FLOAT32 and not scoring.all_finite(out):
            beyond = ~np.isfinite(out[np.isfinite(offsets)]).all(axis=0)
            rows = X[beyond].astype(np.float64)
            out[:, beyond] = self._multiply(kernel, rows, centre, vectors, scale, offsets)
        return out

    def _panels(self, X: np.ndarray, width: int, dtype: Any) -> np.ndarray:
        panels = np.empty((-(-X.shape[0] // width), self.features.size, width), dtype)
        scoring.pack_panels(X, self.features, panels)
        return panels

    def _relative_scores(self, X: np.ndarray) -> np.ndarray:
        """Joint log-likelihoods, up to what is the same for all classes of a row."""
        if self.structure.per_class:
            return self._distances(X, self._centres, -0.5, self._constants + self.log_priors)
        return self._products(X, self._linear_strips, self.linear[1])

    def _most_probable(self, X: np.ndarray) -> np.ndarray:
        """The number of each row's most probable class, shape (n_rows,)."""
        codes = np.empty(X.shape[0], np.int64)
        if self.structure.per_class and not self._tiled:
            offsets = self._constants + self.log_priors
            self._small_distances(X, self._centres, -0.5, offsets, codes)
        else:
            scoring.largest(self._relative_scores(X), codes)
        return codes

    def _joint(self, X: np.ndarray) -> np.ndarray:
        scores = self._relative_scores(X)
        if not self.structure.per_class:
            scores += self._distances(X, self._centres, -0.5, self._constants)
        return scores

    # --- scores of arrays ---------------------------------------------------------------------

    def _score(
        self,
        X: Any,
        scores_of: Callable[[np.ndarray], np.ndarray],
        finish: Callable[[np.ndarray, np.ndarray], None],
        out: np.ndarray,
        first_row: int,
    ) -> np.ndarray:
        """Run chunk by chunk, on all threads, into `out`."""
        X = as_matrix(X)
        check_width(X, self.n_features)
        dtype = read_dtype(X.dtype)

        def scores(rows: np.ndarray, first: int) -> np.ndarray:
            rows = as_rows(rows, dtype)
            if rows.dtype.kind == "f" and not scoring.all_finite(rows):
                refuse_not_finite(rows, first)
            return scores_of(rows)

        return by_chunks(scores, finish, X, self.classes.size, out, first_row)

    def predict(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Each row's most probable class, shape (n_rows,).

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
        first_row : int
            Where the rows stand in a larger array: errors name rows by it.
        """

        out = np.empty(len(X), self.classes.dtype)
        return self._score(X, self._most_probable, labelled(self.classes), out, first_row)

    def predict_or_reject(
        self, X: Any, first_row: int = 0, *, reject: float, label: np.ndarray
    ) -> np.ndarray:
        """As `predict`, with a label of its own for rows too far from the class predicted.

        Parameters
        ----------
        X, first_row
            As of `predict`.
        reject : float
            A row is rejected where its p-value (see `p_values`) for that class is below this.
        label : ndarray, shape ()
            What rejected rows get; of the type that the result has.
        """
        classes, n = self.classes.astype(label.dtype), self.classes.size
        furthest = special.chdtri(self.features.size, reject)
        # What a score is more than minus half a squared distance.
        offsets = self.log_priors + self._constants

        def scores_of(rows: np.ndarray) -> np.ndarray:
            scores = self._relative_scores(rows)
            if self.structure.per_class:
                return scores
            return np.vstack([scores, self._distances(rows, self._centres, -0.5, self._constants)])

        def finish(scores: np.ndarray, out: np.ndarray) -> None:
            codes = np.empty(out.size, np.int64)
            scoring.largest(scores[:n], codes)
            best = scores[codes, np.arange(out.size)] + scores[n:].sum(axis=0) - offsets[codes]
            np.take(classes, codes, out=out, mode="clip")
            out[-2 * best > furthest] = label

        return self._score(X, scores_of, finish, np.empty(len(X), label.dtype), first_row)

    def posterior(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Probability of each class given the row, shape (n_rows, n_classes)."""
        return self._by_class(X, self._relative_scores, posterior, first_row)

    def log_posterior(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Logarithm of `posterior`, exact also where that is rounded to zero."""
        return self._by_class(X, self._relative_scores, log_posterior, first_row)

    def joint_log_likelihood(self, X: Any, first_row: int = 0) -> np.ndarray:
        r""":math:`\ln \pi_k N(x; m_k, \Sigma_k)`, shape (n_rows, n_classes)."""
        return self._by_class(X, self._joint, copied, first_row)

    def relative_scores(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Discriminants: linear ones of a common covariance, else joint log-likelihoods.

        Without the term that is the same for all models, :math:`-(d/2) \\ln 2\\pi`.
        """
        scores = self._by_class(X, self._relative_scores, copied, first_row)
        if self.structure.per_class:
            scores += 0.5 * self.features.size * np.log(2 * np.pi)
        return scores

    def log_odds(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Log-odds of the second of two classes, shape (n_rows,)."""
        return self._score(X, self._relative_scores, difference, np.empty(len(X)), first_row)

    def project(self, X: Any, first_row: int = 0, *, directions: np.ndarray) -> np.ndarray:
        """Rows less `xbar` along directions, shape (n_rows, n_directions).

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
        directions : ndarray, shape (n_features, n_directions)
        """
        vectors = Strips(directions[self.features].T)
        out = np.empty((len(X), directions.shape[1]))
        zeros = np.zeros(directions.shape[1])
        return self._score(
            X, lambda rows: self._products(rows, vectors, zeros), copied, out, first_row
        )

    def log_density(self, X: Any, first_row: int = 0) -> np.ndarray:
        r""":math:`\ln p(x) = \ln \sum_k \pi_k N(x; m_k, \Sigma_k)`, shape (n_rows,)."""
        return self._score(X, self._joint, log_sum_exp, np.empty(len(X)), first_row)

    def mahalanobis(self, X: Any, first_row: int = 0) -> np.ndarray:
        r""":math:`(x-m_k)^T \Sigma_k^{-1} (x-m_k)`, shape (n_rows, n_classes), in squared
        standard deviations; NaN for a class without rows.
        """
        return self._distances_to_means(X, copied, first_row)

    def p_values(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Share of a class's rows that are further from its mean, shape (n_rows, n_classes).

        The squared Mahalanobis distance of a Gaussian's rows has a chi-square distribution, of as
        many degrees of freedom as there are features in the density.
        """

        def finish(distances: np.ndarray, out: np.ndarray) -> None:
            special.chdtrc(self.features.size, distances.T, out=out)

        return self._distances_to_means(X, finish, first_row)

    def _distances_to_means(
        self, X: Any, finish: Callable[[np.ndarray, np.ndarray], None], first_row: int
    ) -> np.ndarray:
        means = self._of_features(self.means)
        zeros = np.zeros(self.classes.size)
        said = self._by_class(
            X, lambda rows: self._distances(rows, means, 1.0, zeros), finish, first_row
        )
        said[:, np.isnan(self.means[:, 0])] = np.nan
        return said

    def _by_class(
        self,
        X: Any,
        scores_of: Callable[[np.ndarray], np.ndarray],
        finish: Callable[[np.ndarray, np.ndarray], None],
        first_row: int,
    ) -> np.ndarray:
        out = np.empty((len(X), self.classes.size))
        return self._score(X, scores_of, finish, out, first_row)

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        attributes = {
            "covariance_type": self.structure.name,
            "classes": storage.pack_labels(self.classes),
        }
        names = ("priors", "means", "features", "roots", "log_determinants")
        arrays = {name: getattr(self, name) for name in names}
        if self.structure.matrix:
            arrays["roots"] = storage.pack_triangles(self.roots)
        return attributes, arrays

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        structure = structure_of(attributes["covariance_type"])
        classes = storage.unpack_labels(attributes["classes"])
        if structure.matrix:
            arrays = {**arrays, "roots": storage.unpack_triangles(arrays["roots"])}
        model = cls(structure, classes, **arrays)
        k, d = classes.size, model.features.size
        shape = structure.scatter_shape(k, d)
        check_array("priors", model.priors, (k,), "f8")
        check_array("features", model.features, (d,), "i8")
        check_array("roots", model.roots, shape, "f8")
        check_array("log_determinants", model.log_determinants, shape[:1], "f8")
        # Classes without rows have no mean.
        check_array("means", np.nan_to_num(model.means), (k, model.n_features), "f8")
        if not k or not d or not (np.diff(model.features, append=model.n_features) > 0).all():
            raise ValueError("its features are not columns of its means, in ascending order")
        check_priors(model.priors, classes, ~np.isnan(model.means[:, 0]))
        return model


def check_priors(priors: Any, classes: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Priors that sum to one, one a class; by default the classes' shares of the rows.

    Raises
    ------
    InvalidParameterError
        For negative ones, others than one a class, or a sum that is not one.
    """
    if priors is None:
        return np.asarray(count / count.sum(), np.float64)
    try:
        values = np.asarray(priors, np.float64)
    except (TypeError, ValueError):
        raise InvalidParameterError(
            f"priors={priors!r}; expected one number for each of the {classes.size} classes"
        ) from None
    if values.shape != (classes.size,):
        raise InvalidParameterError(
            f"priors has shape {values.shape}; expected one for each of the {classes.size} classes "
            f"{classes.tolist()[:20]}"
        )
    if not (values >= 0).all():
        raise InvalidParameterError(f"priors must be non-negative; got {values.tolist()}")
    if not np.isclose(values.sum(), 1.0):
        raise InvalidParameterError(
            f"The sum of the priors should be 1; got {values.sum():.6g}. Divide them by their sum"
        )
    without = (values > 0) & (count == 0)
    if without.any():
        raise InvalidParameterError(
            f"class {classes[without][0]!s} has a prior of {values[without][0]:g} but no rows"
        )
    return values
