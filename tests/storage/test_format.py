"""The format of saved files: what was written comes back to the bit, and damage is an error."""

import io
import json
import pickle
import re
import shutil
import struct
import subprocess
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from moment_checks import assert_same, some_moments
from processes import output
from samples import bits, blobs

import streamgda
from streamgda import (
    PCA,
    BernoulliNB,
    ClassMoments,
    DriftMonitor,
    GaussianNB,
    GroupedMoments,
    LinearDiscriminantAnalysis,
    MixtureDiscriminantAnalysis,
    PairwiseMoments,
    QuadraticDiscriminantAnalysis,
    Ridge,
    SlidingWindow,
)
from streamgda.errors import FormatError, InvalidParameterError
from streamgda.storage.format import HEAD, read, write

X, Y = blobs(60)
MOMENTS = ClassMoments().update(X, Y)
SAVED = {
    "moments": MOMENTS,
    "exact moments": some_moments("tied", "uint8"),
    "variances": some_moments("diag"),
    "no rows": ClassMoments(),
    "groups": GroupedMoments().update(X, Y, Y),
    "pairwise": PairwiseMoments().update(X, Y),
    "window": SlidingWindow(50).update(X, Y),
    "monitor": DriftMonitor(MOMENTS, window=20),
    "GaussianNB": GaussianNB().fit(X, Y),
    "BernoulliNB": BernoulliNB().fit(X > 0, Y),
    "QDA": QuadraticDiscriminantAnalysis().fit(X, Y),
    "LDA": LinearDiscriminantAnalysis().fit(X, Y),
    "mixture": MixtureDiscriminantAnalysis(2).fit(X, Y),
    "components": MixtureDiscriminantAnalysis(2, "diag").fit(X, Y).moments_,
    "ridge": Ridge().fit(X, Y),
    "PCA": PCA(2).fit(X),
    "penalties": Ridge(alphas=[0.1, 1.0]).partial_fit(X, X[:, 0]),
}
BYTES = {name: saved.to_bytes() for name, saved in SAVED.items()}
LABELS = {
    "int64": np.array([3, -1, 3, 7]),
    "uint8": np.array([3, 200, 3, 7], np.uint8),
    "uint64": np.array([2**64 - 1, 0, 5, 5], np.uint64),
    "float": np.array([1.0, -2.0, 0.0, 1e9]),
    "bool": np.array([True, False, True, True]),
    "strings": np.array(["b", "ä\n\0c", "", "\U0001f600"]),
    "objects": np.array(["b", "abc", "", "b"], object),
    "dates": np.array(["2020-01-01", "1969-07-21", "2020-01-01", "9999-12-31"], "M8[D]"),
}


@pytest.mark.parametrize("name", SAVED)
def test_every_kind_comes_back_to_the_bit(name, tmp_path):
    SAVED[name].save(tmp_path / "it.npz")
    again = streamgda.load(tmp_path / "it.npz")
    assert type(again) is type(SAVED[name])
    assert bits(again) == bits(SAVED[name])
    assert again.to_bytes() == BYTES[name] == (tmp_path / "it.npz").read_bytes()


def test_arrays_of_any_kind():
    arrays = {
        "scalar": np.array(3.5),
        "empty": np.empty((0, 4)),
        "flags": np.array([True, False]),
        "big-endian": np.array([1.5, 2.5], ">f8"),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "strided": np.arange(12)[::-3],
        "odd": np.array([np.nan, -0.0, np.inf]),
        "large": np.arange(3.0 * (1 << 19)).reshape(3, -1),
    }
    values, file = {"text": "ä\ud800", "nested": {"a": [1, 2.5, None]}}, io.BytesIO()
    write(file, "odds", {**values, "groups": {"a": {"of": arrays}, "b": {}}})
    kind, found = read(io.BytesIO(file.getvalue()))
    again = found["groups"]["a"].pop("of")
    assert (kind, found) == ("odds", {**values, "groups": {"a": {}, "b": {}}})
    assert again.keys() == arrays.keys()
    for name, array in arrays.items():
        native = array.astype(array.dtype.newbyteorder("="))
        np.testing.assert_array_equal(again[name], native, strict=True)
        assert again[name].tobytes() == native.tobytes()
        assert again[name].flags.owndata
        assert again[name].flags.writeable


def test_attributes_that_json_does_not_hold_raise():
    for value in (np.nan, [np.inf], {1, 2}, np.float32(1)):
        with pytest.raises(InvalidParameterError, match="cannot be saved as JSON"):
            write(io.BytesIO(), "odds", {"a": value})


def test_files_are_npz_without_times():
    with zipfile.ZipFile(io.BytesIO(BYTES["QDA"])) as archive:
        assert archive.testzip() is None
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    with np.load(io.BytesIO(BYTES["exact moments"])) as file:
        np.testing.assert_array_equal(file["total"], SAVED["exact moments"]._sums.total)
        assert json.loads(file[HEAD])["kind"] == "ClassMoments"


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())
def test_any_labels(labels):
    moments = some_moments(labels=labels)
    assert_same(ClassMoments.from_bytes(moments.to_bytes()), moments)


def forged(members, **options):
    """A file of these members with right checksums."""
    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(file, "w", **options) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def members_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def with_head(data, change):
    """The file with a head that a function has changed."""
    (name, text), *others = members_of(data)
    head = json.loads(text)
    return forged([(name, json.dumps(change(head) or head)), *others])


def claiming(**about):
    """The file with a head that says something else of an array."""

    def change(head):
        head["arrays"]["count"] |= about

    return with_head(BYTES["moments"], change)


def claims_to_be_long(data):
    """The sizes of a member, in both of its headers, are far beyond the end of the file."""
    long, size = bytearray(data), struct.pack("<II", 1 << 31, 1 << 31)
    at = data.index(b"count.npy")
    again = data.index(b"count.npy", data.index(b"PK\1\2"))
    long[at - 12 : at - 4] = long[again - 26 : again - 18] = size
    return bytes(long)


MEMBERS = members_of(BYTES["moments"])
FORGED = {
    "no members": forged([(HEAD, "")]),
    "no version": forged([(HEAD, "{}")]),
    "deeply nested": forged([(HEAD, "[" * 100_000)]),
    "long number": forged([(HEAD, '{"version": ' + "9" * 10_000 + "}")]),
    "unknown kind": with_head(BYTES["moments"], lambda head: head | {"kind": "other"}),
    "kind of no text": with_head(BYTES["moments"], lambda head: head | {"kind": ["ClassMoments"]}),
    "no attributes": with_head(BYTES["moments"], lambda head: head | {"attributes": None}),
    "no arrays": with_head(BYTES["moments"], lambda head: head | {"arrays": {}}),
    "arrays of another kind": with_head(BYTES["moments"], lambda head: head | {"arrays": 3}),
    "a member is missing": forged([*MEMBERS[:2], *MEMBERS[3:]]),
    "compressed": forged(MEMBERS, compression=zipfile.ZIP_DEFLATED),
    "1e12 numbers": claiming(shape=[10**12]),
    "more than memory can address": claiming(shape=[2**62, 0]),
    "negative": claiming(shape=[-1]),
    "objects": claiming(dtype="|O"),
    "texts of a gigabyte": claiming(dtype=f"<U{1 << 28}"),
    "another type": claiming(dtype="<f4"),
    "fewer numbers": claiming(shape=[1]),
    "no shape": claiming(shape=None),
    "a member of gigabytes": claims_to_be_long(BYTES["moments"]),
    "a member twice": forged([*MEMBERS, MEMBERS[1]]),
    "a member that is unknown": forged([*MEMBERS, ("other.npy", MEMBERS[1][1])]),
    "members in another order": forged([MEMBERS[0], *MEMBERS[:0:-1]]),
    "head at the end": forged([*MEMBERS[1:], MEMBERS[0]]),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_files_raise_before_they_take_memory(name):
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            ClassMoments.from_bytes(FORGED[name])
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert_same(ClassMoments.from_bytes(forged(MEMBERS)), MOMENTS)


class Other(GaussianNB):
    """An estimator that is not one of the package."""


OTHER = [
    (ClassMoments, b"", "it is not a file that streamgda saved"),
    (ClassMoments, b"hello" * 100, "it is not a file that streamgda saved"),
    (ClassMoments, pickle.dumps(3), "it is not a file that streamgda saved"),
    (ClassMoments, BYTES["moments"][:-100], "it is damaged or incomplete"),
    (ClassMoments, with_head(BYTES["moments"], lambda head: head | {"version": 99}), "it has vers"),
    (ClassMoments, BYTES["GaussianNB"], "it holds GaussianNB; expected ClassMoments"),
    (GaussianNB, BYTES["moments"], "it holds ClassMoments; expected GaussianNB"),
    (BernoulliNB, BYTES["GaussianNB"], "it holds GaussianNB; expected BernoulliNB"),
    (GaussianNB, Other().fit(X, Y).to_bytes(), "it holds 'Other', which this version"),
]


@pytest.mark.parametrize(("kind", "given", "message"), OTHER)
def test_other_files_are_told_from_damaged_ones(kind, given, message):
    with pytest.raises(FormatError, match=f"^data: {message}"):
        kind.from_bytes(given)


@pytest.mark.parametrize("as_given", [list, tuple, np.array, np.float32, pd.Series])
def test_priors_of_any_kind_are_saved(tmp_path, as_given):
    X, y = blobs()
    fitted = GaussianNB(priors=as_given([0.25, 0.25, 0.5])).fit(X, y)
    fitted.save(tmp_path / "nb")
    loaded = streamgda.load(tmp_path / "nb")
    assert loaded.priors == [0.25, 0.25, 0.5]
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, np.frombuffer])
def test_bytes_of_any_kind(kind):
    given = BYTES["moments"]
    data = kind(given, np.uint8) if kind is np.frombuffer else kind(given)
    assert_same(ClassMoments.from_bytes(data), MOMENTS)
    for other in ("moments.zip", None, 3, [1, 2], MOMENTS):
        with pytest.raises(TypeError, match="bytes-like object is required"):
            ClassMoments.from_bytes(other)


@pytest.mark.soak
def test_every_class_is_found_in_a_fresh_process(tmp_path):
    paths = [tmp_path / name for name in SAVED]
    for saved, path in zip(SAVED.values(), paths, strict=True):
        saved.save(path)
    code = "import sys, streamgda; print(*(type(streamgda.load(p)).__name__ for p in sys.argv[1:]))"
    found = output("-c", code, *map(str, paths)).split()
    assert found == [type(saved).__name__ for saved in SAVED.values()]


PAGE = (Path(__file__).parents[2] / "docs/recipes/saving.md").read_text()
PYTHON = next(b for b in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "def read_" in b)
(R,) = re.findall(r"```r\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("dtype", [float, np.uint8, np.float32])
def test_plain_python(tmp_path, dtype):
    names = {}
    exec(PYTHON.split("\n\n\nhead, arrays")[0], names)
    X, y = blobs()
    for saved in (GaussianNB().fit(X.astype(dtype), y), ClassMoments().update(X.astype(dtype), y)):
        saved.save(tmp_path / "it.npz", offset=3)
        head, arrays = names["read_saved"](tmp_path / "it.npz")
        assert (head["kind"], head["attributes"]["position"]) == (type(saved).__name__, 3)
        expected = np.load(tmp_path / "it.npz")
        for name, numbers in arrays.items():
            assert numbers.tolist() == expected[name].ravel().tolist()


CHECK = """
found <- sapply(1:3, covariance)
write.table(format(means, digits = 17), quote = FALSE, row.names = FALSE, col.names = FALSE)
write.table(format(t(found), digits = 17), quote = FALSE, row.names = FALSE, col.names = FALSE)
cat(saved$head$kind, saved$head$attributes$position, count, "\\n")
"""


def test_r(tmp_path):
    if shutil.which("Rscript") is None:
        pytest.skip("R is not installed")
    library = ["Rscript", "-e", "library(jsonlite)"]
    if subprocess.run(library, capture_output=True, check=False).returncode:
        pytest.skip("the package jsonlite of R is not installed")
    X, y = blobs()
    model = QuadraticDiscriminantAnalysis(store_covariance=True, ddof=1).fit(X, y)
    model.save(tmp_path / "model.npz", offset=7)
    (tmp_path / "read.R").write_text(R + CHECK)
    done = subprocess.run(
        ["Rscript", "read.R"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    *rows, last = done.stdout.splitlines()
    means, covariances = np.loadtxt(rows[:3]), np.loadtxt(rows[3:])
    np.testing.assert_allclose(means, model.means_, rtol=1e-15)
    np.testing.assert_allclose(covariances.reshape(3, 4, 4), model.covariance_, rtol=1e-12)
    assert last.split() == [type(model).__name__, "7", *map(str, model.class_count_)]
