"""Objects from pickles learn on in memory of their own, whatever memory their arrays came in."""

import pickle

import joblib
import numpy as np
import pytest
from samples import bits, blobs, results

from streamgda import (
    PCA,
    BernoulliNB,
    ClassMoments,
    DriftMonitor,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    GaussianNB,
    GroupedMoments,
    LinearDiscriminantAnalysis,
    MixtureDiscriminantAnalysis,
    PairwiseMoments,
    QuadraticDiscriminantAnalysis,
    RandomFeatures,
    Ridge,
    RidgeClassifier,
    SlidingWindow,
)

X, Y = blobs(60, 2)
MORE, LABELS = blobs(60, 2, seed=1)
BYTES = np.clip(20 * X + 100, 0, 255).astype(np.uint8)


def moments(kind, rows=X, **options):
    return kind(**options).update(rows, Y)


def watching(monitor):
    monitor.update(X[:50], Y[:50])
    return monitor


SCORING, IN_FOLDS = "joint_log_likelihood", (RidgeClassifier, GaussianDiscriminantCV)
LEARNED = {
    **{name: moments(ClassMoments, covariance_type=name) for name in ("full", "tied", "diag")},
    **{f"exact {name}": moments(ClassMoments, BYTES, covariance_type=name) for name in ("full",)},
    "random features": moments(ClassMoments, feature_map=RandomFeatures(5, random_state=0)),
    "weights": ClassMoments().update(X, Y, np.linspace(0.5, 2, 60)),
    "groups": GroupedMoments().update(X, Y, Y),
    "pairwise": moments(PairwiseMoments),
    "window": SlidingWindow(3).update(X, Y),
    "monitor": watching(DriftMonitor(moments(ClassMoments), window=20)),
    "GDA": GaussianDiscriminantAnalysis("diag").fit(X, Y),
    "QDA": QuadraticDiscriminantAnalysis().fit(X, Y),
    "LDA": LinearDiscriminantAnalysis().fit(X, Y),
    "GaussianNB": GaussianNB().fit(X, Y),
    "BernoulliNB": BernoulliNB().fit(X > 0, Y),
    "Ridge": Ridge().fit(X, Y),
    "RidgeClassifier": RidgeClassifier().fit(X, Y),
    "PCA": PCA(1).fit(X),
    "mixtures": MixtureDiscriminantAnalysis(2, random_state=0).fit(X, Y),
    "penalties": RidgeClassifier(alphas=[0.1, 1.0]).partial_fit(X, Y),
    "choice": GaussianDiscriminantCV({"reg_param": [0.1, 0.5]}, scoring=SCORING).partial_fit(X, Y),
}


def learn_on(learned):
    """Everything that changes the state in place, with many and with few rows."""
    learn = getattr(learned, "partial_fit", None) or learned.update
    groups = (LABELS,) if isinstance(learned, GroupedMoments) else ()
    for n in (60, 1, 3):
        learn(MORE[:n], LABELS[:n], *(each[:n] for each in groups))
    if hasattr(learned, "forget") and not isinstance(learned, IN_FOLDS):
        learned.forget(MORE[:2], LABELS[:2])
    return learned


def expected(name):
    return bits(learn_on(pickle.loads(pickle.dumps(LEARNED[name]))))


def pickled(name, as_buffer):
    buffers = []
    data = pickle.dumps(LEARNED[name], 5, buffer_callback=buffers.append)
    assert buffers
    return data, [as_buffer(buffer) for buffer in buffers]


@pytest.mark.parametrize("name", LEARNED)
def test_mapped_from_a_file(name, tmp_path):
    path = tmp_path / "learned"
    joblib.dump(LEARNED[name], path)
    before = path.read_bytes()
    for mode in ("r", "r+"):
        learned = joblib.load(path, mmap_mode=mode)
        if hasattr(learned, "predict"):
            assert results(learned, X).keys() == results(LEARNED[name], X).keys()
        assert bits(learn_on(learned)) == expected(name)
        assert path.read_bytes() == before


@pytest.mark.parametrize("as_buffer", [bytes, bytearray])
@pytest.mark.parametrize("name", LEARNED)
def test_buffers_beside_a_pickle(name, as_buffer):
    data, buffers = pickled(name, as_buffer)
    before = [bytes(buffer) for buffer in buffers]
    learned = pickle.loads(data, buffers=buffers)
    assert bits(learn_on(learned)) == expected(name)
    assert [bytes(buffer) for buffer in buffers] == before


@pytest.mark.parametrize("name", LEARNED)
def test_copies_and_merged_states_are_independent(name):
    data, buffers = pickled(name, bytes)
    given = pickle.loads(data, buffers=buffers)
    before = bits(given)
    copied = pickle.loads(pickle.dumps(given, 5))
    learn_on(copied)
    assert bits(given) == before
    if isinstance(given, ClassMoments):
        given += given.copy()
        assert given.class_count.sum() == 2 * LEARNED[name].class_count.sum()


def test_statistics_are_copied():
    held = ClassMoments().update(X, Y)
    given = {name: value for name, value in held.to_statistics().items() if value is not None}
    for value in given.values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    before = pickle.dumps(given)
    learn_on(ClassMoments.from_statistics(**given))
    assert pickle.dumps(given) == before
