"""5. How much of the time that copies to the GPU take is hidden under compute, by CUDA events.

Events bracket every copy on the stream that copies, every wait for one on the stream that computes
(what a wait takes there was not hidden), and every step. Steps are made half as long again as a
copy.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

import fastfeed as ff
from benchmarks.gpu_check.parts.contestants import OPS, batch_for
from benchmarks.gpu_check.parts.setting import Setting, Wrong
from fastfeed.feed.session import FeedSession

SHAPE = (256, 224, 224, 3)  # float32: 154 MB
STEPS, FIRST = 60, 5  # steps, and how many of them do not count
LONGER = 1.5  # a step, in copies
LEAST = 0.5  # of the copies' time must lie under steps, or they do not overlap


def run(setting: Setting) -> dict[str, Any]:
    import torch

    from fastfeed.adapters.prefetch_to_device import _Prefetched
    from fastfeed.adapters.torch import TorchFeed, TorchPlacement

    placement = Timed(TorchPlacement("cuda", 4))
    arrays = [placement.memory(SHAPE, "float32") for _ in range(2)]
    for array in arrays:
        array[...] = 1.0
    for k in range(12):
        placement.put((arrays[k % 2],), borrowed=True)
    copy_ms = statistics.median(placement.copies()[2:])
    work = _Work()
    figures: dict[str, Any] = {}
    batches = _Prefetched(itertools.islice(itertools.cycle(arrays), STEPS), placement, 2)  # type: ignore[arg-type]
    try:
        figures["pinned batches"] = _hidden(batches, placement, work, LONGER * copy_ms)
    finally:
        batches.close()
    setting.say(f"pinned batches: {figures['pinned batches']}")
    torch.cuda.empty_cache()
    if not setting.skips("overlap, a feed", 10):
        folder = next(iter(setting.sets.values()))
        source = ff.ImageFolder(folder, labeled=False, progress=False)
        batch = batch_for(setting, len(source), stock=False)
        with ff.Feed(source, OPS, batch=batch, threads=setting.cores, decode="cpu") as feed:
            timed = Timed(TorchPlacement("cuda", FeedSession.of(feed).prefetch + 2))
            epochs = TorchFeed(FeedSession.of(feed), timed, "auto")  # type: ignore[arg-type]
            endless = (images for _ in itertools.count() for images, *_ in epochs)
            for _ in range(6):
                next(endless)
            start = time.perf_counter()
            for _ in range(6):
                next(endless)
            made_ms = 1e3 * (time.perf_counter() - start) / 6
            step_ms = max(LONGER * statistics.median(timed.copies()), 1.2 * made_ms)
            steps = max(3 * FIRST, min(STEPS, int(1e3 * (setting.left() - 3) / step_ms)))
            timed.forget()
            figures["a feed, decoded by the native extension"] = _hidden(
                itertools.islice(endless, steps), timed, work, step_ms
            )
            setting.say(f"a feed: {figures['a feed, decoded by the native extension']}")
    under = figures["pinned batches"]["copies under steps"]
    if under < LEAST:
        raise Wrong(
            [f"copies do not overlap steps: {under:.0%} of their time lies under one"], figures
        )
    return figures


class Timed:
    """A placement with an event before and after each copy and each wait."""

    def __init__(self, placement: Any) -> None:
        self._inner, self._stream = placement, placement._stream
        self.name, self.device, self.accelerator = (
            placement.name,
            placement.device,
            placement.accelerator,
        )
        self.memory = placement.memory
        self.copied: list[tuple[Any, Any]] = []
        self.waited: list[tuple[Any, Any]] = []
        self._one = threading.Lock()  # copies of several threads would lie in each other's brackets

    def put(self, arrays: tuple[Any, ...], borrowed: bool = False, **options: Any) -> Any:
        begin, end = _event(), _event()
        with self._one:
            begin.record(self._stream)
            # not borrowed: waiting for it would count as copying
            placed = self._inner.put(arrays, **options)
            end.record(self._stream)
            self.copied.append((begin, end))
        if borrowed:
            end.synchronize()
        return placed

    def take(self, placed: Any) -> tuple[Any, ...]:
        begin, end = _event(), _event()
        begin.record()
        tensors = self._inner.take(placed)
        end.record()
        self.waited.append((begin, end))
        return tensors

    def copies(self) -> list[float]:
        """What each took, ms."""
        self._stream.synchronize()
        with self._one:
            return [begin.elapsed_time(end) for begin, end in self.copied if end.query()]

    def forget(self) -> None:
        """Of what was timed until now."""
        with self._one:
            self.copied.clear()
            self.waited.clear()


class _Work:
    """Matrix products, as many as fill a time."""

    def __init__(self) -> None:
        import torch

        self._x = torch.randn(2048, 2048, device="cuda").to(torch.bfloat16)
        self._out = torch.empty_like(self._x)
        for _ in range(3):
            self.queue(100)
        begin, end = _event(), _event()
        begin.record()
        self.queue(1000)
        end.record()
        end.synchronize()
        self.one_ms = begin.elapsed_time(end) / 1000

    def queue(self, count: int) -> None:
        import torch

        for _ in range(count):
            torch.mm(self._x, self._x, out=self._out)


def _hidden(batches: Iterable[Any], timed: Timed, work: _Work, step_ms: float) -> dict[str, Any]:
    """Walk the batches, a step of this length each, never more than two steps queued."""
    import torch

    timed.forget()
    count = max(1, round(step_ms / work.one_ms))
    torch.cuda.synchronize()
    zero = _event()
    zero.record()
    steps: list[tuple[Any, Any]] = []
    for images in batches:
        begin, end = _event(), _event()
        begin.record()
        work.queue(count)
        images[0].sum()  # what waits for the copy
        end.record()
        steps.append((begin, end))
        if len(steps) > 2:
            steps[-3][1].synchronize()
    torch.cuda.synchronize()
    copied = _spans(zero, [pair for pair in timed.copied if pair[1].query()])
    waited, stepped = _spans(zero, timed.waited), _spans(zero, steps)
    first = stepped[min(FIRST, len(stepped) - 1), 0]
    last = stepped[-1, 1]
    copied = copied[(copied[:, 0] >= first) & (copied[:, 1] <= last)]
    waited = waited[waited[:, 0] >= first]
    assert len(copied), "no copy lies between the first step that counts and the last"
    copies, waits = np.diff(copied).sum(), np.diff(waited).sum()
    # as many of either: the first copies were made before the first step that counts
    hidden = 1 - (waits / len(waited)) / (copies / len(copied)) if len(waited) else 1.0
    return {
        "copy_ms": round(float(copies / len(copied)), 3),
        "step_ms": round(float(np.median(np.diff(stepped))), 3),
        "wait_ms per step": round(float(waits / max(1, len(waited))), 4),
        "hidden": round(float(max(0.0, hidden)), 4),
        "copies under steps": round(float(common_ms(copied, stepped) / copies), 4),
        "steps / all time": round(
            float(np.diff(stepped[stepped[:, 0] >= first]).sum() / (last - first)), 4
        ),
        "copies": len(copied),
    }


def _spans(zero: Any, pairs: list[tuple[Any, Any]]) -> np.ndarray:
    """ms after `zero`, float64 (n, 2)."""
    found = [(zero.elapsed_time(begin), zero.elapsed_time(end)) for begin, end in pairs]
    return np.array(found, np.float64).reshape(-1, 2)


def common_ms(some: np.ndarray, others: np.ndarray) -> float:
    """Time that lies in both; neither overlaps itself. Arrays (n, 2), ms."""
    first = np.maximum(some[:, None, 0], others[None, :, 0])
    last = np.minimum(some[:, None, 1], others[None, :, 1])
    return float(np.maximum(last - first, 0).sum())


def _event() -> Any:
    import torch

    return torch.cuda.Event(enable_timing=True)
