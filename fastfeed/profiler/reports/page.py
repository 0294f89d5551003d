"""One self-contained HTML page: no network, font or library; below 3 MB for any trace."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from string import Template

from fastfeed.profiler.model.format import WORDS, one_line
from fastfeed.profiler.model.result import Result
from fastfeed.profiler.reports import picture, sections

__all__ = ["MAX_BYTES", "page"]

MAX_BYTES = 3_000_000  # bytes
ROWS = 14_000  # of all timelines together; fewer if names are long
_SAFE = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}  # cannot close <script>


def page(result: Result) -> str:
    """HTML text; write it as UTF-8."""
    rows = ROWS
    while True:
        html = _render(result, rows)
        if len(html.encode("utf-8")) < MAX_BYTES or rows < 100:
            return html
        rows //= 2


def _render(result: Result, rows: int) -> str:
    script = f'"use strict";\n(() => {{\n{_file("lanes.js")}\n{_file("page.js")}}})();\n'
    data = json.dumps(picture.data(result, rows), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    word = WORDS.get(result.verdict.word, "")
    source = one_line(str(result.origins[0].path), 80) if result.origins else ""
    return Template(_file("page.html")).substitute(
        title=sections.escaped(": ".join(filter(None, ["Why is this GPU idle", source]))),
        description=sections.escaped(f"{word}. {one_line(result.verdict.headline, 300)}"),
        hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=_file("page.css"),
        body=sections.body(result),
        data=data.translate(_SAFE),
        script=script,
    )


@cache
def _file(name: str) -> str:
    return resources.files("fastfeed.profiler.reports").joinpath(name).read_text("utf-8")
