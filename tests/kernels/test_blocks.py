"""Merging of sums against rationals."""

from fractions import Fraction

import numpy as np
import pytest

from streamgda.kernels import blocks


def exact(n, mean, square):
    """Moments of one class of one feature."""
    values = [float(n)], [float(n)], [[mean]], [[0.0]], [[square]]
    return tuple(np.array(each) for each in values)


def test_merging_follows_chan_and_is_undone():
    """In rationals: means of 1/2 and of 2, whatever is heavier; and at 1e15 from zero."""
    for n, m in ((1, 3), (3, 1), (2, 2)):
        for shift in (0.0, 1e15):
            a, b = exact(n, shift + 0.5, 4.0), exact(m, shift + 2.0, 0.25)
            blocks.merge(np.array([0]), 1.0, *b, *a)
            gap = Fraction(3, 2)
            square = Fraction(17, 4) + gap * gap * n * m / (n + m)
            assert a[0][0] == n + m
            assert a[4][0, 0] == pytest.approx(float(square), rel=1e-15)
            mean = (Fraction(n, 2) + 2 * m) / (n + m)
            assert (a[2][0, 0] - shift) + a[3][0, 0] == pytest.approx(float(mean), rel=1e-15)
            blocks.merge(np.array([0]), -1.0, *b, *a)
            assert a[0][0] == n
            assert a[4][0, 0] == pytest.approx(4.0, rel=1e-14)
            assert (a[2][0, 0] - shift) + a[3][0, 0] == pytest.approx(0.5, rel=1e-14)
            blocks.merge(np.array([0]), -1.0, *exact(n, shift + 0.5, 4.0), *a)
            assert not any(array.any() for array in a[:4])
