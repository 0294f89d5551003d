"""Comparison of ranks: which waited for which inside collectives, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import ABSENT_RANKS, LateRank, PeerWait, RankResult, Slices
from fastfeed.profiler.model.trace import Kind, Trace
from fastfeed.profiler.ranks.collectives import (
    WALL_NS,
    Clock,
    MatchedCollectives,
    align_clocks,
    estimate_offset,
    find_channels,
    format_seconds,
    match_collectives,
)
from fastfeed.profiler.ranks.peer_waits import (
    NO_CAUSE,
    BlamedWaits,
    PeerWaits,
    blame_waits,
    find_waits,
    join_waits,
)

_MIN_SAMPLES = 5  # collectives of one name and size, enough to estimate waits from their spread
_SAME_WORK = 1.5  # times the shortest: still the same amount of work
_LOOSE_CLOCK_NS = 100_000  # clock uncertainty worth a note
_ALIKE = 0.1  # difference of the counts of a kernel on two ranks that do the same work
_COMPARED = 0.5  # of the computing time of each rank, in kernels that all of them run
_ALWAYS = 2 / 3  # of the waiting: a rank that causes less is not the late one in most steps


@dataclass(frozen=True, slots=True)
class RankDevice:
    """One device of one rank."""

    label: str
    trace: Trace
    device: int  # index into trace.devices
    slices: Slices  # its idle time, on its trace's clock
    judged: np.ndarray  # set of spans that its verdict is based on
    first: int  # start of its first op
    last: int  # end of its last op
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Blame:
    """A member's waits inside collectives, within its judged spans.

    `spans`, `cause` and `culprit` are columns of one table, which `charges` sums up: exposed waits
    only, sorted and disjoint. Waits hidden by compute count only in `comm_wait`.
    """

    charges: tuple[PeerWait, ...] = ()  # largest first
    comm_wait: int = 0  # ns
    # int64 (n, 2), on the member's clock
    spans: np.ndarray = field(default_factory=intervals.empty)
    cause: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))  # a Cause, or NO_CAUSE
    # index into the members; -1 elsewhere
    culprit: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))


@dataclass(frozen=True, slots=True)
class RankAnalysis:
    ranks: tuple[RankResult, ...]  # empty if no collective was matched
    blames: tuple[Blame, ...]  # one per member
    clocks: tuple[Clock, ...]  # one per member
    notes: tuple[str, ...]
    late: tuple[LateRank | None, ...]  # one per member
    absent: int = 0  # ranks of the run that are not among the members


def analyze_ranks(members: Sequence[RankDevice]) -> RankAnalysis:
    """Waits of members for each other. TraceError if they cannot be ranks of one run."""
    _check(members)
    traces: list[Trace] = []
    of_member = []
    for member in members:
        index = next(
            (index for index, trace in enumerate(traces) if trace is member.trace), len(traces)
        )
        of_member.append(index)
        traces += [member.trace] if index == len(traces) else []
    channels = [
        channel
        for index, member in enumerate(members)
        for channel in find_channels(index, member.trace, member.device)
    ]
    pairs = [(a, b) for a in range(len(members)) for b in range(len(members)) if a != b]
    guesses = {
        pair: estimate_offset(members[pair[0]].trace, members[pair[1]].trace) for pair in pairs
    }
    matched, notes = match_collectives(
        channels, {pair: estimate for pair, estimate in guesses.items() if estimate is not None}
    )
    trace_clocks = align_clocks(traces, of_member, matched)
    member_clocks = tuple(trace_clocks[index] for index in of_member)
    communicating = {channel.member for channel in channels}
    ranks_here = sorted({member.rank for member in members if member.rank is not None})
    absent = _world_size(members) - len(ranks_here) if ranks_here else 0
    absent_notes = _absent_notes(ranks_here, absent) if absent > 0 else []
    notes += (
        absent_notes + _unmatched_notes(communicating, matched) + _clock_notes(traces, trace_clocks)
    )
    matched_members = {index for collectives in matched for index in collectives.members}
    blames, blamed_ns = _blame_members(
        members, matched, member_clocks, matched_members if absent_notes else set()
    )
    for index in sorted(communicating - matched_members):
        blames[index] = estimate_waits(members[index])
        if not blames[index].comm_wait:
            continue
        notes.append(
            f"{members[index].label}: its waits inside collectives are estimated, from how much"
            " longer each took than the shortest of its kind, because no other rank's trace"
            " contains the same collectives"
        )
    counts = [
        sum(len(item.start[0]) for item in matched if index in item.members)
        for index in range(len(members))
    ]
    kernels = kernel_ratios(
        [
            (member.trace, _compute_rows(member.trace, member.device, member.judged))
            for member in members
        ]
    )
    ranks = tuple(
        RankResult(member.label, clock.offset_ns, count, blame.comm_wait, ns, ratio)
        for member, clock, count, blame, ns, ratio in zip(
            members, member_clocks, counts, blames, blamed_ns, kernels, strict=True
        )
    )
    labels = [member.label for member in members]
    late = late_ranks([blame.charges for blame in blames], dict(zip(labels, kernels, strict=True)))
    return RankAnalysis(
        ranks if matched else (), tuple(blames), member_clocks, tuple(notes), late, max(absent, 0)
    )


def estimate_waits(member: RankDevice, known_waits: np.ndarray | None = None) -> Blame:
    """Estimate waits for missing ranks: each collective's excess over the shortest of its kind.

    `known_waits` is the set of waits for peers that are present: they come first in each kernel,
    and are excluded. One kernel may transfer a kilobyte or a gigabyte: if sizes are unknown, a
    quarter of its runs must have taken about as long as the shortest.
    """
    ops = member.trace.ops
    rows = np.flatnonzero((ops.kind == Kind.COMM) & (ops.device == member.device))
    _, groups = np.unique(
        np.column_stack([ops.name[rows], ops.bytes[rows]]), axis=0, return_inverse=True
    )
    parts = [intervals.empty()]
    for group in range(int(groups.max(initial=-1)) + 1):
        group_rows = rows[groups.ravel() == group]
        if len(group_rows) >= _MIN_SAMPLES:
            kernels = intervals.spans_at(ops, group_rows)
            start = ops.start[group_rows] + (
                0 if known_waits is None else intervals.overlap(kernels, known_waits)
            )
            duration = ops.end[group_rows] - start
            transfer, quarter = np.quantile(duration, (0.05, 0.25)).round().astype(np.int64)
            if ops.bytes[group_rows[0]] < 0 and quarter > _SAME_WORK * transfer:
                continue
            parts.append(intervals.spans(start, start + np.maximum(duration - transfer, 0)))
    waits = intervals.intersect(intervals.union(*parts), member.judged)
    exposed = intervals.intersect(waits, _exposed(member))
    return _sum_charges((), _absent_waits(exposed), intervals.measure(waits))


def _absent_waits(spans: np.ndarray) -> BlamedWaits:
    """Waits for ranks that are not here, for an unknown cause."""
    return BlamedWaits(spans, np.full(len(spans), -1), np.full(len(spans), NO_CAUSE))


def _add_absent_waits(members: Sequence[RankDevice], blame: Blame, guessed: Blame) -> Blame:
    """Known waits for ranks that are present, plus estimated ones for absent ranks."""
    more = intervals.subtract(guessed.spans, intervals.union(blame.spans))
    if not len(more):
        return blame
    known = BlamedWaits(blame.spans, blame.culprit, blame.cause)
    waits = join_waits([known, _absent_waits(more)])
    return _sum_charges(members, waits, blame.comm_wait + guessed.comm_wait)


def _blame_members(
    members: Sequence[RankDevice],
    matched: Sequence[MatchedCollectives],
    member_clocks: Sequence[Clock],
    with_absent: set[int],
) -> tuple[list[Blame], list[int]]:
    """Every member's blame, also for absent ranks, and the time others waited for it."""
    if not matched:
        return [Blame() for _ in members], [0] * len(members)
    offsets = np.array([clock.offset_ns for clock in member_clocks], np.int64)
    peer_waits = find_waits(
        matched, offsets, np.array([member.first for member in members], np.int64)
    )
    lateness = [
        {
            int(cause): intervals.union(intervals.spans_at(member.slices, of_cause))
            for cause in np.unique(member.slices.cause)
            for of_cause in [member.slices.cause == cause]
        }
        for member in members
    ]
    exposed = [_exposed(member) for member in members]
    blamed = blame_waits(peer_waits, lateness, exposed, offsets)
    blames = []
    for index, (member, blamed_waits, exposed_time) in enumerate(
        zip(members, blamed, exposed, strict=True)
    ):
        all_waits = intervals.union(blamed_waits.spans)
        judged_waits = intervals.intersect(all_waits, member.judged)
        inside = intervals.intersect(exposed_time, member.judged)
        blame = _sum_charges(
            members, _clip_waits(blamed_waits, inside), intervals.measure(judged_waits)
        )
        if index in with_absent:
            blame = _add_absent_waits(members, blame, estimate_waits(member, all_waits))
        blames.append(blame)
    return blames, _blamed_ns(members, peer_waits)


def _sum_charges(members: Sequence[RankDevice], part: BlamedWaits, comm_wait: int) -> Blame:
    keys, inverse = np.unique(part.culprit * 256 + part.cause, return_inverse=True)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, inverse, part.spans[:, 1] - part.spans[:, 0])
    charges = [
        PeerWait(
            members[culprit].label if culprit >= 0 else ABSENT_RANKS,
            None if cause == NO_CAUSE else Cause(cause),
            total,
        )
        for (culprit, cause), total in zip(
            (divmod(key, 256) for key in keys.tolist()), sums.tolist(), strict=True
        )
    ]
    return Blame(
        tuple(sorted(charges, key=lambda charge: -charge.ns)),
        comm_wait,
        part.spans,
        part.cause.astype(np.uint8),
        part.culprit.astype(np.int32),
    )


def _clip_waits(part: BlamedWaits, inside: np.ndarray) -> BlamedWaits:
    """The waits clipped to a set of spans."""
    cut = intervals.intersect(part.spans, inside)
    row = np.searchsorted(part.spans[:, 0], cut[:, 0], side="right") - 1
    return BlamedWaits(cut, part.culprit[row], part.cause[row])


def _blamed_ns(members: Sequence[RankDevice], waits: Sequence[PeerWaits]) -> list[int]:
    """Nanoseconds that others waited for each member, within their judged spans."""
    total = [0] * len(members)
    for victim, member in enumerate(members):
        parts = [
            (peer.culprit[of_victim], peer.start[of_victim], peer.end[of_victim])
            for peer in waits
            for of_victim in [peer.victim == victim]
        ]
        if parts:
            culprit = np.concatenate([part[0] for part in parts])
            spans = np.concatenate([intervals.spans(*part[1:]) for part in parts])
            for rank in np.unique(culprit).tolist():
                total[rank] += intervals.measure(
                    intervals.intersect(intervals.union(spans[culprit == rank]), member.judged)
                )
    return total


def _exposed(member: RankDevice) -> np.ndarray:
    """Spans in which the device only communicated."""
    ops = member.trace.ops
    of_device = ops.device == member.device
    comm = of_device & (ops.kind == Kind.COMM)
    compute = of_device & ((ops.kind == Kind.COMPUTE) | (ops.kind == Kind.GRAPH))
    return intervals.subtract(
        intervals.union(intervals.spans_at(ops, comm)),
        intervals.union(intervals.spans_at(ops, compute)),
    )


def _check(members: Sequence[RankDevice]) -> None:
    """Raise TraceError unless the members can be ranks of one run."""
    sizes = {
        size: member
        for member in members
        if (size := member.trace.metadata.get("world_size")) is not None
    }
    if len(sizes) > 1:
        (a, first), (b, second), *_ = sizes.items()
        raise TraceError(
            f"ranks of one run must have one world size, got {a} in {first.trace.origin.path} and"
            f" {b} in {second.trace.origin.path}; analyze each run alone, or compare two with"
            " fastfeed diff"
        )
    ranks: dict[int, RankDevice] = {}
    for member in members:
        if member.rank is None:
            continue
        earlier = ranks.setdefault(member.rank, member)
        if earlier.trace is not member.trace:
            raise TraceError(
                f"each rank of a run must be given once, got rank {member.rank} in"
                f" {earlier.trace.origin.path} and in {member.trace.origin.path}; analyze them"
                " alone, or compare two runs with fastfeed diff"
            )
    walls = [
        (member, wall) for member in members if (wall := member.trace.origin.wall_ns) is not None
    ]
    for member, wall in walls[1:]:
        earlier, base_wall = walls[0]
        distance = max(
            member.first + wall - earlier.last - base_wall,
            earlier.first + base_wall - member.last - wall,
        )
        if distance > WALL_NS:
            raise TraceError(
                "ranks of one run must be recorded at the same time, got"
                f" {earlier.trace.origin.path} and {member.trace.origin.path}"
                f" {format_seconds(distance)} apart; record the same steps on every rank, or"
                " compare two runs with fastfeed diff"
            )


def _world_size(members: Sequence[RankDevice]) -> int:
    sizes = (member.trace.metadata.get("world_size") for member in members)
    size = next((size for size in sizes if size is not None), None)
    return size if isinstance(size, int) else 0


def _absent_notes(ranks: Sequence[int], absent: int) -> list[str]:
    """A note if the run has more ranks than were given."""
    listed = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return [
        f"{len(ranks)} of {len(ranks) + absent} ranks are here ({listed}): waits for the others are"
        " estimates, and cannot be attributed to a rank or a cause; pass the traces of all ranks"
        " together"
    ]


def _unmatched_notes(communicating: set[int], matched: Sequence[MatchedCollectives]) -> list[str]:
    if len(communicating) < 2 or matched:
        return []
    return [
        "the ranks have no collective in common: they may be of different runs or have recorded"
        " different steps, so each is judged alone; record the same steps on every rank"
    ]


def _clock_notes(traces: Sequence[Trace], clocks: Sequence[Clock]) -> list[str]:
    return [
        f"{trace.origin.path}: its clock is known to within {clock.spread_ns / 1e6:.1f} ms, so"
        " shorter waits for other ranks are not significant"
        for trace, clock in zip(traces, clocks, strict=True)
        if clock.spread_ns > _LOOSE_CLOCK_NS
    ]


def _compute_rows(trace: Trace, device: int, judged: np.ndarray) -> np.ndarray:
    """Index into Trace.ops of a device's kernels that start within the spans: int64, (n,)."""
    ops = trace.ops
    rows = np.flatnonzero(
        (ops.device == device) & ((ops.kind == Kind.COMPUTE) | (ops.kind == Kind.GRAPH))
    )
    return rows[
        intervals.overlap(intervals.spans(ops.start[rows], ops.start[rows] + 1), judged) > 0
    ]


def kernel_ratios(members: Sequence[tuple[Trace, np.ndarray]]) -> tuple[float | None, ...]:
    """Time that the same kernels take on each member, relative to the median of all.

    Per member, the median over kernels of its mean time by that of the median member, weighted by
    time. None for all if they do not run the same kernels equally often.
    """
    nothing = (None,) * len(members)
    totals = [_by_name(trace, rows) for trace, rows in members]
    names = sorted(set.intersection(*(set(total) for total in totals))) if len(totals) > 1 else []
    if not names:
        return nothing
    count = np.array([[total[name][0] for name in names] for total in totals], float)
    spent = np.array([[total[name][1] for name in names] for total in totals], float)
    usual = np.median(count, axis=0)
    is_same = (np.abs(count - usual) <= _ALIKE * usual).all(axis=0) & (spent > 0).all(axis=0)
    whole = np.array([sum(ns for _, ns in total.values()) for total in totals], float)
    if not is_same.any() or (spent[:, is_same].sum(axis=1) < _COMPARED * whole).any():
        return nothing
    mean = spent[:, is_same] / count[:, is_same]
    median = np.median(mean, axis=0)
    weight = median * usual[is_same]
    return tuple(_weighted_median(row / median, weight) for row in mean)


def _by_name(trace: Trace, rows: np.ndarray) -> dict[str, tuple[int, int]]:
    """Number of runs of each kernel, and their nanoseconds in all."""
    ops = trace.ops
    names, inverse = np.unique(ops.name[rows], return_inverse=True)
    spent = np.zeros(len(names), np.int64)
    np.add.at(spent, inverse, ops.end[rows] - ops.start[rows])
    count = np.bincount(inverse, minlength=len(names))
    return {
        trace.name(name): (number, ns)
        for name, number, ns in zip(names.tolist(), count.tolist(), spent.tolist(), strict=True)
    }


def _weighted_median(values: np.ndarray, weight: np.ndarray) -> float:
    order = np.argsort(values, kind="stable")
    reach = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(reach, reach[-1] / 2)])


def late_ranks(
    charges: Sequence[Sequence[PeerWait]], kernels: Mapping[str, float | None]
) -> tuple[LateRank | None, ...]:
    """The rank that costs all members most, or another that a member mostly waits for."""
    common = _late_rank([charge for own in charges for charge in own], kernels)
    if common is None or common.changes:
        return (common,) * len(charges)
    result = []
    for own in charges:
        late = _late_rank(own, kernels)
        result.append(common if late is None or late.label == common.label else late)
    return tuple(result)


def _late_rank(charges: Sequence[PeerWait], kernels: Mapping[str, float | None]) -> LateRank | None:
    """The rank that these charges name most; None if it is not in the analysis."""
    by_culprit: dict[str, int] = {}
    by_cause: dict[tuple[str, Cause | None], int] = {}
    for charge in charges:
        if charge.late_rank != ABSENT_RANKS:
            by_culprit[charge.late_rank] = by_culprit.get(charge.late_rank, 0) + charge.ns
            key = charge.late_rank, charge.cause
            by_cause[key] = by_cause.get(key, 0) + charge.ns
    waited = sum(by_culprit.values())
    if not waited:
        return None
    label = max(by_culprit, key=lambda culprit: by_culprit[culprit])
    cause = max((key for key in by_cause if key[0] == label), key=lambda key: by_cause[key])[1]
    return LateRank(
        label=label,
        cause=cause,
        waited_ns=by_culprit[label],
        share=by_culprit[label] / waited,
        changes=by_culprit[label] < _ALWAYS * waited,
        kernels=kernels.get(label),
    )
