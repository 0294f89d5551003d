"""`fastfeed diff A B`: what a change did, and whether it is more than noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["diff"]


def diff(
    before: Annotated[Path, typer.Argument(help="Trace or folder of the run before the change.")],
    after: Annotated[Path, typer.Argument(help="The same of the run after it.")],
    input_range: Annotated[
        str, typer.Option(metavar="REGEX", help="Ranges with such a name are waiting for input, too.")
    ] = "",
    steps: Annotated[int | None, typer.Option(min=1, help="Judge the last so many steady steps only.")] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(metavar="LIMIT", help="'input>5%' of the run after: exit code 3 above it, 4 without a verdict."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Compare two runs: idle time by cause, per step, and what of the difference is noise."""
    from fastfeed.cli import traces
    from fastfeed.profiler import compare
    from fastfeed.profiler.reports import difference

    limits = traces.gates(fail_on)
    results = [traces.analyzed([path], input_range, steps) for path in (before, after)]
    compared = compare.compare(*results)
    if as_json:
        traces.show_json(difference.as_dict(compared))
    else:
        difference.render(compared, Console())
    raise typer.Exit(traces.judged(limits, results[1]))
