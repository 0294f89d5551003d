"""Code blocks of Markdown pages, and a program that runs those that it reads about, in forks of a
process that has imported MODULE: python -m helpers.doc_pages MODULE.

Blocks run in their order: Python in one namespace, bash by bash. One that imports a framework is a
program of its own. A block that is not run has a line in front of it: <!--
not run: the reason --> One that begins where readers begin, not where the block before it ends,
has: <!-- before: a command of bash -->
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"(?:^ *<!-- not run: (.+) -->\n)?(?:^<!-- before: (?P<before>.+) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*).*\n(?P<code>(?:.*\n)*?)(?P=indent)```$",
    re.M,
)
FRAMEWORK = re.compile(r"^import (keras|torch|jax|tensorflow)\b", re.M)
EPOCHS = re.compile(r"\bepochs=\d+")  # a reader's; trainers are tested elsewhere
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
        code = EPOCHS.sub("epochs=1", block.code) if block.framework else block.code
        exec(compile("\n" * (block.line - 1) + code, page, "exec"), names)


def fork_programs(module: str) -> None:
    """Run programs, [page, number, folder, file for what it prints, environment] per line, in forks
    of this process, which has imported their module: that takes seconds. Without a number: the page.
    Print their exit codes.
    """
    importlib.import_module(module)
    if module == "keras":  # on TensorFlow; to trace a model takes longer than a step of it
        importlib.import_module("tensorflow").config.run_functions_eagerly(True)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            sys.exit(run_in_fork(*json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run_in_fork(
    page: str, program: int | None, folder: str, printed: str, environ: dict[str, str]
) -> int:
    """Run a program in its folder, and end this process; return the exit code of a page."""
    os.environ.update(environ)
    os.chdir(folder)
    file = os.open(printed, os.O_CREAT | os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    code = 1
    try:
        main(page, program)
        code = 0
    except BaseException:  # whatever it is, a program that raises has failed
        traceback.print_exc()
    sys.stdout.flush()
    if program is not None:
        os._exit(code)
    return code


def main(page: str, program: int | None) -> None:
    """Run the blocks of a page that import no framework, or one that does."""
    for number, block in enumerate(blocks(Path(page).read_text())):
        if not block.reason and (number == program if program is not None else not block.framework):
            print(f"{page}:{block.line}", flush=True)
            execute(block, page, {"__name__": "__main__"} if program is not None else NAMES)


NAMES: dict[str, object] = {"__name__": "__main__"}

if __name__ == "__main__":
    fork_programs(sys.argv[1])
