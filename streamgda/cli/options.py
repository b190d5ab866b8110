"""Options that commands share, the rows that these name, and parameters of estimators."""

from __future__ import annotations

import contextlib
import csv
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import typer

import streamgda
from streamgda.errors import FormatError, InvalidDataError

Option = typer.Option
Text: TypeAlias = str | None
Names: TypeAlias = list[str] | None


def split_names(texts: list[str] | None) -> list[str]:
    """Return the names in texts, which commas separate; double quotes hold commas, as in CSV."""
    rows = csv.reader(texts or [], skipinitialspace=True)
    return [name.strip() for row in rows for name in row]


_ROWS = typer.Argument(
    metavar="DATA",
    show_default=False,
    help="Rows: zarr, or a table (.parquet, .feather, .csv, a folder of them); a path or a URL.",
)
Data = Annotated[str, _ROWS]
OptionalData = Annotated[str | None, _ROWS]
Out = Annotated[str, Option(metavar="PATH", help="File for the estimator, or a URL.")]
Model = Annotated[str, Option(metavar="PATH", help="Saved estimator, or a URL.")]
Label = Annotated[Text, Option(metavar="NAME", help="Column of labels; in zarr an array, or y.")]
_LIST: Any = {"metavar": "NAME,...", "callback": split_names}
Features = Annotated[Names, Option(help="Columns of features: by default all others.", **_LIST)]
Drop = Annotated[Names, Option(help="Columns that are not features.", **_LIST)]
Keys = Annotated[Names, Option(help="Columns that are copied to a table of predictions.", **_LIST)]
Weights = Annotated[Text, Option(metavar="NAME", help="Column or array of weights.")]
Groups = Annotated[Text, Option(metavar="NAME", help="Column or array of groups kept together.")]
Settings = Annotated[Names, Option("--set", metavar="NAME=VALUE", help="Parameter; repeatable.")]
Grid = Annotated[Names, Option(metavar="NAME=VALUE,...", help="Values to try; repeatable.")]
OnInvalid = Annotated[
    Literal["raise", "skip"], Option(help="Rows with NaN, infinity or no label: raise or skip.")
]
Unlabelled = Annotated[Names, Option(metavar="LABEL", help="Label of no class; repeatable.")]
MaxMemory = Annotated[Text, Option(metavar="BYTES", help="Memory to use, such as 512MB.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]


def open_rows(
    data: str,
    label: str | None,
    features: list[str] | None,
    drop: list[str] | None,
    *beside: str | None,
    labelled: bool = True,
) -> tuple[Any, ...]:
    """Return rows, labels or None, and each array or column beside them; see `open_store`."""
    from streamgda.engine import reading  # noqa: PLC0415  (`--help` does not wait for it)
    from streamgda.rows.opening import is_table  # noqa: PLC0415

    reading.always.set(True)
    chosen: dict[str, Any] = {"features": features or None, "drop": drop or []}
    if is_table(data):
        chosen["drop"] += filter(None, beside)
        X, y = streamgda.open_store(data, y="y" if labelled else None, label=label, **chosen)
        others = (
            name and streamgda.open_store(data, label=name, features=X.fields)[1] for name in beside
        )
    else:
        X, y = streamgda.open_store(data, y=(label or "y") if labelled else None, **chosen)
        others = (name and streamgda.open_store(data, y=name)[1] for name in beside)
    if not X.shape[0]:
        raise InvalidDataError(f"{data} has no rows; give at least one")
    return X, y, *others


def counting(y: Any, on_invalid: str, unlabelled: list[str] | None) -> dict[str, Any]:
    """Return the options of `streamgda.accumulate` that say which rows count."""
    labels = [label_like(text, y) for text in unlabelled or ()]
    return {"on_invalid": on_invalid, "unlabelled": labels or None}


def label_like(text: str, labels: Any) -> Any:
    """Return the label that a text stands for among labels of a type."""
    if getattr(labels.dtype, "kind", "O") in "OTU":
        return text
    try:
        return np.array(value_of(text)).astype(labels.dtype)[()]
    except (TypeError, ValueError):
        raise typer.BadParameter(f"{text!r} is not a label of type {labels.dtype}") from None


def parameters(settings: list[str] | None, option: str, estimator: Any) -> dict[str, Any]:
    """Return the parameters that ``name=value`` set: numbers, lists of them, words or texts."""
    given, known = {}, estimator.get_params()
    for text in settings or ():
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name or not value:
            raise typer.BadParameter(f"{text}; expected NAME=VALUE", param_hint=option)
        if name not in known:
            raise typer.BadParameter(f"{name}; expected {', '.join(known)}", param_hint=option)
        values = [value_of(part.strip()) for part in value.split(",")]
        given[name] = values if len(values) > 1 else values[0]
    return given


def value_of(text: str) -> Any:
    """Return the number, truth value or None that a text stands for, or the text."""
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def open_both(
    model: str, method: str, data: str, label: str | None, features: Names, labelled: bool = True
) -> tuple[Any, Any, Any]:
    """Return an estimator with a method, rows and labels; columns are those of its fit."""
    from streamgda.estimators.base import names_in  # noqa: PLC0415
    from streamgda.rows.names import join_names  # noqa: PLC0415
    from streamgda.rows.opening import is_table  # noqa: PLC0415
    from streamgda.rows.source import as_source  # noqa: PLC0415

    estimator = streamgda.load(model)
    if not hasattr(estimator, method):
        kind = type(estimator).__name__
        raise FormatError(f"{model} holds {kind}, which has no {method}: name another model")
    names = names_in(estimator)
    if not features and is_table(data) and names:
        features = [*names]
    X, y = open_rows(data, label, features, None, labelled=labelled)
    join_names(names, as_source(X).feature_names, model, InvalidDataError)
    return estimator, X, y
