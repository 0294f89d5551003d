"""Why each device was idle: what its program was doing at that time, as the program itself
knows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.trace import RangeKind
from helpers.profiler.simulator.events import Idle, Op, Proxy, Range
from helpers.profiler.simulator.machine import Host


def known_time(gpu: int, ops: Sequence[Op], ranges: Sequence[Range]) -> tuple[int, int]:
    """From the first mark of the host that uses this device first, to its last mark; at least from
    op to op.
    """
    own = [op for op in ops if op.gpu == gpu]
    first = min(own, key=lambda op: op.start)
    marks = [one for one in ranges if one.kind is RangeKind.STEP and one.host == first.host]
    begin = min([first.start, *(one.start for one in marks)])
    return begin, max(one.end for one in (*own, *marks))


def idle_times(hosts: Sequence[Host]) -> Iterator[Idle]:
    """Every idle nanosecond of the known time of each device, in spans of one cause."""
    for gpu in sorted({gpu for host in hosts for gpu in host.gpus}):
        ops = sorted(
            (op for host in hosts for op in host.ops if op.gpu == gpu), key=lambda op: op.start
        )
        done, until = known_time(gpu, ops, [one for host in hosts for one in host.ranges])
        for op in ops:
            if op.start > done:
                # the one that comes to the rescue
                host = next(host for host in hosts if host.index == op.host)
                waiting = [
                    one
                    for one in host.ops
                    if one.gpu == gpu and one.submitted < op.start <= one.start
                ]
                yield from _one_gap(done, op.start, gpu, host, waiting)
            done = max(done, op.end)
        if until > done:
            host = next(host for host in hosts if host.index == ops[-1].host)
            yield from _one_gap(done, until, gpu, host, [])


def late_peers(collectives: Sequence[Sequence[tuple[int, Op]]]) -> Iterator[Proxy]:
    """Who waited for whom in each collective, given as its (rank, op) pairs."""
    for one in collectives:
        culprit, last = max(one, key=lambda pair: pair[1].start)
        yield from (
            Proxy(rank, culprit, op.start, last.start) for rank, op in one if op.start < last.start
        )


def _one_gap(start: int, end: int, gpu: int, host: Host, waiting: Sequence[Op]) -> Iterator[Idle]:
    """The device has work in its queue that may not start yet, or the host has not given it any."""
    edges = {start, end}
    edges |= {edge for op in waiting for edge in (op.submitted, op.visible)}
    first = bisect_right(host.diary, start, key=lambda entry: entry[1])
    for entry in host.diary[first:]:
        if entry[0] >= end:
            break
        edges |= {entry[0], entry[1]}
    inside = sorted(edge for edge in edges if start <= edge <= end)
    for a, b in pairwise(inside):
        given = [op for op in waiting if op.submitted <= a]
        yield Idle(
            a, b, gpu, _held(min(given, key=lambda op: op.start), a) if given else _spent(host, a)
        )


def _held(op: Op, when: int) -> Cause:
    """Why work that the device has does not run."""
    if when < op.visible or op.held is None:
        return Cause.LAUNCH_LATENCY
    return op.held


def _spent(host: Host, when: int) -> Cause:
    """What the host was doing then."""
    at = bisect_right(host.diary, when, key=lambda entry: entry[1])
    start, end, cause = host.diary[at]
    assert start <= when < end, "the host is always doing something"
    return cause
