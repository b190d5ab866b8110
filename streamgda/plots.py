"""Pictures of estimators and their classes, with matplotlib (``pip install streamgda[plot]``)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError, SingularCovarianceError
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.moments.labels import as_labels, find, join_labels
from streamgda.moments.structure import structure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_VALUES = 25  # classes of which a confusion matrix shows the numbers
_MOST_IN_LEGEND = 20
_MEANS_IN_A_ROW = 5


def plot_confusion_matrix(
    estimator: GaussianClassifier,
    X: Any,
    y: Any,
    ax: Axes | None = None,
    *,
    normalize: str | None = None,
    cmap: Any = "Blues",
) -> Axes:
    """Show which classes are taken for which.

    Parameters
    ----------
    estimator : GaussianClassifier
        Fitted.
    X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
    y : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
        True labels.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    normalize : {"true", "pred", "all"}, optional
        Shares of the rows of a class, of those predicted to be in it, or of all, instead of
        numbers of rows.
    cmap : str or matplotlib.colors.Colormap

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import LinearDiscriminantAnalysis
    >>> from streamgda.plots import plot_confusion_matrix
    >>> X, y = load_iris(return_X_y=True)
    >>> lda = LinearDiscriminantAnalysis().fit(X, y)
    >>> ax = plot_confusion_matrix(lda, X, y, Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['50', '0', '0', '0', '48', '2', '0', '1', '49']
    """
    ax = _axes(ax)
    from sklearn.metrics import ConfusionMatrixDisplay  # noqa: PLC0415

    true = as_labels(np.asarray(y))
    predicted = np.asarray(estimator.predict(X))
    labels = join_labels(estimator.classes_, np.unique(true))
    few = labels.size <= _MOST_VALUES
    display = ConfusionMatrixDisplay.from_predictions(
        true,
        predicted,
        labels=labels,
        normalize=normalize,
        include_values=few,
        values_format=".2f" if normalize else "d",
        xticks_rotation="vertical" if max(map(len, map(str, labels))) > 3 else "horizontal",
        cmap=cmap,
        ax=ax,
        colorbar=not few,
    )
    if not few:
        ticks = np.linspace(0, labels.size - 1, _MOST_VALUES // 2).astype(int)
        display.ax_.set_xticks(ticks, labels[ticks])
        display.ax_.set_yticks(ticks, labels[ticks])
    return display.ax_


def plot_decision_boundary(
    estimator: GaussianClassifier,
    X: Any = None,
    y: Any = None,
    ax: Axes | None = None,
    *,
    features: Sequence[int] = (0, 1),
    at: Any = None,
    deviations: Sequence[float] = (1, 2),
    resolution: int = 300,
) -> Axes:
    """Show how an estimator divides a plane: posteriors, boundaries, and the classes' spread.

    Colours are mixed as the posterior mixes the classes, lines are where the predicted class
    changes, and ellipses lie at `deviations` standard deviations about the class means.

    Parameters
    ----------
    estimator : GaussianClassifier
        Fitted.
    X : array-like, shape (n_rows, n_features), optional
        Rows to show as points.
    y : array-like, shape (n_rows,), optional
        Their labels, which colour them.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    features : (int, int)
        Features along the horizontal and the vertical axis.
    at : array-like, shape (n_features,), optional
        Values of the other features, which are the same in all of the plane; by default the mean
        of all rows the estimator has seen. Ellipses are marginal: they do not depend on it.
    deviations : sequence of float
        Of the ellipses.
    resolution : int
        Points along each axis at which posteriors are evaluated.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidParameterError
        For features that the estimator does not have, or an `at` of another width.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import QuadraticDiscriminantAnalysis
    >>> from streamgda.plots import plot_decision_boundary
    >>> X, y = load_iris(return_X_y=True)
    >>> qda = QuadraticDiscriminantAnalysis().fit(X[:, 2:], y)
    >>> ax = plot_decision_boundary(qda, X[:, 2:], y, Figure().subplots())
    >>> len(ax.patches)  # ellipses
    6
    """
    across, up = _two_features(features, estimator.n_features_in_)
    fixed = _fixed_values(at, estimator)
    points = None if X is None else np.asarray(X)[:, [across, up]].astype(np.float64)
    ax = _axes(ax)

    moments = estimator.moments_
    seen = moments.class_count > 0
    labels = moments.classes[seen]
    means = moments.means[seen][:, [across, up]]
    covariances = _plane_covariances(estimator, [across, up])[seen]
    colours = _colours(labels.size)

    x_limits, y_limits = _limits(means, covariances, points)
    horizontal = np.linspace(*x_limits, resolution)
    vertical = np.linspace(*y_limits, resolution)
    log_posterior = np.stack(
        [_log_posterior(estimator, fixed, {across: horizontal, up: v})[:, seen] for v in vertical]
    )

    _shade(ax, np.exp(log_posterior), colours, (*x_limits, *y_limits))
    _draw_boundaries(ax, horizontal, vertical, log_posterior)
    _draw_ellipses(ax, means, covariances, colours, deviations)
    if points is not None:
        _draw_points(ax, points, y, labels, colours)
    for label, mean, colour in zip(labels, means, colours, strict=True):
        ax.plot(*mean, "X", color=colour, markeredgecolor="black", markersize=9, label=str(label))
    if labels.size <= _MOST_IN_LEGEND:
        ax.legend(title="class", loc="best")
    ax.set(
        xlim=x_limits,
        ylim=y_limits,
        xlabel=_feature_name(estimator, across),
        ylabel=_feature_name(estimator, up),
    )
    return ax


def plot_means(
    estimator: GaussianClassifier, shape: Sequence[int], axes: Any = None, *, cmap: Any = "gray_r"
) -> np.ndarray:
    """Show the mean of each class as an image.

    Parameters
    ----------
    estimator : GaussianClassifier
        Fitted to images, one flattened into each row.
    shape : (int, int) or (int, int, 3)
        Of an image.
    axes : array of matplotlib.axes.Axes, optional
        As many as there are classes with rows, or more; a new figure by default.
    cmap : str or matplotlib.colors.Colormap

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (n_classes,)

    Raises
    ------
    InvalidParameterError
        Where the shape is not that of a row, or there are too few axes.

    Examples
    --------
    >>> from streamgda import GaussianNB
    >>> from streamgda.datasets import load_digits
    >>> from streamgda.plots import plot_means
    >>> X, y = load_digits()
    >>> X = X.reshape(-1, 8, 8)[:, :, 1:7].reshape(-1, 48)  # without the empty rims
    >>> axes = plot_means(GaussianNB().fit(X, y), (8, 6))
    >>> [ax.get_title() for ax in axes]
    ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']
    """
    _check_image_shape(shape, estimator)
    seen = estimator.class_count_ > 0
    labels, means = estimator.classes_[seen], estimator.moments_.means[seen]
    columns = min(labels.size, _MEANS_IN_A_ROW)
    axes = _grid(axes, math.ceil(labels.size / columns), columns, labels.size).ravel()
    for ax in axes[labels.size :]:
        ax.set_axis_off()
    for ax, label, mean in zip(axes, labels, means, strict=False):
        _show_image(ax, mean, shape, means.min(), means.max(), cmap)
        ax.set_title(str(label))
    return axes[: labels.size]


def plot_samples(
    estimator: GaussianClassifier,
    shape: Sequence[int],
    n: int = 5,
    random_state: Any = None,
    axes: Any = None,
    *,
    cmap: Any = "gray_r",
) -> np.ndarray:
    """Show images that the model of each class generates.

    Parameters
    ----------
    estimator : GaussianClassifier
        Fitted to images, one flattened into each row.
    shape : (int, int) or (int, int, 3)
        Of an image.
    n : int
        Images of each class.
    random_state : int, RandomState instance or None
    axes : array of matplotlib.axes.Axes, optional
        As many as there are images, or more; a new figure by default.
    cmap : str or matplotlib.colors.Colormap

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (n_classes, n)

    Raises
    ------
    InvalidParameterError
        Where the shape is not that of a row, `n` is below one, or there are too few axes.

    Examples
    --------
    >>> from streamgda import GaussianDiscriminantAnalysis
    >>> from streamgda.datasets import load_digits
    >>> from streamgda.plots import plot_samples
    >>> X, y = load_digits()
    >>> X = X.reshape(-1, 8, 8)[:, :, 1:7].reshape(-1, 48)  # without the empty rims
    >>> gda = GaussianDiscriminantAnalysis(var_smoothing=0.03).fit(X, y)
    >>> plot_samples(gda, (8, 6), n=3, random_state=0).shape
    (10, 3)
    """
    _check_image_shape(shape, estimator)
    if n < 1:
        raise InvalidParameterError(f"n={n}; expected at least 1")
    seen = estimator.class_count_ > 0
    labels, means = estimator.classes_[seen], estimator.moments_.means[seen]
    drawn, _ = estimator.sample(labels.size * n, random_state, y=np.repeat(labels, n))
    # Gaussians have tails that images do not: below the background, and far above what is drawn.
    low, high = means.min(), max(means.max(), float(np.percentile(drawn, 99)))
    grid = _grid(axes, labels.size, n, drawn.shape[0], height=1.2).ravel()
    for ax in grid[drawn.shape[0] :]:
        ax.set_axis_off()
    axes = grid[: drawn.shape[0]].reshape(labels.size, n)
    for ax, image in zip(axes.ravel(), drawn, strict=True):
        _show_image(ax, image, shape, low, high, cmap)
    for ax, label in zip(axes[:, 0], labels, strict=True):
        ax.set_ylabel(str(label), rotation="horizontal", ha="right", va="center")
    return axes


def plot_spectra(
    estimator: GaussianClassifier, ax: Axes | None = None, *, n: int | None = None
) -> Axes:
    """Show the variances along the principal axes of each class's covariance, or of the common one.

    Parameters
    ----------
    estimator : GaussianClassifier
        Fitted; covariances are as it regularises them.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    n : int, optional
        How many axes, those of the largest variances; all by default.

    Returns
    -------
    matplotlib.axes.Axes
        A line for each covariance, with a logarithmic scale; variances of zero are not on it.

    Raises
    ------
    InvalidParameterError
        Where `n` is below one.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import QuadraticDiscriminantAnalysis
    >>> from streamgda.plots import plot_spectra
    >>> qda = QuadraticDiscriminantAnalysis().fit(*load_iris(return_X_y=True))
    >>> ax = plot_spectra(qda, Figure().subplots())
    >>> ax.lines[0].get_ydata().round(3)  # of the first class
    array([0.232, 0.036, 0.026, 0.009])
    """
    if n is not None and n < 1:
        raise InvalidParameterError(f"n={n}; expected at least 1")
    ax = _axes(ax)
    structure = structure_of(estimator.moments_.covariance_type)
    seen = estimator.class_count_ > 0
    values = _covariance_values(estimator)
    values = values[seen] if structure.per_class else values
    labels = [str(k) for k in estimator.classes_[seen]] if structure.per_class else ["all"]
    for covariance, label, colour in zip(values, labels, _colours(len(labels)), strict=True):
        if structure.matrix:
            variances = np.linalg.eigvalsh(covariance)
        else:
            variances = np.sort(np.broadcast_to(covariance, estimator.n_features_in_))
        variances = variances[::-1][:n]
        # What is no more than rounding is no variance.
        shown = np.where(variances > variances[0] * 1e-15, variances, np.nan)
        marker = "." if variances.size <= 50 else ""
        ax.plot(np.arange(1, shown.size + 1), shown, marker=marker, color=colour, label=label)
    ax.set(yscale="log", xlabel="principal axis", ylabel="variance")
    if len(labels) <= _MOST_IN_LEGEND:
        ax.legend(title="class", loc="best")
    return ax


def plot_learning_curve(
    estimator: GaussianClassifier,
    batches: Iterable[tuple[Any, Any]],
    X: Any,
    y: Any,
    ax: Axes | None = None,
    *,
    n: int = 20,
    label: str | None = None,
) -> Axes:
    """Show how the accuracy on held-out rows grows while an estimator learns from a stream.

    The rows are read once: after some of the batches the model is made of the moments so far.

    Parameters
    ----------
    estimator : GaussianClassifier
        It learns on with `partial_fit`, from where it is.
    batches : iterable of (X, y)
    X, y
        Held-out rows and their labels.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default. Further curves go on the same axes.
    n : int
        About so many points for each tenfold number of rows.
    label : str, optional
        What the legend calls the curve; the estimator's name by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidDataError
        Where no model could be made of the batches.
    InvalidParameterError
        Where `n` is below one.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import GaussianNB
    >>> from streamgda.plots import plot_learning_curve
    >>> X, y = load_iris(return_X_y=True)
    >>> stream = ((X[i::10], y[i::10]) for i in range(1, 10))
    >>> ax = plot_learning_curve(GaussianNB(), stream, X[::10], y[::10], Figure().subplots())
    >>> ax.lines[0].get_xdata()
    array([ 15.,  30.,  45.,  60.,  75.,  90., 105., 120., 135.])
    """
    if n < 1:
        raise InvalidParameterError(f"n={n}; expected at least 1")
    ax = _axes(ax)
    rows, accuracy, due = [], [], 0.0
    reason = "there were no batches"
    for batch in batches:
        estimator.partial_fit(*batch)
        seen = float(estimator.class_count_.sum())
        if seen < due:
            continue
        try:
            accuracy.append(estimator.score(X, y))
        except (SingularCovarianceError, InvalidDataError) as error:  # too few rows so far
            reason = str(error)
            continue
        rows.append(seen)
        due = seen * 10 ** (1 / n)
    if not rows:
        raise InvalidDataError(f"no model could be made of the batches: {reason}")
    if seen > rows[-1]:
        rows.append(seen)
        accuracy.append(estimator.score(X, y))
    ax.plot(rows, accuracy, marker=".", label=label or type(estimator).__name__)
    ax.set(xscale="log", xlabel="rows seen", ylabel="accuracy on held-out rows")
    ax.legend(loc="lower right")
    ax.grid(alpha=0.3)
    return ax


# --- figures and axes -----------------------------------------------------------------------------


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib, which is not installed: pip install streamgda[plot]"
        ) from error
    return plt


def _axes(ax: Axes | None) -> Axes:
    plt = _pyplot()
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def _grid(axes: Any, rows: int, columns: int, needed: int, height: float = 1.5) -> np.ndarray:
    plt = _pyplot()
    if axes is None:
        size = (1.2 * columns, height * rows)
        return np.asarray(
            plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)[1]
        )
    axes = np.asarray(axes, object).ravel()
    if axes.size < needed:
        raise InvalidParameterError(f"{axes.size} axes were given, {needed} are needed")
    return axes


def _show_image(
    ax: Axes, row: np.ndarray, shape: Sequence[int], low: float, high: float, cmap: Any
) -> None:
    image = row.reshape(shape)
    if len(shape) == 3:  # colours are not scaled by matplotlib
        image = np.clip((image - low) / ((high - low) or 1.0), 0, 1)
    ax.imshow(image, cmap=cmap, vmin=low, vmax=high)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def _colours(n: int) -> np.ndarray:
    """Colours that can be told apart, RGB, shape (n, 3)."""
    import matplotlib as mpl  # noqa: PLC0415

    if n <= 20:
        return mpl.colormaps["tab10" if n <= 10 else "tab20"](np.arange(n))[:, :3]
    return mpl.colormaps["hsv"](np.arange(n) / n)[:, :3]


# --- the plane ------------------------------------------------------------------------------------


def _shade(ax: Axes, posterior: np.ndarray, colours: np.ndarray, extent: Any) -> None:
    pale = 1 - 0.5 * (1 - colours)
    ax.imshow(
        np.clip(posterior @ pale, 0, 1),
        extent=extent,
        origin="lower",
        aspect="auto",
        interpolation="bilinear",
    )


def _draw_boundaries(
    ax: Axes, horizontal: np.ndarray, vertical: np.ndarray, log_posterior: np.ndarray
) -> None:
    """A contour about each class's region but the last one's, which the others enclose."""
    n = log_posterior.shape[-1]
    for k in range(n - 1):
        others = np.delete(log_posterior, k, axis=-1).max(axis=-1)
        # Bounded, for a class of prior zero is infinitely far from the others.
        lead = np.clip(log_posterior[..., k], -1e6, 0) - np.clip(others, -1e6, 0)
        if lead.min() < 0 < lead.max():
            ax.contour(horizontal, vertical, lead, levels=[0], colors="black", linewidths=1.2)


def _draw_ellipses(
    ax: Axes,
    means: np.ndarray,
    covariances: np.ndarray,
    colours: np.ndarray,
    deviations: Sequence[float],
) -> None:
    from matplotlib.patches import Ellipse  # noqa: PLC0415

    for mean, covariance, colour in zip(means, covariances, colours, strict=True):
        variances, axes = np.linalg.eigh(covariance)
        angle = math.degrees(math.atan2(axes[1, 1], axes[0, 1]))
        minor, major = 2 * np.sqrt(np.maximum(variances, 0))
        for deviation in deviations:
            ax.add_patch(
                Ellipse(
                    mean,
                    deviation * major,
                    deviation * minor,
                    angle=angle,
                    fill=False,
                    edgecolor=0.7 * colour,
                    linewidth=1.5,
                )
            )


def _draw_points(
    ax: Axes, points: np.ndarray, y: Any, labels: np.ndarray, colours: np.ndarray
) -> None:
    style: dict[str, Any] = {"s": 14, "linewidths": 0.4, "edgecolors": "black", "alpha": 0.8}
    if y is None:
        ax.scatter(points[:, 0], points[:, 1], color="grey", **style)
        return
    # White for labels that the estimator does not know. All in one go, so that no class lies on
    # top of all others.
    codes = find(as_labels(np.asarray(y)), labels)
    ax.scatter(points[:, 0], points[:, 1], c=np.vstack([colours, [1, 1, 1]])[codes], **style)


def _limits(
    means: np.ndarray, covariances: np.ndarray, points: np.ndarray | None
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Horizontal and vertical range: all points, and three standard deviations of each class."""
    reach = 3 * np.sqrt(covariances.diagonal(axis1=1, axis2=2))
    low, high = (means - reach).min(axis=0), (means + reach).max(axis=0)
    if points is not None and points.size:
        margin = 0.03 * (high - low)
        low = np.minimum(low, points.min(axis=0) - margin)
        high = np.maximum(high, points.max(axis=0) + margin)
    flat = high == low  # a feature that is constant
    low, high = low - flat, high + flat
    return (float(low[0]), float(high[0])), (float(low[1]), float(high[1]))


def _plane_covariances(estimator: Any, plane: list[int]) -> np.ndarray:
    """Covariance of two features in each class, shape (n_classes, 2, 2), of any covariance type."""
    structure = structure_of(estimator.moments_.covariance_type)
    values = _covariance_values(estimator)
    if structure.matrix:
        values = values[:, plane][:, :, plane]
    elif structure.isotropic:
        values = values[:, None, None] * np.eye(2)
    else:
        values = values[:, plane, None] * np.eye(2)
    return np.broadcast_to(values, (estimator.classes_.size, 2, 2))


def _covariance_values(estimator: Any) -> np.ndarray:
    """Regularised covariances, or variances: one for each class, or a single one."""
    values = getattr(estimator, "covariance_", None)
    values = np.asarray(estimator.var_ if values is None else values)
    return values if structure_of(estimator.moments_.covariance_type).per_class else values[None]


def _log_posterior(
    estimator: GaussianClassifier, fixed: np.ndarray, varied: dict[int, Any]
) -> np.ndarray:
    """Of one line of the plane, for there may be many features."""
    rows = np.tile(fixed, (max(map(np.size, varied.values())), 1))
    for feature, values in varied.items():
        rows[:, feature] = values
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return estimator.predict_log_proba(rows)


def _feature_name(estimator: GaussianClassifier, number: int) -> str:
    names = getattr(estimator, "feature_names_in_", None)
    return f"feature {number}" if names is None else str(names[number])


# --- checks ---------------------------------------------------------------------------------------


def _two_features(features: Sequence[int], n_features: int) -> tuple[int, int]:
    plane = tuple(int(feature) for feature in features)
    known = len(plane) == 2 and len(set(plane)) == 2 and all(0 <= f < n_features for f in plane)
    if not known:
        raise InvalidParameterError(
            f"features={features!r}; expected two different ones of 0 to {n_features - 1}"
        )
    return plane[0], plane[1]


def _fixed_values(at: Any, estimator: GaussianClassifier) -> np.ndarray:
    if at is None:
        seen = estimator.class_count_ > 0
        weights = estimator.class_count_[seen]
        return np.average(estimator.moments_.means[seen], axis=0, weights=weights)
    values = np.asarray(at, np.float64)
    if values.shape != (estimator.n_features_in_,):
        raise InvalidParameterError(
            f"at has shape {values.shape}, expected ({estimator.n_features_in_},)"
        )
    return values


def _check_image_shape(shape: Sequence[int], estimator: GaussianClassifier) -> None:
    if len(shape) not in (2, 3) or math.prod(shape) != estimator.n_features_in_:
        raise InvalidParameterError(
            f"shape={tuple(shape)} does not make an image of {estimator.n_features_in_} features"
        )
