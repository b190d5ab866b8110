"""The picture of a plane is of the model projected onto it, and legible."""

import matplotlib as mpl
import numpy as np
import pytest
from figures import NAMES, blobs, legend
from scipy import stats
from sklearn.datasets import load_iris

from streamgda import (
    FisherDiscriminant,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    plots,
)
from streamgda.errors import InvalidParameterError
from streamgda.plots.points import stratified
from streamgda.plots.projection import Directions, ProjectedClasses

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
pytestmark = pytest.mark.usefixtures("figures_closed")

PLANE = np.array([[1.0, 2, 0, -1, 0.5], [0.3, 0, 1, 1, 2]])


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_colours_are_the_posterior_of_the_projected_gaussians(covariance_type: str) -> None:
    X, y = blobs(5)
    priors = [0.2, 0.5, 0.3]
    estimator = GaussianDiscriminantAnalysis(covariance_type, priors=priors).fit(X, y)
    ax = plots.plot_decision_boundary(estimator, directions=PLANE, resolution=30)
    values = np.asarray(estimator.covariance_)
    across, up = (np.linspace(*limits, 30) for limits in (ax.get_xlim(), ax.get_ylim()))
    z = np.array([[a, b] for b in up for a in across])
    joint = []
    for k, prior in enumerate(priors):
        own = values if covariance_type == "tied" else values[k]
        covariance = own if np.ndim(own) == 2 else np.diag(own * np.ones(5))
        mean = PLANE @ X[y == k].mean(axis=0)
        joint.append(prior * stats.multivariate_normal(mean, PLANE @ covariance @ PLANE.T).pdf(z))
    posterior = np.array(joint).T / np.sum(joint, axis=0)[:, None]
    shown = np.asarray(ax.images[0].get_array()).reshape(-1, 3)
    colours, *_ = np.linalg.lstsq(posterior, shown, rcond=None)
    np.testing.assert_allclose(posterior @ colours, shown, atol=1e-6)
    assert np.unique(colours.round(2), axis=0).shape == (3, 3)


def test_units_of_the_features_make_no_difference() -> None:
    X, y = blobs(3)
    shown = []
    for unit in (1.0, 2.0**-40):
        estimator = LinearDiscriminantAnalysis().fit(X * [1, unit, 1], y)
        for features in ((0, 1), None):
            ax = plots.plot_decision_boundary(estimator, features=features, resolution=9)
            shown.append(ax.images[0].get_array())
    np.testing.assert_allclose(shown[0], shown[2], atol=1e-9)
    np.testing.assert_allclose(shown[1], shown[3], atol=1e-9)


def test_iris_is_shown_along_the_directions_that_separate_it() -> None:
    X, y = load_iris(return_X_y=True)
    estimator = QuadraticDiscriminantAnalysis().fit(X, y)
    ax = plots.plot_decision_boundary(estimator, X, y, resolution=40)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Fisher's direction 1", "Fisher's direction 2")
    plane = Directions.of(estimator, None, None, (0, 1))
    fisher = FisherDiscriminant.from_moments(estimator.moments_).components
    cosines = np.abs((plane.vectors * fisher).sum(axis=1))
    cosines /= np.linalg.norm(plane.vectors, axis=1) * np.linalg.norm(fisher, axis=1)
    np.testing.assert_allclose(cosines, 1)
    projected = ProjectedClasses.of(estimator, plane)
    assert (projected.log_posterior(X @ plane.vectors.T).argmax(axis=1) == y).mean() > 0.95


def test_beside_the_one_direction_of_two_classes_is_an_uncorrelated_one() -> None:
    X, y = blobs(5)
    estimator = LinearDiscriminantAnalysis(store_covariance=True).fit(X[y < 2], y[y < 2])
    ax = plots.plot_decision_boundary(estimator, resolution=5)
    assert ax.get_ylabel() == "principal axis within classes"
    vectors = Directions.of(estimator, None, None, (0, 1)).vectors
    within = vectors @ estimator.covariance_ @ vectors.T
    np.testing.assert_allclose(within, np.eye(2), atol=1e-9)
    along = np.linalg.solve(estimator.covariance_, np.diff(estimator.means_, axis=0)[0])
    np.testing.assert_allclose(np.abs(np.corrcoef(along, vectors[0])[0, 1]), 1)


def test_constant_features_and_single_classes_have_a_plane() -> None:
    X, y = blobs(4)
    constant = np.column_stack([X[:, :2], np.ones(len(X)), X[:, 2:]])
    with pytest.warns(UserWarning, match="constant"):
        estimator = QuadraticDiscriminantAnalysis().fit(constant, y)
    plane = Directions.of(estimator, None, None, (0, 1))
    assert not plane.vectors[:, 2].any()
    one = GaussianNB().fit(X, np.zeros(len(X)))
    ax = plots.plot_decision_boundary(one, resolution=5)
    assert ax.get_xlabel() == "principal axis within classes"
    ax = plots.plot_decision_boundary(estimator, features=(1, 2), resolution=5)
    assert np.isfinite(ax.images[0].get_array()).all()


def test_many_rows_are_thinned_and_the_legend_says_so() -> None:
    X, y = blobs()
    X, y = np.tile(X, (20, 1)), np.tile(y, 20)
    estimator = GaussianNB().fit(X, NAMES[y])
    ax = plots.plot_decision_boundary(estimator, X, NAMES[y], resolution=5, max_points=100)
    shown = ax.collections[-1].get_offsets()
    assert 98 <= len(shown) <= 102
    assert legend(ax)[-1] == f"{len(shown)} of 6,000 rows"
    assert {tuple(row) for row in shown} <= {tuple(row) for row in X}
    whole = plots.plot_decision_boundary(estimator, X, NAMES[y], resolution=5, max_points=None)
    assert len(whole.collections[-1].get_offsets()) == 6000
    with pytest.raises(InvalidParameterError, match="max_points=0"):
        plots.plot_decision_boundary(estimator, X, max_points=0)


def test_a_sample_has_the_same_share_of_each_class() -> None:
    codes = np.repeat([0, 1, -1, 2], [6000, 3000, 999, 1])
    chosen = stratified(codes, 100)
    assert np.unique(chosen).size == chosen.size
    assert (np.diff(chosen) > 0).all()
    numbers, counts = np.unique(codes[chosen], return_counts=True)
    assert dict(zip(numbers.tolist(), counts.tolist(), strict=True)) == {-1: 10, 0: 60, 1: 30, 2: 1}


@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_lines_and_text_differ_from_the_background(style: str) -> None:
    y = np.repeat(np.arange(12), 5)
    X = np.column_stack([y * 5.0, y % 3]) + np.random.default_rng(0).normal(size=(60, 2))
    estimator = GaussianNB().fit(X, y)
    with plt.style.context(style):
        ax = plots.plot_decision_boundary(estimator, resolution=20)
        line = plots.plot_densities(GaussianNB().fit(X[:10], y[:10])).lines[-1]
    ground = np.mean(ax.get_facecolor()[:3])
    assert ground == (1 if style == "default" else 0)
    edges = [ellipse.get_edgecolor()[:3] for ellipse in ax.patches]
    labels = [mpl.colors.to_rgb(text.get_color()) for text in ax.texts]
    contours = [c.get_edgecolor()[0][:3] for c in ax.collections]
    drawn = [*edges, *labels, *contours, mpl.colors.to_rgb(line.get_color())]
    assert len(drawn) > 12
    assert min(abs(np.mean(colour) - ground) for colour in drawn) > 0.25
    shaded = np.asarray(ax.images[0].get_array())
    assert (shaded.mean() > 0.5) == (style == "default")


@pytest.mark.parametrize("layout", [None, "constrained"])
def test_a_legend_of_many_classes_is_compact(layout: str | None) -> None:
    y = np.repeat(np.arange(25), 4)
    X = y[:, None] * 3.0 + np.random.default_rng(0).normal(size=(100, 2))
    figure = plt.figure(layout=layout)
    ax = plots.plot_densities(GaussianNB().fit(X, y), ax=figure.subplots())
    figure.draw_without_rendering()
    box = ax.get_legend().get_window_extent()
    assert legend(ax) == [str(k) for k in range(25)]
    assert figure.bbox.y0 <= box.y0
    assert box.y1 <= figure.bbox.y1
    assert (box.x0 >= ax.bbox.x1) == (layout == "constrained")
    assert box.x1 <= figure.bbox.x1
