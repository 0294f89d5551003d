"""Words that are not this project's English, with what to write instead: a part of `make lint`.

Searched for in every text file that git tracks, in any case: in whole words, across line ends, and
in the words of identifiers (`a_goes_on`, `GoesOn`). Modules of the package are also searched for
tells of translated prose, and their docstrings for summaries that are not one line or begin with a
question word. `words.py --report FOLDER` lists these elsewhere.
"""

from __future__ import annotations

import ast
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
# in docstrings, comments and messages of the package
_TELLS = re.compile(
    r"\b(there is none|there are none|where there (?:is|are)|of (?:its|their) own|lies|so many"
    r"|said|told|that which|as ever)\b",
    re.IGNORECASE,
)
_QUESTIONS = re.compile(r"(What|Where|How|Whether|Of)\b")
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


def prose(root: Path, names: list[str]) -> list[str]:
    """`file:line: problem` of docstrings, comments and messages in these Python files."""
    lines = []
    for name in names:
        path = root / name
        if path.suffix not in {".py", ".pyi"} or name in ALLOWED or not path.is_file():
            continue
        text = path.read_text()
        for match in _TELLS.finditer(text):
            number = text.count("\n", 0, match.start()) + 1
            lines.append(f"{name}:{number}: {match[0]!r} reads translated")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                lines += [f"{name}:{_line(node)}: {problem}" for problem in _docstring(node)]
    return lines


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 1)


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
    summary = (ast.get_docstring(node) or "").partition("\n\n")[0]
    if _QUESTIONS.match(summary):
        yield f"a docstring begins with {summary.split()[0]!r}: write a noun phrase or an imperative"
    if "\n" in summary:
        yield f"the summary is not one line: {summary.splitlines()[0]!r}"


def _phrase(matched: str) -> str:
    """As the table has it: `Goes_on` and `GoesOn` are "goes on"."""
    letters = re.sub("[^a-z]", "", matched.lower())
    return next(phrase for phrase in INSTEAD if phrase.replace(" ", "") == letters)


def main() -> int:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    if sys.argv[1:2] == ["--report"]:
        folders = tuple(folder.rstrip("/") + "/" for folder in sys.argv[2:])
        chosen = [name for name in tracked.split("\0") if name.startswith(folders)]
        print(*prose(ROOT, chosen), sep="\n")
        return 0
    names = tracked.split("\0")
    problems = complaints(ROOT, names)
    problems += prose(ROOT, [name for name in names if name.startswith("fastfeed/")])
    print("\n".join(problems) if problems else "Words: all allowed.")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
