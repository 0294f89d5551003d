"""Runs `py-spy record`, which samples the stacks of another process without stopping it.

The collapsed stacks of `record --format raw` are the interface: one process for all samples, and a
format that other tools read as well.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.printable import printable
from fastfeed.system.processes import process_exists

_LATE_S = 60.0  # py-spy may take this long to begin and to end
_DENIED = re.compile("permission denied|operation not permitted|os error (1|13)\\b", re.IGNORECASE)
_NOT_PYTHON = re.compile(
    "find python version|find a python interpreter|not a python", re.IGNORECASE
)
_GONE = re.compile("no such process|no such file|check that the process is running", re.IGNORECASE)
_ERRORS = re.compile(r"Errors: (\d+)")


@dataclass(frozen=True, slots=True)
class Recording:
    """Collapsed stacks of all threads."""

    lines: tuple[str, ...]
    errors: int  # samples that could not be taken


def find_py_spy() -> str:
    """The program's path: next to this Python, or in PATH. Raises MissingExtra."""
    installed = shutil.which("py-spy", path=sysconfig.get_path("scripts"))
    program = installed or shutil.which("py-spy")
    if program is None:
        raise MissingExtra.of("fastfeed watch of a process without a feed", "py-spy", "watch")
    return program


def record(
    pid: int, seconds: int, rate: int, meanwhile: Callable[[], None], program: str
) -> Recording:
    """Sample all threads of a process.

    Args:
        pid: The process.
        seconds: How long.
        rate: Samples per second.
        meanwhile: Called about once a second.
        program: From `find_py_spy`.

    Raises:
        ConfigError: The process cannot be sampled, or the program does not write stacks; the text
            says why.
    """
    with tempfile.TemporaryDirectory(prefix="fastfeed-watch-") as folder:
        output = Path(folder, "stacks")
        errors = Path(folder, "errors")
        command = [
            program,
            "record",
            "--format",
            "raw",
            "--full-filenames",
            "--threads",
            "--idle",
            "--nonblocking",
        ]
        command += [
            "--rate",
            str(rate),
            "--duration",
            str(seconds),
            "--output",
            str(output),
            "--pid",
            str(pid),
        ]
        with open(errors, "wb") as stderr:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr
                )
            except OSError as error:
                raise ConfigError(
                    f"{printable(program)} cannot be run: {error.strerror}; install py-spy again"
                ) from None
        try:
            _wait(process, seconds, meanwhile)
        finally:
            process.kill()
            process.wait()
        message = errors.read_text("utf-8", "replace")
        lines = output.read_text("utf-8", "replace").splitlines() if output.is_file() else []
    if not lines:
        raise ConfigError(explain(message, pid))
    if not any(line.startswith("thread (") for line in lines):
        raise ConfigError(
            f"{printable(program)} wrote no stacks of threads but {printable(repr(lines[0]))};"
            " install py-spy 0.4: pip install 'fastfeed[watch]'"
        )
    failed = _ERRORS.search(message)
    return Recording(tuple(lines), int(failed[1]) if failed else 0)


def _wait(process: subprocess.Popen[bytes], seconds: int, meanwhile: Callable[[], None]) -> None:
    for _ in range(int(seconds + _LATE_S)):
        try:
            process.wait(1.0)
            return
        except subprocess.TimeoutExpired:
            meanwhile()


def explain(message: str, pid: int, root: Path = Path("/")) -> str:
    """A sentence: why py-spy took no sample.

    Args:
        message: What it wrote to standard error.
        pid: The process.
        root: Where /proc and /.dockerenv are.
    """
    if _DENIED.search(message):
        return _denied(pid, root)
    if not process_exists(pid) or _GONE.search(message):
        return f"process {pid} ended before it could be sampled"
    if _NOT_PYTHON.search(message):
        return (
            f"process {pid} is not a Python process; pass the number of the trainer, not of its"
            " launcher or shell"
        )
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    reason = next(
        (line for line in lines if line.lower().startswith("error")),
        lines[-1] if lines else "no message",
    )
    return f"py-spy took no sample of process {pid}: {printable(reason)}"


def _denied(pid: int, root: Path) -> str:
    refused = f"process {pid} cannot be sampled: "
    owner = _owner(pid, root)
    user = os.getuid() if hasattr(os, "getuid") else 0
    if user and owner is not None and owner != user:
        return (
            f"{refused}it belongs to another user (number {owner}); run fastfeed watch as that"
            " user, or as root"
        )
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists() or not user:
        return (
            f"{refused}this container lacks CAP_SYS_PTRACE; start it with --cap-add=SYS_PTRACE"
            ' (Kubernetes: securityContext.capabilities.add: ["SYS_PTRACE"]), or run fastfeed'
            " watch on the host as root"
        )
    return (
        f"{refused}the kernel refuses it (kernel.yama.ptrace_scope = {_ptrace_scope(root)}); run"
        " fastfeed watch as root, or `sudo sysctl kernel.yama.ptrace_scope=0`"
    )


def _owner(pid: int, root: Path) -> int | None:
    try:
        return (root / f"proc/{pid}").stat().st_uid
    except OSError:
        return None


def _ptrace_scope(root: Path) -> str:
    try:
        return (root / "proc/sys/kernel/yama/ptrace_scope").read_text().strip()
    except OSError:
        return "unknown"
