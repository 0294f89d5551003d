"""A real run, Keras on TensorFlow with photographs from a disk, whose cores a hog takes and gives back."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.needs import needs
from helpers.photos import folder

from fastfeed.live.states import State
from fastfeed.live.watch import Watch
from fastfeed.runtime.live_folder import folders

PROGRAM = Path(__file__).with_name("starved_run.py")
HOGS = 24  # processes on the trainer's core, which has then 1/25 of it
LIMIT_S = 240  # for a state to change; takes 10 to 20 s on a machine that does nothing else

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a process cannot be bound to a core here"),
]


class Hogs:
    def __init__(self, core):
        code = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
        self._processes = [subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in range(HOGS)]
        self.stop()

    def go(self):
        self._send(signal.SIGCONT)

    def stop(self):
        self._send(signal.SIGSTOP)

    def end(self):
        self._send(signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def _send(self, number):
        for process in self._processes:
            process.send_signal(number)


@needs("keras", "tensorflow")
def test_states_follow_a_hog_of_cores(tmp_path):
    photos, core = folder(tmp_path / "photos", dict.fromkeys("abcde", 40), (480, 640)), min(os.sched_getaffinity(0))
    trainer = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(photos)], preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )
    hogs = Hogs(core)
    try:
        watch, seen = Watch(folders(), trainer.pid), []

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
