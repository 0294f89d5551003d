"""Why is this GPU idle? Every idle nanosecond of a trace gets one cause; the causes sum to the idle time exactly.

    from fastfeed.profiler import analyze, read
    result = analyze([read("trace.json.gz")])
    result.verdict.headline

Stands alone: nothing of the rest of fastfeed is imported but its errors. From bytes to words:

    readers/    files of every dialect -> `trace.Trace`; `merge` adds the feed's own timeline
    trace       the normal form: operations, calls, ranges; `intervals`: which nanoseconds, exactly
    host        what each thread was doing, by `meanings` of names; `launches`: which call launched what
    attribution one device: `budget` (busy classes), `gaps` (late, call, queued), `late` and `queued` (causes)
    steps, share, statistics       steady steps, the share of input and how sure it is
    ranks       who waited for whom inside collectives: `collectives`, `clocks`, `proxy`
    remedies, verdict              what costs most, what to change; or why that cannot be said
    analysis    puts it together -> `result.Result`
    reports/    text, page, JSON, Perfetto; `compare`: two results; `gate`: limits for CI
    runner/     runs a command under nsys or nvprof (`nsight`)
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
