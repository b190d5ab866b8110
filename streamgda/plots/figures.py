"""Gaussians of the classes projected on directions, and colours of pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from streamgda.errors import InvalidParameterError, UnsupportedError
from streamgda.estimators.classifier import GaussianClassifier
from streamgda.runtime.parameters import as_integer, as_numbers, check_type, require, unexpected

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RANK = 1e-12  # Variances below this share of the largest one are rounding errors.
_TIE = 1e-9  # The variance within classes decides, with this weight, where classes coincide.


@dataclass(frozen=True)
class Projection:
    """Gaussians of the classes that have rows, projected on one or two directions.

    Attributes
    ----------
    directions : ndarray, shape (n, n_features)
        Rows are projected by inner products with them.
    names : list of str
        Labels of the axes.
    labels, priors : ndarray, shape (n_classes,)
        Labels and prior probabilities of the classes.
    means : ndarray, shape (n_classes, n)
        Projected means.
    covariances : ndarray, shape (n_classes, n, n)
        Projected covariances.
    """

    directions: np.ndarray
    names: list[str]
    labels: np.ndarray
    priors: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    def log_joint(self, points: Any) -> np.ndarray:
        r"""Return :math:`\ln p(z, k)` of points of shape (n_points, n), for each class a column."""
        roots = np.linalg.cholesky(self.covariances)
        offsets = (np.asarray(points) - self.means[:, None]).transpose(0, 2, 1)
        distances = (np.linalg.solve(roots, offsets) ** 2).sum(axis=1)
        log_dets = 2 * np.log(np.einsum("kii->ki", roots)).sum(axis=1)
        with np.errstate(divide="ignore"):  # Priors may be zero.
            constants = (
                np.log(self.priors) - (log_dets + self.means.shape[1] * np.log(2 * np.pi)) / 2
            )
        return np.asarray((constants[:, None] - distances / 2).T)


def project(estimator: Any, n: int, features: Any, directions: Any) -> Projection:
    """Return the Gaussians of an estimator along `n` features or directions.

    Raises
    ------
    InvalidParameterError
        If both are given, there are not `n` of them, they are unknown or linearly dependent, or a
        class does not vary along them.
    """
    check_type("estimator", estimator, GaussianClassifier, "a Gaussian estimator of this package")
    check_is_fitted(estimator)
    if getattr(estimator, "feature_map", None) is not None:
        raise UnsupportedError(
            "Gaussians behind a feature map are not drawn; scikit-learn's DecisionBoundaryDisplay "
            "draws what an estimator predicts"
        )
    if features is not None and directions is not None:
        raise InvalidParameterError("features and directions were given; expected one of them")
    labels, priors, means, covariances = _gaussians(estimator)
    width = means.shape[1]
    if directions is not None:
        D, names = _given(directions, n, width)
    elif features is None and width > n == 2:
        D, names = _separating_plane(priors, means, covariances)
    else:
        D, names = _unit_vectors(estimator, range(n) if features is None else features, n, width)
    projected = (D * covariances[:, None]) @ D.T if covariances.ndim == 2 else D @ covariances @ D.T
    scales = np.sqrt(np.einsum("kii->ki", projected))
    if scales.all():
        scaled = projected / (scales[:, :, None] * scales[:, None])
    if not scales.all() or np.linalg.eigvalsh(scaled).min() < _RANK:
        raise InvalidParameterError(
            f"a class does not vary along {' and '.join(names)}; choose other directions"
        )
    covariances = np.broadcast_to(projected, (len(labels), n, n))
    return Projection(D, names, labels, priors, means @ D.T, covariances)


def _gaussians(estimator: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return labels, priors, means and covariances of the classes that have rows.

    Covariances are one for all or one a class: matrices, or variances, shape (..., n_features).
    """
    means = estimator.moments_.means
    seen = ~np.isnan(means[:, 0])
    values = estimator._all_covariances().values
    if len(values) == seen.size:
        values = values[seen]
    return estimator.classes_[seen], estimator.model_.priors[seen], means[seen], values


def _given(directions: Any, n: int, width: int) -> tuple[np.ndarray, list[str]]:
    expected = f"{n} of {width} finite numbers, linearly independent"
    D = as_numbers("directions", directions, expected, finite=True)
    if D.shape == (n, width):
        lengths = np.linalg.norm(D, axis=1, keepdims=True)
    if D.shape != (n, width) or not lengths.all() or np.linalg.matrix_rank(D / lengths) < n:
        raise InvalidParameterError(f"directions of shape {D.shape}; expected {expected}")
    return D, ["direction"] if n == 1 else ["direction 1", "direction 2"]


def _unit_vectors(
    estimator: Any, features: Any, n: int, width: int
) -> tuple[np.ndarray, list[str]]:
    held = [*getattr(estimator, "feature_names_in_", [f"feature {j}" for j in range(width)])]
    expected = f"{n} different names of features, or indices from 0 to {width - 1}"
    chosen = [
        held.index(feature)
        if feature in held
        else as_integer("features", feature, expected, 0, width - 1)
        for feature in np.ravel(np.asarray(features, object))
    ]
    if len(set(chosen)) != n or len(chosen) != n:
        raise unexpected("features", features, expected)
    return np.eye(width)[chosen], [held[j] for j in chosen]


def _separating_plane(
    priors: np.ndarray, means: np.ndarray, covariances: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    r"""Return the two directions that separate the classes best, and their names.

    They are Fisher's: the largest :math:`w^T B w / w^T W w`, with the mean W of the covariances,
    and uncorrelated within classes. Beside the one direction of two classes is the axis of most
    variance within them.
    """
    within = np.average(covariances, axis=0, weights=priors if len(covariances) > 1 else None)
    within = np.diag(within) if within.ndim == 1 else within
    scales = np.sqrt(within.diagonal())
    scales = np.where(scales > 0, scales, np.inf)  # Features may have very different units.
    variances, axes = np.linalg.eigh(within / np.outer(scales, scales))
    kept = variances > _RANK * variances[-1]
    if kept.sum() < 2:
        raise InvalidParameterError(
            "fewer than two directions vary; expected features or directions"
        )
    root = axes[:, kept] / np.sqrt(variances[kept]) / scales[:, None]
    white = np.sqrt(priors)[:, None] * ((means - priors @ means) @ root)
    between = white.T @ white
    total = between.trace() or 1.0
    tie = np.diag(variances[kept]) / variances[kept].sum()
    strengths, axes = np.linalg.eigh(between + _TIE * total * tie)
    D = (root @ axes[:, :-3:-1]).T
    names = [
        f"Fisher's direction {i}"
        if strength > 2 * _TIE * total
        else "principal axis within classes"
        for i, strength in enumerate(strengths[:-3:-1], start=1)
    ]
    largest = np.abs(D * np.where(np.isinf(scales), 0, scales)).argmax(axis=1)
    return D * np.sign(D[[0, 1], largest])[:, None], names  # Signs agree on all machines.


# --- points, axes and colours -------------------------------------------------------------------


def points(
    estimator: Any, projection: Projection, X: Any, y: Any
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return projected rows, and codes of their labels: -1 for unknown ones."""
    rows = validate_data(estimator, X, reset=False)
    codes = None
    if y is not None:
        y = np.asarray(y)
        if y.shape != (len(rows),):
            raise InvalidParameterError(
                f"y has the shape {y.shape} for {len(rows)} rows of X; expected ({len(rows)},)"
            )
        same = y[:, None] == projection.labels
        codes = np.where(same.any(axis=1), same.argmax(axis=1), -1)
    return rows @ projection.directions.T, codes


def axes_of(ax: Axes | None) -> Axes:
    """Return the given axes, or those of a new figure."""
    plt = require("matplotlib.pyplot", "plot", "plots")
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def colours_of(colors: Any, n: int) -> np.ndarray:
    """Return the colours of `n` classes, RGB, shape (n, 3).

    The first ten are those of Petroff (arXiv:2107.02270), which suit colour-blind readers too.
    """
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.colors import to_rgba_array  # noqa: PLC0415

    if colors is None and n <= 10:
        colors = mpl.color_sequences["petroff10"][:n]
    elif colors is None:
        colors = mpl.colormaps["gist_rainbow"](np.linspace(0, 1, n))
    palette = to_rgba_array(colors)[:, :3]
    if len(palette) != n:
        raise unexpected("colors", colors, f"a colour of matplotlib for each of the {n} classes")
    return palette


def paper_and_ink(ax: Axes) -> tuple[np.ndarray, np.ndarray]:
    """Return the colours of the background and of text."""
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.colors import to_rgb  # noqa: PLC0415

    return np.array(to_rgb(ax.get_facecolor())), np.array(to_rgb(mpl.rcParams["text.color"]))


def mixed(colour: Any, other: Any, share: float) -> np.ndarray:
    """Return a colour with a share of another one."""
    return (1 - share) * np.asarray(colour) + share * np.asarray(other)


def add_legend(ax: Axes, n: int) -> None:
    """Name up to 40 classes in a legend: beside the axes if they are more than ten."""
    beside: Any = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "ncols": -(-n // 20)}
    if n <= 40:
        ax.legend(title="class", fontsize="small", **beside if n > 10 else {})
