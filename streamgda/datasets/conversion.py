"""Conversion of rows from any container to a zarr group."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.runtime.parameters import as_integer, shown

if TYPE_CHECKING:
    import zarr

    from streamgda.engine.reading import Progress

_CHUNK_BYTES = 4 << 20


def convert(
    X: Any, y: Any, path: Any, *, chunk_rows: int | None = None, progress: Progress = False
) -> zarr.Group:
    """Write rows and labels to a zarr group that every estimator can read in chunks.

    The group (zarr format 3) holds ``X``, rows x features in chunks of whole rows, and ``y``, if
    there are labels. Rows have their own type, labels too, and texts zarr's of variable length.
    Names of features are in the attribute ``feature_names`` of ``X``.

    Parameters
    ----------
    X : array-like, zarr.Array, data frame, dask collection, table of `open_store`, or iterable
        Rows; or, if `y` is None, an iterable of batches ``(X, y)``.
    y : array-like or None
        Label of each row.
    path : path, URL or zarr store
        A new place. A path on this machine appears when the group is complete.
    chunk_rows : int, default=None
        Rows per chunk; about 4 MiB of rows if None.
    progress : bool or callable, default=False
        True shows the progress, as `streamgda.accumulate` does; a callable gets the rows done and
        their total, or None, after each chunk.

    Returns
    -------
    zarr.Group
        The group, open for reading.

    Raises
    ------
    SourceError
        If there is anything at `path`.
    InvalidDataError
        If lengths, widths or types do not fit, or a label is missing.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from streamgda.datasets import convert
    >>> with TemporaryDirectory() as folder:
    ...     group = convert(np.eye(2), ["setosa", "other"], f"{folder}/iris.zarr")
    ...     group["y"][:].tolist()
    ['setosa', 'other']
    """
    import zarr  # noqa: PLC0415  (importing data sets imports NumPy only)

    from streamgda.engine.reading import reporter  # noqa: PLC0415
    from streamgda.storage import opening  # noqa: PLC0415
    from streamgda.storage.files import aside, local_path  # noqa: PLC0415

    if chunk_rows is not None:
        chunk_rows = as_integer("chunk_rows", chunk_rows, "an integer >= 1", 1)
    n_rows, names, blocks = _blocks(X, y)
    with contextlib.ExitStack() as stack:
        report = stack.enter_context(reporter(progress, n_rows, "converting"))
        stack.enter_context(opening.creating(path))
        local = local_path(path)
        place = path if local is None else stack.enter_context(aside(local))
        try:
            group, done = zarr.create_group(place), 0
        except TypeError as error:
            raise InvalidParameterError(
                f"path={shown(path)} is not a path, a URL or a zarr store: {error}"
            ) from None
        for block in _in_chunks(blocks, chunk_rows):
            for name, part in block.items():
                if not done:
                    dtype = str if part.dtype.kind == "U" else part.dtype
                    shape = (0, *part.shape[1:])
                    group.create_array(name, shape=shape, chunks=part.shape, dtype=dtype)
                group[name].append(part)
            done += len(block["X"])
            report(done)
        if not done:
            raise InvalidDataError("X holds no rows; at least one is needed")
        if names is not None:
            group["X"].attrs["feature_names"] = list(names)
    return zarr.open_group(path, mode="r")


def _blocks(X: Any, y: Any) -> tuple[int | None, Any, Iterator[dict[str, np.ndarray]]]:
    """Return the number of rows if it is known, names of features or None, and blocks of rows."""
    from streamgda.rows import Rows, as_batches  # noqa: PLC0415

    if y is None and not hasattr(X, "shape"):
        batches = as_batches(X)
        return None, batches.feature_names, map(_checked, batches)
    rows = Rows.of(X, y).opened().checked()
    unit = rows.X.chunk_rows  # Each chunk of a store is read once.
    n_rows = -(-_CHUNK_BYTES // max(1, rows.X.row_bytes) // unit) * unit
    return rows.X.n_rows, rows.X.feature_names, map(_checked, rows.slabs(n_rows))


def _checked(slab: Any) -> dict[str, np.ndarray]:
    """Return the arrays of a slab; raise InvalidDataError unless zarr can hold them."""
    from streamgda.rows.labels import as_labels  # noqa: PLC0415
    from streamgda.rows.sparse import SparseRows  # noqa: PLC0415

    if SparseRows.accepts(slab.X):
        raise InvalidDataError("X is a sparse matrix; expected dense rows of numbers")
    block = {"X": np.asarray(slab.X)}
    if slab.y is not None:
        y = np.asarray(slab.y)  # Numbers may be targets of a regression.
        block["y"] = y if y.dtype.kind in "biuf" else as_labels(slab.y, "y", slab.first_row)
    for (name, part), ndim, kinds in zip(block.items(), (2, 1), ("biuf", "biufU"), strict=False):
        if part.ndim != ndim or part.dtype.kind not in kinds or not part[:1].size:
            raise InvalidDataError(
                f"{name} holds {part.dtype} of shape {part.shape}; expected dense rows of numbers, "
                f"and as labels numbers, texts or booleans"
            )
    return block


def _in_chunks(
    blocks: Iterator[dict[str, np.ndarray]], chunk_rows: int | None
) -> Iterator[dict[str, np.ndarray]]:
    """Yield whole chunks of rows, of the types of the first block, and the rest at the end."""
    held: dict[str, np.ndarray] = {}
    types: dict[str, np.dtype] = {}
    for block in blocks:
        chunk_rows = chunk_rows or max(1, _CHUNK_BYTES // block["X"][:1].nbytes)
        types = types or {name: part.dtype for name, part in block.items()}
        for name, part in block.items():
            same = part.dtype.kind == types[name].kind == "U"
            if not (same or np.can_cast(part.dtype, types[name])):
                raise InvalidDataError(
                    f"a batch has {name} of type {part.dtype} after one of {types[name]}; convert "
                    f"all of them to one type"
                )
        held = {n: np.concatenate([held[n], p]) if held else p for n, p in block.items()}
        while len(held["X"]) >= chunk_rows:
            yield {name: part[:chunk_rows] for name, part in held.items()}
            held = {name: part[chunk_rows:] for name, part in held.items()}
    if held and len(held["X"]):
        yield held
