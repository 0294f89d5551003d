"""Memory of the GPU over 2,000 batches of good photographs: flat, on every path."""

from __future__ import annotations

import gc
from typing import Any

from benchmarks.gpu_check.parts.setting import Wrong, rss_mb
from benchmarks.gpu_check.steps.feeds import endless, feed, threads_here
from fastfeed.backends.options import GpuDecode

BATCHES, SETTLED = 2000, 0.4
DEVICE_MB, RSS_MB = 64, 96  # may come after pools have settled: allocators' rounding


def run(context: Any) -> None:
    setting = context.setting()
    folder, threads = next(iter(setting.sets.values())), threads_here(context.stand_in)[-1]
    paths: dict[str, Any] = {
        "cpu kernel": "cpu",
        "dali": GpuDecode(),
        "hybrid": GpuDecode(cpu_share=0.5),
    }
    paths |= {} if context.stand_in else {"nvjpeg": GpuDecode("nvjpeg")}
    batches, wrong = 20 if context.stand_in else BATCHES, []
    for name, decode in paths.items():
        if context.skips(name, 2):
            continue
        try:
            made = feed(folder, 4 if context.stand_in else 16, threads, decode)
            found = _path(setting, context, made, batches, len(paths))
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
            wrong.append(f"{name}: {found['error']}")
        context.note(name, found)
        if found.get("device_grown_mb", 0) > DEVICE_MB or found.get("rss_grown_mb", 0) > RSS_MB:
            wrong.append(f"{name} grew: {found}")
    if wrong:
        raise Wrong(wrong, context.figures)


def _path(setting: Any, context: Any, made: Any, batches: int, paths: int) -> dict[str, Any]:
    seconds, memory, done = context.seconds / paths, [], 0
    end = context.left() - seconds
    with made:
        images = endless(made.to_torch("cuda" if setting.gpu else "cpu"))
        for done in range(1, batches + 1):
            next(images)
            if done >= SETTLED * batches and done % (5 if context.stand_in else 50) == 0:
                gc.collect()
                memory.append((setting.device_mb(), rss_mb()))
            if context.left() < end and memory:
                break
        images.close()
    device, host = (round(max(m[k] for m in memory) - memory[0][k], 1) for k in (0, 1))
    return {
        "batches": done,
        "device_mb": round(memory[-1][0]),
        "device_grown_mb": device,
        "rss_grown_mb": host,
    }
