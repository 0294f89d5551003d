"""Trace files to a result, and a result to where it was asked for: what `analyze`, `diff` and `profile` share."""

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

__all__ = ["AsJson", "InputRange", "Steps", "analyzed", "gates", "judged", "place", "save", "show_json"]

InputRange = Annotated[
    str, typer.Option(metavar="REGEX", help="Ranges with such a name are waiting for input, too.")
]  # fmt: skip
Steps = Annotated[int | None, typer.Option(min=1, help="Judge the last so many steady steps only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def analyzed(paths: Sequence[Path], input_range: str = "", steps: int | None = None, again: str = "") -> Result:
    """Read files and folders of one run, and analyze them together.

    Where no GPU trace can be read and there is a feed's timeline, that is analyzed, with a note.
    """
    from fastfeed.profiler import analysis, readers
    from fastfeed.profiler.merge import merge
    from fastfeed.profiler.readers.folders import expand

    read, errors = [], []
    for path in expand(paths):
        try:
            read.append(readers.read(path))
        except TraceError as error:
            errors.append(error)
    if errors and not (read and all(trace.origin.dialect == "timeline" for trace in read)):
        raise errors[0]
    result = analysis.analyze(merge.combine(read), input_range=input_range, last_steps=steps, again=again)
    return replace(result, notes=(*map(str, errors), *result.notes))


def gates(given: Sequence[str] | None) -> list[Gate]:
    """`--fail-on`, before anything long is begun."""
    from fastfeed.profiler.compare.ci_gate import parse

    return [parse(text) for text in given or ()]


def judged(limits: Sequence[Gate], result: Result) -> int:
    """The exit code of `--fail-on`; says on standard error what holds and what does not."""
    from fastfeed.profiler.compare.ci_gate import check

    code, said = check(limits, result)
    for sentence in said:
        Console(stderr=True, soft_wrap=True).print(
            sentence, style="bold red" if code else "green", markup=False, highlight=False
        )
    return code


def place(path: Path | None, option: str, suffixes: tuple[str, ...]) -> None:
    """Refuse a place that cannot be written, before anything long is begun."""
    if path is None:
        return
    if not path.name.lower().endswith(suffixes) or path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigError(f"{option} must be a {' or '.join(suffixes)} in an existing folder, got {path}")


def save(result: Result, html: Path | None, perfetto: Path | None) -> list[str]:
    """Write the page and the tracks; what was written, in words."""
    from fastfeed.profiler.reports import page
    from fastfeed.profiler.reports import perfetto as tracks

    said = []
    for path in filter(None, (html, perfetto)):
        try:
            if path is html:
                path.write_text(page.page(result), "utf-8")
                said.append(f"report: {path}")
            else:
                tracks.write(result, path)
                said.append(f"tracks for ui.perfetto.dev: {path}")
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}; name another place") from error
    return said


def show_json(document: dict[str, object]) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(document, indent=1, allow_nan=False))
