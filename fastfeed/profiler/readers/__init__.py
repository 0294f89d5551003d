"""Trace files of every dialect, as one `Trace`: `read(path)`. The file's content says what it is, not its name."""
