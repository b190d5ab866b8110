"""Saved objects as bytes, sums of lists of moments, and both together on several machines."""

import numpy as np
import pytest
from moment_checks import assert_same, some_moments

from streamgda import ClassMoments, accumulate
from streamgda.errors import MergeError

BYTES = some_moments().to_bytes()


# --- bytes ------------------------------------------------------------------------------------


def test_equal_objects_give_equal_bytes():
    assert some_moments().to_bytes() == some_moments().to_bytes() == BYTES


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, np.frombuffer])
def test_bytes_of_any_kind(kind):
    data = kind(BYTES, np.uint8) if kind is np.frombuffer else kind(BYTES)
    assert_same(ClassMoments.from_bytes(data), some_moments())


@pytest.mark.parametrize("given", ["moments.zip", None, 3, [1, 2], some_moments()])
def test_other_things_are_no_bytes(given):
    with pytest.raises(TypeError, match="bytes-like object is required"):
        ClassMoments.from_bytes(given)


# --- sums -------------------------------------------------------------------------------------


def test_sums_of_lists():
    parts = [some_moments(), some_moments(labels=[8, 3, 9, 3]), ClassMoments()]
    before = [part.to_bytes() for part in parts]
    assert_same(sum(parts), parts[0] + parts[1] + parts[2])
    assert_same(sum(parts, ClassMoments()), parts[0] + parts[1])
    assert_same(sum(part for part in parts[:1]), parts[0])
    total = sum(parts[:1])
    total.update([[1.0, 2.0, 3.0]], [3])
    assert [part.to_bytes() for part in parts] == before
    assert sum([], ClassMoments("diag")).covariance_type == "diag"
    with pytest.raises(MergeError, match="do not combine"):
        sum([*parts, some_moments("diag")])


# --- several machines -------------------------------------------------------------------------


def integers(n=200, d=3):
    random = np.random.default_rng(5)
    X = random.integers(-300, 300, (n, d)).astype(np.int16)
    return X, random.choice(["a", "bee", "cat", "dog"], n)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_parts_of_integers_give_the_bytes_of_all_rows(covariance_type):
    """In any order; some parts lack classes, and one has no rows."""
    X, y = integers()
    cuts = np.array_split(np.argsort(y, kind="stable"), 6)
    parts = [accumulate(X[at], y[at], covariance_type=covariance_type) for at in cuts]
    parts.append(ClassMoments(covariance_type))
    sent = [part.to_bytes() for part in parts]
    whole = accumulate(X, y, covariance_type=covariance_type).to_bytes()
    for order in (sent, sent[::-1], sent[3:] + sent[:3]):
        received = [ClassMoments.from_bytes(data) for data in order]
        assert sum(received, ClassMoments(covariance_type)).to_bytes() == whole
        pairs = [a + b for a, b in zip(received[:-1:2], received[1::2], strict=True)]
        assert (sum(pairs) + received[-1]).to_bytes() == whole


def test_record_batches_to_moments_and_back():
    """As Spark's mapInArrow does: partitions are streams of record batches, some of them empty."""
    pa = pytest.importorskip("pyarrow")
    X, y = integers()
    table = pa.table({"u": X[:, 0], "v": X[:, 1], "w": X[:, 2], "kind": y})

    def through_a_pipe(batches, schema):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        return pa.ipc.open_stream(sink.getvalue())

    def moments_of(batches):
        moments = accumulate(batches, columns=(["u", "v", "w"], "kind"))
        yield pa.record_batch({"moments": pa.array([moments.to_bytes()], pa.binary())})

    def sum_of(batches):
        parts = [
            ClassMoments.from_bytes(data.as_buffer()) for b in batches for data in b["moments"]
        ]
        yield pa.record_batch({"moments": [sum(parts, ClassMoments()).to_bytes()]})

    sent = []
    for partition in (table[:70], table[70:70], table[70:], table[:0]):
        batches = through_a_pipe(partition.to_batches(max_chunksize=17), table.schema)
        sent += moments_of(iter(batches))
    halves = [*sum_of(sent[:2]), *sum_of(sent[2:]), *sum_of([])]
    (result,) = sum_of(halves)
    expected = accumulate(table.drop(["kind"]), y)
    assert result["moments"][0].as_py() == expected.to_bytes()
    assert ClassMoments.from_bytes(result["moments"][0].as_py()).feature_names == ("u", "v", "w")
