"""Hundreds of malformed and hostile files: each ends as pixels or as a reason, in little memory,
within seconds.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fastfeed.decode.sniff import sniff
from fastfeed.faults import REASONS

PROGRAM = """
import json, resource, sys, threading, time
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
import numpy as np
from fastfeed.decode import DecodeFailure, PillowEngine, Request
from fastfeed.ops import Decode
from fastfeed.ops.program.compile import Windows
engine, slowest = PillowEngine(Decode()), 0.0
for path in sorted(Path(sys.argv[1]).rglob("*")):
    if not path.is_file():
        continue
    began, blob = time.process_time(), path.read_bytes()
    header = engine.probe([blob])[0]
    out = np.full((1, 32, 32, 3), 7, np.uint8)
    if isinstance(header, DecodeFailure):
        why = header
    else:
        box = np.array([[0, 0, header.height, header.width]], float)
        windows = Windows(box, np.zeros((1, 2), bool), np.full((1, 2), 32))
        why = engine.decode(Request([blob], [header], windows, "bilinear"), out, threading.Event())[0]
    slowest = max(slowest, time.process_time() - began)
    print(json.dumps([path.name, path.parent.name, why and why.reason]))
status = Path("/proc/self/status").read_text()  # getrusage counts what the process that started this one had as well
print(json.dumps([slowest, int(status.split("VmHWM:")[1].split()[0])]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_every_file_ends_as_pixels_or_as_a_reason(data):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(data / "bad-images")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *rows, (slowest_s, peak_kb) = (json.loads(line) for line in done.stdout.splitlines())
    files = [p for p in Path(data / "bad-images").rglob("*") if p.is_file()]
    assert len(rows) == len(files)
    reasons = Counter(reason for _, _, reason in rows)
    assert set(reasons) - {None} <= set(REASONS)
    assert reasons[None] > 0.4 * len(rows), "many of them are unusual but valid"
    for name, folder, reason in rows:
        if (
            folder == "not-images"
            and sniff((data / "bad-images" / folder / name).read_bytes()) != "PPM"
        ):
            assert reason in ("not_image", "empty", "unsupported_format", "corrupt"), name
    assert peak_kb < 1_000_000
    assert slowest_s < 20, "CPU seconds of one file: nothing hangs"
