"""Benchmarks of streamgda beside other packages: ``python -m bench --help``."""
