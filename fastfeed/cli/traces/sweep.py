"""Many runs in one table, one line each: `fastfeed analyze --each RUNS`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from fastfeed.errors import TraceError
from fastfeed.printable import printable

if TYPE_CHECKING:
    from fastfeed.profiler.model.result import Result

SCHEMA = "fastfeed.sweep/1"


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run: facts of its result, or why it has no result.

    The result itself may be large and is not kept.
    """

    name: str
    cells: tuple[str, ...] = ()  # of its line in the table, after the name
    analysis: dict[str, Any] | None = None
    code: int = 0  # exit code of its limits
    error: str = ""


def read_runs(
    paths: Sequence[Path], analyze: Callable[[Path], Result], check: Callable[[Result, str], int]
) -> list[SweepRun]:
    """Analyze each path by itself; a single folder is replaced by its contents.

    TraceError if no run can be read.

    Args:
        paths: files and folders; `-` is standard input.
        analyze: gives the result of one of them.
        check: gives the exit code of a result, for limits; gets the run's name too.
    """
    from fastfeed.profiler.reports import document

    paths = _contents(paths[0]) if len(paths) == 1 and paths[0].is_dir() else paths
    runs = []
    errors = []
    for path, name in zip(paths, _names(paths), strict=True):
        try:
            result = analyze(path)
        except TraceError as error:
            errors.append(error)
            runs.append(SweepRun(name, error=str(error).removeprefix(str(path)).lstrip(": ")))
        else:
            runs.append(
                SweepRun(name, _cells(result), document.as_dict(result), check(result, name))
            )
    if len(errors) == len(runs):
        raise errors[0]
    return runs


def _contents(folder: Path) -> list[Path]:
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise TraceError(
            f"cannot read {folder}: {error.strerror}; check its permissions"
        ) from error
    if not paths:
        raise TraceError(
            f"{folder} has no run in it; pass the folder that holds a folder for each run"
        )
    return paths


def _names(paths: Sequence[Path]) -> list[str]:
    """Paths from the folder that all have in common."""
    files = [path.absolute() for path in paths if path != Path("-")]
    common = os.path.commonpath([path.parent for path in files]) if files else ""
    return [
        "standard input" if path == Path("-") else os.path.relpath(path.absolute(), common)
        for path in paths
    ]


def render(runs: Sequence[SweepRun], console: Console) -> None:
    """A line for each run: verdict, figures of the device that the verdict is about.

    Only a terminal has lines cut.
    """
    rows = [("run", "verdict", "input", "idle", "step", "largest loss"), *map(_row, runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    if console.is_terminal:
        widths[0] = min(widths[0], max(console.width // 3, 8))
    for number, row in enumerate(rows):
        name, verdict, *figures, loss = row
        # runs differ at their ends
        name = name if len(name) <= widths[0] else f"…{name[1 - widths[0] :]}"
        cells = [name.ljust(widths[0]), verdict.ljust(widths[1])]
        cells += [cell.rjust(width) for cell, width in zip(figures, widths[2:], strict=True)]
        line = Text("  ".join([*cells, loss]).rstrip(), style="bold" if number == 0 else "")
        if console.is_terminal:
            line.truncate(console.width, overflow="ellipsis")
        console.print(line, soft_wrap=True, highlight=False)


def _row(run: SweepRun) -> tuple[str, ...]:
    return (
        printable(run.name, None),
        *(run.cells or ("-", "-", "-", "-", printable(run.error, None))),
    )


def _cells(result: Result) -> tuple[str, ...]:
    """Return the cells of the device that the headline of its report is about."""
    from fastfeed.profiler.model.causes import FAMILIES
    from fastfeed.profiler.model.format import WORDS, duration, percent
    from fastfeed.profiler.reports import figures

    verdict = result.verdict
    word = WORDS.get(verdict.word, verdict.word)
    if not result.devices:
        return (word, "-", "-", "-", "")
    device = figures.by_need(result)[0]
    step = figures.step_ns(device)
    return (
        word,
        percent(device.share.value),
        percent(device.judged.share(device.judged.budget.idle)),
        "-" if step is None else duration(step),
        FAMILIES.get(verdict.bound, "the GPU itself" if verdict.bound == "gpu" else ""),
    )


def as_dict(runs: Sequence[SweepRun]) -> dict[str, Any]:
    """`fastfeed.sweep/1`: for each run its name, and its analysis or an error."""
    rows = [
        {
            "run": printable(run.name, None),
            "error": printable(run.error, None),
            "analysis": run.analysis,
        }
        for run in runs
    ]
    return {"schema": SCHEMA, "runs": rows}
