"""A sample's pixels must not depend on the batch that it is in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import fastfeed as ff
from benchmarks.gpu_check.parts.setting import Setting
from fastfeed.backends.options import GpuDecode

SPLITS = (4, 12)  # samples per batch
_FILES = 48


def split(setting: Setting, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """(samples that differ, by way to decode; what is wrong)."""
    loads = (0.0, 1.0) if setting.gpu else (0.65,)
    ways = {f"dali, hw load {load:g}": GpuDecode(hw_load=load) for load in loads}
    ways["half by the native extension"] = GpuDecode(cpu_share=0.5)
    ways |= {"nvjpeg": GpuDecode(engine="nvjpeg")} if setting.gpu else {}
    figures, wrong = {}, []
    for name, decode in ways.items():
        one, other = (_by_id(setting, folder, decode, batch) for batch in SPLITS)
        both = sorted(one.keys() & other.keys())
        apart = [float(np.abs(one[i].astype(int) - other[i]).max()) for i in both]
        differ = sum(value > 0 for value in apart)
        figures[name] = {"samples": len(both), "differ": differ, "worst_levels": max(apart)}
        if differ:
            wrong.append(
                f"{name}: {differ} of {len(both)} samples differ with the batch, by"
                f" {max(apart):.0f} levels"
            )
    return figures, wrong


def _by_id(setting: Setting, folder: Path, decode: Any, batch: int) -> dict[int, np.ndarray]:
    """Pixels of the same samples of one epoch, uint8."""
    source = ff.ImageFolder(folder, labeled=False, progress=False)
    ops = [ff.RandomResizedCrop(128), ff.RandomFlip(), ff.RandAugment()]
    found: dict[int, np.ndarray] = {}
    with ff.Feed(source, ops, batch=batch, threads=setting.cores, decode=decode, seed=11) as feed:
        for made in feed.batches(0):
            images = made.images.get() if hasattr(made.images, "get") else made.images
            found |= {int(i): image.copy() for i, image in zip(made.ids, images, strict=True)}
            if len(found) >= _FILES:
                break
    return found
