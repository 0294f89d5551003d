"""A real run, Keras on TensorFlow with photographs from a disk, whose cores a hog takes and gives
back.
"""

import os
import shutil
import time

import pytest
from helpers.hogs import Hogs, trainer_on
from helpers.needs import needs
from helpers.photos import folder

from fastfeed.live.folder import folders
from fastfeed.live.states import State
from fastfeed.live.watch import Monitor

LIMIT_S = 240  # for a state to change; takes 10 to 20 s on a machine that does nothing else

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(os, "sched_setaffinity"), reason="a process cannot be bound to a core here"
    ),
]


def large_photos(root):
    """40 of each of five classes, which are the same: they take long to make."""
    for first in folder(root, dict.fromkeys("abcde", 1), (1200, 1600)).rglob("*.jpg"):
        for number in range(1, 40):
            shutil.copy(first, first.with_name(f"{number:04}.jpg"))
    return root


@needs("keras", "tensorflow")
def test_states_follow_a_hog_of_cores(tmp_path):
    photos, core = large_photos(tmp_path / "photos"), min(os.sched_getaffinity(0))
    trainer = trainer_on(core, photos)
    hogs = Hogs(core)
    try:
        watch, seen = Monitor(folders(), trainer.pid), []

        def until(states):
            limit = time.monotonic() + LIMIT_S
            while not seen or seen[-1] not in states:
                assert time.monotonic() < limit, f"never {states}: {list(dict.fromkeys(seen))}"
                assert trainer.poll() is None
                time.sleep(1)
                seen.extend(row.judgment.state for row in watch.look().rows)

        fed, starved = {State.FED, State.TIGHT}, {State.STARVED, State.SEVERE}
        until(fed)
        hogs.go()
        until(starved)
        hogs.stop()
        until(fed)
        (row,) = watch.look().rows
    finally:
        trainer.kill()
        trainer.wait()
        hogs.end()
    assert row.short.framework_step_ms > 200
    assert row.reading.page.counters["read_bytes"] > 0
