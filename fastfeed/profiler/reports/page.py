"""One self-contained HTML page: no network, font or library; below 3 MB for any trace."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from functools import cache
from importlib import resources
from string import Template
from typing import Any

from fastfeed.profiler.model.format import WORDS, one_line
from fastfeed.profiler.model.result import Result
from fastfeed.profiler.reports import picture, sections

__all__ = ["MAX_BYTES", "page", "self_contained"]

MAX_BYTES = 3_000_000  # bytes
ROWS = 14_000  # of all timelines together; fewer if names are long
_SAFE = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}  # cannot close <script>


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
    """A page of this title and body; `data(rows)` is what its script draws, in at most about so
    many rows.
    """
    rows = ROWS
    while True:
        html = _render(title, description, body, data(rows))
        if len(html.encode("utf-8")) < MAX_BYTES or rows < 100:
            return html
        rows //= 2


def _render(title: str, description: str, body: str, drawn: dict[str, Any]) -> str:
    script = f'"use strict";\n(() => {{\n{_file("lanes.js")}\n{_file("page.js")}}})();\n'
    data = json.dumps(drawn, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Template(_file("page.html")).substitute(
        title=sections.escaped(title),
        description=sections.escaped(description),
        hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=_file("page.css"),
        body=body,
        data=data.translate(_SAFE),
        script=script,
    )


@cache
def _file(name: str) -> str:
    return resources.files("fastfeed.profiler.reports").joinpath(name).read_text("utf-8")
