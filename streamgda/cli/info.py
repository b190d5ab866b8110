"""`streamgda info`: describe the content of a path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamgda.cli import screen
from streamgda.cli.files import stored_bytes
from streamgda.cli.options import takes
from streamgda.errors import SourceError, StreamGDAError
from streamgda.runtime.display import in_words

_MOST_CLASSES = 50  # listed in the table
_COUNTS, _BYTES = ("rows", "watched"), ("bytes", "bytes_stored")


@takes()
def info(path: str) -> dict[str, Any]:
    """Describe a saved object or a zarr store.

    Parameters
    ----------
    path : PATH
        Saved estimator, moments or model, zarr rows, or a table.

    Examples
    --------
    streamgda info flowers.zarr
    streamgda info model.npz --json
    """
    described = describe(path)
    figures = {"path": path, **described}
    classes, arrays = described.pop("classes", None), described.pop("arrays", None)
    if arrays and "labels" in described and not described["labels"]:
        described["labels"] = "none: there is no array 'y'"
    screen.show_table(
        ("", ""),
        [
            (name.replace("_", " "), _shown(name, value))
            for name, value in described.items()
            if value not in (None, "", 0, [], {})
        ],
        right=False,
    )
    if arrays:
        screen.say()
        show_arrays(arrays)
    if classes:
        screen.say()
        heading, *_ = [name for name in classes[0] if name != "label"]
        screen.show_table(
            ("class", heading),
            [(c["label"], _shown("rows", c[heading])) for c in classes],
            most=_MOST_CLASSES,
        )
    return figures


def show_arrays(arrays: list[dict[str, Any]]) -> None:
    """Write a table of the arrays in a zarr group."""
    columns = ("name", "shape", "chunks", "dtype", "bytes")
    rows = [[_shown(name, array[name]) for name in columns] for array in arrays]
    screen.show_table(("array", *columns[1:]), rows, right=False)


def _shown(name: str, value: Any) -> str:
    """Return a value as people read it: sizes in a unit, shapes in brackets."""
    from streamgda.runtime.memory import readable  # noqa: PLC0415  (see the note in `options`)

    if name in _BYTES:
        return readable(value)
    if name in _COUNTS and value is not None:
        return screen.number(value)
    return str(tuple(value)) if name in ("shape", "chunks") else in_words(value)


def describe(path: str | Path) -> dict[str, Any]:
    """Return what is known of the content of a path, for JSON."""
    return _content(str(path)) | {"bytes_stored": stored_bytes(path)}


def _content(path: str) -> dict[str, Any]:
    from streamgda.rows.opening import is_table  # noqa: PLC0415
    from streamgda.storage.opening import opened_node  # noqa: PLC0415
    from streamgda.storage.saved import description_of, load  # noqa: PLC0415

    if is_table(path):
        return _table(path)
    try:
        return description_of(load(path))
    except StreamGDAError as error:
        try:
            with opened_node(path) as node:
                return _data(node)
        except SourceError:  # it is neither
            raise error from None


def _data(node: Any) -> dict[str, Any]:
    import zarr  # noqa: PLC0415

    from streamgda.rows import names_of  # noqa: PLC0415
    from streamgda.storage.opening import mark_of  # noqa: PLC0415

    if isinstance(node, zarr.Group):
        names = sorted(node.array_keys())
        return {
            "kind": "zarr group",
            "labels": "y" if "y" in names else None,
            "feature_names": names_of(node["X"]) if "X" in names else None,
            "groups": sorted(node.group_keys()),
            "arrays": [_array(name, node[name]) for name in names],
        }
    mark, arrays = mark_of(node), [_array("/", node)]
    if mark is None:
        return {"kind": "zarr array", "feature_names": names_of(node), "arrays": arrays}
    made_of = mark.get("made_of", {})
    return {
        "kind": "predictions" if mark.get("complete") else "predictions, half-written",
        "rows": mark.get("done", 0),
        "method": made_of.get("method"),
        "columns": made_of.get("columns"),
        "arrays": arrays,
    }


def _array(name: str, array: Any) -> dict[str, Any]:
    shape, chunks = list(array.shape), list(array.chunks)
    dtype, size = str(array.dtype), array.nbytes
    return {"name": name, "shape": shape, "chunks": chunks, "dtype": dtype, "bytes": size}


def _table(path: str) -> dict[str, Any]:
    from streamgda.rows.opening import table_files  # noqa: PLC0415

    table = table_files(path).Table.of(path)
    return {
        "kind": f"table ({table.format.name})",
        "rows": table.n_rows,
        "files": len(table.files),
        "row_groups": len(table.bounds) - 1 if table.format.piece else None,
        "fields": [f"{field.name} ({field.type})" for field in table.files[0].schema],
    }
