"""`streamgda convert` writes tables and stores as zarr; `streamgda info` describes any path."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import streamgda
from streamgda.cli import options as cli
from streamgda.cli import screen
from streamgda.errors import FormatError, SourceError, SourceNotFoundError

Group = Annotated[str, cli.Option(metavar="PATH", help="New zarr group; a path or a URL.")]
ChunkRows = Annotated[int | None, cli.Option(min=1, help="Rows per chunk; 4 MiB by default.")]
NoLabels = Annotated[bool, cli.Option("--no-labels", help="The rows have no labels.")]
Path = Annotated[str, typer.Argument(metavar="PATH", help="Saved object, zarr or table.")]


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
    X, y = cli.open_rows(data, label, features, drop, labelled=not no_labels)
    group = streamgda.datasets.convert(X, y, out, chunk_rows=chunk_rows)
    screen.show({"out": out, "data": data, **_arrays(group)}, json)


def info(path: Path, *, json: cli.Json = False) -> None:
    """Describe a saved estimator, moments, zarr rows or predictions, or a table."""
    screen.show({"path": path, **_description(path)}, json)


def _description(path: str) -> dict[str, Any]:
    """Return what is known of the content of a path, for JSON."""
    import zarr  # noqa: PLC0415  (see `options`)

    from streamgda.rows.opening import is_table, table_files  # noqa: PLC0415
    from streamgda.rows.source import as_source  # noqa: PLC0415
    from streamgda.storage.opening import mark_of, open_node  # noqa: PLC0415

    if is_table(path):
        table = table_files(path).Table.of(path)
        columns = {field.name: str(field.type) for field in table.schema}
        found = {"kind": "table", "rows": table.n_rows, "files": len(table.groups)}
        return found | {"columns": columns}
    try:
        return streamgda.load(path)._description()
    except (FormatError, SourceNotFoundError) as error:  # A folder at a URL is no file there.
        try:
            node = open_node(path)
        except (SourceError, SourceNotFoundError):
            raise error from None
    mark = mark_of(node)
    if mark is not None:
        half = "" if mark.get("complete") else ", half-written"
        return {"kind": f"predictions{half}", "rows": mark.get("done"), **_arrays(node)}
    rows = node if isinstance(node, zarr.Array) else node.get("X")
    names = None if rows is None else as_source(rows).feature_names
    return {"kind": "zarr", **_arrays(node), "features": names}


def _arrays(node: Any) -> dict[str, str]:
    """Return the shapes, types and chunks of an array, or of those in a group."""
    arrays = {"array": node} if hasattr(node, "shape") else dict(node.arrays())
    return {
        name: f"{' x '.join(map(str, a.shape))} of {'text' if a.dtype.kind in 'TU' else a.dtype}, "
        f"chunks of {' x '.join(map(str, a.chunks))}"
        for name, a in arrays.items()
    }
