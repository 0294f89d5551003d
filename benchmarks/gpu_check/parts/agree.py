"""4.

The same pixels: as the cpu backend makes them, in any batch, and at the moment they are used.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_check.parts.ops import compared
from benchmarks.gpu_check.parts.setting import Setting, Wrong, quiet
from benchmarks.gpu_check.parts.splits import split
from benchmarks.gpu_check.parts.streams import ordered


def run(setting: Setting) -> dict[str, Any]:
    folder = next(iter(setting.sets.values()))
    photos = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    figures: dict[str, Any] = {}
    wrong: list[str] = []
    with quiet():  # nvImageCodec says how many threads it takes
        figures["order of streams"], found = ordered(setting, folder)  # whether it is safe, first
        wrong += found
        setting.say(f"order of streams: {figures['order of streams']}")
        figures["levels against cpu"], found = compared(setting, photos)
        wrong += found
        setting.say(f"against the cpu backend: {figures['levels against cpu']}")
        if not setting.skips("agree, split into batches of 4 and 12", 5):
            figures["batches of 4 and 12"], found = split(setting, folder)
            wrong += found
            setting.say(f"batches of 4 and 12: {figures['batches of 4 and 12']}")
    if wrong:
        raise Wrong(wrong, figures)
    return figures
