"""Resources of the process: threads, interruptions, LAPACK without the GIL, memory, and retries."""
