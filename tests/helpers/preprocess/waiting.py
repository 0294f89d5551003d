"""A task that says where it is done and waits there until it may go on, a source that takes its
time. Imported by worker processes, too.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fastfeed.decode.base import DecodeFailure
from fastfeed.preprocess.model.task import TaskContext
from fastfeed.sources.base import Source

PATIENCE_S = 60.0  # ends what would hang for ever


class StartedPiece(NamedTuple):
    piece: int
    node: int  # its raylet's process
    pid: int
    id: str


@dataclass(frozen=True)
class WaitingTask:
    """Pieces from `free` on are done at once, others when there is a file "go"; `fatal` kills who
    started it.
    """

    folder: str
    free: int
    fatal: int = -1

    def run(
        self, piece: int, context: TaskContext, poison: Mapping[int, DecodeFailure]
    ) -> dict[str, Any]:
        context.begin(-1)
        name = StartedPiece(
            piece, int(os.environ.get("RAY_RAYLET_PID", -1)), os.getpid(), uuid.uuid4().hex
        )
        Path(self.folder, "begun-" + "-".join(map(str, name))).touch()
        if piece == self.fatal:
            os.kill(os.getppid(), signal.SIGKILL)
        if piece < self.free:
            until(lambda: context.begin(-1) or Path(self.folder, "go").exists())
        Path(self.folder, f"done-{piece}").touch()
        return {"samples": 1, "pid": os.getpid()}

    def alone(self, sample: int, context: TaskContext) -> None:
        raise AssertionError(sample)


@dataclass(frozen=True)
class SlowSource:
    """A source that takes its time."""

    source: Source
    seconds: float  # for each photograph

    def __len__(self) -> int:
        return len(self.source)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "source":
            raise AttributeError(name)
        return getattr(self.source, name)

    def read(self, ids: Sequence[int]) -> list[Any]:
        time.sleep(self.seconds * len(ids))
        return self.source.read(ids)


def until(holds: Callable[[], Any], patience_s: float = PATIENCE_S) -> None:
    """Wait for it; an error where that takes too long."""
    late = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > late:
            raise TimeoutError
        time.sleep(0.02)


def started_pieces(folder: Path) -> list[StartedPiece]:
    """All tries at pieces, so far."""
    begun = [path.name.split("-")[1:] for path in folder.glob("begun-*")]
    return [StartedPiece(int(piece), int(node), int(pid), id) for piece, node, pid, id in begun]


def alive(pid: int) -> bool:
    """Whether this process has not ended; zombies have."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
