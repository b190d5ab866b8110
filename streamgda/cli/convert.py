"""`streamgda convert`: convert files of many kinds to a zarr group."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

import typer

from streamgda.cli import options, screen
from streamgda.cli.options import MissingChunks, MissingLabels
from streamgda.cli.paths import refuse_occupied, stored_bytes

_INDEX = re.compile("-?[0-9]+")
_RANGE = re.compile("(-?[0-9]+)?:(-?[0-9]+)?")


def convert(
    source: options.SourceToConvert,
    store: options.StoreToWrite,
    labels: options.LabelsFile = None,
    label_column: options.LabelColumn = None,
    columns: options.Columns = None,
    drop: options.Drop = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    na: options.MissingMarkers = None,
    default_na: options.DefaultMarkers = True,
    encoding: options.Encoding = None,
    decimal: options.Decimal = None,
    comment: options.Comment = None,
    missing_labels: options.RowsWithoutLabel = MissingLabels.RAISE,
    no_labels: options.NoLabels = False,
    format: options.FileFormat = None,
    dtype: options.Dtype = None,
    chunk_rows: options.ChunkRows = None,
    missing: options.Missing = MissingChunks.FILL,
    overwrite: options.Overwrite = False,
) -> None:
    """Convert rows and labels to a zarr group, a few chunks at a time."""
    from streamgda import datasets  # noqa: PLC0415
    from streamgda.engine.progress import reporter  # noqa: PLC0415
    from streamgda.runtime.memory import readable  # noqa: PLC0415
    from streamgda.storage.opening import open_node  # noqa: PLC0415

    if no_labels and labels is not None:
        raise typer.BadParameter("give --labels or --no-labels, not both")
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
            report(done, total)

        group = datasets.convert(
            given,
            store,
            labels=False if no_labels else labels,
            format=format,
            dtype=dtype,
            label_column=None if label_column is None else column_of(label_column),
            columns=_columns(columns),
            drop=_columns(drop),
            **text_options(header, delimiter, na, default_na, encoding, decimal, comment),
            missing_labels=missing_labels.value,
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


def text_options(
    header: bool | None,
    delimiter: str | None,
    na: list[str] | None,
    default_na: bool,
    encoding: str | None,
    decimal: str | None,
    comment: str | None,
) -> Any:
    """Return the options of `streamgda.rows.text_files.TextOptions` that were given."""
    given = {
        "header": header,
        "delimiter": None if delimiter is None else delimiter.replace("\\t", "\t"),
        "na_values": na,
        "keep_default_na": None if default_na else False,
        "encoding": encoding,
        "decimal": decimal,
        "comment": comment,
    }
    return {name: value for name, value in given.items() if value is not None}


def _columns(texts: list[str] | None) -> list[Any] | None:
    return (
        [column_of(part.strip()) for text in texts for part in text.split(",")] if texts else None
    )


def column_of(text: str) -> Any:
    """Return a name, an index or a range of indices."""
    if matched := _RANGE.fullmatch(text):
        return slice(*(int(bound) if bound else None for bound in matched.groups()))
    return int(text) if _INDEX.fullmatch(text) else text
