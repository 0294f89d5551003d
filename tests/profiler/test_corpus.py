"""Every real trace at hand has the result in docs/profiler_corpus.md, with a reason."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.profiler.one_story import assert_one_story
from rich.console import Console

from fastfeed.cli.traces import sweep
from fastfeed.errors import TraceError
from fastfeed.profiler import readers
from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.format import percent
from fastfeed.profiler.model.result import DeviceResult, Result
from fastfeed.profiler.reports import text
from fastfeed.profiler.runner import nsight
from fastfeed.profiler.verdict.verdict import focus

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "profiler_corpus.md").read_text("utf-8")
ROWS = {
    cells[0].strip("` "): tuple(cell.strip() for cell in cells[1:])
    for line in PAGE.splitlines()
    if line.startswith("| `") and len(cells := line.strip("| ").split("|")) == 6
}
REASONS = set(re.findall(r"^- `([^`]+)`(?: and `([^`]+)`)?[^:]*: ", PAGE, re.M))
SOURCES = {
    "steps that the trace marks": "marked",
    "numbered annotations": "annotated",
    "annotations": "annotated",
    "optimizer steps": "optimizer",
    "waits for batches": "waits",
    "recurring copies": "guessed",
    "the recurring kernel": "guessed",
}


@pytest.fixture(scope="module")
def traces(data: Path) -> Mapping[str, list[Path]]:
    """Files by their names in the table: without suffixes; the ranks of one run are a folder."""
    found: dict[str, list[Path]] = {}
    for path in sorted((data / "traces").rglob("*")):
        if path.is_file() and path.parent != data / "traces":
            is_rank = path.name.startswith(("worker", "rank"))
            found.setdefault(path.parent.name if is_rank else path.name.split(".")[0], []).append(
                path
            )
    return found


def steps_of(device: DeviceResult) -> str:
    if not device.steps.labels:
        return "none"
    (source,) = [word for begin, word in SOURCES.items() if device.steps.found_by.startswith(begin)]
    return f"{int(device.steps.steady.sum())} of {len(device.steps.labels)}, {source}"


def said(result: Result) -> tuple[str, ...]:
    """The cells of a row: verdict, input, idle, steps."""
    verdict, device = result.verdict, focus(result.devices)
    budget = device.judged.budget
    word = verdict.word.replace("_", " ")
    return (
        f"{word}, {verdict.confidence}" if verdict.confidence else word,
        f"{100 * device.share.value:.1f} %",
        f"{100 * budget.idle / budget.window:.1f} %",
        steps_of(device),
    )


def test_the_table_is_whole():
    names = {name for pair in REASONS for name in pair if name}
    assert len(ROWS) > 35
    assert names == set(ROWS), (
        "each row of docs/profiler_corpus.md needs a reason below it, and each reason a row"
    )


def _one_of_each_verdict() -> list[Any]:
    """All rows; slow but for the first of each verdict."""
    first: dict[str, str] = {}
    return [
        name
        if first.setdefault(cells[0], name) == name
        else pytest.param(name, marks=pytest.mark.slow)
        for name, cells in ROWS.items()
    ]


@pytest.fixture(scope="module", params=_one_of_each_verdict())
def analyzed(
    request: pytest.FixtureRequest, traces: Mapping[str, list[Path]]
) -> tuple[str, Result | TraceError]:
    """The name of a row, and what came of its files; as on a machine without Nsight Systems."""
    name = request.param
    if name not in traces:
        pytest.skip(f"no trace {name} in the test data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nsight, "find", lambda: None)
        try:
            return name, analyze([readers.read(path) for path in traces[name]])
        except TraceError as error:
            return name, error


def test_what_is_said_of_a_real_trace(analyzed: tuple[str, Result | TraceError]):
    name, result = analyzed
    *cells, why = ROWS[name]
    if isinstance(result, TraceError) or cells[0] == "refused":
        assert isinstance(result, TraceError) and cells[0] == "refused"
        assert re.search(why, str(result))
        return
    assert said(result) == tuple(cells)
    verdict = result.verdict
    assert why == verdict.bound if verdict.word != "abstained" else why in verdict.reasons[0]


def test_a_report_does_not_contradict_itself(analyzed: tuple[str, Result | TraceError]):
    _, result = analyzed
    if not isinstance(result, TraceError):
        assert_one_story(result)


def test_a_line_of_many_runs_has_the_figures_of_the_report(
    analyzed: tuple[str, Result | TraceError],
):
    """`analyze --each` and the screen of `analyze`: word, input, idle and length of a step."""
    _, result = analyzed
    if isinstance(result, TraceError):
        return
    (line,) = sweep.read_runs([Path("run")], lambda path: result, lambda result, name: 0)
    word, of_input, idle, step, _ = line.cells
    screen = Console(file=io.StringIO(), width=120)
    text.render(result, screen)
    printed = " ".join(screen.file.getvalue().split())  # type: ignore[attr-defined]
    assert printed.startswith(word)
    assert step == (shown[1] if (shown := re.search(r" steps? of ([\d.,]+ \w+)", printed)) else "-")
    assert f" idle {idle}" in printed or idle == "0.0 %"
    headline = re.search(r"(?:input costs|starved:) ((?:< )?[\d.]+ %)", result.verdict.headline)
    assert of_input == (headline[1] if headline else percent(result.verdict.share.value))


@pytest.mark.slow
def test_traces_that_the_table_does_not_have(traces: Mapping[str, list[Path]]):
    """Other traces have a verdict that says something, or a refusal that does."""
    for name in set(traces) - set(ROWS):
        try:
            verdict = analyze([readers.read(path) for path in traces[name]]).verdict
        except TraceError as refusal:
            assert str(refusal)
        else:
            assert (
                verdict.headline and verdict.change and (verdict.confidence or verdict.reasons)
            ), name
