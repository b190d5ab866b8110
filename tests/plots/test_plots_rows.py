"""Pictures of means, samples, spectra and learning curves."""

import matplotlib as mpl
import numpy as np
import pytest
from figures import NAMES, blobs, legend

from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    QuadraticDiscriminantAnalysis,
    plots,
)
from streamgda.errors import InvalidDataError, InvalidParameterError

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
pytestmark = pytest.mark.usefixtures("figures_closed")

# --- images ---------------------------------------------------------------------------------------


def images() -> tuple[np.ndarray, np.ndarray]:
    X, y = blobs(12)
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
    X, y = blobs(4)
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
    X, y = blobs(3)
    estimator = QuadraticDiscriminantAnalysis().partial_fit(np.hstack([X, X[:, :1]]), y)
    mine = plt.figure().subplots()
    assert plots.plot_spectra(estimator, mine) is mine
    assert np.isfinite(mine.lines[0].get_ydata()).tolist() == [True, True, True, False]
    assert plots.plot_spectra(estimator, n=2).lines[0].get_xdata().tolist() == [1, 2]
    with pytest.raises(InvalidParameterError, match="n=0; expected at least 1"):
        plots.plot_spectra(estimator, n=0)


def test_a_learning_curve_is_the_accuracy_so_far() -> None:
    X, y = blobs(4)
    batches = [(X[i : i + 20], y[i : i + 20]) for i in range(0, 200, 20)]
    ax = plots.plot_learning_curve(GaussianNB(), batches, X[200:], y[200:], n=4)
    rows, accuracy = ax.lines[0].get_data()
    assert rows[0] == 20
    assert rows[-1] == 200
    assert len(rows) < 8  # points thin out as rows grow in number
    for n, found in zip(rows.astype(int), accuracy, strict=True):
        assert found == GaussianNB().fit(X[:n], y[:n]).score(X[200:], y[200:])


def test_a_learning_curve_begins_where_a_model_can_be_made() -> None:
    X, y = blobs(4)
    order = np.argsort(y, kind="stable")
    batches = [(X[i : i + 3], y[i : i + 3]) for i in order.reshape(-1, 5)[:, 0]]
    ax = plots.plot_learning_curve(QuadraticDiscriminantAnalysis(), batches, X, y)
    assert 3 < ax.lines[0].get_xdata()[0] <= 180  # three rows of four features are too few
    for none in ([], [(X[:3], y[:3])]):
        with pytest.raises(InvalidDataError, match="no model can be computed from the batches"):
            plots.plot_learning_curve(QuadraticDiscriminantAnalysis(), none, X, y)
    with pytest.raises(InvalidParameterError, match="n=0"):
        plots.plot_learning_curve(GaussianNB(), batches, X, y, n=0)
