"""Types of results as users see them; mypy checks this file, which is not run."""

from typing import Any, assert_type

from streamgda import ClassMoments, GaussianNB, load, open_store


def stores() -> None:
    """Without labels, they are None."""
    assert_type(open_store("rows.zarr"), tuple[Any, Any])


def saved() -> None:
    """An estimator is of the kind that is expected."""
    assert_type(load("model.npz"), Any)
    assert_type(GaussianNB.load("model.npz"), GaussianNB)
    assert_type(ClassMoments.from_bytes(b""), ClassMoments)


def sums(parts: list[ClassMoments]) -> None:
    """A sum of moments is moments; without any, it is what the sum starts from."""
    assert_type(sum(parts, ClassMoments()), ClassMoments)
