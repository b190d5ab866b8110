"""Arguments and options of the commands.

The modules of the command line import NumPy, scikit-learn, zarr and rich inside functions, so that
`--help` does not wait for them.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

# --- Shared by several commands ------------------------------------------------------------------


class MissingChunks(StrEnum):
    """Meaning of a chunk that the store does not contain."""

    FILL = "fill"
    ERROR = "error"


Store = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="Rows and labels: zarr (a directory, .zip or URL); or a table, or a folder of tables: "
        ".parquet, .arrow, .csv; or a GeoTIFF.",
    ),
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="Saved estimator.")]
XName = Annotated[str, typer.Option("--x", metavar="NAME", help="Name of the array of rows.")]
YName = Annotated[str, typer.Option("--y", metavar="NAME", help="Name of the array of labels.")]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="PATH",
        help="Labels that are not in STORE: GeoTIFF or zarr, or polygons (.gpkg, .geojson, .shp, "
        ".fgb) with labels of the pixels of a GeoTIFF.",
    ),
]
LabelName = Annotated[
    str | None,
    typer.Option(
        "--label-column",
        "--label",
        metavar="NAME",
        help="Tables: column of labels; --y by default. Polygons: their only column by default.",
    ),
]
AllTouched = Annotated[
    bool,
    typer.Option(
        "--all-touched",
        help="Polygons: label pixels that only polygons of one class touch, too, and not only "
        "those whose centre is in one.",
    ),
]
FeatureNames = Annotated[
    str | None,
    typer.Option(
        "--features",
        metavar="NAME,...",
        help="Tables: columns of features; those of MODEL, or all but the labels, by default. Zarr "
        "cubes: dimension of the features.",
    ),
]
Keys = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...", help="Tables: columns of STORE that are copied beside the predictions."
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES",
        help="Memory budget for rows and sums, such as 512MB; an error if it is too small.",
    ),
]
Missing = Annotated[
    MissingChunks,
    typer.Option("--missing", help="Read missing chunks as the fill value, or raise an error."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
OutputModel = Annotated[Path, typer.Option(metavar="PATH", help="File for the estimator.")]

# --- convert -------------------------------------------------------------------------------------


class Format(StrEnum):
    """Formats of files with any name."""

    CSV = "csv"


SourceToConvert = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="IDX, .npy or .npz file, table (.csv, .tsv, .txt, .data, .parquet, .arrow, a folder "
        "of them; IDX and text also as .gz), or zarr.",
    ),
]
StoreToWrite = Annotated[
    str, typer.Argument(metavar="STORE", help="zarr group to write: a directory or .zip.")
]
LabelsFile = Annotated[
    str | None, typer.Option(metavar="PATH", help="File of labels, if they are not in SOURCE.")
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Tables: name or index (from 0) of the column of labels; the last by default.",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME,...",
        help="Tables: names or indices of the columns of features; 2:5 stands for 2, 3 and 4.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME,...", help="Tables: columns to leave out, given in the same way."),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Text: whether the first line has the names of the columns; inferred by default.",
        show_default=False,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(metavar="CHARACTER", help="Text: separator of the fields; inferred by default."),
]
Encoding = Annotated[
    str | None, typer.Option(metavar="NAME", help="Text: encoding; utf-8 by default.")
]
Decimal = Annotated[
    str | None,
    typer.Option(metavar="CHARACTER", help="Text: mark before the fraction of a number."),
]
Comment = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Text: start of lines that are left out.")
]
NoLabels = Annotated[
    bool, typer.Option("--no-labels", help="Read no labels: all columns of a text are features.")
]
MissingMarkers = Annotated[
    list[str] | None,
    typer.Option(
        "--na",
        metavar="TEXT",
        help="Text: one more marker of missing values, such as ? or -9999; may be repeated.",
    ),
]
DefaultMarkers = Annotated[
    bool,
    typer.Option(
        "--default-na/--no-default-na",
        help="Text: take empty fields, NA, N/A, nan, null and others as missing.",
    ),
]


class MissingLabels(StrEnum):
    """Treatment of rows without a label in a table of text."""

    RAISE = "raise"
    KEEP = "keep"


RowsWithoutLabel = Annotated[
    MissingLabels,
    typer.Option("--missing-labels", help="Tables: raise an error for missing labels, or keep."),
]
FileFormat = Annotated[Format | None, typer.Option(help="csv for text under any other name.")]
Dtype = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="Type of the features, such as uint8 or float32; that of SOURCE by default, and "
        "float64 for text.",
    ),
]
ChunkRows = Annotated[
    int | None, typer.Option(min=1, help="Rows per chunk; about 4 MiB of rows by default.")
]

# --- fit: the estimator and its parameters -------------------------------------------------------


class Solver(StrEnum):
    """Solvers of LDA and QDA."""

    SVD = "svd"
    LSQR = "lsqr"
    EIGEN = "eigen"


class Kind(StrEnum):
    """Short names of the estimators."""

    QDA = "qda"
    LDA = "lda"
    NB = "nb"
    GDA = "gda"
    BERNOULLI = "bernoulli"


EstimatorKind = Annotated[Kind, typer.Option(help="Estimator to fit.")]
SolverName = Annotated[
    Solver | None,
    typer.Option(
        "--solver", help="qda, lda: solver, as in scikit-learn; eigen if shrinkage is given."
    ),
]
COVARIANCE_TYPES = ["full", "tied", "diag", "tied_diag", "spherical", "tied_spherical"]

CovarianceType = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="gda: full, tied, diag, tied_diag, spherical or tied_spherical.",
        autocompletion=lambda: COVARIANCE_TYPES,
    ),
]
Shrinkage = Annotated[
    str | None,
    typer.Option(
        metavar="AMOUNT",
        help="qda, lda, gda: shrinkage towards a sphere, 0 to 1, or ledoit_wolf or oas; or auto "
        "(Ledoit and Wolf of standardised features), which reads the rows twice.",
        autocompletion=lambda: ["auto", "ledoit_wolf", "oas"],
    ),
]
Pooling = Annotated[
    float | None, typer.Option(help="gda: weight of the pooled covariance, 0 to 1.")
]
RegParam = Annotated[
    float | None, typer.Option(help="qda, gda: weight of the identity matrix, 0 to 1.")
]
Standardize = Annotated[
    bool, typer.Option("--standardize", help="gda: regularise scaled features.")
]
VarSmoothing = Annotated[
    float | None,
    typer.Option(help="nb, gda: fraction of the largest variance that is added to all variances."),
]
Priors = Annotated[
    str | None,
    typer.Option(
        metavar="P,P,...",
        help="Prior probabilities of the sorted classes; class frequencies by default.",
    ),
]
Tol = Annotated[float | None, typer.Option(help="qda, lda, gda: threshold for singularity.")]
Ddof = Annotated[
    int | None, typer.Option(help="gda: number subtracted from each class count in a covariance.")
]
Alpha = Annotated[float | None, typer.Option(help="bernoulli: additive smoothing; 1 by default.")]
Binarize = Annotated[
    float | None, typer.Option(help="bernoulli: values above this are ones; 0 by default.")
]

# --- fit: rows, checkpoints and moments ----------------------------------------------------------


class OnInvalid(StrEnum):
    """Treatment of invalid rows that are learnt."""

    RAISE = "raise"
    SKIP = "skip"


class OnInvalidScored(StrEnum):
    """Treatment of invalid rows that are scored."""

    RAISE = "raise"
    FILL = "fill"


StoreToFit = Annotated[
    str | None,
    typer.Argument(
        metavar="STORE",
        help="Rows and labels: zarr, or a table (.parquet, .arrow, .csv, or a folder of them), or "
        "a GeoTIFF.",
        show_default=False,
    ),
]
Weights = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of the array of sample weights.")
]
InvalidRows = Annotated[
    OnInvalid,
    typer.Option(
        help="Raise an error for rows with NaN, infinity, --nodata or a missing label, or skip."
    ),
]
InvalidScored = Annotated[
    OnInvalidScored,
    typer.Option(
        "--on-invalid",
        help="Raise an error for rows with NaN, infinity or --nodata, or write --fill for them.",
    ),
]
Fill = Annotated[
    str | None,
    typer.Option(
        metavar="VALUE",
        help="Written for invalid rows: a label that is no class, by default -1 or an empty text; "
        "or a number, by default NaN.",
    ),
]
Unlabelled = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LABEL",
        help="Label of rows that do not count, whatever they hold. Give it several times for more.",
    ),
]
Nodata = Annotated[float | None, typer.Option(help="Value that marks a missing measurement.")]
CheckpointFile = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Save partial moments to this file; run the same command again to resume.",
    ),
]
CheckpointEvery = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="Time between two checkpoints.")
]
OutputMoments = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Also save the moments, from which other models can be fitted without reading rows.",
    ),
]
InputMoments = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Start from saved moments; add the rows of STORE to them if it is given.",
    ),
]
