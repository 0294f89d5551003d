"""One self-contained HTML page: no network, font or library; below 3 MB for any trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastfeed import html_page
from fastfeed.profiler.model.format import WORDS, one_line
from fastfeed.profiler.model.result import Result
from fastfeed.profiler.reports import picture, sections

MAX_BYTES = 3_000_000  # bytes
ROWS = 14_000  # of all timelines together; fewer if names are long


def page(result: Result) -> str:
    """HTML text; write it as UTF-8."""
    word = WORDS.get(result.verdict.word, "")
    source = one_line(str(result.origins[0].path), 80) if result.origins else ""
    return self_contained(
        ": ".join(filter(None, ["Why is this GPU idle", source])),
        f"{word}. {one_line(result.verdict.headline, 300)}",
        sections.body(result),
        lambda rows: picture.data(result, rows),
    )


def self_contained(
    title: str, description: str, body: str, data: Callable[[int], dict[str, Any]]
) -> str:
    """A page with timelines: `data(rows)` is what its script draws, in about that many rows."""
    folder = Path(__file__).parent
    code = "\n".join(html_page.asset(folder / name) for name in ("lanes.js", "page.js"))
    script = f'"use strict";\n(() => {{\n{code}}})();\n'
    body += '\n<div id="tip" role="status" aria-live="polite" hidden></div>'
    rows = ROWS
    while True:
        html = html_page.page(title, description, body, script=script, data=data(rows))
        if len(html.encode("utf-8")) < MAX_BYTES or rows < 100:
            return html
        rows //= 2
