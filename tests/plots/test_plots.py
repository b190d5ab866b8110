"""Pictures show the projected Gaussians of an estimator."""

import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from samples import blobs
from scipy import stats
from sklearn.exceptions import NotFittedError

from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    plots,
)
from streamgda.errors import ConstantFeatureWarning, InvalidParameterError

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

TYPES = ["full", "tied", "diag", "tied_diag", "spherical", "tied_spherical"]
PLANE = np.array([[1.0, 2, 0, -1, 0.5], [0.3, 0, 1, 1, 2]])


def drawn(estimator, *rows, **options) -> Axes:
    plot = plots.plot_decision_boundary
    return plot(estimator, *rows, ax=Figure().subplots(), **{"resolution": 30} | options)


def scattered(ax: Axes) -> PathCollection:
    (found,) = [c for c in ax.collections if isinstance(c, PathCollection)]
    return found


def legend(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def thresholds(ax: Axes) -> list[float]:
    return [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"]


def covariance_of(estimator, k: int) -> np.ndarray:
    values = np.asarray(estimator.covariance_)
    own = values if estimator.covariance_type.startswith("tied") else values[k]
    return own if np.ndim(own) == 2 else np.diag(own * np.ones(estimator.n_features_in_))


# --- a plane --------------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", TYPES)
def test_ellipses_and_colours_are_of_the_projected_gaussians(covariance_type):
    X, y = blobs(n_features=5)
    priors = [0.2, 0.5, 0.3]
    estimator = GaussianDiscriminantAnalysis(covariance_type, priors=priors).fit(X, y)
    ax = drawn(estimator, X, y, directions=PLANE)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("direction 1", "direction 2")
    np.testing.assert_allclose(scattered(ax).get_offsets(), X @ PLANE.T)
    across, up = (np.linspace(*limits, 30) for limits in (ax.get_xlim(), ax.get_ylim()))
    z = np.array([[a, b] for b in up for a in across])
    joint = []
    for k, prior in enumerate(priors):
        covariance = PLANE @ covariance_of(estimator, k) @ PLANE.T
        mean = PLANE @ X[y == k].mean(axis=0)
        joint.append(prior * stats.multivariate_normal(mean, covariance).pdf(z))
        for deviations, ellipse in enumerate(ax.patches[2 * k : 2 * k + 2], start=1):
            outline = ellipse.get_patch_transform().transform(ellipse.get_path().vertices)
            offsets = outline[::3] - mean  # Other vertices are control points of curves.
            distances = [offset @ np.linalg.solve(covariance, offset) for offset in offsets]
            np.testing.assert_allclose(np.sqrt(distances), deviations, rtol=2e-3)
    posterior = np.array(joint).T / np.sum(joint, axis=0)[:, None]
    shown = np.asarray(ax.images[0].get_array()).reshape(-1, 3)
    colours, *_ = np.linalg.lstsq(posterior, shown, rcond=None)
    np.testing.assert_allclose(posterior @ colours, shown, atol=1e-6)
    assert np.unique(colours.round(2), axis=0).shape == (3, 3)


def test_boundaries_are_where_the_prediction_changes():
    X, y = blobs(n_features=2)
    estimator = QuadraticDiscriminantAnalysis().fit(X, y)
    ax = drawn(estimator, parts=["boundaries"], resolution=300)
    paths = [p for c in ax.collections if isinstance(c, ContourSet) for p in c.get_paths()]
    vertices = np.vstack([path.vertices for path in paths])
    pixel = [np.ptp(limits) / 299 for limits in (ax.get_xlim(), ax.get_ylim())]
    around = np.array([[i, j] for i in (-1, 0, 1) for j in (-1, 0, 1)]) * pixel
    predicted = [estimator.predict(vertices + step) for step in around]
    assert len(vertices) > 100
    # The boundary is right within a pixel.
    assert (np.min(predicted, axis=0) < np.max(predicted, axis=0)).all()
    assert not ax.images
    assert not ax.patches


def test_more_features_are_shown_along_the_directions_that_separate_the_classes():
    X, y = blobs(n_features=5)
    lda = LinearDiscriminantAnalysis().fit(X, y)
    ax = drawn(lda, X, y)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Fisher's direction 1", "Fisher's direction 2")
    found = np.linalg.lstsq(X, np.asarray(scattered(ax).get_offsets()), rcond=None)[0]
    cosines = (found * lda.scalings_).sum(axis=0) / np.linalg.norm(found, axis=0)
    np.testing.assert_allclose(np.abs(cosines), np.linalg.norm(lda.scalings_, axis=0), rtol=1e-6)
    for ellipse in ax.patches[::2]:  # Axes are those of a unit covariance.
        np.testing.assert_allclose((ellipse.width, ellipse.height), 2, rtol=1e-9)
    two = LinearDiscriminantAnalysis().fit(X[y < 2], y[y < 2])
    assert drawn(two).get_ylabel() == "principal axis within classes"


def test_units_and_offsets_of_features_make_no_difference():
    X, y = blobs(n_features=3)
    for features in ((0, 1), None):
        one, other = (
            drawn(LinearDiscriminantAnalysis().fit(X * [1, unit, 1] + [0, offset, 0], y),
                  features=features, resolution=9).images[0].get_array()
            for unit, offset in ((1.0, 0.0), (2.0**-40, 2.0**-20))
        )  # fmt: skip
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_features_have_their_names_on_the_axes():
    X, y = blobs(n_features=5)
    frame = pd.DataFrame(X, columns=list("abcde"))
    estimator = QuadraticDiscriminantAnalysis().fit(frame, y)
    for chosen in ((3, 1), ("d", "b")):
        ax = drawn(estimator, frame, y, features=chosen)
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("d", "b")
        np.testing.assert_allclose(scattered(ax).get_offsets(), X[:, [3, 1]])


def test_points_have_the_colours_of_their_classes_and_unknown_ones_that_of_the_paper():
    X, y = blobs(n_features=2)
    X[0] = 60, -60
    estimator = GaussianNB().fit(X[1:][y[1:] < 2], y[1:][y[1:] < 2])
    ax = drawn(estimator, X, y, colors=["red", "blue"], s=99)
    assert legend(ax) == ["0", "1"]
    faces = scattered(ax).get_facecolors()[:, :3]
    np.testing.assert_array_equal(faces, np.array([[1, 0, 0], [0, 0, 1], [1, 1, 1]])[y])
    assert scattered(ax).get_sizes().tolist() == [99]
    assert (ax.get_xlim()[1], ax.get_ylim()[0]) == (60, -60)


def test_classes_without_rows_and_with_prior_zero_are_not_in_the_way():
    X, y = blobs(n_features=2)
    estimator = GaussianNB().partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2])
    assert legend(drawn(estimator)) == ["0", "1"]
    ax = drawn(GaussianNB(priors=[0.5, 0.5, 0]).fit(X, y))
    assert np.isfinite(ax.images[0].get_array()).all()
    assert len(ax.patches) == 6


def test_lines_and_text_differ_from_a_dark_background():
    X, y = blobs(n_features=2)
    with plt.style.context("dark_background"):
        ax = drawn(GaussianNB().fit(X, y))
    edges = [patch.get_edgecolor()[:3] for patch in ax.patches]
    contours = [c.get_edgecolor()[0][:3] for c in ax.collections]
    assert min(np.mean(colour) for colour in [*edges, *contours]) > 0.25
    assert np.asarray(ax.images[0].get_array()).mean() < 0.5


# --- a direction ----------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_densities_are_of_the_rows_projected_on_a_direction(covariance_type):
    X, y = blobs(n_features=4)
    estimator = GaussianDiscriminantAnalysis(covariance_type, priors=[0.2, 0.5, 0.3]).fit(X, y)
    w = np.array([1.0, -2, 0.5, 0])
    ax = plots.plot_densities(estimator, X, y, Figure().subplots(), direction=w)
    joint = []
    for k, curve in enumerate(ax.lines[:3]):
        deviation = np.sqrt(w @ covariance_of(estimator, k) @ w)
        density = stats.norm(X[y == k].mean(axis=0) @ w, deviation).pdf
        z = curve.get_xdata()
        joint.append(estimator.priors[k] * density(z))
        np.testing.assert_allclose(curve.get_ydata(), joint[-1], rtol=1e-9)
    largest = np.argmax(joint, axis=0)
    expected = z[1:][largest[1:] != largest[:-1]]
    assert len(expected)
    np.testing.assert_allclose(thresholds(ax), expected, atol=z[1] - z[0])
    areas = [np.sum(p.get_data().values * np.diff(p.get_data().edges)) for p in ax.patches]
    np.testing.assert_allclose(areas, np.bincount(y) / len(y))


def test_thresholds_are_where_the_prediction_changes():
    random = np.random.default_rng(0)
    y = random.random(400) < 0.3
    X = np.where(y, random.normal(1, 3, 400), random.normal(0, 1, 400))[:, None]
    estimator = GaussianNB().fit(X, y)
    found = thresholds(plots.plot_densities(estimator, ax=Figure().subplots()))
    assert len(found) == 2  # Variances differ.
    sides = np.add.outer(found, [-1e-6, 1e-6]).reshape(-1, 1)
    assert estimator.predict(sides).tolist() == [True, False, False, True]
    never = GaussianDiscriminantAnalysis("tied", priors=[1.0, 0.0]).fit(X, y)
    assert not thresholds(plots.plot_densities(never, ax=Figure().subplots()))


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"features": (0, 0)}, "features"),
        ({"features": (0, "z")}, "features"),
        ({"features": (1,)}, "features"),
        ({"directions": [[1.0, 0.0]]}, "directions"),
        ({"directions": [[1.0, 2.0], [-1e-9, -2e-9]]}, "independent"),
        ({"directions": [[1.0, 0.0], [0.0, np.nan]]}, "directions"),
        ({"directions": np.eye(2), "features": (0, 1)}, "one of them"),
        ({"parts": "points"}, "parts="),
        ({"parts": ["shade"]}, "parts="),
        ({"colors": ["red"]}, "colors="),
        ({"X": np.zeros((2, 2)), "y": [1]}, "y has the shape"),
    ],
)
def test_what_cannot_be_drawn(arguments, match):
    estimator = GaussianNB().fit(*blobs(n_features=2))
    with pytest.raises(InvalidParameterError, match=match):
        plots.plot_decision_boundary(estimator, **arguments)
    plt.close("all")


def test_directions_without_variance_and_other_errors(monkeypatch):
    X, y = blobs(n_features=2)
    with pytest.warns(ConstantFeatureWarning):
        flat = QuadraticDiscriminantAnalysis().fit(X * [1, 0], y)
    for plot in (plots.plot_decision_boundary, lambda e: plots.plot_densities(e, feature=1)):
        with pytest.raises(InvalidParameterError, match="does not vary"):
            plot(flat)
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            plot(QuadraticDiscriminantAnalysis())
        with pytest.raises(TypeError, match="a Gaussian estimator"):
            plot("iris")
    nb = GaussianNB().fit(X, y)
    with pytest.raises(InvalidParameterError, match="without y"):
        plots.plot_densities(nb, X)
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'pip install "streamgda\[plot\]"'):
        plots.plot_decision_boundary(nb)
