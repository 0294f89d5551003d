"""Collectives: communication kernels of different ranks that belong together, and their clocks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model.intervals import by_start
from fastfeed.profiler.model.trace import Kind, Trace

_FAMILY = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast|bcast|cross_device_reduce|reduce|send|recv",
    re.I,
)
_FAMILIES = (
    "",
    "allreduce",
    "allgather",
    "reducescatter",
    "crossdevicereduce",
    "broadcast",
    "bcast",
    "reduce",  # the root may leave long before the others
    "sendrecv",
    "send",
    "recv",
    "alltoall",  # between pairs, each with its own number of bytes
)
_ROOTED = np.array([_FAMILIES.index(name) for name in ("broadcast", "bcast", "reduce")])
_POINT_TO_POINT = np.array(
    [_FAMILIES.index(name) for name in ("sendrecv", "send", "recv", "alltoall")]
)
# extra collectives one rank may have recorded at either end, in addition to the difference of their
# counts
_SLACK = 8
_SAMPLE = 512  # collectives, enough to compare alignments
_MAX_END_GAP_NS = 200_000  # tolerance between the ends of one collective
_MAX_END_GAP_SHARE = 0.1  # the same, as a share of the shorter kernel
_DRIFT = 1e-4  # of one clock relative to another: quartz is within 100 ppm
# median and 90th percentile, if the ends are the only evidence for a match
_STRICT_NS = (
    50_000,
    250_000,
)
_MAX_STRAY_SHARE = 0.1  # of the collectives may nevertheless end apart
_MIN_MATCHES = 3  # matched collectives needed to compare two clocks
WALL_NS = 10_000_000_000  # maximum difference between the wall clocks of two hosts


@dataclass(frozen=True, slots=True)
class Channel:
    """The collectives of one member on one communicator, in order. Columns have shape (n,)."""

    member: int
    group: str  # "" if the format does not say
    start: np.ndarray  # int64, on the member's clock
    end: np.ndarray
    family: np.ndarray  # index into _FAMILIES
    bytes: np.ndarray  # -1 unknown
    seq: np.ndarray  # -1 unknown

    @property
    def is_certain(self) -> bool:
        """True if the group name identifies all participants, not just a pair."""
        return bool(self.group) and not np.isin(self.family[0], _POINT_TO_POINT)


@dataclass(frozen=True, slots=True)
class MatchedCollectives:
    """The collectives of one communicator that all of these members recorded."""

    members: tuple[int, ...]
    start: np.ndarray  # int64, shape (members, n), each row on its member's clock
    end: np.ndarray


def collective_family(kernel: str) -> str:
    """ "allreduce" for `ncclDevKernel_AllReduce_Sum_f32_RING_LL`; "" for a generic kernel."""
    match = _FAMILY.search(kernel.split("(")[0])
    return match[0].lower().replace("_", "") if match else ""


def find_channels(member: int, trace: Trace, device: int) -> list[Channel]:
    """The communication of a device: by group, else by family and stream."""
    ops = trace.ops
    rows = np.flatnonzero((ops.kind == Kind.COMM) & (ops.device == device))
    rows = by_start(ops, rows)
    names, inverse = np.unique(ops.name[rows], return_inverse=True)
    codes = np.array(
        [_FAMILIES.index(collective_family(trace.name(int(name)))) for name in names], np.int64
    )[inverse]
    group = ops.group[rows].astype(np.int64)
    # sends are separate from the collectives of their group
    kind = np.where((group < 0) | np.isin(codes, _POINT_TO_POINT), codes, 0)
    keys = np.column_stack([group, kind, np.where(group < 0, ops.stream[rows], -1)])
    result = []
    keys, inverse = np.unique(keys, axis=0, return_inverse=True)
    for number, in_group in enumerate(keys[:, 0].tolist()):
        in_channel = inverse.ravel() == number
        row = rows[in_channel]
        result.append(
            Channel(
                member=member,
                group=trace.name(in_group),
                start=ops.start[row],
                end=ops.end[row],
                family=codes[in_channel],
                bytes=ops.bytes[row],
                seq=ops.seq[row],
            )
        )
    return result


def match_collectives(
    channels: Sequence[Channel], shifts: Mapping[tuple[int, int], tuple[int, int]]
) -> tuple[list[MatchedCollectives], list[str]]:
    """The collectives that members share, and a note per communicator without a match.

    `shifts[a, b]` is the estimate of clock b minus clock a, and its maximum error, both in
    nanoseconds. A pair whose clocks are unknown is missing.
    """
    matched: list[MatchedCollectives] = []
    notes: list[str] = []
    by_group: dict[str, list[Channel]] = {}
    for channel in channels:
        if channel.is_certain:
            by_group.setdefault(channel.group, []).append(channel)
    for group, parts in by_group.items():
        if len(parts) < 2:
            continue
        alignments = [_align(parts[0], aligned, shifts, strict=False) for aligned in parts[1:]]
        if any(aligned is None for aligned in alignments):
            # several groups of one name, such as "tensor_parallel"
            clusters = _match_by_ends(parts, shifts)
            if len({member for cluster in clusters for member in cluster.members}) == len(parts):
                matched += clusters
                continue
            counts = ", ".join(str(len(channel.start)) for channel in parts)
            notes.append(
                f"the collectives of group {group} do not match between ranks ({counts} recorded), "
                "so waits in it are not attributed to any rank; record the same steps on every rank"
            )
            continue
        matched += _in_all(parts, [aligned for aligned in alignments if aligned is not None])
    return (
        matched
        + _match_by_ends([channel for channel in channels if not channel.is_certain], shifts),
        notes,
    )


def _match_by_ends(
    channels: list[Channel], shifts: Mapping[tuple[int, int], tuple[int, int]]
) -> list[MatchedCollectives]:
    """Channels of different members whose ends agree so well that they must be one communicator."""
    remaining = list(channels)
    matched = []
    while remaining:
        first = remaining.pop(0)
        parts = [first]
        rows = []
        for member in sorted({channel.member for channel in remaining} - {first.member}):
            candidates = []
            for channel in remaining:
                is_alike = channel.group == first.group and channel.family[0] == first.family[0]
                if channel.member == member and is_alike:
                    aligned = _align(first, channel, shifts, strict=True)
                    if aligned is not None:
                        candidates.append(
                            (_spread(first, channel, aligned), len(candidates), channel, aligned)
                        )
            if candidates:
                _, _, channel, aligned = min(candidates, key=lambda candidate: candidate[:2])
                parts.append(channel)
                rows.append(aligned)
                remaining = [candidate for candidate in remaining if candidate is not channel]
        matched += _in_all(parts, rows) if rows else []
    return matched


def _in_all(parts: Sequence[Channel], rows: Sequence[np.ndarray]) -> list[MatchedCollectives]:
    """The collectives that all channels have, if any, by the rows of the first."""
    shared = rows[0][:, 0]
    for aligned in rows[1:]:
        shared = np.intersect1d(shared, aligned[:, 0])
    if not len(shared):
        return []
    picks = [shared, *(aligned[np.searchsorted(aligned[:, 0], shared), 1] for aligned in rows)]
    start, end = (
        np.stack([getattr(part, name)[pick] for part, pick in zip(parts, picks, strict=True)])
        for name in ("start", "end")
    )
    return [MatchedCollectives(tuple(part.member for part in parts), start, end)]


def _align(
    a: Channel, b: Channel, shifts: Mapping[tuple[int, int], tuple[int, int]], *, strict: bool
) -> np.ndarray | None:
    """Rows of a and b that are the same collective, shape (n, 2); None if that is not certain."""
    offset = shifts.get((a.member, b.member))
    by_number = _by_number(a, b)
    if by_number is not None:
        return by_number if len(by_number) else None
    lengths = len(a.start), len(b.start)
    slack = abs(lengths[0] - lengths[1]) + _SLACK
    candidates = []
    for shift in range(-slack, slack + 1):
        low = max(0, -shift)
        high = min(lengths[0], lengths[1] - shift)
        if high - low < max(1 if offset and not offset[1] else _MIN_MATCHES, min(lengths) / 2):
            continue
        rows = np.arange(low, high)
        rows = np.column_stack([rows, rows + shift])
        cost = _spread(a, b, rows[:: max(1, len(rows) // _SAMPLE)], offset)
        if cost < np.inf and _is_consistent(a, b, rows):
            candidates.append((cost, shift, rows))
    if not candidates:
        return None
    best = min(cost for cost, _, _ in candidates)
    rows = min(
        (
            (_offset_error(a, b, rows, offset), abs(shift), rows)
            for cost, shift, rows in candidates
            if cost <= 2 * best + 20_000
        ),
        key=lambda candidate: candidate[:2],
    )[2]
    return rows if _leave_together(a, b, rows, offset, strict) else None


def _by_number(a: Channel, b: Channel) -> np.ndarray | None:
    """Rows with the same sequence number; None if a side has no numbers, or duplicates."""
    for channel in (a, b):
        if (channel.seq < 0).any() or len(np.unique(channel.seq)) < len(channel.seq):
            return None
    _, rows_a, rows_b = np.intersect1d(a.seq, b.seq, assume_unique=True, return_indices=True)
    rows = np.column_stack([rows_a, rows_b])[np.argsort(rows_a)]
    return rows if _is_consistent(a, b, rows) else rows[:0]


def _is_consistent(a: Channel, b: Channel, rows: np.ndarray) -> bool:
    """True if families and sizes agree in every row."""
    i, j = rows.T
    if (a.family[i] != b.family[j]).any():
        return False
    is_sized = (a.bytes[i] >= 0) & (b.bytes[j] >= 0) & ~np.isin(a.family[i], _POINT_TO_POINT)
    return not (is_sized & (a.bytes[i] != b.bytes[j])).any()


def _clock_difference(
    a: Channel, b: Channel, rows: np.ndarray, offset: tuple[int, int] | None
) -> tuple[int, np.ndarray]:
    """Median of clock b minus clock a by the ends, and the deviation of each end from it."""
    difference = b.end[rows[:, 1]] - a.end[rows[:, 0]]
    if offset and not offset[1]:
        return offset[0], np.abs(difference - offset[0])
    median = int(difference[0] + round(float(np.median(difference - difference[0]))))
    return median, np.abs(difference - median)


def _spread(
    a: Channel, b: Channel, rows: np.ndarray, offset: tuple[int, int] | None = None
) -> float:
    median, deviation = _clock_difference(a, b, rows, offset)
    return (
        float("inf")
        if offset and abs(median - offset[0]) > offset[1]
        else float(np.median(deviation))
    )


def _offset_error(a: Channel, b: Channel, rows: np.ndarray, offset: tuple[int, int] | None) -> int:
    return abs(_clock_difference(a, b, rows, offset)[0] - offset[0]) if offset else 0


def _leave_together(
    a: Channel, b: Channel, rows: np.ndarray, offset: tuple[int, int] | None, strict: bool
) -> bool:
    """True if both leave every collective together, as participants do."""
    deviation = _clock_difference(a, b, rows, offset)[1]
    if not (offset and not offset[1]):
        ends = a.end[rows[:, 0]]
        difference = b.end[rows[:, 1]] - a.end[rows[:, 0]]
        drift = _drift(ends, difference)
        if np.abs(drift).max(initial=0) <= _DRIFT * (ends[-1] - ends[0]):
            deviation = np.abs(
                difference - difference[0] - drift - np.median(difference - difference[0] - drift)
            )
    if strict:
        return bool(
            np.median(deviation) <= _STRICT_NS[0] and np.quantile(deviation, 0.9) <= _STRICT_NS[1]
        )
    duration = np.minimum((a.end - a.start)[rows[:, 0]], (b.end - b.start)[rows[:, 1]])
    is_checked = ~np.isin(a.family[rows[:, 0]], _ROOTED)
    return not is_checked.any() or bool(
        (deviation > np.maximum(_MAX_END_GAP_NS, duration * _MAX_END_GAP_SHARE))[is_checked].mean()
        <= _MAX_STRAY_SHARE
    )


def _drift(time: np.ndarray, difference: np.ndarray) -> np.ndarray:
    """Drift of one clock from the other, by the medians of the halves; shape (n,)."""
    half = len(time) // 2
    if half < _MIN_MATCHES:
        return np.zeros(len(time))
    early, late = (
        np.median(difference[part] - difference[0]) for part in (slice(half), slice(half, None))
    )
    elapsed = float(np.median(time[half:] - time[0]) - np.median(time[:half] - time[0]))
    centered = time - time[0] - np.median(time - time[0])
    return centered * ((late - early) / elapsed) if elapsed > 0 else np.zeros(len(time))


@dataclass(frozen=True, slots=True)
class Clock:
    """A recording's clock: its time minus `offset_ns` is the first recording's time."""

    offset_ns: int
    spread_ns: int = 0  # median deviation of the ends of collectives from it; 0 if none is matched


def estimate_offset(a: Trace, b: Trace) -> tuple[int, int] | None:
    """Clock b minus clock a, and its maximum error, by the wall clocks; None if unknown."""
    if a is b:
        return 0, 0
    if a.origin.wall_ns is None or b.origin.wall_ns is None:
        return None
    return a.origin.wall_ns - b.origin.wall_ns, WALL_NS


def align_clocks(
    traces: Sequence[Trace], of_member: Sequence[int], matched: Sequence[MatchedCollectives]
) -> tuple[Clock, ...]:
    """One clock per trace, from the ends of collectives, which all participants leave together.

    `of_member` is each member's index in `traces`.
    """
    ends: dict[tuple[int, int], list[np.ndarray]] = {}
    for collectives in matched:
        for row in range(1, len(collectives.members)):
            a = of_member[collectives.members[0]]
            b = of_member[collectives.members[row]]
            difference = collectives.end[row] - collectives.end[0]
            ends.setdefault((a, b), []).append(difference)
            if a != b:
                ends.setdefault((b, a), []).append(-difference)
    pairs = {pair: np.concatenate(parts) for pair, parts in ends.items()}
    aligned = {0: Clock(0, _exact_median(np.abs(pairs[0, 0])) if (0, 0) in pairs else 0)}
    while True:
        reached = [pair for pair in pairs if pair[0] in aligned and pair[1] not in aligned]
        if not reached:
            break
        a, b = max(reached, key=lambda pair: len(pairs[pair]))
        difference = pairs[a, b]
        median = _exact_median(difference)
        spread = _exact_median(np.abs(difference - median))
        aligned[b] = Clock(aligned[a].offset_ns + median, max(spread, aligned[a].spread_ns))
    for index, trace in enumerate(traces):
        if index not in aligned:
            estimate = estimate_offset(traces[0], trace)
            aligned[index] = Clock(estimate[0] if estimate else 0)
    return tuple(aligned[index] for index in range(len(traces)))


def _exact_median(values: np.ndarray) -> int:
    """The median, without the rounding errors of large float64."""
    return int(values[0]) + round(float(np.median(values - values[0])))


def format_seconds(ns: int) -> str:
    units = {86_400: "days", 3_600: "hours", 60: "minutes"}
    size = next((unit for unit in units if ns >= 2e9 * unit), 1)
    return f"{ns / 1e9 / size:.0f} {units.get(size, 'seconds')}"
