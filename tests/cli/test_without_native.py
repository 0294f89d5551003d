"""Commands that need no native extension, in a process in which neither it nor OpenCV is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from conftest import environment
from helpers.commands import STRICT
from helpers.photos import folder

DRIVER = """
import sys

sys.modules["fastfeed._native"] = sys.modules["cv2"] = None
from fastfeed.cli import main, watch

watch._ONCE_S = 0.0
for line in sys.argv[1:]:
    sys.argv = ["fastfeed", *line.split()]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, line
"""
TRACE = [
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 100 * k, "dur": 60}
    for k in range(20)
]


def test_what_reads_no_pixels_and_plans_jobs_works(tmp_path: Path) -> None:
    folder(tmp_path / "photos", {"cats": 3, "dogs": 3}, (40, 56))
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": TRACE}))
    lines = [
        "index photos",
        "plan photos --json",
        "watch --once",
        "analyze trace.json",
        "preprocess photos shards --dry-run --workers 1",
    ]
    done = subprocess.run(
        [sys.executable, *STRICT, "-c", DRIVER, *lines],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for words in ("'photos.parquet'", '"global_batch"', "fastfeed watch", "gemm", "time "):
        assert words in done.stdout, words


def test_doctor_says_what_to_do_about_it() -> None:
    """Its exit code tells of the machine, so it is run without the others."""
    from fastfeed.cli.doctor.command import collect

    advice = collect(kernel="fastfeed._no_such_module").advice
    assert any("reinstall" in (each.command or "") for each in advice)
