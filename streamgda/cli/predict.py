"""`streamgda predict`: predict the rows of a store, and write the result to zarr or a table."""

from __future__ import annotations

import math
import time
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import typer

from streamgda.cli import files, screen
from streamgda.cli.options import FormerArgument, takes
from streamgda.storage.opening import check_new, open_node

_SHOWN = 20  # labels, of which the rows are counted
_BLOCK = 1 << 20  # labels that are counted at a time


@takes(files.open_rows, without=("labels",))
def predict(
    data: str,
    former: FormerArgument = None,
    *,
    model: str | None = None,
    out: Path,
    proba: bool = False,
    log_proba: bool = False,
    density: bool = False,
    reject: float | None = None,
    reject_label: str | None = None,
    keys: list[str] | None = None,
    max_memory: str | None = None,
    on_invalid: Literal["raise", "fill"] = "raise",
    nodata: float | None = None,
    on_missing: Literal["raise", "marginal"] = "raise",
    fill: str | None = None,
    **reading: Any,
) -> dict[str, Any]:
    """Write predictions for each row: the class, unless an option says otherwise.

    A PATH without an ending, or one in .zarr, becomes a zarr array. Run the same command again to
    resume after an interruption. A PATH that ends in .parquet, .arrow or .csv becomes a table,
    which is not resumed.

    Parameters
    ----------
    model : PATH
        Saved estimator.
    out : PATH
        zarr array or table to write.
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
        Tables: columns of DATA that are copied beside the predictions.
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

    Examples
    --------
    streamgda predict flowers.zarr --model model.npz --out labels.zarr
    streamgda predict flowers.csv --model model.npz --out probabilities.csv --proba
    """
    # See the note in `options`.
    from streamgda.engine.resumable_outputs import ENDINGS  # noqa: PLC0415
    from streamgda.rows import Rows  # noqa: PLC0415
    from streamgda.rows.invalid_rows import SCORING  # noqa: PLC0415
    from streamgda.rows.opening import is_table_path  # noqa: PLC0415

    wanted = {"predict_proba": proba, "predict_log_proba": log_proba, "score_samples": density}
    if sum(wanted.values()) > 1:
        raise typer.BadParameter("choose one of --proba, --log-proba and --density")
    method = next((name for name, given in wanted.items() if given), "predict")
    if reject is not None and method != "predict":
        raise typer.BadParameter("only classes can be rejected", param_hint="--reject")
    if reject is None and reject_label is not None:
        raise typer.BadParameter("no row is rejected; give --reject", param_hint="--reject-label")
    if out.suffix == ".zip":
        raise typer.BadParameter("a .zip cannot be written slab by slab; name a directory")
    if not out.name:
        raise typer.BadParameter(f"{out} is a folder; name a path in it", param_hint="--out")
    table = is_table_path(out)
    if table:
        files.refuse_occupied(out)
    else:
        check_new(out, ENDINGS)
    model, data, estimator, X, _ = files.open_both(model, data, former, labelled=False, **reading)
    dtype = estimator.classes_.dtype
    options: dict[str, Any] = {}
    if reject is not None:
        label = files.label_like(reject_label, dtype, "--reject-label")
        options = {"reject": reject, "reject_label": label}
    value = files.label_like(fill, dtype if method == "predict" else np.dtype(float), "--fill")
    rows = Rows.of(X, nodata=nodata, on_invalid=on_invalid, actions=SCORING)
    X, scorer = rows.X, estimator._scorer(method, **options).filling(rows.rule, value, on_missing)
    classes = (
        list(map(str, estimator.classes_)) if dtype.kind in "SmM" else estimator.classes_.tolist()
    )
    about = {"method": method, "columns": classes if proba or log_proba else None}

    started = time.perf_counter()
    resumed = out.exists()
    written = scorer.score(
        X,
        out,
        about,
        keys=files.split_names(*keys) if keys else None,
        max_memory=max_memory,
        progress=True,
    )
    seconds = time.perf_counter() - started
    rate = "resumed" if resumed else screen.rate(X.shape[0], seconds)
    what = "a table" if table else f"{written.dtype} of shape {written.shape}"
    figures: dict[str, Any] = {
        "model": model,
        "data": data,
        "out": out,
        "method": method,
        "rows": X.shape[0],
        "seconds": seconds,
    }
    if method == "predict":
        counted = _counted(out, dtype)
        screen.show_table(
            ("predicted", "rows", "share"),
            [(label, f"{n:,}", f"{n / X.shape[0]:.1%}") for label, n in counted],
            most=_SHOWN,
        )
        screen.say()
        figures["predicted"] = [{"label": label, "rows": n} for label, n in counted]
    screen.say(
        f"{method} of {X.shape[0]:,} rows: {what} written to {out} in {seconds:.2f} s ({rate})"
    )
    return figures


def _counted(out: Path, dtype: Any) -> list[tuple[Any, int]]:
    """Return the different labels in an output and the number of rows of each, largest first."""
    from streamgda.rows.opening import format_of, is_table_path, table_files  # noqa: PLC0415

    counts: Counter[Any] = Counter()
    if is_table_path(out):
        import pyarrow as pa  # noqa: PLC0415

        # What a text holds is read as text, as a later label may be no number.
        text = format_of(str(out)) == "csv"
        options: Any = {"header": True, "keep_default_na": False} if text else {}
        table = table_files(out).Table.of(out, **options)
        name = table.names[-1]  # after the keys
        kind = pa.string() if text else table.kinds(name)[0]
        for batch in table.batches(0, {name: kind}, _BLOCK):
            for found in batch.column(0).value_counts().to_pylist():
                label = found["values"]
                if text:
                    label = files.label_like(label, dtype, "--out") if label else ""
                counts[label] += found["counts"]
    else:
        written = open_node(out)  # where it was moved
        step = max(1, _BLOCK // math.prod(written.shape[1:]))
        for start in range(0, written.shape[0], step):
            found = np.unique(np.asarray(written[start : start + step]), return_counts=True)
            counts.update(dict(zip(*map(np.ndarray.tolist, found), strict=True)))
    return counts.most_common()
