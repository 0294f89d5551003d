"""GPU and kernel together, next to each alone and to DALI tuned by hand: what gpu_check calls rates."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_check import rates

__all__ = ["run"]


def run(context: Any) -> None:
    setting = context.setting()
    if context.stand_in:
        setting.sets = dict(list(setting.sets.items())[:1])
    for name, figures in rates.run(setting).items():
        context.note(name, figures)
    context.note("learned", {name: str(value) for name, value in setting.learned.items()})
