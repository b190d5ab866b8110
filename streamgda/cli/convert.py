"""`streamgda convert`: convert files of many kinds to a zarr group."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated, Any

import typer

from streamgda.cli import screen
from streamgda.cli.options import Missing, MissingChunks, Overwrite
from streamgda.cli.paths import refuse_occupied, stored_bytes


def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="IDX, .npy, .npz, .csv or .tsv file (IDX and text also as .gz), or zarr."
        ),
    ],
    store: Annotated[str, typer.Argument(help="zarr group to write: a directory or .zip.")],
    labels: Annotated[
        str | None, typer.Option(metavar="PATH", help="File of labels, if they are not in SOURCE.")
    ] = None,
    label_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="CSV: name or index (from 0) of the label column."),
    ] = None,
    chunk_rows: Annotated[
        int | None, typer.Option(min=1, help="Rows per chunk; about 4 MiB of rows by default.")
    ] = None,
    missing: Missing = MissingChunks.FILL,
    overwrite: Overwrite = False,
) -> None:
    """Convert rows and labels to a zarr group, a few chunks at a time."""
    from streamgda import datasets  # noqa: PLC0415
    from streamgda.engine.progress import reporter  # noqa: PLC0415
    from streamgda.runtime.memory import readable  # noqa: PLC0415
    from streamgda.storage.opening import open_node  # noqa: PLC0415

    if "://" not in store:
        refuse_occupied(store, overwrite)
    given: Any = source
    if missing is MissingChunks.ERROR:  # only zarr has chunks that may be missing
        given = open_node(source, missing=missing.value)
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        report = None

        def progress(done: int, total: int | None) -> None:
            nonlocal report
            if report is None:  # the total is not known before the first chunk
                report = stack.enter_context(reporter(True, total, "converting"))
            report(done)

        group = datasets.convert(
            given,
            store,
            labels=labels,
            label_column=_name_or_number(label_column),
            chunk_rows=chunk_rows,
            overwrite=overwrite,
            progress=progress,
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


def _name_or_number(column: str | None) -> str | int | None:
    return column if column is None or not column.lstrip("-").isdigit() else int(column)
