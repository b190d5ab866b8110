"""`streamgda info`: describe the content of a path."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

from streamgda.cli import screen
from streamgda.cli.files import stored_bytes
from streamgda.cli.options import takes
from streamgda.errors import FormatError

_MOST_CLASSES = 50  # listed in the table
_MOST_NAMES = 10


@takes()
def info(path: str, *, json: bool = False) -> None:
    """Describe a saved object or a zarr store.

    Parameters
    ----------
    path : PATH
        Saved estimator, moments or model, or zarr rows.
    json : bool
        Print one JSON object.
    """
    described = _describe(path)
    described["bytes_stored"] = stored_bytes(path)
    if json:
        screen.show_json({"path": path, **described})
        return

    from streamgda.runtime.memory import readable  # noqa: PLC0415

    classes = described.pop("classes", None)
    arrays = described.pop("arrays", None)
    if "rows" in described:
        described["rows"] = screen.number(described["rows"])
    for name in ("bytes", "bytes_stored"):
        if described.get(name) is not None:
            described[name] = readable(described[name])
    if described.get("feature_names"):
        described["feature_names"] = _listed(described["feature_names"])
    if described.get("parameters"):
        described["parameters"] = ", ".join(f"{k}={v}" for k, v in described["parameters"].items())
    if described.get("rows_by_group"):
        rows = described["rows_by_group"].items()
        described["rows_by_group"] = _listed([f"{group}: {n:g}" for group, n in rows])
    if "fields" in described:
        described["fields"] = _listed(described["fields"])
    if "groups" in described:
        described["groups"] = ", ".join(described["groups"])
    if "labels" in described and not described["labels"] and arrays:
        described["labels"] = "none: there is no array 'y'"
    screen.show_table(
        ("", ""),
        [(k.replace("_", " "), v) for k, v in described.items() if v not in (None, "", {})],
        right=False,
    )
    if arrays:
        screen.say()
        screen.show_table(
            ("array", "shape", "chunks", "dtype", "bytes"),
            [
                (a["name"], tuple(a["shape"]), tuple(a["chunks"]), a["dtype"], readable(a["bytes"]))
                for a in arrays
            ],
            right=False,
        )
    if classes:
        screen.say()
        heading, *_ = [name for name in classes[0] if name != "label"]
        screen.show_table(
            ("class", heading),
            [(c["label"], screen.number(c[heading])) for c in classes[:_MOST_CLASSES]],
        )
        if len(classes) > _MOST_CLASSES:
            screen.say(f"and {len(classes) - _MOST_CLASSES:,} more")


def _describe(path: str) -> dict[str, Any]:
    from streamgda import storage  # noqa: PLC0415
    from streamgda.rows.table_files import is_table  # noqa: PLC0415

    if is_table(path):
        return _table(path)
    try:
        kind = storage.kind_of(path)
    except FormatError as error:
        with storage.described(path) as node:
            others = None if storage.FORMAT in node.attrs else _data(node)
        if others is None:  # saved by this package, but damaged or of another version
            raise error from None
        return others
    describe = {
        "estimator": _estimator,
        "moments": _moments,
        "model": _model,
        "bernoulli": _bernoulli,
        "checkpoint": _checkpoint,
        "pairwise": _pairwise,
        "window": _window,
        "grouped": _grouped,
    }
    if kind not in describe:
        raise FormatError(f"{path} holds {kind!r}, which this version does not know")
    return describe[kind](path)


def _estimator(path: str) -> dict[str, Any]:
    from streamgda import load  # noqa: PLC0415

    estimator = load(path)
    described = getattr(estimator, "moments_", None)
    defaults = type(estimator)().get_params(deep=False)
    params = estimator.get_params(deep=False)
    changed = {k: _shown(v) for k, v in params.items() if v != defaults[k]}
    return {
        "kind": "estimator",
        "estimator": type(estimator).__name__,
        "parameters": changed,
        "threshold": _shown(getattr(estimator, "threshold_", None)),
        **(_of_numbers(estimator) if described is None else _of_moments(described)),
    }


def _of_numbers(estimator: Any) -> dict[str, Any]:
    """Return what is known of an estimator without moments."""
    model = estimator.model_
    priors: dict[str, Any] = {"classes": _priors(model)} if hasattr(model, "priors") else {}
    return {
        "moments": "none: it was made by from_parameters",
        "features": estimator.n_features_in_,
        **(priors or {"labels": ", ".join(map(str, model.classes.tolist()))}),
    }


def _shown(value: Any) -> Any:
    """Return the value for JSON: an estimator or an infinite number as text."""
    finite = not isinstance(value, float) or math.isfinite(value)
    plain = value is None or isinstance(value, bool | int | float | str | list)
    return value if plain and finite else " ".join(str(value).split())


def _moments(path: str) -> dict[str, Any]:
    from streamgda import ClassMoments  # noqa: PLC0415

    return {"kind": "moments", **_of_moments(ClassMoments.load(path))}


def _checkpoint(path: str) -> dict[str, Any]:
    from streamgda.engine.journal import CheckpointContents  # noqa: PLC0415

    contents = CheckpointContents.load(path)
    moments = functools.reduce(operator.add, contents.moments.values())
    return {"kind": "checkpoint", "done": contents.done, **_of_moments(moments)}


def _pairwise(path: str) -> dict[str, Any]:
    from streamgda import PairwiseMoments  # noqa: PLC0415

    return {"kind": "pairwise moments", **_of_moments(PairwiseMoments.load(path))}


def _window(path: str) -> dict[str, Any]:
    from streamgda import SlidingWindow  # noqa: PLC0415

    window = SlidingWindow.load(path)
    blocks = f"{len(window)} of {window.n_blocks}"
    return {"kind": "sliding window", "blocks": blocks, **_of_moments(window.moments)}


def _grouped(path: str) -> dict[str, Any]:
    from streamgda import GroupedMoments  # noqa: PLC0415

    grouped = GroupedMoments.load(path)
    counts = zip(grouped, grouped.counts.sum(axis=1).tolist(), strict=True)
    rows = {str(group): n for group, n in counts}
    return {"kind": "moments of groups", **_of_moments(grouped), "rows_by_group": rows}


def _of_moments(moments: Any) -> dict[str, Any]:
    counts = zip(moments.classes.tolist(), moments.class_count.tolist(), strict=True)
    return {
        "covariance_type": getattr(moments, "covariance_type", None),
        "features": moments.n_features,
        "feature_names": moments.feature_names,
        "rows": moments.class_count.sum().item(),
        "skipped": getattr(moments, "n_skipped", 0) or None,
        "bytes": moments.nbytes,
        "classes": [{"label": label, "rows": rows} for label, rows in counts],
    }


def _model(path: str) -> dict[str, Any]:
    from streamgda import GaussianModel  # noqa: PLC0415

    model = GaussianModel.load(path)
    return {
        "kind": "model",
        "covariance_type": model.structure.name,
        "features": model.n_features,
        "feature_names": model.feature_names,
        "constant_features": model.n_features - model.features.size,
        "classes": _priors(model),
    }


def _bernoulli(path: str) -> dict[str, Any]:
    from streamgda.models.bernoulli import BernoulliModel  # noqa: PLC0415

    model = BernoulliModel.load(path)
    return {
        "kind": "Bernoulli model",
        "threshold": model.threshold,
        "features": model.n_features,
        "feature_names": model.feature_names,
        "classes": _priors(model),
    }


def _names(array: Any) -> tuple[str, ...] | None:
    from streamgda.rows import as_source  # noqa: PLC0415

    return as_source(array).feature_names


def _listed(names: Sequence[str]) -> str:
    more = f", ... ({len(names):,} names)" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"


def _priors(model: Any) -> list[dict[str, Any]]:
    priors = zip(model.classes.tolist(), model.priors.tolist(), strict=True)
    return [{"label": label, "prior": prior} for label, prior in priors]


def _data(node: Any) -> dict[str, Any]:
    import zarr  # noqa: PLC0415

    from streamgda.storage.opening import mark_of  # noqa: PLC0415

    if isinstance(node, zarr.Array):
        mark = mark_of(node)
        if mark is None:
            return {
                "kind": "zarr array",
                "feature_names": _names(node),
                "arrays": [_array("/", node)],
            }
        made_of = mark.get("made_of", {})
        return {
            "kind": "predictions" if mark.get("complete") else "predictions, half-written",
            "rows": mark.get("done", 0),
            "method": made_of.get("method"),
            "columns": made_of.get("columns"),
            "arrays": [_array("/", node)],
        }
    names = sorted(node.array_keys())
    return {
        "kind": "zarr group",
        "labels": "y" if "y" in names else None,
        "feature_names": _names(node["X"]) if "X" in names else None,
        "groups": sorted(node.group_keys()),
        "arrays": [_array(name, node[name]) for name in names],
    }


def _table(path: str) -> dict[str, Any]:
    from streamgda.rows.table_files import Table  # noqa: PLC0415

    table = Table.of(path)
    fields = {field.name: str(field.type) for field in table.files[0].schema}
    return {
        "kind": f"table ({table.format.name})",
        "rows": table.n_rows,
        "files": len(table.files),
        "row_groups": len(table.bounds) - 1 if table.format.piece else None,
        "fields": [f"{name} ({kind})" for name, kind in fields.items()],
    }


def _array(name: str, array: Any) -> dict[str, Any]:
    return {
        "name": name,
        "shape": list(array.shape),
        "chunks": list(array.chunks),
        "dtype": str(array.dtype),
        "bytes": array.nbytes,
    }
