"""Checks of a release, its notes and its tag: one version, a section of the changelog.

`check [TAG]`, `version`, `notes`, `tag`, `recipe SDIST NAME`.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
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
    """The version to release. ValueError if the tag, the version and the changelog disagree."""
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


def tag(root: Path) -> str:
    """Tag the commit that is checked out, if it can be released and nothing is uncommitted."""
    wanted = version(root)
    check(root, f"v{wanted}")

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ValueError(f"git {words[0]}: {done.stderr.strip()}")
        return done.stdout

    if changed := git("status", "--porcelain"):
        raise ValueError(f"commit all changes before the tag, got {changed.splitlines()[0]!r}")
    # the headings of the notes begin as comments do
    message = f"fastfeed {wanted}\n\n{notes(root)}"
    git("tag", "-a", f"v{wanted}", "--cleanup=verbatim", "-m", message)
    return f"v{wanted} is made; to release it: git push origin v{wanted}\n"


def recipe(root: Path, sdist: Path, maintainer: str) -> str:
    """Recipe for conda-forge whose source is the archive; maintainer: a handle on GitHub."""
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
        match arguments:
            case ["check"]:
                print(f"fastfeed {check(ROOT)}: version and changelog agree.")
            case ["check", name]:
                print(f"fastfeed {check(ROOT, name)}: it can be released.")
            case ["version"]:
                print(version(ROOT))
            case ["notes"]:
                print(notes(ROOT), end="")
            case ["tag"]:
                print(tag(ROOT), end="")
            case ["recipe", sdist, maintainer]:
                print(recipe(ROOT, Path(sdist), maintainer), end="")
            case _:
                known = "check [TAG], version, notes, tag or recipe SDIST NAME"
                raise ValueError(f"pass {known}, got {' '.join(arguments)!r}")
    except (OSError, ValueError) as error:
        print(f"release: {error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
