"""A task whose samples do to their process what hostile files do.

Imported by worker processes, too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastfeed.decode.base import DecodeFailure
from fastfeed.preprocess.model.task import MemoryLimitError, TaskContext


@dataclass(frozen=True)
class HostileTask:
    """Pieces of ten samples.

    `fates` says what happens at a sample; all others are written down as good.
    """

    folder: str
    fates: dict[int, str] = field(default_factory=dict)

    def run(
        self, piece: int, context: TaskContext, poison: Mapping[int, DecodeFailure]
    ) -> dict[str, Any]:
        lines = []
        for sample in range(10 * piece, 10 * piece + 10):
            if sample in poison:
                lines.append(f"{sample} {poison[sample].reason}")
                continue
            lines.append(f"{sample} {self.meet(sample, context)}")
        context.begin(-1)
        self.meet(-1 - piece, context)
        path = Path(self.folder, f"{piece}.txt")
        path.with_suffix(f".{os.getpid()}").write_text("\n".join(lines))
        path.with_suffix(f".{os.getpid()}").replace(path)
        return {"samples": 10, "pid": os.getpid()}

    def alone(self, sample: int, context: TaskContext) -> None:
        self.meet(sample, context)

    def meet(self, sample: int, context: TaskContext) -> str:
        """What becomes of a sample; -1 - piece: at the end of a piece."""
        if sample >= 0:
            context.begin(sample)
        what, _, rest = self.fates.get(sample, "").partition(" ")
        once = Path(self.folder, f"once-{sample}")
        if rest == "once":
            if once.exists():
                return "good"
            once.touch()
        match what:
            case "segfault":
                ctypes.string_at(0)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "term":
                os.kill(os.getpid(), signal.SIGTERM)
            case "exit":
                os._exit(3)
            case "hang":
                Path(self.folder, f"meets-{sample}").touch()
                time.sleep(1000)
            case "hold":
                Path(self.folder, f"meets-{sample}").touch()
                ctypes.PyDLL(None).sleep(1000)  # with the interpreter's lock
            case "raise":
                raise OSError(28, "No space left on device")
            case "odd":
                raise _UnpicklableError(lambda: None)
            case "memory":
                try:
                    bytearray(1 << 42)
                except MemoryError:
                    return "oom"
            case "roomdie":
                with context.room(int(rest)):
                    os.kill(os.getpid(), signal.SIGKILL)
            case "need":
                try:
                    with context.room(int(rest)):
                        time.sleep(0.05)
                except MemoryLimitError:
                    return "oom"
        return "good"


class _UnpicklableError(Exception):
    """Does not pickle."""


def written_results(folder: Path) -> dict[int, str]:
    """What became of every sample of all pieces."""
    lines = [line for path in folder.glob("*.txt") for line in path.read_text().splitlines()]
    return {int(sample): what for sample, what in (line.split() for line in lines)}
