"""Reads XPlane files (.xplane.pb) of JAX and TensorFlow: GPUs of NVIDIA and AMD."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.profiler.model.format import one_line
from fastfeed.profiler.model.trace import (
    Calls,
    Ops,
    Origin,
    Overheads,
    Process,
    RangeKind,
    Ranges,
    Strings,
    Trace,
    concatenated,
    table,
)
from fastfeed.profiler.readers.decompress import open_stream
from fastfeed.profiler.readers.protobuf import LEN, PAD, Content, DamagedMessage, fields, text
from fastfeed.profiler.readers.sniff import xprof_result
from fastfeed.profiler.readers.xplane.activity import (
    CopyDetails,
    DeviceWork,
    HostActivity,
    ThreadTable,
    device_steps,
    is_host,
    parse_device_work,
    parse_host,
    with_launch_details,
)
from fastfeed.profiler.readers.xplane.planes import Plane, parse_plane

_LARGEST = 2 << 30  # bytes; no protocol buffer is larger
_MAX_PLANES = 4096  # a host has a dozen; more is garbage that happens to look like planes
_FIRST = re.compile(
    rb"\n.{1,18}?\x12.(/(device|host|virtualdevice):|Task Environment|Host CPUs|#Chip)", re.DOTALL
)
_RESULT_INSIDE = re.compile(rb"type\.googleapis\.com/tensorflow\.profiler\.(\w+)")
_DROPPED = re.compile(
    r"(\d[\d,]{0,17}) (?:\w+ )?(?:events?|records?) (?:were |was )?dropped|dropped (\d[\d,]{0,17})",
    re.I,
)
_GPU = "/device:GPU:"
_TPU = "/device:TPU:"
_REPLACED = b"\xef\xbf\xbd"  # what a text conversion makes of bytes that it does not understand


def knows(path: Path, head: bytes) -> bool:
    """True for an XSpace, and for other files of xprof that `read` rejects with a specific error."""
    if _FIRST.match(head):
        return True
    named = ".xplane.pb" in path.name or bool(_detect_result(path, head))
    # a trace of another kind may speak of one
    return named and not head.startswith((b"{", b"[", b"SQLite"))


def read(path: Path) -> Trace:
    """The recording in an XSpace; raises a TraceError if the file has no recording."""
    data, damage = _content(path)
    result = _detect_result(path, bytes(data[: 1 << 16]))
    if result and not _FIRST.match(data):
        raise TraceError(
            f"{path} is a result of xprof ({result}), not a recording; pass the .xplane.pb file of"
            " the same run"
        )
    planes, errors, hosts, notes = _planes(data)
    notes = [*([f"{path.name}: {damage}"] if damage else []), *notes]
    if not any(plane.name.startswith(_GPU) for plane in planes):
        _refuse(path, data, planes)
    trace = _trace(path, planes, hosts)
    dropped, messages = _dropped(errors, planes)
    incomplete = notes[0] if notes else ""  # all of them are about damage
    origin = replace(
        trace.origin,
        dropped=dropped,
        incomplete=incomplete,
        notes=(*notes, *messages, *trace.origin.notes),
    )
    return replace(trace, origin=origin)


def _content(path: Path) -> tuple[Content, str]:
    data = bytearray()
    with open_stream(path) as stream:
        large = path.stat().st_size > _LARGEST
        while not large and (part := stream.read(1 << 22)):
            data += part
            large = len(data) > _LARGEST
        damage = stream.damage
    if large:
        raise TraceError(
            f"{path} holds more than 2 GiB, which no profile of JAX or TensorFlow can; check what"
            " the file is, or record fewer steps"
        )
    if not data:
        raise TraceError(
            f"{path} is empty; the recording was not finished, or nothing was recorded"
        )
    data += bytes(PAD)
    return data, damage


def _detect_result(path: Path, head: bytes) -> str:
    """Which result of xprof this is, "" none."""
    inside = _RESULT_INSIDE.search(head)
    return xprof_result(path) or (inside[1].decode() if inside else "")


def _planes(data: Content) -> tuple[list[Plane], list[str], list[str], list[str]]:
    """Planes, errors and warnings, host names, and notes about what could not be read."""
    planes: list[Plane] = []
    errors: list[str] = []
    hosts: list[str] = []
    notes: list[str] = []
    try:
        for number, wire, value, stop in fields(data, 0, len(data) - PAD):
            if wire != LEN:
                continue
            if number == 1:
                if len(planes) == _MAX_PLANES:
                    raise DamagedMessage("implausible number of planes")
                planes.append(parse_plane(data, value, stop))
            elif number in (2, 3):
                errors.append(text(data, value, min(stop, value + 300)))
            elif number == 4:
                hosts.append(text(data, value, min(stop, value + 300)))
    except DamagedMessage:
        notes.append("the file is cut off or damaged: planes after that position are left out")
    broken = [
        " ".join(plane.name.split()) or "one without a name"
        for plane in planes
        if not plane.is_complete
    ]
    if broken:
        notes.append(f"damaged planes were read in part: {', '.join(broken[:5])}")
    return planes, errors, hosts, notes


def _refuse(path: Path, data: Content, planes: Sequence[Plane]) -> None:
    """TraceError for a file without a GPU, unless it has events of a host."""
    tpu = any(plane.name.startswith(_TPU) for plane in planes)
    if tpu or (data.find(_TPU.encode()) >= 0 and data.find(_GPU.encode()) < 0):
        raise TraceError(
            f"{path} is a profile of a TPU; only profiles of GPUs can be analyzed, for TPUs use"
            " xprof"
        )
    if data.count(_REPLACED, 0, 1 << 16) > 16:
        raise TraceError(f"{path} was damaged when it was copied as text; copy it again as binary")
    if not any(len(line.begin) for plane in planes if is_host(plane) for line in plane.lines):
        names = ", ".join(
            plane.name for plane in planes[:5] if plane.name and plane.name.isprintable()
        )
        what = (
            f"its planes are {names}, none of a GPU"
            if names
            else "it is not an XSpace, or its end is missing"
        )
        raise TraceError(
            f"{path} holds nothing to analyze: {what}; record again with jax.profiler or"
            " tf.profiler"
        )


def _trace(path: Path, planes: Sequence[Plane], hosts: Sequence[str]) -> Trace:
    names = Strings()
    threads = ThreadTable()
    notes = []
    gpus = [plane for plane in planes if plane.name.startswith(_GPU)]
    amd = any(plane.properties.get("device_vendor") == "AMD" for plane in gpus)
    works = [parse_device_work(plane, names) for plane in gpus]
    activities = [parse_host(plane, threads, names, amd) for plane in planes if is_host(plane)]
    calls = concatenated(table(Calls), *(host.calls for host in activities))
    ranges = concatenated(table(Ranges), *(host.ranges for host in activities))
    if not (ranges.kind == RangeKind.STEP).any():
        ranges = concatenated(ranges, device_steps(gpus, works, names))
    active = [work for work in works if len(work.ops.start)]
    of_device = (
        replace(work.ops, device=np.full_like(work.ops.device, at))
        for at, work in enumerate(active)
    )
    ops = concatenated(table(Ops), *of_device)
    if activities:
        sizes = zip(*(host.copies for host in activities), strict=True)
        ops = with_launch_details(ops, calls, CopyDetails(*map(np.concatenate, sizes)), names.all)
    launched = bool((calls.corr >= 0).any())
    wall = _wall(planes, ops, ranges)
    notes += _notes(works, activities, launched)
    return Trace(
        Origin(str(path), "xplane", wall_ns=wall, host_calls=launched, notes=tuple(notes)),
        tuple(names.all),
        (Process(0, hosts[0] if hosts else ""),),
        threads.all,
        tuple(work.device for work in active),
        ops,
        calls,
        ranges,
        overheads=concatenated(table(Overheads), *(work.overheads for work in works)),
    )


def _wall(planes: Sequence[Plane], ops: Ops, ranges: Ranges) -> int | None:
    """Nanoseconds since 1970 of time 0: the profile's start, unless event times are absolute."""
    first = min(
        (int(table_.start.min()) for table_ in (ops, ranges) if len(table_.start)), default=0
    )
    if first > 10**18:  # after 2001
        return 0
    starts = [
        plane.properties.get("profile_start_time")
        for plane in planes
        if plane.name == "Task Environment"
    ]
    return next((at for at in starts if isinstance(at, int) and at > 10**18), None)


def _notes(works: Sequence[DeviceWork], hosts: Sequence[HostActivity], launched: bool) -> list[str]:
    notes = []
    quiet = [str(work.device.ordinal) for work in works if not len(work.ops.start)]
    if works and len(quiet) == len(works):
        notes.append("no GPU did anything while this was recorded")
    elif quiet:
        notes.append(f"visible, but without any work in this recording: GPU {', '.join(quiet)}")
    derived = [str(work.device.ordinal) for work in works if not len(work.ops.start) and work.lines]
    if derived:
        notes.append(
            f"GPU {', '.join(derived)} has summaries but no streams; record with the device"
            " tracer on"
        )
    damaged = sum(part.damaged for part in (*works, *hosts))
    if damaged:
        notes.append(f"{damaged:,} damaged events were read in part")
    impossible = sum(part.impossible for part in (*works, *hosts))
    if impossible:
        notes.append(f"{impossible:,} events with impossible times were left out")
    if not launched and any(len(work.ops.start) for work in works):
        notes.append(
            "launches were not recorded; TensorFlow before 2.4 leaves them out, and so does"
            " host_tracer_level=0"
        )
    return notes


def _dropped(errors: Sequence[str], planes: Sequence[Plane]) -> tuple[int, list[str]]:
    """Number of events that the profiler reports as dropped, and its other messages."""
    lost = 0
    for error in errors:
        count = sum(
            int((before or after).replace(",", "")) for before, after in _DROPPED.findall(error)
        )
        lost += count or ("dropped" in error.lower())
    for plane in planes:
        if plane.name.startswith((_GPU, "/host:")):
            traces = plane.properties.get("dropped_traces", 0)
            lost += traces if isinstance(traces, int) and traces > 0 else 0
    return lost, [f"message of the profiler: {one_line(error)}" for error in errors[:5]]
