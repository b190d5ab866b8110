"""Where scores go; zarr arrays bear a mark that tells how far they have been written.

A run that was stopped is gone on with by the same run, and nobody takes half an array for a
whole one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from streamgda.engine.fingerprints import REMEDY, SeenSlabs, refuse_others
from streamgda.errors import CheckpointError, InvalidDataError, SourceError, SourceNotFoundError
from streamgda.storage.opening import open_node

MARK = "streamgda_scores"  # the attribute of the array
_EVERY = 10.0  # seconds between two marks, at least


def mark_of(values: Any) -> dict[str, Any] | None:
    """What the mark of an array says; None where it bears none."""
    attributes = getattr(values, "attrs", None)
    mark = attributes.get(MARK) if isinstance(attributes, Mapping) else None
    return mark if isinstance(mark, dict) else None


def refuse_half_written(values: Any, what: str) -> None:
    """Raise `SourceError` where this is an array of scores that is not complete."""
    mark = mark_of(values)
    if mark and not mark.get("complete"):
        raise SourceError(
            f"{what} holds scores that are half-written: {mark.get('done')} of {values.shape[0]} "
            f"rows. Whatever wrote them goes on where it is run again"
        )


class Output:
    """Scores of rows, written slab by slab.

    Used as a context: on leaving, the mark says how far the scores have come.

    Parameters
    ----------
    out : numpy.ndarray, zarr.Array, path or zarr store for one to create, or None
        None gathers the scores in memory.
    made_of : dict, optional
        What the scores are made of, as JSON. Where it is given, zarr arrays are marked, and one
        that is half-written with the same is gone on with. So is one at a path that is complete:
        no row is left of it, for a run may be stopped just there.

    Attributes
    ----------
    done : int
        Rows that are written.
    kept : dict or None
        What was kept of the data by the run that is gone on with, if one is.
    seen : SeenSlabs
        To be set before the first slab is written.

    Raises
    ------
    CheckpointError
        Where scores are half-written there that are made of other things.
    """

    seen: SeenSlabs

    def __init__(self, out: Any, made_of: Mapping[str, Any] | None = None) -> None:
        self.array = out if hasattr(out, "shape") and hasattr(out, "dtype") else None
        self.done = 0
        self.kept: dict[str, Any] | None = None
        self._out = out
        self._made_of = made_of
        self._since = time.monotonic()
        self._begun = False  # before that nothing is written to what the caller gave
        if made_of is not None and out is not None:
            self._resume()

    def __str__(self) -> str:
        return "out" if self._out is self.array else str(self._out)

    def _resume(self) -> None:
        given = self.array is not None
        found = self.array if given else _existing(self._out)
        mark = mark_of(found)
        if mark is None:
            return
        try:
            complete, made_of = bool(mark["complete"]), dict(mark["made_of"])
            kept, done = dict(mark["seen"]), int(mark["done"])
        except (LookupError, TypeError, ValueError) as error:
            raise CheckpointError(f"the mark of {self} is damaged: {error!r}. {REMEDY}") from None
        if complete and (given or made_of != self._made_of):
            return  # the caller's own is filled anew; what stands at a path is in the way
        refuse_others(made_of, self._made_of or {}, str(self))
        self.kept, self.done = kept, done
        self.array, self._begun = found, True
        _remove_left_over(found)

    def prepare(self, shape: tuple[int, ...], dtype: np.dtype, slab_rows: int) -> None:
        """Make room for scores of that shape and type, or see that there is."""
        if self.array is None and self._out is None:
            self.array = np.empty(shape, dtype)
        elif self.array is None:
            import zarr  # noqa: PLC0415

            self.array = zarr.create_array(
                self._out,
                shape=shape,
                chunks=(min(slab_rows, shape[0]), *shape[1:]),
                # Strings of fixed width have no specification in zarr v3; those of any width do.
                dtype=str if dtype.kind == "U" else dtype,
                attributes=self._mark() if _replaceable(self._out) else {},
                overwrite=False,
            )
        else:
            fits = tuple(self.array.shape) == shape
            if not fits or not np.can_cast(dtype, self.array.dtype, casting="same_kind"):
                raise InvalidDataError(
                    f"out has shape {tuple(self.array.shape)} and dtype {self.array.dtype}, "
                    f"expected shape {shape} and a dtype that holds {dtype}"
                )
            self._write_mark()
        self._begun = True

    def put(self, start: int, sampled: int, scores: np.ndarray) -> None:
        """Write the scores of a slab, of whose rows a sample was taken."""
        assert self.array is not None  # there is room
        stop = start + len(scores)
        self.array[start:stop] = scores
        self.advance(stop, start, stop, sampled)

    def advance(self, done: int, start: int, stop: int, sampled: int) -> None:
        """The scores before row `done` are written; of rows ``start:stop`` a sample was taken."""
        self.seen.add_sample(start, stop, sampled)
        self.done = done
        if time.monotonic() - self._since >= _EVERY:
            self._write_mark()

    def _mark(self) -> dict[str, Any]:
        if self._made_of is None:
            return {}
        return {
            MARK: {
                "complete": self.done == self.seen.n_rows,
                "done": self.done,
                "made_of": dict(self._made_of),
                "seen": self.seen.as_json(),
            }
        }

    def _write_mark(self) -> None:
        store = getattr(self.array, "store", None)  # of zarr arrays
        marked = self._made_of is not None and store is not None and _replaceable(store)
        if marked and self.array is not None:
            self.array.update_attributes(self._mark())
            self._since = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self._begun:
            return
        self._write_mark()
        if error is not None and mark_of(self.array):
            error.add_note(
                f"{self} keeps what was done, the scores of the first {self.done:,} rows: run the "
                f"same again to go on after them"
            )


def target(out: Any, shape: tuple[int, ...], dtype: np.dtype, chunk_rows: int) -> Any:
    """The array that scores of that shape go to: `out`, or what is made where it says.

    It bears no mark. Parameters and errors as of `Output`.
    """
    output = Output(out)
    output.prepare(shape, dtype, chunk_rows)
    return output.array


def _replaceable(store: Any) -> bool:
    """Whether a mark there can be written anew; in a zip file it could not."""
    return bool(getattr(getattr(store, "store", store), "supports_deletes", True))


def _existing(out: Any) -> Any:
    try:
        return open_node(out, mode="r+")
    except (SourceError, SourceNotFoundError):  # creating an array reports what is wrong
        return None


def _remove_left_over(array: Any) -> None:
    """Remove what the writing of chunks left beside them where it was killed."""
    import zarr  # noqa: PLC0415

    if isinstance(array.store, zarr.storage.LocalStore):
        for left in (array.store.root / array.path).rglob("*.partial"):
            left.unlink(missing_ok=True)
