"""Reads the device planes of an XSpace: streams of kernels and copies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastfeed.profiler.model.kernel_names import copy_kind, kernel_kind
from fastfeed.profiler.model.trace import Calls, Device, Kind, Ops, Overheads, Strings, table
from fastfeed.profiler.readers.xplane.planes import Plane, PlaneEvents, events_of

_STREAM = re.compile(r"Stream #(-?\d+)")
# records that are not work
_MEMORY = ("memalloc_details", "memfree_details", "memoryresidency_details")
_WANTED = frozenset({"correlation_id", "memcpy_details", "memset_details", "group_id", *_MEMORY})
_BYTES = re.compile(r"\b(?:size|num_bytes):(\d+)")
_ENDS = re.compile(r"\bkind_src:(\w+)\s+kind_dst:(\w+)")
_HOST_SIDE = {"pageable": 1, "pinned": 0}
_BY_KERNEL = re.compile(r"^__amd_rocclr_copyBuffer")  # ROCm copies with kernels, in every direction


class CopyDetails(NamedTuple):
    """The details of copies, one row per event."""

    bytes: np.ndarray  # int64, -1 unknown
    source: np.ndarray  # int8: 1 pageable, 0 pinned, -1 something else
    target: np.ndarray


class DeviceWork(NamedTuple):
    """The work of one device."""

    device: Device
    ops: Ops  # `device` is 0 in all rows
    overheads: Overheads
    group: np.ndarray  # int64, the step of each op; -1 unknown
    lines: tuple[str, ...]  # lines with events that are not streams
    damaged: int
    impossible: int


def device_of(plane: Plane) -> Device:
    """The device of a plane such as `/device:GPU:3`, named by its properties."""
    properties = plane.properties
    name = str(properties.get("gpu_device_name", ""))
    if not name:
        vendor = str(properties.get("device_vendor", ""))
        cores = (
            f"{properties['core_count']} {'CUs' if vendor == 'AMD' else 'SMs'}"
            if "core_count" in properties
            else ""
        )
        memory = properties.get("memory_size", 0)
        size = f"{memory / 2**30:.0f} GiB" if isinstance(memory, int) and memory > 0 else ""
        facts = ", ".join(fact for fact in (cores, size) if fact)
        name = f"{vendor} GPU ({facts})".strip() if facts else vendor
    ordinal = re.search(r"(\d{1,6})\D*$", plane.name)
    return Device(int(ordinal[1]) if ordinal else 0, name, process=0)


def work_of(plane: Plane, names: Strings) -> DeviceWork:
    """Everything that ran on one device.

    Lines that xprof derives from the streams are left alone.
    """
    streams = tuple(line for line in plane.lines if _STREAM.match(line.name))
    events = events_of(plane, streams, _WANTED)
    number = [_STREAM.match(line.name) for line in streams]
    stream = np.array([int(match[1]) if match else 0 for match in number] or [0], np.int64)
    kinds = np.array([_kind(name) for name in events.names], np.uint8)
    copies = copy_details(events)
    kind = kinds[events.code]
    at_host = np.where(
        kind == Kind.H2D, copies.source, np.where(kind == Kind.D2H, copies.target, -1)
    )
    correlation = events.ints("correlation_id")
    texts = names.many(name or "unnamed" for name in events.names)
    work = np.ones(len(events), bool)
    for stat in _MEMORY:
        if stat in events.stats:
            work[events.stats[stat].event] = False
    ops = table(
        Ops,
        start=events.start[work],
        end=events.end[work],
        device=0,
        process=0,
        stream=stream[events.line[work]],
        kind=kind[work],
        name=texts[events.code[work]],
        corr=np.where(correlation > 0, correlation, -1)[work],
        bytes=copies.bytes[work],
        pageable=at_host[work],
    )
    flushes = events_of(
        plane, tuple(line for line in plane.lines if line.name == "CUPTI overhead"), frozenset()
    )
    others = tuple(
        line.name for line in plane.lines if len(line.begin) and not _STREAM.match(line.name)
    )
    overheads = table(Overheads, start=flushes.start, end=flushes.end, process=0)
    device = device_of(plane)
    return DeviceWork(
        device,
        ops,
        overheads,
        events.ints("group_id")[work],
        others,
        events.damaged,
        events.impossible,
    )


def copy_details(events: PlaneEvents) -> CopyDetails:
    """Sizes and memory kinds of copies: `kind_src:pageable kind_dst:device size:512 async:1`."""
    size = np.full(len(events), -1, np.int64)
    source, target = np.full((2, len(events)), -1, np.int8)
    for stat in ("memcpy_details", "memset_details"):
        codes, texts = events.texts(stat)
        if not texts:
            continue
        details = [_parse_details(text) for text in texts]
        for column, values in zip((size, source, target), zip(*details, strict=True), strict=True):
            has_details = codes >= 0
            column[has_details] = np.array(values, column.dtype)[codes[has_details]]
    return CopyDetails(size, source, target)


def _parse_details(text: str) -> tuple[int, int, int]:
    size, sides_ = _BYTES.search(text), _ENDS.search(text)
    count = int(size[1][:18]) if size else 0
    sides = [_HOST_SIDE.get(side.lower(), -1) for side in sides_.groups()] if sides_ else [-1, -1]
    return count or -1, sides[0], sides[1]  # ROCm writes size:0 if it does not know


def _kind(name: str) -> Kind:
    if name.startswith(("Memcpy", "memcpy")):
        return copy_kind(name)
    if name.startswith(("Memset", "memset")):
        return Kind.MEMSET
    return Kind.GRAPH if name.startswith("CudaGraphExec") else kernel_kind(name)


def with_launch_details(ops: Ops, calls: Calls, sizes: CopyDetails, names: Sequence[str]) -> Ops:
    """Ops with the direction, size and memory of copies that only their launches have.

    `sizes` has a row per call.
    """
    by_kernel = np.array([bool(_BY_KERNEL.match(name)) for name in names] or [False])
    unknown_direction = (by_kernel[ops.name] | (ops.kind == Kind.OTHER)) & (ops.corr >= 0)
    incomplete = unknown_direction | (
        (ops.bytes < 0) & np.isin(ops.kind, (Kind.H2D, Kind.D2H, Kind.D2D, Kind.P2P))
    )
    rows = np.flatnonzero(incomplete & (ops.corr >= 0))
    launches = np.flatnonzero(calls.corr >= 0)
    if not len(rows) or not len(launches):
        return ops
    launches = launches[np.argsort(calls.corr[launches], kind="stable")]
    at = np.minimum(np.searchsorted(calls.corr[launches], ops.corr[rows]), len(launches) - 1)
    is_found = calls.corr[launches[at]] == ops.corr[rows]
    rows, call = rows[is_found], launches[at[is_found]]
    direction = np.array([copy_kind(name) for name in names] or [Kind.OTHER], np.uint8)[
        calls.name[call]
    ]
    kind = ops.kind.copy()
    has_direction = unknown_direction[rows] & (direction != Kind.OTHER)
    kind[rows[has_direction]] = direction[has_direction]
    size, pageable = ops.bytes.copy(), ops.pageable.copy()
    size[rows] = np.where(size[rows] < 0, sizes.bytes[call], size[rows])
    at_host = np.where(kind[rows] == Kind.H2D, sizes.source[call], sizes.target[call])
    of_host = (pageable[rows] < 0) & np.isin(kind[rows], (Kind.H2D, Kind.D2H))
    pageable[rows[of_host]] = at_host[of_host]
    return replace(ops, kind=kind, bytes=size, pageable=pageable)
