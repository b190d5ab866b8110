"""`streamgda predict`: from zarr to zarr."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgda.cli import screen
from streamgda.cli.inputs import open_both
from streamgda.cli.options import (
    MaxMemory,
    Missing,
    MissingChunks,
    Model,
    Overwrite,
    Store,
    XName,
)
from streamgda.cli.paths import is_free, refuse_occupied
from streamgda.errors import CheckpointError, InvalidParameterError


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
    missing: Missing = MissingChunks.FILL,
    overwrite: Overwrite = False,
) -> None:
    """Write what a model says of each row to a zarr array; its class, unless asked otherwise.

    While it is written it lies beside its place, under a name that ends in .partial. Where that is
    stopped, the same command goes on from there.
    """
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
    estimator, X, _ = open_both(model, store, x, None, missing)
    options = {}
    if reject is not None:
        named = estimator.classes_.dtype.kind in "US"
        try:
            given = reject_label if named else int(reject_label)
        except ValueError:
            raise typer.BadParameter(
                f"{reject_label!r} is no whole number, as the classes are",
                param_hint="--reject-label",
            ) from None
        options = {"reject": reject, "reject_label": given}
    how = estimator.blockwise(wanted, **options)
    started = time.perf_counter()
    columns = None
    if proba or log_proba:  # dates and bytes as JSON can hold them
        labels = estimator.classes_.tolist()
        columns = [
            label if isinstance(label, int | float | str) else str(label) for label in labels
        ]
    partial = out.with_name(f"{out.name}.partial")

    def write() -> Any:
        return engine.score(
            how.function,
            X,
            partial,
            made_of=how.made_of | {"method": wanted, "columns": columns},
            out_row_bytes=how.row_bytes,
            held=how.held,
            max_memory=max_memory,
            progress=True,
        )

    resumed = partial.exists()
    with screen.saying_what_is_kept():
        try:
            written = write()
        except CheckpointError:
            if not overwrite:
                raise
            shutil.rmtree(partial)
            written = write()
    if out.exists():
        shutil.rmtree(out)
    partial.replace(out)
    seconds = time.perf_counter() - started
    rate = "with what was there" if resumed else f"{X.shape[0] / seconds:,.0f} rows a second"
    screen.say(
        f"{wanted} of {X.shape[0]:,} rows: {written.dtype} of shape {written.shape} written to "
        f"{out} in {seconds:.2f} s ({rate})"
    )


def _refuse_others_arrays(out: Path) -> None:
    """Whatever --overwrite says: only predictions are replaced, never rows or a model."""
    import zarr  # noqa: PLC0415

    from streamgda.engine.outputs import mark_of  # noqa: PLC0415

    if is_free(out):
        return
    try:
        ours = mark_of(zarr.open_array(out, mode="r")) is not None
    except Exception:  # whatever it is that is not an array
        ours = False
    if not ours:
        raise InvalidParameterError(
            f"{out} holds something else than predictions: it will not be replaced"
        )
