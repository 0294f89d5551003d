"""The number of cores, and the memory, that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

from fastfeed.distributed.world import World
from fastfeed.system.processes import usable_cores


def cores_for(world: World, root: Path = Path("/")) -> int:
    """Cores for one rank: its share of the machine, within its affinity and its container's quota.

    Launchers that bind ranks give each its own cores already; those are not divided again.
    """
    machine = os.cpu_count() or 1
    bound = min(usable_cores(), machine)
    quota = cgroup_limits(root)[0] or machine
    return max(1, min(bound, machine // world.local_size, int(quota)))


def cgroup_limits(root: Path = Path("/")) -> tuple[float | None, int | None]:
    """(cores, bytes of memory) allowed by the cgroup and its parents; None for no limit."""
    cores: list[float] = []
    memory: list[int] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        for name in {"", "cpu", "memory"}.intersection(names.split(",")):
            # version 2 has no name, version 1 has many
            own = root.joinpath("sys/fs/cgroup", name, path.strip("/"))
            # Inside a container `own` may be a path of the host that does not exist here; its
            # parents do.
            for folder in (own, *own.parents):
                cpu_max = _text(folder / "cpu.max")
                parts = (
                    cpu_max
                    or _text(folder / "cpu.cfs_quota_us") + _text(folder / "cpu.cfs_period_us")
                ).split()
                if len(parts) == 2 and all(part.isdigit() for part in parts):
                    # "max" and -1 are no limit
                    cores.append(int(parts[0]) / int(parts[1]))
                limit = (
                    _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes")
                ).strip()
                if limit.isdigit() and int(limit) < 1 << 60:
                    # version 1 writes "no limit" as a huge number
                    memory.append(int(limit))
    return min(cores, default=None), min(memory, default=None)


def _text(path: Path) -> str:
    """The content of a file; empty if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
