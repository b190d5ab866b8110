"""`streamgda convert`: convert files of many kinds to a zarr group."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated, Any, Literal, Unpack

import typer

from streamgda.cli import screen
from streamgda.cli.files import (
    column_of,
    columns_of,
    refuse_occupied,
    stored_bytes,
    table_options,
)
from streamgda.cli.options import takes
from streamgda.runtime.table_options import TableOptions


@takes()
def convert(
    source: str,
    store: str,
    *,
    labels: str | None = None,
    label_column: str | None = None,
    columns: list[str] | None = None,
    missing_labels: Literal["raise", "keep"] = "raise",
    no_labels: bool = False,
    dtype: str | None = None,
    chunk_rows: Annotated[int | None, typer.Option(min=1)] = None,
    missing: Literal["fill", "error"] = "fill",
    overwrite: bool = False,
    **table: Unpack[TableOptions],
) -> None:
    """Convert rows and labels to a zarr group, a few chunks at a time.

    Parameters
    ----------
    source : SOURCE
        IDX, .npy or .npz file, table (.csv, .tsv, .txt, .data, .parquet, .arrow, a folder of them;
        IDX and text also as .gz), or zarr.
    store : STORE
        zarr group to write: a directory or .zip.
    labels : PATH
        File of labels, if they are not in SOURCE.
    label_column : NAME
        Tables: name or index (from 0) of the column of labels; the last by default.
    columns : NAME,...
        Tables: names or indices of the columns of features; 2:5 stands for 2, 3 and 4.
    missing_labels : {"raise", "keep"}
        Tables: raise an error for missing labels, or keep.
    no_labels : bool
        Read no labels: all columns of a text are features.
    dtype : TYPE
        Type of the features, such as uint8 or float32; that of SOURCE by default, and float64 for
        text.
    chunk_rows : INTEGER
        Rows per chunk; about 4 MiB of rows by default.
    missing : {"fill", "error"}
        Read missing chunks as the fill value, or raise an error.
    overwrite : bool
        Replace existing output.
    """
    from streamgda import datasets  # noqa: PLC0415
    from streamgda.engine.progress import reporter  # noqa: PLC0415
    from streamgda.runtime.memory import readable  # noqa: PLC0415
    from streamgda.storage.opening import open_node  # noqa: PLC0415

    if no_labels and labels is not None:
        raise typer.BadParameter("give --labels or --no-labels, not both")
    if "://" not in store:
        refuse_occupied(store, overwrite)
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        report = None

        def progress(done: int, total: int | None) -> None:
            nonlocal report
            if report is None:  # the total is not known before the first chunk
                report = stack.enter_context(reporter(True, total, "converting"))
            report(done, total)

        given: Any = source  # only zarr has chunks that may be missing
        group = datasets.convert(
            given if missing == "fill" else open_node(source, missing=missing),
            store,
            labels=False if no_labels else labels,
            dtype=dtype,
            label_column=None if label_column is None else column_of(label_column),
            columns=columns_of(columns),
            missing_labels=missing_labels,
            chunk_rows=chunk_rows,
            overwrite=overwrite,
            progress=progress,
            **table_options(**table),
        )
    seconds = time.perf_counter() - started
    arrays = [(name, group[name]) for name in sorted(group.array_keys())]
    size = stored_bytes(store)
    screen.show_table(
        ("array", "shape", "chunks", "dtype"),
        [(name, a.shape, a.chunks, a.dtype) for name, a in arrays],
        right=False,
    )
    stored = "" if size is None else f" ({readable(size)})"
    screen.say(f"written to {store}{stored} in {seconds:.2f} s")
