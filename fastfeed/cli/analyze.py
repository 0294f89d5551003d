"""`fastfeed analyze FILE...`: why a GPU was idle, from a trace of any profiler."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fastfeed.cli import trace_io as traces
from fastfeed.cli.trace_io import AsJson, InputRange, Steps

__all__ = ["analyze"]


def analyze(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Traces or folders of one run, all ranks.")],
    input_range: InputRange = "",
    steps: Steps = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(metavar="LIMIT", help="'input>5%', 'idle>30%': exit code 3 above it, 4 without a verdict."),
    ] = None,
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option(help="Also write a page with the timeline: report.html.")] = None,
    perfetto: Annotated[Path | None, typer.Option(help="Also write tracks for ui.perfetto.dev: idle.json.")] = None,
) -> None:
    """Say of what was recorded by Nsight Systems, nvprof, PyTorch, JAX or TensorFlow why the GPU was idle."""
    from fastfeed.profiler.reports import document, text

    limits = traces.gates(fail_on)
    traces.place(html, "--html", (".html", ".htm"))
    traces.place(perfetto, "--perfetto", (".json", ".json.gz"))
    before = files[0] if len(files) == 1 else files[0].parent
    again = shlex.join(["fastfeed", "diff", str(before), "AFTER"])  # a recording made after the change
    result = traces.analyzed(files, input_range, steps, again)
    if as_json:
        traces.show_json(document.as_dict(result))
    else:
        text.render(result, Console())
    for line in traces.save(result, html, perfetto):
        Console(stderr=True, soft_wrap=True).print(line, markup=False, highlight=False)
    raise typer.Exit(traces.judged(limits, result))
