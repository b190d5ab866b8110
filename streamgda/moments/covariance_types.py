"""Covariance types: two flags, pooled within classes or not, matrices or variances.

`Structure` says where the scatter of a class is, and how covariances are inverted. A scatter is
kept as a packed lower triangle, or as sums of squares: half of the memory of matrices, wherever
states are held, sent or saved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streamgda.errors import InvalidParameterError, MergeError
from streamgda.kernels.sums import copy_symmetric, triangle_size
from streamgda.runtime.parameters import shown


def symmetric(triangles: np.ndarray) -> np.ndarray:
    """Return the whole matrices of packed lower triangles, shape (..., d, d)."""
    *shape, size = triangles.shape
    d = math.isqrt(2 * size)
    matrices = np.empty((*shape, d, d), triangles.dtype)
    copy_symmetric(triangles.reshape(-1, size), matrices.reshape(-1, d, d))
    return matrices


def _places_of_squares(triangles: np.ndarray) -> np.ndarray:
    features = np.arange(math.isqrt(2 * triangles.shape[1]))
    return triangle_size(features) + features


@dataclass(frozen=True)
class Structure:
    """What a covariance type keeps of each scatter, and the shapes of covariances and roots.

    Each class is a group with a covariance, or all classes are one group. Covariances and roots
    have shape (groups, d, d) with covariances between features and (groups, d) without, scatters
    (groups, d (d + 1) / 2) and (groups, d).

    Attributes
    ----------
    name : str
        The covariance type.
    per_class : bool
        One covariance for each class; otherwise one, pooled within classes.
    matrix : bool
        Covariances between features are kept; otherwise variances.
    one_variance : bool
        All features that vary have the same variance. Scatters still have an entry for each, so
        that constant features can be found.
    """

    name: str
    per_class: bool
    matrix: bool
    one_variance: bool = False

    @property
    def kind(self) -> str:
        """Name of the covariance type with the same covariances, one for each class."""
        return "full" if self.matrix else "spherical" if self.one_variance else "diag"

    # --- groups of classes --------------------------------------------------------------------

    def group_sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sums over the classes of each group, from one entry a class."""
        return values if self.per_class else np.asarray(values.sum(axis=0, keepdims=True))

    def group_weights(self, count: np.ndarray, ddof: float) -> np.ndarray:
        """Return the count of each group, less `ddof` for each of its classes with rows."""
        return self.group_sums(np.where(count > 0, count - float(ddof), 0.0))

    def ungroup(self, values: np.ndarray) -> np.ndarray:
        """Return values of groups in the shape that users see: without the axis of one group."""
        return values if self.per_class else values[0]

    def n_groups(self, n_classes: int) -> int:
        """Return the number of groups of that many classes."""
        return n_classes if self.per_class else 1

    def scatter_shape(self, n_classes: int, n_features: int) -> tuple[int, int]:
        """Return the shape of the scatter of all groups."""
        size = triangle_size(n_features) if self.matrix else n_features
        return n_classes if self.per_class else 1, size

    def state_bytes(self, n_classes: int, n_features: int) -> int:
        """Return the bytes of the moments' arrays: counts, means in two parts, and scatter."""
        scatter = math.prod(self.scatter_shape(n_classes, n_features))
        return 8 * (n_classes * (2 + 2 * n_features) + scatter)

    def model_bytes(self, n_classes: int, n_features: int) -> int:
        """Return the bytes of a model's arrays: means in two parts, and whole covariances."""
        covariances = self.n_groups(n_classes) * math.prod(self.shape(n_features))
        return 8 * (n_classes * (1 + 2 * n_features) + covariances)

    # --- the layout of covariances and scatters: matrices, or variances ------------------------

    def shape(self, n_features: int) -> tuple[int, ...]:
        """Return the shape of one group's covariance or root."""
        return (n_features,) * (1 + self.matrix)

    @staticmethod
    def diagonal(values: np.ndarray) -> np.ndarray:
        """Return a view of the entries of single features of covariances, shape (groups, d)."""
        return values if values.ndim == 2 else np.einsum("gii->gi", values)

    def squares(self, scatter: np.ndarray) -> np.ndarray:
        """Return the sums of squares of single features, shape (groups, d); maybe a view."""
        return np.take(scatter, _places_of_squares(scatter), axis=1) if self.matrix else scatter

    def clip_squares(self, scatter: np.ndarray) -> None:
        """Replace sums of squares of single features that rounding left below zero."""
        squares = _places_of_squares(scatter) if self.matrix else slice(None)
        scatter[:, squares] = np.maximum(scatter[:, squares], 0)

    def pack(self, values: np.ndarray) -> np.ndarray:
        """Return the scatters of matrices, whose lower triangles count, or of sums of squares."""
        if not self.matrix:
            return values
        return np.concatenate([values[:, i, : i + 1] for i in range(values.shape[1])], axis=1)

    def whole(self, scatter: np.ndarray) -> np.ndarray:
        """Return scatters as covariances are: whole matrices, or sums of squares; a copy."""
        return symmetric(scatter) if self.matrix else scatter.copy()

    def select_features(self, scatter: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Return the scatter of some features, in any order."""
        if self.matrix:
            left, right = (index[lower] for lower in np.tril_indices(index.size))
            index = triangle_size(np.maximum(left, right)) + np.minimum(left, right)
        return np.take(scatter, index, axis=1)

    # --- other covariance types ---------------------------------------------------------------

    def covers(self, other: Structure) -> bool:
        """Return True if moments of this structure determine those of `other`."""
        variances = self.matrix or not other.matrix
        single = other.one_variance or not self.one_variance
        return self.per_class >= other.per_class and variances and single

    def reduced(self, held: Structure, scatter: np.ndarray) -> np.ndarray:
        """Return the scatter of this structure from that of one that covers it; maybe a view."""
        scatter = scatter if self.matrix else held.squares(scatter)
        return scatter if held.per_class == self.per_class else self.group_sums(scatter)

    def check_covariances(self, method: str) -> None:
        """Raise `MergeError` unless covariances between features are kept."""
        if not self.matrix:
            raise MergeError(
                f"{method}() needs covariances between features, which "
                f"covariance_type={self.name!r} does not keep; use 'full' or 'tied'"
            )

    # --- covariances and their roots ----------------------------------------------------------

    def covariance(self, scatter: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return scatters divided by the weights of their groups, whole and not just triangles."""
        values = self.whole(scatter)
        values /= weight.reshape(-1, *[1] * (values.ndim - 1))
        return np.asarray(values.mean(axis=1)) if self.one_variance else values


STRUCTURES = {
    structure.name: structure
    for structure in (
        Structure("full", True, True),
        Structure("tied", False, True),
        Structure("diag", True, False),
        Structure("tied_diag", False, False),
        Structure("spherical", True, False, True),
        Structure("tied_spherical", False, False, True),
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
