"""Parts of gpu_check that stand for themselves: bad files, agreement of pixels, copies under
compute.
"""

from __future__ import annotations

import importlib
from typing import Any


def run(context: Any) -> None:
    if context.name == "overlap" and context.stand_in:
        _overlap_stand_in(context)
        return
    setting = context.setting()
    part = importlib.import_module(f"benchmarks.gpu_check.parts.{context.name}")
    for name, figures in part.run(setting).items():
        context.note(name, figures)


def _overlap_stand_in(context: Any) -> None:
    """Its arithmetic, with made-up events: a processor has no copies that run under compute."""
    import numpy as np

    from benchmarks.gpu_check.parts.overlap import common_ms

    copies, steps = np.array([[0.0, 2.0], [5.0, 6.0]]), np.array([[1.0, 3.0], [5.5, 9.0]])
    context.note("made-up events", {"copies_ms": 3.0, "under steps_ms": common_ms(copies, steps)})
