"""`streamgda predict`: predict the rows of a store, and write the result to zarr or a table."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import Any, Literal

import typer

from streamgda.cli import screen
from streamgda.cli.files import (
    is_free,
    label_like,
    open_both,
    open_rows,
    refuse_occupied,
    split_names,
)
from streamgda.cli.options import takes
from streamgda.errors import CheckpointError, InvalidParameterError
from streamgda.storage.opening import check_new
from streamgda.storage.replacing import move_into_place, only_writer


@takes(open_rows, without=("y", "labels", "all_touched"))
def predict(
    model: str,
    store: str,
    *,
    out: Path,
    proba: bool = False,
    log_proba: bool = False,
    density: bool = False,
    reject: float | None = None,
    reject_label: str | None = None,
    keys: str | None = None,
    max_memory: str | None = None,
    on_invalid: Literal["raise", "fill"] = "raise",
    nodata: float | None = None,
    on_missing: Literal["raise", "marginal"] = "raise",
    fill: str | None = None,
    overwrite: bool = False,
    **reading: Any,
) -> None:
    """Write predictions for each row: the class, unless an option says otherwise.

    A PATH without an ending, or one in .zarr, becomes a zarr array. It is written to a path that
    ends in .partial, and moved when it is complete. Run the same command again to resume after an
    interruption. A PATH that ends in .parquet, .arrow or .csv becomes a table, and one in .tif a
    GeoTIFF; these are not resumed.

    Parameters
    ----------
    model : MODEL
        Saved estimator.
    out : PATH
        zarr array, table or GeoTIFF to write.
    proba : bool
        Class probabilities, one column per class.
    log_proba : bool
        Logarithms of the class probabilities.
    density : bool
        Log-density of each row under the model.
    reject : P
        Reject rows whose p-value for the predicted class is below P.
    reject_label : LABEL
        Label of rejected rows; see --fill.
    keys : NAME,...
        Tables: columns of STORE that are copied beside the predictions.
    max_memory : BYTES
        Memory budget for rows and scores, such as 512MB; an error if it is too small.
    on_invalid : {"raise", "fill"}
        Raise an error for rows with NaN, infinity or --nodata, or write --fill for them.
    nodata : FLOAT
        Value that marks a missing measurement.
    on_missing : {"raise", "marginal"}
        Score rows with NaN or --nodata by the features that they have.
    fill : VALUE
        Written for invalid rows: a label that is no class, by default -1 or an empty text; or a
        number, by default NaN.
    overwrite : bool
        Replace existing output.
    """
    import numpy as np  # noqa: PLC0415  (see the note in `options`)

    from streamgda.engine.resumable_outputs import ENDINGS, holds_scores  # noqa: PLC0415
    from streamgda.rows import Rows  # noqa: PLC0415
    from streamgda.rows.geotiff import is_geotiff  # noqa: PLC0415
    from streamgda.rows.invalid_rows import SCORING  # noqa: PLC0415
    from streamgda.rows.table_writing import is_table_path  # noqa: PLC0415

    wanted = {"predict_proba": proba, "predict_log_proba": log_proba, "score_samples": density}
    if sum(wanted.values()) > 1:
        raise typer.BadParameter("choose one of --proba, --log-proba and --density")
    method = next((name for name, given in wanted.items() if given), "predict")
    if reject is not None and method != "predict":
        raise typer.BadParameter("only classes can be rejected", param_hint="--reject")
    if out.suffix == ".zip":
        raise typer.BadParameter("a .zip cannot be written slab by slab; name a directory")
    if not out.name:
        raise typer.BadParameter(f"{out} is a folder; name a path in it", param_hint="--out")
    table = is_table_path(out)
    whole = table or is_geotiff(out)
    if not whole:
        check_new(out, "--out", ENDINGS)
    partial = out if whole else out.with_name(f"{out.name}.partial")
    refuse_occupied(out, overwrite)
    _refuse_other_data(out, partial)
    estimator, X, _ = open_both(model, store, y=None, **reading)
    dtype = estimator.classes_.dtype
    options: dict[str, Any] = {}
    if reject is not None:
        options = {"reject": reject, "reject_label": _label(reject_label, dtype, "--reject-label")}
    value = _label(fill, dtype if method == "predict" else np.dtype(float), "--fill")
    rows = Rows.of(X, nodata=nodata, on_invalid=on_invalid, actions=SCORING)
    X, scorer = rows.X, estimator._scorer(method, **options).filling(rows.rule, value, on_missing)
    classes = (
        list(map(str, estimator.classes_)) if dtype.kind in "SmM" else estimator.classes_.tolist()
    )
    about = {"method": method, "columns": classes if proba or log_proba else None}

    def write() -> Any:
        return scorer.score(
            X,
            partial,
            about,
            keys=None if keys is None else split_names(keys),
            overwrite=overwrite,
            max_memory=max_memory,
            progress=True,
        )

    started = time.perf_counter()
    resumed = not whole and partial.exists()
    with screen.notes_on_interrupt(), contextlib.nullcontext() if whole else only_writer(out):
        try:
            written = write()
        except CheckpointError:
            if not (overwrite and holds_scores(partial)):
                raise
            shutil.rmtree(partial)
            written = write()
        if not whole:
            refuse_occupied(out, overwrite)  # something may have been written meanwhile
            _refuse_other_data(out)
            move_into_place(partial, out)
    seconds = time.perf_counter() - started
    rate = "resumed" if resumed else screen.rate(X.shape[0], seconds)
    what = "a table" if table else f"{written.dtype} of shape {written.shape}"
    screen.say(
        f"{method} of {X.shape[0]:,} rows: {what} written to {out} in {seconds:.2f} s ({rate})"
    )


def _label(text: str | None, dtype: Any, option: str) -> Any:
    return None if text is None else label_like(text, dtype, option)


def _refuse_other_data(*paths: Path) -> None:
    """Raise InvalidParameterError if a path exists and holds anything but predictions.

    Tables have no mark.
    """
    from streamgda.engine.resumable_outputs import holds_scores  # noqa: PLC0415
    from streamgda.rows.table_writing import is_table_path  # noqa: PLC0415

    for path in paths:
        table = is_table_path(path) and path.is_file()
        if not (is_free(path) or table or holds_scores(path)):
            raise InvalidParameterError(
                f"{path} does not hold predictions: it will not be replaced; name another path"
            )
