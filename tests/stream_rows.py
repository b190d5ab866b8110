"""Rows of a stream for the tests of drift, and moments of a reference."""

import numpy as np

from streamgda import ClassMoments


def some_rows(n, d=3, seed=0, shift=0.0, labels=("ant", "bee", "cow"), p=(0.5, 0.3, 0.2)):
    random = np.random.default_rng(seed)
    codes = random.choice(len(labels), n, p=p)
    mix = np.eye(d) + 0.3
    return random.normal(size=(n, d)) @ mix + codes[:, None] + shift, np.array(labels)[codes]


REFERENCE = ClassMoments().update(*some_rows(3000, seed=1))
X, Y = some_rows(700, seed=2, shift=0.1)
