"""Rows drawn from Gaussian classes, block by block: the same bits whoever draws which.

The rows come in blocks of a fixed size, each with a random stream of its own. So neither threads,
nor the chunks of what they are written to, nor what else is drawn has a say in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.linalg import lapack

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.models.covariance import Covariances
from streamgda.rows.labels import find
from streamgda.rows.sources import as_source
from streamgda.runtime import threads

_BLOCK = 1 << 11  # rows that share a random stream
_SLAB_BYTES = 1 << 22  # of rows that are drawn in one go, at least a block


@dataclass(frozen=True)
class Sampler:
    r"""Draws :math:`x = m_k + L_k z`, where :math:`L_k L_k^T = \Sigma_k` and z is white noise.

    The roots are of the covariances, not of their inverses, so that a covariance may be singular:
    along what its class does not vary in, neither do its samples.

    Attributes
    ----------
    classes : ndarray, shape (n_classes,)
    priors : ndarray, shape (n_classes,)
    means : ndarray, shape (n_classes, n_features)
        NaN for a class without rows.
    features : ndarray of int, shape (d,)
        Those that vary; the others have the value that they have in the means.
    roots : list of ndarray, shape (d, d) or (d,)
        One for each class; of a tied covariance the same for all.
    """

    classes: np.ndarray
    priors: np.ndarray
    means: np.ndarray
    features: np.ndarray
    roots: list[np.ndarray]

    @classmethod
    def of(cls, covariances: Covariances, means: np.ndarray, priors: np.ndarray) -> Self:
        """A sampler of classes with these covariances, of features that vary."""
        structure = covariances.structure
        with threads.serial_blas():
            calls = ((value, structure.matrix) for value in covariances.values)
            roots = threads.run(_root, calls)
        n = covariances.classes.size
        roots = roots if structure.per_class else roots * n
        return cls(covariances.classes, priors, means, covariances.features, roots)

    def codes_of(self, labels: np.ndarray) -> np.ndarray:
        """Numbers of the classes with those labels.

        Raises
        ------
        InvalidParameterError
            For labels that are no classes, or of a class without rows.
        """
        codes = find(labels, self.classes)
        without = np.isnan(self.means[:, 0])
        wrong = (codes < 0) | without[codes]
        if wrong.any():
            raise InvalidParameterError(
                f"cannot sample class {labels[wrong][0]!s}; the classes with rows are "
                f"{self.classes[~without].tolist()}"
            )
        return codes

    def draw(
        self, n_rows: int, entropy: list[int], codes: np.ndarray | None, step: int
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Slabs of rows in order, drawn on all threads, few of them at a time.

        Parameters
        ----------
        n_rows : int
        entropy : list of int
            What the random streams are seeded with.
        codes : ndarray of int, shape (n_rows,), optional
            The rows' classes; by default drawn from the priors.
        step : int
            Rows of a slab. What is drawn does not depend on it.

        Yields
        ------
        start : int
            Number of the first row.
        X : ndarray of float64, shape (step, n_features), or fewer at the end
        codes : ndarray of int, shape (step,)
        """

        def slab(start: int) -> tuple[int, np.ndarray, np.ndarray]:
            stop = min(start + step, n_rows)
            parts = []
            for first in range(start // _BLOCK * _BLOCK, stop, _BLOCK):
                last = min(first + _BLOCK, n_rows)
                wanted = slice(max(start - first, 0), stop - first)
                given = None if codes is None else codes[first:last]
                parts.append([a[wanted] for a in self._block(first, last, entropy, given)])
            X, drawn = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            return start, X, drawn

        return threads.imap(slab, ((start,) for start in range(0, n_rows, step)))

    def _block(
        self, first: int, last: int, entropy: list[int], codes: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows of a block, and their classes: those before `last` are the same whatever it is."""
        of_classes, of_rows = (
            np.random.Generator(np.random.Philox(seed))
            for seed in np.random.SeedSequence(entropy, spawn_key=(first // _BLOCK,)).spawn(2)
        )
        if codes is None:
            codes = of_classes.choice(self.classes.size, last - first, p=self.priors)
        noise = of_rows.standard_normal((last - first, self.features.size))
        X = self.means[codes]
        for k in np.unique(codes):
            rows, root = codes == k, self.roots[k]
            spread = noise[rows] @ root.T if root.ndim == 2 else noise[rows] * root
            X[np.ix_(rows, self.features)] += spread
        return X, codes


def _root(covariance: np.ndarray, matrix: bool) -> np.ndarray:
    """L with L L^T = covariance; by Cholesky's method with pivots, which ends at the rank."""
    if np.isnan(covariance).any():  # a class without rows, which is never drawn
        return np.zeros_like(covariance)
    if not matrix:
        return np.sqrt(covariance)
    scale = np.sqrt(covariance.diagonal())
    divisor = np.where(scale > 0, scale, 1.0)
    factor, pivots, rank, _ = lapack.dpstrf(covariance / divisor[:, None] / divisor, lower=1)
    root = np.empty_like(factor)
    root[pivots - 1] = np.tril(factor)
    root[:, rank:] = 0
    return np.ascontiguousarray(root * scale[:, None])


def sample(
    sampler: Sampler,
    n_rows: int,
    random: np.random.RandomState,
    codes: np.ndarray | None = None,
    out: Any = None,
) -> tuple[Any, Any]:
    """Draw rows and their labels into memory, into an array, or into a zarr group.

    Parameters
    ----------
    sampler : Sampler
    n_rows : int
    random : numpy.random.RandomState
        Asked once, for a seed.
    codes : ndarray of int, shape (n_rows,), optional
        The rows' classes; by default drawn from the priors.
    out : numpy.ndarray, zarr.Array, or path or zarr store to create a group in; optional
        The array gets the rows; the group gets arrays "X" and "y".

    Returns
    -------
    X, y : numpy.ndarray or zarr.Array

    Raises
    ------
    InvalidDataError
        For an array that does not take the rows.
    """
    shape = (n_rows, sampler.means.shape[1])
    slab_rows = max(1, _SLAB_BYTES // (8 * _BLOCK * shape[1])) * _BLOCK
    X, y = _targets(out, shape, sampler.classes.dtype, slab_rows)
    unit = as_source(X).shard  # whole chunks or shards are written once
    entropy = random.randint(0, 1 << 32, 4, np.uint64).tolist()
    step = -(-slab_rows // unit) * unit
    with threads.serial_blas():  # more threads would change its bits
        for start, rows, drawn in sampler.draw(n_rows, entropy, codes, step):
            X[start : start + len(rows)] = rows
            y[start : start + len(rows)] = sampler.classes[drawn]
    return X, y


def _targets(out: Any, shape: tuple[int, int], labels: np.dtype, slab_rows: int) -> tuple[Any, Any]:
    if out is None:
        return np.empty(shape), np.empty(shape[0], labels)
    if hasattr(out, "shape") and hasattr(out, "dtype"):
        if tuple(out.shape) != shape or np.dtype(out.dtype).kind != "f":
            raise InvalidDataError(
                f"out has shape {tuple(out.shape)} and dtype {out.dtype}, expected shape {shape} "
                f"and floating-point numbers"
            )
        return out, np.empty(shape[0], labels)
    import zarr  # noqa: PLC0415

    group = zarr.create_group(out)
    rows = min(slab_rows, shape[0])
    X = group.create_array("X", shape=shape, chunks=(rows, shape[1]), dtype=np.float64)
    # Strings of fixed width have no specification in zarr v3; those of any width do.
    kind: Any = str if labels.kind == "U" else labels
    return X, group.create_array("y", shape=shape[:1], chunks=(rows,), dtype=kind)
