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

from job_driver import RECIPE
from trees import photographs, tree

from fastfeed.preprocess.job import run
from fastfeed.preprocess.state import open_job
from fastfeed.preprocess.target import open_target

KILLS = 30
DRIVER = Path(__file__).parent / "job_driver.py"


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def kill(pid: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return 1
    return 0


def test_kills_at_random_points_change_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    source = photographs(tmp_path / "source", 220, bad=3)
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
                time.sleep(chance.uniform(0.05, 1.0))
                for _ in range(chance.randrange(3)):  # workers alone: the job goes on
                    if workers := children(pid):
                        killed += kill(chance.choice(workers))
                        time.sleep(chance.uniform(0, 0.2))
                killed += kill(pid)
            status = int(driver.stdout.readline())
            done_at.append(len(list(target.glob("shard-*.tar"))))
            if status == 0:
                break
        driver.stdin.close()
    assert killed >= KILLS and status == 0
    assert len(set(done_at)) > 3, "it was killed in the middle of its work, too"
    assert tree(target) == tree(undisturbed)
    job = open_job(open_target(target))
    assert not job.todo and len(job.bad) == 3
