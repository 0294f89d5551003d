"""What `analyze`, `diff` and `profile` share: reading trace files, checking limits, writing reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fastfeed.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from fastfeed.profiler.compare.ci_gate import Gate
    from fastfeed.profiler.model.result import Result

__all__ = [
    "AsJson",
    "InputRange",
    "Steps",
    "analyze_files",
    "check_output_path",
    "exit_code",
    "parse_limits",
    "save",
    "show_json",
]

InputRange = Annotated[
    str, typer.Option(metavar="REGEX", help="Also count profiler ranges whose name matches as waiting for input.")
]  # fmt: skip
Steps = Annotated[int | None, typer.Option(min=1, help="Analyze only the last N steady steps.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def analyze_files(paths: Sequence[Path], input_range: str = "", steps: int | None = None, again: str = "") -> Result:
    """Read files and folders of one run, and analyze them together.

    If no GPU trace can be read but there is a feed's timeline, the timeline is analyzed, with a note.
    """
    from fastfeed.profiler import analysis, readers
    from fastfeed.profiler.merge import merge
    from fastfeed.profiler.readers.folders import expand

    traces, errors = [], []
    for path in expand(paths):
        try:
            traces.append(readers.read(path))
        except TraceError as error:
            errors.append(error)
    if errors and not (traces and all(trace.origin.dialect == "timeline" for trace in traces)):
        raise errors[0]
    result = analysis.analyze(merge.combine(traces), input_range=input_range, last_steps=steps, again=again)
    return replace(result, notes=(*map(str, errors), *result.notes))


def parse_limits(texts: Sequence[str] | None) -> list[Gate]:
    """The limits of `--fail-on`, parsed before any long work starts."""
    from fastfeed.profiler.compare.ci_gate import parse

    return [parse(text) for text in texts or ()]


def exit_code(limits: Sequence[Gate], result: Result) -> int:
    """The exit code of `--fail-on`; prints on standard error which limits hold and which do not."""
    from fastfeed.profiler.compare.ci_gate import check

    code, sentences = check(limits, result)
    for sentence in sentences:
        Console(stderr=True, soft_wrap=True).print(
            sentence, style="bold red" if code else "green", markup=False, highlight=False
        )
    return code


def check_output_path(path: Path | None, option: str, suffixes: tuple[str, ...]) -> None:
    """Raise ConfigError for a path that cannot be written, before any long work starts."""
    if path is None:
        return
    if not path.name.lower().endswith(suffixes) or path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigError(f"{option} must be a {' or '.join(suffixes)} in an existing folder, got {path}")


def save(result: Result, html: Path | None, perfetto: Path | None) -> list[str]:
    """Write the HTML page and the Perfetto tracks. Returns a line of text for each file written."""
    from fastfeed.profiler.reports import page
    from fastfeed.profiler.reports import perfetto as tracks

    lines = []
    for path in filter(None, (html, perfetto)):
        try:
            if path is html:
                path.write_text(page.page(result), "utf-8")
                lines.append(f"report: {path}")
            else:
                tracks.write(result, path)
                lines.append(f"tracks for ui.perfetto.dev: {path}")
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}; choose another path") from error
    return lines


def show_json(document: dict[str, object]) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(document, indent=1, allow_nan=False))
