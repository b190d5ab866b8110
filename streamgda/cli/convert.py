"""`streamgda convert`: write a table, or zarr in other chunks, as a zarr group."""

from __future__ import annotations

from typing import Annotated

import typer

from streamgda.cli import options as cli
from streamgda.cli import screen

Group = Annotated[str, typer.Option(metavar="PATH", help="New zarr group; a path or a URL.")]
ChunkRows = Annotated[int | None, typer.Option(min=1, help="Rows per chunk; 4 MiB by default.")]
NoLabels = Annotated[bool, typer.Option("--no-labels", help="The rows have no labels.")]


def convert(
    data: cli.Data,
    *,
    out: Group,
    label: cli.Label = None,
    features: cli.Features = None,
    drop: cli.Drop = None,
    no_labels: NoLabels = False,
    chunk_rows: ChunkRows = None,
    json: cli.Json = False,
) -> None:
    """Write rows and labels to a zarr group, which is read in chunks, in any order."""
    from streamgda import datasets  # noqa: PLC0415  (see `options`)

    X, y = cli.open_rows(data, label, features, drop, labelled=not no_labels)
    group = datasets.convert(X, y, out, chunk_rows=chunk_rows, progress=True)
    arrays = {f"array {name}": f"{array.dtype} {array.shape}" for name, array in group.arrays()}
    screen.show({"out": out, "data": data, "rows": X.shape[0], **arrays}, json)
