"""HTML pages of all reports: escaped text, tables, and one self-contained file without a network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from fastfeed.printable import printable

__all__ = ["Markup", "asset", "bullets", "escape", "page", "section", "table"]

_SAFE = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}  # cannot close <script>


class Markup(str):
    """HTML, which `escape` leaves as it is."""

    __slots__ = ()


def escape(value: object) -> Markup:
    """Text escaped for HTML and quoted attributes, each line without control characters."""
    if isinstance(value, Markup):
        return value
    lines = (printable(line, None) for line in str(value).split("\n"))
    return Markup(html.escape("\n".join(lines), quote=True))


def bullets(texts: Iterable[object], kind: str = "notes") -> Markup:
    """An HTML list of this class; "" without texts."""
    lines = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return Markup(f'<ul class="{kind}">{lines}</ul>' if lines else "")


def section(title: object, *parts: str) -> Markup:
    """A section of a page; "" if it has no content."""
    content = "".join(parts)
    return Markup(f"<section><h2>{escape(title)}</h2>{content}</section>" if content else "")


def table(head: Sequence[str], rows: Sequence[Sequence[object]], stacked: bool = False) -> Markup:
    """An HTML table with escaped cells; "" without rows.

    A title "#title" is a column of numbers, "~title" a column of texts that may break anywhere.

    On a phone, a stacked table shows its cells below each other with their titles; other tables
    scroll.
    """
    if not rows:
        return Markup("")
    looks = [{"#": ' class="num"', "~": ' class="any"'}.get(title[:1], "") for title in head]
    titles = [escape(title.lstrip("#~")) for title in head]
    columns = list(zip(titles, looks, strict=True))
    heads = "".join(
        f'<th scope="col"{look}>{title}</th>' if title else "<td></td>" for title, look in columns
    )
    lines = []
    for row in rows:
        cells = (
            f'<td{look} data-title="{title}">{escape(cell)}</td>' if cell else "<td></td>"
            for (title, look), cell in zip(columns, row, strict=True)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    look = ' class="stacked"' if stacked else ""
    body = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return Markup(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{titles[0]}: table">'
        f"<table{look}>{body}</table></div>"
    )


def page(
    title: str,
    description: str,
    body: str,
    *,
    style: str = "",
    script: str = "",
    data: dict[str, Any] | None = None,
    policy: str = "",
) -> str:
    """A page as one HTML file, to be written as UTF-8.

    Args:
        title: Its title.
        description: One sentence about it.
        body: HTML between <body> and the scripts.
        style: CSS in addition to that of all pages.
        script: JavaScript.
        data: JSON for the script, in the element "data".
        policy: Content security policy in addition to that of all pages.
    """
    scripts = ""
    if data is not None:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_SAFE)
        scripts += f'<script type="application/json" id="data">{text}</script>\n'
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
        scripts += f"<script>{script}</script>\n"
    return Template(asset(Path(__file__).with_name("page.html"))).substitute(
        title=escape(title),
        description=escape(description),
        style=asset(Path(__file__).with_name("page.css")) + style,
        body=body,
        script=scripts,
        policy=policy,
    )


@cache
def asset(path: Path) -> str:
    """The text of a file next to a module."""
    return path.read_text("utf-8")
