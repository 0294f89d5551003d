"""Why was the host late? The late part of every gap, cut up by what the launching thread was doing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.attribution.classify import Doing
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.intervals import empty, intersect, subtract, union

__all__ = ["Pieces", "attribute", "join"]

# Before WAITING: what a parked thread is known to wait for. After it: what it merely is inside of.
_FIRST = (
    Doing.INPUT,
    Doing.CHECKPOINT,
    Doing.COMPILE,
    Doing.LOAD,
    Doing.ALLOC,
    Doing.COPY,
    Doing.SYNC,
    Doing.HOST_COMM,
)
_THEN = (Doing.LAUNCH, Doing.GC, Doing.GIL, Doing.FRAMEWORK, Doing.PYTHON)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Idle time with a cause: columns of `result.Slices` but the gap."""

    span: np.ndarray  # int64, shape (n, 2)
    cause: np.ndarray  # uint8
    thread: np.ndarray  # int32
    name: np.ndarray  # int32

    @classmethod
    def of(cls, span: np.ndarray, cause: int, thread: int | np.ndarray = -1, name: int | np.ndarray = -1) -> Pieces:
        """Columns of one cause; scalars are repeated."""
        count = len(span)
        columns = (np.broadcast_to(np.asarray(column, np.int32), count) for column in (thread, name))
        return cls(span, np.full(count, cause, np.uint8), *columns)


def join(pieces: list[Pieces]) -> Pieces:
    """All in order of time."""
    span = np.concatenate([empty(), *(piece.span for piece in pieces)])
    order = np.argsort(span[:, 0], kind="stable")
    columns = [
        np.concatenate([np.empty(0, kind), *(getattr(piece, name) for piece in pieces)])[order]
        for name, kind in (("cause", np.uint8), ("thread", np.int32), ("name", np.int32))
    ]
    return Pieces(span[order], *columns)


def attribute(
    host: Host, late: np.ndarray, thread: np.ndarray, process: np.ndarray, overhead: np.ndarray
) -> list[Pieces]:
    """Cut late spans by cause. They are disjoint and in order; the pieces cover them exactly.

    Args:
        late: shape (n, 2), empty spans allowed.
        thread: who launched what the gap waited for, int, shape (n,); -1 unknown.
        process: of that op: whose driver is asked when the thread itself was not busy.
        overhead: the set of nanoseconds in which the profiler worked for itself.
    """
    made: list[Pieces] = []
    known, of = np.unique(process, return_inverse=True)
    driver = np.array([host.driver(int(one)) for one in known], np.int64)[of]
    thread = np.where(thread >= 0, thread, driver)
    many = len(host.trace.threads) + 1
    pairs = (thread + 1) * many + driver + 1
    some = np.flatnonzero(late[:, 1] > late[:, 0])
    some = some[np.argsort(pairs[some], kind="stable")]
    for rows in np.split(some, np.flatnonzero(np.diff(pairs[some])) + 1) if len(some) else ():
        launcher, other = int(pairs[rows[0]] // many) - 1, int(pairs[rows[0]] % many) - 1
        rest = late[rows]
        hit = intersect(rest, overhead)
        made.append(Pieces.of(hit, Cause.PROFILER, launcher))
        rest = subtract(rest, overhead)
        rest, parked = _ask(host, rest, int(launcher), made, alone=launcher == other)
        if other not in (launcher, -1):
            left, still = _ask(host, union(rest, parked), int(other), made, alone=True)
            rest = union(left, still)
        else:
            rest = union(rest, parked)
        rest = _executor(host, rest, int(launcher), made)
        # a parked thread was inside of something, too: better than nothing
        for doing in _THEN:
            rest = _take(host, rest, int(launcher), doing, made)
        made.append(Pieces.of(rest, Cause.HOST_UNKNOWN, launcher))
    return made


def _executor(host: Host, rest: np.ndarray, thread: int, made: list[Pieces]) -> np.ndarray:
    """TensorFlow's executor runs operators on whichever thread is free: one of them waits for the iterator."""
    waiting = host.iterators(thread)
    hit = intersect(rest, waiting)
    made.append(Pieces.of(hit, Cause.INPUT, thread))
    return subtract(rest, waiting)


def _ask(host: Host, rest: np.ndarray, thread: int, made: list[Pieces], alone: bool) -> tuple[np.ndarray, np.ndarray]:
    """What this thread explains goes to `made`; returns what it does not, and while what it was parked."""
    for doing in _FIRST:
        rest = _take(host, rest, thread, doing, made)
    contention = host.contention(thread)
    made.append(Pieces.of(intersect(rest, contention), Cause.CONTENTION, thread))
    rest = subtract(rest, contention)
    waiting = empty() if alone else host.what(thread, Doing.WAITING)
    parked, rest = intersect(rest, waiting), subtract(rest, waiting)
    for doing in _THEN:
        rest = _take(host, rest, thread, doing, made)
    return rest, parked


def _take(host: Host, rest: np.ndarray, thread: int, doing: Doing, made: list[Pieces]) -> np.ndarray:
    if not len(rest):
        return rest
    covered = host.what(thread, doing)
    hit = intersect(rest, covered)
    if not len(hit):
        return rest
    made.append(Pieces.of(hit, doing.cause, thread, host.inside(thread, doing, hit[:, 0])))
    return subtract(rest, covered)
