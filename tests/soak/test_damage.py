"""Files that are damaged are errors or the same object, and invented contents a valid one."""

import io

import numpy as np
import pytest
from moment_checks import some_moments
from samples import bits, blobs

from streamgda import (
    PCA,
    DriftMonitor,
    GaussianNB,
    GroupedMoments,
    MixtureDiscriminantAnalysis,
    PairwiseMoments,
    QuadraticDiscriminantAnalysis,
    Ridge,
    RidgeClassifier,
    SlidingWindow,
)
from streamgda.errors import FormatError
from streamgda.storage.format import read, write

X, Y = blobs(60)
SAVED = [
    some_moments("tied", "uint8"),
    some_moments("diag"),
    GroupedMoments().update(X, Y, Y),
    PairwiseMoments().update(X, Y),
    SlidingWindow(50).update(X, Y),
    DriftMonitor(some_moments(), window=20),
    GaussianNB().fit(X, Y),
    QuadraticDiscriminantAnalysis().fit(X, Y),
    Ridge().fit(X, Y),
    PCA(2).fit(X),
    MixtureDiscriminantAnalysis(2, random_state=0).fit(X, Y),
    RidgeClassifier(alphas=[0.1, 1.0]).partial_fit(X, Y),
]
NAMES = [type(saved).__name__ for saved in SAVED]
FEW_AND_MANY = pytest.mark.parametrize("n", [40, pytest.param(1100, marks=pytest.mark.soak)])


def damaged(data, random):
    """Bytes with a changed bit or byte, a cut, noise, or a part that is left out or there twice."""
    mutant = np.frombuffer(data, np.uint8).copy()
    at = random.integers(mutant.size)
    part = slice(at, at + 1 + random.integers(40))
    match random.integers(6):
        case 0:
            mutant[at] ^= 1 << random.integers(8)
        case 1:
            mutant[at] ^= 1 + random.integers(255, dtype=np.uint8)
        case 2:
            mutant = mutant[:at]
        case 3:
            mutant[part] = random.integers(0, 256, mutant[part].size, np.uint8)
        case 4:
            mutant = np.delete(mutant, part)
        case 5:
            mutant = np.insert(mutant, at, mutant[part])
    return mutant.tobytes()


def assert_error_or_same(data, saved):
    """Dates and attributes of members, for example, do not count."""
    try:
        found = type(saved).from_bytes(data)
    except FormatError:
        return
    assert bits(found) == bits(saved)


@FEW_AND_MANY
@pytest.mark.parametrize("saved", SAVED, ids=NAMES)
def test_damaged_files_are_errors(saved, n):
    data, random = saved.to_bytes(), np.random.default_rng(0)
    for _ in range(n):
        if (mutant := damaged(data, random)) != data:
            assert_error_or_same(mutant, saved)


@pytest.mark.soak
def test_every_byte_counts():
    data = SAVED[1].to_bytes()
    for at in range(len(data)):
        mutant = bytearray(data)
        mutant[at] ^= 1 << at % 8
        for damage in (bytes(mutant), data[:at]):
            assert_error_or_same(damage, SAVED[1])


def changed_value(value, random):
    """The value with one of its parts replaced by another of the same or another type."""
    if isinstance(value, np.ndarray) and random.random() < 0.9:
        with np.errstate(all="ignore"):
            return changed_array(value, random)
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice([*value])
        changed = {**value, str(key): changed_value(value[key], random)}
        return changed if random.random() < 0.8 else {k: v for k, v in value.items() if k != key}
    if isinstance(value, list) and value and random.random() < 0.9:
        at = random.integers(len(value))
        return [*value[:at], changed_value(value[at], random), *value[at + 1 :]]
    others = [None, True, -1, 0, 2**70, 0.5, -1e300, "", "x", [], {}, [[]], {"a": 1}]
    return others[random.integers(len(others))]


def changed_array(array, random):
    """The array with another number, length or type."""
    array = array.copy()
    match random.integers(4):
        case 0 if array.size:
            odd = [0, 1, -1, 2**31, -(2**62)] if array.dtype.kind in "iu" else [np.nan, -1e308, 0]
            array.flat[random.integers(array.size)] = odd[random.integers(len(odd))]
        case 1 if array.ndim:
            array = array[: random.integers(len(array) + 1)]
        case 2:
            array = array.astype([np.float32, np.int64, bool][random.integers(3)])
        case _:
            array = array[None]
    return array


@FEW_AND_MANY
@pytest.mark.parametrize("saved", SAVED, ids=NAMES)
def test_invented_contents_are_errors_or_valid_objects(saved, n):
    """Their checksums are right."""
    random, n_errors = np.random.default_rng(1), 0
    kind, state = read(io.BytesIO(saved.to_bytes()))
    for _ in range(n // 4):
        file, changed = io.BytesIO(), changed_value(state, random)
        write(file, kind, changed if isinstance(changed, dict) else {})
        try:
            assert type(saved).from_bytes(file.getvalue()).to_bytes()
        except FormatError:
            n_errors += 1
    assert n_errors > n // 16
