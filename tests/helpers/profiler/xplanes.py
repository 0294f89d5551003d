"""Writes XSpace files (.xplane.pb) for tests: planes of lines of events, as JAX and TensorFlow save
them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Ref:
    """A text stored once per plane, as a stat's name is: what JAX does with most texts."""

    text: str


Stat = int | float | str | bytes | Ref


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    start_ps: int  # on the clock of the trace, not of the line
    end_ps: int
    stats: Mapping[str, Stat] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Line:
    name: str  # "Stream #7(Compute)", "python3"
    events: Sequence[Event]
    id: int = 0  # the stream's number, the thread's id
    timestamp_ns: int = 0  # offsets of its events count from here
    display_name: str = ""


@dataclass(frozen=True, slots=True)
class Plane:
    name: str  # "/device:GPU:0", "/host:CPU", "Task Environment"
    lines: Sequence[Line] = ()
    stats: Mapping[str, Stat] = field(default_factory=dict)
    id: int = 0


def event(name: str, start_ns: int, end_ns: int, stats: Mapping[str, Stat] | None = None) -> Event:
    """`event("gemm", 10, 20, {"correlation_id": 3})`: nanoseconds."""
    return Event(name, start_ns * 1000, end_ns * 1000, stats or {})


def gpu(ordinal: int, lines: Sequence[Line], vendor: str = "Nvidia") -> Plane:
    """A device's plane."""
    return Plane(
        f"/device:GPU:{ordinal}", lines, {"device_vendor": vendor, "core_count": 132}, ordinal + 1
    )


def space(
    planes: Iterable[Plane],
    errors: Sequence[str] = (),
    warnings: Sequence[str] = (),
    hostnames: Sequence[str] = ("host",),
) -> bytes:
    """The bytes of a file."""
    parts = [field_of(1, _plane(one)) for one in planes]
    for number, texts in ((2, errors), (3, warnings), (4, hostnames)):
        parts += [field_of(number, text) for text in texts]
    return b"".join(parts)


def varint(value: int) -> bytes:
    """Seven bits a byte; a negative number as its 64-bit complement, ten bytes."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def field_of(number: int, value: Stat) -> bytes:
    """One field of a message: int as varint, float as double, text and bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    raw = (
        value.encode()
        if isinstance(value, str)
        else value.text.encode()
        if isinstance(value, Ref)
        else value
    )
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def _plane(plane: Plane) -> bytes:
    names: dict[str, int] = {}
    stats: dict[str, int] = {}
    lines = b"".join(field_of(3, _line(line, names, stats)) for line in plane.lines)
    own = b"".join(field_of(6, _stat(name, value, stats)) for name, value in plane.stats.items())
    head = (field_of(1, plane.id) if plane.id else b"") + field_of(2, plane.name)
    return head + lines + _metadata(4, names) + _metadata(5, stats) + own


def _metadata(number: int, ids: Mapping[str, int]) -> bytes:
    """A map from id to {id, name}."""
    entries = (
        field_of(1, at) + field_of(2, field_of(1, at) + field_of(2, name))
        for name, at in ids.items()
    )
    return b"".join(field_of(number, entry) for entry in entries)


def _line(line: Line, names: dict[str, int], stats: dict[str, int]) -> bytes:
    parts = [field_of(1, line.id), field_of(2, line.name), field_of(3, line.timestamp_ns)]
    base = line.timestamp_ns * 1000
    for one in line.events:
        at = names.setdefault(one.name, len(names) + 1)
        body = (
            field_of(1, at)
            + field_of(2, one.start_ps - base)
            + field_of(3, one.end_ps - one.start_ps)
        )
        body += b"".join(
            field_of(4, _stat(name, value, stats)) for name, value in one.stats.items()
        )
        parts.append(field_of(4, body))
    if line.display_name:
        parts.append(field_of(11, line.display_name))
    return b"".join(parts)


def _stat(name: str, value: Stat, stats: dict[str, int]) -> bytes:
    head = field_of(1, stats.setdefault(name, len(stats) + 1))
    if isinstance(value, Ref):
        return head + field_of(7, stats.setdefault(value.text, len(stats) + 1))
    number = {float: 2, str: 5, bytes: 6}.get(
        type(value), 4 if isinstance(value, int) and value < 0 else 3
    )
    return head + field_of(number, value)
