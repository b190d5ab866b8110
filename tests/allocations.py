"""Memory that calls allocate at most."""

import tracemalloc

ATTEMPTS = 3


def assert_peak_below(limit, call):
    """Call a function; fail if Python and NumPy hold as much memory as `limit` meanwhile.

    What other threads and first imports allocate counts as well, so it may take some attempts.
    """
    peaks = []
    while not peaks or (peaks[-1] >= limit and len(peaks) < ATTEMPTS):
        tracemalloc.start()
        try:
            call()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[-1] < limit, f"peaks of {peaks} bytes"
