"""Suite `frames`: tables in memory and in files, and conversion of arrays, beside their readers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import zarr

import streamgda
from bench import data
from bench.measure import OURS, Call, Plan, Row, in_turn, of_its_time, rows_of
from streamgda.datasets import convert

ROWS, FEATURES = 1_000_000, 16
OF_PEER = 1.3
AS_ROWS = "columns are read from memory and written as rows before these are summed"
SHARED = "decoding, sums and copies of the columns share two cores that reading alone keeps busy"


def run(plan: Plan) -> Iterator[Row]:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import feather

    X, y = data.rows(plan.rows(ROWS), FEATURES, 10, "float64")
    title = f"{len(X):,} x {FEATURES} float64, "
    arrow = pa.table([*X.T], [f"f{j}" for j in range(FEATURES)])
    frames = {"Arrow": arrow, "polars": pl.from_arrow(arrow), "pandas": pd.DataFrame(X)}

    def row(work: str, ours: Call, peer: str, theirs: Call, why: str = "") -> Iterator[Row]:
        times, missing = in_turn({OURS: ours, peer: theirs}, plan.repeats)
        targets = {"": of_its_time(OF_PEER, why)}
        yield from rows_of(title + work, (None, ""), times, missing, targets)

    for name, frame in frames.items():
        yield from row(
            f"moments of a table of {name}",
            lambda frame=frame: streamgda.accumulate(frame, y),
            "the array",
            lambda: streamgda.accumulate(X, y),
            AS_ROWS,
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        labelled = arrow.append_column("label", pa.array(y))
        pq.write_table(labelled, folder / "rows.parquet")
        feather.write_feather(labelled, folder / "rows.arrow")
        for file, reader in (("rows.parquet", pq.read_table), ("rows.arrow", feather.read_table)):
            path = folder / file
            yield from row(
                f"moments of {path.suffix}",
                lambda path=path: streamgda.accumulate(*streamgda.open_store(path, label="label")),
                "reading it with pyarrow",
                lambda path=path, reader=reader: reader(path),
                SHARED,
            )
        places = (folder / f"{number}.zarr" for number in count())

        def plain() -> None:
            group = zarr.create_group(next(places))
            n_rows = (4 << 20) // X[:1].nbytes
            group.create_array("X", data=X, chunks=(n_rows, FEATURES))
            group.create_array("y", data=y, chunks=(n_rows,))

        yield from row(
            "convert", lambda: convert(X, next(places), labels=y), "writing with zarr", plain
        )
