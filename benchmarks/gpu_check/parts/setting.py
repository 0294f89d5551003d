"""What every part is told, and what parts tell each other."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class NotRun(Exception):
    """A part cannot be run here; the text says why."""


class Wrong(AssertionError):
    """What a part found is not as it should be; all that it found."""

    def __init__(self, wrong: list[str], figures: dict[str, Any]) -> None:
        super().__init__("; ".join(wrong))
        self.figures = figures


@dataclass(slots=True)
class Setting:
    """The machine's side of a run; `until` is set again for each part."""

    gpu: bool
    quick: bool
    cores: int
    folder: Path  # for files; removed at the end
    images: Path | None  # the user's own
    until: float = 0.0  # time.perf_counter() at which the part should be done
    sets: dict[str, Path] = field(default_factory=dict)  # name -> folder of photographs
    learned: dict[str, Any] = field(default_factory=dict)  # by earlier parts: "decode", "rival"
    left_out: list[str] = field(default_factory=list)

    def left(self) -> float:
        """Seconds that this part still has."""
        return self.until - time.perf_counter()

    def skips(self, what: str, seconds: float) -> bool:
        """There is no time for this any more; noted."""
        if self.left() >= seconds:
            return False
        self.left_out.append(what)
        self.say(f"left out for time: {what}")
        return True

    def say(self, text: str) -> None:
        """A line of progress."""
        print(f"    {text}", flush=True)

    def sync(self) -> None:
        """Wait for the GPU."""
        if self.gpu:
            import torch

            torch.cuda.synchronize()

    def device_mb(self) -> float:
        """Memory in use on the GPU by everybody, MB."""
        if not self.gpu:
            return 0.0
        import torch

        free, total = torch.cuda.mem_get_info()
        return (total - free) / 1e6


def busy_seconds() -> float:
    """Processor time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rss_mb() -> float:
    """Resident memory now, MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


@contextmanager
def quiet() -> Iterator[None]:
    """Decoders write a line per damaged file to the process's error stream; it is thrown away
    meanwhile.
    """
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
