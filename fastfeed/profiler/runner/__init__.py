"""Run a command under a profiler: one recording per rank, the command's own exit code."""
