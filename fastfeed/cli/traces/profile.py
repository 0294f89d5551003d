"""`fastfeed profile -- python train.py`: records a command and explains why its GPU was idle."""

from __future__ import annotations

import enum
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastfeed.cli.screen import streams
from fastfeed.cli.screen.help import MORE, argument, flag, option
from fastfeed.cli.screen.streams import say
from fastfeed.cli.traces import options as trace_io
from fastfeed.cli.traces import report_files
from fastfeed.cli.traces.options import FailOn, Force, InputRange, Steps
from fastfeed.errors import ConfigError, FastfeedError

if TYPE_CHECKING:
    from fastfeed.profiler.compare.ci_gate import Gate
    from fastfeed.profiler.runner.settings import Recording


class Tool(str, enum.Enum):
    auto = "auto"
    nsys = "nsys"
    nvprof = "nvprof"
    torch = "torch"
    jax = "jax"
    tensorflow = "tensorflow"


def profile(
    command: Annotated[list[str], argument("COMMAND", "The command to run, with its arguments.")],
    out: Annotated[
        Path | None,
        option("DIR", "Folder to record to. Default: a new fastfeed-profile.", "--out", "-o"),
    ] = None,
    html: Annotated[bool, flag("Write report.html to the folder.")] = True,
    fail_on: FailOn = None,
    steps: Steps = None,
    stop_after: Annotated[
        bool, flag("End the command when the steps are recorded. Not with nsys.", "--stop-after")
    ] = False,
    skip_steps: Annotated[
        int,
        option("N", "Training steps before recording begins. Not with nsys.", panel=MORE, min=1),
    ] = 10,
    record_steps: Annotated[
        int, option("N", "Training steps to record. Not with nsys.", panel=MORE, min=1)
    ] = 30,
    delay: Annotated[int, option("S", "Seconds to wait before recording.", panel=MORE, min=0)] = 0,
    duration: Annotated[int, option("S", "Seconds to record. 0: all.", panel=MORE, min=0)] = 0,
    tool: Annotated[
        Tool,
        option(
            "TOOL",
            "nsys, nvprof, torch, jax, tensorflow, or auto: nsys, else the framework's profiler.",
            "--with",
            panel=MORE,
        ),
    ] = Tool.auto,
    input_range: InputRange = "",
    nsys: Annotated[
        Path | None,
        option("PATH", "Path to nsys. Default: $NSYS, then PATH and the usual places.", panel=MORE),
    ] = None,
    force: Force = False,
) -> None:
    """Run a command, and explain why its GPU was idle.

    Records with Nsight Systems (nsys) if it is installed, else 30 steps with the profiler of
    PyTorch, JAX, TensorFlow.

    Examples:
        fastfeed profile -- python train.py                       # as it is
        fastfeed profile --stop-after -- python train.py          # only 40 steps
        fastfeed profile -- torchrun --nproc-per-node 8 train.py  # all ranks

    Returns the command's exit code or, if that is 0, that of --fail-on. The report goes to standard
    error. If nsys hangs for two minutes after the command has ended, it is killed, and the exit
    code is 137 if the command's own is not known.
    """
    if os.name != "posix":
        raise ConfigError(
            f"fastfeed profile needs Linux, got {sys.platform}; record with the framework's"
            " profiler, then: fastfeed analyze TRACE"
        )
    from fastfeed.profiler.runner.foreground import unrunnable
    from fastfeed.profiler.runner.output_folder import free_folder
    from fastfeed.profiler.runner.session import record
    from fastfeed.profiler.runner.settings import RecordingSettings, launcher_rank

    limits = trace_io.parse_limits(fail_on)
    rank = launcher_rank(os.environ)
    if limits and rank is not None:
        raise ConfigError(
            "--fail-on judges all ranks at once; leave it out here, then: fastfeed analyze DIR"
            " --fail-on"
        )
    if (delay or duration) and tool is Tool.nvprof:
        raise ConfigError("--delay and --duration need nsys; nvprof records from beginning to end")
    bad = unrunnable(command)
    if bad is not None:
        say(f"fastfeed: {bad[1]}")
        raise typer.Exit(bad[0])
    folder = (out or free_folder(os.environ)).absolute()
    with _nsys_variable(nsys):
        recording = record(
            RecordingSettings(
                tuple(command),
                folder,
                tool.value,
                delay,
                duration,
                nsys.absolute() if nsys else None,
                force,
                skip_steps,
                record_steps,
                stop_after,
            )
        )
        for note in recording.notes:
            say(f"fastfeed: {note}")
        code = 0
        if not rank:  # the first rank reports for its machine; the others only record
            again = shlex.join(["fastfeed", "profile", "--", *command])
            code = _report(recording, folder, limits, html, input_range, steps, again)
    raise typer.Exit(recording.code or code)


def _report(
    recording: Recording,
    folder: Path,
    limits: list[Gate],
    html: bool,
    input_range: str,
    steps: int | None,
    again: str,
) -> int:
    """Analyze the recording and print the report. Returns the exit code of the limits."""
    from fastfeed.profiler.compare.ci_gate import ABSTAINED
    from fastfeed.profiler.reports import text

    files = [*recording.traces, *recording.timelines]
    if not files:
        if not recording.notes:  # which say why
            say(
                "fastfeed: there is nothing to analyze: nothing was recorded, and the command used"
                " no fastfeed.Feed"
            )
        return ABSTAINED if limits else 0
    try:
        result = trace_io.analyze_files(files, input_range, steps, again)
        with streams.report(stderr=True) as console:
            text.render(result, console)
        for line in report_files.save(result, folder / "report.html" if html else None, None):
            say(line)
    except FastfeedError as error:  # the command itself has finished: its exit code counts
        say(f"fastfeed: {error}")
        return ABSTAINED if limits else 0
    say(f"recording: {folder}")
    return trace_io.exit_code(limits, result)


@contextmanager
def _nsys_variable(nsys: Path | None) -> Iterator[None]:
    """Set $NSYS to the path of --nsys, because reading reports needs nsys too."""
    before = os.environ.get("NSYS")
    if nsys is not None:
        os.environ["NSYS"] = str(nsys.absolute())
    try:
        yield
    finally:
        if nsys is not None:
            os.environ.pop("NSYS")
            os.environ.update({"NSYS": before} if before is not None else {})
