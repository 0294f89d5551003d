"""Trace files of every dialect as one `Trace`: `read(path)`.

The content says what a file is, not its name.

A reader is a module with `knows(path, head) -> bool`, where `head` is the beginning of the
decompressed content, and `read(path) -> Trace`; for what it cannot read it raises a TraceError of
one sentence.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from fastfeed.errors import TraceError
from fastfeed.profiler.model.trace import Trace
from fastfeed.profiler.readers import decompress, sniff

__all__ = ["READERS", "detect", "read"]

READERS = {  # dialect -> module, in the order they are tried: unmistakable beginnings first
    "nsys_report": "nsys.report",  # report of Nsight Systems (.nsys-rep, .qdrep, .qdstrm)
    "nsys": "nsys.reader",  # SQLite export of Nsight Systems
    "nvprof": "nvprof.reader",  # SQLite file of nvprof
    "timeline": "fastfeed_timeline",  # fastfeed's own timeline
    "nvprof_text": "nvprof.text",  # nvprof --print-gpu-trace or --print-api-trace, as text or CSV
    "chrome": "chrome.reader",  # Chrome trace JSON of PyTorch, JAX or TensorFlow
    "xplane": "xplane.reader",  # XPlane of JAX or TensorFlow (.xplane.pb)
}
SQLITE = b"SQLite format 3\x00"


def detect(path: str | os.PathLike[str]) -> str:
    """The key in READERS of the reader for this file.

    Raises a TraceError that says what the file is if no reader knows it.
    """
    with _opened(Path(path)) as (_, dialect):
        return dialect


def read(path: str | os.PathLike[str]) -> Trace:
    """Read a trace file of any dialect, recognized by its content, not its name.

    Args:
        path (str | os.PathLike[str]): An export of Nsight Systems (SQLite, or a report where nsys
            is installed), a file or printed table of nvprof, a Chrome trace of PyTorch, JAX or
            TensorFlow, an XPlane, or a timeline of fastfeed; also compressed (gzip, zip, xz, bzip2,
            zstd).

    Returns:
        The `Trace`: device operations, calls and ranges of the host, in nanoseconds.

    Raises:
        TraceError: The file is not a trace, or too damaged to tell anything; the message says what
            it is.
        OSError: The file cannot be opened.

    Example:
        >>> from fastfeed import profiler
        >>> trace = profiler.read("trace.json")
        >>> len(trace.ops.start), trace.name(trace.ranges.name[0])
        (56, 'ProfilerStep#0')
    """
    path = Path(path)
    with _opened(path) as (plain, dialect):
        return decompress.read_as(path, _reader(dialect).read, plain)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Path, str]]:
    """The file, or a decompressed copy if it is a database: SQLite reads files only; the dialect."""
    head = _head(path)
    with decompress.as_file(path) if head.startswith(SQLITE) else nullcontext(path) as plain:
        yield plain, _detect(path, plain, head)


def _detect(path: Path, plain: Path, head: bytes) -> str:
    description = sniff.describe_known(head)
    if not description:
        for name in READERS:
            if _reader(name).knows(plain, head):
                return name
    raise TraceError(f"{path} {description or sniff.describe_unknown(plain, head)}")


def _reader(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{READERS[name]}")


def _head(path: Path) -> bytes:
    with decompress.open_stream(path) as stream:
        head = decompress.read_up_to(stream)
        damage = stream.damage
    if head:
        return head
    if damage:
        raise TraceError(f"{path} has nothing that can be read: {damage}; copy or record it again")
    raise TraceError(
        f"{path} is empty: the profiler wrote nothing; record again and let the profiler exit"
        " cleanly"
    )
