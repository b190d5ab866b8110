"""Class moments: per class the count, the mean and the scatter of the rows seen so far."""

from streamgda.moments.base import Moments, add_rows, name_features, planned_bytes, planned_scratch
from streamgda.moments.class_moments import ClassMoments, add_and_decay, add_at_once
from streamgda.moments.class_state import read_twice
from streamgda.moments.fourth import FourthMoments
from streamgda.moments.grouped import GroupedMoments, add_groups, group_labels, planned_group_bytes
from streamgda.moments.pairwise import PairwiseMoments
from streamgda.moments.window import SlidingWindow

__all__ = [
    "ClassMoments",
    "FourthMoments",
    "GroupedMoments",
    "Moments",
    "PairwiseMoments",
    "SlidingWindow",
    "add_and_decay",
    "add_at_once",
    "add_groups",
    "add_rows",
    "group_labels",
    "name_features",
    "planned_bytes",
    "planned_group_bytes",
    "planned_scratch",
    "read_twice",
]
