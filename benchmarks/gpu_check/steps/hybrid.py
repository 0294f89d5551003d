"""GPU and kernel together, next to each alone and to DALI tuned by hand: what gpu_check calls
rates.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_check.parts import rates
from benchmarks.gpu_check.parts.setting import NotRun
from benchmarks.gpu_check.steps.loads import best_load

_FIRST = 0.65  # share of the time for the first set, which the mark is on


def run(context: Any) -> None:
    """One set first, hybrid right after the native extension; it is not done before hybrid was
    measured on that set.
    """
    sets = dict(list(context.setting().sets.items())[: 1 if context.stand_in else None])
    learned: dict[str, Any] = {}
    first = next(iter(sets))
    for name, folder in sets.items():
        with context.part(_FIRST if name == first and len(sets) > 1 else 1.0):
            setting = context.setting()
            setting.sets, setting.learned = {name: folder}, learned
            load = best_load(context.earlier("loads").get(name, {}))
            learned.pop("hw_load", None)
            if load is not None:
                learned["hw_load"] = load
            context.note(
                f"load, {name}", "not known: the step `loads` has none" if load is None else load
            )
            for key, figures in rates.run(setting).items():
                context.note(key, figures)
        if name == first and not _measured(context.figures.get(name, {})):
            raise NotRun(
                f"hybrid was not measured on {name} in {context.seconds:.0f} s: run the same"
                " command again"
            )
    context.note("learned", {name: str(value) for name, value in learned.items()})


def _measured(figures: dict[str, Any]) -> bool:
    return any(name.startswith("hybrid") for name in figures.get("singly", {}))
