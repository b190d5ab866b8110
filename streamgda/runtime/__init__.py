"""Resources of the process: threads, LAPACK without the GIL, memory, and retries."""
