"""A survey whose process is killed again and again: each start continues where the one before was
killed.
"""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from conftest import environment
from helpers.photos import jpeg

from fastfeed.preprocess.reports.status import count_surveyed
from fastfeed.preprocess.targets.target import open_target

PHOTOS = 600  # fewer than a piece of the survey holds
PROGRAM = "import sys; from fastfeed.cli import main; sys.argv[0] = 'fastfeed'; main()"
WORDS = ("preprocess", "photos", "shards", "--size", "24", "-w", "1", "--dedupe", "near")
# a start: as in the report of a survey that 201 of them did not get through
KILLED_AFTER_S = (
    0.8,
    2.6,
)
STARTS = 201
# until the first images are surveyed, on the machine of that report; a slower one gets more
# time
FIRST_S = 1.5
LOOK_S = 0.05  # between looks at all processes of the machine, each of which costs milliseconds
TICKS = os.sysconf("SC_CLK_TCK")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/stat").exists(),
        reason="processor times of other processes are in /proc",
    ),
]


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *WORDS],
        cwd=folder,
        env=environment(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def processor_time(root: int) -> float:
    """Of a process and all that come from it, seconds: how far they are, however busy the machine
    is.
    """
    children, spent = defaultdict[int, list[int]](list), dict[int, int]()
    for entry in Path("/proc").iterdir():
        try:
            fields = (
                (entry / "stat").read_text().rpartition(")")[2].split()
                if entry.name.isdigit()
                else []
            )
        except OSError:  # it has ended
            continue
        if fields:
            children[int(fields[1])].append(int(entry.name))
            spent[int(entry.name)] = sum(map(int, fields[11:15]))
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        total += spent.get(pid, 0)
        waiting += children[pid]
    return total / TICKS


def kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_survey_gets_through(tmp_path: Path) -> None:
    photo = jpeg(0, (1500, 2000))
    (tmp_path / "photos").mkdir()
    for k in range(PHOTOS):
        (tmp_path / "photos" / f"{k:04d}.jpg").write_bytes(photo + b"%d" % k)
    (tmp_path / "shards").mkdir()
    target, dice = open_target(tmp_path / "shards", writes=False), random.Random(0)

    process, first = start(tmp_path), math.nan
    while process.poll() is None and not count_surveyed(target):
        first = processor_time(process.pid)
        time.sleep(LOOK_S)
    kill(process)
    seen, order = [count_surveyed(target)], tmp_path / "shards" / "__job" / "order.npy"
    assert 0 < seen[0] < PHOTOS, "progress is saved within a piece"
    while not order.exists() and len(seen) < STARTS:
        process, after = start(tmp_path), dice.uniform(*KILLED_AFTER_S) * max(1.0, first / FIRST_S)
        while process.poll() is None and processor_time(process.pid) < after and not order.exists():
            if (
                len(seen) == 1 and count_surveyed(target) > seen[0]
            ):  # a fast machine would get through at once
                break
            time.sleep(LOOK_S)
        kill(process)
        seen.append(count_surveyed(target))
    assert order.exists(), f"photographs surveyed after {len(seen)} starts: {seen[-1]}"
    assert len({*seen}) >= 3, f"progress of several starts adds up: {seen}"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *WORDS],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0 and "1 of 1 shards" in done.stdout, done.stderr
    assert len(np.load(order)) == 1, "all look alike"
