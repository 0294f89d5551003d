"""DALI by load of the hardware JPEG engine and threads, nvImageCodec by threads: the best point on this machine."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.contestants import Ours, Rival
from benchmarks.gpu_check.setting import Wrong
from benchmarks.gpu_kit.steps.feeds import threads_here
from fastfeed.backends.options import GpuDecode

__all__ = ["LOADS", "run"]

LOADS = (0.0, 0.06, 0.12, 0.25, 0.4, 0.65, 0.9, 1.0)
_THREADS = (4, 8, 16)


def run(context: Any) -> None:
    """Every cell alone, the likely ones first. `fastfeed` is ours on DALI, `DALI` its documentation's own example."""
    setting = context.setting()
    sets = dict(list(setting.sets.items())[: 1 if context.stand_in else 2])
    for name, folder in sets.items():
        _grid(context, setting, name, folder)
    wrong = [
        f"{name}, {who}, {key}: {cell['error']}"
        for name in sets
        for who, cells in context.figures.get(name, {}).items()
        for key, cell in cells.items()
        if "error" in cell
    ]
    if wrong:
        raise Wrong(wrong, context.figures)


def _grid(context: Any, setting: Any, name: str, folder: Path) -> None:
    counts = threads_here(context.stand_in, _THREADS)[::-1]
    loads = (0.65,) if context.stand_in else sorted(LOADS, key=lambda load: abs(load - 0.4))
    batch = 8 if context.stand_in else 32 if name == "stock" else 256
    cells = [(threads, load) for load in loads for threads in counts]
    if name == "stock" and not context.stand_in:
        cells = [(counts[0], load) for load in (0.0, 0.4, 1.0)]
    found: dict[str, dict[str, Any]] = {"fastfeed": {}, "DALI": {}, "nvImageCodec": {}}

    def ours(threads: int, decode: GpuDecode) -> Ours:
        return Ours(replace(setting, cores=threads), folder, decode, batch)

    for threads in counts:
        make = partial(ours, threads, GpuDecode(engine="nvimagecodec"))
        _cell(context, found, name, "nvImageCodec", f"{threads} threads", make)
    for threads, load in cells:
        key = f"{threads} threads, load {load:g}"
        _cell(context, found, name, "DALI", key, partial(Rival, setting, folder, threads, load, batch))
        _cell(context, found, name, "fastfeed", key, partial(ours, threads, GpuDecode(hw_load=load)))


def _cell(context: Any, found: Any, name: str, who: str, key: str, make: Any) -> None:
    seconds = 0.1 if context.stand_in else 1.5
    if context.skips(f"{name}, {who}, {key}", 1 if context.stand_in else 5):
        return
    try:
        one = make()
        try:
            one.warm(seconds / 2)
            found[who][key] = one.run(seconds)._asdict()
        finally:
            one.close()
    except Exception as error:  # the other cells are worth having
        found[who][key] = {"error": f"{type(error).__name__}: {error}"[:300]}
    context.note(name, found)
