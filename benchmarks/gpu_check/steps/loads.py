"""DALI, and fastfeed on it, by load of the hardware JPEG engine and threads: the best point here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.parts.contestants import Ours, Rival
from benchmarks.gpu_check.parts.setting import Wrong
from benchmarks.gpu_check.steps.feeds import threads_here
from fastfeed.backends.options import GpuDecode

LOADS = (0.65, 0.9, 0.4, 1.0, 0.25, 0.12, 0.0, 0.06)  # the likely ones first
_THREADS = (4, 8, 16)
_AT_ONCE = ((2, 4), (3, 4), (4, 6))  # lanes, and prefetch; 2 and 2 are the defaults
_SHARES = {"imagenet": 0.7}  # of the time that is left, for a set; the last takes all
_CELL = 5.0  # seconds that one takes at most: build, warm up, measure


def run(context: Any) -> None:
    """Every cell alone, the likely ones first.

    `fastfeed` is ours on DALI, `DALI` its documentation's own example.
    """
    setting = context.setting()
    sets = dict(list(setting.sets.items())[: 1 if context.stand_in else 2])
    for name, folder in sets.items():
        with context.part(1.0 if name == list(sets)[-1] else _SHARES.get(name, 0.5)):
            _grid(context, setting, name, folder)
    for name in sets:
        context.note(f"best load, {name}", best_load(context.figures.get(name, {})))
    wrong = [
        f"{name}, {who}, {key}: {cell['error']}"
        for name in sets
        for who, cells in context.figures.get(name, {}).items()
        for key, cell in cells.items()
        if "error" in cell
    ]
    if wrong:
        raise Wrong(wrong, context.figures)


def best_load(found: Mapping[str, Any], who: str = "fastfeed") -> float | None:
    """The load at which the most images came; None where nothing was measured."""
    cells = {
        key: cell["images_per_second"]
        for key, cell in found.get(who, {}).items()
        if "images_per_second" in cell
    }
    best = max(cells, key=cells.__getitem__, default="")
    return float(best.rpartition(" load ")[2]) if best else None


def _grid(context: Any, setting: Any, name: str, folder: Path) -> None:
    """All loads with the most threads; then the other numbers of threads, at the loads that were
    best.
    """
    counts = threads_here(context.stand_in, _THREADS)[::-1]
    loads = (0.65,) if context.stand_in else LOADS if name == "imagenet" else (0.4, 0.0, 1.0)
    batch = 8 if context.stand_in else 32 if name == "stock" else 256
    found: dict[str, dict[str, Any]] = {"fastfeed": {}, "DALI": {}}
    for number, threads in enumerate(
        counts if name == "imagenet" or context.stand_in else counts[:1]
    ):
        if number:
            rates = {load: _rate(found, counts[0], load) for load in loads}
            loads = sorted(loads, key=lambda load, of=rates: -of[load])
        ours = partial(_ours, setting, folder, batch, threads)
        makes: dict[str, Callable[[float], Any]] = {
            "fastfeed": lambda load, ours=ours: ours(GpuDecode(hw_load=load)),
            "DALI": lambda load, threads=threads: Rival(setting, folder, threads, load, batch),
        }
        for load, who in itertools.product(loads, ("fastfeed", "DALI")):
            _cell(context, found, name, who, _key(threads, load), partial(makes[who], load))
        if not number and not context.stand_in:
            _variants(
                context,
                setting,
                found,
                name,
                folder,
                batch,
                threads,
                max(loads, key=lambda load: _rate(found, threads, load)),
            )


def _variants(
    context: Any,
    setting: Any,
    found: Any,
    name: str,
    folder: Path,
    batch: int,
    threads: int,
    load: float,
) -> None:
    """At this load: more batches at once than fastfeed's default, and DALI asked for what fastfeed
    asks it for.
    """
    key = _key(threads, load)
    for lanes, prefetch in _AT_ONCE:
        make = partial(
            _ours, setting, folder, batch, threads, GpuDecode(hw_load=load, lanes=lanes), prefetch
        )
        _cell(context, found, name, "fastfeed", f"{lanes} lanes, prefetch {prefetch}, {key}", make)
    for how in ({"fancy": True}, {"whole": True}, {"fancy": True, "whole": True}):
        make = partial(Rival, setting, folder, threads, load, batch, **how)
        _cell(context, found, name, "DALI", f"{' and '.join(how)}, {key}", make)


def _stages(one: Any) -> dict[str, str]:
    """Thread time per image, of a feed."""
    stages = one.feed.stats().stage_ms if isinstance(one, Ours) else {}
    return (
        {"stages, ms": ", ".join(f"{stage} {ms:.2f}" for stage, ms in stages.items())}
        if stages
        else {}
    )


def _key(threads: int, load: float) -> str:
    return f"{threads} threads, load {load:g}"


def _rate(found: Any, threads: int, load: float) -> float:
    return max(
        cells.get(_key(threads, load), {}).get("images_per_second", 0.0) for cells in found.values()
    )


def _ours(
    setting: Any, folder: Path, batch: int, threads: int, decode: GpuDecode, prefetch: int = 2
) -> Ours:
    return Ours(replace(setting, cores=threads), folder, decode, batch, prefetch)


def _cell(context: Any, found: Any, name: str, who: str, key: str, make: Any) -> None:
    seconds = 0.1 if context.stand_in else 1.2
    if context.skips(f"{name}, {who}, {key}", _CELL):
        return
    try:
        one = make()
        try:
            one.warm(seconds / 2)
            found[who][key] = one.run(seconds)._asdict() | _stages(one)
        finally:
            one.close()
    except Exception as error:  # the other cells are worth having
        found[who][key] = {"error": f"{type(error).__name__}: {error}"[:300]}
    context.note(name, found)
