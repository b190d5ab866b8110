"""What a covariance type means: one or a matrix per class, full or diagonal, one scale or many."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streamgda.errors import InvalidParameterError, MergeError


@dataclass(frozen=True)
class Structure:
    """The shape of a covariance type's state and of what it models.

    Attributes
    ----------
    name : str
        The covariance type.
    per_class : bool
        Whether each class has a covariance of its own; otherwise one is pooled within classes.
    matrix : bool
        Whether covariances between features are kept; otherwise variances only.
    isotropic : bool
        Whether all features share one variance. The state still holds one per feature, so that
        constant features can be told from the others.
    """

    name: str
    per_class: bool
    matrix: bool
    isotropic: bool

    def scatter_shape(self, n_classes: int, n_features: int) -> tuple[int, ...]:
        """Shape of the scatter held: (groups, d, d) or (groups, d), a group per class or one."""
        groups = n_classes if self.per_class else 1
        return (groups, n_features, n_features) if self.matrix else (groups, n_features)

    def state_bytes(self, n_classes: int, n_features: int) -> int:
        """Bytes of the moments' arrays: counts, means in two parts, and scatter."""
        scatter = math.prod(self.scatter_shape(n_classes, n_features))
        return 8 * (n_classes * (1 + 2 * n_features) + scatter)

    def groups(self, n_classes: int) -> np.ndarray:
        """The scatter's group of each class."""
        return np.arange(n_classes) if self.per_class else np.zeros(n_classes, np.int64)

    def covers(self, other: Structure) -> bool:
        """Whether moments of this structure determine those of `other`."""
        return (
            self.per_class >= other.per_class
            and self.matrix >= other.matrix
            and self.isotropic <= other.isotropic
        )


STRUCTURES = {
    s.name: s
    for s in (
        Structure("full", per_class=True, matrix=True, isotropic=False),
        Structure("tied", per_class=False, matrix=True, isotropic=False),
        Structure("diag", per_class=True, matrix=False, isotropic=False),
        Structure("tied_diag", per_class=False, matrix=False, isotropic=False),
        Structure("spherical", per_class=True, matrix=False, isotropic=True),
        Structure("tied_spherical", per_class=False, matrix=False, isotropic=True),
    )
}


def structure_of(covariance_type: object) -> Structure:
    """The structure of that name.

    Raises
    ------
    InvalidParameterError
        For any other value.
    """
    if isinstance(covariance_type, str) and covariance_type in STRUCTURES:
        return STRUCTURES[covariance_type]
    raise InvalidParameterError(
        f"covariance_type={covariance_type!r} is not known; use one of {', '.join(STRUCTURES)}"
    )


def check_covers(held: Structure, wanted: Structure) -> None:
    """Raise `MergeError` where moments of `held` do not determine those of `wanted`."""
    if not held.covers(wanted):
        possible = ", ".join(s.name for s in STRUCTURES.values() if held.covers(s))
        raise MergeError(
            f"moments of covariance_type={held.name!r} do not hold what {wanted.name!r} needs; "
            f"they can become: {possible}. Accumulate with covariance_type={wanted.name!r}, "
            f"or with 'full', which can become any other"
        )
