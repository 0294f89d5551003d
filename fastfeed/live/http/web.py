"""The page of `fastfeed watch --web`: one file that asks for `data.json` once a second.

All text from feeds goes through textContent.
"""

from __future__ import annotations

from pathlib import Path

from fastfeed.html_page import asset, page


def live_page() -> str:
    """The page, with light and dark colors, for phone and desk."""
    body, style, script = (
        asset(Path(__file__).with_name(f"web.{kind}")) for kind in ("html", "css", "js")
    )
    return page(
        "fastfeed watch",
        "Running feeds, and what each waits for",
        body,
        style=style,
        script=script,
        policy="; connect-src 'self'",
    )
