"""`Cells`: the moments of groups x classes in one state, to which rows are added in one pass.

`Held` has the labels of the groups and classes besides.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np

from streamgda.moments.class_moments import ClassMoments
from streamgda.moments.class_state import from_sums
from streamgda.moments.norms import merge_norms
from streamgda.moments.structures import Structure, structure_of
from streamgda.rows.codes import CodedLabels
from streamgda.rows.labels import find
from streamgda.storage.checks import check_whole
from streamgda.storage.saved import State

_SHIFT = 32  # of the number of the group above that of the class
_Kind = TypeVar("_Kind", bound=ClassMoments)


def grid(n_groups: int, n_classes: int) -> np.ndarray:
    """Return the labels of all cells, sorted."""
    return (np.arange(n_groups)[:, None] << _SHIFT | np.arange(n_classes)).ravel()


class Cells(ClassMoments):
    """Moments whose classes are cells, each of one group and one class, in the order of groups.

    The label of a cell holds both numbers. Types with a covariance per class have the cells that
    have rows. Pooled types have one scatter for each group, and so all cells of each group: as
    many successive classes share a scatter.
    """

    def __init__(self, covariance_type: str = "full", *, norms: bool = False) -> None:
        super().__init__(covariance_type, norms=norms)
        self._grid = self._classes  # all cells, for pooled types

    @property
    def pooled(self) -> bool:
        """True if classes of a group share a scatter."""
        return not self._structure.per_class

    @property
    def _named_groups(self) -> bool:
        return False

    @property
    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the group and of the class of each cell."""
        return self._classes >> _SHIFT, self._classes & ((1 << _SHIFT) - 1)

    def counts(self, n_groups: int, n_classes: int) -> np.ndarray:
        """Return the count of each cell, shape (n_groups, n_classes)."""
        counts = np.zeros((n_groups, n_classes), self.class_count.dtype)
        counts[self.numbers] = self.class_count
        return counts

    def renumbered(
        self, groups: np.ndarray, classes: np.ndarray, n_groups: int, n_classes: int
    ) -> Self:
        """Return these moments, with the same arrays, under other numbers in the same order.

        Parameters
        ----------
        groups, classes : ndarray of int, rising
            Number of each group, and of each class.
        n_groups, n_classes : int
            How many there are.
        """
        renumbered = copy(self)
        of_group, of_class = self.numbers
        renumbered._classes = groups[of_group] << _SHIFT | classes[of_class]
        if self.pooled:
            renumbered._structure = replace(self._structure, sharing=n_classes)
            renumbered._grid = grid(n_groups, n_classes)
            if self._sums is not None:
                renumbered._sums = copy(self._sums)
                renumbered._sums.structure = renumbered._structure
        return renumbered

    def on_grid(self) -> Self:
        """Return moments of all cells, if types are pooled; otherwise these."""
        if self.pooled and self._sums is not None and self._classes.size < self._grid.size:
            return self._with_sums(self._grid, self._with_classes(self._grid))
        return self

    def selected(self, groups: np.ndarray, classes: np.ndarray) -> Self:
        """Return a copy of the cells of some groups and classes, given as boolean arrays."""
        of_group, of_class = self.numbers
        kept = np.flatnonzero(groups[of_group] & classes[of_class])
        chosen = type(self)(self.covariance_type, norms=self.norms)
        chosen._n_skipped = self._n_skipped
        if self._sums is not None and kept.size:
            sums = self._sums.with_classes(kept, groups if self.pooled else kept)
            chosen = self._with_sums(
                self._classes[kept], sums, None if self._norms is None else self._norms[kept]
            )
        sizes = int(groups.sum()), int(classes.sum())
        return chosen.renumbered(np.cumsum(groups) - 1, np.cumsum(classes) - 1, *sizes)

    def check(self, n_groups: int, n_classes: int) -> None:
        """Raise ValueError unless these are cells of that many groups and classes."""
        of_group, of_class = self.numbers
        whole = grid(n_groups, n_classes) if self.pooled else self._classes
        if self.class_count.dtype.kind == "f" and "squares" not in self._sums_by_name():
            raise ValueError("it lacks 'squares' of the weights")
        if (
            self._classes.dtype != np.int64
            or not np.array_equal(np.unique(of_group), np.arange(n_groups))
            or (of_class >= n_classes).any()
            or not np.array_equal(self._classes, whole)
            or self._structure.sharing != (n_classes if self.pooled else 0)
        ):
            raise ValueError(f"its cells are not of {n_groups} groups and {n_classes} classes")

    def _sums_by_name(self) -> dict[str, np.ndarray]:
        return {} if self._sums is None else self._sums.arrays()

    def group(self, number: int, classes: np.ndarray) -> ClassMoments:
        """Return a copy of the moments of one group; `classes` are the labels of all classes."""
        of_group, of_class = self.numbers
        kept = np.arange(*np.searchsorted(of_group, [number, number + 1]))
        assert self._sums is not None  # there are groups
        sums = self._sums.with_classes(kept, [number] if self.pooled else kept)
        norms = None if self._norms is None else self._norms[kept]
        labels, names = classes[of_class[kept]], self._feature_names
        moments = from_sums(ClassMoments, self.covariance_type, labels, sums, norms, 0, names)
        return moments if labels.size == classes.size else moments.declare(classes)

    def merged_groups(self, groups: np.ndarray, n_groups: int, n_classes: int) -> Cells:
        """Return the moments of larger groups; `groups` are the numbers of those of each group."""
        of_group, of_class = self.numbers
        cells = groups[of_group] << _SHIFT | of_class
        classes = grid(n_groups, n_classes) if self.pooled else np.unique(cells)
        merged = self._merged(Cells, classes, np.searchsorted(classes, cells), n_classes)
        return merged.renumbered(np.arange(n_groups), np.arange(n_classes), n_groups, n_classes)

    def total(self, classes: np.ndarray) -> ClassMoments:
        """Return the moments of all groups together; `classes` are the labels of all classes."""
        return self._merged(ClassMoments, classes, self.numbers[1], 0)

    def _merged(
        self, kind: type[_Kind], classes: np.ndarray, at: np.ndarray, sharing: int
    ) -> _Kind:
        """Return moments of a kind whose class ``at[k]`` includes the rows of cell k."""
        sums, norms = copy(self._sums), self._norms
        structure = structure_of(self.covariance_type)
        if sums is not None:
            sums.structure = replace(structure, sharing=sharing) if self.pooled else structure
            if norms is not None:
                norms = merge_norms(self._norms_as_part(1, at), classes.size)
            sums = sums.placed(at, classes.size)
            structure = sums.structure
        more = norms, self._n_skipped, self._feature_names
        moments = from_sums(kind, self.covariance_type, classes, sums, *more)
        moments._structure = structure
        if sums is not None:
            sums.structure = structure
        return moments

    # --- what class moments do otherwise ------------------------------------------------------

    def _state(self) -> State:
        attributes, arrays = super()._state()
        return attributes | {"sharing": self._structure.sharing}, arrays

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        return super()._from_state(attributes, arrays)._of(cls._saved_structure(attributes))

    def _of(self, structure: Structure) -> Self:
        """Return these moments, whose sums are of a structure and have all cells."""
        self._structure, self._grid = structure, self._classes
        if self._sums is not None:
            self._sums.structure = structure
        return self

    @classmethod
    def _saved_structure(cls, attributes: Mapping[str, Any]) -> Structure:
        sharing = check_whole("sharing", attributes["sharing"], 0)
        return replace(super()._saved_structure(attributes), sharing=sharing)

    def _encoded(self, y: Any) -> tuple[np.ndarray, np.ndarray]:
        if not self.pooled:
            return super()._encoded(y)
        codes = y.codes if type(y) is CodedLabels else np.searchsorted(self._grid, y)
        return codes, self._classes if self._classes.size == self._grid.size else self._grid

    def _with_classes(self, classes: np.ndarray) -> Any:
        if not self.pooled or self._sums is None or classes.size == self._classes.size:
            return super()._with_classes(classes)
        sums = copy(self._sums)
        sums.structure = self._structure
        return sums.placed(np.searchsorted(classes, self._classes), classes.size)

    def _with_sums(
        self,
        classes: np.ndarray,
        sums: Any,
        norms: np.ndarray | None = None,
        covariance_type: str | None = None,
    ) -> Self:
        structure = self._structure if sums is None else sums.structure
        cells = super()._with_sums(classes, sums, norms, covariance_type)
        cells._structure, cells._grid = structure, self._grid
        if sums is not None:
            sums.structure = structure
        return cells

    def _keep(self, kept: np.ndarray) -> Self:
        return self if self.pooled else super()._keep(kept)


@dataclass
class Held:
    """The moments of all groups, and the labels of groups and classes, which are sorted.

    Attributes
    ----------
    groups, classes : ndarray
    cells : Cells
        Moments of groups x classes.
    total : list of ClassMoments
        Those of all rows, once they are known.
    """

    groups: np.ndarray
    classes: np.ndarray
    cells: Cells
    total: list[ClassMoments] = field(default_factory=list)

    def widened(self, groups: np.ndarray, classes: np.ndarray) -> Held:
        """Return the same moments among more groups and classes."""
        if groups.size == self.groups.size and classes.size == self.classes.size:
            return Held(groups, classes, self.cells)
        at = find(self.groups, groups), find(self.classes, classes)
        return Held(groups, classes, self.cells.renumbered(*at, groups.size, classes.size))

    @property
    def counts(self) -> np.ndarray:
        """Rows of each class in each group, or their weight, shape (n_groups, n_classes)."""
        return self.cells.counts(self.groups.size, self.classes.size)

    def pruned(self, kept_classes: np.ndarray) -> Held:
        """Return the moments without groups and classes that have no rows; some classes stay."""
        seen = self.counts > 0
        groups = np.asarray(seen.any(axis=1))
        classes = seen.any(axis=0) | (find(self.classes, kept_classes) >= 0)
        if groups.all() and classes.all():
            return self
        cells = self.cells.on_grid().selected(groups, classes)
        return Held(self.groups[groups], self.classes[classes], cells)
