"""The bits of states that can be saved, to show that two are equal and that a call changed none."""

from streamgda.storage.format import read
from streamgda.storage.saved import state_of


def bits(state):
    """Attributes and arrays, as text and bytes that no later change can reach."""
    attributes, arrays = state_of(state)
    return repr(attributes), {n: (a.dtype.str, a.shape, a.tobytes()) for n, a in arrays.items()}


def contents(path):
    """Kind, attributes and arrays of a saved file."""
    with open(path, "rb") as file:
        return read(file)
