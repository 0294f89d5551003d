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

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import (
    Cold,
    DeviceResult,
    FeedResult,
    FunctionTime,
    Gap,
    InputStage,
    LateRank,
    Period,
    RankResult,
    Remedy,
    Result,
    Share,
    Verdict,
)
from fastfeed.profiler.model.trace import Origin
from fastfeed.profiler.reports import figures
from fastfeed.profiler.verdict.input_advice import phase_change

__all__ = ["SCHEMA", "as_dict"]

SCHEMA = "fastfeed.analysis/1"


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
    return {
        "schema": SCHEMA,
        "verdict": _verdict(result.verdict),
        "devices": [_device(device) for device in result.devices],
        "ranks": [_rank(rank) for rank in result.ranks],
        "feeds": [_feed(feed) for feed in result.feeds],
        "origins": [_origin(origin) for origin in result.origins],
        "notes": [_text(note) for note in result.notes],
        "causes": {
            about.key: {"title": about.title, "family": about.family, "means": about.means}
            for about in Cause
        },
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "word": verdict.word,
        "headline": _text(verdict.headline),
        "bound": verdict.bound,
        "confidence": verdict.confidence,
        "input": _share(verdict.share),
        "evidence": [_text(sentence) for sentence in verdict.evidence],
        "against": [_text(sentence) for sentence in verdict.counter_evidence],
        "falsify": _text(verdict.refutation),
        "change": _text(verdict.change),
        "command": _text(verdict.command),
        "reasons": [_text(sentence) for sentence in verdict.reasons],
        "record": _text(verdict.record),
        "remedies": [_remedy(remedy) for remedy in verdict.remedies],
    }


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "family": remedy.family,
        "share": _number(remedy.share),
        "ms_per_step": _number(remedy.ms_per_step),
        "ceiling": _number(remedy.ceiling),
        "causes": _causes(remedy.causes),
        "change": _text(remedy.change),
        "evidence": _text(remedy.evidence),
    }


def _device(device: DeviceResult) -> dict[str, Any]:
    shares = figures.step_shares(device)
    return {
        "label": _text(device.label),
        "origin": int(device.trace),
        "device": int(device.device),
        "rank": device.rank if device.rank is None else int(device.rank),
        "first_ns": int(device.first),
        "last_ns": int(device.last),
        "judged": "steady" if device.steady is not None else "whole",
        "input": _share(device.share),
        "copies": _share(device.copies),
        "framework": device.framework,
        "whole": _period(device.whole),
        "steady": _period(device.steady) if device.steady is not None else None,
        "cold": _cold(device.cold) if device.cold is not None else None,
        "phases": [
            {
                "kind": phase.kind,
                "count": int(phase.count),
                "change": phase_change(device, phase),
                "share": _number(figures.share_of_window(device.whole, phase.period.budget.window)),
                **_period(phase.period),
            }
            for phase in device.phases
        ],
        "steps": {
            "found_by": device.steps.found_by,
            "guessed": bool(device.steps.guessed),
            "steady": figures.steps_judged(device),
            "missing": int(device.steps.missing),
            "per_step": {
                key: {
                    "mean_ns": spread.mean,
                    "median_ns": spread.median,
                    "p95_ns": spread.p95,
                    "low": _number(spread.low),
                    "high": _number(spread.high),
                }
                for key, spread in device.per_step.items()
            },
            "each": [
                {
                    "label": _text(label),
                    "start_ns": start,
                    "end_ns": end,
                    "steady": bool(steady),
                    "input": _number(waited),
                    "idle": _number(waited + other),
                }
                for label, (start, end), steady, waited, other in zip(
                    device.steps.labels,
                    device.steps.spans.tolist(),
                    device.steps.steady,
                    shares.input,
                    shares.idle,
                    strict=False,
                )
            ],
        },
        "functions": [_function(time, device) for time in device.functions],
        "worst": [_gap(gap) for gap in device.worst],
        "ops": int(device.ops),
        "launches": int(device.launches),
        "comm_wait_ns": int(device.comm_wait),
        "charges": [
            {
                "culprit": _text(charge.late_rank),
                "cause": None if charge.cause is None else charge.cause.key,
                "ns": int(charge.ns),
            }
            for charge in device.charges
        ],
        "stage": None if device.stage is None else _stage(device.stage),
        "late_rank": None if device.late_rank is None else _late_rank(device.late_rank),
        "facts": {str(key): _number(value) for key, value in device.metrics.items()},
    }


def _stage(stage: InputStage) -> dict[str, Any]:
    return {
        "name": _text(stage.name),
        "path": _text(stage.path),
        "self_ns": int(stage.self_ns),
        "share": _number(stage.share),
    }


def _late_rank(late: LateRank) -> dict[str, Any]:
    return {
        "label": _text(late.label),
        "cause": None if late.cause is None else late.cause.key,
        "waited_ns": int(late.waited_ns),
        "share": _number(late.share),
        "changes": bool(late.changes),
        "kernels": _number(late.kernels),
    }


def _period(period: Period) -> dict[str, Any]:
    budget, wait = period.budget, period.input
    return {
        "window_ns": int(budget.window),
        "spans": len(period.spans),
        "budget": {part: int(getattr(budget, part)) for part in figures.PARTS},
        "causes": _causes(period.causes),
        "input": {
            "total_ns": int(wait.total),
            "exposed_ns": int(wait.exposed),
            "hidden_ns": int(wait.hidden),
            "ramp_ns": int(wait.ramp),
            "waits": int(wait.waits),
            "longest_ns": int(wait.longest),
        },
    }


def _cold(cold: Cold) -> dict[str, Any]:
    return {
        "steps": int(cold.steps),
        "cut": int(cold.cut),
        "idle_ns": int(cold.idle),
        "causes": _causes(cold.causes),
    }


def _function(time: FunctionTime, device: DeviceResult) -> dict[str, Any]:
    steps = figures.steps_judged(device)
    return {
        "function": _text(time.function),
        "file": _text(time.file),
        "line": time.line or None,
        "inside": _text(time.inside),
        "cause": time.cause.key,
        "ns": int(time.ns),
        "ns_per_step": int(time.ns / steps) if steps else None,
        "gaps": int(time.gaps),
    }


def _gap(gap: Gap) -> dict[str, Any]:
    return {
        "start_ns": int(gap.start),
        "end_ns": int(gap.end),
        "causes": _causes(gap.causes),
        "last_op": _text(gap.last_op),
        "next_op": _text(gap.next_op),
        "thread": _text(gap.thread),
        "inside": _text(gap.inside),
        "step": _text(gap.step),
    }


def _rank(rank: RankResult) -> dict[str, Any]:
    return {
        "label": _text(rank.label),
        "offset_ns": int(rank.offset_ns),
        "collectives": int(rank.collectives),
        "waited_ns": int(rank.waited_ns),
        "blamed_ns": int(rank.blamed_ns),
        "kernels": _number(rank.kernels),
    }


def _feed(feed: FeedResult) -> dict[str, Any]:
    return {
        "feed": _text(feed.feed),
        "name": _text(feed.name),
        "rank": int(feed.rank),
        "batches": int(feed.batches),
        "span_ns": int(feed.span_ns),
        "waited_ns": int(feed.waited_ns),
        "training_ns": int(feed.training_ns),
        "wait_share": _number(feed.wait_share),
        "threads": int(feed.threads),
        "busiest": _text(feed.busiest),
        "stages": {
            _text(stage): {"spans": int(spans), "ns": int(ns)}
            for stage, (spans, ns) in feed.stages.items()
        },
    }


def _origin(origin: Origin) -> dict[str, Any]:
    return {
        "path": _text(str(origin.path)),
        "dialect": origin.dialect,
        "version": _text(origin.version),
        "wall_ns": None if origin.wall_ns is None else int(origin.wall_ns),
        "host_calls": bool(origin.host_calls),
        "dropped": int(origin.dropped),
        "sampled": bool(origin.sampled),
        "incomplete": _text(origin.incomplete),
        "notes": [_text(note) for note in origin.notes],
    }


def _share(share: Share) -> dict[str, Any]:
    keys = ("value", "low", "high", "median", "p95", "steps_over")
    return {key: _number(getattr(share, key)) for key in keys}


def _causes(causes: Mapping[Cause, int]) -> dict[str, int]:
    return {cause.key: int(ns) for cause, ns in causes.items()}


def _number(value: float | None) -> float | int | None:
    """None for values JSON cannot represent: an infinite ceiling, a share of nothing."""
    if value is None or not np.isfinite(value):
        return None
    return int(value) if isinstance(value, (int, np.integer)) else round(float(value), 6)


def _text(text: str) -> str:
    """Replaces lone surrogates (from undecodable file names), which cannot be written as UTF-8."""
    return text.encode("utf-8", "replace").decode()
