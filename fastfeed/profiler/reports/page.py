"""One HTML page with everything in it: no network, no font, no library; below 3 MB whatever the trace."""

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

__all__ = ["LARGEST", "page"]

LARGEST = 3_000_000  # bytes
ROWS = 14_000  # of all timelines together; fewer where names are long
_SAFE = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}  # no way out of <script>


def page(result: Result) -> str:
    """HTML text; write it as UTF-8."""
    rows = ROWS
    while True:
        made = _made(result, rows)
        if len(made.encode("utf-8")) < LARGEST or rows < 100:
            return made
        rows //= 2


def _made(result: Result, rows: int) -> str:
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
