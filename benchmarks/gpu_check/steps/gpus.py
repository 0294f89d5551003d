"""Several GPUs: real against synthetic by number of GPUs, by benchmarks/gpu_check/scaling.py."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_check.parts import scaling
from benchmarks.gpu_check.parts.setting import Wrong


def run(context: Any) -> None:
    folder = next(iter(context.setting().sets.values()))
    counts = (1, 8) if context.stand_in else scaling.counts_here()
    # eight processes start on few cores
    seconds = 120.0 if context.stand_in else max(10.0, context.left())
    told = scaling.measured(folder, counts, context.stand_in, seconds)
    for name, figures in told.items():
        context.note(name, figures)
    if wrong := scaling.failed(told):
        raise Wrong(wrong, context.figures)
