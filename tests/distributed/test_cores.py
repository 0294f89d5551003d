"""Cores and memory: cgroups of both versions, bound ranks, shared machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastfeed.distributed.cores import cgroup_limits, cores_for
from fastfeed.distributed.world import World


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        ({"proc/self/cgroup": "0::/\n"}, (None, None)),
        (  # version 2: the tightest of a cgroup and its parents; "max" is none
            {
                "proc/self/cgroup": "0::/job/step\n",
                "sys/fs/cgroup/job/cpu.max": "250000 100000\n",
                "sys/fs/cgroup/job/step/cpu.max": "max 100000\n",
                "sys/fs/cgroup/job/memory.max": "4096\n",
                "sys/fs/cgroup/job/step/memory.max": "8192\n",
            },
            (2.5, 4096),
        ),
        (  # version 1 in a container: the path is the host's, the limits lie at the mount
            {
                "proc/self/cgroup": (
                    "9:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n2:pids:/docker/1\n"
                ),
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "1048576\n",
            },
            (4.0, 1048576),
        ),
        (  # version 1 without limits
            {
                "proc/self/cgroup": "9:memory:/\n4:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            (None, None),
        ),
        ({}, (None, None)),
    ],
)
def test_cgroup_limits(
    tmp_path: Path, files: dict[str, str], limits: tuple[float | None, int | None]
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert cgroup_limits(tmp_path) == limits


@pytest.mark.parametrize(
    ("machine", "bound", "ranks", "quota", "cores"),
    [
        (64, 64, 1, None, 64),
        (64, 64, 8, None, 8),  # not bound: share
        (64, 8, 8, None, 8),  # bound by the launcher: not divided again
        (64, 64, 1, "200000 100000", 2),
        (2, 2, 8, None, 1),
        (64, 64, 1, "50000 100000", 1),
    ],
)
def test_cores_of_a_rank(monkeypatch, tmp_path, machine, bound, ranks, quota, cores):
    monkeypatch.setattr(os, "cpu_count", lambda: machine)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(bound)), raising=False)
    if quota:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text("0::/\n")
        (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup/cpu.max").write_text(quota)
    assert cores_for(World(0, ranks, 0, ranks), tmp_path) == cores
