"""Stacks of a main thread, from the output of `py-spy record --format raw --threads`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

_LARGEST = 1 << 20  # bytes of a source file that is read
_FRAME = re.compile(r"^(?P<name>.+) \((?P<file>.+?)(:(?P<line>\d+))?\)$")
_THREAD = re.compile(r"^thread \((?P<id>\w+)\)(: (?P<name>.*))?$")
_BETWEEN = re.compile(r"(?<=\));")  # frames end in a parenthesis; a thread without a name does, too
_NAMED = re.compile(r"^(thread \(\w+\): [^;]*);")


@dataclass(frozen=True, slots=True)
class Frame:
    """A function on the stack, and the line that it is at."""

    name: str  # Queue.get
    file: str
    line: int  # 0: unknown
    text: str = ""  # of the line, without indentation; "": unknown

    @property
    def place(self) -> str:
        """The file's name and the line: train.py:88."""
        name = re.split(r"[/\\]", self.file)[-1]
        return f"{name}:{self.line}" if self.line else name

    def __str__(self) -> str:
        return f"{self.name} ({self.place})"

    @property
    def recorded(self) -> str:
        """The name that PyTorch's profiler gives such a frame: queue.py(171): get."""
        return f"{self.file}({self.line}): {self.name.rpartition('.')[2]}"


@dataclass(frozen=True, slots=True)
class Stack:
    """Equal samples of one thread."""

    frames: tuple[Frame, ...]  # the outermost first
    samples: int


def main_stacks(lines: Iterable[str], pid: int, text: Callable[[str, int], str]) -> list[Stack]:
    """The stacks of the main thread, the most frequent first.

    Args:
        lines: "thread (4711): MainThread;function (file:line);... samples".
        pid: The process; its main thread has the same number, or the name MainThread in another
            container.
        text: Source text by file and line.
    """
    stacks: list[Stack] = []
    for line in lines:
        head, _, count = line.strip().rpartition(" ")
        named = _NAMED.match(head)
        thread = named[1] if named else _BETWEEN.split(head)[0]
        match = _THREAD.match(thread)
        if (
            match is None
            or not count.isdecimal()
            or not (match["name"] == "MainThread" or match["id"] == str(pid))
        ):
            continue
        parts = _BETWEEN.split(head[len(thread) + 1 :])
        frames = tuple(_frame(part, text) for part in parts if part)
        if frames:
            stacks.append(Stack(frames, int(count)))
    return sorted(stacks, key=lambda stack: -stack.samples)


def _frame(part: str, text: Callable[[str, int], str]) -> Frame:
    match = _FRAME.match(part)
    if match is None:
        return Frame(part, "", 0)
    line = int(match["line"] or 0)
    return Frame(match["name"], match["file"], line, text(match["file"], line))


def source_lines(pid: int, root: Path = Path("/")) -> Callable[[str, int], str]:
    """Function from (file, line) to its text, as the process sees files, even in a container."""
    process = root / f"proc/{pid}"
    files: dict[str, list[str]] = {}

    def line_text(file: str, line: int) -> str:
        if file not in files:
            inside = (
                process / "root" / file.lstrip("/")
                if file.startswith("/")
                else process / "cwd" / file
            )
            files[file] = _read(inside) or _read(Path(file))
        lines = files[file]
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    return line_text


def _read(path: Path) -> list[str]:
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return []
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
