"""Resources of the process: threads, interruptions and memory; and parameters."""
