"""A job that is killed again and again ends with the same files as one that was left alone."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.preprocess.job_driver import RECIPE
from helpers.preprocess.outcomes import photographs, tree

from fastfeed.preprocess.job.job import run
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.target import open_target

pytestmark = pytest.mark.slow

KILLS = 20
DRIVER = Path(__file__).parents[1] / "helpers/preprocess/job_driver.py"


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    return []


def kill(pid: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return 1
    return 0


def wait_for(target: Path, more: int) -> None:
    """Until so many more shards are done; for 0, until one is under way; for less, for no time at
    all.
    """
    late, goal = time.monotonic() + 30, len(list(target.glob("shard-*.tar"))) + more
    while more >= 0 and time.monotonic() < late:
        with contextlib.suppress(FileNotFoundError):  # removed while it is looked at
            if len(list(target.glob("shard-*.tar"))) >= goal and list(target.glob("__tmp/*/*")):
                return
        time.sleep(0.002)


def test_kills_at_random_points_change_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    source = photographs(tmp_path / "source", 600, bad=3)
    undisturbed = tmp_path / "undisturbed"
    run(str(source), undisturbed, RECIPE, workers=1)
    target, killed, done_at = tmp_path / "killed", 0, []
    with subprocess.Popen(
        [sys.executable, str(DRIVER), str(source), str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdin is not None and driver.stdout is not None
        for _ in range(1000):
            driver.stdin.write("run\n")
            driver.stdin.flush()
            pid = int(driver.stdout.readline())
            if killed < KILLS:
                wait_for(target, chance.choice((-1, 0, 0, 1, 2)))
                time.sleep(chance.uniform(0, 0.03))
                if chance.random() < 0.5 and (
                    workers := children(pid)
                ):  # a worker alone: the job continues
                    killed += kill(chance.choice(workers))
                    wait_for(target, 0)
                killed += kill(pid)
            status = int(driver.stdout.readline())
            done_at.append(len(list(target.glob("shard-*.tar"))))
            if status == 0:
                break
        driver.stdin.close()
    assert killed >= KILLS and status == 0
    assert len(set(done_at)) > KILLS // 5, "it was killed in the middle of its work, too"
    assert tree(target) == tree(undisturbed)
    job = open_job(open_target(target))
    assert not job.todo and len(job.bad) == 3
