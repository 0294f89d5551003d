"""3.

Bad files on every path: the run continues, the quarantine names exactly these, and memory stays
flat.

Every batch of the 2,000 has bad files in it that were not met before. Of files that decoders judge
differently it is told how many were named.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import fastfeed as ff
from benchmarks.gpu_check.parts.setting import Setting, Wrong, quiet, rss_mb
from benchmarks.gpu_check.parts.spoiled import Blobs, spoiled
from fastfeed.backends.options import GpuDecode

BATCH, BATCHES = 16, 2000
SETTLED = 0.4  # of the batches: pools have their size by then
# may come after that: allocators' rounding; the list of bad files is a few MB itself
DEVICE_MB, RSS_MB = (
    64,
    96,
)
LEAST = 10  # batches, or a path has shown nothing


def run(setting: Setting) -> dict[str, Any]:
    batches = 60 if setting.quick else BATCHES
    source, unsure, bad = spoiled(next(iter(setting.sets.values())), batches * BATCH)
    figures: dict[str, Any] = {}
    wrongs: dict[str, str] = {}
    paths = _paths(setting)
    end = setting.until
    for number, (name, decode) in enumerate(paths.items()):
        setting.until = end - setting.left() * (len(paths) - 1 - number) / (len(paths) - number)
        figures[name] = _path(setting, source, unsure, bad, decode)
        wrongs[name] = figures[name].pop("wrong")
        setting.until = end
        setting.say(f"{name}: {figures[name]}")
    wrong = [f"{name}: {found}" for name, found in wrongs.items() if found]
    if wrong:
        raise Wrong(wrong, figures)
    return figures


def _paths(setting: Setting) -> dict[str, Any]:
    loads = {"dali, hw load 0": 0.0, "dali, hw load 1": 1.0} if setting.gpu else {"dali": 0.65}
    return {
        **{name: GpuDecode(hw_load=load) for name, load in loads.items()},
        **({"nvjpeg": GpuDecode(engine="nvjpeg")} if setting.gpu else {}),
        "hybrid": GpuDecode(cpu_share=0.5),
        "cpu kernel": "cpu",
    }


def _path(
    setting: Setting, source: Blobs, unsure: dict[str, np.ndarray], bad: np.ndarray, decode: Any
) -> Any:
    policy = ff.FaultPolicy(max_share=0.5)
    ops = [ff.Resize((96, 96))]
    memory: list[tuple[float, float]] = []
    with ff.Feed(
        source, ops, batch=BATCH, threads=setting.cores, decode=decode, on_bad=policy
    ) as f:
        batches = f.plan.steps
        settled = int(batches * SETTLED)
        done, start = 0, time.perf_counter()
        with quiet():
            for images in _images(setting, f):
                done += 1
                assert tuple(images.shape) == (
                    BATCH,
                    96,
                    96,
                    3,
                ), f"a batch of {tuple(images.shape)}"
                if done == settled or (done > settled and done % 50 == 0):
                    gc.collect()
                    memory.append((setting.device_mb(), rss_mb()))
                if setting.left() < 0 and done >= LEAST:
                    break
        rate = done * BATCH / (time.perf_counter() - start)
        setting.sync()
        named = {failure.id for failure in f.stats().bad}
        come = set(np.concatenate([f.plan.visits(0, step).ids for step in range(done)]).tolist())
    if done < batches:
        setting.left_out.append(f"faults, {decode}: {batches - done} of {batches} batches")
    memory = memory or [(setting.device_mb(), rss_mb())]
    device, host = (max(m[k] for m in memory) - memory[0][k] for k in (0, 1))
    doubtful = set(np.concatenate(list(unsure.values())).tolist())
    extra, missed = named - set(bad.tolist()) - doubtful, come & set(bad.tolist()) - named
    wrong = []
    if extra:
        wrong.append(f"{len(extra)} good files named, such as {source.uri(min(extra))}")
    if missed:
        wrong.append(f"{len(missed)} bad files not named, such as {source.uri(min(missed))}")
    if device > DEVICE_MB:
        wrong.append(f"device memory grew by {device:.0f} MB, allowed {DEVICE_MB}")
    if host > RSS_MB:
        wrong.append(f"resident memory grew by {host:.0f} MB, allowed {RSS_MB}")
    return {
        "batches": done,
        "images_per_second": round(rate),
        "bad_named": len(named & set(bad.tolist())),
        **{
            f"named of {name}": f"{len(named & set(i.tolist()))}/{len(come & set(i.tolist()))}"
            for name, i in unsure.items()
        },
        "device_grown_mb": round(device, 1),
        "rss_grown_mb": round(host, 1),
        "wrong": "; ".join(wrong),
    }


def _images(setting: Setting, feed: ff.Feed) -> Iterator[Any]:
    """One epoch, on the GPU where there is one."""
    if not setting.gpu:
        return (batch.images for batch in feed)
    return (batch[0] for batch in feed.to_torch("cuda"))
