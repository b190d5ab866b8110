"""The picture of a plane is of the model projected onto it, and legible."""

import warnings

import matplotlib as mpl
import numpy as np
import pytest
from figures import NAMES, legend
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from samples import blobs
from scipy import stats
from sklearn.datasets import load_iris

from streamgda import (
    FisherDiscriminant,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    LinearDiscriminants,
    QuadraticDiscriminantAnalysis,
    plots,
)
from streamgda.errors import InvalidParameterError

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
pytestmark = pytest.mark.usefixtures("figures_closed")

TYPES = ["full", "tied", "diag", "tied_diag", "spherical", "tied_spherical"]
PLANE = np.array([[1.0, 2, 0, -1, 0.5], [0.3, 0, 1, 1, 2]])
ELLIPSES = "39, 86 % of a class"  # 1 - exp(-1/2) and 1 - exp(-2)


def ellipses(ax: Axes) -> list[Ellipse]:
    return [patch for patch in ax.patches if isinstance(patch, Ellipse)]


def boundaries(ax: Axes) -> np.ndarray:
    """All vertices of the lines between classes."""
    paths = [p for c in ax.collections if isinstance(c, ContourSet) for p in c.get_paths()]
    return np.vstack([path.vertices for path in paths])


def scattered(ax: Axes) -> PathCollection:
    (points,) = [c for c in ax.collections if isinstance(c, PathCollection)]
    return points


def directions(ax: Axes, X: np.ndarray) -> np.ndarray:
    """The directions on which the rows were projected."""
    return np.linalg.lstsq(X, np.asarray(scattered(ax).get_offsets()), rcond=None)[0].T


def covariance_of(estimator: GaussianDiscriminantAnalysis, k: int) -> np.ndarray:
    values = np.asarray(estimator.covariance_)
    own = values if estimator.covariance_type.startswith("tied") else values[k]
    return own if np.ndim(own) == 2 else np.diag(own * np.ones(estimator.n_features_in_))


# --- classes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", TYPES)
def test_ellipses_and_colours_are_of_the_projected_gaussians(covariance_type: str) -> None:
    X, y = blobs(n_features=5)
    priors = [0.2, 0.5, 0.3]
    estimator = GaussianDiscriminantAnalysis(covariance_type, priors=priors).fit(X, y)
    ax = plots.plot_decision_boundary(estimator, X, y, directions=PLANE, resolution=30)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("direction 1", "direction 2")
    np.testing.assert_allclose(scattered(ax).get_offsets(), X @ PLANE.T)
    across, up = (np.linspace(*limits, 30) for limits in (ax.get_xlim(), ax.get_ylim()))
    z = np.array([[a, b] for b in up for a in across])
    joint = []
    for k, prior in enumerate(priors):
        covariance = PLANE @ covariance_of(estimator, k) @ PLANE.T
        mean = PLANE @ X[y == k].mean(axis=0)
        joint.append(prior * stats.multivariate_normal(mean, covariance).pdf(z))
        for deviations, ellipse in enumerate(ellipses(ax)[2 * k : 2 * k + 2], start=1):
            outline = ellipse.get_patch_transform().transform(ellipse.get_path().vertices)
            gaps = outline[::3] - mean  # the others are control points of Bézier curves
            distances = [gap @ np.linalg.solve(covariance, gap) for gap in gaps]
            np.testing.assert_allclose(np.sqrt(distances), deviations, rtol=2e-3)
    posterior = np.array(joint).T / np.sum(joint, axis=0)[:, None]
    shown = np.asarray(ax.images[0].get_array()).reshape(-1, 3)
    colours, *_ = np.linalg.lstsq(posterior, shown, rcond=None)
    np.testing.assert_allclose(posterior @ colours, shown, atol=1e-6)
    assert np.unique(colours.round(2), axis=0).shape == (3, 3)


def test_the_picture_of_two_features_is_of_the_estimator() -> None:
    X, y = blobs(n_features=2)
    estimator = QuadraticDiscriminantAnalysis().fit(X, y)
    ax = plots.plot_decision_boundary(estimator, resolution=300)
    image = ax.images[0]
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    pixel = (right - left) / 299, (top - bottom) / 299
    expected = left - pixel[0] / 2, right + pixel[0] / 2, bottom - pixel[1] / 2, top + pixel[1] / 2
    np.testing.assert_allclose(image.get_extent(), expected)
    assert image.origin == "lower"
    rows = [[x, v] for v in np.linspace(bottom, top, 300) for x in np.linspace(left, right, 300)]
    posterior = estimator.predict_proba(rows)
    shown = np.asarray(image.get_array()).reshape(-1, 3)
    colours, *_ = np.linalg.lstsq(posterior, shown, rcond=None)
    np.testing.assert_allclose(posterior @ colours, shown, atol=1e-6)
    # Lines are where two classes are equally probable, and wherever the class changes.
    vertices = boundaries(ax)
    log_odds = np.sort(estimator.predict_joint_log_proba(vertices), axis=1)
    scale = np.abs(log_odds[:, 2] - log_odds[:, 0])
    assert (log_odds[:, 2] - log_odds[:, 1] < 0.02 * scale + 0.05).all()
    across, height = np.linspace(left, right, 1000), X[:, 1].mean()
    codes = estimator.predict(np.column_stack([across, np.full(1000, height)]))
    changes = across[1:][codes[1:] != codes[:-1]]
    assert changes.size
    near = vertices[np.abs(vertices[:, 1] - height) < 2 * pixel[1], 0]
    assert all(np.abs(near - change).min() < (right - left) / 50 for change in changes)


def test_classes_without_rows_and_with_prior_zero_are_not_in_the_way() -> None:
    X, y = blobs(n_features=2)
    estimator = GaussianNB().partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2])
    ax = plots.plot_decision_boundary(estimator, resolution=20)
    assert legend(ax) == ["0", "1", ELLIPSES]
    assert len(ellipses(ax)) == 4
    never = GaussianNB(priors=[0.5, 0.5, 0]).fit(X, y)
    ax = plots.plot_decision_boundary(never, resolution=20)
    assert np.isfinite(ax.images[0].get_array()).all()
    assert len(ellipses(ax)) == 6


# --- points ---------------------------------------------------------------------------------------


def test_points_have_the_colours_of_their_classes_and_lie_within() -> None:
    X, y = blobs(n_features=2)
    X[0] = 60, -60
    estimator = GaussianNB().fit(X[1:], NAMES[y[1:]])
    ax = plots.plot_decision_boundary(estimator, X, NAMES[y], resolution=20)
    np.testing.assert_allclose(scattered(ax).get_offsets(), X)
    assert ax.get_xlim()[1] > 60
    assert ax.get_ylim()[0] < -60
    assert legend(ax) == [*NAMES, ELLIPSES]
    markers = {line.get_label(): line.get_color() for line in ax.lines}
    for face, label in zip(scattered(ax).get_facecolors(), NAMES[y], strict=True):
        np.testing.assert_allclose(face[:3], markers[label])


def test_points_of_unknown_and_of_no_labels() -> None:
    X, y = blobs(n_features=2)
    estimator = GaussianNB().fit(X[y < 2], y[y < 2])
    ax = plots.plot_decision_boundary(estimator, X, y, resolution=20)
    white = (scattered(ax).get_facecolors()[:, :3] == 1).all(axis=1)
    np.testing.assert_array_equal(white, y == 2)
    ax = plots.plot_decision_boundary(estimator, X, resolution=20)
    assert scattered(ax).get_facecolors().shape == (1, 4)


def test_of_many_rows_a_sample_has_the_same_share_of_each_class() -> None:
    codes = np.repeat([0, 1, 2, 3], [6000, 3000, 999, 1])
    X = np.random.default_rng(0).normal(size=(10_000, 2)) + 9 * codes[:, None]
    y = np.array([*NAMES, "dog"])[codes]  # of which the model does not know "cat"
    estimator = GaussianNB(var_smoothing=0.1).fit(X[codes != 2], y[codes != 2])
    ax = plots.plot_decision_boundary(estimator, X, y, resolution=5, max_points=100)
    shown = np.asarray(scattered(ax).get_offsets())
    found = [codes[(row == X).all(axis=1)][0] for row in shown]
    assert np.bincount(found).tolist() == [60, 30, 10]
    assert legend(ax)[-1] == "100 of 10,000 rows"
    whole = plots.plot_decision_boundary(estimator, X, y, resolution=5, max_points=None)
    assert len(scattered(whole).get_offsets()) == 10_000
    with pytest.raises(InvalidParameterError, match="max_points=0"):
        plots.plot_decision_boundary(estimator, X, max_points=0)


# --- directions -----------------------------------------------------------------------------------


def test_features_are_unit_directions_and_have_their_names_on_the_axes() -> None:
    pd = pytest.importorskip("pandas")
    X, y = blobs(n_features=5)
    frame = pd.DataFrame(X, columns=list("abcde"))
    estimator = QuadraticDiscriminantAnalysis().fit(frame, y)
    pictures = [
        plots.plot_decision_boundary(estimator, frame, y, resolution=30, **chosen)
        for chosen in (
            {"features": (3, 1)},
            {"features": ("d", "b")},
            {"directions": np.eye(5)[[3, 1]]},
        )
    ]
    for ax in pictures[:2]:
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("d", "b")
        shown, other = (a.images[0].get_array() for a in (ax, pictures[2]))
        np.testing.assert_array_equal(shown, other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.plot_decision_boundary(estimator, resolution=20)


def test_units_of_the_features_make_no_difference() -> None:
    X, y = blobs(n_features=3)
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
    found = directions(ax, X)
    fisher = FisherDiscriminant.from_moments(estimator.moments_).components
    cosines = np.abs((found * fisher).sum(axis=1))
    cosines /= np.linalg.norm(found, axis=1) * np.linalg.norm(fisher, axis=1)
    np.testing.assert_allclose(cosines, 1)
    # The covariance within classes is the unit matrix there.
    lda = LinearDiscriminantAnalysis().fit(X, y)
    for ellipse in ellipses(plots.plot_decision_boundary(lda, resolution=5))[::2]:
        np.testing.assert_allclose((ellipse.width, ellipse.height), 2, rtol=1e-9)


def test_beside_the_one_direction_of_two_classes_is_an_uncorrelated_one() -> None:
    X, y = blobs(n_features=5)
    X, y = X[y < 2], y[y < 2]
    estimator = LinearDiscriminantAnalysis(store_covariance=True).fit(X, y)
    ax = plots.plot_decision_boundary(estimator, X, y, resolution=5)
    assert ax.get_ylabel() == "principal axis within classes"
    vectors = directions(ax, X)
    within = vectors @ estimator.covariance_ @ vectors.T
    np.testing.assert_allclose(within, np.eye(2), atol=1e-9)
    along = np.linalg.solve(estimator.covariance_, np.diff(estimator.means_, axis=0)[0])
    np.testing.assert_allclose(np.abs(np.corrcoef(along, vectors[0])[0, 1]), 1)


def test_constant_features_and_single_classes_have_a_plane() -> None:
    X, y = blobs(n_features=4)
    constant = np.column_stack([X[:, :2], np.ones(len(X)), X[:, 2:]])
    with pytest.warns(UserWarning, match="constant"):
        estimator = QuadraticDiscriminantAnalysis().fit(constant, y)
    ax = plots.plot_decision_boundary(estimator, constant, y, resolution=5)
    other = plots.plot_decision_boundary(estimator, constant + np.eye(5)[2], y, resolution=5)
    shown = [scattered(a).get_offsets() for a in (ax, other)]
    np.testing.assert_allclose(shown[0], shown[1])  # whatever that feature is
    one = GaussianNB().fit(X, np.zeros(len(X)))
    ax = plots.plot_decision_boundary(one, resolution=5)
    assert ax.get_xlabel() == "principal axis within classes"
    ax = plots.plot_decision_boundary(estimator, features=(1, 2), resolution=5)
    assert np.isfinite(ax.images[0].get_array()).all()


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
    ],
)
def test_a_plane_that_is_not_there(arguments: dict[str, object]) -> None:
    estimator = GaussianNB().fit(*blobs(n_features=2))
    with pytest.raises(InvalidParameterError, match=r"features|directions"):
        plots.plot_decision_boundary(estimator, **arguments)
    assert not plt.get_fignums()


# --- legible --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 10, 20, 60])
def test_colours_differ(n: int) -> None:
    y = np.repeat(np.arange(n), 3)
    X = np.column_stack([y * 9.0, y % 2]) + np.random.default_rng(0).normal(size=(3 * n, 2))
    ax = plots.plot_decision_boundary(GaussianNB().fit(X, y), resolution=5)
    assert len({tuple(np.round(line.get_color(), 6)) for line in ax.lines}) == n
    names = [str(k) for k in range(n)]
    assert legend(ax) == ([*names, ELLIPSES] if n <= 10 else [ELLIPSES])
    assert [text.get_text() for text in ax.texts] == (names if n > 10 else [])


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


def test_levels_axes_and_colours_are_those_asked_for():
    X = np.random.default_rng(0).normal(size=(400, 2)) * [2, 1]
    y = np.arange(400) % 2
    X[:, 0] += 3 * y
    lda = LinearDiscriminantAnalysis().fit(X, y)
    ax = plots.plot_decision_boundary(
        lda, ax=Figure().subplots(), levels=(0.1, 0.9), principal_axes=True, deviations=(1,),
        colors=["red", "blue"], line_color="green",
    )  # fmt: skip
    found = [text.get_text() for text in ax.texts]
    assert found.count("$u_1$") == found.count("$u_2$") == 2
    assert {"0.1", "0.9"} <= {text for text in found if text.startswith("0.")}
    contours = [c for c in ax.collections if type(c).__name__ == "QuadContourSet"]
    assert [to_hex(c.get_edgecolor()[0]) for c in contours] == ["#008000", "#ff0000", "#0000ff"]
    for red in contours[1].get_paths()[0].vertices[::50]:  # where the posterior of class 0 is 0.1
        np.testing.assert_allclose(lda.predict_proba(red[None])[0, 0], 0.1, atol=0.01)
    for wrong in (
        {"levels": (0, 0.5)},
        {"levels": "half"},
        {"colors": ["red"]},
        {"colors": [1, 2]},
    ):
        with pytest.raises(InvalidParameterError, match=r"levels=|colors="):
            plots.plot_decision_boundary(lda, ax=Figure().subplots(), **wrong)


def test_parts_are_those_asked_for() -> None:
    X, y = blobs(n_features=2)
    lda = LinearDiscriminantAnalysis(priors=[0.6, 0.2, 0.2]).fit(X, y)
    meeting = LinearDiscriminants.of(lda).meeting(0, 1, 2)

    def drawn(*parts: str) -> Axes:
        return plots.plot_decision_boundary(lda, X, y, Figure().subplots(), parts=parts)

    data = drawn("points")
    assert not data.images
    assert not ellipses(data)
    assert legend(data) == ["0", "1", "2"]
    np.testing.assert_allclose(scattered(data).get_offsets(), X)
    assert not [c for c in drawn("classes", "regions").collections if isinstance(c, PathCollection)]
    pairs = drawn("pairs")
    lines = [c.get_paths()[0].vertices for c in pairs.collections if isinstance(c, ContourSet)]
    assert len(lines) == 3  # each through the point at which all meet, and on beyond it
    for line, (a, b) in zip(lines, ((0, 1), (0, 2), (1, 2)), strict=True):
        odds = LinearDiscriminants.of(lda).pair(a, b)
        assert np.abs(odds(line)).max() < 1e-6 * np.abs(odds(X)).max()
        along = (line - meeting) @ (line[-1] - line[0])
        assert along.min() < 0 < along.max()
    for wrong in ("points", ["shade"]):
        with pytest.raises(InvalidParameterError, match="parts="):
            plots.plot_decision_boundary(lda, parts=wrong)
