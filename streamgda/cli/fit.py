"""`streamgda fit`: fit an estimator to the rows of a store, or to saved moments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import typer

from streamgda.cli import options, screen
from streamgda.cli.inputs import open_rows
from streamgda.cli.labels import labels_like
from streamgda.cli.options import Kind, MissingChunks, OnInvalid
from streamgda.cli.paths import check_distinct, refuse_other_kind, refuse_replacing, stored_size
from streamgda.cli.recipes import Recipe, recipe_of


def fit(
    *,
    store: options.StoreToFit = None,
    model: options.OutputModel,
    kind: options.EstimatorKind = Kind.QDA,
    solver: options.SolverName = None,
    covariance_type: options.CovarianceType = None,
    shrinkage: options.Shrinkage = None,
    pooling: options.Pooling = None,
    reg_param: options.RegParam = None,
    var_smoothing: options.VarSmoothing = None,
    standardize: options.Standardize = False,
    priors: options.Priors = None,
    tol: options.Tol = None,
    ddof: options.Ddof = None,
    alpha: options.Alpha = None,
    binarize: options.Binarize = None,
    x: options.XName = "X",
    y: options.YName = "y",
    label: options.LabelName = None,
    features: options.FeatureNames = None,
    labels: options.Labels = None,
    all_touched: options.AllTouched = False,
    weights: options.Weights = None,
    max_memory: options.MaxMemory = None,
    missing: options.Missing = MissingChunks.FILL,
    on_invalid: options.InvalidRows = OnInvalid.RAISE,
    nodata: options.Nodata = None,
    unlabelled: options.Unlabelled = None,
    checkpoint: options.CheckpointFile = None,
    checkpoint_every: options.CheckpointEvery = 60.0,
    moments: options.OutputMoments = None,
    moments_in: options.InputMoments = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Fit an estimator in one pass over the rows, and save it."""
    if store is None and moments_in is None:
        raise typer.BadParameter("give STORE to read, or --moments-in", param_hint="STORE")
    check_distinct({"--model": model, "--moments": moments, "--checkpoint": checkpoint})
    recipe = recipe_of(
        kind,
        solver=solver,
        covariance_type=covariance_type,
        shrinkage=shrinkage,
        pooling=pooling,
        reg_param=reg_param,
        var_smoothing=var_smoothing,
        standardize=standardize,
        priors=priors,
        tol=tol,
        ddof=ddof,
        alpha=alpha,
        binarize=binarize,
    )
    for path, saved in ((model, "estimator"), (moments, "moments")):
        if path is not None:
            refuse_replacing(path, saved, overwrite or path == moments_in)  # to be added to
    if checkpoint is not None:  # of an earlier pass, which is resumed
        refuse_other_kind(checkpoint, "checkpoint")

    held = _load_moments(moments_in)
    if store is not None:
        added = _accumulate(
            recipe,
            held,
            *_open_rows(store, x, y, weights, missing, label, features, labels, all_touched),
            max_memory=max_memory,
            on_invalid=on_invalid.value,
            nodata=nodata,
            unlabelled=unlabelled,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
        )
        held = held + added if held else added
    if moments is not None:
        held.save(moments)
        screen.say(f"{held!r}: saved to {moments} ({stored_size(moments)})")
    _save(recipe.estimator_class.from_moments(held, **recipe.params), held, model)


def _save(estimator: Any, moments: Any, model: Path) -> None:
    estimator.save(model)
    rows = screen.number(moments.class_count.sum().item())
    screen.say(
        f"{' '.join(repr(estimator).split())} of {rows} rows in {moments.classes.size:,} classes: "
        f"saved to {model} ({stored_size(model)})"
    )


# --- Rows and moments ---------------------------------------------------------------------------


def _load_moments(path: Path | None) -> Any:
    from streamgda import ClassMoments  # noqa: PLC0415

    return None if path is None else ClassMoments.load(path)


def _open_rows(
    store: str,
    x: str,
    y: str,
    weights: str | None,
    missing: MissingChunks,
    label: str | None,
    features: str | list[str] | None,
    labels: str | None,
    all_touched: bool,
) -> tuple[Any, Any, Any]:
    """Return rows, labels and weights (None without a name)."""
    from streamgda.rows.table_files import is_table  # noqa: PLC0415

    rows = open_rows(store, x, y, missing, label, features, labels, all_touched)
    if weights is None:
        return *rows, None
    names = features
    if is_table(store) and features is None:  # a column of weights is none of the features
        names = [name for name in rows[0].feature_names if name != weights]
        rows = open_rows(store, x, y, missing, label, names, labels)
    return *rows, open_rows(store, x, weights, missing, None, names)[1]


def _accumulate(recipe: Recipe, held: Any, X: Any, y: Any, weight: Any, **reading: Any) -> Any:
    """Return the moments of the rows, of the same kind as `held` if it is not None."""
    import streamgda  # noqa: PLC0415
    from streamgda import engine  # noqa: PLC0415
    from streamgda.rows import as_rows, as_sources  # noqa: PLC0415
    from streamgda.rows.invalid_rows import row_rule  # noqa: PLC0415

    X, reading["nodata"] = as_rows(X, None, reading["nodata"])
    reading["unlabelled"] = labels_like(reading["unlabelled"], y, "--unlabelled")
    estimator = recipe.estimator_class(**recipe.params)
    needs = (
        {"covariance_type": held.covariance_type, "fourth_moments": held.fourth_moments}
        if held
        else recipe.needs
    )
    checkpoint = reading["checkpoint"]
    resumed = checkpoint is not None and checkpoint.exists()
    started = time.perf_counter()
    rule = row_rule(*(reading[name] for name in ("on_invalid", "nodata", "unlabelled")), y=y)
    if "priors" in recipe.params and weight is None and rule.action == "raise" and not resumed:
        _check_priors(estimator, held, as_sources(X, y)[1], rule)
    rows, counted = estimator._summed(X, y, rule=rule)
    reading["nodata"] = counted.nodata
    with screen.notes_on_interrupt():
        moments = streamgda.accumulate(
            rows,
            y,
            sample_weight=weight,
            for_model=True,
            progress=True,
            **needs,
            **reading,
        )
        if not held and (scalings := estimator._scalings()):
            options = {"max_memory": reading["max_memory"], "progress": True, "rule": rule}
            engine.accumulate_again(moments, scalings, X, y, weight, **options)
    seconds = time.perf_counter() - started
    rate = "resumed from the checkpoint" if resumed else screen.rate(X.shape[0], seconds)
    screen.say(f"read {X.shape[0]:,} rows x {X.shape[1]:,} features in {seconds:.2f} s ({rate})")
    if reading["on_invalid"] == OnInvalid.SKIP:
        screen.say(f"left out {moments.n_skipped:,} rows with NaN, infinity, nodata or no label")
    return moments


def _check_priors(estimator: Any, held: Any, labels: Any, rule: Any) -> None:
    """Raise an error if there is not one prior for each class, before the rows are read.

    All labels are read, and every one must count: rows of weight zero or that are left out might be
    all rows of a class.
    """
    from streamgda.engine.plan import distinct_labels  # noqa: PLC0415
    from streamgda.rows.labels import join_labels  # noqa: PLC0415

    classes = distinct_labels(labels, rule)
    estimator._check_priors(join_labels(held.classes, classes) if held else classes)
