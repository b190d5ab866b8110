"""Covariance types: what is kept of scatters, how rows are added, and roots of covariances.

A covariance type is an entry of `STRUCTURES`: a kind of covariance, and one for each class or
one for all. `Structure` keeps variances, and `Matrix` covariances between features. Another kind
inherits from one of them and overrides `Structure.constrain`, as `Spherical` does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from streamgda.errors import InvalidParameterError, MergeError
from streamgda.kernels import scoring
from streamgda.kernels.centred import (
    EXACT_ROWS,
    add_centred,
    add_centred_squares,
    add_exact_squares,
)
from streamgda.kernels.integers import centre_scatter, centre_squares
from streamgda.kernels.narrow import (
    BUCKET_FEATURES,
    add_centred_narrow,
    add_exact_narrow,
)
from streamgda.kernels.sparse import add_sparse_centred, add_sparse_exact
from streamgda.kernels.sums import copy_symmetric, triangle_size
from streamgda.moments import cost
from streamgda.moments import roots as roots_of
from streamgda.moments.parallel import add_integers, triangle_ranges
from streamgda.rows.arrays import byte_rows, copied, with_order
from streamgda.rows.sparse import CompressedRows
from streamgda.runtime import threads
from streamgda.runtime.parameters import shown
from streamgda.storage.format import pack_triangles, unpack_triangles


def symmetric(triangles: np.ndarray) -> np.ndarray:
    """Return the whole matrices of packed lower triangles, shape (..., d, d)."""
    *shape, size = triangles.shape
    d = math.isqrt(2 * size)
    matrices = np.empty((*shape, d, d), triangles.dtype)
    copy_symmetric(triangles.reshape(-1, size), np.arange(d), matrices.reshape(-1, d, d))
    return matrices


_COPIED = 1 << 20  # bytes of entries that are added at once, by copies


def add_entries(held: np.ndarray, others: np.ndarray, at: np.ndarray, sign: int) -> None:
    """Add entry k of others to entry ``at[k]`` of an array, or subtract it."""
    if at.size == len(held) and (at == np.arange(at.size)).all():
        (np.add if sign > 0 else np.subtract)(held, others, out=held)
    elif others.nbytes <= _COPIED and (np.diff(at) > 0).all():
        held[at] += sign * others
    else:
        for entry, k in zip(others, at.tolist(), strict=True):
            held[k] += sign * entry


def _places_of_squares(triangles: np.ndarray) -> np.ndarray:
    features = np.arange(math.isqrt(2 * triangles.shape[1]))
    return triangle_size(features) + features


# Most features of integers of a size in bytes; of more, products of their bytes take less time.
_BUCKET_INTEGERS = {1: 48, 2: 120}

_SHARED_FEATURES = 96  # of more, one product of rows for all centres takes less time


@dataclass(frozen=True)
class Structure:
    r"""Structure of the covariances of a covariance type.

    Two independent choices make a covariance type. The *groups* of classes that share a covariance
    are handled here: each class is a group, or all of them are one (pooled, "tied"), or as many
    successive classes make each group (`GroupedMoments` of a pooled type). The *kind* of
    covariance says how rows are added to a group's scatter, and how its covariance is inverted and
    rows are scored by it: here one variance for each feature, whose root is one over it. Subclasses
    are other kinds.

    Covariances and roots are arrays with one entry a group, shape (groups, d, d) if covariances
    between features are kept and (groups, d) otherwise. Scatters are kept as packed lower
    triangles, shape (groups, d (d + 1) / 2), or sums of squares, shape (groups, d): half of the
    memory, wherever states are held, sent or saved. `symmetric` and `select_varying` unpack them.

    Attributes
    ----------
    name : str
        The covariance type.
    per_class : bool
        One covariance for each class; otherwise one, pooled within classes.
    simpler : tuple of str
        Covariance types to advise where a covariance is singular.
    sharing : int
        Number of successive classes that share a pooled covariance; 0 if all do.
    kind : str
        Name of the kind, that of its covariance type per class.
    sources : frozenset of str
        Kinds that determine this one.
    matrix : bool
        Covariances between features are kept.
    one_variance : bool
        All features that vary have the same variance. Scatters still have an entry for each, so
        that constant features can be found.
    """

    name: str
    per_class: bool
    simpler: tuple[str, ...] = ()
    sharing: int = 0

    kind: ClassVar[str] = "diag"
    sources: ClassVar[frozenset[str]] = frozenset({"full", "diag"})
    matrix: ClassVar[bool] = False
    one_variance: ClassVar[bool] = False

    # --- groups of classes --------------------------------------------------------------------

    def groups(self, n_classes: int) -> np.ndarray:
        """Return the group of each class."""
        if self.per_class:
            return np.arange(n_classes)
        return np.arange(n_classes) // (self.sharing or max(n_classes, 1))

    def group(self, number: int) -> int:
        """Return the group of one class."""
        return number if self.per_class else 0

    def group_sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sums over the classes of each group, from one entry a class."""
        if self.per_class:
            return values
        if not self.sharing:
            return values.sum(axis=0, keepdims=True)
        return values.reshape(-1, self.sharing, *values.shape[1:]).sum(axis=1)

    def group_weights(self, count: np.ndarray, ddof: float) -> np.ndarray:
        """Return the count of each group, less `ddof` for each of its classes with rows."""
        return self.group_sums(np.where(count > 0, count - float(ddof), 0.0))

    def ungroup(self, values: np.ndarray) -> np.ndarray:
        """Return values of groups in the shape that users see: without the axis of one group."""
        return values if self.per_class else values[0]

    def add_groups(self, scatter: np.ndarray, other: np.ndarray, at: np.ndarray, sign: int) -> None:
        """Add to `scatter`, or subtract, that of other rows, whose class k is class ``at[k]``."""
        groups = at
        if not self.per_class:  # those of the first class of each group
            first = at[:: max(1, at.size // max(1, len(other)))]
            groups = first // self.sharing if self.sharing else np.zeros(len(other), np.int64)
        add_entries(scatter, other, groups, sign)

    def n_groups(self, n_classes: int) -> int:
        """Return the number of groups of that many classes."""
        if self.per_class:
            return n_classes
        return n_classes // self.sharing if self.sharing else 1

    def scatter_shape(self, n_classes: int, n_features: int) -> tuple[int, int]:
        """Return the shape of the scatter of all groups."""
        size = triangle_size(n_features) if self.matrix else n_features
        return self.n_groups(n_classes), size

    def state_bytes(self, n_classes: int, n_features: int) -> int:
        """Return the bytes of the moments' arrays: counts, means in two parts, and scatter."""
        scatter = math.prod(self.scatter_shape(n_classes, n_features))
        return 8 * (n_classes * (1 + 2 * n_features) + scatter)

    def model_bytes(self, n_classes: int, n_features: int) -> int:
        """Return the bytes of a model's arrays: means in two parts, and whole covariances."""
        covariances = self.n_groups(n_classes) * self.group_size(n_features)
        return 8 * (n_classes * (1 + 2 * n_features) + covariances)

    # --- the layout of covariances and scatters: matrices, or variances ------------------------

    def shape(self, n_features: int) -> tuple[int, ...]:
        """Return the shape of one group's covariance or root."""
        return (n_features,) * (1 + self.matrix)

    def group_size(self, n_features: int) -> int:
        """Return the entries of one group's covariance: multiplications to add a row to it."""
        return n_features ** (1 + self.matrix)

    @staticmethod
    def diagonal(values: np.ndarray) -> np.ndarray:
        """Return a view of the entries of single features of covariances, shape (groups, d)."""
        return values if values.ndim == 2 else np.einsum("gii->gi", values)

    def squares(self, scatter: np.ndarray) -> np.ndarray:
        """Return the sums of squares of single features, shape (groups, d); maybe a view."""
        return np.take(scatter, _places_of_squares(scatter), axis=1) if self.matrix else scatter

    def put_squares(self, scatter: np.ndarray, squares: np.ndarray) -> None:
        """Replace the sums of squares of single features."""
        scatter[:, _places_of_squares(scatter) if self.matrix else slice(None)] = squares

    def pack(self, values: np.ndarray) -> np.ndarray:
        """Return scatters of whole or lower triangular matrices, or roots as they are saved."""
        return pack_triangles(values) if self.matrix else values

    def unpack(self, values: np.ndarray) -> np.ndarray:
        """Return lower triangular matrices, or variances, from what `pack` returned."""
        return unpack_triangles(values) if self.matrix else values

    def whole(self, scatter: np.ndarray) -> np.ndarray:
        """Return scatters as covariances are: whole matrices, or sums of squares; a copy."""
        return symmetric(scatter) if self.matrix else scatter.copy()

    def select_features(self, scatter: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Return the scatter of some features, in any order."""
        if self.matrix:
            left, right = (index[lower] for lower in np.tril_indices(index.size))
            index = triangle_size(np.maximum(left, right)) + np.minimum(left, right)
        return np.take(scatter, index, axis=1)

    def select_varying(self, scatter: np.ndarray, features: np.ndarray, out: np.ndarray) -> None:
        """Write the scatter of some features, in rising order; whole matrices."""
        if self.matrix:
            copy_symmetric(scatter, features, out)
        else:
            np.take(scatter, features, axis=1, out=out, mode="clip")  # others make a copy

    # --- other covariance types ---------------------------------------------------------------

    def covers(self, other: Structure) -> bool:
        """Return True if moments of this structure determine those of `other`."""
        return self.per_class >= other.per_class and self.kind in other.sources

    def of_kind(self, held: Structure, scatter: np.ndarray) -> np.ndarray:
        """Return scatters of this kind from those of a kind that determines it; maybe views."""
        return scatter if self.matrix else held.squares(scatter)

    def reduced(self, held: Structure, scatter: np.ndarray) -> np.ndarray:
        """Return the scatter of this structure from that of one that covers it; maybe a view."""
        scatter = self.of_kind(held, scatter)
        return scatter if held.per_class == self.per_class else self.group_sums(scatter)

    def check_covariances(self, method: str) -> None:
        """Raise `MergeError` unless covariances between features are kept."""
        if not self.matrix:
            raise MergeError(
                f"{method}() needs covariances between features, which "
                f"covariance_type={self.name!r} does not keep; use 'full' or 'tied'"
            )

    # --- adding rows --------------------------------------------------------------------------

    def wide(self, n_features: int, value_bytes: int = 0) -> bool:
        """Return True if many rows are multiplied by BLAS, or by their bytes if they are exact."""
        return self.matrix and n_features > _BUCKET_INTEGERS.get(value_bytes, BUCKET_FEATURES)

    def load(self, n_classes: int, n_features: int, value_bytes: int = 0) -> cost.Load:
        """Return the sizes of sums, and of integers that are added to them; 0 for floats."""
        groups, wide = self.n_groups(n_classes), self.wide(n_features, value_bytes)
        return cost.Load(n_classes, groups, n_features, self.matrix, value_bytes, wide)

    def add_few(
        self, X: Any, codes: np.ndarray, weights: np.ndarray, block_rows: int, *state: Any
    ) -> bool:
        """Add rows to float64 sums, block by block; return False if a sum is not finite.

        So it does for values and weights beyond a limit, see `kernels.sums.LARGE`. Only kinds
        without covariances between features are given sparse rows, all as one block. `state` is the
        limit, and counts, sums of squared weights (or an empty array), both parts of the means and
        the scatter, which change.
        """
        if type(X) is CompressedRows:
            return bool(add_sparse_centred(*X.arrays, codes, weights, *state))
        return bool(add_centred_squares(*with_order(X), codes, weights, block_rows, *state))

    def add_integers(self, X: Any, codes: np.ndarray, n_threads: int, *state: np.ndarray) -> None:
        """Add rows of integers to int64 sums.

        On one thread, that is a single kernel call, as it is for variances. `state` is counts,
        totals and the scatter, which change.
        """
        if type(X) is CompressedRows:
            add_sparse_exact(*X.astype(np.int32).arrays, codes, *state)
            return
        add_exact_squares(*with_order(X), codes, *state)

    def centre_integers(self, *sums: np.ndarray, out: np.ndarray) -> None:
        """Write the scatter about the means, each entry rounded once, from exact sums.

        The sums are the arguments of the kernels in `streamgda.kernels.integers`.
        """
        *by_class, square, features = sums
        centre_squares(*by_class, np.ascontiguousarray(square[:, features]), out)

    # --- covariances and their roots ----------------------------------------------------------

    def covariance(self, scatter: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return scatters divided by the weights of their groups, whole and not just triangles."""
        values = self.whole(scatter)
        values /= weight.reshape(-1, *[1] * (values.ndim - 1))
        return np.asarray(values.mean(axis=1)) if self.one_variance else values

    def n_averaged(self, n_varying: int, n_features: int) -> int:
        """Return over how many features variances are averaged: else all, as in scikit-learn."""
        return max(1, n_varying) if self.one_variance else n_features

    def constrain(self, covariances: np.ndarray, sphere: np.ndarray) -> None:
        """Bring covariances into the form of this kind, in place; most kinds have nothing to do.

        `sphere` holds the variances if they are equal for all (scaled) features, with the same
        mean; shape (groups, d).
        """

    def shown(self, covariances: np.ndarray) -> np.ndarray:
        """Return regularised covariances in the shape that users see, apart from the groups."""
        return covariances[:, 0] if self.one_variance else covariances

    def invert(
        self, covariances: np.ndarray, tol: float, singular: str, log_determinants: np.ndarray
    ) -> list[int]:
        r"""Replace covariances by roots W of their inverses; return the ranks.

        :math:`(x-m)^T \Sigma^{-1} (x-m)` is the squared length of :math:`W (x-m)`, or for
        diagonals :math:`\sum_j W_j (x_j - m_j)^2`. Kinds with covariances between features drop
        directions if `singular` is not ``"refuse"``: :math:`W^T W` is a pseudo-inverse then, and
        the rank zero if nothing is left. Otherwise, where a rank is not full, what is written has
        no meaning.
        """
        positive = covariances >= roots_of.LEAST_VARIANCE
        n_groups, d = covariances.shape
        if np.count_nonzero(positive) == covariances.size:
            np.add.reduce(np.log(covariances), axis=1, out=log_determinants)
            np.reciprocal(covariances, out=covariances)
            return [d] * n_groups
        log_determinants[...] = np.log(np.where(positive, covariances, 1.0)).sum(axis=1)
        np.divide(1, covariances, out=covariances, where=positive)
        return positive.sum(axis=1).tolist()

    def log_determinants(self, roots: np.ndarray) -> np.ndarray:
        """Return the log-determinants of the covariances with these roots, shape (groups,)."""
        return np.asarray(-np.log(roots).sum(axis=1))

    def marginal(self, roots: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Return the roots for some of the features."""
        return roots[:, at]

    def regression(self, root: np.ndarray, at: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return the coefficients of other features given some, shape (n_others, n_given)."""
        return np.zeros((others.size, at.size))

    def solve(self, root: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return the products of vectors, shape (n, d), and the inverse covariance."""
        return vectors * root

    def whitening(self, root: np.ndarray) -> np.ndarray:
        """Return a matrix that turns the covariance into the unit matrix, shape (rank, d)."""
        return np.diag(np.sqrt(root))

    def variances_along(self, root: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Return the variances along directions, shape (..., d), from a root of full rank."""
        return np.asarray(directions**2 @ (1 / root))

    def sampling_root(self, covariance: np.ndarray) -> np.ndarray:
        """Return L with L L' = covariance, which may be singular."""
        return np.sqrt(covariance)

    def packed(
        self, roots: np.ndarray, features: np.ndarray, centres: np.ndarray
    ) -> roots_of.Distances:
        """Return the distances of rows to centres, shape (n_centres, d), by roots of inverses."""
        return roots_of.DiagonalDistances(roots, features, centres)


class Matrix(Structure):
    """A covariance for each pair of features.

    The root is the inverse of the lower Cholesky factor. That of a pseudo-inverse of rank r is
    lower triangular too; it starts with d - r rows of zeros.
    """

    kind = "full"
    sources = frozenset({"full"})
    matrix = True

    def add_few(
        self, X: Any, codes: np.ndarray, weights: np.ndarray, block_rows: int, *state: Any
    ) -> bool:
        (n_rows, d), n_classes = X.shape, state[1].size
        # To look at all sizes takes as long as to add a row.
        if n_rows > n_classes and cost.in_buckets(self.load(n_classes, d), n_rows):
            return bool(add_centred_narrow(*with_order(X), codes, weights, block_rows, *state))
        return bool(add_centred(copied(X), codes, weights, block_rows, *state))

    def add_integers(self, X: Any, codes: np.ndarray, n_threads: int, *state: np.ndarray) -> None:
        (n_rows, d), (count, total, scatter) = X.shape, state
        load = self.load(count.size, d, X.dtype.itemsize)
        if n_threads == 1 and n_rows <= EXACT_ROWS and cost.in_buckets(load, n_rows):
            X, order = with_order(X)
            add_exact_narrow(X, order, codes, count, total, scatter)
        else:
            rows, form = byte_rows(copied(X))
            add_integers(rows, codes, form, count, total, scatter, n_threads)

    def centre_integers(self, *sums: np.ndarray, out: np.ndarray) -> None:
        ranges = triangle_ranges(math.isqrt(2 * out.shape[1]), threads.n_threads())
        threads.run(lambda first, last: centre_scatter(*sums, first, last, out), ranges)

    def invert(
        self, covariances: np.ndarray, tol: float, singular: str, log_determinants: np.ndarray
    ) -> list[int]:
        ranks = roots_of.invert(covariances, tol, singular)
        d = covariances.shape[-1]
        if all(rank == d or (rank and singular != "refuse") for rank in ranks):
            log_determinants[...] = self.log_determinants(covariances)
        return ranks

    def log_determinants(self, roots: np.ndarray) -> np.ndarray:
        if (self.diagonal(roots) > 0).all():
            return np.asarray(-2 * np.log(self.diagonal(roots)).sum(axis=1))
        return np.array([roots_of.log_determinant(self.whitening(root)) for root in roots])

    def marginal(self, roots: np.ndarray, at: np.ndarray) -> np.ndarray:
        return np.stack([roots_of.marginal(root, at) for root in roots])

    def regression(self, root: np.ndarray, at: np.ndarray, others: np.ndarray) -> np.ndarray:
        return roots_of.regression(root, at, others)

    def solve(self, root: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return np.asarray((vectors @ root.T) @ root)

    def whitening(self, root: np.ndarray) -> np.ndarray:
        return root[len(root) - roots_of.rank(root) :]

    def variances_along(self, root: np.ndarray, directions: np.ndarray) -> np.ndarray:
        # The covariance is the inverse of W' W, so that w' S w is the square of W^-T w.
        solved = linalg.solve_triangular(root, directions.T, lower=True, trans="T")
        return np.asarray((solved**2).sum(axis=0))

    def sampling_root(self, covariance: np.ndarray) -> np.ndarray:
        # Unlike triangular roots, the symmetric one of the correlations is continuous where they
        # are singular, too. Variances that may be rounding errors become zero, without a step.
        scale = roots_of.deviations(covariance)
        correlation = covariance / scale[:, None] / scale
        np.fill_diagonal(correlation, correlation.diagonal() > 0)
        variances, axes = linalg.eigh(correlation, overwrite_a=True, check_finite=False)
        rounding = 16 * len(scale) * np.finfo(np.float64).eps
        lengths = np.sqrt(np.maximum(variances - rounding, 0))
        root = (axes * lengths) @ axes.T
        root *= np.sqrt(np.maximum(covariance.diagonal(), 0))[:, None]
        return root

    def packed(
        self, roots: np.ndarray, features: np.ndarray, centres: np.ndarray
    ) -> roots_of.Distances:
        kind: Any = roots_of.DirectDistances
        if len(roots) < len(centres) and features.size > _SHARED_FEATURES:
            kind = roots_of.PooledDistances
        elif features.size > scoring.PANEL_FEATURES:
            kind = roots_of.MatrixDistances
        return kind(roots, features, centres)


class Spherical(Structure):
    """One variance for all features: the mean over the features that vary."""

    kind = "spherical"
    sources = frozenset({"full", "diag", "spherical"})
    one_variance = True

    def constrain(self, covariances: np.ndarray, sphere: np.ndarray) -> None:
        covariances[...] = sphere


STRUCTURES = {
    structure.name: structure
    for structure in (
        Matrix("full", per_class=True, simpler=("tied", "diag")),
        Matrix("tied", per_class=False, simpler=("tied_diag",)),
        Structure("diag", per_class=True, simpler=("tied_diag", "tied_spherical")),
        Structure("tied_diag", per_class=False, simpler=("tied_spherical",)),
        Spherical("spherical", per_class=True, simpler=("tied_diag", "tied_spherical")),
        Spherical("tied_spherical", per_class=False),
    )
}


def structure_of(covariance_type: object) -> Structure:
    """Return the structure of a covariance type.

    Raises
    ------
    InvalidParameterError
        For any other value.
    """
    if isinstance(covariance_type, str) and covariance_type in STRUCTURES:
        return STRUCTURES[covariance_type]
    raise InvalidParameterError(
        f"covariance_type={shown(covariance_type)} is not known; use one of {', '.join(STRUCTURES)}"
    )


def pooled(covariance_type: str) -> str:
    """Return the covariance type of the same kind that is pooled within classes."""
    kind = structure_of(covariance_type).kind
    return next(s.name for s in STRUCTURES.values() if s.kind == kind and not s.per_class)


def check_covers(held: Structure, wanted: Structure) -> None:
    """Raise `MergeError` unless moments of structure `held` determine those of `wanted`."""
    if not held.covers(wanted):
        remedy = f"Accumulate with covariance_type={wanted.name!r}"
        if wanted.name != "full":
            remedy += ", or with 'full', which can become any other"
        possible = ", ".join(s.name for s in STRUCTURES.values() if held.covers(s))
        raise MergeError(
            f"moments of covariance_type={held.name!r} do not hold what {wanted.name!r} needs; "
            f"they can become: {possible}. {remedy}"
        )
