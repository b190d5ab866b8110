"""The tree in which parts are merged, and what of it is kept in a checkpoint.

Parts are merged in pairs, pairs in pairs, and so on: a range of parts is halved at the largest
power of two that is less than their number. So few states are held, few are waited for, and the
order depends on the number of parts only. What is kept are the largest ranges that are complete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from streamgda.engine.dask.tasks import Taken, merge
from streamgda.engine.fingerprints import REMEDY, Seen, checksum, refuse_others
from streamgda.engine.journal import Journal
from streamgda.errors import CheckpointError

Range = tuple[int, int]  # of parts: the first, and the one behind the last
Value = TypeVar("Value")


def halves(parts: Range) -> tuple[Range, Range]:
    """The two ranges of which a range of two parts or more is merged.

    Examples
    --------
    >>> halves((8, 11))
    ((8, 10), (10, 11))
    """
    start, stop = parts
    middle = start + (1 << (stop - start - 1).bit_length() - 1)
    return (start, middle), (middle, stop)


def missing(parts: Range, there: Collection[Range]) -> list[Range]:
    """The largest ranges of the tree without any that is there.

    Examples
    --------
    >>> missing((0, 11), {(0, 2), (2, 3), (8, 10)})
    [(3, 4), (4, 8), (10, 11)]
    """
    if not any(parts[0] <= start and stop <= parts[1] for start, stop in there):
        return [parts]
    if parts in there:
        return []
    return [one for half in halves(parts) for one in missing(half, there)]


def largest(parts: Range, there: Collection[Range]) -> list[Range]:
    """The ranges of the tree that are there, without those within others.

    Examples
    --------
    >>> largest((0, 8), {(0, 2), (2, 4), (0, 4), (4, 5), (6, 8)})
    [(0, 4), (4, 5), (6, 8)]
    """
    if parts in there:
        return [parts]
    if parts[1] - parts[0] < 2:
        return []
    return [one for half in halves(parts) for one in largest(half, there)]


def joined(
    parts: Range, values: Mapping[Range, Value], merge: Callable[[Value, Value], Value]
) -> dict[Range, Value]:
    """Values of ranges of the tree, where two halves are merged.

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


class Harvest(Journal):
    """Moments of parts that are made elsewhere, and come in when they are to be kept.

    Each time, no more ranges come in than the number of parts has binary digits, the largest of
    those that are complete: as many as it takes where parts are done in their order.

    Parameters
    ----------
    path, every, made_of
        As of `Journal`.

    Attributes
    ----------
    whole : tuple of int
        All parts.
    values : dict
        What is here, by ranges of parts.
    """

    def __init__(self, path: Any, every: float, made_of: Mapping[str, str]) -> None:
        super().__init__(path, every, made_of)
        self.whole: Range = (0, 0)
        self.values: dict[Range, Taken] = {}
        self._cut: dict[str, Any] = {}
        self._ends: dict[Range, Callable[[], Taken]] = {}

    @property
    def seen(self) -> dict[int, Seen]:
        """What was seen of the parts that are here, by their numbers."""
        return {
            number: seen
            for (start, stop), taken in sorted(self.values.items())
            for number, seen in zip(range(start, stop), taken.seen, strict=True)
        }

    @property
    def slab_rows(self) -> int:
        """Rows of a slab, as the run has read them that is gone on with."""
        cut = (self.kept or {}).get("cut")
        slab_rows = cut.get("slab_rows") if isinstance(cut, dict) else None
        if isinstance(slab_rows, int) and slab_rows > 0:
            return slab_rows
        raise CheckpointError(f"{self} is damaged: its slabs have {slab_rows} rows. {REMEDY}")

    def begin(self, cuts: Sequence[Range], how: Mapping[str, Any]) -> None:
        """Go on with what is in the file, or begin.

        Parameters
        ----------
        cuts : list of tuple of int
            What the parts are made of.
        how : dict
            What else tells how rows are cut, as JSON.

        Raises
        ------
        CheckpointError
            Where they were cut otherwise, or the file is damaged.
        """
        self.whole = 0, len(cuts)
        self.kind = f"{{:,}} of {len(cuts):,} parts"
        parts = f"{len(cuts)}, with the checksum {checksum(np.array(cuts))}"
        self._cut = {"parts": parts, **how}
        if self.kept is None:
            return
        try:
            cut, seen = dict(self.kept["cut"]), dict(self.kept["parts"])
            for name, moments in self.held.items():
                start, stop = map(int, name.split("-"))
                each = tuple((int(labels), int(rows)) for labels, rows in seen[name])
                self.values[start, stop] = Taken(moments, each)
            sound = self.done == len(self.seen) > 0
        except (LookupError, TypeError, ValueError) as error:
            raise CheckpointError(f"{self} is damaged: {error!r}. {REMEDY}") from None
        refuse_others(cut, self._cut, str(self))
        if not sound or {*largest(self.whole, self.values)} != self.values.keys():
            raise CheckpointError(
                f"{self} is damaged: it holds {[*self.held]} of {len(cuts)} parts. {REMEDY}"
            )

    def ended(self, parts: Range, fetch: Callable[[], Taken]) -> Iterable[Range]:
        """A range is merged, and can be fetched; the ranges that need not be held any longer."""
        self._ends[parts] = fetch
        let_go = halves(parts) if parts[1] - parts[0] > 1 else ()
        for half in let_go:
            self._ends.pop(half, None)
        if self.due:
            self.keep()
        return let_go

    def keep(self) -> None:
        """Fetch what is complete, and write it."""
        if not self.keeps:
            return
        found = largest(self.whole, self.values.keys() | self._ends.keys())
        if sum(stop - start for start, stop in found) == self.done:
            return
        coming = sorted((a - b, a) for a, b in found if (a, b) not in self.values)
        for minus_size, start in coming[: self.whole[1].bit_length()]:
            parts = start, start - minus_size
            self.values[parts] = self._ends.pop(parts)()
        self.values = joined(self.whole, self.values, merge)
        self.done = sum(stop - start for start, stop in self.values)
        names = {parts: "{}-{}".format(*parts) for parts in self.values}
        seen = {name: self.values[parts].seen for parts, name in names.items()}
        held = {name: self.values[parts].moments for parts, name in names.items()}
        self._write({"cut": self._cut, "parts": seen}, held)

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self._ends.clear()  # nothing is held on the cluster any longer
