"""Processors that a process uses, seen from outside: /proc and its cgroup.

All that the process does counts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU totals at one time; None if they cannot be read."""

    at_ns: int
    process_s: float | None  # CPU time of the processes
    machine_s: float | None  # of all processes of the machine
    machine: int | None  # its cores
    usable: float | None  # cores that the process may use: affinity and quota
    quota: float | None  # cores that its cgroup allows
    periods: int | None  # of the cgroup's quota
    throttled: int | None  # of these, how many were cut short
    stopped: bool  # by a signal or a debugger


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPU use between two readings."""

    cores: float | None = None  # busy with this process and its helper
    others: float | None = None  # busy with others
    usable: float | None = None
    machine: int | None = None
    quota: float | None = None
    throttled: float | None = None  # share of the quota's periods that were cut short


def read_cpu(pids: Sequence[int], at_ns: int, root: Path = Path("/")) -> CpuReading:
    """CPU use of these processes and their live children; the first process is the trainer."""
    trainer = pids[0]
    ticks = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
    used = None
    stopped = False
    for pid in dict.fromkeys([*pids, *_children(root, trainer)]):
        fields = _text(root / f"proc/{pid}/stat").rpartition(")")[2].split()
        if len(fields) > 12:
            used = (used or 0.0) + (int(fields[11]) + int(fields[12])) / ticks
            stopped = stopped or (pid == trainer and fields[0] in ("T", "t"))
    first, *rest = (_text(root / "proc/stat") or "cpu").splitlines()
    times = [int(n) for n in first.split()[1:9]]
    # all but idle and iowait
    machine_s = (sum(times) - times[3] - times[4]) / ticks if len(times) == 8 else None
    machine = sum(line.startswith("cpu") for line in rest) or None
    quota, periods, throttled = _cgroup(root, trainer)
    try:
        bound = len(os.sched_getaffinity(trainer)) if root == Path("/") else machine
    except (OSError, AttributeError):
        bound = machine
    limits = [limit for limit in (bound, quota) if limit]
    return CpuReading(
        at_ns,
        used,
        machine_s,
        machine,
        min(limits) if limits else None,
        quota,
        periods,
        throttled,
        stopped,
    )


def cpu_use(before: CpuReading, after: CpuReading) -> CpuUse:
    """Cores and shares between two readings."""
    seconds = (after.at_ns - before.at_ns) / 1e9
    known = CpuUse(usable=after.usable, machine=after.machine, quota=after.quota)
    if seconds <= 0:
        return known
    cores = others = throttled = None
    if before.process_s is not None and after.process_s is not None:
        # a child that has ended takes its time along
        cores = max(0.0, after.process_s - before.process_s) / seconds
    if cores is not None and before.machine_s is not None and after.machine_s is not None:
        others = max(0.0, (after.machine_s - before.machine_s) / seconds - cores)
    if None not in (before.periods, after.periods, before.throttled, after.throttled):
        periods = (after.periods or 0) - (before.periods or 0)
        throttled = (
            ((after.throttled or 0) - (before.throttled or 0)) / periods if periods > 0 else 0.0
        )
    return CpuUse(cores, others, after.usable, after.machine, after.quota, throttled)


def _children(root: Path, pid: int) -> list[int]:
    """Started by the main thread, such as loader workers."""
    return [int(child) for child in _text(root / f"proc/{pid}/task/{pid}/children").split()]


def _cgroup(root: Path, pid: int) -> tuple[float | None, int | None, int | None]:
    """(cores, periods, throttled periods) of the tightest quota of the cgroup and its parents."""
    tightest: tuple[float | None, int | None, int | None] = (None, None, None)
    for line in _text(root / f"proc/{pid}/cgroup").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        for name in {"", "cpu"}.intersection(parts[1].split(",")):  # version 2 has no name
            own = root.joinpath("sys/fs/cgroup", name, parts[2].strip("/"))
            for folder in (own, *own.parents):
                limit = (
                    _text(folder / "cpu.max")
                    or _text(folder / "cpu.cfs_quota_us") + _text(folder / "cpu.cfs_period_us")
                ).split()
                if len(limit) != 2 or not all(
                    part.isdigit() for part in limit
                ):  # "max" and -1 are no limit
                    continue
                cores = int(limit[0]) / int(limit[1])
                if tightest[0] is None or cores < tightest[0]:
                    counts = dict(
                        entry.split()
                        for entry in _text(folder / "cpu.stat").splitlines()
                        if entry.count(" ") == 1
                    )
                    periods = counts.get("nr_periods")
                    throttled = counts.get("nr_throttled")
                    tightest = (
                        cores,
                        int(periods) if periods else None,
                        int(throttled) if throttled else None,
                    )
    return tightest


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
