"""Names files that are not traces, for error messages, and suggests which to pass instead."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

from fastfeed.printable import printable
from fastfeed.profiler.readers.protobuf import LEN, PAD, DamagedMessage, fields

XPROF_RESULT = (
    "is a result that xprof computed, not a recording; pass the .xplane.pb of the same run"
)

_HEAD = 65_536  # bytes that readers look at
_HINT = "pass the profiler's trace"
# of a TracePacket, not of an XPlane
_PERFETTO_FIELDS = {8, 10, 11, 13, 33, 35, 36, 41, 42, 50, 58, 59, 60, 79, 89}
_XPROF_RESULTS = re.compile(
    r"\.(input_pipeline|overview_page|kernel_stats|tensorflow_stats|framework_op_stats|memory_profile|op_profile|pod_viewer"
    r"|op_stats|hlo_stats|roofline_model|tf_data_bottleneck_analysis|dcn_collective_stats|inference_profile|hlo_proto)"
    r"(\.(pb|json)|$)",
    re.I,
)


@cache
def _known_files() -> tuple[tuple[re.Pattern[bytes], str], ...]:
    lines = Path(__file__).with_name("known_files.txt").read_text("utf-8").splitlines()[1:]
    rows = (line.split("\t") for line in lines)
    return tuple((re.compile(pattern.encode(), re.DOTALL), text) for pattern, text in rows)


def describe_known(head: bytes) -> str:
    """Rest of the sentence "FILE is ..." if the first bytes belong to another format, else ""."""
    for pattern, description in _known_files():
        if pattern.match(head):
            return description
    if is_own_tracks(head):
        return (
            "holds the tracks that fastfeed wrote with --perfetto, not a recording; pass the trace"
            " they were made from"
        )
    if _is_perfetto(head):
        return (
            "is a binary trace of Perfetto (of rocprofv3, perhaps), which is not read; record with"
            " the profiler of PyTorch, JAX or TensorFlow, or with Nsight Systems"
        )
    return ""


def _is_perfetto(head: bytes) -> bool:
    """True for packets of Perfetto, whose first bytes are those of an XSpace as well."""
    data = head + bytes(PAD)
    numbers = set()
    try:
        packet = next(fields(data, 0, len(head)), None)
        if packet is None or (packet.number, packet.wire) != (1, LEN):
            return False
        numbers = {field.number for field in fields(data, packet.value, packet.stop)}
    except DamagedMessage:
        return False
    return bool(numbers & _PERFETTO_FIELDS)


def is_own_tracks(head: bytes) -> bool:
    """True for the first bytes of the tracks that `fastfeed analyze --perfetto` writes."""
    return (
        re.match(rb'\{"displayTimeUnit":"ns","otherData":\{"producer": ?"fastfeed"', head)
        is not None
    )


def xprof_result(path: Path) -> str:
    """Kind of result, by its name, that xprof computes and stores next to a recording; "" none."""
    match = _XPROF_RESULTS.search(path.name)
    return match[1] if match else ""


def describe_unknown(path: Path, head: bytes) -> str:
    """Rest of the sentence "FILE is ..." for a file that no reader knows."""
    if head.startswith(b"SQLite format 3\x00"):
        return _database(path)
    if xprof_result(path):
        return XPROF_RESULT
    text = head.decode("utf-8", "replace")
    content = text.lstrip("\ufeff \t\r\n")
    if content[:1] in ("{", "["):
        where = " in its first 64 KiB" if len(head) >= _HEAD else ""
        return (
            f"is JSON without trace events{where}{_keys(content)}; give what export_chrome_trace or"
            " the profiler wrote"
        )
    unprintable = sum(
        character == "\ufffd" or (character < " " and character not in "\t\r\n\f\x1b")
        for character in text
    )
    if unprintable <= len(text) * 0.02:
        line = next((line.strip() for line in text.splitlines() if line.strip()), "")
        return f"is text that is not a trace, it begins with {printable(repr(line), 80)}; {_HINT}"
    return (
        f"is not a recognized trace, it begins with {head[:8].hex(' ')}; pass an export of Nsight "
        "Systems or nvprof, a Chrome trace, an .xplane.pb, or fastfeed's timeline"
    )


def _database(path: Path) -> str:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name LIMIT 4"
            ).fetchall()
    except (sqlite3.Error, UnicodeDecodeError, MemoryError) as error:
        again = (
            "wait for its writer" if "locked" in str(error) else "copy it again, or export it again"
        )
        return f"is an SQLite database that cannot be read: {error}; {again}"
    if any(str(row[0]).startswith("rocpd_") for row in rows):
        return (
            "is a database of rocprofv3 (rocpd), which is not read; record the program with"
            " PyTorch's or JAX's own profiler, on the same GPU"
        )
    if not rows:
        return "is an SQLite database without tables: the export did not end; export it again"
    named = ", ".join(str(row[0]) for row in rows)
    return (
        f"is an SQLite database, but neither of Nsight Systems nor of nvprof (tables {named});"
        f" {_HINT}"
    )


def _keys(begin: str) -> str:
    keys = re.findall(r'"((?:[^"\\]|\\.){1,40})"\s*:', begin[:2000])[:3] if begin[0] == "{" else []
    return f" (it has {', '.join(json.dumps(key) for key in keys)})" if keys else ""
