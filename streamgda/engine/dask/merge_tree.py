"""The tree in which parts are merged, and the checkpoint of its completed branches.

Parts are merged in pairs, pairs in pairs, and so on: a range of parts is halved at the largest
power of two below their number. So few states are held, few are waited for, and the order depends
on the number of parts only. The checkpoint keeps the largest ranges that are complete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from streamgda.engine.dask.cuts import Range
from streamgda.engine.dask.tasks import PartMoments, merge
from streamgda.engine.fingerprints import REMEDY, PartFingerprint, checksum, refuse_others
from streamgda.engine.journal import Journal
from streamgda.errors import CheckpointError

Value = TypeVar("Value")


def halves(parts: Range) -> tuple[Range, Range]:
    """Return the two ranges that are merged to a range of two parts or more.

    Examples
    --------
    >>> halves((8, 11))
    ((8, 10), (10, 11))
    """
    start, stop = parts
    middle = start + (1 << (stop - start - 1).bit_length() - 1)
    return (start, middle), (middle, stop)


def missing(parts: Range, held: Collection[Range]) -> list[Range]:
    """Return the largest ranges of the tree that contain none of those held.

    Examples
    --------
    >>> missing((0, 11), {(0, 2), (2, 3), (8, 10)})
    [(3, 4), (4, 8), (10, 11)]
    """
    if not any(parts[0] <= start and stop <= parts[1] for start, stop in held):
        return [parts]
    if parts in held:
        return []
    return [one for half in halves(parts) for one in missing(half, held)]


def largest(parts: Range, held: Collection[Range]) -> list[Range]:
    """Return the ranges of the tree that are held, without those inside of others.

    Examples
    --------
    >>> largest((0, 8), {(0, 2), (2, 4), (0, 4), (4, 5), (6, 8)})
    [(0, 4), (4, 5), (6, 8)]
    """
    if parts in held:
        return [parts]
    if parts[1] - parts[0] < 2:
        return []
    return [one for half in halves(parts) for one in largest(half, held)]


def joined(
    parts: Range, values: Mapping[Range, Value], merge: Callable[[Value, Value], Value]
) -> dict[Range, Value]:
    """Return values of ranges of the tree, with the values of both halves merged.

    Examples
    --------
    >>> joined((0, 4), {(0, 1): "a", (1, 2): "b", (2, 3): "c"}, lambda a, b: a + b)
    {(0, 2): 'ab', (2, 3): 'c'}
    """
    if parts in values:
        return {parts: values[parts]}
    if parts[1] - parts[0] < 2:
        return {}
    both = halves(parts)
    found = joined(both[0], values, merge) | joined(both[1], values, merge)
    return {parts: merge(*found.values())} if (*found,) == both else found


class TreeJournal(Journal):
    """Moments of parts that are computed elsewhere, fetched when they are to be written.

    Each time, at most as many ranges are fetched as the number of parts has binary digits, the
    largest of those that are complete: that is all of them if parts are completed in order.

    Parameters
    ----------
    path, every, description
        See `Journal`.

    Attributes
    ----------
    whole : tuple of int
        The range of all parts.
    values : dict
        Moments that are held here, by ranges of parts.
    """

    def __init__(self, path: Any, every: float, description: Mapping[str, str]) -> None:
        super().__init__(path, every, description)
        self.whole: Range = (0, 0)
        self.values: dict[Range, PartMoments] = {}
        self._cut: dict[str, Any] = {}
        self._fetches: dict[Range, Callable[[], PartMoments]] = {}

    @property
    def fingerprints(self) -> dict[int, PartFingerprint]:
        """Fingerprints of the parts that are held here, by their numbers."""
        return {
            number: fingerprint
            for (start, stop), part in sorted(self.values.items())
            for number, fingerprint in zip(range(start, stop), part.fingerprints, strict=True)
        }

    @property
    def slab_rows(self) -> int:
        """Rows of a slab in the run that is resumed."""
        cut = (self.kept or {}).get("cut")
        slab_rows = cut.get("slab_rows") if isinstance(cut, dict) else None
        if isinstance(slab_rows, int) and slab_rows > 0:
            return slab_rows
        raise CheckpointError(f"{self} is damaged: its slabs have {slab_rows} rows. {REMEDY}")

    def begin(self, cuts: Sequence[Range], details: Mapping[str, Any]) -> None:
        """Resume with the content of the file, or start.

        Parameters
        ----------
        cuts : list of tuple of int
            Ranges of rows or blocks of the parts.
        details : dict
            Everything else that determines how rows are cut, as JSON.

        Raises
        ------
        CheckpointError
            If the parts were cut differently, or the file is damaged.
        """
        self.whole = 0, len(cuts)
        self.kind = f"{{:,}} of {len(cuts):,} parts"
        parts = f"{len(cuts)}, with the checksum {checksum(np.array(cuts))}"
        self._cut = {"parts": parts, **details}
        if self.kept is None:
            return
        try:
            cut, seen = dict(self.kept["cut"]), dict(self.kept["parts"])
            for name, moments in self.held.items():
                start, stop = map(int, name.split("-"))
                each = tuple((int(labels), int(rows)) for labels, rows in seen[name])
                self.values[start, stop] = PartMoments(moments, each)
            sound = self.done == len(self.fingerprints) > 0
        except (LookupError, TypeError, ValueError) as error:
            raise CheckpointError(f"{self} is damaged: {error!r}. {REMEDY}") from None
        refuse_others(cut, self._cut, str(self))
        if not sound or {*largest(self.whole, self.values)} != self.values.keys():
            raise CheckpointError(
                f"{self} is damaged: it holds {[*self.held]} of {len(cuts)} parts. {REMEDY}"
            )

    def ended(self, parts: Range, fetch: Callable[[], PartMoments]) -> Iterable[Range]:
        """Note that a range can be fetched; return the ranges that need not be held any longer."""
        self._fetches[parts] = fetch
        merged = halves(parts) if parts[1] - parts[0] > 1 else ()
        for half in merged:
            self._fetches.pop(half, None)
        if self.due:
            self.keep()
        return merged

    def keep(self) -> None:
        """Fetch the largest complete ranges, and write them."""
        if not self.keeps:
            return
        found = largest(self.whole, self.values.keys() | self._fetches.keys())
        if sum(stop - start for start, stop in found) == self.done:
            return
        coming = sorted((a - b, a) for a, b in found if (a, b) not in self.values)
        for minus_size, start in coming[: self.whole[1].bit_length()]:
            parts = start, start - minus_size
            self.values[parts] = self._fetches.pop(parts)()
        self.values = joined(self.whole, self.values, merge)
        self.done = sum(stop - start for start, stop in self.values)
        names = {parts: "{}-{}".format(*parts) for parts in self.values}
        seen = {name: self.values[parts].fingerprints for parts, name in names.items()}
        held = {name: self.values[parts].moments for parts, name in names.items()}
        self._write({"cut": self._cut, "parts": seen}, held)

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self._fetches.clear()  # so that the cluster need not hold results any longer
