"""What a release must have: one version, a section of the changelog.

`check [TAG]`, `notes`, `recipe SDIST NAME`.
"""

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
    section = re.search(
        rf"^## {re.escape(wanted)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if not section or not section[1].strip():
        headings = ", ".join(re.findall(r"^## (.+)$", text, re.MULTILINE)) or "no section"
        raise ValueError(
            f"CHANGELOG.md must have a section '## {wanted}' that is not empty, got {headings}"
        )
    return section[1].strip() + "\n"


def unreleased(root: Path) -> str:
    """The changelog's text under "Unreleased"; empty where it has none."""
    section = re.search(
        r"^## Unreleased\n(.*?)(?=^## |\Z)",
        (root / "CHANGELOG.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    return section[1].strip() if section else ""


def check(root: Path, tag: str = "") -> str:
    """What is released. ValueError if the tag, the version and the changelog do not agree."""
    wanted = version(root)
    if tag and tag != f"v{wanted}":
        raise ValueError(
            f"the tag must be v{wanted}, as fastfeed/version.py says, got {tag}; change one of them"
        )
    if tag and not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", wanted):
        raise ValueError(
            f"the version of a release is 1.2.3 or 1.2.3rc1, got {wanted}; change"
            " fastfeed/version.py"
        )
    if tag:
        notes(root)
    if (rest := unreleased(root)) and not re.search(r"\.dev\d+$", wanted):
        raise ValueError(
            f"CHANGELOG.md must have nothing under 'Unreleased' where the version is {wanted}, got"
            f" {rest.splitlines()[0]!r} and so on; move it into the section '## {wanted}', or make"
            " the version one of development, such as 1.2.3.dev0"
        )
    return wanted


def recipe(root: Path, sdist: Path, maintainer: str) -> str:
    """The recipe for conda-forge of this version, whose source is the archive; maintainer: a handle
    on GitHub.
    """
    wanted = version(root)
    if not re.fullmatch(r"[A-Za-z0-9](-?[A-Za-z0-9]){0,38}", maintainer):
        raise ValueError(
            f"the maintainer must be a handle on GitHub, such as octocat, got {maintainer!r}"
        )
    if sdist.name != f"fastfeed-{wanted}.tar.gz":
        raise ValueError(
            f"the archive must be fastfeed-{wanted}.tar.gz, got {sdist.name}; run make sdist"
        )
    text = (root / "packaging" / "conda" / "recipe.yaml").read_text()
    text = text[text.index("schema_version") :]  # without the comment about itself
    text = text.replace("@VERSION@", wanted).replace("@MAINTAINER@", maintainer)
    return text.replace("@SHA256@", hashlib.sha256(sdist.read_bytes()).hexdigest())


def main(arguments: list[str]) -> int:
    try:
        if arguments[:1] == ["check"] and len(arguments) <= 2:
            wanted = check(ROOT, *arguments[1:])
            print(
                f"fastfeed {wanted}:"
                f" {'it can be released' if arguments[1:] else 'version and changelog agree'}."
            )
        elif arguments == ["notes"]:
            print(notes(ROOT), end="")
        elif arguments[:1] == ["recipe"] and len(arguments) == 3:
            print(recipe(ROOT, Path(arguments[1]), arguments[2]), end="")
        else:
            got = " ".join(arguments) or "nothing"
            raise ValueError(
                f"pass 'check', 'check TAG', 'notes' or 'recipe SDIST NAME', got {got}"
            )
    except (OSError, ValueError) as error:
        print(f"release: {error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
