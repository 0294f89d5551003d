"""A result as a JSON document, with the fields that docs/profile_json.md describes.

The schema is "fastfeed.analysis/1". New fields keep the number; changing or removing a field
raises it. Times are integer nanoseconds on the clock of the trace, spans are half-open [start,
end), shares are fractions of 1, causes are named by their stable keys. In every period `budget`
sums to `window_ns`, and `causes` to `budget.idle`.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from fastfeed.profiler.compare import changes
from fastfeed.profiler.model import result as results
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import DeviceResult, Period, Result
from fastfeed.profiler.model.trace import Origin
from fastfeed.profiler.reports import figures
from fastfeed.profiler.verdict.input_advice import phase_change

__all__ = ["SCHEMA", "as_dict"]

SCHEMA = "fastfeed.analysis/1"
# keys in the document of what has no more to it than its fields; "key=field" where names differ
_FIELDS: dict[type, str] = {
    results.Verdict: "word headline bound confidence input=share evidence against=counter_evidence"
    " falsify=refutation change command reasons record remedies",
    results.Remedy: "family share ms_per_step ceiling causes change evidence",
    results.Share: "value low high median p95 steps_over",
    results.InputWait: "total_ns=total exposed_ns=exposed hidden_ns=hidden ramp_ns=ramp waits"
    " longest_ns=longest",
    results.InputStage: "name path self_ns share",
    results.ColdStart: "steps cut idle_ns=idle causes",
    results.Spread: "mean_ns=mean median_ns=median p95_ns=p95 low high",
    results.Gap: "start_ns=start end_ns=end causes last_op next_op thread inside step",
    results.PeerWait: "culprit=late_rank cause ns",
    results.LateRank: "label cause waited_ns share changes kernels",
    results.RankResult: "label offset_ns collectives waited_ns blamed_ns kernels",
    results.FeedResult: "feed name rank batches span_ns waited_ns training_ns wait_share threads"
    " busiest",
    results.TimeBreakdown: "compute comm h2d other overhead idle",
    changes.Comparison: "outcome sentence before after devices only_before only_after notes feeds",
    changes.Side: "paths verdict=word reasons devices",
    changes.DeviceChange: "before=before.label after=after.label rank=after.rank speedup step input"
    " budget=parts causes",
    changes.FeedChange: "feed=label rank=after.rank batches batch wait stages",
    changes.MetricChange: "key=name title before after before_ns_per_step=before_ns"
    " after_ns_per_step=after_ns change_ns_per_step=change_ns moved=direction",
    changes.Difference: "value low high",
    Origin: "path dialect version wall_ns host_calls dropped sampled incomplete notes",
}


def as_dict(result: Result) -> dict[str, Any]:
    """Everything except the timeline: numbers, strings, lists and dicts, for json.dumps.

    Args:
        result (Result): What `analyze` returned.

    Returns:
        The document of `fastfeed analyze --json`; docs/profile_json.md describes every field.

    Example:
        >>> from fastfeed import profiler
        >>> from fastfeed.profiler.reports import document
        >>> report = document.as_dict(profiler.analyze([profiler.read("trace.json")]))
        >>> report["schema"], report["verdict"]["word"]
        ('fastfeed.analysis/1', 'severe')
    """
    feeds = [
        {
            **plain(feed),
            "stages": {
                plain(name): {"spans": int(spans), "ns": int(ns)}
                for name, (spans, ns) in feed.stages.items()
            },
        }
        for feed in result.feeds
    ]
    return {
        "schema": SCHEMA,
        "verdict": plain(result.verdict),
        "devices": [_device(device) for device in result.devices],
        "ranks": plain(result.ranks),
        "feeds": feeds,
        "origins": plain(result.origins),
        "notes": plain(result.notes),
        "causes": {
            about.key: {"title": about.title, "family": about.family, "means": about.means}
            for about in Cause
        },
    }


def plain(value: Any, digits: int = 6) -> Any:
    """Numbers, texts, lists and dicts; None for numbers that JSON cannot represent."""
    if type(value) in _FIELDS:
        return _fields(value, _FIELDS[type(value)], digits)
    if isinstance(value, Cause):
        return value.key
    if isinstance(value, Mapping):
        return {plain(key): plain(item, digits) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item, digits) for item in value]
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return round(float(value), digits) if np.isfinite(value) else None
    return str(value).encode("utf-8", "replace").decode()  # lone surrogates of file names


def _fields(value: Any, names: str, digits: int = 6) -> dict[str, Any]:
    """Values by key, in the syntax of _FIELDS."""
    pairs = (name.partition("=") for name in names.split())
    return {key: plain(attrgetter(field or key)(value), digits) for key, _, field in pairs}


def _device(device: DeviceResult) -> dict[str, Any]:
    steps = figures.steps_judged(device)
    return {
        **_fields(device, "label origin=trace device rank first_ns=first last_ns=last"),
        "judged": "steady" if device.steady is not None else "whole",
        **_fields(device, "input=share copies framework"),
        "whole": _period(device.whole),
        "steady": _period(device.steady) if device.steady is not None else None,
        "cold": plain(device.cold),
        "phases": [
            {
                **_fields(phase, "kind count"),
                "change": phase_change(device, phase),
                "share": plain(device.whole.share(phase.period.budget.window)),
                **_period(phase.period),
            }
            for phase in device.phases
        ],
        "steps": _steps(device),
        "functions": [
            {
                **_fields(time, "function file"),
                "line": time.line or None,
                **_fields(time, "inside cause ns"),
                "ns_per_step": int(time.ns / steps) if steps else None,
                "gaps": int(time.gaps),
            }
            for time in device.functions
        ],
        **_fields(device, "worst ops launches comm_wait_ns=comm_wait charges stage late_rank"),
        "facts": plain(device.metrics),
    }


def _steps(device: DeviceResult) -> dict[str, Any]:
    steps = device.steps
    (waited, idle) = figures.step_shares(device)
    columns = (steps.labels, *steps.spans.T.tolist(), steps.steady, waited, waited + idle)
    keys = ("label", "start_ns", "end_ns", "steady", "input", "idle")
    return {
        **_fields(steps, "found_by guessed"),
        "steady": figures.steps_judged(device),
        "missing": int(steps.missing),
        "per_step": plain(device.per_step),
        "each": [dict(zip(keys, plain(row), strict=True)) for row in zip(*columns, strict=False)],
    }


def _period(period: Period) -> dict[str, Any]:
    return {
        "window_ns": int(period.budget.window),
        "spans": len(period.spans),
        **_fields(period, "budget causes input"),
    }
