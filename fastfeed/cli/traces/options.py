"""Options, trace reading and limits shared by `analyze`, `diff` and `profile`."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastfeed.cli.screen.help import MORE, flag, option
from fastfeed.cli.screen.streams import say
from fastfeed.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from fastfeed.profiler.compare.ci_gate import Gate
    from fastfeed.profiler.model.result import Result

_STDIN = "standard input"
InputRange = Annotated[
    str,
    option(
        "REGEX", "Also count profiler ranges whose name matches as waiting for input.", panel=MORE
    ),
]
Steps = Annotated[int | None, option("N", "Analyze only the last N steady steps.", min=1)]
FailOn = Annotated[
    list[str] | None,
    option(
        "LIMIT", "Such as 'input>5%' or 'idle>30%'. Exit code 3 if exceeded, 4 without a verdict."
    ),
]
Force = Annotated[
    bool, flag("Also overwrite files that fastfeed did not write.", "--force", panel=MORE)
]
MaxEvents = Annotated[
    int,
    option(
        "N",
        "Refuse files with more events. Default: 5 million.",
        panel=MORE,
        min=0,
        show_default=False,
    ),
]
AsJson = Annotated[bool, flag("Print the result as JSON.", "--json")]


def analyze_files(
    paths: Sequence[Path],
    input_range: str = "",
    steps: int | None = None,
    again: str = "",
    max_events: int = 0,
) -> Result:
    """Read files and folders of one run, and analyze them together.

    If no GPU trace can be read but there is a feed's timeline, the timeline is analyzed, with a
    note. `max_events` 0 is the readers' own limit.
    """
    from fastfeed.profiler import analysis, readers
    from fastfeed.profiler.merge import merge
    from fastfeed.profiler.readers import limits
    from fastfeed.profiler.readers.decompress import read_as
    from fastfeed.profiler.readers.folders import expand

    traces = []
    errors = []
    with (
        limits.max_events(max_events or limits.MAX_EVENTS),
        _standard_input(paths) as (paths, spooled),
    ):
        for path in expand(paths):
            try:
                shown = Path(_STDIN) if path == spooled else path
                traces.append(read_as(shown, readers.read, path))
            except TraceError as error:
                errors.append(error)
    if errors and not (traces and all(trace.origin.dialect == "timeline" for trace in traces)):
        raise errors[0]
    result = analysis.analyze(
        merge.combine(traces), input_range=input_range, last_steps=steps, again=again
    )
    return replace(result, notes=(*map(str, errors), *result.notes))


@contextmanager
def _standard_input(paths: Sequence[Path]) -> Iterator[tuple[list[Path], Path | None]]:
    """The paths, with `-` replaced by a file that holds standard input, and that file."""
    if Path("-") not in paths:
        yield list(paths), None
        return
    if [*paths].count(Path("-")) > 1:
        raise ConfigError("standard input can be read once; pass the other trace as a file")
    if sys.stdin is None or sys.stdin.isatty():
        raise ConfigError(
            "- reads a trace from standard input, and none is connected; pass a file, or pipe"
            " one in"
        )
    with tempfile.TemporaryDirectory(prefix="fastfeed-") as folder:
        spooled = Path(folder) / "trace"
        try:
            with spooled.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
        except OSError as error:
            raise TraceError(
                f"cannot copy standard input to {folder}: {error.strerror}; pass a file"
            ) from error
        yield [spooled if path == Path("-") else path for path in paths], spooled


def parse_limits(texts: Sequence[str] | None) -> list[Gate]:
    """The limits of `--fail-on`, parsed before any long work starts."""
    from fastfeed.profiler.compare.ci_gate import parse

    return [parse(text) for text in texts or ()]


def exit_code(limits: Sequence[Gate], result: Result, name: str = "") -> int:
    """The exit code of `--fail-on`; prints on standard error which limits hold and which do not.

    `name` tells which of several runs this is.
    """
    from fastfeed.profiler.compare.ci_gate import check

    code, sentences = check(limits, result)
    for sentence in sentences:
        say(f"{name}: {sentence}" if name else sentence, style="bold red" if code else "green")
    return code


def show_json(document: dict[str, object]) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(document, indent=1, allow_nan=False))
