"""A result as a JSON document, with the fields that docs/profile_json.md describes.

The schema is "fastfeed.analysis/1". New fields keep the number; changing or removing a field
raises it. Times are integer nanoseconds on the clock of the trace, spans are half-open [start,
end), shares are fractions of 1, causes are named by their stable keys. In every period `budget`
sums to `window_ns`, and `causes` to `budget.idle`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastfeed.profiler.model import result as results
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import DeviceResult, FunctionTime, Period, Result
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
    results.Cold: "steps cut idle_ns=idle causes",
    results.Spread: "mean_ns=mean median_ns=median p95_ns=p95 low high",
    results.Gap: "start_ns=start end_ns=end causes last_op next_op thread inside step",
    results.PeerWait: "culprit=late_rank cause ns",
    results.LateRank: "label cause waited_ns share changes kernels",
    results.RankResult: "label offset_ns collectives waited_ns blamed_ns kernels",
    results.FeedResult: "feed name rank batches span_ns waited_ns training_ns wait_share threads"
    " busiest",
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
            **_plain(feed),
            "stages": {_plain(name): _stage(*row) for name, row in feed.stages.items()},
        }
        for feed in result.feeds
    ]
    return {
        "schema": SCHEMA,
        "verdict": _plain(result.verdict),
        "devices": [_device(device) for device in result.devices],
        "ranks": _plain(result.ranks),
        "feeds": feeds,
        "origins": _plain(result.origins),
        "notes": _plain(result.notes),
        "causes": {
            about.key: {"title": about.title, "family": about.family, "means": about.means}
            for about in Cause
        },
    }


def _plain(value: Any) -> Any:
    """Numbers, texts, lists and dicts; None for numbers that JSON cannot represent."""
    if type(value) in _FIELDS:
        pairs = (name.partition("=") for name in _FIELDS[type(value)].split())
        return {key: _plain(getattr(value, field or key)) for key, _, field in pairs}
    if isinstance(value, Cause):
        return value.key
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return round(float(value), 6) if np.isfinite(value) else None
    return str(value).encode("utf-8", "replace").decode()  # lone surrogates of file names


def _stage(spans: int, ns: int) -> dict[str, int]:
    return {"spans": int(spans), "ns": int(ns)}


def _device(device: DeviceResult) -> dict[str, Any]:
    return {
        "label": _plain(device.label),
        "origin": int(device.trace),
        "device": int(device.device),
        "rank": _plain(device.rank),
        "first_ns": int(device.first),
        "last_ns": int(device.last),
        "judged": "steady" if device.steady is not None else "whole",
        "input": _plain(device.share),
        "copies": _plain(device.copies),
        "framework": device.framework,
        "whole": _period(device.whole),
        "steady": _period(device.steady) if device.steady is not None else None,
        "cold": _plain(device.cold),
        "phases": [
            {
                "kind": phase.kind,
                "count": int(phase.count),
                "change": phase_change(device, phase),
                "share": _plain(figures.share_of_window(device.whole, phase.period.budget.window)),
                **_period(phase.period),
            }
            for phase in device.phases
        ],
        "steps": _steps(device),
        "functions": [_function(time, device) for time in device.functions],
        "worst": _plain(device.worst),
        "ops": int(device.ops),
        "launches": int(device.launches),
        "comm_wait_ns": int(device.comm_wait),
        "charges": _plain(device.charges),
        "stage": _plain(device.stage),
        "late_rank": _plain(device.late_rank),
        "facts": _plain(device.metrics),
    }


def _steps(device: DeviceResult) -> dict[str, Any]:
    steps, shares = device.steps, figures.step_shares(device)
    columns = (steps.labels, steps.spans.tolist(), steps.steady, shares.input, shares.idle)
    return {
        "found_by": steps.found_by,
        "guessed": bool(steps.guessed),
        "steady": figures.steps_judged(device),
        "missing": int(steps.missing),
        "per_step": _plain(device.per_step),
        "each": [
            {
                "label": _plain(label),
                "start_ns": start,
                "end_ns": end,
                "steady": bool(steady),
                "input": _plain(waited),
                "idle": _plain(waited + other),
            }
            for label, (start, end), steady, waited, other in zip(*columns, strict=False)
        ],
    }


def _period(period: Period) -> dict[str, Any]:
    budget = period.budget
    return {
        "window_ns": int(budget.window),
        "spans": len(period.spans),
        "budget": {part: int(getattr(budget, part)) for part in figures.PARTS},
        "causes": _plain(period.causes),
        "input": _plain(period.input),
    }


def _function(time: FunctionTime, device: DeviceResult) -> dict[str, Any]:
    steps = figures.steps_judged(device)
    return {
        "function": _plain(time.function),
        "file": _plain(time.file),
        "line": time.line or None,
        "inside": _plain(time.inside),
        "cause": time.cause.key,
        "ns": int(time.ns),
        "ns_per_step": int(time.ns / steps) if steps else None,
        "gaps": int(time.gaps),
    }
