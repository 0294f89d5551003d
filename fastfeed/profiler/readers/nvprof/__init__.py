"""Reads SQLite files of nvprof; `text` reads its printed output."""

from fastfeed.profiler.readers.nvprof.reader import knows, read

__all__ = ["knows", "read"]
