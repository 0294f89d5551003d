"""The slowest stage of a tf.data pipeline, by the `Iterator::*` events of TensorFlow.

Each event is a call of `GetNext`, and its name is the path from the root:
`Iterator::Root::Prefetch::ParallelMapV2`. A stage is at work itself while it is in a call, on any
thread, and no stage above it in the data flow (further down the path) is. xprof ranks stages by
this self time, too.
"""

from __future__ import annotations

import re

import numpy as np

from fastfeed.profiler.model.intervals import intersect, measure, spans_at, subtract, union
from fastfeed.profiler.model.result import InputStage
from fastfeed.profiler.model.trace import Trace

__all__ = ["slowest_stage"]

_EVENT = re.compile(r"Iterator::([\w:\[\]]+)")
_MIN_NS = 50_000  # per wait: a faster stage is no bottleneck (xprof's limit)
_SEPARATOR = "::"


def slowest_stage(trace: Trace, waits: np.ndarray) -> InputStage | None:
    """The stage with most self time within these waits; None if none takes long.

    Args:
        trace: The recording.
        waits: When the trainer waited for input: a set of spans.
    """
    ranges = trace.ranges
    paths: dict[str, list[int]] = {}
    for number, name in enumerate(trace.names):
        if match := _EVENT.match(name):
            paths.setdefault(match[1], []).append(number)
    if not paths or not len(waits):
        return None
    active = {}
    for path, numbers in paths.items():
        rows = np.isin(ranges.name, numbers)
        active[path] = intersect(union(spans_at(ranges, rows)), waits)
    own = {}
    for path, covered in active.items():
        deeper = [other for name, other in active.items() if name.startswith(path + _SEPARATOR)]
        own[path] = measure(subtract(covered, union(*deeper))) if deeper else measure(covered)
    slowest = max(own, key=lambda path: own[path])
    if own[slowest] < _MIN_NS * len(waits):
        return None
    return InputStage(
        slowest.rsplit(_SEPARATOR, 1)[-1], slowest, own[slowest], own[slowest] / measure(waits)
    )
