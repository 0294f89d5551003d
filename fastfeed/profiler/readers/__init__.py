"""Trace files of every dialect as one `Trace`: `read(path)`. The content says what a file is, not its name.

    opened   files without their compression
    foreign  what else a file can be, in words
    folders  a folder as the trace files in it

A reader is a module with `knows(path, head) -> bool`, where `head` is the beginning of the content without its
compression, and `read(path) -> Trace`; what it cannot read is a TraceError of one sentence.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastfeed.errors import TraceError
from fastfeed.profiler.model.trace import Trace
from fastfeed.profiler.readers import decompress as opened
from fastfeed.profiler.readers import sniff as foreign

__all__ = ["READERS", "detect", "read"]

READERS = {  # dialect -> module, in the order they are asked: what has an unmistakable beginning first
    "nsys_report": "nsys.report",  # report of Nsight Systems (.nsys-rep, .qdrep, .qdstrm)
    "nsys": "nsys",  # SQLite export of Nsight Systems
    "nvprof": "nvprof",  # SQLite file of nvprof
    "timeline": "fastfeed_timeline",  # fastfeed's own timeline
    "nvprof_text": "nvprof.text",  # nvprof --print-gpu-trace or --print-api-trace, as text or CSV
    "chrome": "chrome",  # Chrome trace JSON of PyTorch, JAX or TensorFlow
    "xplane": "xplane",  # XPlane of JAX or TensorFlow (.xplane.pb)
}
SQLITE = b"SQLite format 3\x00"


def detect(path: str | os.PathLike[str]) -> str:
    """The key in READERS of who reads this file. TraceError says what the file is where none does."""
    path = Path(path)
    head = _head(path)
    if head.startswith(SQLITE) and _is_packed(path):
        with opened.as_file(path) as plain:
            return _detected(path, plain, head)
    return _detected(path, path, head)


def read(path: str | os.PathLike[str]) -> Trace:
    """The trace in a file of any dialect."""
    path = Path(path)
    head = _head(path)
    if not (head.startswith(SQLITE) and _is_packed(path)):
        return _reader(_detected(path, path, head)).read(path)
    with opened.as_file(path) as plain:  # SQLite reads files only
        trace = _reader(_detected(path, plain, head)).read(plain)
    return replace(trace, origin=replace(trace.origin, path=str(path)))


def _detected(path: Path, plain: Path, head: bytes) -> str:
    said = foreign.recognized(head)
    if not said:
        for name in READERS:
            if _reader(name).knows(plain, head):
                return name
    raise TraceError(f"{path} {said or foreign.guessed(plain, head)}")


def _reader(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{READERS[name]}")


def _head(path: Path) -> bytes:
    with opened.open_stream(path) as stream:
        head = opened.some(stream)
        cut = stream.cut
    if head:
        return head
    if cut:
        raise TraceError(f"{path} has nothing that can be read: {cut}; copy or record it again")
    raise TraceError(f"{path} is empty: the profiler wrote nothing; record again and let it end in peace")


def _is_packed(path: Path) -> bool:
    with path.open("rb") as raw:
        return bool(opened.packing_of(raw.read(8)))
