"""Why is this GPU idle?

Every idle nanosecond of a trace gets one cause; the causes sum to the idle time exactly.

    from fastfeed.profiler import analyze, read
    result = analyze([read("trace.json.gz")])
    result.verdict.headline

Imports nothing else of fastfeed except its errors. From files to a report:

    model/        the values: `trace` (ops, calls, ranges), `causes`, `intervals`, `result`
    readers/      trace files of every format -> `Trace`; merge/ joins files of one process
    attribution/  one device: its idle gaps, what the host was doing, one cause per nanosecond
    ranks/        several devices: matching collectives, clock offsets, which rank the others waited
    for steps/        steady training steps, and the share of them lost to input verdict/
    starved or not, with evidence, counter-evidence and advice; or why that is unknown analysis
    runs all of these -> `Result` compare/      two results, before and after; limits for CI
    reports/      text, HTML, JSON, Perfetto runner/       runs a command under Nsight Systems or
    nvprof
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastfeed.profiler.analysis import analyze
    from fastfeed.profiler.readers import read

__all__ = ["analyze", "read"]

_HOMES = {"analyze": "analysis", "read": "readers"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
