"""Reads SQLite files of nvprof; `text` reads what it prints."""

from fastfeed.profiler.readers.nvprof.reader import knows, read

__all__ = ["knows", "read"]
