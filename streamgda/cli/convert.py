"""`streamgda convert`: convert files of many kinds to a zarr group."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal, Unpack

import typer

from streamgda import datasets
from streamgda.cli import files, screen
from streamgda.cli.info import describe, show_arrays
from streamgda.cli.options import FormerArgument, takes, warn_deprecated
from streamgda.errors import SourceNotFoundError
from streamgda.runtime.parameters import TableOptions


@takes()
def convert(
    data: str,
    former: FormerArgument = None,
    *,
    out: str | None = None,
    labels: str | None = None,
    features: list[str] | None = None,
    missing_labels: Literal["raise", "keep"] = "raise",
    no_labels: bool = False,
    dtype: str | None = None,
    chunk_rows: Annotated[int | None, typer.Option(min=1)] = None,
    **table: Unpack[TableOptions],
) -> dict[str, Any]:
    """Convert rows and labels to a zarr group, a few chunks at a time.

    Parameters
    ----------
    data : DATA
        IDX, .npy or .npz file, table (.csv, .tsv, .txt, .data, .parquet, .arrow, a folder of them;
        IDX and text also as .gz), or zarr.
    out : PATH
        zarr group to write, a directory.
    labels : NAME|PATH
        Labels: a column of the table, by name or number (from 0), the last by default; or a file
        that exists.
    features : NAME,...
        Tables: names or numbers of the columns of features; 2:5 stands for 2, 3 and 4. Double
        quotes hold a name with a comma.
    missing_labels : {"raise", "keep"}
        Tables: raise an error for missing labels, or keep.
    no_labels : bool
        Read no labels: all columns of a text are features.
    dtype : TYPE
        Type of the features, such as uint8 or float32; that of DATA by default, and float64 for
        text.
    chunk_rows : INTEGER
        Rows per chunk; about 4 MiB of rows by default.

    Examples
    --------
    streamgda convert flowers.csv --out flowers.zarr --labels kind --drop field
    streamgda convert train-images.idx --labels train-labels.idx --out digits.zarr
    """
    from streamgda.rows.opening import is_table  # noqa: PLC0415  (see the note in `options`)
    from streamgda.runtime.memory import readable  # noqa: PLC0415

    if no_labels and labels is not None:
        raise typer.BadParameter("give --labels or --no-labels, not both")
    if (out is None) is (former is None):
        raise typer.BadParameter("expected DATA --out PATH", param_hint="--out")
    if out is None:
        warn_deprecated(f"{data} {former}", f"{data} --out {former}")
    store = str(out or former)
    if "://" not in store:
        files.refuse_occupied(store)
    file, name = files.file_and_name(None if labels is None else [labels])
    if name is not None and not (table.get("format") or is_table(data)):
        raise SourceNotFoundError(f"{name} does not exist; expected a file of labels beside {data}")
    started = time.perf_counter()
    datasets.convert(
        data,
        store,
        labels=False if no_labels else file,
        dtype=dtype,
        label=name,
        features=files.split_names(*features) if features else None,
        missing_labels=missing_labels,
        chunk_rows=chunk_rows,
        progress=True,
        **files.table_options(**table),
    )
    seconds = time.perf_counter() - started
    described = describe(store)
    show_arrays(described["arrays"])
    size = described["bytes_stored"]
    stored = "" if size is None else f" ({readable(size)})"
    screen.say(f"written to {store}{stored} in {seconds:.2f} s")
    return {"out": store, **described, "seconds": seconds}
