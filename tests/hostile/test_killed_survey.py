"""A survey whose process is killed again and again: each start continues where the one before was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import environment
from helpers.photos import jpeg

from fastfeed.preprocess.reports.status import count_surveyed
from fastfeed.preprocess.targets.target import open_target

PHOTOS = 250  # fewer than a piece of the survey holds
PROGRAM = "import sys; from fastfeed.cli import main; sys.argv[0] = 'fastfeed'; main()"


@pytest.mark.slow
def test_a_survey_gets_through(tmp_path: Path) -> None:
    photo = jpeg(0, (1500, 2000))
    (tmp_path / "photos").mkdir()
    for k in range(PHOTOS):
        (tmp_path / "photos" / f"{k:04d}.jpg").write_bytes(photo + b"%d" % k)
    words = ["preprocess", "photos", "shards", "--size", "24", "-w", "1", "--dedupe", "near"]
    (tmp_path / "shards").mkdir()
    target = open_target(tmp_path / "shards", writes=False)
    kills, before = 0, 0
    while True:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words], cwd=tmp_path, env=environment(), start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while process.poll() is None and count_surveyed(target) <= before:
            time.sleep(0.01)
        if process.poll() is not None:
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kills, before = kills + 1, max(before, count_surveyed(target))
        if count_surveyed(target) == 0 or before >= PHOTOS:  # the plan is there
            break
        assert kills < PHOTOS, "each start gets further"
    assert kills >= 3, "progress is saved within a piece"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], cwd=tmp_path, env=environment(), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "1 of 1 shards" in done.stdout, done.stderr
    assert len(np.load(tmp_path / "shards" / "__job" / "order.npy")) == 1, "all look alike"
