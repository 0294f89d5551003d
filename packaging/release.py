"""What a release must have: one version, with a section of the changelog. `check [TAG]`, `notes` and `recipe SDIST`."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def version(root: Path) -> str:
    """The only place where the version is written."""
    text = (root / "fastfeed" / "version.py").read_text()
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if not found:
        raise ValueError('fastfeed/version.py must have a line __version__ = "..."')
    return found[1]


def notes(root: Path) -> str:
    """The changelog's section of the version: its text, without the heading."""
    wanted, text = version(root), (root / "CHANGELOG.md").read_text()
    section = re.search(rf"^## {re.escape(wanted)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if not section or not section[1].strip():
        headings = ", ".join(re.findall(r"^## (.+)$", text, re.MULTILINE)) or "no section"
        raise ValueError(f"CHANGELOG.md must have a section '## {wanted}' that is not empty, got {headings}")
    return section[1].strip() + "\n"


def check(root: Path, tag: str = "") -> str:
    """What is released. ValueError if the tag, the version and the changelog do not agree."""
    wanted = version(root)
    if tag and tag != f"v{wanted}":
        raise ValueError(f"the tag must be v{wanted}, as fastfeed/version.py says, got {tag}; change one of them")
    if tag and not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", wanted):
        raise ValueError(f"the version of a release is 1.2.3 or 1.2.3rc1, got {wanted}; change fastfeed/version.py")
    if tag:
        notes(root)
    return wanted


def recipe(root: Path, sdist: Path) -> str:
    """The recipe for conda-forge of this version, whose source is the archive."""
    wanted = version(root)
    if sdist.name != f"fastfeed-{wanted}.tar.gz":
        raise ValueError(f"the archive must be fastfeed-{wanted}.tar.gz, got {sdist.name}; run make sdist")
    text = (root / "packaging" / "conda" / "recipe.yaml").read_text()
    text = text[text.index("schema_version") :]  # without the comment about itself
    return text.replace("@VERSION@", wanted).replace("@SHA256@", hashlib.sha256(sdist.read_bytes()).hexdigest())


def main(arguments: list[str]) -> int:
    try:
        if arguments[:1] == ["check"] and len(arguments) <= 2:
            print(f"fastfeed {check(ROOT, *arguments[1:])} can be released.")
        elif arguments == ["notes"]:
            print(notes(ROOT), end="")
        elif arguments[:1] == ["recipe"] and len(arguments) == 2:
            print(recipe(ROOT, Path(arguments[1])), end="")
        else:
            got = " ".join(arguments) or "nothing"
            raise ValueError(f"pass 'check', 'check TAG', 'notes' or 'recipe SDIST', got {got}")
    except (OSError, ValueError) as error:
        print(f"release: {error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
