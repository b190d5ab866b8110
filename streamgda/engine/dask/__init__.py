"""Passes over rows on dask: moments merged in a fixed tree, and lazy scores, block by block."""
