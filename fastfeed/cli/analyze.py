"""`fastfeed analyze FILE...`: explains why a GPU was idle, from a trace of any profiler."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fastfeed.cli import trace_io
from fastfeed.cli.trace_io import AsJson, InputRange, Steps

__all__ = ["analyze"]


def analyze(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Trace files or folders of one run, from all ranks.")
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
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page with the timeline.")] = None,
    perfetto: Annotated[
        Path | None, typer.Option(help="Also write idle-time tracks for ui.perfetto.dev (.json or .json.gz).")
    ] = None,
) -> None:
    """Explain why the GPU was idle, from a recording of Nsight Systems, nvprof, PyTorch, JAX or TensorFlow."""
    from fastfeed.profiler.reports import document, text

    limits = trace_io.parse_limits(fail_on)
    trace_io.check_output_path(html, "--html", (".html", ".htm"))
    trace_io.check_output_path(perfetto, "--perfetto", (".json", ".json.gz"))
    before = files[0] if len(files) == 1 else files[0].parent
    again = shlex.join(["fastfeed", "diff", str(before), "AFTER"])  # a recording made after the change
    result = trace_io.analyze_files(files, input_range, steps, again)
    if as_json:
        trace_io.show_json(document.as_dict(result))
    else:
        text.render(result, Console())
    for line in trace_io.save(result, html, perfetto):
        Console(stderr=True, soft_wrap=True).print(line, markup=False, highlight=False)
    raise typer.Exit(trace_io.exit_code(limits, result))
