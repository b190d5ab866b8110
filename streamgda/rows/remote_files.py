"""Remote Parquet and Arrow files: columns are requested before pyarrow reads them."""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import zarr
from zarr.abc.store import RangeByteRequest
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync

from streamgda.storage.opening import locate
from streamgda.storage.remote import Remote, Requests

_OWN_CACHE = ("block_size", "cache_type", "default_block_size", "default_cache_type")  # of users
_MOST_BYTES = 1 << 23  # of a range, unless a column of a row group takes more
_END = 1 << 62  # of a file whose end is not read
_HOLE_BYTES = 1 << 16  # between columns, which are read rather than requested around


class Range(NamedTuple):
    """Consecutive bytes of a file."""

    path: str
    start: int
    stop: int


def joined(path: str, spans: Iterable[tuple[int, int]]) -> list[Range]:
    """Return spans of bytes of a file as ranges, of which neighbours are joined up to some size.

    Examples
    --------
    >>> [(start, stop) for _, start, stop in joined("file", [(4, 8), (8, 9), (10**6, 10**7)])]
    [(4, 9), (1000000, 10000000)]
    """
    found: list[Range] = []
    for start, stop in sorted(spans):
        near = found and start <= found[-1].stop + _HOLE_BYTES
        if near and stop - found[-1].start <= _MOST_BYTES:
            found[-1] = Range(path, found[-1].start, max(stop, found[-1].stop))
        else:
            found.append(Range(path, start, stop))
    return found


class RemoteFiles:
    """Files at a URL, whose ranges are requested and requested again.

    Parameters
    ----------
    url : str
    storage_options : dict, optional
        Options of the file system of fsspec.

    Attributes
    ----------
    metadata : dict
        Metadata of the files that this process has opened, by paths.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        self._made_of = url, storage_options
        self.metadata: dict[str, Any] = {}

    def __reduce__(self) -> tuple[type[RemoteFiles], tuple[Any, ...]]:
        return RemoteFiles, self._made_of

    @classmethod
    def at(cls, url: str, options: Mapping[str, Any] | None) -> RemoteFiles | None:
        """Return the files at a URL; None if their file system is to read by itself."""
        own = "::" in url or any(name in (options or {}) for name in _OWN_CACHE)
        return None if own else cls(url, options)

    def read(self, path: str, start: int, stop: int) -> Any:
        """Return bytes of a file, which are requested now."""
        return sync(self.request(Range(path, start, stop), None))

    def read_all(self, path: str, spans: Iterable[tuple[int, int]]) -> Iterator[Any]:
        """Yield bytes of a file between several places, which are requested many at a time."""
        spans = list(spans)
        ranges = joined(path, spans)
        scan = self.scan(ranges, sum(each.stop - each.start for each in ranges))
        with contextlib.closing(scan):
            for start, stop in spans:
                yield scan.read(path, start, stop)

    def columns(self, path: str, number: int, names: Container[str]) -> list[Range]:
        """Return the bytes of columns of a row group of Parquet."""
        group, spans = self.metadata[path].row_group(number), []
        for at in range(group.num_columns):
            column = group.column(at)
            if column.path_in_schema.split(".")[0] in names:
                start = column.dictionary_page_offset or column.data_page_offset
                spans.append((start, start + column.total_compressed_size))
        return joined(path, spans)

    @cached_property
    def _store(self) -> Any:
        return Remote(
            zarr.storage.FsspecStore(locate(*self._made_of)[0].fs, read_only=True, path="")
        )

    def scan(self, ranges: Sequence[Range], ahead: int) -> Scan:
        """Return a scan of some ranges."""
        return Scan(self, ranges, ahead)

    async def request(self, wanted: Range, prototype: Any) -> Any:
        """Request a range."""
        span = RangeByteRequest(wanted.start, wanted.stop)
        found = await self._store.request(wanted.path, default_buffer_prototype(), span)
        if found is None:
            raise FileNotFoundError(wanted.path)
        return memoryview(found.as_numpy_array())


class Scan:
    """Ranges of remote files in the order of reading, some of which are requested ahead.

    Parameters
    ----------
    files : RemoteFiles
    ranges : sequence of Range
    ahead : int
        Bytes that may be requested beyond those that are read.
    """

    def __init__(self, files: RemoteFiles, ranges: Sequence[Range], ahead: int) -> None:
        self._files, self._ranges, self._ahead = files, ranges, ahead
        self._requests: Any = Requests(max((r.stop - r.start for r in ranges), default=1))
        self._held: dict[int, memoryview] = {}
        paths = [each.path for each in ranges]
        ends = [n for n in range(1, len(paths)) if paths[n] != paths[n - 1]]
        spans = pairwise([0, *ends, len(paths)]) if paths else ()
        self._of_file = {paths[start]: range(start, stop) for start, stop in spans}

    def opened(self, path: str, end: bytes = b"", size: int = _END) -> Any:
        """Return a file for pyarrow, with the bytes at its end; without them, it is not read."""
        import pyarrow as pa  # noqa: PLC0415

        return pa.PythonFile(_File(self, path, end, size), mode="r")

    def read(self, path: str, start: int, stop: int) -> Any:
        """Return bytes of a file."""
        numbers = self._overlapping(path, start, stop)
        self._fetch(numbers)
        ranges = [self._ranges[number] for number in numbers]
        if not ranges or ranges[0].start > start or ranges[-1].stop < stop:
            return self._files.read(path, start, stop)
        parts = [
            self._held[number][max(0, start - own.start) : stop - own.start]
            for number, own in zip(numbers, ranges, strict=True)
        ]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def advance(self, path: str, start: int, stop: int) -> None:
        """Drop what comes before some bytes of a file, and fetch these."""
        numbers = self._overlapping(path, start, stop)
        for number in [number for number in self._held if number < numbers.start]:
            del self._held[number]
        self._fetch(numbers)

    def close(self) -> None:
        """Drop what was requested and not read."""
        self._held.clear()
        self._requests.end()

    def _overlapping(self, path: str, start: int, stop: int) -> range:
        """Return the numbers of the ranges that hold some bytes of a file."""
        of_file, ranges = self._of_file.get(path, range(0)), self._ranges
        first = bisect_right(ranges, start, of_file.start, of_file.stop, key=lambda r: r.stop)
        return range(first, bisect_left(ranges, stop, first, of_file.stop, key=lambda r: r.start))

    def _fetch(self, numbers: range) -> None:
        """Wait for ranges, and request those that follow as far as there is room."""
        missing = [number for number in numbers if number not in self._held]
        if not missing:
            return

        async def values() -> None:
            for number in missing:
                wanted = self._ranges[number]
                self._held[number] = await self._requests.value_of(self._files, wanted, None)

        wanted, room = [self._ranges[number] for number in missing], self._ahead
        for number in range(missing[-1] + 1, len(self._ranges)):
            room -= self._ranges[number].stop - self._ranges[number].start
            if room < 0:
                break
            wanted.append(self._ranges[number])
        self._requests.read(self._files, wanted, lambda: sync(values()))


class _File:
    """A file of a scan, as pyarrow reads files of Python."""

    closed = False

    def __init__(self, scan: Scan, path: str, end: bytes, size: int) -> None:
        self._scan, self._path, self._position = scan, path, 0
        self._end, self._size = end, size

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, n: int) -> Any:
        start, self._position = self._position, self._position + n
        in_end = start - (self._size - len(self._end))
        if in_end >= 0:
            return self._end[in_end : in_end + n]
        return self._scan.read(self._path, start, start + n)

    def close(self) -> None:
        self.closed = True
