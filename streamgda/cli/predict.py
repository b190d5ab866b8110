"""`streamgda predict`: predict the rows of a store, and write the result to zarr or a table."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgda.cli import screen
from streamgda.cli.inputs import open_both, split_names
from streamgda.cli.labels import label_like
from streamgda.cli.options import (
    FeatureNames,
    Fill,
    InvalidScored,
    Keys,
    LabelName,
    MaxMemory,
    Missing,
    MissingChunks,
    Model,
    Nodata,
    OnInvalidScored,
    Overwrite,
    Store,
    XName,
)
from streamgda.cli.paths import is_free, refuse_occupied
from streamgda.errors import CheckpointError, InvalidParameterError
from streamgda.storage.opening import check_new
from streamgda.storage.replacing import move_into_place, only_writer


def predict(
    model: Model,
    store: Store,
    out: Annotated[
        Path, typer.Option(metavar="PATH", help="zarr array, table or GeoTIFF to write.")
    ],
    proba: Annotated[
        bool, typer.Option("--proba", help="Class probabilities, one column per class.")
    ] = False,
    log_proba: Annotated[
        bool, typer.Option("--log-proba", help="Logarithms of the class probabilities.")
    ] = False,
    density: Annotated[
        bool, typer.Option("--density", help="Log-density of each row under the model.")
    ] = False,
    reject: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Reject rows whose p-value for the predicted class is below P."
        ),
    ] = None,
    reject_label: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Label of rejected rows; see --fill.")
    ] = None,
    x: XName = "X",
    label: LabelName = None,
    features: FeatureNames = None,
    keys: Keys = None,
    max_memory: MaxMemory = None,
    missing: Missing = MissingChunks.FILL,
    on_invalid: InvalidScored = OnInvalidScored.RAISE,
    nodata: Nodata = None,
    fill: Fill = None,
    overwrite: Overwrite = False,
) -> None:
    """Write predictions for each row: the class, unless an option says otherwise.

    A PATH without an ending, or one in .zarr, becomes a zarr array. It is written to a path that
    ends in .partial, and moved when it is complete. Run the same command again to resume after an
    interruption. A PATH that ends in .parquet, .arrow or .csv becomes a table, and one in .tif a
    GeoTIFF; these are not resumed.
    """
    from streamgda.engine.outputs import ENDINGS  # noqa: PLC0415
    from streamgda.estimators.scoring import scorer_of  # noqa: PLC0415
    from streamgda.rows import as_rows  # noqa: PLC0415
    from streamgda.rows.geotiff import is_geotiff  # noqa: PLC0415
    from streamgda.rows.invalid_rows import SCORING, row_rule  # noqa: PLC0415
    from streamgda.rows.table_writing import is_table_path  # noqa: PLC0415

    method = _method(proba, log_proba, density)
    if reject is not None and method != "predict":
        raise typer.BadParameter("only classes can be rejected", param_hint="--reject")
    if out.suffix == ".zip":
        raise typer.BadParameter("a .zip cannot be written slab by slab; name a directory")
    if not out.name:
        raise typer.BadParameter(f"{out} is a folder; name a path in it", param_hint="--out")
    table, whole = is_table_path(out), is_table_path(out) or is_geotiff(out)
    if not whole:
        check_new(out, "--out", ENDINGS)
    partial = out if whole else out.with_name(f"{out.name}.partial")
    refuse_occupied(out, overwrite)
    _refuse_other_data(out, partial)
    estimator, X, _ = open_both(model, store, x, None, missing, label, features)
    rejected = _label(estimator, reject_label, "--reject-label")
    options = {} if reject is None else {"reject": reject, "reject_label": rejected}
    X, nodata = as_rows(X, None, nodata)
    rule = row_rule(on_invalid.value, nodata, actions=SCORING)
    scorer = scorer_of(estimator, method, **options).filling(rule, _fill(estimator, method, fill))
    started = time.perf_counter()
    columns = _columns(estimator) if proba or log_proba else None
    resumed = not whole and partial.exists()
    about = {"method": method, "columns": columns}
    copied = None if keys is None else split_names(keys)
    writing = {"keys": copied, "max_memory": max_memory}
    if whole:
        written = _write(scorer, X, out, about, overwrite, **writing)
    else:
        with only_writer(out):
            written = _write(scorer, X, partial, about, overwrite, **writing)
            refuse_occupied(out, overwrite)  # something may have been written meanwhile
            _refuse_other_data(out, partial)
            move_into_place(partial, out)
    seconds = time.perf_counter() - started
    rate = "resumed" if resumed else screen.rate(X.shape[0], seconds)
    what = "a table" if table else f"{written.dtype} of shape {written.shape}"
    screen.say(
        f"{method} of {X.shape[0]:,} rows: {what} written to {out} in {seconds:.2f} s ({rate})"
    )


def _method(proba: bool, log_proba: bool, density: bool) -> str:
    if proba + log_proba + density > 1:
        raise typer.BadParameter("choose one of --proba, --log-proba and --density")
    if density:
        return "score_samples"
    return "predict_proba" if proba else "predict_log_proba" if log_proba else "predict"


def _label(estimator: Any, text: str | None, option: str) -> Any:
    """Return a label of the classes' type; None if it is not given."""
    return None if text is None else label_like(text, estimator.classes_.dtype, option)


def _fill(estimator: Any, method: str, fill: str | None) -> Any:
    """Return what is written for invalid rows: a label, or a number."""
    if fill is None or method == "predict":
        return _label(estimator, fill, "--fill")
    try:
        return float(fill)
    except ValueError:
        raise typer.BadParameter(
            f"{fill!r} is not a number, as the results are", param_hint="--fill"
        ) from None


def _columns(estimator: Any) -> list[int | float | str]:
    """Return the classes for JSON: dates and bytes as text."""
    classes = estimator.classes_
    return classes.tolist() if classes.dtype.kind in "biufU" else [*map(str, classes)]


def _write(
    scorer: Any,
    X: Any,
    partial: Path,
    about: dict[str, Any],
    overwrite: bool,
    **options: Any,
) -> Any:
    """Score the rows into an array: resume, or start again if `overwrite` and it does not match."""
    from streamgda import engine  # noqa: PLC0415
    from streamgda.engine.outputs import holds_scores  # noqa: PLC0415

    def write() -> Any:
        return engine.score(
            scorer.function,
            X,
            partial,
            fingerprint=scorer.fingerprint | about,
            dtype=scorer.dtype,
            columns=scorer.columns,
            labels=scorer.labels,
            name=scorer.method,
            classes=scorer.classes,
            fill=scorer.fill,
            held=scorer.held,
            overwrite=overwrite,
            progress=True,
            **options,
        )

    with screen.notes_on_interrupt():
        try:
            return write()
        except CheckpointError:
            if not (overwrite and holds_scores(partial)):
                raise
            shutil.rmtree(partial)
            return write()


def _refuse_other_data(*paths: Path) -> None:
    """Raise InvalidParameterError if a path exists and holds anything but predictions.

    Tables have no mark.
    """
    from streamgda.engine.outputs import holds_scores  # noqa: PLC0415
    from streamgda.rows.table_writing import is_table_path  # noqa: PLC0415

    for path in paths:
        table = is_table_path(path) and path.is_file()
        if not (is_free(path) or table or holds_scores(path)):
            raise InvalidParameterError(
                f"{path} does not hold predictions: it will not be replaced; name another path"
            )
