"""`streamgda info`: describe the content of a path."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from streamgda.cli import options as cli
from streamgda.cli import screen

Path = Annotated[
    str, typer.Argument(metavar="PATH", help="Saved object, zarr or table; a path or a URL.")
]


def info(path: Path, *, json: cli.Json = False) -> None:
    """Describe a saved estimator, moments, zarr rows or predictions, or a table."""
    screen.show({"path": path, **describe(path)}, json)


def describe(path: str) -> dict[str, Any]:
    """Return what is known of the content of a path, for JSON."""
    import zarr  # noqa: PLC0415  (see `options`)

    from streamgda.errors import FormatError, SourceError, SourceNotFoundError  # noqa: PLC0415
    from streamgda.rows.names import names_of  # noqa: PLC0415
    from streamgda.rows.opening import is_table, table_files  # noqa: PLC0415
    from streamgda.storage.opening import mark_of, open_node  # noqa: PLC0415
    from streamgda.storage.saved import load  # noqa: PLC0415

    if is_table(path):
        table = table_files(path).Table.of(path)
        columns = {field.name: str(field.type) for field in table.schema}
        found = {"kind": "table", "rows": table.n_rows, "files": len(table.groups)}
        return found | {"columns": columns}
    try:
        return load(path)._description()
    except (FormatError, SourceNotFoundError) as error:  # A folder at a URL is no file there.
        try:
            node = open_node(path)
        except (SourceError, SourceNotFoundError):
            raise error from None
    arrays = dict(node.arrays()) if isinstance(node, zarr.Group) else {"array": node}
    shapes = {name: f"{a.dtype} {a.shape}, chunks {a.chunks}" for name, a in arrays.items()}
    mark = mark_of(node)
    if mark is not None:
        half = "" if mark.get("complete") else ", half-written"
        return {"kind": f"predictions{half}", "rows": mark.get("done"), **shapes}
    rows = node if isinstance(node, zarr.Array) else arrays.get("X")
    return {"kind": "zarr", **shapes, "features": None if rows is None else names_of(rows)}
