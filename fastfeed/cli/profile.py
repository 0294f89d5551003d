"""`fastfeed profile -- python train.py`: run a command, record it, and say why its GPU was idle."""

from __future__ import annotations

import enum
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fastfeed.cli import trace_io as traces
from fastfeed.cli.trace_io import InputRange, Steps
from fastfeed.errors import ConfigError, FastfeedError

if TYPE_CHECKING:
    from fastfeed.profiler.compare.ci_gate import Gate
    from fastfeed.profiler.runner import Recording

__all__ = ["profile"]


class Tool(str, enum.Enum):
    auto = "auto"
    nsys = "nsys"
    nvprof = "nvprof"


def profile(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="What to run, with its arguments.")],
    tool: Annotated[Tool, typer.Option("--with", help="The profiler. auto: nsys where there is one.")] = Tool.auto,
    steps: Steps = None,
    delay: Annotated[int, typer.Option(min=0, help="Seconds before recording begins.")] = 0,
    duration: Annotated[int, typer.Option(min=0, help="Seconds of recording; 0: to the end.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder; else a new fastfeed-profile.")] = None,
    html: Annotated[bool, typer.Option(help="Write report.html into the folder.")] = True,
    input_range: InputRange = "",
    fail_on: Annotated[
        list[str] | None,
        typer.Option(metavar="LIMIT", help="'input>5%', 'idle>30%': exit code 3 above it, 4 without a verdict."),
    ] = None,
    nsys: Annotated[Path | None, typer.Option(help="The program nsys; else $NSYS or found.")] = None,
) -> None:
    """Run a command under a profiler, with light options; its exit code is returned. Reports on standard error."""
    from fastfeed.profiler import runner

    limits = traces.gates(fail_on)
    rank = runner.rank_of(os.environ)
    if limits and rank is not None:
        raise ConfigError("--fail-on judges all ranks at once; leave it out here, then: fastfeed analyze DIR --fail-on")
    if (delay or duration) and tool is Tool.nvprof:
        raise ConfigError("--delay and --duration need nsys; nvprof records from beginning to end")
    bad = runner.unrunnable(command)
    if bad is not None:
        _say(f"fastfeed: {bad[1]}")
        raise typer.Exit(bad[0])
    folder = (out or runner.free_folder(os.environ)).absolute()
    with _named(nsys):
        done = runner.record(
            runner.Settings(tuple(command), folder, tool.value, delay, duration, nsys.absolute() if nsys else None)
        )
        for note in done.notes:
            _say(f"fastfeed: {note}")
        code = 0
        if not rank:  # the first rank speaks for its machine; the others have recorded
            again = shlex.join(["fastfeed", "profile", "--", *command])
            code = _report(done, folder, limits, html, input_range, steps, again)
    raise typer.Exit(done.code or code)


def _report(
    done: Recording, folder: Path, limits: list[Gate], html: bool, input_range: str, steps: int | None, again: str
) -> int:
    """Analyze what was recorded and say it; the exit code of the limits."""
    from fastfeed.profiler.compare.ci_gate import ABSTAINED
    from fastfeed.profiler.reports import text

    files = [*done.traces, *done.timelines]
    if not files:
        _say("fastfeed: there is nothing to analyze: no GPU work was recorded, and the command used no fastfeed.Feed")
        return ABSTAINED if limits else 0
    try:
        result = traces.analyzed(files, input_range, steps, again)
        text.render(result, Console(stderr=True))
        for line in traces.save(result, folder / "report.html" if html else None, None):
            _say(line)
    except FastfeedError as error:  # the command itself is done: its exit code counts
        _say(f"fastfeed: {error}")
        return ABSTAINED if limits else 0
    _say(f"recording: {folder}")
    return traces.judged(limits, result)


@contextmanager
def _named(nsys: Path | None) -> Iterator[None]:
    """Reports are also opened with the nsys that --nsys names."""
    before = os.environ.get("NSYS")
    if nsys is not None:
        os.environ["NSYS"] = str(nsys.absolute())
    try:
        yield
    finally:
        if nsys is not None:
            os.environ.pop("NSYS")
            os.environ.update({"NSYS": before} if before is not None else {})


def _say(text: str) -> None:
    Console(stderr=True, soft_wrap=True).print(text, markup=False, highlight=False)
