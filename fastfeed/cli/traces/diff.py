"""`fastfeed diff A B`: what changed between two runs, and whether it is more than noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastfeed.cli.screen import streams
from fastfeed.cli.screen.help import argument, option
from fastfeed.cli.traces import options as trace_io
from fastfeed.cli.traces import report_files
from fastfeed.cli.traces.options import AsJson, Force, InputRange, MaxEvents, Steps
from fastfeed.errors import ConfigError


def diff(
    before: Annotated[
        Path, argument("BEFORE", "Trace or folder of the run before the change. -: stdin.")
    ],
    after: Annotated[
        Path, argument("AFTER", "Trace or folder of the run after the change. -: stdin.")
    ],
    html: Annotated[
        Path | None, option("FILE", "Also write an HTML page with both timelines.")
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        option(
            "LIMIT", "For AFTER, such as 'input>5%'. Exit code 3 if exceeded, 4 without a verdict."
        ),
    ] = None,
    as_json: AsJson = False,
    steps: Steps = None,
    input_range: InputRange = "",
    max_events: MaxEvents = 0,
    force: Force = False,
) -> None:
    """Compare the idle time of two runs, and say what is noise.

    Examples:
        fastfeed diff before.json.gz after.json.gz       # two traces
        fastfeed diff before/ after/ --html diff.html    # all ranks, and a page
        fastfeed diff before/ after/ --steps 50          # the last 50 steps
    """
    from fastfeed.profiler.compare import compare
    from fastfeed.profiler.reports import difference, difference_page

    limits = trace_io.parse_limits(fail_on)
    if before == after == Path("-"):
        raise ConfigError("standard input can be read once; pass the other trace as a file")
    report_files.check([before, after], html, None, force)
    results = [
        trace_io.analyze_files([path], input_range, steps, max_events=max_events)
        for path in (before, after)
    ]
    compared = compare.compare(*results)
    with streams.report() as console:
        if as_json:
            trace_io.show_json(difference.as_dict(compared))
        else:
            difference.render(compared, console)
    if html is not None:
        streams.say(report_files.save_page(html, difference_page.page(compared)))
    raise typer.Exit(trace_io.exit_code(limits, results[1]))
