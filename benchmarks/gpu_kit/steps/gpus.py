"""Several GPUs: real against synthetic by number of GPUs, by benchmarks/gpu_check/scaling.py."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_check import scaling

__all__ = ["run"]


def run(context: Any) -> None:
    folder = next(iter(context.setting().sets.values()))
    counts = (1, 2) if context.stand_in else scaling.counts_here()
    for name, figures in scaling.measured(folder, counts, context.stand_in, max(10.0, context.left())).items():
        context.note(name, figures)
