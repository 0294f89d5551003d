"""Samples a trainer that has no feed, and reads its CPU and GPU over the same seconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastfeed.errors import ConfigError
from fastfeed.live.nvml import Gpus, GpuUse
from fastfeed.live.stacks.frames import main_stacks, source_lines
from fastfeed.live.stacks.py_spy import find_py_spy, record
from fastfeed.live.stacks.summary import Summary, summarize
from fastfeed.live.watch import gpu_of, variables, visible_gpus
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
    summary: Summary

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
    recording = record(pid, seconds, _RATE, gpu.add, program)
    gpu.add()
    after = _ran_ns(pid)
    elapsed = steady_ns() - begin
    cores = None if before is None or after is None else (after[0] - before[0]) / elapsed
    ready = None if before is None or after is None else (sum(after) - sum(before)) / elapsed
    stacks = main_stacks(recording.lines, pid, source)
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
        pid, command, seconds, cores, gpu.use, gpu.sm, recording.errors, tuple(notes), summary
    )


class _GpuMean:
    """The GPU of a process, and how much of the time it worked."""

    def __init__(self, gpus: Gpus, pid: int) -> None:
        self.use: GpuUse | None = None
        self._gpus = gpus
        self._pid = pid
        environment = variables(Path("/"), pid)
        self._visible = visible_gpus(environment)
        self._local_rank = environment.get("LOCAL_RANK", "")
        self._shares: list[float] = []
        gpus.sample()

    def add(self) -> None:
        """The time since the last call."""
        uses = self._gpus.sample()
        if not self._local_rank.isdigit() and len(self._visible or uses) > 1:  # any of them
            uses = [use for use in uses if self._pid in use.pids]
        use = gpu_of(
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
