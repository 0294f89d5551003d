"""Starvation by proxy: the rank a device waits for inside collectives, and why it was late.

All participants of a collective leave it together, so two ranks start level after it. By the next
one, the late rank has been idle longer and busy longer than the rank that waits for it, and the sum
of both is the wait. A cause is therefore charged with the time the late rank lost to it beyond what
the waiting rank lost to it, the largest first.

If the waiting rank computes meanwhile (gradients are reduced while others are still being
computed), it keeps its lead and waits for the same lateness again in the next collective: see
`_carry_over`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.ranks.collectives import MatchedCollectives

NO_CAUSE = 255  # busy, or not recorded
_UNBLAMED = (Cause.HOST_UNKNOWN, Cause.NO_LAUNCH)
_MIN_LEAD_NS = 100_000  # a shorter wait is not a lead
# of passing blame on, if the late rank itself waited for another rank in another group
_MAX_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class PeerWaits:
    """Waits inside the collectives of one set of members, one per row. Columns have shape (n,)."""

    victim: np.ndarray  # int64, index of the member
    culprit: np.ndarray
    start: np.ndarray  # int64, on the victim's clock
    end: np.ndarray
    since: np.ndarray  # end of the previous collective, on the first member's clock
    arrival: np.ndarray  # of the culprit, on the first member's clock
    number: np.ndarray  # of the collective, in order of arrival


@dataclass(frozen=True, slots=True)
class BlamedWaits:
    """A victim's waits, each nanosecond blamed once; sorted, disjoint columns of shape (n,)."""

    spans: np.ndarray  # int64 (n, 2), on the victim's clock
    culprit: np.ndarray  # int64, index of the member
    cause: np.ndarray  # int64, a Cause or NO_CAUSE


@dataclass(frozen=True, slots=True)
class Lateness:
    """Causes of a member's lateness, by key: sets of spans on its clock."""

    own_idle: dict[int, np.ndarray]  # Cause -> its idle slices
    passed: dict[tuple[int, int], np.ndarray]  # (member, cause) -> its own waits for that


def find_waits(
    matched: Sequence[MatchedCollectives], offsets: np.ndarray, first: np.ndarray
) -> list[PeerWaits]:
    """The waits, one list per set of members, from matched collectives.

    `offsets` are the clocks relative to the first member's, `first` the start of each recording:
    shape (members,).
    """
    sets: dict[tuple[int, ...], list[MatchedCollectives]] = {}
    for collectives in matched:
        sets.setdefault(tuple(sorted(collectives.members)), []).append(collectives)
    result = []
    for members, parts in sets.items():
        member_ids = np.array(members)
        order = [np.argsort(np.array(part.members)) for part in parts]
        start = np.concatenate(
            [part.start[rows] for part, rows in zip(parts, order, strict=True)], axis=1
        )
        end = np.concatenate(
            [part.end[rows] for part, rows in zip(parts, order, strict=True)], axis=1
        )
        arrivals = start - offsets[member_ids, None]
        last = arrivals.argmax(axis=0)
        arrival = arrivals.max(axis=0)
        departures = np.sort((end - offsets[member_ids, None]).min(axis=0))
        recording_start = int((first - offsets)[member_ids].max())
        since = np.concatenate([[recording_start], departures])[
            np.searchsorted(departures, arrival, side="right")
        ]
        wait = np.clip(arrival - arrivals, 0, end - start)
        number = np.argsort(np.argsort(arrival, kind="stable"))
        row, column = np.nonzero(wait > 0)
        result.append(
            PeerWaits(
                member_ids[row],
                member_ids[last[column]],
                start[row, column],
                (start + wait)[row, column],
                np.minimum(since, arrival)[column],
                arrival[column],
                number[column],
            )
        )
    return result


def blame_waits(
    waits: Sequence[PeerWaits],
    late: Sequence[dict[int, np.ndarray]],
    exposed: Sequence[np.ndarray],
    offsets: np.ndarray,
) -> list[BlamedWaits]:
    """Every member's waits, with the culprit and the cause they are blamed on.

    Per member: `late` is its idle slices by Cause, `exposed` the set in which it only communicated,
    `offsets` its clock relative to the first one's.
    """
    members = len(late)
    blamed = [join_waits([]) for _ in range(members)]
    for _ in range(_MAX_ROUNDS if len(waits) > 1 else 1):
        logs = [
            Lateness(own, _waits_by_blame(member_waits, member_exposed))
            for own, member_waits, member_exposed in zip(late, blamed, exposed, strict=True)
        ]
        blamed = [
            join_waits(
                [
                    part
                    for peer_waits in waits
                    for part in _blame_victim(peer_waits, victim, logs, exposed[victim], offsets)
                ]
            )
            for victim in range(members)
        ]
    return blamed


def _waits_by_blame(waits: BlamedWaits, exposed: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
    keys = waits.culprit * 256 + waits.cause
    return {
        divmod(int(key), 256): intervals.intersect(
            intervals.union(waits.spans[keys == key]), exposed
        )
        for key in np.unique(keys)
    }


def _blame_victim(
    waits: PeerWaits,
    victim: int,
    logs: Sequence[Lateness],
    exposed: np.ndarray,
    offsets: np.ndarray,
) -> list[BlamedWaits]:
    result = []
    for culprit in np.unique(waits.culprit[waits.victim == victim]).tolist():
        rows = np.flatnonzero((waits.victim == victim) & (waits.culprit == culprit))
        rows = rows[np.argsort(waits.number[rows])]
        period = np.column_stack([waits.since[rows], waits.arrival[rows]])
        culprit_period = period + offsets[culprit]
        # the same period on the victim: it ends where the wait starts
        victim_period = np.column_stack([waits.since[rows] + offsets[victim], waits.start[rows]])
        victim_period[:, 1] = np.maximum(victim_period[:, 0], victim_period[:, 1])
        blame = []
        excess = []
        for cause, idle in logs[culprit].own_idle.items():
            if cause not in _UNBLAMED:
                blame.append((culprit, cause))
                common = intervals.overlap(
                    victim_period, logs[victim].own_idle.get(cause, intervals.empty())
                )
                excess.append(intervals.overlap(culprit_period, idle) - common)
        for (third, cause), waiting in logs[culprit].passed.items():
            if third != victim:
                blame.append((third, cause))
                common = intervals.overlap(
                    victim_period, logs[victim].passed.get((third, cause), intervals.empty())
                )
                excess.append(intervals.overlap(culprit_period, waiting) - common)
        blame.append((culprit, NO_CAUSE))
        spans = intervals.spans_at(waits, rows)
        lost = _allot(spans, np.column_stack([*excess, np.zeros(len(rows), np.int64)]))
        lost = _carry_over(lost, waits.number[rows], intervals.overlap(spans, exposed))
        result.append(_cut_waits(spans, lost, np.array(blame)))
    return result


def _allot(waits: np.ndarray, excess: np.ndarray) -> np.ndarray:
    """Nanoseconds of each wait by cause: the largest excess first, the rest in the last column."""
    order = np.argsort(-excess[:, :-1], axis=1, kind="stable")
    reach = np.cumsum(np.maximum(np.take_along_axis(excess, order, axis=1), 0), axis=1)
    reach = np.minimum(reach, (waits[:, 1] - waits[:, 0])[:, None])
    lost = np.zeros_like(excess)
    np.put_along_axis(lost, order, np.diff(reach, axis=1, prepend=0), axis=1)
    lost[:, -1] = waits[:, 1] - waits[:, 0] - lost[:, :-1].sum(axis=1)
    return lost


def _carry_over(lost: np.ndarray, number: np.ndarray, exposed: np.ndarray) -> np.ndarray:
    """Charge the remainder to lateness that compute hid in the collectives just before.

    Lateness enters a pool, and leaves it as far as the waiting rank actually stalled. A collective
    in which this rank did not wait for the other empties the pool.
    """
    long_waits = np.flatnonzero(lost.sum(axis=1) >= _MIN_LEAD_NS)
    pool: dict[int, int] = {}
    last = -2
    for row, index, exposed_ns in zip(
        long_waits.tolist(), number[long_waits].tolist(), exposed[long_waits].tolist(), strict=True
    ):
        if index != last + 1:
            pool.clear()
        last = index
        lateness = {key: ns for key, ns in enumerate(lost[row, :-1].tolist()) if ns}
        rest = int(lost[row, -1])
        for key in sorted(pool, key=lambda key: -pool[key]):
            used = min(rest, pool[key])
            lost[row, key] += used
            rest -= used
        lost[row, -1] = rest
        for key, ns in lateness.items():
            pool[key] = pool.get(key, 0) + ns
        unspent = exposed_ns
        for key in sorted(pool, key=lambda key: -pool[key]):
            used = min(unspent, pool[key])
            pool[key] -= used
            unspent -= used
    return lost


def _cut_waits(waits: np.ndarray, lost: np.ndarray, blame: np.ndarray) -> BlamedWaits:
    """Split each wait by cause, largest first, uncaused last; `blame` has a row per column."""
    order = np.argsort(-lost[:, :-1], axis=1, kind="stable")
    order = np.column_stack([order, np.full(len(waits), len(blame) - 1)])
    ends = waits[:, :1] + np.cumsum(np.take_along_axis(lost, order, axis=1), axis=1)
    spans = np.column_stack([np.column_stack([waits[:, 0], ends[:, :-1]]).ravel(), ends.ravel()])
    nonempty = spans[:, 1] > spans[:, 0]
    row_blame = blame[order.ravel()[nonempty]]
    return BlamedWaits(spans[nonempty], row_blame[:, 0], row_blame[:, 1])


def join_waits(parts: Sequence[BlamedWaits]) -> BlamedWaits:
    """All parts in order of time; where waits of several streams overlap, the earlier one wins."""
    spans = np.concatenate([intervals.empty(), *(part.spans for part in parts)])
    no_rows = np.empty(0, np.int64)
    culprit = np.concatenate([no_rows, *(part.culprit for part in parts)])
    cause = np.concatenate([no_rows, *(part.cause for part in parts)])
    order = np.lexsort((spans[:, 1], spans[:, 0]))
    spans = spans[order]
    culprit = culprit[order]
    cause = cause[order]
    if len(spans):
        reach = np.concatenate([spans[:1, 0], np.maximum.accumulate(spans[:, 1])[:-1]])
        spans[:, 0] = np.maximum(spans[:, 0], reach)
        nonempty = spans[:, 1] > spans[:, 0]
        spans = spans[nonempty]
        culprit = culprit[nonempty]
        cause = cause[nonempty]
    return BlamedWaits(spans, culprit, cause)
