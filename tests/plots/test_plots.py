"""Pictures show the results of the estimator."""

import sys
import warnings

import matplotlib as mpl
import numpy as np
import pytest
from figures import NAMES, blobs, legend
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.contour import ContourSet
from matplotlib.patches import Ellipse
from scipy import stats
from sklearn.exceptions import NotFittedError

from streamgda import (
    BernoulliNB,
    FisherDiscriminant,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    plots,
)
from streamgda.errors import ConstantFeatureWarning, InvalidDataError, InvalidParameterError

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
pytestmark = pytest.mark.usefixtures("figures_closed")


ELLIPSES = "39, 86 % of a class"  # 1 - exp(-1/2) and 1 - exp(-2)


def ellipses(ax: Axes) -> list[Ellipse]:
    return [patch for patch in ax.patches if isinstance(patch, Ellipse)]


def boundaries(ax: Axes) -> np.ndarray:
    """All vertices of the lines between classes."""
    paths = [p for c in ax.collections if isinstance(c, ContourSet) for p in c.get_paths()]
    return np.vstack([path.vertices for path in paths])


# --- confusion matrix -----------------------------------------------------------------------------


def test_confusion_matrix_shows_the_counts() -> None:
    X, y = blobs()
    estimator = LinearDiscriminantAnalysis().fit(X, NAMES[y])
    predicted = estimator.predict(X)
    counts = [[((y == i) & (predicted == name)).sum() for name in NAMES] for i in range(3)]
    ax = plots.plot_confusion_matrix(estimator, X, NAMES[y])
    assert [int(text.get_text()) for text in ax.texts] == np.ravel(counts).tolist()
    assert [label.get_text() for label in ax.get_yticklabels()] == NAMES.tolist()
    np.testing.assert_array_equal(ax.images[0].get_array(), counts)


def test_confusion_matrix_of_shares_in_given_axes() -> None:
    X, y = blobs()
    mine = plt.figure().subplots()
    ax = plots.plot_confusion_matrix(GaussianNB().fit(X, y), X, y, mine, normalize="true")
    assert ax is mine
    np.testing.assert_allclose(ax.images[0].get_array().sum(axis=1), 1)
    assert len(plt.get_fignums()) == 1


def test_confusion_matrix_has_a_row_for_labels_that_the_model_does_not_know() -> None:
    X, y = blobs()
    estimator = GaussianNB().fit(X[y < 2], y[y < 2])
    ax = plots.plot_confusion_matrix(estimator, X, y)
    shown = ax.images[0].get_array()
    assert shown.shape == (3, 3)
    assert not shown[:, 2].any()
    assert shown[2].sum() == (y == 2).sum()
    with pytest.raises(InvalidDataError, match="do not mix"):
        plots.plot_confusion_matrix(estimator, X, NAMES[y])


def test_confusion_matrix_of_many_classes_is_colours_without_numbers() -> None:
    y = np.repeat(np.arange(30), 4)
    X = y[:, None] * 10.0 + np.random.default_rng(0).normal(size=(120, 2))
    ax = plots.plot_confusion_matrix(GaussianNB().fit(X, y), X, y)
    assert not ax.texts
    assert 5 < len(ax.get_xticks()) < 20
    ax.figure.draw_without_rendering()
    _, bar = ax.figure.axes
    assert any(isinstance(c, QuadMesh) for c in bar.collections)


# --- the plane ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "covariance_type", ["full", "tied", "diag", "tied_diag", "spherical", "tied_spherical"]
)
def test_ellipses_are_level_lines_of_the_mahalanobis_distance(covariance_type: str) -> None:
    X, y = blobs()
    estimator = GaussianDiscriminantAnalysis(covariance_type).fit(X, y)
    drawn = ellipses(plots.plot_decision_boundary(estimator, resolution=20))
    assert len(drawn) == 6
    for number, ellipse in enumerate(drawn):
        of_class, deviations = number // 2, 1 + number % 2
        outline = ellipse.get_patch_transform().transform(ellipse.get_path().vertices)
        on_curve = outline[::3]  # the others are control points of Bézier curves
        distances = estimator.mahalanobis(on_curve)[:, of_class]
        np.testing.assert_allclose(np.sqrt(distances), deviations, rtol=1e-3)


def test_boundaries_lie_where_two_classes_are_equally_probable() -> None:
    X, y = blobs()
    estimator = QuadraticDiscriminantAnalysis().fit(X, y)
    ax = plots.plot_decision_boundary(estimator, resolution=400)
    log_odds = np.sort(estimator.predict_joint_log_proba(boundaries(ax)), axis=1)
    scale = np.abs(log_odds[:, 2] - log_odds[:, 0])
    assert (log_odds[:, 2] - log_odds[:, 1] < 0.02 * scale + 0.05).all()


def test_every_change_of_class_crosses_a_boundary() -> None:
    X, y = blobs()
    estimator = QuadraticDiscriminantAnalysis().fit(X, y)
    ax = plots.plot_decision_boundary(estimator, resolution=300)
    across = np.linspace(*ax.get_xlim(), 1000)
    height = X[:, 1].mean()
    codes = estimator.predict(np.column_stack([across, np.full(1000, height)]))
    changes = across[1:][codes[1:] != codes[:-1]]
    assert changes.size
    vertices = boundaries(ax)
    step = (ax.get_ylim()[1] - ax.get_ylim()[0]) / 299
    near = vertices[np.abs(vertices[:, 1] - height) < 2 * step, 0]
    width = (ax.get_xlim()[1] - ax.get_xlim()[0]) / 50
    assert all(np.abs(near - change).min() < width for change in changes)


def test_shading_mixes_the_colours_as_the_posterior_does() -> None:
    X, y = blobs()
    estimator = LinearDiscriminantAnalysis().fit(X, y)
    ax = plots.plot_decision_boundary(estimator, resolution=30)
    image = np.asarray(ax.images[0].get_array())
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    pixel = (right - left) / 29, (top - bottom) / 29
    expected = left - pixel[0] / 2, right + pixel[0] / 2, bottom - pixel[1] / 2, top + pixel[1] / 2
    np.testing.assert_allclose(ax.images[0].get_extent(), expected)
    assert ax.images[0].origin == "lower"
    rows = [[x, v] for v in np.linspace(bottom, top, 30) for x in np.linspace(left, right, 30)]
    colours, *_ = np.linalg.lstsq(
        posterior := estimator.predict_proba(rows), image.reshape(-1, 3), rcond=None
    )
    np.testing.assert_allclose(posterior @ colours, image.reshape(-1, 3), atol=1e-6)
    assert np.unique(colours.round(2), axis=0).shape == (3, 3)


def test_points_have_the_colours_of_their_classes_and_lie_within() -> None:
    X, y = blobs()
    X[0] = 60, -60
    estimator = GaussianNB().fit(X[1:], NAMES[y[1:]])
    ax = plots.plot_decision_boundary(estimator, X, NAMES[y], resolution=20)
    (points,) = [c for c in ax.collections if isinstance(c, PathCollection)]
    np.testing.assert_allclose(points.get_offsets(), X)
    assert ax.get_xlim()[1] > 60
    assert ax.get_ylim()[0] < -60
    assert legend(ax) == [*NAMES, ELLIPSES]
    markers = {line.get_label(): line.get_color() for line in ax.lines}
    for face, label in zip(points.get_facecolors(), NAMES[y], strict=True):
        np.testing.assert_allclose(face[:3], markers[label])


def test_points_of_unknown_and_of_no_labels() -> None:
    X, y = blobs()
    estimator = GaussianNB().fit(X[y < 2], y[y < 2])
    ax = plots.plot_decision_boundary(estimator, X, y, resolution=20)
    (points,) = [c for c in ax.collections if isinstance(c, PathCollection)]
    white = (points.get_facecolors()[:, :3] == 1).all(axis=1)
    np.testing.assert_array_equal(white, y == 2)
    ax = plots.plot_decision_boundary(estimator, X, resolution=20)
    (points,) = [c for c in ax.collections if isinstance(c, PathCollection)]
    assert points.get_facecolors().shape == (1, 4)


def test_a_plane_among_many_features() -> None:
    X, y = blobs(5)
    estimator = QuadraticDiscriminantAnalysis().fit(X, y)
    at = X.mean(axis=0) + 1
    ax = plots.plot_decision_boundary(estimator, features=(3, 1), at=at, resolution=200)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("feature 3", "feature 1")
    rows = np.tile(at, (len(boundaries(ax)), 1))
    rows[:, [3, 1]] = boundaries(ax)
    joint = np.sort(estimator.predict_joint_log_proba(rows), axis=1)
    assert (joint[:, 2] - joint[:, 1] < 0.02 * (joint[:, 2] - joint[:, 0]) + 0.1).all()
    marginal = GaussianDiscriminantAnalysis().fit(X[:, [3, 1]], y)
    outline = ellipses(ax)[0]
    rows = outline.get_patch_transform().transform(outline.get_path().vertices)[::3]
    np.testing.assert_allclose(marginal.mahalanobis(rows)[:, 0], 1, rtol=2e-3)


def test_a_slice_at_the_mean_of_all_rows() -> None:
    X, y = blobs(4)
    estimator = QuadraticDiscriminantAnalysis().fit(X, y)
    pictures = [
        plots.plot_decision_boundary(estimator, features=(2, 0), at=at, resolution=20)
        for at in ("mean", X.mean(axis=0))
    ]
    named, given = (ax.images[0].get_array() for ax in pictures)
    np.testing.assert_allclose(named, given, atol=1e-9)
    assert legend(pictures[0])[-1] == "boundaries of a slice"


def test_classes_without_rows_and_with_prior_zero_are_not_in_the_way() -> None:
    X, y = blobs()
    estimator = GaussianNB().partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2])
    ax = plots.plot_decision_boundary(estimator, resolution=20)
    assert legend(ax) == ["0", "1", ELLIPSES]
    assert len(ellipses(ax)) == 4
    never = GaussianNB(priors=[0.5, 0.5, 0]).fit(X, y)
    ax = plots.plot_decision_boundary(never, resolution=20)
    assert np.isfinite(ax.images[0].get_array()).all()
    assert len(ellipses(ax)) == 6


def test_names_of_features_are_on_the_axes() -> None:
    pd = pytest.importorskip("pandas")
    X, y = blobs()
    estimator = GaussianNB().fit(pd.DataFrame(X, columns=["width", "height"]), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax = plots.plot_decision_boundary(estimator, resolution=20)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("width", "height")


def on_plane(z: np.ndarray, D: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The point at + s u + t v with the inner products z, solved for s and t one by one."""
    u, v = D
    gram = np.array([[u @ u, u @ v], [v @ u, v @ v]])
    st = [np.linalg.solve(gram, point - D @ at) for point in z]
    return np.array([at + s * u + t * v for s, t in st])


SKEWED = np.array([[1.0, 2, 0, -1, 0.5], [0.3, 0, 1, 1, 2]])


def test_boundaries_and_shading_are_those_of_the_plane_of_any_directions() -> None:
    X, y = blobs(5)
    estimator = QuadraticDiscriminantAnalysis().fit(X, y)
    at = X.mean(axis=0) + 1
    ax = plots.plot_decision_boundary(estimator, directions=SKEWED, at=at, resolution=200)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("direction 1", "direction 2")
    joint = np.sort(estimator.predict_joint_log_proba(on_plane(boundaries(ax), SKEWED, at)), axis=1)
    assert (joint[:, 2] - joint[:, 1] < 0.02 * (joint[:, 2] - joint[:, 0]) + 0.1).all()
    across, up = (np.linspace(*limits, 200)[::40] for limits in (ax.get_xlim(), ax.get_ylim()))
    z = np.array([[a, b] for b in up for a in across])
    posterior = estimator.predict_proba(on_plane(z, SKEWED, at))
    shown = np.asarray(ax.images[0].get_array())[::40, ::40].reshape(-1, 3)
    colours, *_ = np.linalg.lstsq(posterior, shown, rcond=None)
    np.testing.assert_allclose(posterior @ colours, shown, atol=1e-6)


@pytest.mark.parametrize(
    "covariance_type", ["full", "tied", "diag", "tied_diag", "spherical", "tied_spherical"]
)
def test_ellipses_are_of_the_rows_projected_on_any_directions(covariance_type: str) -> None:
    X, y = blobs(5)
    estimator = GaussianDiscriminantAnalysis(covariance_type).fit(X, y)
    ax = plots.plot_decision_boundary(estimator, X, y, directions=SKEWED, resolution=10)
    (points,) = [c for c in ax.collections if isinstance(c, PathCollection)]
    np.testing.assert_allclose(points.get_offsets(), X @ SKEWED.T)
    values = np.asarray(estimator.covariance_)
    for number, ellipse in enumerate(ellipses(ax)):
        k, deviations = number // 2, 1 + number % 2
        own = values if covariance_type.startswith("tied") else values[k]
        covariance = own if np.ndim(own) == 2 else np.diag(own * np.ones(5))
        projected = SKEWED @ covariance @ SKEWED.T
        outline = ellipse.get_patch_transform().transform(ellipse.get_path().vertices)[::3]
        gaps = outline - X[y == k].mean(axis=0) @ SKEWED.T
        distances = [gap @ np.linalg.solve(projected, gap) for gap in gaps]
        np.testing.assert_allclose(np.sqrt(distances), deviations, rtol=2e-3)


def test_features_are_unit_directions() -> None:
    X, y = blobs(5)
    estimator = QuadraticDiscriminantAnalysis().fit(X, y)
    by_number = plots.plot_decision_boundary(estimator, X, y, features=(3, 1), resolution=30)
    by_vector = plots.plot_decision_boundary(
        estimator, X, y, directions=np.eye(5)[[3, 1]], resolution=30
    )
    for a, b in zip(by_number.images, by_vector.images, strict=True):
        np.testing.assert_array_equal(a.get_array(), b.get_array())
    np.testing.assert_array_equal(boundaries(by_number), boundaries(by_vector))


def test_linear_rule_along_fishers_directions_is_the_same_in_slice_and_projection() -> None:
    X, y = blobs(5)
    estimator = LinearDiscriminantAnalysis().fit(X, y)
    D = FisherDiscriminant.from_moments(estimator.moments_).components
    random = np.random.default_rng(0)
    rows = 5 * random.normal(size=(200, 5)) + X.mean(axis=0)
    lifted = on_plane(rows @ D.T, D, X.mean(axis=0))
    np.testing.assert_allclose(estimator.predict_proba(rows), estimator.predict_proba(lifted))
    axes = plt.figure().subplots(2)
    at = [None, 100 * random.normal(size=5)]
    pictures = [
        plots.plot_decision_boundary(estimator, X, y, ax, directions=D, at=a, resolution=50)
        for ax, a in zip(axes, at, strict=True)
    ]
    shown = [np.asarray(ax.images[0].get_array()) for ax in pictures]
    np.testing.assert_allclose(shown[0], shown[1], atol=1e-6)
    # Ellipses are circles here: the covariance within classes is the unit matrix.
    for ellipse in ellipses(pictures[0])[::2]:
        np.testing.assert_allclose((ellipse.width, ellipse.height), 2, rtol=1e-9)


@pytest.mark.parametrize(
    "arguments",
    [
        {"features": (0, 0)},
        {"features": (0, 2)},
        {"features": (1,)},
        {"directions": [[1.0, 0.0]]},
        {"directions": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]},
        {"directions": [[1.0, 2.0], [-1e-9, -2e-9]]},
        {"directions": [[1.0, 0.0], [0.0, 0.0]]},
        {"directions": [[1.0, 0.0], [0.0, np.nan]]},
        {"directions": np.eye(2), "features": (0, 1)},
        {"at": [1.0, 2.0, 3.0]},
    ],
)
def test_a_plane_that_is_not_there(arguments: dict[str, object]) -> None:
    estimator = GaussianNB().fit(*blobs())
    with pytest.raises(InvalidParameterError, match=r"features|directions|at has shape"):
        plots.plot_decision_boundary(estimator, **arguments)
    assert not plt.get_fignums()


def test_pictures_of_covariances_are_of_gaussians() -> None:
    X, y = blobs()
    binary = BernoulliNB().fit(X, y)
    for plot in (plots.plot_decision_boundary, plots.plot_densities, plots.plot_spectra):
        with pytest.raises(TypeError, match="type BernoulliNB; expected a Gaussian estimator"):
            plot(binary)
    assert not plt.get_fignums()
    assert len(plots.plot_means(binary, (1, 2))) == 3
    plots.plot_confusion_matrix(binary, X, y)


# --- one direction --------------------------------------------------------------------------------


def thresholds(ax: Axes) -> list[float]:
    return [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"]


def changes(z: np.ndarray, largest: np.ndarray) -> np.ndarray:
    return ((z[1:] + z[:-1]) / 2)[largest[1:] != largest[:-1]]


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_densities_are_of_the_rows_projected_on_a_direction(covariance_type: str) -> None:
    X, y = blobs(4)
    estimator = GaussianDiscriminantAnalysis(covariance_type, priors=[0.2, 0.5, 0.3]).fit(X, y)
    w = np.array([1.0, -2, 0.5, 0])
    ax = plots.plot_densities(estimator, X, y, direction=w)
    values = np.asarray(estimator.covariance_)
    curves = [line for line in ax.lines if line.get_linestyle() == "-"]
    joint = []
    for k, curve in enumerate(curves):
        own = values if covariance_type == "tied" else values[k]
        covariance = own if np.ndim(own) == 2 else np.diag(own * np.ones(4))
        density = stats.norm(X[y == k].mean(axis=0) @ w, np.sqrt(w @ covariance @ w)).pdf
        z = curve.get_xdata()
        joint.append(estimator.priors[k] * density(z))
        np.testing.assert_allclose(curve.get_ydata(), joint[-1], rtol=1e-9)
    expected = changes(z, np.argmax(joint, axis=0))
    assert len(expected)
    np.testing.assert_allclose(thresholds(ax), expected, atol=z[1] - z[0])
    assert legend(ax) == ["0", "1", "2"]
    areas = [bar.get_width() * bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(sum(areas), 1)


def test_thresholds_of_one_feature_are_where_the_prediction_changes() -> None:
    random = np.random.default_rng(0)
    y = random.random(400) < 0.3
    X = np.where(y, random.normal(1, 3, 400), random.normal(0, 1, 400))[:, None]
    estimator = GaussianNB().fit(X, y)
    ax = plots.plot_densities(estimator)
    z = np.linspace(*ax.get_xlim(), 10_000)
    expected = changes(z, estimator.predict(z[:, None]))
    assert len(expected) == 2  # with different variances
    np.testing.assert_allclose(thresholds(ax), expected, atol=z[1] - z[0])
    tied = GaussianDiscriminantAnalysis("tied", priors=[1.0, 0.0]).fit(X, y)
    assert not thresholds(plots.plot_densities(tied))


def test_a_direction_that_is_not_there() -> None:
    X, y = blobs()
    estimator = GaussianNB().fit(X, y)
    for arguments in ({"feature": 2}, {"direction": [1.0]}, {"direction": [0.0, 0.0]}, {"X": X}):
        with pytest.raises(InvalidParameterError, match=r"features|direction|without y"):
            plots.plot_densities(estimator, **arguments)
    assert not plt.get_fignums()
    flat = QuadraticDiscriminantAnalysis().partial_fit(X * [1, 0], y)
    refused = pytest.raises(InvalidParameterError, match="does not vary")
    with pytest.warns(ConstantFeatureWarning), refused:
        plots.plot_densities(flat, feature=1)


# --- what scikit-learn's displays do --------------------------------------------------------------


def test_further_arguments_are_matplotlibs() -> None:
    X, y = blobs()
    estimator = QuadraticDiscriminantAnalysis().fit(X, y)
    ax = plots.plot_decision_boundary(estimator, X, y, resolution=10, s=99, marker="s")
    (points,) = [c for c in ax.collections if isinstance(c, PathCollection)]
    assert points.get_sizes().tolist() == [99]
    assert plots.plot_spectra(estimator, linestyle=":").lines[0].get_linestyle() == ":"
    assert plots.plot_densities(estimator, linewidth=7).lines[0].get_linewidth() == 7
    batches = [(X[:200], y[:200]), (X[200:], y[200:])]
    curve = plots.plot_learning_curve(GaussianNB(), batches, X, y, label="mine", color="red")
    assert (legend(curve), curve.lines[0].get_color()) == (["mine"], "red")
    shown = plots.plot_means(estimator, (1, 2), cmap="viridis", interpolation="nearest")[0]
    assert shown.images[0].get_cmap().name == "viridis"
    matrix = plots.plot_confusion_matrix(estimator, X, y, display_labels=NAMES)
    assert [label.get_text() for label in matrix.get_xticklabels()] == NAMES.tolist()


@pytest.mark.parametrize("n", [2, 10, 20, 60])
def test_colours_differ(n: int) -> None:
    y = np.repeat(np.arange(n), 3)
    X = np.column_stack([y * 9.0, y % 2]) + np.random.default_rng(0).normal(size=(3 * n, 2))
    ax = plots.plot_decision_boundary(GaussianNB().fit(X, y), resolution=5)
    assert len({tuple(np.round(line.get_color(), 6)) for line in ax.lines}) == n
    names = [str(k) for k in range(n)]
    assert legend(ax) == ([*names, ELLIPSES] if n <= 10 else [ELLIPSES])
    assert [text.get_text() for text in ax.texts] == (names if n > 10 else [])


# --- matplotlib is optional -----------------------------------------------------------------------


def test_without_matplotlib_an_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nb = GaussianNB().fit([[0.0, 1], [1, 3], [5, 2], [7, 9]], [0, 0, 1, 1])
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)
    for plot in (
        lambda: plots.plot_decision_boundary(nb),
        lambda: plots.plot_means(nb, (1, 2)),
    ):
        with pytest.raises(ImportError, match=r"pip install streamgda\[plot\]"):
            plot()


@pytest.mark.parametrize(
    "plot",
    [
        lambda estimator: plots.plot_means(estimator, (2, 2)),
        lambda estimator: plots.plot_samples(estimator, (2, 2)),
        plots.plot_decision_boundary,
        lambda estimator: plots.plot_densities(estimator, feature=0),
        plots.plot_spectra,
        lambda estimator: plots.plot_confusion_matrix(estimator, [[0.0]], [0]),
    ],
)
def test_estimators_that_are_not_fitted_are_refused(plot):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        plot(QuadraticDiscriminantAnalysis())
