"""`fastfeed diff A B`: what a change did, and whether it is more than noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fastfeed.cli import trace_io as traces
from fastfeed.cli.trace_io import AsJson, InputRange, Steps

__all__ = ["diff"]


def diff(
    before: Annotated[Path, typer.Argument(help="Trace or folder of the run before the change.")],
    after: Annotated[Path, typer.Argument(help="The same of the run after it.")],
    input_range: InputRange = "",
    steps: Steps = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(metavar="LIMIT", help="'input>5%' of the run after: exit code 3 above it, 4 without a verdict."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two runs: idle time by cause, per step, and what of the difference is noise."""
    from fastfeed.profiler.compare import compare
    from fastfeed.profiler.reports import difference

    limits = traces.gates(fail_on)
    results = [traces.analyzed([path], input_range, steps) for path in (before, after)]
    compared = compare.compare(*results)
    if as_json:
        traces.show_json(difference.as_dict(compared))
    else:
        difference.render(compared, Console())
    raise typer.Exit(traces.judged(limits, results[1]))
