"""Reads reports of Nsight Systems (.nsys-rep, .qdrep, .qdstrm) with the installed nsys."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fastfeed.profiler.model.trace import Trace
from fastfeed.profiler.readers.decompress import read_as
from fastfeed.profiler.readers.nsys import reader as nsys
from fastfeed.profiler.runner import nsight

_REPORT = b"NVIDIA Tegra Profiler Report"
_STREAM = b"NVIDIA Nsight Systems Stream"  # after a few bytes of length


def knows(path: Path, head: bytes) -> bool:
    """True for a report's first words, which the oldest and the newest versions share."""
    return (
        head.startswith(_REPORT)
        or _STREAM in head[:64]
        or (b"[END]" in head[:16] and path.suffix == ".qdstrm")
    )


def read(path: Path) -> Trace:
    """The trace in a report.

    Raises a TraceError that says what to install if nsys is missing, or quotes its report.
    """
    path = Path(path)
    with tempfile.TemporaryDirectory(prefix="fastfeed-nsys-") as folder:
        return read_as(path, nsys.read, nsight.export(path, Path(folder)))
