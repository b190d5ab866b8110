"""Tensors: those on a device are summed and scored there, those in memory are read as arrays.

The devices of `array_api_strict` refuse whatever the standard does not have, and conversion to
arrays. Tensors of PyTorch are on a GPU if there is one, or their device is said to be another one.
Those of CuPy need a GPU.
"""

import array_api_strict
import naive
import numpy as np
import pytest
import zarr
from moment_checks import TYPES, sample
from samples import METHODS
from sklearn.exceptions import DataConversionWarning
from states import bits

from streamgda import (
    PCA,
    BernoulliNB,
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    Ridge,
    accumulate,
)
from streamgda.errors import InvalidDataError
from streamgda.rows import tensors

DEVICE = array_api_strict.Device("device1")


def strict(values, device=DEVICE):
    return array_api_strict.asarray(np.asarray(values), device=device)


def torch_of(values):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.as_tensor(np.array(values), device=device)


@pytest.fixture(params=["strict", "torch", "cupy"])
def moved(request, monkeypatch):
    """A function that moves arrays to a device."""
    if request.param == "strict":
        return strict
    library = pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    if request.param == "cupy":
        if not library.is_available():
            pytest.skip("CuPy has no device here")
        return library.asarray
    monkeypatch.setattr(tensors, "in_memory", lambda device: False)
    library.set_num_threads(1)  # others would wait for the cores of other tests
    return torch_of


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(tensors, "_BLOCK_ELEMENTS", 1)
    monkeypatch.setattr(tensors, "_FETCHED_BYTES", 1000)


@pytest.fixture
def fetched(monkeypatch):
    """Numbers of values of the arrays that were copied from a device."""
    sizes = []

    def counted(values, as_numpy=tensors.as_numpy):
        array = as_numpy(values)
        sizes.append(array.size)
        return array

    monkeypatch.setattr(tensors, "as_numpy", counted)
    return sizes


def on_host(values):
    return np.asarray(tensors.as_numpy(values))


def assert_equal_moments(found, expected, rtol=1e-12):
    np.testing.assert_array_equal(found.classes, expected.classes)
    np.testing.assert_allclose(found.class_count, expected.class_count, rtol=1e-12)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-12)
    scale = np.abs(expected.covariance()).max()
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol, rtol * scale)


# --- sums -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_moments(moved, small_blocks, fetched, covariance_type, dtype, weighted):
    X, y = sample(3000, d=6, n_classes=7, dtype=dtype)
    y[y == 5] = 6  # no rows of a class
    weights = np.random.default_rng(0).integers(0, 4, 3000) / 4 if weighted else None
    given = None if weights is None else moved(weights)
    moments = ClassMoments(covariance_type).update(moved(X), moved(y), given)
    expected = naive.moments(X, y, weights)
    np.testing.assert_allclose(moments.class_count, expected.count)
    np.testing.assert_allclose(moments.means, expected.means, rtol=1e-12)
    covariance = naive.covariance(X, y, covariance_type, weights)
    rtol = 260 * 2.0**-24 if dtype == "float32" else 1e-12
    atol = rtol * np.abs(covariance).max()
    np.testing.assert_allclose(moments.covariance(), covariance, rtol, atol)
    assert max(fetched) < X.size / 4  # sums of classes, no rows

    before = ClassMoments(covariance_type).update(X[:1000] + 1, y[:1000])
    together = before.copy().update(moved(X), moved(y), given)
    assert_equal_moments(together, before + moments, 1e-5 if dtype == "float32" else 1e-12)


def test_labels_in_a_column(moved):
    X, y = sample(200, d=3)
    with pytest.warns(DataConversionWarning):
        qda = QuadraticDiscriminantAnalysis().fit(moved(X), moved(y[:, None]))
    expected = QuadraticDiscriminantAnalysis().fit(X, y).score(X, y)
    assert qda.score(moved(X), moved(y[:, None])) == expected == qda.score(X, y[:, None].tolist())


def test_what_takes_fewer_bytes_leaves_the_device(moved, fetched):
    X, y = sample(20, d=20)
    moments = ClassMoments("tied").update(moved(X), y)
    assert bits(moments) == bits(ClassMoments("tied").update(X, y))
    assert X.size in fetched


def test_rows_far_from_zero(moved):
    X, y = sample(2000, d=3)
    X += 1e8
    found = ClassMoments().update(moved(X), y)
    exact = naive.rounded(naive.exact_covariance(X[:200], y[:200]))
    np.testing.assert_allclose(ClassMoments().update(moved(X[:200]), y[:200]).covariance(), exact)
    single = (X - 1e8 + 1e4).astype(np.float32)
    close = ClassMoments().update(moved(single), y)
    bound = 260 * 2.0**-24
    assert_equal_moments(close, ClassMoments().update(single.astype(float), y), bound)
    assert_equal_moments(found, ClassMoments().update(X, y))


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_products_beyond_float32(moved, scale):
    X, y = sample(1000, d=3)
    X = (X * np.where(y == 0, scale, 1.0)[:, None]).astype(np.float32)
    found, expected = (ClassMoments().update(rows, y) for rows in (moved(X), X.astype(float)))
    for one, other in zip(found.covariance(), expected.covariance(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max())


def test_products_that_the_device_rounds(monkeypatch):
    """As TensorFloat-32 does, which keeps ten bits of a number."""

    def rounded(a):
        kept = np.asarray(tensors.as_numpy(a)).view(np.uint32) & np.uint32(0xFFFFE000)
        return strict(kept.view(np.float32))

    def matmul(a, b, exact=array_api_strict.matmul):
        single = a.dtype == array_api_strict.float32
        return exact(rounded(a), rounded(b)) if single else exact(a, b)

    monkeypatch.setattr(array_api_strict, "matmul", matmul)
    X, y = sample(1000, d=20, dtype="float32")
    expected = ClassMoments().update(X.astype(float), y)
    assert_equal_moments(ClassMoments().update(strict(X), y), expected)
    lda = LinearDiscriminantAnalysis().fit(X, y)
    np.testing.assert_allclose(
        on_host(lda.mahalanobis(strict(X))), lda.mahalanobis(X.astype(float)), rtol=1e-9
    )


def test_narrow_floats():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    X, y = sample(500, dtype="float16")
    tensor = torch.as_tensor(X).bfloat16()
    for values in (torch.as_tensor(X), tensor):
        rows, device = values.float().numpy(), tensors.DeviceArray(values)
        assert device.dtype == np.float32
        assert_equal_moments(ClassMoments().update(device, y), ClassMoments().update(rows, y), 1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_do_not_count(moved, weighted):
    X, y = sample(2000, d=4)
    weights = np.random.default_rng(0).integers(0, 3, 2000) * 1.0 if weighted else None
    given = None if weights is None else moved(weights)
    X[7, 2], X[30, 0], X[31, 1], X[500:600, 3] = np.nan, np.inf, -9, -9
    for rule in ({"on_invalid": "skip", "nodata": -9}, {"on_invalid": "skip"}):
        options = {"unlabelled": 1, **rule}
        found = accumulate(moved(X), moved(y), sample_weight=given, **options)
        expected = accumulate(X, y, sample_weight=weights, **options)
        assert_equal_moments(found, expected)
        assert found.n_skipped == expected.n_skipped > 0


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of numpy, behind the stand-in
@pytest.mark.parametrize(
    "change",
    [
        lambda X, y: (np.where(np.arange(X.size).reshape(X.shape) == 4321, np.nan, X), y),
        lambda X, y: (np.where(X[777] == X, -np.inf, X), y),
        lambda X, y: (X * 1e200, y),
        lambda X, y: (X[:, :3], y),
        lambda X, y: (X[:, :0], y),
        lambda X, y: (X, y[:-1]),
        lambda X, y: (X, y + 0.5),
        lambda X, y: (X * 1j, y),
        lambda X, y: (X[:, 0], y),
        lambda X, y: (X[:, :, None], y),
    ],
)
def test_errors_are_those_of_arrays(moved, change):
    X, y = sample(1000, d=5)
    moments, before = ClassMoments().update(X, y), ClassMoments().update(X, y)
    qda = QuadraticDiscriminantAnalysis().fit(X, y)
    X, y = change(X, y)
    with pytest.raises(InvalidDataError) as expected:
        moments.update(X, y)
    with pytest.raises(InvalidDataError) as found:
        moments.update(moved(X), moved(y))
    assert str(found.value) == str(expected.value)
    with pytest.raises(InvalidDataError) as found:
        qda.partial_fit(moved(X), moved(y))
    assert bits(moments) == bits(before) == bits(qda.moments_)


@pytest.mark.parametrize("failing", ["add_sums", "scatter"])
def test_an_error_of_the_device_changes_nothing(monkeypatch, failing):
    def fail(*arguments):
        raise RuntimeError("out of memory")

    X, y = sample(1000)
    moments = ClassMoments("tied").update(X, y)
    before = bits(moments)
    monkeypatch.setattr(tensors.DeviceArray, failing, fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        moments.update(strict(X), y)
    assert bits(moments) == before


def test_values_near_the_limits_of_float64(moved):
    X, y = sample(1000)
    X[:, 0] *= 1e145
    assert_equal_moments(
        ClassMoments("diag").update(moved(X), y), ClassMoments("diag").update(X, y)
    )


# --- passes ---------------------------------------------------------------------------------------


def test_accumulate(moved, fetched, tmp_path):
    X, y = sample(3000, d=6)
    expected = accumulate(X, y, covariance_type="tied")
    options = {"covariance_type": "tied", "checkpoint": tmp_path / "kept", "progress": False}
    for _ in range(2):  # the second call reads the file
        assert_equal_moments(accumulate(moved(X), moved(y), **options), expected)
    parts = [slice(i, i + 500) for i in range(0, 3000, 500)]
    batches = [(moved(X[part]), moved(y[part])) for part in parts]
    assert_equal_moments(accumulate(batches, covariance_type="tied"), expected)
    named = ({"image": moved(X[p].reshape(-1, 2, 3)), "label": moved(y[p])} for p in parts)
    found = accumulate(named, columns=("image", "label"), covariance_type="tied")
    assert_equal_moments(found, expected)
    assert max(fetched) < X.size / 4


def test_batches_that_cannot_be_summed_there(moved):
    X, y = sample(600, d=4)
    batches = [(moved(X), moved(y))]
    expected = accumulate(X, y, fourth_moments=True)
    found = accumulate(batches, fourth_moments=True)
    np.testing.assert_allclose(found.fourth, expected.fourth)
    pairwise = accumulate(batches, on_invalid="pairwise")
    np.testing.assert_allclose(pairwise.means, expected.means)
    with pytest.raises(InvalidDataError, match="batch 0: Input X contains NaN: row 5, column 1 is"):
        accumulate([(moved(np.where(np.arange(2400).reshape(600, 4) == 21, np.nan, X)), y)])


def test_learning(moved):
    X, y = sample(2000, d=5)
    ours = GaussianNB().fit(moved(X[:1000]), moved(y[:1000]))
    ours.partial_fit(moved(X[1000:]), moved(y[1000:]), half_life=500)
    theirs = GaussianNB().fit(X[:1000], y[:1000]).partial_fit(X[1000:], y[1000:], half_life=500)
    assert_equal_moments(ours.moments_, theirs.moments_, 1e-9)
    ours.fit(moved(X), y).forget(moved(X[:500]), moved(y[:500]))
    assert_equal_moments(ours.moments_, ClassMoments("diag").update(X[500:], y[500:]), 1e-9)
    shrunken = GaussianDiscriminantAnalysis(shrinkage="auto")
    np.testing.assert_allclose(
        shrunken.fit(moved(X), moved(y)).shrinkage_, shrunken.fit(X, y).shrinkage_
    )


# --- scores ---------------------------------------------------------------------------------------

CLASSIFIERS = {
    **{name: GaussianDiscriminantAnalysis(name) for name in TYPES},
    "QDA": QuadraticDiscriminantAnalysis(reg_param=0.1),
    "LDA": LinearDiscriminantAnalysis(),
    "tempered": GaussianDiscriminantAnalysis(temperature=2.0),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_scores(moved, small_blocks, fetched, name, dtype):
    X, y = sample(1000, d=15, n_classes=4, dtype=dtype)
    classifier = CLASSIFIERS[name].fit(X, y)
    classifier.moments_.declare([9])  # a class without rows
    classifier.refit()
    wide = X.astype(float)
    scores = {*METHODS, "relative_mahalanobis", "decision_function"} - {"p_values"}
    for method in sorted(each for each in scores if hasattr(classifier, each)):
        fetched.clear()
        found = getattr(classifier, method)(moved(X))
        assert max(fetched, default=0) <= 4  # largest values of blocks
        assert type(found) is type(moved(X))
        expected = getattr(classifier, method)(wide)
        rtol = 1e-4 if dtype == "float32" and method != "predict" else 1e-9
        np.testing.assert_allclose(
            on_host(found), expected, rtol, rtol * np.nanmax(np.abs(expected[..., :4]))
        )
    assert classifier.score(moved(X), moved(y)) == classifier.score(X, y)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_posteriors_of_the_oracle(covariance_type):
    X, y = sample(300, d=4)
    classifier = GaussianDiscriminantAnalysis(covariance_type).fit(strict(X), strict(y))
    _, joint = naive.gaussian_classifier(X, y, X, covariance_type)
    np.testing.assert_allclose(on_host(classifier.predict_joint_log_proba(strict(X))), joint)
    np.testing.assert_allclose(
        on_host(classifier.predict_proba(strict(X))), naive.posterior(joint), atol=1e-12
    )


@pytest.mark.parametrize("covariance_type", ["tied", "diag"])
def test_classes_far_from_each_other(moved, covariance_type):
    X, y = sample(500, d=4)
    X += 1e7 * y[:, None]
    classifier = GaussianDiscriminantAnalysis(covariance_type).fit(X, y)
    found, expected = on_host(classifier.mahalanobis(moved(X))), classifier.mahalanobis(X)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_labels(moved):
    X, y = sample(500)
    texts = np.array(["ant", "bee", "cat"])[y]
    predicted = GaussianNB().fit(moved(X), texts).predict(moved(X))
    assert isinstance(predicted, np.ndarray)  # no tensor holds texts
    np.testing.assert_array_equal(predicted, GaussianNB().fit(X, texts).predict(X))
    two = LinearDiscriminantAnalysis().fit(X, y > 0)
    assert on_host(two.predict(moved(X))).dtype == bool
    np.testing.assert_allclose(on_host(two.decision_function(moved(X))), two.decision_function(X))
    single = LinearDiscriminantAnalysis().fit(X.astype(np.float32), y)
    assert on_host(single.predict_proba(moved(X.astype(np.float32)))).dtype == np.float32


def test_scores_in_a_given_place(moved, tmp_path):
    X, y = sample(500)
    qda = QuadraticDiscriminantAnalysis().fit(X, y)
    out = np.empty((500, 3))
    assert qda.predict_proba(moved(X), out=out) is out
    np.testing.assert_allclose(out, qda.predict_proba(X))
    qda.predict(moved(X), out=tmp_path / "labels.zarr")
    np.testing.assert_array_equal(zarr.open(tmp_path / "labels.zarr")[:], qda.predict(X))


def test_rows_that_no_model_scores(moved):
    X, y = sample(500)
    qda, rows = QuadraticDiscriminantAnalysis().fit(X, y), X.copy()
    rows[123, 2] = np.nan
    for bad in (rows, X[:, :3]):
        with pytest.raises(ValueError, match=r"row 123, column 2|has 3 features") as expected:
            qda.predict(bad)
        with pytest.raises(InvalidDataError) as found:
            qda.predict(moved(bad))
        assert str(found.value) == str(expected.value).removesuffix(".")


# --- what is copied from the device ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "method", "options"),
    [
        (GaussianNB(), "predict", {"on_invalid": "fill"}),
        (GaussianNB(), "predict_proba", {"on_missing": "marginal"}),
        (GaussianNB(), "p_values", {}),
        (GaussianNB(), "mahalanobis", {"y": np.zeros(500, int)}),
        (QuadraticDiscriminantAnalysis(), "predict", {"reject": 0.01}),
        (BernoulliNB(binarize=0.0), "predict", {}),
        (PCA(2), "transform", {}),
        (Ridge(), "predict", {}),
    ],
)
def test_other_methods_copy_rows(moved, estimator, method, options):
    X, y = sample(500)
    estimator.fit(moved(X), moved(y))
    found = getattr(estimator, method)(moved(X), **options)
    assert type(found) is type(moved(X))
    expected = getattr(estimator.fit(X, y), method)(X, **options)
    np.testing.assert_allclose(on_host(found), expected, rtol=1e-9, atol=1e-12)


def test_rows_are_copied_slab_by_slab(fetched):
    X, y = sample(20_000, d=16)
    options = {"fourth_moments": True, "max_memory": "4MB"}
    found = accumulate(strict(X), strict(y), **options)
    assert_equal_moments(found, accumulate(X, y, **options))
    assert max(fetched, default=0) < X.size / 2


# --- tensors in memory ----------------------------------------------------------------------------


def test_tensors_in_memory_are_read_without_a_copy():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    X, y = sample(500)
    tensor = torch.as_tensor(X).requires_grad_()
    source = tensors.TensorRows.of(tensor, "X")
    assert np.shares_memory(source.whole(), X)
    qda = QuadraticDiscriminantAnalysis().fit(tensor, torch.as_tensor(y))
    assert bits(qda.moments_) == bits(QuadraticDiscriminantAnalysis().fit(X, y).moments_)
    for method in ("predict", "predict_proba", "score_samples"):
        found = getattr(qda, method)(tensor)
        assert isinstance(found, torch.Tensor)
        np.testing.assert_array_equal(found.numpy(), getattr(qda, method)(X))
    with pytest.raises(InvalidDataError, match="cannot be converted"):
        qda.predict(tensor.detach().to_sparse())
    with pytest.raises(InvalidDataError, match="X has no rows"):
        accumulate(torch.tensor(1.0), y)


def test_a_device_without_float64():
    X, y = sample(500, dtype="float32")
    device = array_api_strict.Device("no_float64")
    rows = strict(X, device)
    qda = QuadraticDiscriminantAnalysis().fit(rows, y)
    assert bits(qda.moments_) == bits(QuadraticDiscriminantAnalysis().fit(X, y).moments_)
    found = qda.predict_proba(rows)
    assert (found.device, found.dtype) == (device, array_api_strict.float32)
    np.testing.assert_allclose(on_host(found), qda.predict_proba(X), rtol=1e-6, atol=1e-30)
