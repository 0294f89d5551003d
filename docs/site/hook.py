"""What MkDocs does not do by itself: pages from outside of docs/, links between both, generated pages of the reference.

A link on a page is the one that works in the repository. Here it is led to where its file stands in the site: files of
docs/ at the root, others under their path in the repository; Python files that are linked become pages. A picture that
has a dark variant next to it, NAME_dark, is shown in the colors of the page.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "site")]
import reference  # noqa: E402

PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "examples/README.md",
    "fastfeed/README.md",
]
PAGES += ["fastfeed/native/README.md"]
PAGES += [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("benchmarks/**/*.md"))]
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s#]+)\.(png|svg|webp)\)")
BLOCK = re.compile(r"^( *)```.*?^\1```", re.M | re.S)
NOT_RUN = re.compile(r"^ *<!-- (?:not run|before): .*? -->\n", re.M)
TABS = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- /tabs -->\n", re.M | re.S)


def in_site(path: str) -> str:
    """Where a file of the repository stands in the site."""
    if path == "README.md":
        return "index.md"
    path = path.removeprefix("docs/")
    return f"{path}.md" if path.endswith(".py") else path


def in_repository(path: str) -> str:
    """The reverse, for pages."""
    if path == "index.md":
        return "README.md"
    return path if path in PAGES else f"docs/{path}"


def led(markdown: str, page: str) -> tuple[str, set[str]]:
    """The page with its links as the site needs them, and the files of the repository that they lead to."""
    linked: set[str] = set()
    here = posixpath.dirname(page)

    def link(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(here, target))
        if (ROOT / path).is_dir():
            path += "/README.md"
        linked.add(path)
        return posixpath.relpath(in_site(path), posixpath.dirname(in_site(page)) or ".") + anchor

    return LINK.sub(link, markdown), linked


def in_both_colors(markdown: str, page: str) -> str:
    """The page with both variants of each picture that has two; the theme hides one of them."""

    def both(match: re.Match[str]) -> str:
        text, stem, suffix = match.groups()
        if not (ROOT / posixpath.dirname(page) / f"{stem}_dark.{suffix}").is_file():
            return match[0]
        return f"![{text}]({stem}.{suffix}#only-light)![{text}]({stem}_dark.{suffix}#only-dark)"

    return PICTURE.sub(both, markdown)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside, what they link to, and the reference."""
    for name, text in reference.pages().items():
        files.append(File.generated(config, name, content=text))
    texts = {name: (ROOT / name).read_text() for name in PAGES}
    texts |= {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for path in sorted(ROOT.glob("docs/**/*.md"))
    }
    linked = set().union(*(led(text, name)[1] for name, text in texts.items()))
    for name in PAGES:
        files.append(File.generated(config, in_site(name), content=texts[name]))
    for name in sorted(linked - set(texts)):
        if name.endswith(".py"):
            text = f"---\nsearch:\n  exclude: true\n---\n# {name}\n\n```python\n{(ROOT / name).read_text()}```\n"
            files.append(File.generated(config, in_site(name), content=text))
        elif (ROOT / name).is_file() and not name.startswith("docs/"):
            files.append(File.generated(config, in_site(name), abs_src_path=str(ROOT / name)))
    pages = {in_site(name): text for name, text in texts.items()}
    index = reference.llms(pages | reference.pages())
    files.append(File.generated(config, "llms.txt", content=index))
    for file in files.documentation_pages():
        if file.src_uri.endswith(".py.md") or file.src_uri.startswith(
            ("benchmarks/", "fastfeed/native/")
        ):
            file.inclusion = file.inclusion.NOT_IN_NAV  # reached by links
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links, tabs, and no markers of the tests."""
    if page.file.src_uri.endswith(".py.md") or page.file.src_uri in reference.pages():
        return markdown
    blocks: list[str] = []

    def keep(match: re.Match[str]) -> str:
        blocks.append(match[0])
        return f"\0{len(blocks) - 1}\0"

    text = BLOCK.sub(keep, NOT_RUN.sub("", markdown))
    name = in_repository(page.file.src_uri)
    text = led(in_both_colors(text, name), name)[0]
    text = re.sub(r"\0(\d+)\0", lambda match: blocks[int(match[1])], text)
    text = re.sub(r"\[([a-z]\d+)\](?= \[)", r"\\[\1\\]", text)  # "[k8] [d3]" is no link
    return TABS.sub(lambda match: tabbed(match[1]), text)


def tabbed(markdown: str) -> str:
    """Sections with headings of the third level as tabs."""
    lines = []
    for line in markdown.splitlines():
        heading = re.match(r"### (.*)", line)
        lines.append(f'=== "{heading[1]}"' if heading else f"    {line}".rstrip())
    return "\n".join(lines) + "\n"
