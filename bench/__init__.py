"""Benchmarks: streamgda beside its peers, in one run, on the same data, as ratios."""
