"""Several ranks side by side: who waited for whom inside collectives, and what made that one late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import Charge, RankResult, Slices
from fastfeed.profiler.model.trace import Kind, Trace
from fastfeed.profiler.ranks.clock_sync import WALL_NS, Clock, clocks, guess
from fastfeed.profiler.ranks.collectives import Matched, channels, match
from fastfeed.profiler.ranks.peer_waits import NO_CAUSE, Pieces, Waited, charged, waited

__all__ = ["ABSENT", "NO_CAUSE", "Blame", "Member", "Together", "estimated", "together"]

ABSENT = "ranks that are not in this analysis"
_ALIKE = 5  # collectives of one name and size, before their spread says what is waiting
_ONE_SIZE = 1.5  # times the shortest: what still is the same work
_LOOSE_NS = 100_000  # of clocks, that is worth telling


@dataclass(frozen=True, slots=True)
class Member:
    """One device of one rank."""

    label: str
    trace: Trace
    device: int  # index into trace.devices
    slices: Slices  # its idle time, on its trace's clock
    judged: np.ndarray  # set of spans that its verdict is about
    first: int  # start of its first op
    last: int  # end of its last op
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Blame:
    """What one member waited for inside collectives, within its judged spans.

    Rows of `spans`, `cause` and `culprit` belong together: they are what `charges` sums up, exposed waits only, sorted
    and disjoint. Waits that compute hides count in `comm_wait` alone.
    """

    charges: tuple[Charge, ...] = ()  # largest first
    comm_wait: int = 0  # ns
    spans: np.ndarray = field(default_factory=intervals.empty)  # int64 (n, 2), on the member's clock
    cause: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))  # a Cause, or NO_CAUSE
    culprit: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))  # index into the members; -1 elsewhere


@dataclass(frozen=True, slots=True)
class Together:
    ranks: tuple[RankResult, ...]  # empty where no collective has a partner
    blames: tuple[Blame, ...]  # one per member
    clocks: tuple[Clock, ...]  # one per member
    notes: tuple[str, ...]


def together(members: Sequence[Member]) -> Together:
    """Who waited for whom. TraceError where the members cannot be ranks of one run."""
    _check(members)
    traces: list[Trace] = []
    of_member = []
    for member in members:
        at = next((at for at, trace in enumerate(traces) if trace is member.trace), len(traces))
        of_member.append(at)
        traces += [member.trace] if at == len(traces) else []
    each = [one for at, member in enumerate(members) for one in channels(at, member.trace, member.device)]
    pairs = [(a, b) for a in range(len(members)) for b in range(len(members)) if a != b]
    guesses = {pair: guess(members[pair[0]].trace, members[pair[1]].trace) for pair in pairs}
    matched, notes = match(each, {pair: known for pair, known in guesses.items() if known is not None})
    shown = clocks(traces, of_member, matched)
    mine = tuple(shown[at] for at in of_member)
    talking = {one.member for one in each}
    absent = _absent(members)
    notes += absent + _apart(talking, matched) + _loose(traces, shown)
    paired = {at for one in matched for at in one.members}
    blames, blamed = _blames(members, matched, mine, paired if absent else set())
    for at in sorted(talking - paired):
        blames[at] = estimated(members[at])
        if not blames[at].comm_wait:
            continue
        notes.append(
            f"{members[at].label}: its waits inside collectives are estimated, from how much longer each took than "
            "the shortest of its kind, because no other rank's trace has the same ones"
        )
    counts = [sum(len(one.start[0]) for one in matched if at in one.members) for at in range(len(members))]
    ranks = tuple(
        RankResult(member.label, clock.offset_ns, count, blame.comm_wait, ns)
        for member, clock, count, blame, ns in zip(members, mine, counts, blames, blamed, strict=True)
    )
    return Together(ranks if matched else (), tuple(blames), mine, tuple(notes))


def estimated(member: Member, known: np.ndarray | None = None) -> Blame:
    """Waits of a rank whose peers are not here: how much longer a collective took than most of its name and size.

    `known` is a set of waits for peers that are: they come first in each kernel, and are left out. One kernel serves a
    kilobyte and a gigabyte: where sizes are unknown, a quarter of its runs must have taken about as long as the
    shortest.
    """
    ops = member.trace.ops
    rows = np.flatnonzero((ops.kind == Kind.COMM) & (ops.device == member.device))
    _, alike = np.unique(np.column_stack([ops.name[rows], ops.bytes[rows]]), axis=0, return_inverse=True)
    parts = [intervals.empty()]
    for one in range(int(alike.max(initial=-1)) + 1):
        of = rows[alike.ravel() == one]
        if len(of) >= _ALIKE:
            kernels = intervals.spans(ops.start[of], ops.end[of])
            start = ops.start[of] + (0 if known is None else intervals.overlap(kernels, known))
            took = ops.end[of] - start
            transfer, quarter = np.quantile(took, (0.05, 0.25)).round().astype(np.int64)
            if ops.bytes[of[0]] < 0 and quarter > _ONE_SIZE * transfer:
                continue
            parts.append(intervals.spans(start, start + np.maximum(took - transfer, 0)))
    waits = intervals.intersect(intervals.union(*parts), member.judged)
    seen = intervals.intersect(waits, _exposed(member))
    charge = Charge(ABSENT, None, intervals.measure(seen))
    return Blame(
        (charge,) if charge.ns else (),
        intervals.measure(waits),
        seen,
        np.full(len(seen), NO_CAUSE, np.uint8),
        np.full(len(seen), -1, np.int32),
    )


def _with_absent(blame: Blame, guessed: Blame) -> Blame:
    """What is known of waits for the ranks that are here, and beside it what others may have cost."""
    more = intervals.subtract(guessed.spans, intervals.union(blame.spans))
    ns = intervals.measure(more)
    if not ns:
        return blame
    spans = np.concatenate([blame.spans, more])
    order = np.argsort(spans[:, 0], kind="stable")
    return Blame(
        tuple(sorted((*blame.charges, Charge(ABSENT, None, ns)), key=lambda charge: -charge.ns)),
        blame.comm_wait + guessed.comm_wait,
        spans[order],
        np.concatenate([blame.cause, np.full(len(more), NO_CAUSE, np.uint8)])[order],
        np.concatenate([blame.culprit, np.full(len(more), -1, np.int32)])[order],
    )


def _blames(
    members: Sequence[Member], matched: Sequence[Matched], mine: Sequence[Clock], guessing: set[int]
) -> tuple[list[Blame], list[int]]:
    """Every member's blame, and how long the others waited for it; `guessing` may have waited for ranks not here."""
    offsets = np.array([clock.offset_ns for clock in mine], np.int64)
    waits = waited(matched, offsets, np.array([member.first for member in members], np.int64))
    late = [
        {
            int(cause): intervals.union(
                intervals.spans(member.slices.start[hit], member.slices.end[hit])  # one set per cause
            )
            for cause in np.unique(member.slices.cause)
            for hit in [member.slices.cause == cause]
        }
        for member in members
    ]
    exposed = [_exposed(member) for member in members]
    pieces = charged(waits, late, exposed, offsets)
    blames = []
    for at, (member, part, alone) in enumerate(zip(members, pieces, exposed, strict=True)):
        known = intervals.union(part.spans)
        in_judged = intervals.intersect(known, member.judged)
        blame = _summed(members, _within(part, intervals.intersect(alone, member.judged)), in_judged)
        blames.append(_with_absent(blame, estimated(member, known)) if at in guessing else blame)
    return blames, _blamed(members, waits)


def _summed(members: Sequence[Member], part: Pieces, waits: np.ndarray) -> Blame:
    ns = part.spans[:, 1] - part.spans[:, 0]
    keys, of = np.unique(part.culprit * 256 + part.cause, return_inverse=True)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, of, ns)
    charges = [
        Charge(members[key // 256].label, None if key % 256 == NO_CAUSE else Cause(key % 256), total)
        for key, total in zip(keys.tolist(), sums.tolist(), strict=True)
    ]
    return Blame(
        tuple(sorted(charges, key=lambda charge: -charge.ns)),
        intervals.measure(waits),
        part.spans,
        part.cause.astype(np.uint8),
        part.culprit.astype(np.int32),
    )


def _within(part: Pieces, inside: np.ndarray) -> Pieces:
    """What lies in a set; whole rows are cut where the set ends."""
    cut = intervals.intersect(part.spans, inside)
    row = np.searchsorted(part.spans[:, 0], cut[:, 0], side="right") - 1
    return Pieces(cut, part.culprit[row], part.cause[row])


def _blamed(members: Sequence[Member], waits: Sequence[Waited]) -> list[int]:
    """Nanoseconds that others, within their judged spans, waited for each."""
    total = [0] * len(members)
    for victim, member in enumerate(members):
        parts = [(one.culprit[hit], one.start[hit], one.end[hit]) for one in waits for hit in [one.victim == victim]]
        if parts:
            culprit = np.concatenate([part[0] for part in parts])
            spans = np.concatenate([intervals.spans(*part[1:]) for part in parts])
            for who in np.unique(culprit).tolist():
                total[who] += intervals.measure(
                    intervals.intersect(intervals.union(spans[culprit == who]), member.judged)
                )
    return total


def _exposed(member: Member) -> np.ndarray:
    """When the device did nothing but communicate."""
    ops = member.trace.ops
    here = ops.device == member.device
    comm = here & (ops.kind == Kind.COMM)
    compute = here & ((ops.kind == Kind.COMPUTE) | (ops.kind == Kind.GRAPH))
    return intervals.subtract(
        intervals.union(intervals.spans(ops.start[comm], ops.end[comm])),
        intervals.union(intervals.spans(ops.start[compute], ops.end[compute])),
    )


def _check(members: Sequence[Member]) -> None:
    """Whether they can be ranks of one run."""
    sizes = {size: member for member in members if (size := member.trace.metadata.get("world_size")) is not None}
    if len(sizes) > 1:
        (a, first), (b, second), *_ = sizes.items()
        raise TraceError(
            f"ranks of one run have one world size, got {a} in {first.trace.origin.path} and {b} in "
            f"{second.trace.origin.path}; analyze each run alone, or compare two with fastfeed diff"
        )
    ranks: dict[int, Member] = {}
    for member in members:
        if member.rank is None:
            continue
        before = ranks.setdefault(member.rank, member)
        if before.trace is not member.trace:
            raise TraceError(
                f"each rank of a run is given once, got rank {member.rank} in {before.trace.origin.path} and in "
                f"{member.trace.origin.path}; analyze them alone, or compare two runs with fastfeed diff"
            )
    walls = [(member, wall) for member in members if (wall := member.trace.origin.wall_ns) is not None]
    for member, wall in walls[1:]:
        before, base = walls[0]
        away = max(member.first + wall - before.last - base, before.first + base - member.last - wall)
        if away > WALL_NS:
            raise TraceError(
                f"ranks of one run are recorded at the same time, got {before.trace.origin.path} and "
                f"{member.trace.origin.path} {_long(away)} apart; record the same steps on every rank, or compare two "
                "runs with fastfeed diff"
            )


def _long(ns: int) -> str:
    seconds = ns / 1e9
    return next(
        (f"{seconds / unit:.0f} {name}" for unit, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes"))
         if seconds >= 2 * unit),
        f"{seconds:.0f} seconds",
    )  # fmt: skip


def _absent(members: Sequence[Member]) -> list[str]:
    """A note where the run has more ranks than are here."""
    size = next((size for member in members if (size := member.trace.metadata.get("world_size")) is not None), None)
    known = sorted({member.rank for member in members if member.rank is not None})
    if not isinstance(size, int) or not known or len(known) >= size:
        return []
    here = ", ".join(map(str, known[:8])) + (", ..." if len(known) > 8 else "")
    return [
        f"{len(known)} of {size} ranks are here ({here}): waits for the others are estimates, and cannot be charged to "
        "a rank or a cause; give the traces of all ranks together"
    ]


def _apart(talking: set[int], matched: Sequence[Matched]) -> list[str]:
    if len(talking) < 2 or matched:
        return []
    return [
        "the ranks have no collective in common: they may be of different runs or have recorded different steps, so "
        "each is judged alone; record the same steps on every rank"
    ]


def _loose(traces: Sequence[Trace], shown: Sequence[Clock]) -> list[str]:
    return [
        f"{trace.origin.path}: its clock is known within {clock.spread_ns / 1e6:.1f} ms, so shorter waits for other "
        "ranks mean nothing"
        for trace, clock in zip(traces, shown, strict=True)
        if clock.spread_ns > _LOOSE_NS
    ]
