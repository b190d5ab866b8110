"""The memory contract: plans, refusals, and processes that stay within their plan."""

import bisect
import json
import pickle
import re
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zarr
from allocations import assert_peak_below
from grids import in_turn
from naive import COVARIANCE_TYPES
from processes import output
from samples import blobs

from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    GaussianNB,
    accumulate,
    engine,
)
from streamgda.cli.evaluate import count
from streamgda.engine import plan
from streamgda.engine.plan import count_classes, plan_moments, plan_rows
from streamgda.errors import InvalidDataError, MemoryBudgetError
from streamgda.moments.covariance_types import structure_of
from streamgda.rows import Rows, as_source
from streamgda.runtime import memory, threads
from streamgda.runtime.memory import readable

MB = 10**6


class Stored:
    """An array in chunks whose rows are generated when they are read; labels if it has one axis."""

    def __init__(self, shape, chunks, dtype=np.uint8, shards=None):
        self.shape, self.chunks, self.shards = shape, chunks, shards
        self.dtype = np.dtype(dtype)
        self.reads = []

    def __getitem__(self, rows):
        self.reads.append((rows.start, rows.stop))
        rows = np.arange(rows.start, min(rows.stop, self.shape[0]))
        if len(self.shape) == 1:
            return (rows % 3).astype(self.dtype)
        columns = np.arange(self.shape[1])
        return ((rows[:, None] * 7 + columns * rows[:, None]) % 11).astype(self.dtype)


def labels_of(n_rows, dtype=np.uint8):
    return Stored((n_rows,), (n_rows,), dtype)


def slab_of(X, y=None, allowed=10**12, structure="full", model=False):
    y = labels_of(X.shape[0]) if y is None else y
    return plan_moments(
        Rows(X, y).opened(),
        moments=ClassMoments(structure),
        allowed=allowed,
        model=structure_of(structure) if model else None,
    )[0]


LABELS = {
    "text": ["ant", "bee", "cow"],
    "date": np.arange(3).astype("M8[D]"),
    "float": [0.0, 1.0, 2.0],
}


# --- the plan ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_rows", "held"), [(10**6, True), (10**7, False)])
def test_labels_that_are_counted_are_read_once_where_they_take_little(n_rows, held):
    X, y = Stored((n_rows, 64), (1000, 64), np.float64), Stored((n_rows,), (10**5,), np.int64)
    _, rows = plan_moments(Rows(X, y).opened(), moments=ClassMoments(), allowed=10**8)
    labels = rows.y
    assert labels.read_as_views == held
    counted = len(y.reads)
    assert counted
    assert all(start % 10**5 == 0 for start, _ in y.reads)  # chunks are decoded once, too
    np.testing.assert_array_equal(labels.read(4, 9), [1, 2, 0, 1, 2])
    assert (len(y.reads) == counted) == held


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int8", "bool", "float64"])
def test_labels_that_are_kept_are_those_that_are_stored(monkeypatch, dtype):
    monkeypatch.setattr(plan, "_LABEL_BYTES", 1 << 10)
    labels = (np.arange(9000) // 30 * 37 % 100 - 7).astype(dtype)  # slabs lack some
    stored = zarr.array(labels, chunks=(100,))
    kept = plan.decoded_once(Rows(stored, stored).opened(), 10**9)[0].y.whole()
    assert (kept.dtype, kept.codes.dtype) == (labels.dtype, np.uint8)
    np.testing.assert_array_equal(kept, labels)


def test_labels_are_kept_where_reading_them_beside_the_rows_takes_more():
    X, y = Stored((10**6, 8), (1000, 8)), Stored((10**6,), (10**6,), np.int64)
    _, rows = plan_moments(Rows(X, y).opened(), moments=ClassMoments("diag"), allowed=12 * MB)
    assert rows.y.read_as_views


@in_turn("kind, allowed", ["int", "text", "date", "float"], ["1GB", "120MB"])
def test_a_large_chunk_of_labels_is_decoded_once(kind, allowed):
    labels, asked = np.arange(10**6) % 300, Counter()
    if kind != "int":
        labels = np.array(LABELS[kind])[labels % 3]

    class Counted(zarr.storage.WrapperStore):
        async def get(self, key, prototype=None, byte_range=None):
            asked[key] += 1
            return await super().get(key, prototype, byte_range)

    store = Counted(zarr.storage.MemoryStore())
    dtype = str if kind == "text" else labels.dtype
    y = zarr.create_array(store, name="y", shape=labels.shape, dtype=dtype, chunks=labels.shape)
    y[...] = labels.astype(object) if kind == "text" else labels
    X = Stored((10**6, 20), (10_000, 20), np.float64)
    asked.clear()
    found = accumulate(X, y, covariance_type="diag", max_memory=allowed)
    assert asked["y/c/0"] == 1
    np.testing.assert_array_equal(found.classes, np.unique(labels))
    np.testing.assert_array_equal(found.class_count, np.unique(labels, return_counts=True)[1])


@pytest.mark.parametrize("name", ["evaluate", "search", "calibrate", "score"])
def test_labels_are_decoded_once_by_whatever_compares_them(monkeypatch, name):
    monkeypatch.setattr(plan, "_READ_BYTES", 1 << 16)  # many slabs
    n = 20_000
    X, y = Stored((n, 4), (1000, 4), np.float64), Stored((n,), (n,), bool)
    known = X[slice(0, n)], y[slice(0, n)]
    fitted = GaussianNB().fit(*known)
    X.reads.clear()
    y.reads.clear()
    {
        "evaluate": lambda: count(fitted, Rows.of(X, y)),
        "search": lambda: GaussianDiscriminantCV({"covariance_type": ["diag"]}).fit(X, y),
        "calibrate": lambda: fitted.calibrate(X, y),
        "score": lambda: fitted.score(X, y),
    }[name]()
    assert sum(min(stop, n) - start for start, stop in y.reads) == n
    assert len(X.reads) > 2


def test_slabs_are_cut_to_the_budget():
    X = Stored((10**6, 100), (1000, 100), np.float64)
    best = slab_of(X)
    assert best == (1 << 25) // 800 // 1000 * 1000
    cut = slab_of(X, allowed=100 * MB)
    assert 1000 <= cut < best
    assert cut % 1000 == 0
    with pytest.raises(MemoryBudgetError) as refusal:
        slab_of(X, allowed=MB)
    required, allowed = re.search(r"needs (.+?) of .* allows (.+?) \(", str(refusal.value)).groups()
    assert allowed == "1.0 MB"
    assert "covariance_type='tied'" in str(refusal.value)
    assert "(1000 at a time, as they are stored)" in str(refusal.value)
    assert isinstance(refusal.value, MemoryError)
    slab_of(X, allowed=float(required.removesuffix(" MB")) * MB + MB)  # is what helps


def test_nothing_is_read_before_a_refusal():
    X, y = Stored((10**5, 100), (10**5, 100), np.float64), labels_of(10**5)
    with pytest.raises(MemoryBudgetError, match="rechunk the store"):
        accumulate(X, y, max_memory="200MB")
    assert not X.reads
    model = GaussianNB().fit(*blobs(60, 100)).model_
    with pytest.raises(MemoryBudgetError):
        engine.score(model.predict, X, max_memory="200MB")
    assert not X.reads


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_moments_and_models_are_part_of_the_budget(covariance_type):
    d, k = 300, 200
    X, y = np.zeros((400, d)), np.arange(400) % k
    state = structure_of(covariance_type).state_bytes(k, d)
    for model, states in ((False, 2), (True, 4)):
        with pytest.raises(MemoryBudgetError):
            slab_of(X, y, states * state, covariance_type, model)
        assert slab_of(X, y, 2 * states * state + 20 * MB, covariance_type, model) == 400


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_many_classes_take_half_of_their_matrices(dtype):
    """In memory, sent and saved, and while rows are added and a model is computed."""
    d, k = 100, 300
    X = np.random.default_rng(0).integers(0, 256, (4 * k, d)).astype(dtype)
    y = np.tile(np.arange(k), 4)
    moments, square = ClassMoments().update(X, y), 8 * k * d**2
    sizes = moments.nbytes, len(pickle.dumps(moments, 5)), len(moments.to_bytes())
    assert max(sizes) < 0.56 * square
    state, held = moments._bytes(k, d)
    assert state < 0.56 * square
    assert_peak_below(0.6 * square, lambda: ClassMoments().update(X, y))
    some = slice(k // 2)  # of the classes; the others come later
    assert_peak_below(held, lambda: ClassMoments().update(X[some], y[some]).update(X, y))
    planned = plan._model_bytes(moments._structure, state, k, d) - state
    make = partial(GaussianDiscriminantAnalysis.from_moments, moments, reg_param=0.1)
    assert_peak_below(planned, lambda: make().model_)


def test_scratch_space_grows_with_threads_and_features(monkeypatch):
    X = Stored((10**6, 256), (1000, 256))
    slabs = {}
    for n in (2, 64):
        monkeypatch.setattr(threads, "n_threads", lambda n=n: n)
        slabs[n] = slab_of(X, allowed=600 * MB, structure="diag")
        assert ClassMoments("full")._scratch_bytes(10**5) > n * 8 * 2048**2
    assert slabs[64] < slabs[2]


def test_scratch_space_of_threads_stays_within_the_plan(use_threads):
    use_threads(8)
    n, d = 1 << 17, 256
    X, y, w = np.ones((n, d), np.uint8), np.arange(n) % 3, np.full(n, 0.5)  # is summed as float64
    moments = ClassMoments("diag").update(X[:9], y[:9], w[:9])
    held = moments._bytes(3, d)[1] + 2 * 64 * n  # and codes, copies of weights and so on
    assert_peak_below(held + moments._scratch_bytes(d), lambda: moments.update(X, y, w))
    with pytest.raises(AssertionError, match="peaks of"):
        assert_peak_below(16 * 2**20, lambda: moments.update(X, y, w))


def test_scores_are_part_of_the_budget():
    X = Stored((10**7, 2), (10**5, 2))
    model = GaussianNB().fit(*blobs(60, 2)).model_
    with pytest.raises(MemoryBudgetError):  # of those that are gathered
        engine.score(model.posterior, X, columns=3, max_memory="200MB")
    rows = Rows(as_source(X))
    narrow = plan_rows(rows, 400 * MB, out_row_bytes=8)
    assert plan_rows(rows, 400 * MB, out_row_bytes=800) < narrow


@pytest.mark.filterwarnings("ignore:9 of 100 features are constant")
@pytest.mark.parametrize(
    "name", ["predict", "predict_proba", "score", "calibrate", "leave_one_out_score"]
)
def test_methods_take_a_budget(name):
    """They read rows in slabs that fit, and return what they return of rows in memory."""
    X, y = Stored((50_000, 100), (1000, 100), np.float32), labels_of(50_000)
    held = X[slice(0, 50_000)], y[slice(0, 50_000)]
    fitted = GaussianNB().fit(*held)
    given = (X, y)
    if name in ("predict", "predict_proba"):
        held, given = held[:1], (X,)

    def method(*rows, **options):
        found = getattr(fitted, name)(*rows, **options)
        return found.temperature if name == "calibrate" else found

    X.reads.clear()
    with pytest.raises(MemoryBudgetError, match=r"max_memory allows 1\.0 MB"):
        method(*given, max_memory="1MB")
    assert not X.reads
    found, expected = method(*given, max_memory="40MB"), method(*held)
    assert max(stop - start for start, stop in X.reads) < 50_000
    np.testing.assert_allclose(found, expected, rtol=1e-6)  # of sums of float32
    np.testing.assert_allclose(method(*held, max_memory="100MB"), expected, rtol=1e-6)


@pytest.mark.parametrize("selected", [False, True])
def test_the_score_of_rows_in_slabs_is_that_of_all(monkeypatch, selected):
    monkeypatch.setattr(plan, "_READ_BYTES", 1 << 16)
    rng = np.random.default_rng(0)
    y = rng.choice(["a", "b", "none"], 5000)
    X, w = rng.normal(size=(5000, 4)), rng.random(5000)
    X[y == "b"] += 1
    nb = GaussianNB().fit(X, y)
    options = {}
    if selected:
        X[::50] = -9
        options = {"nodata": -9, "unlabelled": "none", "on_invalid": "skip"}
    labels = zarr.create_array({}, shape=y.shape, dtype=str, chunks=(500,))
    labels[...] = y.astype(object)
    stored = zarr.array(X, chunks=(100, 4)), labels
    assert nb.score(*stored, **options) == nb.score(X, y, **options)
    expected = nb.score(X, y, w, **options)
    assert nb.score(*stored, w, **options) == pytest.approx(expected, rel=1e-12)
    if selected:
        first = 50 * int((y[::50] != "none").argmax())
        with pytest.raises(InvalidDataError, match=f"invalid row: row {first};"):
            nb.score(*stored, **options | {"on_invalid": "raise"})


def test_a_subclass_that_predicts_otherwise_is_scored_by_that():
    class Always(GaussianNB):
        def predict(self, X):
            return np.ones(X.shape[0], int)

    X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    stored = zarr.array(X, chunks=(5, 2)), zarr.array(y, chunks=(5,))
    assert Always().fit(X, y).score(*stored) == 0.5


def test_scores_in_flight_are_part_of_the_budget():
    """Those being computed and written, and their encoded form, beside the rows of a slab."""
    rows = Rows(as_source(Stored((10**6, 100), (1000, 100), np.float64)))
    best = plan_rows(rows, 10**12)

    def fits(allowed, out_row_bytes):
        try:
            return plan_rows(rows, allowed, out_row_bytes=out_row_bytes) == best
        except MemoryBudgetError:
            return False

    least = {
        n: bisect.bisect_left(range(1 << 40), True, key=lambda allowed, n=n: fits(allowed, n))
        for n in (0, 8, 800)
    }
    assert least[800] - least[8] == 4 * 792 * best
    assert least[8] - least[0] == 4 * 8 * best


def test_labels_are_counted_only_where_it_matters():
    X = Stored((10**5, 50), (10**4, 50))
    few, many = labels_of(10**5), labels_of(10**5, np.int64)
    for allowed, labels, counted in (
        (10**12, many, False),
        (10**9, few, False),  # there are at most 256
        (10**9, many, True),
    ):
        labels.reads.clear()
        slab_of(X, labels, allowed)
        assert bool(labels.reads) == counted
    assert count_classes(as_source(many)) == 3
    assert count_classes(as_source(np.array(["a", "b", "a"]))) == 2


def test_large_shards_are_read_by_their_chunks():
    assert slab_of(Stored((10**6, 784), (1000, 784), shards=(20_000, 784))) == 40_000
    assert slab_of(Stored((10**6, 784), (1000, 784), shards=(10**6, 784))) == 42_000


def test_few_chunks_at_a_time():
    """Each is a task of zarr, even if it is small."""
    assert slab_of(Stored((10**6, 784), (1, 784))) == plan._SLAB_CHUNKS
    assert slab_of(Stored((10**6, 784), (4, 10))) == plan._SLAB_CHUNKS // 79 * 4


# --- the default budget -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("membership", "files", "limits"),
    [
        ("0::/\n", {"memory.max": "1000\n"}, [1000]),
        ("0::/\n", {"memory.max": "max\n"}, []),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "700"}, [700]),
        ("0::/not/in/this/namespace\n", {"memory.max": "300"}, [300]),
        (
            "5:cpu,memory:/job\n3:cpu:/x\n0::/\n",
            {"memory/job/memory.limit_in_bytes": "400", "memory/memory.limit_in_bytes": "900"},
            [400, 900],
        ),
        ("", {}, []),
    ],
)
def test_limits_of_control_groups(tmp_path, membership, files, limits):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "membership").write_text(membership)
    assert memory.cgroup_limits(tmp_path / "membership", tmp_path) == limits
    assert memory.cgroup_limits(tmp_path / "nowhere", tmp_path) == []


def test_the_default_is_the_memory_of_the_machine(monkeypatch):
    assert 0 < memory.spare_memory() < 2**50
    X, y = np.zeros((400, 300)), np.arange(400) % 200
    monkeypatch.setattr(memory, "spare_memory", lambda: 10 * MB)
    with pytest.raises(MemoryBudgetError, match=r"allows 10\.0 MB \(by default half of"):
        accumulate(X, y)
    accumulate(X, y, covariance_type="diag")
    accumulate(X, y, max_memory="2GB")


# --- a process of its own ----------------------------------------------------------------------

CHILD = Path(__file__).parents[1] / "peaks.py"


@pytest.fixture(scope="module")
def peaks(tmp_path_factory):
    """By case: the planned memory, and the most that a process took beyond what it had before."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("peaks are read from Linux's /proc")
    # Freed memory is returned at once; otherwise one peak would hide another.
    folder = tmp_path_factory.mktemp("peaks")
    measured = json.loads(output(CHILD, folder, MALLOC_MMAP_THRESHOLD_="65536"))
    for name, (allowed, peak) in measured.items():
        print(f"{name}: {readable(peak)} of {readable(allowed)}")
    return measured


@pytest.mark.slow
def test_no_case_takes_more_than_was_planned(peaks):
    assert len(peaks) >= 20
    assert {name: p for name, p in peaks.items() if p[1] > p[0]} == {}


@pytest.mark.slow
def test_the_peak_does_not_grow_with_the_rows(peaks):
    few, many = (peak for name, (_, peak) in peaks.items() if name.endswith("0 rows"))
    assert many < few + 8 * MB
