"""`fastfeed analyze FILE...`: explains why a GPU was idle, from a trace of any profiler."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastfeed.cli import report_files, streams, sweep, trace_io
from fastfeed.cli.trace_io import AsJson, Force, InputRange, MaxEvents, Steps
from fastfeed.errors import ConfigError

if TYPE_CHECKING:
    from fastfeed.profiler.compare.ci_gate import Gate

__all__ = ["analyze"]


def analyze(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Trace files or folders of one run, from all ranks. -: standard input."),
    ],
    input_range: InputRange = "",
    steps: Steps = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMIT",
            help="A limit such as 'input>5%' or 'idle>30%'. Exit code 3 if exceeded, 4 if there is no verdict.",
        ),
    ] = None,
    max_events: MaxEvents = 0,
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page with the timeline.")] = None,
    perfetto: Annotated[
        Path | None, typer.Option(help="Also write idle-time tracks for ui.perfetto.dev (.json or .json.gz).")
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Take each FILE, or what is in one folder, as a run; print one table.")
    ] = False,
    force: Force = False,
) -> None:
    """Explain why the GPU was idle, from a recording of Nsight Systems, nvprof, PyTorch, JAX or TensorFlow."""
    from fastfeed.profiler.reports import document, text

    limits = trace_io.parse_limits(fail_on)
    if each:
        if html or perfetto:
            raise ConfigError("--each prints a table and no page; leave out --html and --perfetto, or analyze one run")
        runs = sweep.read_runs(
            files,
            lambda path: trace_io.analyze_files([path], input_range, steps, max_events=max_events),
            lambda result, name: trace_io.exit_code(limits, result, name),
        )
        raise typer.Exit(_show_runs(runs, limits, as_json))
    report_files.check(files, html, perfetto, force)
    before = files[0] if len(files) == 1 else files[0].parent
    again = shlex.join(["fastfeed", "diff", str(before), "AFTER"])  # a recording made after the change
    result = trace_io.analyze_files(files, input_range, steps, again, max_events)
    with streams.report() as console:
        if as_json:
            trace_io.show_json(document.as_dict(result))
        else:
            text.render(result, console)
    for line in report_files.save(result, html, perfetto):
        streams.say(line)
    raise typer.Exit(trace_io.exit_code(limits, result))


def _show_runs(runs: list[sweep.Run], limits: list[Gate], as_json: bool) -> int:
    """Print the table. The exit code is that of the worst run; a run that cannot be read has no verdict."""
    with streams.report() as console:
        if as_json:
            trace_io.show_json(sweep.as_dict(runs))
        else:
            sweep.render(runs, console)
    from fastfeed.profiler.compare.ci_gate import ABSTAINED, TRIPPED

    codes = {run.code for run in runs}
    if limits and any(run.error for run in runs):
        codes.add(ABSTAINED)
    return TRIPPED if TRIPPED in codes else max(codes)
