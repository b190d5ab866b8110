"""Class means and samples as images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamgda.errors import InvalidParameterError
from streamgda.estimators.moment_classifier import MomentClassifier
from streamgda.models.discriminants import LinearDiscriminants
from streamgda.plots.figures import grid_of, means_of
from streamgda.runtime.parameters import as_integer, check_type

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MEANS_IN_A_ROW = 5


def plot_means(
    estimator: MomentClassifier,
    shape: Sequence[int],
    axes: Any = None,
    *,
    weights: bool = False,
    **kwargs: Any,
) -> np.ndarray:
    r"""Plot the mean of each class, or its weights, as an image.

    Parameters
    ----------
    estimator : estimator of this package
        Estimator fitted to images, one per row.
    shape : (int, int) or (int, int, 3)
        Shape of an image.
    axes : array of matplotlib.axes.Axes, optional
        At least one per class with rows; a new figure by default.
    weights : bool
        Show the weights :math:`w_k = \Sigma^{-1} (m_k - o)` of the linear discriminants of
        `LinearDiscriminants` about the mean o of all classes: ink at positive weights (red) speaks
        for the class, and at negative ones (blue) against it.
    **kwargs
        Passed to `matplotlib.axes.Axes.imshow`; `cmap` is ``"gray_r"`` by default, and
        ``"RdBu_r"`` for weights.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (n_classes,)
        The axes with the images.

    Raises
    ------
    InvalidParameterError
        If the shape does not match the number of features, there are too few axes, or the
        estimator has a covariance for each class, and no weights.

    Examples
    --------
    >>> from streamgda import GaussianNB, LinearDiscriminantAnalysis
    >>> from streamgda.datasets import load_digits
    >>> from streamgda.plots import plot_means
    >>> X, y = load_digits()
    >>> X = X.reshape(-1, 8, 8)[:, :, 1:7].reshape(-1, 48)  # without the empty edges
    >>> axes = plot_means(GaussianNB().fit(X, y), (8, 6))
    >>> [ax.get_title() for ax in axes]
    ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']
    >>> lda = LinearDiscriminantAnalysis("lsqr", shrinkage=0.1).fit(X, y)
    >>> axes = plot_means(lda, (8, 6), weights=True)
    """
    shape = _image_shape(shape, estimator)
    seen, means = means_of(estimator)
    labels, images = estimator.classes_[seen], means[seen]
    low, high, style = images.min(), images.max(), kwargs
    if weights:
        discriminants = LinearDiscriminants.of(estimator)
        images = np.array([discriminants.of_class(label).w for label in labels])
        high = np.abs(images).max()
        low, style = -high, {"cmap": "RdBu_r"} | kwargs
    columns = min(labels.size, _MEANS_IN_A_ROW)
    axes = grid_of(axes, math.ceil(labels.size / columns), columns, labels.size)
    for ax, label, image in zip(axes, labels, images, strict=True):
        _show_image(ax, image, shape, low, high, style)
        ax.set_title(str(label))
    return axes


def plot_samples(
    estimator: MomentClassifier,
    shape: Sequence[int],
    n: int = 5,
    random_state: Any = None,
    axes: Any = None,
    **kwargs: Any,
) -> np.ndarray:
    """Plot images sampled from the model of each class.

    Parameters
    ----------
    estimator : estimator of this package
        Estimator fitted to images, one per row.
    shape : (int, int) or (int, int, 3)
        Shape of an image.
    n : int
        Images per class.
    random_state : int, RandomState instance or None
        Seed or generator of random numbers.
    axes : array of matplotlib.axes.Axes, optional
        At least one per image; a new figure by default.
    **kwargs
        Passed to `matplotlib.axes.Axes.imshow`; `cmap` is ``"gray_r"`` by default.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (n_classes, n)
        The axes with the images.

    Raises
    ------
    InvalidParameterError
        If the shape does not match the number of features, `n` is below one, or there are too few
        axes.

    Examples
    --------
    >>> from streamgda import GaussianDiscriminantAnalysis
    >>> from streamgda.datasets import load_digits
    >>> from streamgda.plots import plot_samples
    >>> X, y = load_digits()
    >>> X = X.reshape(-1, 8, 8)[:, :, 1:7].reshape(-1, 48)  # without the empty edges
    >>> gda = GaussianDiscriminantAnalysis(var_smoothing=0.03).fit(X, y)
    >>> plot_samples(gda, (8, 6), n=3, random_state=0).shape
    (10, 3)
    """
    shape = _image_shape(shape, estimator)
    n = as_integer("n", n, "at least 1 image", 1)
    seen, means = means_of(estimator)
    labels, means = estimator.classes_[seen], means[seen]
    drawn, _ = estimator.sample(labels.size * n, random_state, y=np.repeat(labels, n))
    # Unlike images, Gaussians have tails below the background and far above the ink.
    low, high = means.min(), max(means.max(), float(np.percentile(drawn, 99)))
    axes = grid_of(axes, labels.size, n, len(drawn), height=1.2).reshape(labels.size, n)
    for ax, image in zip(axes.ravel(), drawn, strict=True):
        _show_image(ax, image, shape, low, high, kwargs)
    for ax, label in zip(axes[:, 0], labels, strict=True):
        ax.set_ylabel(str(label), rotation="horizontal", ha="right", va="center")
    return axes


def _show_image(
    ax: Axes, row: np.ndarray, shape: Sequence[int], low: float, high: float, style: dict[str, Any]
) -> None:
    image = row.reshape(shape)
    if len(shape) == 3:  # matplotlib does not scale colours
        image = np.clip((image - low) / ((high - low) or 1.0), 0, 1)
    defaults: dict[str, Any] = {"cmap": "gray_r", "vmin": low, "vmax": high}
    ax.imshow(image, **defaults | style)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def _image_shape(shape: Any, estimator: MomentClassifier) -> tuple[int, ...]:
    check_type("estimator", estimator, MomentClassifier, "an estimator of this package")
    check_is_fitted(estimator)
    expected = "(int, int) or (int, int, 3)"
    sizes = np.atleast_1d(np.asarray(shape, object)).tolist()
    found = tuple(as_integer("shape", n, expected, 1) for n in sizes)
    if len(found) not in (2, 3) or math.prod(found) != estimator.n_features_in_:
        raise InvalidParameterError(
            f"shape={found} does not match {estimator.n_features_in_} features"
        )
    return found
