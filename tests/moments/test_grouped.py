"""Moments of groups: those of each group's rows, however they came, and what follows from them."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moment_checks import (
    TYPES,
    assert_close,
    assert_moments,
    batches,
    fails,
    of,
    sample,
    together,
)
from samples import bits

from streamgda import ClassMoments, GroupedMoments
from streamgda.errors import InvalidDataError, InvalidParameterError, MergeError

EVERY_TYPE = pytest.mark.parametrize("covariance_type", TYPES)
X, Y = sample(400, 4, 3)
GROUPS = np.random.default_rng(1).choice(["east", "north", "south", "west"], 400)
GROUPS[Y == 2] = np.where(GROUPS[Y == 2] == "west", "east", GROUPS[Y == 2])  # One cell is empty.
WEIGHTS = np.random.default_rng(2).gamma(1, size=400)
BYTES = sample(400, 4, 3, dtype="uint8")[0]


def assert_grouped(grouped, X, y, groups, weights=None):
    """Check the moments of each group, of all, and of all but each, against the oracle."""
    expected = naive.grouped(groups, weights)
    assert list(grouped) == grouped.groups.tolist() == [*expected]
    assert grouped.classes.tolist() == np.unique(y if weights is None else y[weights > 0]).tolist()
    np.testing.assert_allclose(
        grouped.counts, naive.group_counts(y, groups, weights), rtol=1e-13, atol=0
    )
    for group, rows in expected.items():
        own = None if weights is None else weights[rows]
        found = grouped[group]
        assert found.classes.tolist() == grouped.classes.tolist()
        some = found.class_count > 0
        assert_moments(with_rows(found), X[rows], y[rows], own, 1e-11)
        assert np.isnan(found.means[~some]).all()
        if len(expected) > 1:
            others = ~rows if weights is None else ~rows & (weights > 0)
            own = None if weights is None else weights[others]
            reference = ClassMoments(grouped.covariance_type).update(X[others], y[others], own)
            assert_close(with_rows(grouped.without(group)), reference, 1e-7)
    assert_moments(with_rows(grouped.total()), X, y, weights, 1e-10)


def with_rows(moments):
    """The same moments without the classes that have no rows."""
    some = moments.class_count > 0
    return moments if some.all() else moments._keep(some)


# --- adding rows ------------------------------------------------------------------------------


@EVERY_TYPE
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
def test_moments_are_those_of_each_group(covariance_type, weights):
    grouped = GroupedMoments(covariance_type)
    for rows in (slice(0, 7), slice(7, 300), slice(300, 400)):  # Groups and classes appear late.
        own = None if weights is None else weights[rows]
        grouped.update(X[rows], Y[rows], GROUPS[rows], own)
    assert_grouped(grouped, X, Y, GROUPS, weights)


@EVERY_TYPE
def test_integers_are_exact(covariance_type):
    parts = [slice(0, 150), slice(150, 151), slice(151, 400)]
    grouped = GroupedMoments(covariance_type)
    for rows in parts:
        grouped.update(BYTES[rows], Y[rows], GROUPS[rows])
    assert grouped.exact
    for group in grouped:
        rows = group == GROUPS
        for found, kept in ((grouped[group], rows), (grouped.without(group), ~rows)):
            alone = ClassMoments(covariance_type).update(BYTES[kept], Y[kept])
            assert bits(with_rows(found)) == bits(alone)
    assert bits(grouped.total()) == bits(ClassMoments(covariance_type).update(BYTES, Y))
    assert bits(grouped) == bits(
        sum(GroupedMoments(covariance_type).update(BYTES[p], Y[p], GROUPS[p]) for p in parts[::-1])
    )


@given(batches(), st.integers(1, 5), st.randoms(use_true_random=False))
def test_chunks_and_order_do_not_matter(case, n_groups, random):
    covariance_type, parts = case
    owners = [np.array([random.randrange(n_groups) for _ in y], int) for _, y, _ in parts]
    whole, each = GroupedMoments(covariance_type), []
    for (rows, y, weights), groups in zip(parts, owners, strict=True):
        whole.update(rows, y, groups, weights)
        each.append(GroupedMoments(covariance_type).update(rows, y, groups, weights))
    random.shuffle(each)
    rows, y, weights = together(parts)
    owner = np.concatenate(owners)
    for grouped in (whole, sum(each[1:], each[0])):
        assert bits(GroupedMoments.from_bytes(grouped.to_bytes())) == bits(grouped)
        assert_close(grouped.total(), of(covariance_type, (rows, y, weights)), 1e-8)
        assert list(grouped) == [*naive.grouped(owner, weights)]
        for group in grouped:
            own = owner == group
            weight = None if weights is None else weights[own]
            alone = of(covariance_type, (rows[own], y[own], weight))
            assert_close(with_rows(grouped[group]), alone, 1e-8)


BAD, MISSING = X.copy(), GROUPS.astype(object)
BAD[399, 2], MISSING[3] = np.inf, None


@pytest.mark.parametrize(
    ("rows", "y", "groups", "message"),
    [
        (BAD, Y + 3, np.arange(400).astype(str), "row 399"),
        (X, Y, MISSING, r"groups\[3\] is missing .*'unknown'"),
        (X, Y, np.where(np.arange(400) == 5, np.nan, 1.0), r"groups\[5\] is missing"),
        (X, Y, GROUPS[:7], "400 labels but there are 7 groups"),
        (X[:, :2], Y, GROUPS, "features"),
        (X, Y, np.arange(400), "do not mix"),
        (X, Y.astype(str), GROUPS, "do not mix"),
        (X, Y, None, r"update\(X, y, groups\)"),
    ],
)
def test_a_failed_update_changes_nothing(rows, y, groups, message):
    grouped = GroupedMoments("tied").update(X, Y, GROUPS)
    fails(InvalidDataError, message, lambda held: held.update(rows, y, groups), grouped)


def test_rows_that_do_not_count_make_no_groups():
    weights = np.ones(400)
    weights[GROUPS == "north"] = 0
    weights[Y == 1] = 0
    grouped = GroupedMoments("tied").update(X, Y, GROUPS, weights)
    assert list(grouped) == ["east", "south", "west"]
    assert grouped.classes.tolist() == [0, 2]
    assert_grouped(grouped, X[weights > 0], Y[weights > 0], GROUPS[weights > 0])


# --- algebra ----------------------------------------------------------------------------------


@EVERY_TYPE
def test_sums_and_differences(covariance_type):
    first, second = GROUPS < "s", Y > 0
    a = GroupedMoments(covariance_type).update(X[first], Y[first], GROUPS[first])
    b = GroupedMoments(covariance_type).update(X[second], Y[second], GROUPS[second])
    both = a + b
    rows = np.concatenate([np.flatnonzero(first), np.flatnonzero(second)])
    assert_grouped(both, X[rows], Y[rows], GROUPS[rows])
    left = both - b
    assert list(left) == list(a)
    assert left.classes.tolist() == a.classes.tolist()
    for group in a:
        assert_close(with_rows(left[group]), with_rows(a[group]), 1e-9)
    nothing = a - a
    assert list(nothing) == []
    assert nothing.classes.size == 0
    for group in a + nothing:
        assert_close((nothing + a)[group], a[group])
    assert list(GroupedMoments(covariance_type) + a) == list(a)
    assert a["north"].class_count.sum() == (first & (GROUPS == "north")).sum()


TWICE = np.vstack([X, X]), [*Y, *Y]
NOT_THERE = r"in group 'e.*only rows that were added"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (GroupedMoments("diag").update(X, Y, GROUPS), "do not combine"),
        (GroupedMoments().update(X[:, :2], Y, GROUPS), "features"),
        (GroupedMoments().update(*TWICE, [*GROUPS, *GROUPS]), NOT_THERE),
        (GroupedMoments().update(*TWICE, ["elsewhere"] * 800), NOT_THERE),
    ],
)
def test_what_does_not_combine(other, message):
    a = GroupedMoments().update(X, Y, GROUPS)
    fails(MergeError, message, lambda a, b: a - b, a, other)
    if message != NOT_THERE:
        fails(MergeError, message, lambda a, b: a + b, a, other)
    with pytest.raises(TypeError):
        a + ClassMoments()


@EVERY_TYPE
def test_roll_up(covariance_type):
    grouped = GroupedMoments(covariance_type).update(X, Y, GROUPS)
    to = {"north": "upper", "south": "lower", "west": "lower"}
    new = np.array([to.get(group, group) for group in GROUPS.tolist()])
    assert_grouped(grouped.roll_up(to), X, Y, new)
    rolled = grouped.roll_up(len)
    assert_grouped(rolled, X, Y, np.char.str_len(GROUPS))
    rolled.update(X, Y, np.full(400, 9))
    assert 9 not in grouped
    assert rolled[9].class_count.sum() == 400
    assert len(GroupedMoments().roll_up({})) == 0
    with pytest.raises(InvalidParameterError, match="'up' is not among the groups"):
        grouped.roll_up({"up": "upper"})
    with pytest.raises(InvalidDataError, match="missing"):
        grouped.roll_up({}.get)
    with pytest.raises(TypeError):
        grouped.roll_up(["north"])


# --- the mapping ------------------------------------------------------------------------------


def test_it_is_a_mapping_of_copies():
    grouped = GroupedMoments().update(X, Y, GROUPS).declare([5])
    assert len(grouped) == 4
    assert "north" in grouped
    assert 3 not in grouped
    assert [*grouped.keys()] == grouped.groups.tolist()
    assert grouped.get("nowhere") is None
    for _, moments in grouped.items():
        moments.update(X, Y)
    grouped.total().update(X, Y)
    assert grouped.class_count.tolist() == [*np.bincount(Y), 0]
    assert grouped["west"].class_count[-1] == grouped.without("west").class_count[-1] == 0
    with pytest.raises(KeyError, match="'nowhere' is not among the groups"):
        grouped["nowhere"]
    with pytest.raises(InvalidParameterError, match="'nowhere' is not among the groups"):
        grouped.without("nowhere")
    assert GroupedMoments()  # It is true without groups, too.
    assert "empty" in repr(GroupedMoments())
    assert "4 groups and 4 classes" in repr(grouped)
    with pytest.raises(InvalidDataError):
        GroupedMoments().declare([1])


def test_dates_and_numbers_are_groups():
    days = np.datetime64("2024-01-01") + np.arange(400) % 3
    grouped = GroupedMoments("diag").update(X, Y, days)
    assert grouped[days[1]].class_count.sum() == 133
    assert grouped.roll_up(lambda day: day.month)[1].class_count.sum() == 400
    assert GroupedMoments("diag").update(X, Y, Y * 2.0)[2].class_count.sum() == (Y == 1).sum()
