"""Worker threads that make batches, in order, a few ahead of the trainer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.trace import RangeKind
from helpers.profiler.simulator.events import US, Stage
from helpers.profiler.simulator.machine import Host

NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@dataclass(slots=True)
class Loader:
    """`cost(batch)` is how long one worker needs for it, in nanoseconds."""

    host: Host
    cost: Callable[[int], int]
    workers: int = 2
    depth: int = 4  # batches that are made ahead of the trainer
    ready: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    epoch: int = 0  # batches after which the workers restart; 0: never
    startup: int = 0  # what that costs
    frame: str = "torch/utils/data/dataloader.py(701): __next__"

    def next(self, batch: int) -> None:
        """The trainer takes the next batch, and waits for it if it must."""
        host = self.host
        with (
            host.inside(self.frame, RangeKind.PYTHON, Cause.INPUT),
            host.inside(NEXT, RangeKind.NVTX),
        ):
            start = host.now
            self._make(batch)
            host.spend(12 * US)
            if host.now < self.ready[batch]:
                with host.inside("poll", RangeKind.SYSTEM):
                    host.until(self.ready[batch])
            host.stages.append(Stage(start, host.now, host.index, host.pid, "wait", batch))
            self.taken.append(host.now)

    def _make(self, batch: int) -> None:
        worker = batch % self.workers
        before = self.ready[batch - self.workers] if batch >= self.workers else 0
        place = self.taken[batch - self.depth] if batch >= self.depth else 0
        start = max(before, place)
        if self.epoch and batch >= self.epoch:
            start = max(start, self.taken[batch - batch % self.epoch - 1] + self.startup)
        end = start + self.host.about(self.cost(batch), 0.05)
        thread = self.host.pid + 50 + worker
        self.host.threads.setdefault(thread, f"loader {worker}")
        self.host.stages.append(Stage(start, end, self.host.index, thread, "decode", batch))
        self.ready.append(end)
