"""Covariances of classes from their moments: pooling, shrinkage, smoothing, and inverses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import linalg

from streamgda.errors import InvalidDataError, InvalidParameterError, SingularCovarianceError
from streamgda.moments import ClassMoments, held_sums
from streamgda.moments.covariance_types import structure_of
from streamgda.runtime import threads
from streamgda.runtime.parameters import as_number, as_numbers, unexpected

_MATRICES = ("full", "tied")


@dataclass(frozen=True)
class Regularisation:
    r"""Parameters that regularise covariances, applied in the order of the attributes.

    Attributes
    ----------
    ddof : int
        Subtracted from the count of each class.
    pooling : float in [0, 1]
        Friedman's :math:`\lambda`: :math:`((1-\lambda) S_k + \lambda S_w) / ((1-\lambda) n_k +
        \lambda n)`, with scatters S (Regularized discriminant analysis, JASA 1989).
    shrinkage : float in [0, 1], "auto", "oas" or None
        Amount a of :math:`(1-a) \Sigma + a\,\mathrm{tr}(\Sigma)/d\,I`, or a rule for it. With
        ``"auto"``, the features of each class are scaled to unit variance meanwhile.
    reg_param : float in [0, 1]
        Amount r of :math:`(1-r) \Sigma + r I`.
    var_smoothing : float >= 0
        Fraction of the largest variance of a feature over all rows, added to every variance.
    """

    ddof: float = 0
    pooling: float = 0.0
    shrinkage: float | str | None = None
    reg_param: float = 0.0
    var_smoothing: float = 0.0

    def check(self, covariance_type: str) -> Self:
        """Raise `InvalidParameterError` for values out of range; return these parameters."""
        structure_of(covariance_type)  # It raises an error for other names.
        share, least = "a number between 0 and 1", "a number >= 0"
        as_number("pooling", self.pooling, share, 0, 1)
        as_number("reg_param", self.reg_param, share, 0, 1)
        as_number("var_smoothing", self.var_smoothing, least, 0)
        as_number("ddof", self.ddof, least, 0)
        rule, expected = self.shrinkage, f"{share}, 'auto' or 'oas'"
        if not isinstance(rule, str):
            as_number("shrinkage", 0 if rule is None else rule, expected, 0, 1)
        elif rule not in ("auto", "oas"):
            raise unexpected("shrinkage", rule, expected)
        elif covariance_type not in _MATRICES or (self.pooling and covariance_type == "full"):
            raise InvalidParameterError(
                f"shrinkage={rule!r} is computed from the covariances between features of a class "
                f"alone, or of all; got covariance_type={covariance_type!r} and "
                f"pooling={self.pooling}. Use 'full' or 'tied' without pooling, or a number"
            )
        return self


@dataclass(frozen=True, eq=False)
class Summary:
    """Moments as arrays, with means that are exact at any distance from zero.

    Attributes
    ----------
    classes, count : ndarray, shape (n_classes,)
    rows : ndarray of float64, shape (n_classes,)
        Effective numbers of rows, the counts where nothing is weighted.
    origin : ndarray, shape (n_features,)
    offsets : ndarray, shape (n_classes, n_features)
        Means less the origin; zero for classes without rows.
    scatter : ndarray
        Shape (groups, n_features, n_features), or (groups, n_features) without covariances.
    variances : ndarray, shape (n_features,)
        Variances over all rows; zero for features with one value.
    """

    classes: np.ndarray
    count: np.ndarray
    rows: np.ndarray
    origin: np.ndarray
    offsets: np.ndarray
    scatter: np.ndarray
    variances: np.ndarray

    @classmethod
    def of(cls, moments: ClassMoments) -> Self:
        """Return the summary of moments; raise `InvalidDataError` if they hold no rows."""
        if moments.n_features is None:
            raise InvalidDataError(NO_ROWS)
        sums = held_sums(moments).centred()
        count, seen = sums.count.astype(float), sums.count > 0
        if not seen.any():
            raise InvalidDataError(NO_ROWS)
        origin = sums.mean[seen.argmax()]
        offsets = np.where(seen[:, None], (sums.origin - origin) + sums.offset, 0.0)
        scatter = sums.structure.whole(sums.packed)
        within = scatter if scatter.ndim == 2 else np.einsum("gii->gi", scatter)
        gaps = offsets[seen] - count[seen] @ offsets[seen] / count.sum()
        gaps[:, (offsets[seen] == offsets[seen][0]).all(axis=0)] = 0.0
        variances = (within.sum(axis=0) + count[seen] @ gaps**2) / count.sum()
        rows = sums.effective_count
        return cls(moments.classes, count, rows, origin, offsets, scatter, variances)


NO_ROWS = "every sample_weight is zero, or every row is unlabelled or invalid: no row is left"


class Covariances(NamedTuple):
    """Regularised covariances.

    Attributes
    ----------
    values : ndarray
        Shape (groups, d, d), or (groups, d) of variances; NaN for groups without rows.
    shrinkage : ndarray, shape (groups,), or (n_classes,) if class covariances are averaged
    epsilon : float
        Amount that `var_smoothing` added.
    degrees, unbiased : ndarray, shape (n_classes,)
        Degrees of freedom, and the factors that make Hotelling's T2 of squared distances.
    """

    values: np.ndarray
    shrinkage: np.ndarray
    epsilon: float
    degrees: np.ndarray
    unbiased: np.ndarray


def estimate(
    summary: Summary,
    covariance_type: str,
    how: Regularisation,
    features: Any = None,
    *,
    found: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> Covariances:
    """Estimate regularised covariances from moments.

    Parameters
    ----------
    summary : Summary
        Of moments that hold what `covariance_type` needs: a matrix for each class is enough for
        all, and is needed for a pooled covariance with `found` or `weights`.
    covariance_type : str
    how : Regularisation
    features : ndarray of int, optional
        Features of the result, by default all.
    found : ndarray, shape (n_classes,) or (n_classes, n_features, n_features); optional
        Amounts that ``shrinkage="auto"`` found for the classes, or covariances that take the place
        of those of the moments.
    weights : ndarray, shape (n_classes,), optional
        Weights of the classes' covariances in a pooled one, by default their shares of the rows.

    Returns
    -------
    Covariances
    """
    n, rows, n_features = summary.count, summary.rows, summary.scatter.shape[-1]
    matrix, pooled = covariance_type in _MATRICES, covariance_type.startswith("tied")
    features = np.arange(n_features) if features is None else features
    given = found is not None and found.ndim == 3
    S: Any = found if given else summary.scatter
    if S.ndim == 3 and not matrix:
        S = np.einsum("gii->gi", S)[:, features]
    elif features.size == n_features:
        S = S.copy()
    else:
        S = S[np.ix_(np.arange(len(S)), *[features] * (S.ndim - 1))]
    shape = -1, *[1] * (S.ndim - 1)  # One number for each covariance has this shape.
    groups, divisors = n, np.where(n > 0, n - how.ddof, 0.0)
    averaged = pooled and (found is not None or weights is not None)
    if pooled and not averaged:
        S = S.sum(axis=0, keepdims=True) if len(S) > 1 else S
        rows = n.sum(keepdims=True) ** 2 / (n**2 / np.maximum(rows, 1e-300)).sum()
        divisors, groups = divisors.sum(keepdims=True), n.sum(keepdims=True)
    elif how.pooling and not pooled:
        whole = S.sum(axis=0)
        S *= 1 - how.pooling
        S += how.pooling * whole
        divisors = (1 - how.pooling) * divisors + how.pooling * divisors.sum()
    if not given:
        S /= np.where(divisors > 0, divisors, np.inf).reshape(shape)
    S[groups == 0] = np.nan

    one_variance, amounts = "spherical" in covariance_type, found is not None and not given
    shrunk: Any
    if amounts:
        shrunk = found
    elif how.shrinkage == "oas":
        shrunk = _oas(S, rows, n_features)
    else:
        shrunk = np.full(len(S), 0.0 if how.shrinkage is None else float(how.shrinkage))
    variances = np.einsum("gii->gi", S) if matrix else S
    d = np.count_nonzero(summary.variances[features]) if one_variance else n_features
    if amounts:  # They are of features that are scaled to unit variance.
        share = np.count_nonzero(variances, axis=1, keepdims=True) / d
        sphere = share * np.where(variances == 0, 1.0, variances)
    elif one_variance or shrunk.any():
        sphere = np.repeat(variances.sum(axis=1, keepdims=True) / d, features.size, axis=1)
    if one_variance:
        S[...] = sphere
    elif shrunk.any():
        S *= (1 - shrunk).reshape(shape)
        variances += shrunk[:, None] * sphere
    if averaged:
        p = n / n.sum() if weights is None else weights / weights.sum()
        S = np.tensordot(p[p > 0], S[p > 0], axes=1)[None]
        variances = np.einsum("gii->gi", S) if matrix else S
        divisors = divisors.sum(keepdims=True)
    epsilon = float(how.var_smoothing * summary.variances.max())
    if how.reg_param:
        S *= 1 - how.reg_param
    variances += how.reg_param + epsilon

    # Of the covariance itself, of which so much is kept, what is added makes distances smaller.
    kept = (1 - how.reg_param) * (1 - (shrunk if shrunk.size == divisors.size else shrunk.min()))
    share = np.where(n > 0, 1 - 1 / np.maximum(summary.rows, 1), 0.0)
    degrees, expected = share * summary.rows, share * n
    if pooled:
        degrees, expected = np.full(n.size, degrees.sum()), expected.sum()
    unbiased = expected * np.where(divisors > 0, kept / np.maximum(divisors, 1e-300), 0.0)
    unbiased = unbiased * (summary.rows / (summary.rows + 1))
    return Covariances(S, shrunk, epsilon, degrees, unbiased)


def _oas(S: np.ndarray, rows: np.ndarray, d: int) -> np.ndarray:
    """Return the amount of shrinkage of each covariance.

    It is that of Chen, Wiesel, Eldar and Hero (IEEE TSP 2010, eq. 23, less its 2/d), as in
    `sklearn.covariance.oas`, with effective numbers of rows.
    """
    squares, trace = np.einsum("gij,gij->g", S, S), np.einsum("gii->g", S) ** 2
    spread = (rows + 1) * (squares - trace / d)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(spread > 0, np.minimum(1.0, (squares + trace) / spread), 1.0)
    return np.where(np.isnan(squares), 0.0, found)


def auto_amount(rows: np.ndarray) -> float:
    """Return Ledoit and Wolf's amount of shrinkage for rows, scaled to unit variance."""
    from sklearn.covariance import ledoit_wolf_shrinkage  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    if len(rows) < 2:
        return 0.0
    return float(ledoit_wolf_shrinkage(StandardScaler().fit_transform(rows - rows[0])))


# --- inverses ---------------------------------------------------------------------------------


class Roots(NamedTuple):
    """Roots of inverse covariances.

    Attributes
    ----------
    values : ndarray
        W of shape (groups, r, d), lower triangular where no direction was dropped, with W'W the
        inverse; or one over the variances, shape (groups, d).
    log_determinants : ndarray, shape (groups,)
    ranks : ndarray of int, shape (groups,)
        Ranks of the covariances, d where they have an inverse.
    """

    values: np.ndarray
    log_determinants: np.ndarray
    ranks: np.ndarray


def inverse_roots(S: np.ndarray, tol: float, *, overwrite: bool = False) -> Roots:
    """Return the roots of inverses; those of singular covariances have no meaning.

    Parameters
    ----------
    S : ndarray, shape (groups, d, d) or (groups, d)
    tol : float
        A covariance is singular if, scaled to unit variances, it has an eigenvalue of at most
        ``tol**2``, or of no more than rounding errors.
    overwrite : bool
        The roots of matrices replace them.
    """
    d = S.shape[-1]
    if S.ndim == 2:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ranks = np.count_nonzero(S >= _LEAST_VARIANCE, axis=1)
            return Roots(1 / S, np.log(S).sum(axis=1), ranks)
    roots = S if overwrite else np.empty_like(S)
    logs, ranks = np.zeros(len(S)), np.full(len(S), d)

    def invert(g: int) -> None:
        roots[g], logs[g], ranks[g] = _inverse_root(S[g], tol)

    if len(S) == 1:
        threads.call_blas(d, invert, 0)
    else:
        threads.run_serial_blas(invert, ((g,) for g in range(len(S))))
    return Roots(roots, logs, ranks)


_LEAST_VARIANCE, _EPS = np.finfo(np.float64).tiny, float(np.finfo(np.float64).eps)


def _inverse_root(S: np.ndarray, tol: float) -> tuple[np.ndarray, float, int]:
    """Return the inverse of the Cholesky factor, the log-determinant and the rank."""
    d, scales = len(S), _scales(S)
    root = np.ascontiguousarray(S / scales[:, None])
    root /= scales
    if not np.isfinite(root).all():
        return root, np.nan, 0
    positive = threads.cholesky(root)
    if positive:
        threads.invert_lower(root)
        root *= np.tri(d)
    # The square of the 2-norm of the inverse is at most the sum of its squares; eigenvalues are
    # only computed where that leaves a doubt.
    limit = max(tol**2, d * _EPS)
    if not (positive and np.vdot(root, root) * limit < 1):
        rank = int(np.count_nonzero(linalg.eigvalsh(S / scales[:, None] / scales) > limit))
        if not positive or rank < d:
            return root, np.nan, min(rank, d - 1)
    logs = 2 * np.log(scales).sum() - 2 * np.log(root.diagonal()).sum()
    root /= scales
    return root, float(logs), d


def _scales(S: np.ndarray) -> np.ndarray:
    """Return standard deviations, one where a variance is zero or has lost its digits."""
    variances = S.diagonal()
    return np.sqrt(np.where(variances >= _LEAST_VARIANCE, variances, 1.0))


def pseudo_root(S: np.ndarray, tol: float, scaled: bool) -> tuple[np.ndarray, float]:
    """Return W, shape (rank, d), with W'W a pseudo-inverse, and its log-determinant.

    Parameters
    ----------
    S : ndarray, shape (d, d)
    tol : float
        See `inverse_roots`.
    scaled : bool
        Drop directions of features that are scaled to unit variance, as scikit-learn's solver
        ``"svd"``; otherwise of the features as they are, which is the Moore-Penrose inverse.
    """
    scales = _scales(S) if scaled else np.ones(len(S))
    values, axes = linalg.eigh(S / scales[:, None] / scales)
    kept = values > max(tol**2, len(S) * _EPS) * (1.0 if scaled else max(values[-1], 0.0))
    axes = axes[:, kept]
    root = (axes / np.sqrt(values[kept])).T / scales
    root[:, S.diagonal() == 0] = 0.0  # Their means may be far apart.
    with np.errstate(divide="ignore"):
        return root, float(-2 * np.log(linalg.svdvals(root)).sum())


def singular_error(
    ranks: np.ndarray, d: int, classes: np.ndarray, count: np.ndarray, advice: str
) -> SingularCovarianceError:
    """Return the error for covariances whose rank is not d, of classes that have rows.

    A pooled covariance is that of every class.
    """
    ranks = np.broadcast_to(ranks, classes.shape)
    at = np.flatnonzero((ranks < d) & (count > 0))
    named = [
        f"class {classes[k]!s} (rank {ranks[k]} of {d}, {n:g} {'row' if n == 1 else 'rows'})"
        for k, n in zip(at[:10], count[at], strict=False)
    ]
    more = f" and {at.size - 10} more" if at.size > 10 else ""
    alone = at[count[at] == 1]
    alone = f"; y has only 1 sample in class {classes[alone[0]]!s}" if alone.size else ""
    return SingularCovarianceError(
        f"the covariance of {at.size} of {classes.size} classes is singular: {', '.join(named)}"
        f"{more}{alone}. {advice}",
        classes[at].tolist(),
    )


def check_priors(
    priors: Any,
    classes: np.ndarray,
    count: np.ndarray,
    name: str = "priors",
    *,
    normalised: bool = True,
) -> np.ndarray:
    """Return the priors of the classes, by default their shares of the rows.

    Raises
    ------
    InvalidParameterError
        For priors of another number of classes, negative ones, and a sum that is not one if they
        are to be normalised, or else not positive and finite.
    """
    if priors is None:
        return np.asarray(count / count.sum())
    values = as_numbers(name, priors, "one number for each class")
    if values.shape != classes.shape:
        raise InvalidParameterError(
            f"{name} has shape {values.shape}; expected one for each of the {classes.size} classes "
            f"{classes.tolist()[:20]}. Number of priors must match number of classes"
        )
    total = values.sum()
    if not (values >= 0).all() or not 0 < total < np.inf:
        raise InvalidParameterError(
            f"{name} must be non-negative, and the sum of {name} is {total:g}; expected finite "
            f"numbers, at least one above zero. Priors must be non-negative"
        )
    if normalised and not np.isclose(total, 1.0):
        raise InvalidParameterError(
            f"The sum of the priors should be 1; got {total:.6g}. Divide them by their sum"
        )
    return values
