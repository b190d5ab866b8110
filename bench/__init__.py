"""Benchmarks: streamgda and its peers, timed in one run on the same data."""
