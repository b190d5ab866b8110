"""`streamgda convert`: files of many kinds become a zarr group."""

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
        typer.Argument(help="IDX, .npy, .npz, .csv, .tsv (these also as .gz), or zarr."),
    ],
    store: Annotated[str, typer.Argument(help="zarr group to write: directory or .zip.")],
    labels: Annotated[
        str | None, typer.Option(metavar="PATH", help="Labels, where a file holds them alone.")
    ] = None,
    label_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="CSV: heading or number (from 0) of the labels' column."),
    ] = None,
    chunk_rows: Annotated[
        int | None, typer.Option(min=1, help="Rows in a chunk; about 4 MiB of them by default.")
    ] = None,
    missing: Missing = MissingChunks.FILL,
    overwrite: Overwrite = False,
) -> None:
    """Convert rows and labels to a zarr group, in the memory of a few chunks."""
    from streamgda import datasets  # noqa: PLC0415
    from streamgda.engine.progress import reporter  # noqa: PLC0415
    from streamgda.runtime.memory import readable  # noqa: PLC0415
    from streamgda.storage.opening import open_node  # noqa: PLC0415

    if "://" not in store:
        refuse_occupied(store, overwrite)
    given: Any = source
    if missing is MissingChunks.ERROR:  # which zarr alone can have
        given = open_node(source, missing=missing.value)
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        report = None

        def progress(done: int, total: int | None) -> None:
            nonlocal report
            if report is None:  # only now is the total known
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
