"""Which kernel of one rank is the same collective as which kernel of another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model.trace import Kind, Trace

__all__ = ["Channel", "Matched", "channels", "family", "match"]

_FAMILY = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast|bcast|cross_device_reduce|reduce|send|recv",
    re.I,
)
_FAMILIES = (
    "", "allreduce", "allgather", "reducescatter", "crossdevicereduce",
    "broadcast", "bcast", "reduce",  # whose root may leave long before the others
    "sendrecv", "send", "recv", "alltoall",  # between any two, with bytes of their own
)  # fmt: skip
_APART = np.array([_FAMILIES.index(name) for name in ("broadcast", "bcast", "reduce")])
_PAIRS = np.array([_FAMILIES.index(name) for name in ("sendrecv", "send", "recv", "alltoall")])
_SLACK = 8  # collectives that one rank may have recorded more at either end, beside the difference of their numbers
_SAMPLE = 512  # collectives that suffice to compare alignments
_TOGETHER_NS = 200_000  # that ends may lie apart
_LAST_PART = 0.1  # of the shorter kernel, that they may as well
_DRIFT = 1e-4  # of a clock against another: quartz is within 100 parts in a million
_STRICT_NS = (50_000, 250_000)  # median and 90th percentile, where nothing but the ends says that it is one collective
_STRAY = 0.1  # of the collectives may end apart nevertheless
_FEWEST = 3  # matched collectives that can tell two clocks apart


@dataclass(frozen=True, slots=True)
class Channel:
    """What one member sent through one communicator, in order. Columns have shape (n,)."""

    member: int
    group: str  # "" where the dialect does not say
    stream: int
    start: np.ndarray  # int64, on the member's clock
    end: np.ndarray
    family: np.ndarray  # index into _FAMILIES
    bytes: np.ndarray  # -1 unknown
    seq: np.ndarray  # -1 unknown

    @property
    def certain(self) -> bool:
        """The name says who takes part: a group, and not just a pair of it."""
        return bool(self.group) and not np.isin(self.family[0], _PAIRS)


@dataclass(frozen=True, slots=True)
class Matched:
    """Collectives of one communicator that all of these members recorded."""

    name: str
    members: tuple[int, ...]
    start: np.ndarray  # int64, shape (members, n), each row on its member's clock
    end: np.ndarray


def family(kernel: str) -> str:
    """`ncclDevKernel_AllReduce_Sum_f32_RING_LL` is "allreduce"; "" for a kernel that serves them all."""
    found = _FAMILY.search(kernel.split("(")[0])
    return found[0].lower().replace("_", "") if found else ""


def channels(member: int, trace: Trace, device: int) -> list[Channel]:
    """The communication of a device: by group, or by family and stream where the trace names no groups."""
    ops = trace.ops
    rows = np.flatnonzero((ops.kind == Kind.COMM) & (ops.device == device))
    rows = rows[np.argsort(ops.start[rows], kind="stable")]
    names, of = np.unique(ops.name[rows], return_inverse=True)
    codes = np.array([_FAMILIES.index(family(trace.name(int(name)))) for name in names], np.int64)[of]
    group = ops.group[rows].astype(np.int64)
    kind = np.where((group < 0) | np.isin(codes, _PAIRS), codes, 0)  # sends keep apart from collectives of their group
    keys = np.column_stack([group, kind, np.where(group < 0, ops.stream[rows], -1)])
    found = []
    keys, of = np.unique(keys, axis=0, return_inverse=True)
    for number, (in_group, _, stream) in enumerate(keys.tolist()):
        at = of.ravel() == number
        row = rows[at]
        group_name = trace.name(in_group)
        found.append(
            Channel(
                member, group_name, stream, ops.start[row], ops.end[row], codes[at], ops.bytes[row], ops.seq[row]
            )
        )  # fmt: skip
    return found


def match(
    each: Sequence[Channel], shifts: Mapping[tuple[int, int], tuple[int, int]]
) -> tuple[list[Matched], list[str]]:
    """The collectives that members have in common, and a sentence per communicator that is refused.

    `shifts[a, b]` is what is known of clock b less clock a, and how far that may be wrong; both in nanoseconds. A pair
    that is left out has clocks that nothing is known about.
    """
    found: list[Matched] = []
    notes: list[str] = []
    named: dict[str, list[Channel]] = {}
    for channel in each:
        if channel.certain:
            named.setdefault(channel.group, []).append(channel)
    for group, parts in named.items():
        if len(parts) < 2:
            continue
        others = [_align(parts[0], other, shifts, strict=False) for other in parts[1:]]
        if any(other is None for other in others):
            apart = _clusters(parts, shifts)  # several groups of one name, such as "tensor_parallel"
            if len({at for one in apart for at in one.members}) == len(parts):
                found += apart
                continue
            counts = ", ".join(str(len(part.start)) for part in parts)
            notes.append(
                f"the collectives of group {group} do not match between ranks ({counts} recorded), "
                "so nobody is blamed for waits in it; record the same steps on every rank"
            )
            continue
        made = _common(f"group {group}", parts, [other for other in others if other is not None])
        if made:
            found.append(made)
    return found + _clusters([channel for channel in each if not channel.certain], shifts), notes


def _clusters(each: list[Channel], shifts: Mapping[tuple[int, int], tuple[int, int]]) -> list[Matched]:
    """Channels of different members whose ends agree so well that they must be one communicator."""
    left, found = list(each), []
    while left:
        first = left.pop(0)
        parts, rows = [first], []
        for member in sorted({channel.member for channel in left} - {first.member}):
            fitting = []
            for channel in left:
                same = channel.group == first.group and channel.family[0] == first.family[0]
                if channel.member == member and same:
                    aligned = _align(first, channel, shifts, strict=True)
                    if aligned is not None:
                        fitting.append((_spread(first, channel, aligned), len(fitting), channel, aligned))
            if fitting:
                _, _, channel, aligned = min(fitting, key=lambda one: one[:2])
                parts.append(channel)
                rows.append(aligned)
                left = [other for other in left if other is not channel]
        made = _common(first.group or _FAMILIES[first.family[0]] or "collectives", parts, rows) if rows else None
        if made:
            found.append(made)
    return found


def _common(name: str, parts: Sequence[Channel], rows: Sequence[np.ndarray]) -> Matched | None:
    """What all have, by the rows of the first."""
    shared = rows[0][:, 0]
    for other in rows[1:]:
        shared = np.intersect1d(shared, other[:, 0])
    if not len(shared):
        return None
    picks = [shared, *(other[np.searchsorted(other[:, 0], shared), 1] for other in rows)]
    return Matched(
        name,
        tuple(part.member for part in parts),
        np.stack([part.start[pick] for part, pick in zip(parts, picks, strict=True)]),
        np.stack([part.end[pick] for part, pick in zip(parts, picks, strict=True)]),
    )


def _align(
    a: Channel, b: Channel, shifts: Mapping[tuple[int, int], tuple[int, int]], *, strict: bool
) -> np.ndarray | None:
    """Rows of a and of b that are one collective, shape (n, 2); None where that is not certain."""
    known = shifts.get((a.member, b.member))
    by_number = _by_number(a, b)
    if by_number is not None:
        return by_number if len(by_number) else None
    lengths = len(a.start), len(b.start)
    slack = abs(lengths[0] - lengths[1]) + _SLACK
    tried = []
    for shift in range(-slack, slack + 1):
        low, high = max(0, -shift), min(lengths[0], lengths[1] - shift)
        if high - low < max(1 if known and not known[1] else _FEWEST, min(lengths) / 2):
            continue
        rows = np.arange(low, high)
        rows = np.column_stack([rows, rows + shift])
        cost = _spread(a, b, rows[:: max(1, len(rows) // _SAMPLE)], known)
        if cost < np.inf and _same(a, b, rows):
            tried.append((cost, shift, rows))
    if not tried:
        return None
    best = min(cost for cost, _, _ in tried)
    rows = min(
        ((_away(a, b, rows, known), abs(shift), rows) for cost, shift, rows in tried if cost <= 2 * best + 20_000),
        key=lambda one: one[:2],
    )[2]
    return rows if _together(a, b, rows, known, strict) else None


def _by_number(a: Channel, b: Channel) -> np.ndarray | None:
    """Rows with the same sequence number; None where a side does not count, or counts some twice."""
    for channel in (a, b):
        if (channel.seq < 0).any() or len(np.unique(channel.seq)) < len(channel.seq):
            return None
    _, of_a, of_b = np.intersect1d(a.seq, b.seq, assume_unique=True, return_indices=True)
    rows = np.column_stack([of_a, of_b])[np.argsort(of_a)]
    return rows if _same(a, b, rows) else rows[:0]


def _same(a: Channel, b: Channel, rows: np.ndarray) -> bool:
    """Whether no row says that it is something else."""
    i, j = rows.T
    if (a.family[i] != b.family[j]).any():
        return False
    both = (a.bytes[i] >= 0) & (b.bytes[j] >= 0) & ~np.isin(a.family[i], _PAIRS)
    return not (both & (a.bytes[i] != b.bytes[j])).any()


def _apart(a: Channel, b: Channel, rows: np.ndarray, known: tuple[int, int] | None) -> tuple[int, np.ndarray]:
    """Median of clock b less clock a by the ends, and how far each end is from it."""
    apart = b.end[rows[:, 1]] - a.end[rows[:, 0]]
    if known and not known[1]:
        return known[0], np.abs(apart - known[0])
    middle = int(apart[0] + round(float(np.median(apart - apart[0]))))
    return middle, np.abs(apart - middle)


def _spread(a: Channel, b: Channel, rows: np.ndarray, known: tuple[int, int] | None = None) -> float:
    middle, off = _apart(a, b, rows, known)
    return float("inf") if known and abs(middle - known[0]) > known[1] else float(np.median(off))


def _away(a: Channel, b: Channel, rows: np.ndarray, known: tuple[int, int] | None) -> int:
    return abs(_apart(a, b, rows, known)[0] - known[0]) if known else 0


def _together(a: Channel, b: Channel, rows: np.ndarray, known: tuple[int, int] | None, strict: bool) -> bool:
    """Whether all leave together, as participants of a collective do."""
    off = _apart(a, b, rows, known)[1]
    if not (known and not known[1]):
        ends, apart = a.end[rows[:, 0]], b.end[rows[:, 1]] - a.end[rows[:, 0]]
        drift = _drift(ends, apart)
        if np.abs(drift).max(initial=0) <= _DRIFT * (ends[-1] - ends[0]):
            off = np.abs(apart - apart[0] - drift - np.median(apart - apart[0] - drift))
    if strict:
        return bool(np.median(off) <= _STRICT_NS[0] and np.quantile(off, 0.9) <= _STRICT_NS[1])
    took = np.minimum((a.end - a.start)[rows[:, 0]], (b.end - b.start)[rows[:, 1]])
    stays = ~np.isin(a.family[rows[:, 0]], _APART)
    return not stays.any() or bool((off > np.maximum(_TOGETHER_NS, took * _LAST_PART))[stays].mean() <= _STRAY)


def _drift(at: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """How far one clock runs ahead of the other over the recording, by the medians of its halves; shape (n,)."""
    half = len(at) // 2
    if half < _FEWEST:
        return np.zeros(len(at))
    early, late = (np.median(apart[part] - apart[0]) for part in (slice(half), slice(half, None)))
    run = float(np.median(at[half:] - at[0]) - np.median(at[:half] - at[0]))
    middle = at - at[0] - np.median(at - at[0])
    return middle * ((late - early) / run) if run > 0 else np.zeros(len(at))
