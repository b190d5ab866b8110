"""Data of the gallery: MNIST, the points of document 002, and given Gaussians."""

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

POINTS = "two-gaussians.csv"  # in a folder `data` next to that of the MNIST files


@dataclass(frozen=True)
class Material:
    """Rows and labels.

    Attributes
    ----------
    name : str
        Name of the images and points.
    X, y, test, truth : ndarray
        Training and test images, and their digits.
    points, targets : ndarray
        Points of document 002, shape (n, 2), and their classes, shape (n,).
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
        """Shape of an image."""
        side = math.isqrt(self.X.shape[1])
        return side, side

    @cached_property
    def moments(self) -> ClassMoments:
        """Moments of the training images, from which all models are computed."""
        return accumulate(self.X, self.y)

    @cached_property
    def lda(self) -> LinearDiscriminantAnalysis:
        """LDA of the training images, without shrinkage, as in document 001."""
        return LinearDiscriminantAnalysis.from_moments(self.moments)


def stand_in() -> Material:
    """Return a little data of the same kind, for a trial run."""
    moments = exactly(
        [0.5, 0.5], [[-1, -1], [1, 0]], [[[1, 0.5], [0.5, 1]], [[1, -0.3], [-0.3, 2]]]
    )
    drawn = LinearDiscriminantAnalysis.from_moments(moments).sample(100, random_state=0)
    X, y, test, truth = data.stand_in(400, 100)
    X, test = (rows.reshape(-1, 28, 28)[:, ::2, ::2].reshape(-1, 14 * 14) for rows in (X, test))
    return Material("a stand-in", X, y, test, truth, drawn[0], drawn[1] - 1)


def real() -> Material:
    """Return MNIST and the points of document 002.

    Raises
    ------
    FileNotFoundError
        If a file is missing.
    """
    folder = os.environ.get("STREAMGDA_MNIST")
    path = Path(folder or ".").parent / "data" / POINTS
    if not folder or not path.exists():
        raise FileNotFoundError(
            f"the gallery needs MNIST in the folder named by STREAMGDA_MNIST, and the points of "
            f"document 002 in ../data/{POINTS} relative to it; --quick needs neither"
        )
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    _, *images = data.mnist()
    return Material(
        "MNIST and the points of document 002", *images, table[:, :2], table[:, 2].astype(int)
    )


def exactly(
    priors: Sequence[float], means: Sequence[Sequence[float]], covariances: Sequence[object]
) -> ClassMoments:
    r"""Return moments with these priors, means and covariances, for classes 1, 2, ...

    A Gaussian has the moments of 2 d points, on both sides of its mean along each column of
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
