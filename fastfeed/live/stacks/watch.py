"""Samples a trainer that has no feed, and reads its CPU and GPU over the same seconds."""

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
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.live.nvml import Gpus, GpuUse
from fastfeed.live.stacks.frames import main_stacks, source_lines
from fastfeed.live.stacks.summary import STARVED, FunctionShare, StackSummary, summarize, title
from fastfeed.live.watch import find_gpu, variables, visible_gpus
from fastfeed.printable import printable
from fastfeed.system.clocks import steady_ns
from fastfeed.system.processes import process_exists, process_state

_RATE = 100  # samples per second


@dataclass(frozen=True, slots=True)
class SampledProcess:
    """A process without a feed, as seen for some seconds."""

    pid: int
    command: str
    seconds: int
    # share of the time that the main thread computed, 0 to 1; None: unknown
    cpu_cores: float | None
    gpu: GpuUse | None
    gpu_sm: float | None  # mean share of time in which the GPU worked, 0 to 1
    errors: int  # samples that could not be taken
    notes: tuple[str, ...]  # sentences about what cannot be seen
    summary: StackSummary

    def as_dict(self) -> dict[str, Any]:
        """Values for JSON; `fastfeed_watch_sampled` is the version of the schema."""
        gpu = self.gpu and {
            "index": self.gpu.index,
            "name": self.gpu.name,
            "by": self.gpu.by,
            "sm": self.gpu_sm,
        }
        return {
            "fastfeed_watch_sampled": 1,
            "pid": self.pid,
            "command": self.command,
            "seconds": self.seconds,
            **self.summary.as_dict(),
            "errors": self.errors,
            "cpu_cores": self.cpu_cores,
            "gpu": gpu,
            "notes": list(self.notes),
        }


def watch_stacks(pid: int, seconds: int, gpus: Gpus) -> SampledProcess:
    """Sample the main thread of a process.

    Args:
        pid: The process.
        seconds: How long.
        gpus: Those of the machine.

    Raises:
        ConfigError: It cannot be sampled; the text says why.
        MissingExtra: py-spy is not installed.
    """
    if not process_exists(pid):
        raise ConfigError(
            f"there is no process {pid}; `fastfeed watch` without a number shows all feeds"
        )
    program = find_py_spy()
    command = _command(pid)
    source = source_lines(pid)
    gpu = _GpuMean(gpus, pid)
    before = _ran_ns(pid)
    begin = steady_ns()
    lines, errors = record(pid, seconds, _RATE, gpu.add, program)
    gpu.add()
    after = _ran_ns(pid)
    elapsed = steady_ns() - begin
    cores = None if before is None or after is None else (after[0] - before[0]) / elapsed
    ready = None if before is None or after is None else (sum(after) - sum(before)) / elapsed
    stacks = main_stacks(lines, pid, source)
    if not stacks:
        raise ConfigError(
            f"process {pid} has no main thread that runs Python; pass the number of the trainer"
        )
    summary = summarize(stacks, ready)
    notes = gpus.notes
    if process_state(pid)[0] in ("T", "t"):
        notes = [
            (
                f"process {pid} is stopped, by a signal or a debugger; `kill -CONT {pid}` lets it"
                " go on"
            ),
            *notes,
        ]
    return SampledProcess(
        pid, command, seconds, cores, gpu.use, gpu.sm, errors, tuple(notes), summary
    )


class _GpuMean:
    """The GPU of a process, and how much of the time it worked."""

    def __init__(self, gpus: Gpus, pid: int) -> None:
        self.use: GpuUse | None = None
        self._gpus = gpus
        self._pid = pid
        environment = variables(pid)
        self._visible = visible_gpus(environment)
        self._local_rank = environment.get("LOCAL_RANK", "")
        self._shares: list[float] = []
        gpus.sample()

    def add(self) -> None:
        """The time since the last call."""
        uses = self._gpus.sample()
        if not self._local_rank.isdigit() and len(self._visible or uses) > 1:  # any of them
            uses = [use for use in uses if self._pid in use.pids]
        use = find_gpu(
            int(self._local_rank) if self._local_rank.isdigit() else 0,
            [self._pid],
            self._visible,
            uses,
        )
        if use is not None:
            self.use = use
            self._shares += [] if use.sm is None else [use.sm]

    @property
    def sm(self) -> float | None:
        return sum(self._shares) / len(self._shares) if self._shares else None


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return printable(b" ".join(words))


def _ran_ns(pid: int) -> tuple[int, int] | None:
    """Nanoseconds that the main thread ran, and that it waited for a core; None if unknown."""
    try:
        run, ready, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return None
    return int(run), int(ready)


_LATE_S = 60.0  # py-spy may take this long to begin and to end


_DENIED = re.compile("permission denied|operation not permitted|os error (1|13)\\b", re.IGNORECASE)


_NOT_PYTHON = re.compile(
    "find python version|find a python interpreter|not a python", re.IGNORECASE
)


_GONE = re.compile("no such process|no such file|check that the process is running", re.IGNORECASE)


_ERRORS = re.compile(r"Errors: (\d+)")


def find_py_spy() -> str:
    """The program's path: next to this Python, or in PATH. Raises MissingExtra."""
    installed = shutil.which("py-spy", path=sysconfig.get_path("scripts"))
    program = installed or shutil.which("py-spy")
    if program is None:
        raise MissingExtra.of("fastfeed watch of a process without a feed", "py-spy", "watch")
    return program


def record(
    pid: int, seconds: int, rate: int, meanwhile: Callable[[], None], program: str
) -> tuple[list[str], int]:
    """Sample all threads of a process with `py-spy record --format raw`.

    Returns the collapsed stacks, and the number of samples that could not be taken.

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
        command = [program, "record", "--format", "raw", "--full-filenames", "--threads"]
        command += ["--idle", "--nonblocking", "--rate", str(rate), "--duration", str(seconds)]
        command += ["--output", str(output), "--pid", str(pid)]
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
    return lines, int(failed[1]) if failed else 0


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


def sampled_screen(process: SampledProcess) -> RenderableType:
    """Everything, as wide as the console."""
    summary = process.summary
    head = (
        f"fastfeed watch, process {process.pid}: {summary.samples} samples of the main thread in"
        f" {process.seconds} s"
    )
    parts: list[RenderableType] = [Text(head, style="bold")]
    if process.command:
        parts.append(Text(process.command, style="dim"))
    style = "red" if summary.is_hung or summary.input_share >= STARVED else ""
    parts.append(Text(printable(summary.verdict, None), style=style))
    parts.append(Text(_machine(process)))
    parts.append(_table(summary.functions))
    parts.append(Text(summary.advice))
    errors = f", {process.errors} samples failed" if process.errors else ""
    parts.append(
        Text(f"sampled: shares of samples{errors}; CPU: exact; GPU: estimate by NVML", style="dim")
    )
    parts += [Text(printable(note, None), style="dim") for note in process.notes]
    return Group(*parts)


def _machine(process: SampledProcess) -> str:
    cpu = "unknown" if process.cpu_cores is None else f"{process.cpu_cores:.0%}"
    text = f"main thread computes {cpu} of the time"
    if process.gpu is not None and process.gpu_sm is not None:
        text += f"; GPU {process.gpu.index} ({process.gpu.name}) works {process.gpu_sm:.0%}"
    return text


def _table(functions: tuple[FunctionShare, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("share", justify="right", header_style="cyan", no_wrap=True)
    table.add_column("kind", header_style="cyan", no_wrap=True)
    table.add_column("function, and the line that calls it", header_style="cyan", overflow="fold")
    for function in functions:
        lines = [
            (
                f"{function.function}, below {function.below}"
                if function.function
                else str(function.below)
            )
        ]
        lines += [f"  {function.below.text}"] if function.below.text else []
        table.add_row(
            f"{function.share:.0%}",
            title(function.kind),
            Text("\n".join(printable(line) for line in lines)),
        )
    return table
