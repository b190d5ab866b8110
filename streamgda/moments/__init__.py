"""Class moments: per class the count, the mean and the scatter of the rows seen so far."""

from streamgda.moments.base import Moments, held_sums
from streamgda.moments.class_moments import ClassMoments
from streamgda.moments.grouped import GroupedMoments, group_labels
from streamgda.moments.pairwise import PairwiseMoments
from streamgda.moments.window import SlidingWindow

__all__ = [
    "ClassMoments",
    "GroupedMoments",
    "Moments",
    "PairwiseMoments",
    "SlidingWindow",
    "group_labels",
    "held_sums",
]
