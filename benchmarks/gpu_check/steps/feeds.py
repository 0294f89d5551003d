"""Feeds over the photographs, and the rate of whatever gives batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.parts import bare
from benchmarks.gpu_check.parts.setting import busy_seconds

bare.fill()
import fastfeed as ff  # noqa: E402  # what it imports may be stood in for

THREADS = (1, 2, 4, 8, 12, 16)
SIDE, TINY = 224, 64  # height and width in pixels; those of a stand-in
OPS = [ff.RandomResizedCrop(SIDE), ff.RandomFlip(), ff.Normalize.imagenet()]
TINY_OPS = [ff.RandomResizedCrop(TINY), *OPS[1:]]
POLICIES = {
    "TrivialAugmentWide": [
        ff.RandomResizedCrop(224),
        ff.RandomFlip(),
        ff.TrivialAugmentWide(),
        ff.Normalize.imagenet(),
    ],
    "RandAugment": [
        ff.RandomResizedCrop(224),
        ff.RandomFlip(),
        ff.RandAugment(),
        ff.Normalize.imagenet(),
    ],
}


def threads_here(stand_in: bool, wanted: tuple[int, ...] = THREADS) -> list[int]:
    """Those of the counts that this machine has cores for."""
    from fastfeed.distributed.cores import cores_for
    from fastfeed.distributed.world import World

    cores = cores_for(World(0, 1, 0, 1))
    return [n for n in wanted if n <= cores][: 2 if stand_in else None] or [1]


def feed(folder: Path, batch: int, threads: int, decode: Any = "cpu", ops: Any = None) -> ff.Feed:
    """A feed as a trainer makes it."""
    source = ff.ImageFolder(folder, labeled=False, progress=False)
    ops = OPS if ops is None else ops
    return ff.Feed(source, ops, batch=min(batch, len(source)), threads=threads, decode=decode)


def endless(epochs: Any) -> Iterator[Any]:
    """Images of one epoch after the other."""
    for _ in count():
        for batch in epochs:
            yield batch[0] if isinstance(batch, tuple) else batch.images


def rate(
    take: Callable[[], int],
    seconds: float,
    sync: Callable[[], Any] = lambda: None,
    drained: int = 4,
) -> dict[str, float]:
    """Images per second, and processor milliseconds per image; `take` gives how many images it
    took.
    """
    for _ in range(drained):  # batches that lay ready
        take()
    sync()
    start, busy, images = time.perf_counter(), busy_seconds(), 0
    while time.perf_counter() - start < seconds or not images:
        images += take()
    sync()
    wall, busy = time.perf_counter() - start, busy_seconds() - busy
    return {"images_per_second": round(images / wall, 1), "cpu_ms": round(1e3 * busy / images, 3)}
