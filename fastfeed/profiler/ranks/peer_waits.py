"""Starvation by proxy: whom a device waits for inside collectives, and what made that one late.

All participants of a collective leave together, so two ranks start even after it. Until the next one, the late rank
takes as much longer as it is idle longer and busy longer than the rank that waits for it. A cause is therefore charged
with what the late rank lost to it beyond what the waiting rank lost to it as well, the largest first.

Where the waiting rank computes meanwhile (gradients are reduced while others are still made), it keeps its lead, and
waits for the same lateness again in the next collective: see `_carried`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.ranks.collectives import Matched

__all__ = ["NO_CAUSE", "Late", "Pieces", "Waited", "charged", "waited"]

NO_CAUSE = 255  # busy, or not recorded
_SILENT = (Cause.HOST_UNKNOWN, Cause.NO_LAUNCH)
_EVEN_NS = 100_000  # who waits less has no lead
_ROUNDS = 3  # that blame is passed on, where the late rank itself waited for another in another group


@dataclass(frozen=True, slots=True)
class Waited:
    """Waits inside the collectives of some members: row i of each column is one. Shape (n,)."""

    victim: np.ndarray  # int64, index of the member
    culprit: np.ndarray
    start: np.ndarray  # int64, on the victim's clock
    end: np.ndarray
    since: np.ndarray  # end of the collective before it, on the first member's clock
    arrival: np.ndarray  # of the culprit, on the first member's clock
    number: np.ndarray  # of the collective, in order of arrival


@dataclass(frozen=True, slots=True)
class Pieces:
    """A victim's waits, each nanosecond blamed once; sorted and disjoint. Columns have shape (n,)."""

    spans: np.ndarray  # int64 (n, 2), on the victim's clock
    culprit: np.ndarray  # int64, index of the member
    cause: np.ndarray  # int64, a Cause or NO_CAUSE


@dataclass(frozen=True, slots=True)
class Late:
    """What made a member late, by key: sets of spans on its clock."""

    own: dict[int, np.ndarray]  # Cause -> its idle slices
    passed: dict[tuple[int, int], np.ndarray]  # (member, cause) -> its own waits for that


def waited(matched: Sequence[Matched], offsets: np.ndarray, first: np.ndarray) -> list[Waited]:
    """The waits, one list per set of members, from matched collectives.

    `offsets` are the members' clocks against the first one's, `first` where each recording starts; shape (members,).
    """
    sets: dict[tuple[int, ...], list[Matched]] = {}
    for one in matched:
        sets.setdefault(tuple(sorted(one.members)), []).append(one)
    found = []
    for members, parts in sets.items():
        of = np.array(members)
        order = [np.argsort(np.array(part.members)) for part in parts]
        start = np.concatenate([part.start[rows] for part, rows in zip(parts, order, strict=True)], axis=1)
        end = np.concatenate([part.end[rows] for part, rows in zip(parts, order, strict=True)], axis=1)
        arrive = start - offsets[of, None]
        last = arrive.argmax(axis=0)
        arrival = arrive.max(axis=0)
        leave = np.sort((end - offsets[of, None]).min(axis=0))
        begin = int((first - offsets)[of].max())
        since = np.concatenate([[begin], leave])[np.searchsorted(leave, arrival, side="right")]
        wait = np.clip(arrival - arrive, 0, end - start)
        number = np.argsort(np.argsort(arrival, kind="stable"))
        row, column = np.nonzero(wait > 0)
        found.append(
            Waited(
                of[row],
                of[last[column]],
                start[row, column],
                (start + wait)[row, column],
                np.minimum(since, arrival)[column],
                arrival[column],
                number[column],
            )
        )
    return found


def charged(
    waits: Sequence[Waited],
    late: Sequence[dict[int, np.ndarray]],
    exposed: Sequence[np.ndarray],
    offsets: np.ndarray,
) -> list[Pieces]:
    """Every member's waits with whom and what they are blamed on.

    Of each member: `late` its idle slices by Cause, `exposed` the set in which it did nothing but communicate,
    `offsets` its clock against the first one's.
    """
    members = len(late)
    pieces = [_joined([]) for _ in range(members)]
    for _ in range(_ROUNDS if len(waits) > 1 else 1):
        logs = [Late(own, _by_blame(done, alone)) for own, done, alone in zip(late, pieces, exposed, strict=True)]
        pieces = [
            _joined([part for one in waits for part in _blamed(one, victim, logs, exposed[victim], offsets)])
            for victim in range(members)
        ]
    return pieces


def _by_blame(pieces: Pieces, exposed: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
    keys = pieces.culprit * 256 + pieces.cause
    return {
        divmod(int(key), 256): intervals.intersect(intervals.union(pieces.spans[keys == key]), exposed)
        for key in np.unique(keys)
    }


def _blamed(waits: Waited, victim: int, logs: Sequence[Late], exposed: np.ndarray, offsets: np.ndarray) -> list[Pieces]:
    found = []
    for culprit in np.unique(waits.culprit[waits.victim == victim]).tolist():
        rows = np.flatnonzero((waits.victim == victim) & (waits.culprit == culprit))
        rows = rows[np.argsort(waits.number[rows])]
        period = np.column_stack([waits.since[rows], waits.arrival[rows]])
        own = period + offsets[culprit]
        # the same stretch on the victim: it ends where the wait begins
        beside = np.column_stack([waits.since[rows] + offsets[victim], waits.start[rows]])
        beside[:, 1] = np.maximum(beside[:, 0], beside[:, 1])
        blame, excess = [], []
        for cause, idle in logs[culprit].own.items():
            if cause not in _SILENT:
                blame.append((culprit, cause))
                common = intervals.overlap(beside, logs[victim].own.get(cause, intervals.empty()))
                excess.append(intervals.overlap(own, idle) - common)
        for (other, cause), waiting in logs[culprit].passed.items():
            if other != victim:
                blame.append((other, cause))
                common = intervals.overlap(beside, logs[victim].passed.get((other, cause), intervals.empty()))
                excess.append(intervals.overlap(own, waiting) - common)
        blame.append((culprit, NO_CAUSE))
        spans = intervals.spans(waits.start[rows], waits.end[rows])
        lost = _allotted(spans, np.column_stack([*excess, np.zeros(len(rows), np.int64)]))
        lost = _carried(lost, waits.number[rows], intervals.overlap(spans, exposed))
        found.append(_cut(spans, lost, np.array(blame)))
    return found


def _allotted(waits: np.ndarray, excess: np.ndarray) -> np.ndarray:
    """Nanoseconds of each wait by cause: the largest excess first, what is left over to the last column."""
    order = np.argsort(-excess[:, :-1], axis=1, kind="stable")
    reach = np.cumsum(np.maximum(np.take_along_axis(excess, order, axis=1), 0), axis=1)
    reach = np.minimum(reach, (waits[:, 1] - waits[:, 0])[:, None])
    lost = np.zeros_like(excess)
    np.put_along_axis(lost, order, np.diff(reach, axis=1, prepend=0), axis=1)
    lost[:, -1] = waits[:, 1] - waits[:, 0] - lost[:, :-1].sum(axis=1)
    return lost


def _carried(lost: np.ndarray, number: np.ndarray, exposed: np.ndarray) -> np.ndarray:
    """The same, with what is left over charged to lateness that compute hid in the collectives right before.

    Lateness goes into a pool, and leaves it as far as the waiting rank really stood still. The pool is emptied by a
    collective in which this rank did not wait for that one.
    """
    long = np.flatnonzero(lost.sum(axis=1) >= _EVEN_NS)
    pool: dict[int, int] = {}
    last = -2
    for row, at, still in zip(long.tolist(), number[long].tolist(), exposed[long].tolist(), strict=True):
        if at != last + 1:
            pool.clear()
        last = at
        given = {key: ns for key, ns in enumerate(lost[row, :-1].tolist()) if ns}
        rest = int(lost[row, -1])
        for key in sorted(pool, key=lambda key: -pool[key]):
            taken = min(rest, pool[key])
            lost[row, key] += taken
            rest -= taken
        lost[row, -1] = rest
        for key, ns in given.items():
            pool[key] = pool.get(key, 0) + ns
        felt = still
        for key in sorted(pool, key=lambda key: -pool[key]):
            taken = min(felt, pool[key])
            pool[key] -= taken
            felt -= taken
    return lost


def _cut(waits: np.ndarray, lost: np.ndarray, blame: np.ndarray) -> Pieces:
    """Each wait in pieces, the largest first and what has no cause last; a row of `blame` for each column."""
    order = np.argsort(-lost[:, :-1], axis=1, kind="stable")
    order = np.column_stack([order, np.full(len(waits), len(blame) - 1)])
    past = waits[:, :1] + np.cumsum(np.take_along_axis(lost, order, axis=1), axis=1)
    spans = np.column_stack([np.column_stack([waits[:, 0], past[:, :-1]]).ravel(), past.ravel()])
    some = spans[:, 1] > spans[:, 0]
    who = blame[order.ravel()[some]]
    return Pieces(spans[some], who[:, 0], who[:, 1])


def _joined(parts: Sequence[Pieces]) -> Pieces:
    """In order of time; where waits of several streams overlap, the earlier one keeps the nanosecond."""
    spans = np.concatenate([intervals.empty(), *(part.spans for part in parts)])
    none = np.empty(0, np.int64)
    culprit = np.concatenate([none, *(part.culprit for part in parts)])
    cause = np.concatenate([none, *(part.cause for part in parts)])
    order = np.lexsort((spans[:, 1], spans[:, 0]))
    spans, culprit, cause = spans[order], culprit[order], cause[order]
    if len(spans):
        reach = np.concatenate([spans[:1, 0], np.maximum.accumulate(spans[:, 1])[:-1]])
        spans[:, 0] = np.maximum(spans[:, 0], reach)
        some = spans[:, 1] > spans[:, 0]
        spans, culprit, cause = spans[some], culprit[some], cause[some]
    return Pieces(spans, culprit, cause)
