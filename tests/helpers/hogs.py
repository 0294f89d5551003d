"""Processes that take a core from a trainer and give it back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

HOGS = 24  # processes on the trainer's core, which has then 1/25 of it
STARVED_RUN = Path(__file__).parents[1] / "live" / "starved_run.py"


class Hogs:
    """They run between go() and stop(), on one core."""

    def __init__(self, core: int) -> None:
        code = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
        self._processes = [
            subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in range(HOGS)
        ]
        self.stop()

    def go(self) -> None:
        self._send(signal.SIGCONT)

    def stop(self) -> None:
        self._send(signal.SIGSTOP)

    def end(self) -> None:
        self._send(signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def _send(self, number: int) -> None:
        for process in self._processes:
            process.send_signal(number)


def trainer_on(core: int, photographs: Path) -> subprocess.Popen[bytes]:
    """Keras on TensorFlow, with photographs of a folder, on one core until it is killed."""
    return subprocess.Popen(
        [sys.executable, str(STARVED_RUN), str(photographs)],
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
