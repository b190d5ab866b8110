"""Covariance structures: one file for each kind, and the table of all covariance types."""

from __future__ import annotations

from streamgda.errors import InvalidParameterError, MergeError
from streamgda.moments.structures.base import Structure
from streamgda.moments.structures.diagonal import Diagonal
from streamgda.moments.structures.matrix import Matrix
from streamgda.moments.structures.spherical import Spherical
from streamgda.runtime.parameters import shown

__all__ = ["STRUCTURES", "Structure", "check_covers", "pooled", "structure_of"]

STRUCTURES = {
    structure.name: structure
    for structure in (
        Matrix("full", per_class=True, simpler=("tied", "diag")),
        Matrix("tied", per_class=False, simpler=("tied_diag",)),
        Diagonal("diag", per_class=True, simpler=("tied_diag", "tied_spherical")),
        Diagonal("tied_diag", per_class=False, simpler=("tied_spherical",)),
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
