"""The report in Markdown: what a comment on a pull request shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from helpers.commands import CliRunner
from helpers.profiler import results_made

from fastfeed.cli.traces import options as trace_io
from fastfeed.cli.traces.analyze import analyze
from fastfeed.errors import ConfigError
from fastfeed.profiler.reports.markdown import as_markdown


def rows(text: str) -> list[list[str]]:
    """The cells of all tables, as GitHub splits them: at pipes that are not escaped."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_headline_the_table_and_the_change():
    result = results_made.one()
    text = as_markdown(result)
    assert text.startswith(f"**SEVERELY STARVED** {result.verdict.headline}\n\n")
    assert "\n\n**Change** Raise num\\_workers from 4 to 6" in text
    table = rows(text)
    assert table[0] == ["device", "input", "idle", "compute", "step", "idle mostly for"]
    assert table[2][0] == "rank 0, GPU 0 (Tesla V100-SXM2-16GB)" and table[2][-1] == "input wait"
    assert table[3] == ["idle for", "of time", "per step"] and table[5][0] == "input wait"


@pytest.mark.parametrize("name", ["one", "many", "healthy", "abstained", "feed_only", "hostile"])
def test_tables_are_whole_and_names_are_text(name: str):
    text = as_markdown(getattr(results_made, name)())
    assert text.endswith("</sub>\n") and len(text) < 6_000
    widths = {len(row) for row in rows(text)}
    assert widths <= {3, 6}
    outside = re.sub(r"\\[<>*_`\[\]|&#~{}\\]", "", text)
    assert not re.search(r"<(?!/?sub>)|`|\[|@", outside), "neither HTML, code, links nor mentions"


def test_without_a_verdict_it_says_how_to_record():
    text = as_markdown(results_made.abstained())
    assert "**Because** Only 41 %" in text and "**Record** torch.profiler.profile" in text
    assert "**Change**" not in text


def test_the_command_prints_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(trace_io, "analyze_files", lambda *_, **__: results_made.one())
    path = tmp_path / "trace.json"
    path.write_text("{}")
    app = typer.Typer()
    app.command()(analyze)
    done = CliRunner().invoke(app, [str(path), "--markdown"])
    assert done.exit_code == 0 and done.stdout == as_markdown(results_made.one())
    refused = CliRunner().invoke(app, [str(path), "--markdown", "--json"])
    assert isinstance(refused.exception, ConfigError) and "leave out --json" in str(
        refused.exception
    )
