"""`streamgda separability`: the separability of all pairs of classes."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Any

import typer

from streamgda.cli import screen
from streamgda.cli.options import Json

_MOST_CLASSES = 20  # in a matrix; also the number of pairs listed otherwise


class Method(StrEnum):
    """Measures of separability."""

    JEFFRIES_MATUSITA = "jeffries_matusita"
    MATUSITA = "matusita"
    BHATTACHARYYA = "bhattacharyya"
    MAHALANOBIS = "mahalanobis"
    DIVERGENCE = "divergence"
    TRANSFORMED_DIVERGENCE = "transformed_divergence"
    KULLBACK_LEIBLER = "kullback_leibler"


def separability(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Saved Gaussian estimator, model or moments.")
    ],
    method: Annotated[
        Method, typer.Option(help="Measure; the Jeffries-Matusita distance is from 0 to 2.")
    ] = Method.JEFFRIES_MATUSITA,
    json: Json = False,
) -> None:
    """Show how well each pair of classes can be separated, or the least separable of many."""
    from streamgda import separability  # noqa: PLC0415  (see the note in `options`)

    saved, labels = _load(model)
    try:
        values = separability(saved, method.value)
    except TypeError:
        raise typer.BadParameter(
            f"{model} holds {type(saved).__name__}, whose classes are not Gaussian",
            param_hint="MODEL",
        ) from None
    pairs = _pairs(labels, values)
    if json:
        matrix = [[None if math.isnan(v) else v for v in row] for row in values.tolist()]
        shown = {"model": model, "method": method.value, "classes": labels}
        screen.show_json({**shown, "separability": matrix})
    elif len(labels) <= _MOST_CLASSES:
        screen.show_table(
            (method.value, *map(str, labels)),
            [
                (label, *(_number(v) for v in row))
                for label, row in zip(labels, values.tolist(), strict=True)
            ],
        )
    else:
        least = [(a, b, _number(v)) for v, a, b in pairs[:_MOST_CLASSES]]
        screen.show_table(("class", "class", method.value), least)
        screen.say(f"the least separable of {len(pairs):,} pairs of {len(labels):,} classes")


def _load(path: str) -> tuple[Any, list[Any]]:
    """Return a saved estimator, model or moments, and its class labels."""
    from streamgda import ClassMoments, GaussianModel, load, storage  # noqa: PLC0415

    kinds: dict[str, Any] = {"moments": ClassMoments, "model": GaussianModel}
    kind = kinds.get(storage.kind_of(path))
    saved = load(path) if kind is None else kind.load(path)
    labels = saved.classes_ if kind is None else saved.classes
    return saved, labels.tolist()


def _pairs(labels: list[Any], values: Any) -> list[tuple[float, Any, Any]]:
    """Return the values and labels of pairs of classes with rows, the least separable first.

    If the measure is not symmetric, the two directions are two pairs.
    """
    import numpy as np  # noqa: PLC0415

    both = not np.array_equal(values, values.T, equal_nan=True)
    beside = ~np.eye(len(labels), dtype=bool)
    wanted = np.isfinite(values) & (beside if both else np.triu(beside))
    first, second = np.nonzero(wanted)
    found = values[wanted]
    order = np.argsort(found, kind="stable")
    return [(float(found[p]), labels[first[p]], labels[second[p]]) for p in order]


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"
