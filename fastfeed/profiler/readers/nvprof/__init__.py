"""Reads SQLite files of nvprof; `text` reads its printed output."""
