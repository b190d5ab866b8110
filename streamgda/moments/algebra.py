"""`Algebra`: adding, subtracting and scaling class moments."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidParameterError, MergeError
from streamgda.moments.centred import OVERFLOW, CentredSums
from streamgda.moments.class_state import ClassState, keep_fourth
from streamgda.moments.exact import ExactSums
from streamgda.moments.fourth import NormsOfPart, merge_norms
from streamgda.rows import labels as label_codes
from streamgda.rows.names import Names
from streamgda.runtime.parameters import as_number


class Algebra(ClassState):
    """Sums, differences and multiples of class moments."""

    @property
    def _named_groups(self) -> bool:
        """True if the groups of the scatter have labels, those of the classes."""
        return self._structure.per_class

    def __iadd__(self, other: Self) -> Self:
        if not isinstance(other, Algebra):
            return NotImplemented
        with self._lock:
            return self._add(other)

    def _add(self, other: Algebra, decay: float | None = None) -> Self:
        """Add other moments, and multiply all weights by `decay`, in one step."""
        names = self._check_mergeable(other)
        n_skipped = self._n_skipped + other._n_skipped
        theirs: Any = other._sums
        if theirs is None:
            self._n_skipped = n_skipped
            return self
        classes = label_codes.join_labels(self._classes, other._classes)
        at = np.searchsorted(classes, other._classes)
        norms = self._norms
        if other._norms is not None:
            own = np.searchsorted(classes, self._classes)
            parts = [*self._norms_as_part(1, own), *other._norms_as_part(1, at)]
            norms = merge_norms(parts, classes.size)

        def change(mine: Any) -> None:
            mine.add(theirs, at)
            state = scaled(mine, norms, decay)
            self._classes, self._sums, self._norms, self._n_skipped = classes, *state, n_skipped
            self._feature_names = names

        mine: Any = self._with_classes(classes)
        if mine is None:
            mine = theirs.empty(classes.size)
        elif decay is not None or not _both_exact(mine, theirs) or not mine.can_add(theirs):
            mine, theirs = _as_centred(mine, norms), _as_centred(theirs, norms)
        room = not isinstance(mine, CentredSums) or mine.has_room_for(theirs, at)
        if not room or (norms is not None and not np.isfinite(norms).all()):
            raise MergeError(OVERFLOW)
        self._change_sums(mine, change)
        return self

    def __sub__(self, other: Self) -> Self:
        """Return the moments without the rows of `other`, as if these had never been added.

        The result is exact to rounding, or to the bit if both are exact. Classes left without rows
        are dropped.

        Raises
        ------
        MergeError
            If the features or the covariance types differ, or `other` holds rows that these
            moments do not: more of a class, or such that a sum of squares would be left that no
            rows have, by more than rounding.
        """
        if not isinstance(other, Algebra):
            return NotImplemented
        names = self._check_mergeable(other)
        if other._sums is None or not other._sums.count.any():
            return self.copy()
        at = self._check_contains(other)
        if (at < 0).any():  # classes without rows
            other, at = other._keep(at >= 0), at[at >= 0]
        norms = None
        if self._norms is not None:
            everyone = np.arange(self._classes.size)
            parts = [*self._norms_as_part(1, everyone), *other._norms_as_part(-1, at)]
            norms = merge_norms(parts, everyone.size)
        theirs: Any = other._sums
        left: Any = self.copy()._sums
        if not _both_exact(left, theirs):
            left, theirs = _as_centred(left, norms), _as_centred(theirs, norms)
        with np.errstate(over="ignore", invalid="ignore"):
            impossible = np.argwhere(left.subtract(theirs, at))
        if impossible.size:
            group, feature = impossible[0].tolist()
            of = f" of class {self._classes[group]!s}" if self._named_groups else ""
            raise MergeError(
                f"subtracting these moments leaves a sum of squares{of} that no rows have in "
                f"feature {feature if names is None else names[feature]}: only rows that were "
                f"added can be subtracted"
            )
        result = self._with_sums(self._classes, left, norms)
        result._feature_names = names
        result._n_skipped = max(0, self._n_skipped - other._n_skipped)
        emptied = np.zeros(self._classes.size, bool)
        emptied[at] = (left.count[at] == 0) & (other.class_count > 0)
        return result._keep(~emptied) if emptied.any() else result

    def __mul__(self, gamma: float) -> Self:
        """Return the moments with every weight multiplied by `gamma`, to forget old rows.

        A class whose weight falls below 1e-250 becomes one without rows.

        Raises
        ------
        InvalidParameterError
            If `gamma` is negative or not finite, or so large that sums overflow.
        """
        return self.copy().__imul__(gamma)

    __rmul__ = __mul__

    def __imul__(self, gamma: float) -> Self:
        if not isinstance(gamma, Real):
            return NotImplemented
        gamma = as_number("gamma", gamma, "a finite number >= 0", 0)
        with self._lock:
            if self._sums is not None:
                centred = _as_centred(self._sums, self._norms)
                if gamma > 1 and not centred.can_scale(gamma, self._norms):
                    raise InvalidParameterError(f"gamma={gamma:g}: {OVERFLOW}")

                def change(sums: CentredSums) -> None:
                    self._sums, self._norms = scaled(sums, self._norms, gamma)

                self._change_sums(centred, change)
        return self

    def copy(self) -> Self:
        """Return independent moments with the same values.

        Returns
        -------
        ClassMoments
            The copy.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments().update([[1.0], [3.0]], ["ant", "ant"])
        >>> before = moments.copy()
        >>> _ = moments.update([[8.0]], ["bee"])
        >>> before.class_count, moments.class_count
        (array([2]), array([2, 1]))
        """
        with self._lock:
            sums = self._sums.copy() if self._sums is not None else None
            norms = self._norms.copy() if self._norms is not None else None
            copied = self._with_sums(self._classes, sums, norms)
            keep_fourth(copied, self._scaled_fourth())
            return copied

    def _keep(self, kept: np.ndarray) -> Self:
        """Return the moments of some classes."""
        assert self._sums is not None
        dropped = ~kept & (self._sums.count > 0)
        if dropped.any() and not self._structure.per_class:
            raise MergeError(
                f"moments of covariance_type={self.covariance_type!r} have one scatter for all "
                f"classes, from which no class can be left out; accumulate "
                f"{self._structure.kind!r} moments, select, then reduce()"
            )
        sums = self._sums.with_classes(kept, kept if self._structure.per_class else slice(None))
        norms = self._norms[kept] if self._norms is not None else None
        result = self._with_sums(self._classes[kept], sums, norms)
        own = self._scaled_fourth().get("class")  # which depends on the rows of its class alone
        if own is not None:
            keep_fourth(result, {"class": own[kept]})
        return result

    def _norms_as_part(self, sign: int, at: np.ndarray) -> list[NormsOfPart]:
        """Return these moments as one of the parts of `merge_norms`; none if without rows."""
        if self._sums is None or self._norms is None:
            return []
        return [(sign, self._norms, _as_centred(self._sums, self._norms), at)]

    def _check_mergeable(self, other: Algebra) -> Names | None:
        """Raise `MergeError` unless both moments combine; return the names of the features."""
        if self.covariance_type != other.covariance_type:
            raise MergeError(
                f"moments of covariance_type={self.covariance_type!r} and "
                f"{other.covariance_type!r} do not combine; bring both to one with reduce()"
            )
        if self.norms != other.norms:
            raise MergeError(
                f"moments {'with' if self.norms else 'without'} norms and moments "
                f"{'with' if other.norms else 'without'} do not combine; make both with "
                f"norms=True, or both without"
            )
        self._check_width(other)
        return self._names_with(other)

    def _check_contains(self, other: Algebra) -> np.ndarray:
        """Return the numbers here of the other's classes; refuse rows that are not included."""
        at = label_codes.find(other._classes, self._classes)
        held = np.where(at >= 0, np.append(self.class_count, 0)[at], 0)
        for label, count, here in zip(
            other._classes.tolist(), other.class_count, held, strict=True
        ):
            if exceeds(count, here):
                raise MergeError(
                    f"subtracting {count:g} rows of class {label!r} from moments that hold "
                    f"{here:g} of them: only rows that were added can be subtracted"
                )
        return at


def exceeds(count: Any, held: Any) -> Any:
    """Return where there are more rows than those held, or more weight, by more than rounding."""
    whole = count.dtype.kind == held.dtype.kind == "i"
    return count > (held if whole else held * (1 + 1e-9))


def _as_centred(sums: CentredSums | ExactSums, norms: np.ndarray | None) -> CentredSums:
    """Return sums in float64. Beside exact ones, norms may have rounding errors of any size."""
    centred = sums.centred()
    if norms is not None and centred is not sums:
        centred.rounding = np.zeros_like(sums.structure.diagonal(centred.scatter))
    return centred


def scaled(
    sums: Any, norms: np.ndarray | None, gamma: float | None
) -> tuple[CentredSums | ExactSums, np.ndarray | None]:
    """Multiply the weights in sums by `gamma`, in place; return them and scaled norms."""
    if gamma is not None:
        gone = sums.scale(gamma)
        if norms is not None:
            norms = norms * gamma
            norms[gone] = 0
    return sums, norms


def _both_exact(a: CentredSums | ExactSums, b: CentredSums | ExactSums) -> bool:
    return isinstance(a, ExactSums) and isinstance(b, ExactSums)
