"""Rows drawn from Gaussian classes, block by block and reproducible to the bit.

The rows are drawn in blocks of a fixed size, each from a separate random stream. So they depend
neither on the threads, nor on the chunks of the array they are written to, nor on other blocks.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.models.covariance import Covariances
from streamgda.moments.covariance_types import Structure
from streamgda.rows.labels import find
from streamgda.rows.source import as_source
from streamgda.runtime import threads
from streamgda.runtime.parameters import refuse
from streamgda.storage.opening import WHOLE, as_target, check_new, creating

_BLOCK = 1 << 11  # rows that share a random stream
_SLAB_BYTES = 1 << 22  # rows that are drawn at a time, at least a block


@dataclass(frozen=True)
class Sampler:
    r"""Sampler of :math:`x = m_k + L_k z`, where :math:`L_k L_k^T = \Sigma_k` and z is white noise.

    The roots are those of the covariances, not of their inverses, so that a covariance may be
    singular: samples do not vary in directions in which their class does not.

    Attributes
    ----------
    classes : ndarray, shape (n_classes,)
    priors : ndarray, shape (n_classes,)
    means : ndarray, shape (n_classes, n_features)
        NaN for a class without rows.
    features : ndarray of int, shape (d,)
        Features that vary; the others have the value of the means.
    structure : Structure
    roots : list of ndarray, shape (d, d) or (d,)
        One root for each covariance; zeros for a class without rows, which is never drawn.
    """

    classes: np.ndarray
    priors: np.ndarray
    means: np.ndarray
    features: np.ndarray
    structure: Structure
    roots: list[np.ndarray]

    @classmethod
    def of(cls, covariances: Covariances, means: np.ndarray, priors: np.ndarray) -> Self:
        """Return a sampler of classes with these covariances, of features that vary."""
        structure = covariances.structure
        with_rows = structure.group_sums(covariances.count) > 0
        if not np.isfinite(covariances.values[with_rows]).all():
            raise InvalidDataError("the covariances overflow float64; scale the data down")
        values = (np.nan_to_num(value) for value in covariances.values)
        roots = threads.run_serial_blas(structure.sampling_root, ((value,) for value in values))
        return cls(covariances.classes, priors, means, covariances.features, structure, roots)

    def draw(
        self, n_rows: int, entropy: list[int], codes: np.ndarray | None, step: int
    ) -> Generator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield slabs of rows in order, drawn on all threads, a few at a time.

        Parameters
        ----------
        n_rows : int
        entropy : list of int
            Seed of the random streams.
        codes : ndarray of int, shape (n_rows,), optional
            The rows' classes; by default drawn from the priors.
        step : int
            Rows of a slab; the rows drawn do not depend on it.

        Yields
        ------
        start : int
            Number of the first row.
        X : ndarray of float64, shape (step, n_features)
            The last slab may have fewer rows.
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
        """Return rows of a block, and their classes; those before `last` do not depend on it."""
        of_classes, of_rows = (
            np.random.Generator(np.random.Philox(seed))
            for seed in np.random.SeedSequence(entropy, spawn_key=(first // _BLOCK,)).spawn(2)
        )
        if codes is None:
            codes = of_classes.choice(self.classes.size, last - first, p=self.priors)
        noise = of_rows.standard_normal((last - first, self.features.size))
        X = self.means[codes]
        for k in np.unique(codes):
            rows, root = codes == k, self.roots[self.structure.group(k)]
            own = noise[rows]
            X[np.ix_(rows, self.features)] += own @ root.T if root.ndim == 2 else own * root
        return X, codes


def as_random_numbers(random_state: Any) -> np.random.RandomState:
    """Return the random numbers of a seed or generator; refuse anything else by name."""
    try:
        return check_random_state(random_state)
    except ValueError:
        expected = "an integer from 0 to 2**32 - 1, a RandomState, or None"
        raise refuse("random_state", random_state, expected) from None


def codes_to_sample(labels: np.ndarray, classes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the numbers of the classes with those labels.

    Parameters
    ----------
    labels, classes : ndarray
    values : ndarray, shape (n_classes, n_features)
        Values of the classes; NaN for a class without rows.

    Raises
    ------
    InvalidParameterError
        For labels that are not classes, or of a class without rows.
    """
    codes, without = find(labels, classes), np.isnan(values[:, 0])
    wrong = (codes < 0) | without[codes]
    if wrong.any():
        raise InvalidParameterError(
            f"cannot sample class {labels[wrong][0]!s}; the classes with rows are "
            f"{classes[~without].tolist()}"
        )
    return codes


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
        Source of the seed.
    codes : ndarray of int, shape (n_rows,), optional
        The rows' classes; by default drawn from the priors.
    out : numpy.ndarray, zarr.Array, or path or zarr store to create a group in; optional
        Rows are written to an array, or to the arrays "X" and "y" of a group.

    Returns
    -------
    X, y : numpy.ndarray or zarr.Array

    Raises
    ------
    InvalidDataError
        For an array of another shape or data type.
    """
    shape = (n_rows, sampler.means.shape[1])
    slab_rows = max(1, _SLAB_BYTES // (8 * _BLOCK * shape[1])) * _BLOCK
    X, y = _targets(out, shape, sampler.classes.dtype, slab_rows)
    unit = as_source(X).chunk_rows  # whole chunks are written once
    entropy = random.randint(0, 1 << 32, 4, np.uint64).tolist()
    step = -(-slab_rows // unit) * unit

    def draw() -> None:
        with closing(sampler.draw(n_rows, entropy, codes, step)) as slabs:
            for start, rows, drawn in slabs:
                X[start : start + len(rows)] = rows
                y[start : start + len(rows)] = sampler.classes[drawn]

    threads.call_serial_blas(draw)  # more threads would change its bits
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

    check_new(out)
    target = as_target(out, "out")
    with creating(target):
        group = zarr.create_group(target)
    rows = min(slab_rows, shape[0])
    X = group.create_array(
        "X", shape=shape, chunks=(rows, shape[1]), dtype=np.float64, config=WHOLE
    )
    # Strings of fixed width have no specification in zarr v3; those of any width do.
    kind: Any = str if labels.kind == "U" else labels
    return X, group.create_array("y", shape=shape[:1], chunks=(rows,), dtype=kind, config=WHOLE)
