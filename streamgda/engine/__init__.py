"""One pass over rows: accumulated or scored, wherever they are."""

from streamgda.engine.passes import accumulate, score

__all__ = ["accumulate", "score"]
