"""Reads SQLite exports of Nsight Systems; `report` reads its own report files."""

from fastfeed.profiler.readers.nsys.reader import knows, read

__all__ = ["knows", "read"]
