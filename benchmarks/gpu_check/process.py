"""One step in a process of its own, which is ended at its limit, with what it had found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# of these there is a result; "not run" is tried again by the next call
FINAL = (
    "ok",
    "failed",
    "stopped",
)
INTERRUPTED = (  # suffix: what a step had found when the call that ran it was killed
    ".interrupted.json"
)
STEP = "benchmarks.gpu_check.step"  # the module of a step's process
_GRACE = 10  # seconds between being asked to end and being ended


def run(
    name: str, arguments: list[str], environ: dict[str, str], result: Path, limit: float, log: Path
) -> dict[str, Any]:
    """Start `python -m benchmarks.gpu_check.step NAME ...`; returns what it found, whatever happened
    to it.
    """
    command = [sys.executable, "-m", STEP, name, "--out", str(result), *arguments]
    started = time.monotonic()
    found_before = result.with_suffix(INTERRUPTED)
    before = read(result) or {}
    if before.get("state") == "running" and before.get("figures"):
        result.replace(found_before)
    result.unlink(missing_ok=True)
    with log.open("w") as file:
        child = subprocess.Popen(
            command,
            env=environ,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=log.parent,
        )
        try:
            code: int | None = child.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(child)
    found = read(result) or {"step": name}
    if code is None:
        found |= {
            "state": "stopped",
            "reason": f"it took longer than its limit of {limit:.0f} s and was ended",
        }
    elif found.get("state") not in (*FINAL, "not run"):
        found |= {"state": "failed", "reason": f"its process ended with {code}: {_last_line(log)}"}
    found["seconds"] = round(time.monotonic() - started, 1)
    write(result, found)
    found_before.unlink(missing_ok=True)
    return found


def _end(child: subprocess.Popen[bytes]) -> None:
    """The process and all that it started: its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        if child.poll() is None:
            try:
                child.wait(_GRACE)
            except subprocess.TimeoutExpired:
                continue
    child.wait()


def _last_line(log: Path) -> str:
    """Of its log; of a crash what Python said first, and where it was."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    crash = next(
        (k for k, line in enumerate(lines) if line.startswith("Fatal Python error:")), None
    )
    if crash is not None:
        where = [line for line in lines[crash:] if line.startswith("File ")]
        return ", ".join([lines[crash], *where[:3]])[:300]
    return lines[-1][:300] if lines else "it printed nothing"


def read(result: Path) -> dict[str, Any] | None:
    """A result that was written; None where there is none, or none that can be read."""
    try:
        found = json.loads(result.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write(result: Path, found: dict[str, Any]) -> None:
    """At once and whole: a reader never sees half of it."""
    partial = result.with_name(result.name + ".partial")
    partial.write_text(json.dumps(found, indent=1, default=str) + "\n", "utf-8")
    partial.replace(result)
