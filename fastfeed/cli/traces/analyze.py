"""`fastfeed analyze FILE...`: explains why a GPU was idle, from a trace of any profiler."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastfeed.cli.screen import streams
from fastfeed.cli.screen.help import MORE, argument, flag, option
from fastfeed.cli.traces import options as trace_io
from fastfeed.cli.traces import report_files, sweep
from fastfeed.cli.traces.options import AsJson, FailOn, Force, InputRange, MaxEvents, Steps
from fastfeed.errors import ConfigError

if TYPE_CHECKING:
    from fastfeed.profiler.compare.ci_gate import Gate


def analyze(
    files: Annotated[
        list[Path], argument("FILE", "Traces or folders of one run, all ranks. -: standard input.")
    ],
    html: Annotated[
        Path | None, option("FILE", "Also write an HTML page with the timeline.")
    ] = None,
    fail_on: FailOn = None,
    each: Annotated[
        bool, flag("Treat each FILE, or entry of a folder, as a run; print a table.", "--each")
    ] = False,
    as_json: AsJson = False,
    steps: Steps = None,
    input_range: InputRange = "",
    max_events: MaxEvents = 0,
    perfetto: Annotated[
        Path | None,
        option(
            "FILE",
            "Also write idle-time tracks for ui.perfetto.dev (.json or .json.gz).",
            panel=MORE,
        ),
    ] = None,
    as_markdown: Annotated[
        bool,
        flag("Print a short report in Markdown, for a pull request.", "--markdown", panel=MORE),
    ] = False,
    force: Force = False,
) -> None:
    """Explain why the GPU was idle, from an existing trace.

    Reads Nsight Systems, nvprof, PyTorch, JAX and TensorFlow.

    Examples:
        fastfeed analyze trace.json.gz                    # one trace
        fastfeed analyze run1/ --html report.html         # all ranks, and a page
        fastfeed analyze --each sweep/                    # many runs, one table
        fastfeed analyze run1/ --fail-on 'input>5%'       # for CI: exit code 3
    """
    from fastfeed.profiler.reports import document, markdown, text

    if as_markdown and (as_json or each):
        raise ConfigError("--markdown prints one run as Markdown; leave out --json and --each")
    limits = trace_io.parse_limits(fail_on)
    if each:
        if html or perfetto:
            raise ConfigError(
                "--each prints a table and no page; leave out --html and --perfetto, or analyze"
                " one run"
            )
        runs = sweep.read_runs(
            files,
            lambda path: trace_io.analyze_files([path], input_range, steps, max_events=max_events),
            lambda result, name: trace_io.exit_code(limits, result, name),
        )
        raise typer.Exit(_show_runs(runs, limits, as_json))
    report_files.check(files, html, perfetto, force)
    before = files[0] if len(files) == 1 else files[0].parent
    # a recording made after the change
    again = shlex.join(["fastfeed", "diff", str(before), "AFTER"])
    result = trace_io.analyze_files(files, input_range, steps, again, max_events)
    with streams.report() as console:
        if as_json:
            trace_io.show_json(document.as_dict(result))
        elif as_markdown:
            typer.echo(markdown.as_markdown(result), nl=False)
        else:
            text.render(result, console)
    for line in report_files.save(result, html, perfetto):
        streams.say(line)
    raise typer.Exit(trace_io.exit_code(limits, result))


def _show_runs(runs: list[sweep.SweepRun], limits: list[Gate], as_json: bool) -> int:
    """Print the table of runs.

    The exit code is that of the worst run; a run that cannot be read has no verdict.
    """
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
