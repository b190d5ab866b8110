"""Checks of numeric parameters: all of them by name, however large the number."""

import numpy as np
import pytest
from samples import blobs

from streamgda import (
    ClassMoments,
    accumulate,
)
from streamgda.errors import InvalidParameterError
from streamgda.runtime.parameters import as_flag, as_integer, as_number, as_numbers, shown

X, y = blobs(60, 3, 2)
HUGE = 10**400


@pytest.mark.parametrize("given", ["9" * 400, "1.5" * 20, 10**30])
def test_budgets_that_no_machine_has(given):
    with pytest.raises(InvalidParameterError, match="max_memory="):
        accumulate(X, y, max_memory=given)


def test_arrays_are_no_operands():
    moments = ClassMoments().update(X, y)
    for operand in (np.empty(0), np.ones(2), np.array(3)):
        with pytest.raises(TypeError, match="operand"):
            moments + operand
        with pytest.raises(TypeError):
            operand + moments
    assert (np.float64(0.5) * moments).class_count.sum() == 30


def test_checks():
    assert as_number("a", np.float32(0.5), "a number") == 0.5
    assert as_integer("a", np.uint8(3), "an integer") == 3
    assert as_flag("a", np.bool_(True)) is True
    assert as_numbers("a", [1, 2], "numbers").dtype == np.float64
    for wrong in (True, "1", None, 1j, HUGE, np.nan, np.inf, [1.0], np.ma.masked):
        with pytest.raises(InvalidParameterError, match=r"a=.*; expected a number"):
            as_number("a", wrong, "a number")
    for wrong in (True, 1.0, "1", None, -1, 2**63, 10**5000):
        with pytest.raises(InvalidParameterError, match=r"a=.*; expected an integer"):
            as_integer("a", wrong, "an integer")
    for wrong in (2, "yes", None, np.ones(2)):
        with pytest.raises(InvalidParameterError, match=r"a=.*; expected True or False"):
            as_flag("a", wrong)
    for wrong in ([HUGE], [1j], ["1"], [[1], [2, 3]], np.ma.masked, np.ma.masked_equal([1, 2], 2)):
        with pytest.raises(InvalidParameterError, match=r"a=.*; expected numbers"):
            as_numbers("a", wrong, "numbers")
    assert len(shown(list(range(10_000)))) < 250
