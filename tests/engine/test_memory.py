"""The memory contract: plans, errors, and processes that stay within their plan."""

import pickle
import re
from functools import partial

import numpy as np
import pytest
import zarr
from naive import COVARIANCE_TYPES
from samples import assert_peak_below, blobs

from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    GaussianNB,
    GroupedMoments,
    accumulate,
    engine,
)
from streamgda.engine.passes import Accumulation
from streamgda.engine.plan import plan_rows
from streamgda.errors import MemoryBudgetError
from streamgda.moments.covariance_types import structure_of
from streamgda.rows import Rows
from streamgda.rows.source import as_source
from streamgda.runtime import memory

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
    model = structure_of(structure) if model else None
    asked = Accumulation(ClassMoments(structure), model=model, max_memory=allowed)
    return asked.planned(Rows(X, y).opened())[-1]


# --- the plan -------------------------------------------------------------------------------------


def test_slabs_are_cut_to_the_budget():
    X = Stored((10**6, 100), (1000, 100), np.float64)
    best = slab_of(X)
    assert best == (1 << 25) // 800 // 1000 * 1000
    cut = slab_of(X, allowed=100 * MB)
    assert 1000 <= cut < best
    assert cut % 1000 == 0
    with pytest.raises(MemoryBudgetError) as caught:
        slab_of(X, allowed=MB)
    required, allowed = re.search(r"needs (.+?) of .* allows (.+?) \(", str(caught.value)).groups()
    assert allowed == "1.0 MB"
    assert "covariance_type='tied'" in str(caught.value)
    assert "(1000 at a time, as they are stored)" in str(caught.value)
    assert isinstance(caught.value, MemoryError)
    slab_of(X, allowed=int(float(required.removesuffix(" MB")) + 1) * MB)  # It is what helps.


def test_moments_of_more_classes_than_expected_raise_before_they_are_allocated():
    X, y = zarr.array(np.zeros((4000, 300), np.float32), chunks=(100, 300)), np.arange(4000) % 200
    least = Accumulation(ClassMoments()).needed(200, 300)
    accumulate(X, y, max_memory=least + 100 * MB)

    def too_much():
        with pytest.raises(MemoryBudgetError, match="moments of 200 classes need"):
            accumulate(X, y, max_memory=least)

    assert_peak_below(least // 3, too_much)


def test_more_groups_than_there_is_room_for_raise():
    X, y, groups = np.zeros((5000, 300)), np.arange(5000) % 2, np.arange(5000) // 2
    options = {"groups": groups, "max_memory": "900MB"}
    with pytest.raises(MemoryBudgetError, match=r"2500 groups x 2 classes .* larger groups"):
        accumulate(X, y, **options)
    accumulate(X, y, covariance_type="diag", **options)


@pytest.mark.parametrize("name", ["accumulate", "search", "calibrate", "score"])
def test_a_large_chunk_of_labels_is_decoded_once(slabs_of, name):
    slabs_of(1 << 16)
    n = 20_000
    X, y = Stored((n, 4), (1000, 4), np.float64), Stored((n,), (n,), bool)
    fitted = GaussianNB().fit(X[slice(0, n)], y[slice(0, n)])
    X.reads.clear()
    y.reads.clear()
    {
        "accumulate": lambda: accumulate(X, y),
        "search": lambda: GaussianDiscriminantCV({"covariance_type": ["diag"]}).fit(X, y),
        "calibrate": lambda: fitted.calibrate(X, y),
        "score": lambda: fitted.score(X, y),
    }[name]()
    assert y.reads == [(0, n)]
    assert len(X.reads) > 2


def test_many_classes_take_half_of_their_matrices():
    """In memory, sent and saved, and while rows are added and a model is computed."""
    d, k = 80, 200
    X = np.random.default_rng(0).integers(0, 256, (4 * k, d)).astype(np.uint8)
    y = np.tile(np.arange(k), 4)
    moments, square = ClassMoments().update(X, y), 8 * k * d**2
    assert (
        max(moments.nbytes, len(pickle.dumps(moments, 5)), len(moments.to_bytes())) < 0.6 * square
    )
    state, held = moments._bytes(k, d)
    assert state < 0.6 * square
    some = slice(k // 2)  # Half of the classes come later.
    assert_peak_below(held, lambda: ClassMoments().update(X[some], y[some]).update(X, y))
    planned = Accumulation(moments, model=moments._structure).needed(k, d) - state
    make = partial(GaussianDiscriminantAnalysis.from_moments, moments, reg_param=0.1)
    assert_peak_below(planned, lambda: make().model_)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_planned_bytes_of_groups_hold(covariance_type):
    X, y = np.random.default_rng(0).normal(size=(4000, 60)), np.arange(4000) % 4
    groups = np.arange(4000) // 4 % 20
    grouped = GroupedMoments(covariance_type)
    state, adding = grouped._bytes(4, 60, 20)
    assert_peak_below(adding + 2 * X.nbytes, lambda: grouped.copy().update(X, y, groups))
    assert grouped.update(X, y, groups).nbytes == state


def test_scratch_space_of_threads_stays_within_the_plan(use_threads):
    use_threads(8)
    n, d = 1 << 17, 256
    # Bytes with weights are summed as float64.
    X, y, w = np.ones((n, d), np.uint8), np.arange(n) % 3, np.full(n, 0.5)
    moments = ClassMoments("diag").update(X[:9], y[:9], w[:9])
    held = moments._bytes(3, d)[1] + 2 * 64 * n  # Codes and copies of weights are small.
    assert_peak_below(held + moments._scratch_bytes(d), lambda: moments.update(X, y, w))


def test_scores_are_part_of_the_budget():
    X = Stored((10**7, 2), (10**5, 2))
    model = GaussianNB().fit(*blobs(60, 2)).model_
    with pytest.raises(MemoryBudgetError):  # Gathered scores must fit.
        engine.score(model.posterior, X, columns=3, max_memory="200MB")
    assert not X.reads
    rows = Rows(as_source(X))
    narrow, wide = (plan_rows(rows, 400 * MB, out_row_bytes=n)[0] for n in (8, 800))
    assert wide < narrow


@pytest.mark.filterwarnings("ignore:9 of 100 features are constant")
@pytest.mark.parametrize("name", ["accumulate", "predict", "predict_proba", "score"])
def test_rows_are_read_in_slabs_that_fit_or_not_at_all(name):
    X, y = Stored((50_000, 100), (1000, 100), np.float32), labels_of(50_000)
    held = X[slice(0, 50_000)], y[slice(0, 50_000)]
    fitted, given = GaussianNB().fit(*held), (X, y)
    method = getattr(fitted, name, lambda *both, **options: accumulate(*both, **options).means)
    if "predict" in name:
        held, given = held[:1], given[:1]
    X.reads.clear()
    with pytest.raises(MemoryBudgetError, match=r"max_memory allows 1\.0 MB .*rechunk the store"):
        method(*given, max_memory="1MB")
    assert not X.reads
    found, expected = method(*given, max_memory="40MB"), method(*held)
    assert max(stop - start for start, stop in X.reads) < 50_000
    np.testing.assert_allclose(found, expected, rtol=1e-6)  # Sums are float32.


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
    monkeypatch.setattr(memory, "spare_memory", lambda: 30 * MB)
    with pytest.raises(MemoryBudgetError, match=r"max_memory \(by default half of"):
        accumulate(X, y)
    accumulate(X, y, covariance_type="diag")
    accumulate(X, y, max_memory="2GB")
