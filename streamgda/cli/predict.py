"""`streamgda predict`: from zarr to zarr."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Annotated

import typer

from streamgda.cli import screen
from streamgda.cli.inputs import open_both
from streamgda.cli.options import MaxMemory, Model, Overwrite, Store, XName
from streamgda.cli.paths import is_free, refuse_occupied, replacing
from streamgda.errors import InvalidParameterError

MARK = "streamgda_prediction"  # attribute that tells what an array holds
# The model's methods are told where rows stand, so that errors can say it.
_OF_THE_MODEL = {
    "predict": "predict",
    "predict_proba": "posterior",
    "predict_log_proba": "log_posterior",
    "score_samples": "log_density",
}


def predict(
    model: Model,
    store: Store,
    out: Annotated[Path, typer.Option(metavar="PATH", help="zarr array to write.")],
    proba: Annotated[
        bool, typer.Option("--proba", help="Probabilities of the classes, a column each.")
    ] = False,
    log_proba: Annotated[bool, typer.Option("--log-proba", help="Their logarithms.")] = False,
    density: Annotated[
        bool, typer.Option("--density", help="Log-density of each row under the model.")
    ] = False,
    reject: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Classes: reject rows whose p-value for theirs is below this."
        ),
    ] = None,
    reject_label: Annotated[
        str, typer.Option(metavar="LABEL", help="What rejected rows get.")
    ] = "-1",
    x: XName = "X",
    max_memory: MaxMemory = None,
    overwrite: Overwrite = False,
) -> None:
    """Write what a model says of each row to a zarr array; its class, unless asked otherwise."""
    if proba + log_proba + density > 1:
        raise typer.BadParameter("choose one of --proba, --log-proba and --density")
    if reject is not None and (proba or log_proba or density):
        raise typer.BadParameter("only classes are rejected", param_hint="--reject")
    if out.suffix == ".zip":
        raise typer.BadParameter("a .zip is not written slab by slab; name a directory")

    from streamgda import engine  # noqa: PLC0415

    wanted = "predict_proba" if proba else "predict_log_proba" if log_proba else "predict"
    wanted = "score_samples" if density else wanted
    refuse_occupied(out, overwrite)
    _refuse_others_arrays(out)
    estimator, X, _ = open_both(model, store, x, None)
    function = getattr(estimator.model_, _OF_THE_MODEL[wanted])
    if reject is not None:
        named = estimator.classes_.dtype.kind in "US"
        try:
            given = reject_label if named else int(reject_label)
        except ValueError:
            raise typer.BadParameter(
                f"{reject_label!r} is no whole number, as the classes are",
                param_hint="--reject-label",
            ) from None
        label = estimator._check_rejection(reject, given)
        function = functools.partial(estimator.model_.predict_or_reject, reject=reject, label=label)
    started = time.perf_counter()
    with replacing(out) as partial:
        written = engine.score(
            function,
            X,
            partial,
            out_row_bytes=8 * (estimator.classes_.size if proba or log_proba else 1),
            max_memory=max_memory,
            progress=True,
        )
        written.attrs[MARK] = {
            "method": wanted,
            "columns": None if written.ndim == 1 else estimator.classes_.tolist(),
        }
    seconds = time.perf_counter() - started
    screen.say(
        f"{wanted} of {X.shape[0]:,} rows: {written.dtype} of shape {written.shape} written to "
        f"{out} in {seconds:.2f} s ({X.shape[0] / seconds:,.0f} rows a second)"
    )


def _refuse_others_arrays(out: Path) -> None:
    """Whatever --overwrite says: only predictions are replaced, never rows or a model."""
    import zarr  # noqa: PLC0415

    if is_free(out):
        return
    try:
        ours = MARK in zarr.open_array(out, mode="r").attrs
    except Exception:  # whatever it is that is not an array
        ours = False
    if not ours:
        raise InvalidParameterError(
            f"{out} holds something else than predictions: it will not be replaced"
        )
