"""Words that are not this project's English, with what to write instead: a part of `make lint`.

Looked for in every text file that git tracks, whatever their case: in whole words, over the ends of
lines, and in the words that identifiers are made of (`a_goes_on`, `GoesOn`).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTEAD = {
    "anew": "again",
    "beside": "next to, alongside, in addition to",
    "broken off": "interrupted",
    "goes on": "continues, resumes",
    "in peace": "cleanly",
    "nobody": "no one, nothing, not",
    "purse": "budget, limit",
    "whoever": "whichever, any",
}
_BETWEEN = (  # words of a phrase: also the next line of a comment, or of a text in pieces
    r"[\s_\-\"'#*/>]"
)


def _pattern(phrase: str) -> str:
    first, *others = phrase.split()
    rest = "".join(rf"(?:{_BETWEEN}+(?i:{word})|{word.capitalize()})" for word in others)
    return rf"(?:(?<![A-Za-z])(?i:{first})|(?<=[a-z]){first.capitalize()}){rest}(?![a-z])"


_WORDS = re.compile("|".join(map(_pattern, INSTEAD)))
_TEXT = {
    "",
    ".cmake",
    ".cpp",
    ".css",
    ".h",
    ".html",
    ".in",
    ".js",
    ".md",
    ".py",
    ".pyi",
    ".sh",
    ".toml",
    ".yaml",
    ".yml",
}
ALLOWED = {"tests/helpers/words.py", "tests/project/test_words.py"}


def complaints(root: Path, names: list[str]) -> list[str]:
    """`file:line: word, instead write ...`, of these files below a folder."""
    lines = []
    for name in names:
        path = root / name
        if name in ALLOWED or path.suffix not in _TEXT or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        for match in _WORDS.finditer(text):
            number, phrase = text.count("\n", 0, match.start()) + 1, _phrase(match[0])
            lines.append(f"{name}:{number}: {phrase!r}, write: {INSTEAD[phrase]}")
    return lines


def _phrase(matched: str) -> str:
    """As the table has it: `Goes_on` and `GoesOn` are "goes on"."""
    letters = re.sub("[^a-z]", "", matched.lower())
    return next(phrase for phrase in INSTEAD if phrase.replace(" ", "") == letters)


def main() -> int:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    problems = complaints(ROOT, tracked.split("\0"))
    print("\n".join(problems) if problems else "Words: all allowed.")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
