"""`Views`: the moments of other features, classes, labels or projections of the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from scipy import linalg

from streamgda.errors import InvalidParameterError, MergeError
from streamgda.moments.algebra import Algebra
from streamgda.moments.centred import OVERFLOW, ROUNDING, CentredSums, total_scatter
from streamgda.moments.fourth import merge_norms
from streamgda.moments.structures import check_covers, structure_of
from streamgda.rows import labels as label_codes
from streamgda.rows.arrays import as_slab, unmasked
from streamgda.rows.names import feature_numbers
from streamgda.runtime.parameters import as_integer, as_numbers, check_type


class Views(Algebra):
    """Views of class moments: new moments, computed without the rows."""

    def reduce(self, covariance_type: str) -> Self:
        """Return the moments of a simpler covariance type.

        Parameters
        ----------
        covariance_type : str
            ``"full"`` determines all others, ``"tied"`` and ``"diag"`` those without matrices or
            without a covariance per class, and so on. Norms are only kept if the type is the same.

        Returns
        -------
        ClassMoments
            Moments of that type.

        Raises
        ------
        MergeError
            If these moments do not determine it.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments().update([[1.0], [3.0], [6.0], [9.0]], [0, 0, 1, 1])
        >>> moments.reduce("tied").covariance(), moments.reduce("tied_diag").covariance()
        (array([[1.625]]), array([1.625]))
        """
        wanted = structure_of(covariance_type)
        check_covers(self._structure, wanted)
        if covariance_type == self.covariance_type:
            return self.copy()
        sums = self._sums
        if sums is not None:
            with np.errstate(over="ignore"):
                scatter, rounding = wanted.reduced(self._structure, sums.scatter), sums.rounding
            if rounding is not None and wanted.per_class != self._structure.per_class:
                rounding = wanted.group_sums(rounding)
            sums = sums.with_scatter(scatter.copy(), rounding)
        reduced = self._with_sums(self._classes, sums, covariance_type=covariance_type)
        if sums is not None:
            sums.checked()
        return reduced

    def select_features(self, index: Any) -> Self:
        """Return the moments of some of the features, in the order of `index`.

        Parameters
        ----------
        index : str, array-like of str, int or bool, or slice
            Features to keep, by name or by number.

        Returns
        -------
        ClassMoments
            Moments of these features.

        Raises
        ------
        InvalidParameterError
            For features that the moments do not have.

        Examples
        --------
        >>> import pandas as pd
        >>> from streamgda import ClassMoments
        >>> frame = pd.DataFrame({"length": [1.0, 3.0], "width": [0.5, 0.7], "mass": [2.0, 4.0]})
        >>> moments = ClassMoments().update(frame, ["ant", "ant"])
        >>> moments.select_features(["mass", "length"]).means
        array([[3., 2.]])
        """
        if self._sums is None:
            self._refuse_empty()
        d, names = self._sums.n_features, self._feature_names
        index = feature_numbers(index, names, d, "index")
        try:
            if not isinstance(index, slice):
                index = unmasked(as_slab(index, "index"), "index")
            index = np.arange(d)[index]
        except IndexError as error:
            raise InvalidParameterError(f"index does not fit {d} features: {error}") from None
        index = np.atleast_1d(index)
        if index.ndim != 1 or not index.size:
            raise InvalidParameterError(
                f"index has shape {index.shape}; expected one feature or more"
            )
        scatter = self._structure.select_features(self._sums.scatter, index)
        selected = self._with_sums(self._classes, self._sums.with_features(index, scatter))
        selected._feature_names = None if names is None else tuple(names[i] for i in index)
        return selected

    def select_classes(self, labels: Any) -> Self:
        """Return the moments of some of the classes.

        Parameters
        ----------
        labels : array-like
            Labels to keep.

        Returns
        -------
        ClassMoments
            Moments of these classes.

        Raises
        ------
        InvalidParameterError
            For labels that are not among the classes.
        MergeError
            If the scatter is pooled over all classes.

        See Also
        --------
        drop_classes : All classes but some.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments().update([[1.0], [3.0], [6.0]], ["ant", "bee", "cat"])
        >>> moments.select_classes(["ant", "cat"]).means
        array([[1.],
               [6.]])
        """
        kept = np.zeros(self._classes.size, bool)
        kept[self._numbers(labels, "labels")] = True
        return self._keep(kept)

    def drop_classes(self, labels: Any) -> Self:
        """Return the moments of all classes but some.

        They are the moments of the other rows, to the bit: a model without these classes needs no
        second pass.

        Parameters
        ----------
        labels : array-like
            Labels to drop.

        Returns
        -------
        ClassMoments
            Moments of the other classes.

        Raises
        ------
        InvalidParameterError
            For labels that are not among the classes.
        MergeError
            If the scatter is pooled over all classes.

        See Also
        --------
        select_classes : Some of the classes.
        GaussianNB.retire : Drop classes of a fitted estimator.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments().update([[1.0], [3.0], [9.0]], ["ant", "ant", "clouds"])
        >>> moments.drop_classes(["clouds"]).classes
        array(['ant'], dtype='<U6')
        """
        kept = np.ones(self._classes.size, bool)
        kept[self._numbers(labels, "labels")] = False
        return self._keep(kept) if self._sums is not None else self.copy()

    def _numbers(self, labels: Any, what: str) -> np.ndarray:
        """Return the numbers of the classes with these labels; `what` names them in errors."""
        wanted = label_codes.as_labels(labels, what)
        at = label_codes.find(wanted, self._classes)
        if (at < 0).any():
            raise InvalidParameterError(
                f"{what} {wanted[at < 0].tolist()} are not among the classes "
                f"{self._classes.tolist()}"
            )
        return at

    def relabel(self, mapping: Mapping[Any, Any]) -> Self:
        """Return the moments under other labels; classes that get one label become one class.

        Parameters
        ----------
        mapping : dict
            Old label to new label; classes not named keep theirs.

        Returns
        -------
        ClassMoments
            Moments of the renamed classes.

        Raises
        ------
        InvalidParameterError
            For labels that are not among the classes.
        InvalidDataError
            For new labels of another kind than those that stay.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments().update([[1.0], [3.0], [6.0]], ["ant", "bee", "cat"])
        >>> merged = moments.relabel({"ant": "insect", "bee": "insect"})
        >>> merged.classes, merged.class_count
        (array(['cat', 'insect'], dtype='<U6'), array([1, 2]))
        """
        check_type("mapping", mapping, Mapping, "a dict of old labels to new ones")
        if not mapping:
            return self.copy()
        renamed = self._numbers([*mapping], "labels")
        new = label_codes.as_labels([*mapping.values()], "new labels")
        kept = np.delete(np.arange(self._classes.size), renamed)
        classes = label_codes.join_labels(self._classes[kept], np.unique(new))
        at = np.empty(self._classes.size, np.int64)
        at[kept] = label_codes.find(self._classes[kept], classes)
        at[renamed] = label_codes.find(new, classes)
        assert self._sums is not None  # there are classes
        sums = self._sums.placed(at, classes.size)
        norms = None
        if self._norms is not None:
            norms = merge_norms(self._norms_as_part(1, at), classes.size)
        return self._with_sums(classes, sums, norms)

    def pca(self, n_components: int) -> np.ndarray:
        """Return the principal components of all rows, from the scatter within and between classes.

        Parameters
        ----------
        n_components : int
            At most the number of features.

        Returns
        -------
        ndarray, shape (n_components, n_features)
            Orthonormal rows, by falling variance; the largest entry of each is positive.

        Raises
        ------
        InvalidParameterError
            For more components than features.
        MergeError
            If these moments have no covariances between features.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import ClassMoments
        >>> ClassMoments().update(*load_iris(return_X_y=True)).pca(2).round(3)
        array([[ 0.361, -0.085,  0.857,  0.358],
               [ 0.657,  0.73 , -0.173, -0.075]])
        """
        self._structure.check_covariances("pca")
        sums = self.centred()
        d = sums.n_features
        n_components = as_integer("n_components", n_components, f"1 to {d}", 1, d)
        with np.errstate(over="ignore", invalid="ignore"):
            total = total_scatter(sums)
        if not np.isfinite(total).all():
            raise MergeError(OVERFLOW)
        _, vectors = linalg.eigh(total, subset_by_index=(d - n_components, d - 1), lower=True)
        components = vectors[:, ::-1].T
        largest = np.abs(components).argmax(axis=1)
        signs = np.sign(components[np.arange(n_components), largest])
        return components * signs[:, None]

    def project(self, components: Any, offset: Any = None) -> Self:
        """Return the moments of ``(x - offset) @ components.T``, without reading the rows again.

        Parameters
        ----------
        components : array-like, shape (n_components, n_features)
            Directions, one a row.
        offset : array-like, shape (n_features,), optional
            Point that is subtracted from rows; zero by default.

        Returns
        -------
        ClassMoments
            Moments of n_components features.

        Raises
        ------
        InvalidParameterError
            For components of another number of features, or that are not finite numbers.
        MergeError
            If these moments have no covariances between features.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import ClassMoments, QuadraticDiscriminantAnalysis
        >>> X, y = load_iris(return_X_y=True)
        >>> moments = ClassMoments().update(X, y)
        >>> components = moments.pca(2)
        >>> qda = QuadraticDiscriminantAnalysis.from_moments(moments.project(components))
        >>> qda.score(X @ components.T, y)
        0.9733333333333334
        """
        self._structure.check_covariances("project")
        sums = self.centred()
        d = sums.n_features
        components = as_numbers("components", components, f"directions of {d} numbers", finite=True)
        if components.ndim != 2 or components.shape[1] != d or not components.size:
            raise InvalidParameterError(
                f"components has shape {components.shape}, expected (n_components, {d})"
            )
        offset = np.zeros(d) if offset is None else offset
        shift = as_numbers("offset", offset, f"{d} numbers", finite=True)
        if shift.shape != (sums.n_features,):
            raise InvalidParameterError(
                f"offset has shape {shift.shape}, expected ({sums.n_features},)"
            )
        # The low part keeps what an offset of the rows would round away.
        with np.errstate(over="ignore", invalid="ignore"):
            longer = ((sums.mean.astype(np.longdouble) - shift) + sums.mean_low) @ components.T
            mean = longer.astype(np.float64)
            mean_low = (longer - mean).astype(np.float64)
            scatter = self._structure.project(sums.scatter, components)
            squares = self._structure.diagonal(scatter)
            np.maximum(squares, 0, out=squares)  # rounding, along directions without variance
            # Errors of a square are sums over pairs of features, of at most the product of roots.
            reach = ROUNDING * self._structure.diagonal(sums.scatter)
            if sums.rounding is not None:
                reach += sums.rounding
            rounding = (np.sqrt(reach) @ np.abs(components).T) ** 2
        projected = CentredSums(
            self._structure,
            sums.count.copy(),
            mean,
            mean_low,
            scatter,
            None if sums.squares is None else sums.squares.copy(),
            rounding,
        ).checked()
        result = self._with_sums(self._classes, projected)
        result._feature_names = None  # a component is no column
        return result
