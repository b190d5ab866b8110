"""Pictures show the results of the estimator: matrices, densities, images, spectra, curves."""

import sys

import matplotlib as mpl
import numpy as np
import pytest
from figures import NAMES, legend
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, QuadMesh
from samples import blobs
from scipy import stats
from sklearn.exceptions import NotFittedError

from streamgda import (
    BernoulliNB,
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

# --- confusion matrix -----------------------------------------------------------------------------


def test_confusion_matrix_shows_the_counts() -> None:
    X, y = blobs(n_features=2)
    estimator = LinearDiscriminantAnalysis().fit(X, NAMES[y])
    predicted = estimator.predict(X)
    counts = [[((y == i) & (predicted == name)).sum() for name in NAMES] for i in range(3)]
    ax = plots.plot_confusion_matrix(estimator, X, NAMES[y])
    assert [int(text.get_text()) for text in ax.texts] == np.ravel(counts).tolist()
    assert [label.get_text() for label in ax.get_yticklabels()] == NAMES.tolist()
    np.testing.assert_array_equal(ax.images[0].get_array(), counts)


def test_confusion_matrix_of_shares_in_given_axes() -> None:
    X, y = blobs(n_features=2)
    mine = plt.figure().subplots()
    ax = plots.plot_confusion_matrix(GaussianNB().fit(X, y), X, y, mine, normalize="true")
    assert ax is mine
    np.testing.assert_allclose(ax.images[0].get_array().sum(axis=1), 1)
    assert len(plt.get_fignums()) == 1


def test_confusion_matrix_has_a_row_for_labels_that_the_model_does_not_know() -> None:
    X, y = blobs(n_features=2)
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


def test_pictures_of_covariances_are_of_gaussians() -> None:
    X, y = blobs(n_features=2)
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
    X, y = blobs(n_features=4)
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
    listed = ", ".join(f"{at:.3g}" for at in thresholds(ax))
    assert legend(ax) == ["0", "1", "2", f"threshold{'s'[: len(expected) > 1]} {listed}"]
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
    X, y = blobs(n_features=2)
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
    X, y = blobs(n_features=2)
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


# --- images ---------------------------------------------------------------------------------------


def images() -> tuple[np.ndarray, np.ndarray]:
    X, y = blobs(n_features=12)
    return X, NAMES[y]


def test_means_are_shown_as_images_on_one_scale() -> None:
    X, y = images()
    estimator = GaussianNB().fit(X, y)
    axes = plots.plot_means(estimator, (3, 4))
    assert [ax.get_title() for ax in axes] == NAMES.tolist()
    for ax, name in zip(axes, NAMES, strict=True):
        shown = ax.images[0]
        np.testing.assert_allclose(shown.get_array(), X[y == name].mean(axis=0).reshape(3, 4))
        assert shown.get_clim() == (estimator.theta_.min(), estimator.theta_.max())


def test_means_of_colour_images_are_scaled_to_colours() -> None:
    X, y = images()
    axes = plots.plot_means(GaussianNB().fit(X, y), (2, 2, 3))
    shown = np.array([ax.images[0].get_array() for ax in axes])
    assert shown.shape == (3, 2, 2, 3)
    assert (shown.min(), shown.max()) == (0, 1)


def test_weights_are_those_of_the_linear_discriminants() -> None:
    lda = LinearDiscriminantAnalysis("lsqr").fit(*images())
    axes = plots.plot_means(lda, (3, 4), weights=True)
    shown = np.array([ax.images[0].get_array().ravel() for ax in axes])
    np.testing.assert_allclose(np.diff(shown, axis=0), np.diff(lda.coef_, axis=0))
    low, high = axes[0].images[0].get_clim()
    assert -low == high == np.abs(shown).max()
    with pytest.raises(InvalidParameterError, match="no linear discriminants"):
        plots.plot_means(GaussianNB().fit(*images()), (3, 4), weights=True)


def test_means_go_on_axes_that_are_given() -> None:
    estimator = GaussianNB().fit(*images())
    mine = plt.figure().subplots(2, 2)
    axes = plots.plot_means(estimator, (3, 4), mine)
    assert axes.tolist() == mine.ravel()[:3].tolist()
    assert not mine[1, 1].axison
    with pytest.raises(InvalidParameterError, match="2 axes given, expected 3"):
        plots.plot_means(estimator, (3, 4), mine[0])


def test_samples_are_those_the_estimator_draws() -> None:
    estimator = QuadraticDiscriminantAnalysis().fit(*images())
    axes = plots.plot_samples(estimator, (3, 4), n=2, random_state=7)
    assert axes.shape == (3, 2)
    drawn, _ = estimator.sample(6, 7, y=np.repeat(NAMES, 2))
    shown = [ax.images[0].get_array() for ax in axes.ravel()]
    np.testing.assert_allclose(shown, drawn.reshape(6, 3, 4))
    assert [ax.get_ylabel() for ax in axes[:, 0]] == NAMES.tolist()


def test_samples_are_of_classes_with_rows() -> None:
    X, y = images()
    estimator = GaussianNB().partial_fit(X, y, classes=[*NAMES, "dog"])
    mine = plt.figure().subplots(3, 3)
    axes = plots.plot_samples(estimator, (4, 3), n=2, axes=mine)
    assert [ax.get_ylabel() for ax in axes[:, 0]] == NAMES.tolist()
    assert sum(bool(ax.images) for ax in mine.ravel()) == 6


@pytest.mark.parametrize("shape", [(3, 3), (12,), (1, 2, 3, 2)])
def test_a_shape_that_rows_do_not_have(shape: tuple[int, ...]) -> None:
    estimator = GaussianNB().fit(*images())
    for plot in (plots.plot_means, plots.plot_samples):
        with pytest.raises(InvalidParameterError, match="12 features"):
            plot(estimator, shape)
    with pytest.raises(InvalidParameterError, match="n=0"):
        plots.plot_samples(estimator, (3, 4), n=0)


# --- spectra and learning curves ------------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_spectra_are_the_variances_along_the_principal_axes(covariance_type: str) -> None:
    X, y = blobs(n_features=4)
    estimator = GaussianDiscriminantAnalysis(covariance_type, reg_param=0.1).fit(X, NAMES[y])
    ax = plots.plot_spectra(estimator)
    covariances = estimator.covariance_ if covariance_type != "tied" else [estimator.covariance_]
    assert legend(ax) == (["all"] if covariance_type == "tied" else NAMES.tolist())
    for line, S in zip(ax.lines, covariances, strict=True):
        matrix = S if np.ndim(S) == 2 else np.diag(S * np.ones(4))
        np.testing.assert_allclose(line.get_ydata(), np.linalg.eigvalsh(matrix)[::-1], rtol=1e-9)
        assert line.get_xdata().tolist() == [1, 2, 3, 4]
    assert ax.get_yscale() == "log"


def test_spectra_leave_out_constant_features() -> None:
    X, y = blobs(n_features=3)
    estimator = QuadraticDiscriminantAnalysis().partial_fit(np.hstack([X, X[:, :1]]), y)
    mine = plt.figure().subplots()
    assert plots.plot_spectra(estimator, mine) is mine
    assert np.isfinite(mine.lines[0].get_ydata()).tolist() == [True, True, True, False]
    assert plots.plot_spectra(estimator, n=2).lines[0].get_xdata().tolist() == [1, 2]
    with pytest.raises(InvalidParameterError, match="n=0; expected at least 1"):
        plots.plot_spectra(estimator, n=0)


def test_a_learning_curve_is_the_accuracy_so_far() -> None:
    X, y = blobs(n_features=4)
    batches = [(X[i : i + 20], y[i : i + 20]) for i in range(0, 200, 20)]
    ax = plots.plot_learning_curve(GaussianNB(), batches, X[200:], y[200:], n=4)
    rows, accuracy = ax.lines[0].get_data()
    assert rows[0] == 20
    assert rows[-1] == 200
    assert len(rows) < 8  # points thin out as rows grow in number
    for n, found in zip(rows.astype(int), accuracy, strict=True):
        assert found == GaussianNB().fit(X[:n], y[:n]).score(X[200:], y[200:])


def test_a_learning_curve_begins_where_a_model_can_be_made() -> None:
    X, y = blobs(n_features=4)
    order = np.argsort(y, kind="stable")
    batches = [(X[i : i + 3], y[i : i + 3]) for i in order.reshape(-1, 5)[:, 0]]
    ax = plots.plot_learning_curve(QuadraticDiscriminantAnalysis(), batches, X, y)
    assert 3 < ax.lines[0].get_xdata()[0] <= 180  # three rows of four features are too few
    for none in ([], [(X[:3], y[:3])]):
        with pytest.raises(InvalidDataError, match="no model can be computed from the batches"):
            plots.plot_learning_curve(QuadraticDiscriminantAnalysis(), none, X, y)
    with pytest.raises(InvalidParameterError, match="n=0"):
        plots.plot_learning_curve(GaussianNB(), batches, X, y, n=0)


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
        with pytest.raises(ImportError, match=r'pip install "streamgda\[plot\]"'):
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
