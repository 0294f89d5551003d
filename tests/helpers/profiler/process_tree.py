"""The processes below this one, a line each: what a test prints when it hangs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from fastfeed.profiler.runner.foreground import children


def process_tree(pid: int = 0, depth: int = 0) -> str:
    """State, where it waits in the system, processor time in ticks, and command of each, children
    indented.
    """
    pid = pid or os.getpid()
    lines = ["  " * depth + _line(pid)]
    return "\n".join(lines + [process_tree(child, depth + 1) for child in sorted(children(pid))])


def _line(pid: int) -> str:
    folder, text = Path("/proc", str(pid)), {}
    for name in ("stat", "wchan", "cmdline"):
        with contextlib.suppress(OSError):
            text[name] = (folder / name).read_text(errors="replace")
    fields = text.get("stat", "").rpartition(")")[2].split() or ["ended", *"-" * 12]
    command = text.get("cmdline", "").replace("\0", " ")[:300]
    return (
        f"{pid} {fields[0]} in {text.get('wchan') or '?'}, {fields[11]}+{fields[12]} ticks:"
        f" {command}"
    )
