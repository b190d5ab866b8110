"""What the gallery is drawn of: MNIST, the points of document 002, Gaussians that are given."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from bench import data
from streamgda import ClassMoments, LinearDiscriminantAnalysis, accumulate

POINTS = "two-gaussians.csv"  # lies in a folder `data` beside that of the MNIST files


@dataclass(frozen=True)
class Material:
    """Rows and labels.

    Attributes
    ----------
    name : str
        Of the images and points.
    X, y, test, truth : ndarray
        Images to learn from and to test with, and their digits.
    points, targets : ndarray
        Of document 002: shape (n, 2) and (n,).
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    test: np.ndarray
    truth: np.ndarray
    points: np.ndarray
    targets: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Of an image."""
        side = math.isqrt(self.X.shape[1])
        return side, side

    @cached_property
    def moments(self) -> ClassMoments:
        """Of the images: all models of them are made of these."""
        return accumulate(self.X, self.y)

    @cached_property
    def lda(self) -> LinearDiscriminantAnalysis:
        """Of the images."""
        return LinearDiscriminantAnalysis.from_moments(self.moments, shrinkage=1e-3)


def stand_in() -> Material:
    """A little of the kind, to try the gallery out."""
    moments = exactly(
        [0.5, 0.5], [[-1, -1], [1, 0]], [[[1, 0.5], [0.5, 1]], [[1, -0.3], [-0.3, 2]]]
    )
    drawn = LinearDiscriminantAnalysis.from_moments(moments).sample(100, random_state=0)
    X, y, test, truth = data.stand_in(400, 100)
    X, test = (rows.reshape(-1, 28, 28)[:, ::2, ::2].reshape(-1, 14 * 14) for rows in (X, test))
    return Material("a stand-in", X, y, test, truth, drawn[0], drawn[1] - 1)


def real() -> Material:
    """MNIST, and the points of document 002.

    Raises
    ------
    FileNotFoundError
        Where they are not there.
    """
    folder = os.environ.get("STREAMGDA_MNIST")
    path = Path(folder or ".").parent / "data" / POINTS
    if not folder or not path.exists():
        raise FileNotFoundError(
            f"the gallery is of MNIST, in the folder that STREAMGDA_MNIST names, and of the points "
            f"of document 002, in ../data/{POINTS} seen from there; --quick does without"
        )
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    _, *images = data.mnist()
    return Material(
        "MNIST and the points of document 002", *images, table[:, :2], table[:, 2].astype(int)
    )


def exactly(
    priors: Sequence[float], means: Sequence[Sequence[float]], covariances: Sequence[object]
) -> ClassMoments:
    r"""Moments that have these priors, means and covariances; classes 1, 2, ...

    A Gaussian has the moments of 2 d points, on either side of its mean along each column of
    :math:`\sqrt{d} L`, where :math:`L L^T` is its covariance.
    """
    moments = ClassMoments()
    for number, (prior, mean, covariance) in enumerate(
        zip(priors, np.asarray(means, float), covariances, strict=True), 1
    ):
        d = mean.size
        steps = np.sqrt(d) * np.linalg.cholesky(np.asarray(covariance, float)).T
        rows = np.vstack([mean + steps, mean - steps])
        moments.update(rows, np.full(2 * d, number), np.full(2 * d, prior / (2 * d)))
    return moments
