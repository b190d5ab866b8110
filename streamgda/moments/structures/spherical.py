"""Spherical covariances: one variance for all features, ``"spherical"``, ``"tied_spherical"``."""

from __future__ import annotations

import numpy as np

from streamgda.moments.structures.diagonal import Diagonal


class Spherical(Diagonal):
    """One variance for all features.

    The scatter still has an entry for each feature, so that constant features can be found; the
    variance is the mean over the features that vary.
    """

    kind = "spherical"
    sources = frozenset({"full", "diag", "spherical"})

    def covariance(self, scatter: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return np.asarray(super().covariance(scatter, weight).mean(axis=1))

    def n_averaged(self, n_varying: int, n_features: int) -> int:
        return max(1, n_varying)

    def constrain(self, covariances: np.ndarray, sphere: np.ndarray) -> None:
        covariances[...] = sphere

    def shown(self, covariances: np.ndarray) -> np.ndarray:
        return covariances[:, 0]
