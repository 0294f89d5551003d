"""Code blocks of Markdown pages, and a program that runs those of one page: python -m
helpers.doc_pages PAGE.

Blocks run in their order: Python in one namespace, bash by bash. One that imports a framework is a
program of its own, run by --program NUMBER. A block that is not run has a line in front of it: <!--
not run: the reason --> One that begins where readers begin, not where the block before it ends,
has: <!-- before: a command of bash -->
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"(?:^ *<!-- not run: (.+) -->\n)?(?:^<!-- before: (?P<before>.+) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*).*\n(?P<code>(?:.*\n)*?)(?P=indent)```$",
    re.M,
)
FRAMEWORK = re.compile(r"^import (keras|torch|jax|tensorflow)\b", re.M)
INDENTED = re.compile(r"^(?![ -]|\d+\. ).*\n\n {4}\S", re.M)  # after a paragraph, not within a list


@dataclass(frozen=True)
class Block:
    """One block of a page."""

    line: int  # of its first line, from 1
    language: str
    code: str
    reason: str  # why it is not run; empty if it is
    before: str = ""  # a command that is run first

    @property
    def framework(self) -> str:
        """Which one the program imports, if it is one."""
        match = FRAMEWORK.search(self.code) if self.language == "python" else None
        return match[1] if match else ""


def blocks(text: str) -> list[Block]:
    """The blocks of a page, in their order."""
    return [
        Block(
            line=text.count("\n", 0, match.start("code")) + 1,
            language=match["language"],
            code=match["code"],
            reason=match[1] or "",
            before=match["before"] or "",
        )
        for match in BLOCK.finditer(text)
    ]


def execute(block: Block, page: str, names: dict[str, object]) -> None:
    """Run a block; an error names the page's line."""
    if block.before:
        subprocess.run(["bash", "-e", "-c", block.before], check=True, stdin=subprocess.DEVNULL)
    if block.language == "bash":
        subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", block.code], check=True, stdin=subprocess.DEVNULL
        )
    elif block.language == "python":
        exec(compile("\n" * (block.line - 1) + block.code, page, "exec"), names)


def main(page: str, program: int | None) -> None:
    for number, block in enumerate(blocks(Path(page).read_text())):
        if not block.reason and (number == program if program is not None else not block.framework):
            print(f"{page}:{block.line}", flush=True)
            execute(block, page, {"__name__": "__main__"} if program is not None else NAMES)


NAMES: dict[str, object] = {"__name__": "__main__"}

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
