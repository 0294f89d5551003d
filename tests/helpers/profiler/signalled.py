"""The runner in a process of its own, and something that happens to it once its command has said
that it is ready.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping

from conftest import environment

from fastfeed.profiler.runner.settings import RecordingSettings

RUN = """
import dataclasses, json, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins without
from fastfeed.profiler.runner.session import record
from fastfeed.profiler.runner.settings import RecordingSettings
done = record(RecordingSettings.from_json(sys.argv[1]))
print(json.dumps(dataclasses.asdict(done), default=str), file=sys.stderr)
"""


def when_ready(
    settings: RecordingSettings,
    act: Callable[[subprocess.Popen[str]], None],
    environ: Mapping[str, str] | None = None,
) -> tuple[str, str]:
    """What it and its command write, of which "ready" is the first line; the recording, as JSON,
    ends stderr.
    """
    with subprocess.Popen(
        [sys.executable, "-c", RUN, settings.as_json()],
        env=environ or environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        act(process)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out, err
