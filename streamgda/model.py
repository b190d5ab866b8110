"""`GaussianModel`: class-conditional Gaussians with priors, and what they say of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import linalg

from streamgda import storage, threads
from streamgda.covariance import Regularisation, estimate, factorise
from streamgda.errors import FormatError, InvalidDataError, InvalidParameterError
from streamgda.kernels import scoring
from streamgda.moments import ClassMoments
from streamgda.moments.centred import refuse_not_finite
from streamgda.moments.inputs import as_matrix
from streamgda.moments.structure import Structure, structure_of
from streamgda.moments.sums import as_rows

# Elements of rows, and of rows x classes, that a thread has in hand at a time.
_CHUNK_ELEMENTS = 1 << 19
_CHUNK_SCORES = 1 << 17


@dataclass(frozen=True)
class GaussianModel:
    r"""Gaussians with priors: :math:`p(x, y=k) = \pi_k N(x; m_k, \Sigma_k)`.

    Documents 000 (eq. 4-5), 002 (eq. 8) and 003 of the field's lecture notes; all in logarithms,
    posteriors by log-sum-exp.

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
        Of the inverse covariances; see `streamgda.covariance.factorise`.
    log_determinants : ndarray of float64, shape (groups,)
        Of the covariances.
    """

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
        return np.nan_to_num(means[:, self.features])

    @cached_property
    def _padded_roots(self) -> np.ndarray:
        if not self._wide:
            return self.roots
        d = self.features.size
        rows = -(-d // scoring.TILE_COLUMNS) * scoring.TILE_COLUMNS
        depth = -(-d // scoring.LANES) * scoring.LANES
        padded = np.zeros((self.roots.shape[0], rows, depth))
        padded[:, :d, :d] = self.roots
        return padded

    @property
    def _wide(self) -> bool:
        return self.structure.matrix and self.features.size >= scoring.WIDE

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

    def _distances(self, X: np.ndarray, centres: np.ndarray | None = None) -> np.ndarray:
        """Squared Mahalanobis distances, by default to each group's centre."""
        centres = self._centres if centres is None else centres
        out = np.empty((X.shape[0], centres.shape[0]))
        if not self.structure.matrix:
            kernel = scoring.diagonal_distances
        elif self._wide:
            kernel = scoring.wide_matrix_distances
        else:
            kernel = scoring.matrix_distances
        kernel(X, self.features, centres, self._padded_roots, out)
        return out

    def _relative_scores(self, X: np.ndarray) -> np.ndarray:
        """Joint log-likelihoods, up to what is the same for all classes of a row."""
        if self.structure.per_class:
            scores = self._distances(X)
            scoring.distances_to_scores(self._constants + self.log_priors, scores)
            return scores
        scores = np.empty((X.shape[0], self.classes.size))
        centre = self.xbar[self.features]
        scoring.linear_scores(X, self.features, centre, *self.linear, scores)
        return scores

    def _joint(self, X: np.ndarray) -> np.ndarray:
        scores = self._relative_scores(X)
        if not self.structure.per_class:
            scores += self._constants - 0.5 * self._distances(X)
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
        if X.shape[1] != self.n_features:
            raise InvalidDataError(
                f"X has {X.shape[1]} features, but this model is expecting {self.n_features} "
                f"features as input"
            )
        step = min(
            _CHUNK_ELEMENTS // max(1, X.shape[1]), _CHUNK_SCORES // max(1, self.classes.size)
        )
        step = max(scoring.BLOCK, step // scoring.BLOCK * scoring.BLOCK)

        def work(start: int) -> None:
            chunk = as_rows(X[start : start + step])
            if chunk.dtype.kind == "f" and not scoring.all_finite(chunk):
                refuse_not_finite(chunk, first_row + start)
            finish(scores_of(chunk), out[start : start + step])

        threads.run(work, ((start,) for start in range(0, X.shape[0], step)))
        return out

    def codes(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Number of each row's most probable class, int64, shape (n_rows,)."""
        out = np.empty(len(X), np.int64)
        return self._score(X, self._relative_scores, scoring.largest, out, first_row)

    def predict(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Each row's most probable class, shape (n_rows,).

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
        first_row : int
            Where the rows stand in a larger array: errors name rows by it.
        """
        return self.classes[self.codes(X, first_row)]

    def posterior(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Probability of each class given the row, shape (n_rows, n_classes)."""
        return self._by_class(X, self._relative_scores, scoring.posterior, first_row)

    def log_posterior(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Logarithm of `posterior`, exact also where that is rounded to zero."""
        return self._by_class(X, self._relative_scores, scoring.log_posterior, first_row)

    def joint_log_likelihood(self, X: Any, first_row: int = 0) -> np.ndarray:
        r""":math:`\ln \pi_k N(x; m_k, \Sigma_k)`, shape (n_rows, n_classes)."""
        return self._by_class(X, self._joint, _copy, first_row)

    def relative_scores(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Discriminants: linear ones of a common covariance, else joint log-likelihoods.

        Without the term that is the same for all models, :math:`-(d/2) \\ln 2\\pi`.
        """
        scores = self._by_class(X, self._relative_scores, _copy, first_row)
        if self.structure.per_class:
            scores += 0.5 * self.features.size * np.log(2 * np.pi)
        return scores

    def log_odds(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Log-odds of the second of two classes, shape (n_rows,)."""
        return self._score(X, self._relative_scores, _difference, np.empty(len(X)), first_row)

    def project(self, X: Any, first_row: int = 0, *, directions: np.ndarray) -> np.ndarray:
        """Rows less `xbar` along directions, shape (n_rows, n_directions).

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
        directions : ndarray, shape (n_features, n_directions)
        """
        arguments = (
            self.features,
            self.xbar[self.features],
            np.ascontiguousarray(directions[self.features].T),
            np.zeros(directions.shape[1]),
        )

        def scores_of(rows: np.ndarray) -> np.ndarray:
            scores = np.empty((rows.shape[0], directions.shape[1]))
            scoring.linear_scores(rows, *arguments, scores)
            return scores

        out = np.empty((len(X), directions.shape[1]))
        return self._score(X, scores_of, _copy, out, first_row)

    def log_density(self, X: Any, first_row: int = 0) -> np.ndarray:
        r""":math:`\ln p(x) = \ln \sum_k \pi_k N(x; m_k, \Sigma_k)`, shape (n_rows,)."""
        return self._score(X, self._joint, scoring.log_sum_exp, np.empty(len(X)), first_row)

    def mahalanobis(self, X: Any, first_row: int = 0) -> np.ndarray:
        r""":math:`(x-m_k)^T \Sigma_k^{-1} (x-m_k)`, shape (n_rows, n_classes), in squared
        standard deviations; NaN for a class without rows.
        """
        means = np.nan_to_num(self.means[:, self.features])
        distances = self._by_class(X, lambda rows: self._distances(rows, means), _copy, first_row)
        distances[:, np.isnan(self.means[:, 0])] = np.nan
        return distances

    def _by_class(
        self,
        X: Any,
        scores_of: Callable[[np.ndarray], np.ndarray],
        finish: Callable[[np.ndarray, np.ndarray], None],
        first_row: int,
    ) -> np.ndarray:
        out = np.empty((len(X), self.classes.size))
        return self._score(X, scores_of, finish, out, first_row)

    # --- the Gaussians themselves -------------------------------------------------------------

    def sample(self, labels: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        """Draw one row for each label.

        Parameters
        ----------
        labels : ndarray, shape (n_rows,)
            Of classes that have rows.
        random : numpy.random.RandomState

        Returns
        -------
        ndarray of float64, shape (n_rows, n_features)
            Features that were left out of the density have their constant value.
        """
        codes = np.searchsorted(self.classes, labels)
        codes[codes == self.classes.size] = 0
        wrong = (self.classes[codes] != labels) | np.isnan(self.means[codes, 0])
        if wrong.any():
            raise InvalidParameterError(
                f"cannot sample class {labels[wrong][0]!s}; the classes with rows are "
                f"{self.classes[~np.isnan(self.means[:, 0])].tolist()}"
            )
        X = self.means[codes]
        noise = random.standard_normal((codes.size, self.features.size))
        for k in np.unique(codes):
            rows = codes == k
            root = self.roots[k if self.structure.per_class else 0]
            if self.structure.matrix:
                drawn = linalg.solve_triangular(root, noise[rows].T, lower=True).T
            else:
                drawn = noise[rows] / np.sqrt(root)
            X[np.ix_(rows, self.features)] += drawn
        return X

    # --- saving -------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Attributes (for JSON) and arrays that `from_state` makes an equal model of."""
        attributes = {
            "covariance_type": self.structure.name,
            "classes": storage.pack_labels(self.classes),
        }
        names = ("priors", "means", "features", "roots", "log_determinants")
        return attributes, {name: getattr(self, name) for name in names}

    @classmethod
    def from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        """Make a model from what `state` gave.

        Raises
        ------
        FormatError
            Where the parts do not fit each other.
        """
        try:
            structure = structure_of(attributes["covariance_type"])
            classes = storage.unpack_labels(attributes["classes"])
            model = cls(structure, classes, **arrays)
            k, d = classes.size, model.features.size
            shape = structure.scatter_shape(k, d)
            fits = (
                model.means.ndim == 2
                and model.means.shape[0] == k
                and model.priors.shape == (k,)
                and model.roots.shape == shape
                and model.log_determinants.shape == shape[:1]
                and bool((model.features >= 0).all() and (model.features < model.n_features).all())
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise FormatError(f"the saved model is damaged: {error}") from None
        if not fits:
            raise FormatError("the saved model is damaged: its arrays do not fit each other")
        return model

    def save(self, store: Any) -> None:
        """Write the model as a zarr group; see `ClassMoments.save`."""
        storage.write(store, "model", *self.state())

    @classmethod
    def load(cls, store: Any) -> Self:
        """Read a model that `save` wrote; see `ClassMoments.load`."""
        return cls.from_state(*storage.read(store, "model"))


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


def _copy(scores: np.ndarray, out: np.ndarray) -> None:
    out[...] = scores


def _difference(scores: np.ndarray, out: np.ndarray) -> None:
    np.subtract(scores[:, 1], scores[:, 0], out=out)
