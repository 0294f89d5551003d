"""The built site: nothing comes from another host, links lead to pages and anchors, pictures have a text. FOLDER"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

FETCHED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page fetches, links to, and can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.fetched: set[str] = set()
        self.anchors: set[str] = set()
        self.textless: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.anchors |= {attributes[name] for name in ("id", "name") if name in attributes}
        if tag == "a" and "href" in attributes:
            self.links.add(attributes["href"])
        if FETCHED.get(tag) in attributes and attributes.get("rel") != "canonical":
            self.fetched.add(attributes[FETCHED[tag]])
        if tag == "img" and not attributes.get("alt"):
            self.textless.append(attributes.get("src", ""))


def complaints(root: Path) -> list[str]:
    """One line for each fault."""
    pages = {
        path.resolve(): Page(path)
        for path in sorted(root.rglob("*.html"))
        if path.name != "404.html"
    }
    lines = []
    for path, page in pages.items():
        name = path.relative_to(root.resolve())
        lines += [f"{name}: a picture without alt: {source}" for source in page.textless]
        lines += [f"{name}: comes from another host: {url}" for url in page.fetched if "//" in url]
        for link in page.links | page.fetched:
            if "//" in link or link.startswith(("mailto:", "data:")):
                continue
            target, anchor = urldefrag(link)
            at = (path.parent / unquote(target)).resolve() if target else path
            if not at.exists():
                lines.append(f"{name}: no page: {link}")
            elif anchor and at in pages and unquote(anchor) not in pages[at].anchors | {"__top"}:
                lines.append(f"{name}: no such place: {link}")
    for style in root.rglob("*.css"):
        if "url(http" in style.read_text() or "@import" in style.read_text():
            lines.append(f"{style.relative_to(root)}: comes from another host")
    return lines


if __name__ == "__main__":
    problems = complaints(Path(sys.argv[1]))
    print(
        "\n".join(problems)
        if problems
        else "Links, anchors, alt texts: complete; nothing comes from another host."
    )
    sys.exit(bool(problems))
