"""`fastfeed diff A B`: what changed between two runs, and whether it is more than noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fastfeed.cli import trace_io
from fastfeed.cli.trace_io import AsJson, InputRange, Steps

__all__ = ["diff"]


def diff(
    before: Annotated[Path, typer.Argument(help="Trace file or folder of the run before the change.")],
    after: Annotated[Path, typer.Argument(help="Trace file or folder of the run after the change.")],
    input_range: InputRange = "",
    steps: Steps = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMIT",
            help="A limit for the run after, such as 'input>5%'. Exit code 3 if exceeded, 4 if there is no verdict.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the idle time of two runs, by cause and per step, and say which differences are noise."""
    from fastfeed.profiler.compare import compare
    from fastfeed.profiler.reports import difference

    limits = trace_io.parse_limits(fail_on)
    results = [trace_io.analyze_files([path], input_range, steps) for path in (before, after)]
    compared = compare.compare(*results)
    if as_json:
        trace_io.show_json(difference.as_dict(compared))
    else:
        difference.render(compared, Console())
    raise typer.Exit(trace_io.exit_code(limits, results[1]))
